"""Rows of collecting sinks as Parquet files that workers write and Spark reads: one for each sink and worker.

Where all executors run on the driver's machine, rows need not go through the driver. Each worker writes into the job's
private folder, and the result is a DataFrame over these files: it takes no memory of the JVM and answers a count from
the files' footers. Columns are named by position, because Parquet does not take every name; the reader restores the
names. Rows keep their task's order (`test_rows_come_back_in_order_under_any_name`). Rejected: dictionaries and
compression, which cost more time than they save where files are read on the machine that wrote them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.run.operators.sinks.row_groups import RowGroups

OPTIONS: dict[str, object] = {
    "compression": "none",
    "use_dictionary": False,
    "write_statistics": False,
    "store_schema": False,
}


def fits_parquet(schema: pa.Schema) -> bool:
    """Whether Spark reads from Parquet exactly what was written, for every type in the schema."""
    return bool(len(schema)) and all(_fits(field.type) for field in schema)


def _fits(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        names = {field.name.lower() for field in kind}  # Spark looks nested fields up by name, in either case
        return 0 < len(names) == kind.num_fields and all(_fits(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _fits(kind.key_type) and _fits(kind.item_type)
    if pa.types.is_list(kind):
        return _fits(kind.value_type)
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    plain = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32())
    return kind in (*plain, pa.string(), pa.binary()) or pa.types.is_decimal128(kind)


def positional(schema: pa.Schema) -> pa.Schema:
    """The schema with columns named c0, c1, ..."""
    return pa.schema([field.with_name(f"c{i}") for i, field in enumerate(schema)])


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
        pairs = zip(batch.columns, part.schema, strict=True)
        arrays = [array if array.type == field.type else array.cast(field.type) for array, field in pairs]
        part.add(pa.RecordBatch.from_arrays(arrays, schema=part.schema))

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
