"""Union: several streams of one schema as one; its event time is that of the slowest input."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.run.contract import Outputs, Task


class Union(Task):
    """Passes every batch on, whichever input it came from."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else list(columns)  # an input may have further columns for other readers

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Pass on."""
        out.emit(batch if self.columns in (None, batch.schema.names) else batch.select(self.columns))
