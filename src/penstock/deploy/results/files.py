"""Rows of collecting sinks as Parquet files that workers write and Spark reads: one for each sink and worker.

Where all executors run on the driver's machine, rows need not go through the driver. Each worker writes into the job's
private folder, and the result is a DataFrame over these files: it takes no memory of the JVM and answers a count from
the files' footers. Columns are named by position (`run/operators/sinks/positional.py`); the reader restores the names.
Rows keep their task's order (`test_rows_come_back_in_order_under_any_name`).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.run.operators.sinks.positional import OPTIONS, fitted, positional
from penstock.run.operators.sinks.row_groups import RowGroups


@dataclass(frozen=True)
class ResultFolder:
    """The folder into which workers write the rows of sinks."""

    root: str
    schemas: Mapping[str, pa.Schema]  # of the sinks whose rows go into files

    def of(self, sink: str) -> Path:
        """The folder of one sink."""
        return Path(self.root) / f"sink-{list(self.schemas).index(sink)}"

    def size(self, sink: str) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.of(sink).glob("*.parquet"))

    def table(self, sink: str) -> pa.Table:
        """All rows of a sink, in the order of its workers."""
        import pyarrow.parquet as pq

        parts = [pq.read_table(path) for path in sorted(self.of(sink).glob("*.parquet"))]
        schema = self.schemas[sink]
        return pa.concat_tables(parts).rename_columns(schema.names).cast(schema) if parts else schema.empty_table()


class ResultFiles:
    """What one worker writes."""

    def __init__(self, folder: ResultFolder, worker: int) -> None:
        self._folder, self._worker = folder, worker
        self._parts: dict[str, RowGroups] = {}

    def deliver(self, sink: str, batch: pa.RecordBatch) -> None:
        """Append rows."""
        with _told():
            self._add(sink, batch)

    def _add(self, sink: str, batch: pa.RecordBatch) -> None:
        part = self._parts.get(sink)
        if part is None:
            folder = self._folder.of(sink)
            folder.mkdir(mode=0o700, exist_ok=True)
            schema = positional(self._folder.schemas[sink])
            part = self._parts[sink] = RowGroups(folder / f"part-{self._worker:05d}.parquet", schema, **OPTIONS)
        part.add(fitted(batch, part.schema))

    def finish(self) -> None:
        """Make the files whole."""
        with _told():
            for sink in list(self._parts):
                self._parts[sink].finish()
                del self._parts[sink]

    def close(self) -> None:
        """Remove what was not finished."""
        while self._parts:
            self._parts.popitem()[1].abandon()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turns a disk error into one that says what it means for the job."""
    try:
        yield
    except OSError as error:
        raise OSError(unkept(str(error))) from error


def unkept(reason: str) -> str:
    """The error text of a job whose collected rows found no room."""
    return (
        f"its results could not be kept: {reason}; free room in {tempfile.gettempdir()}, let TMPDIR name a larger "
        "disk, or write them with a parquet sink"
    )
