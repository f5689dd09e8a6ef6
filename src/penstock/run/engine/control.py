"""The worker's line to the driver: commands in, metrics and the pace of its sources out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa


class Control(Protocol):
    """The worker's line to the driver."""

    def fileno(self) -> int:
        """Readable when a command waits, or what was handed over beside the loop has gone wrong (`Epochs.check`)."""

    def commands(self) -> list[str]:
        """Commands that wait: `stop` (drain and end), `cancel` (end now), `over`, `scale` or `move` with more."""

    def over(self) -> None:
        """Wait until all workers stand still to go over to the next attempt; Cancelled where nothing comes of it."""

    def moves(self, said: Mapping[str, object]) -> None:
        """Say how far this worker is with a move; must not block."""

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log; must not block."""

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        """Tell how far this worker's sources are; answers how far those of others are known to be. Must not block."""
