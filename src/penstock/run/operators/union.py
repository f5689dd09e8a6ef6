"""Union: several streams of one schema as one. Event time of the result is that of the slowest input."""

from __future__ import annotations

import pyarrow as pa

from penstock.run.contract import Outputs, Task


class Union(Task):
    """Passes every batch on, whichever input it came from."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Pass on."""
        out.emit(batch)
