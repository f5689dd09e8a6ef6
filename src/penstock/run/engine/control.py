"""The worker's line to the driver: commands in, metrics and the pace of its sources out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa


class Control(Protocol):
    """The worker's line to the driver."""

    def fileno(self) -> int:
        """Readable when a command waits."""

    def commands(self) -> list[str]:
        """Commands that wait: `stop` (drain and end), `cancel` (end now) or `scale COUNT REGION`."""

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log; must not block."""

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        """Tell how far this worker's sources are; answers how far those of others are known to be. Must not block."""
