"""Files as a source: Parquet, CSV and JSON lines, shared out over the tasks in sorted order and streamed.

The list of files is made where the topology is built, so that every task shares out the same list. A task holds one
piece of one file at a time: a row group's batches, or a block of text. Where event time is made from one of their
columns, they are read in its order (`files_in_time.py`). What is left to read is plain data (`splits.py`), which a job
goes on from, also with other tasks.
"""

from __future__ import annotations

import glob
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.run.contract import BEFORE_TIME_US, Outputs, Owns, Polled, TaskContext
from penstock.run.operators.sources.files_in_time import Batches, Piece, in_time, parquet_pieces, text_piece
from penstock.run.operators.sources.generated import PositionedSource
from penstock.run.operators.sources.parquet_types import Given, open_parquet, parquet_schema, rows_at_once
from penstock.run.operators.sources.splits import SPLITS, Splits

FORMATS = ("parquet", "csv", "json")
FILES_MAX = 1_000_000
_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
SUFFIXES = {"parquet": (".parquet", ".pq"), "csv": (".csv",), "json": (".json", ".jsonl", ".ndjson")}


def list_files(pattern: str, kind: str) -> tuple[str, ...]:
    """Files that a pattern or a folder names, sorted; as in Spark, names that begin with . or _ are left out."""
    if kind not in FORMATS:
        error = InvalidInput.unknown_name("file format", kind, FORMATS)
        raise error
    given = Path(pattern)
    if given.is_dir():
        found = [path for path in given.rglob("*") if path.name.lower().endswith(SUFFIXES[kind])]
        found = [
            path for path in found if not any(part.startswith((".", "_")) for part in path.relative_to(given).parts)
        ]
    else:
        found = [Path(path) for path in glob.glob(pattern, recursive=True)]
    files = tuple(sorted(str(path) for path in found if path.is_file()))
    if not files:
        msg = f"no {kind} files at {pattern!r}; give a folder, a file or a pattern such as 'data/*.{kind}'"
        raise InvalidInput(msg)
    if len(files) > FILES_MAX:
        msg = f"{pattern!r} names {len(files)} files; the limit is {FILES_MAX}"
        raise InvalidInput(msg)
    return files


def infer_schema(path: str, kind: str) -> pa.Schema:
    """The schema of a file, from its footer or its first block."""
    try:
        if kind == "parquet":
            return parquet_schema(path)
        return _text_batches(path, kind, None)[0]
    except (pa.ArrowException, OSError) as error:
        msg = f"cannot read the schema of {path!r} as {kind}: {error}; give schema='...'"
        raise InvalidInput(msg) from error


def _text_batches(path: str, kind: str, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A streaming reader of a text file; declared columns are read as their types and others are left out."""
    if schema is not None and Path(path).stat().st_size == 0:  # as Spark writes a partition without rows; not for Arrow
        return schema, iter(())
    if kind == "csv":
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=None if schema is None else with_texts(schema),
            include_columns=None if schema is None else schema.names,
            include_missing_columns=False,
            null_values=[""],  # as Spark has it: nothing is null, also in text, and nothing else is
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        )
        reader = csv.open_csv(path, convert_options=convert)
        return reader.schema, iter(reader) if schema is None else (with_moments(batch, schema) for batch in reader)
    import pyarrow.json as json_lines

    options = json_lines.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer")
    reader = json_lines.open_json(path, parse_options=options)
    return reader.schema, iter(reader)


def with_texts(schema: pa.Schema) -> pa.Schema:
    """The schema with text in place of moments, which Arrow's reader takes only where each value names its zone."""
    return pa.schema([f.with_type(pa.string()) if _is_moment(f.type) else f for f in schema])


def with_moments(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Text that `with_texts` asked for as moments; one without a zone counts as UTC."""
    for position, field in enumerate(schema):
        if _is_moment(field.type):
            text = batch.column(position)
            zoned = pc.if_else(pc.match_substring_regex(text, _ZONE), text, pc.binary_join_element_wise(text, "Z", ""))
            batch = batch.set_column(position, field, zoned.cast(field.type))
    return batch


def _is_moment(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


class FilesSource(PositionedSource):
    """The files of one task, batch by batch."""

    def __init__(self, files: Sequence[Given], kind: str, schema: pa.Schema) -> None:
        """Files with sums, which are Parquet, are checked as they are read."""
        self._given = tuple(files)
        self.files = tuple(file if isinstance(file, str) else file.path for file in files)
        self.kind = kind
        self.schema = schema
        self.time_column: str | None = None
        self._rest_us = self._told_us = BEFORE_TIME_US  # the least time still to come; told so far

    def open(self, context: TaskContext) -> None:
        """Every tasks-th file is this task's."""
        super().open(context)
        self._splits = Splits(self.files, range(context.index, len(self.files), context.tasks))

    def tells_time(self, column: str) -> bool:
        """Files know what is still to come."""
        self.time_column = column
        return True

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """The next batch, and how far time has come with it."""
        polled = super().poll(now_us, out)
        if self._rest_us > self._told_us:
            self._told_us = self._rest_us
            out.watermark(self._told_us)
        return polled

    def items(self) -> Iterator[object]:
        """What is left of this task's files; each batch is taken from it before it goes out."""
        self._splits.require_kind(self.context.operator, by_time=self.time_column is not None)
        if self.time_column is not None:
            pieces: list[Piece] = []
            for file in [*self._splits.left]:
                pieces += yield from self._pieces(file)
            for batch, rest_us in in_time(pieces):
                self._rest_us = rest_us
                yield batch
            return
        for file in [*self._splits.left]:
            with self._named(self.files[file]):
                for batch in self._batches(self._given[file], self._splits.taken(file)):
                    self._splits.take(file, batch.num_rows)
                    yield batch
            self._splits.finish(file)

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Say which file it is that cannot be read."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            msg = f"source {self.context.operator!r} cannot read {path!r} as {self.kind}: {error}"
            raise InvalidInput(msg) from error

    def _pieces(self, file: int) -> Generator[None, None, list[Piece]]:
        """The file in pieces with their times, "nothing yet" after each step; `time_column` is known."""
        column, path = self.time_column or "", self.files[file]
        rows_max, taken = self.context.rows_max, partial(self._splits.taken, file)
        with self._named(path):
            if self.kind == "parquet":
                self._require_columns(self._given[file])
                found = parquet_pieces(self._given[file], self.schema.names, column, rows_max, taken)
                yield
            else:
                whole = yield from text_piece(partial(self._blocks, path), column, rows_max, taken)
                found = [] if whole is None else [whole]
        open_pieces = {piece.number for piece in found}
        if not found:
            self._splits.finish(file)
        return [piece._replace(read=partial(self._read, file, piece, open_pieces)) for piece in found]

    def _read(self, file: int, piece: Piece, open_pieces: set[int]) -> Batches:
        with self._named(self.files[file]):
            for batch, rest_us in piece.read():
                self._splits.take(file, batch.num_rows, piece.number)
                yield batch, rest_us
        open_pieces.remove(piece.number)
        if not open_pieces:
            self._splits.finish(file)

    def _blocks(self, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return _text_batches(path, self.kind, schema)[1]

    def _require_columns(self, given: Given) -> None:
        with open_parquet(given) as file:
            names = file.schema_arrow.names
        if missing := [name for name in self.schema.names if name not in names]:
            path = given if isinstance(given, str) else given.path
            msg = f"{path!r} has no column {missing[0]!r}; it has {', '.join(names)}"
            raise InvalidInput(msg)

    def _batches(self, given: Given, skip: int) -> Iterator[pa.RecordBatch]:
        """A file's rows behind the first so many."""
        if self.kind == "parquet" or not isinstance(given, str):
            self._require_columns(given)
            with open_parquet(given) as file:
                groups, skip = behind(file, skip)
                rows_max = rows_at_once(file, self.context.rows_max)
                yield from behind_rows(file.iter_batches(rows_max, row_groups=groups, columns=self.schema.names), skip)
            return
        rows_max = self.context.rows_max
        for batch in behind_rows(self._blocks(given), skip):
            for at in range(0, batch.num_rows, rows_max):
                yield batch.slice(at, rows_max)

    def take_state(self) -> dict[str, bytes]:
        """What is left to read."""
        return {SPLITS: self._splits.encoded(self._told_us)}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Read on there."""
        self._told_us = self._splits.put([state[SPLITS]], self.context.operator)
        self._iterator = None

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Share out the files that are left."""
        share = (self.context.index, self.context.tasks)
        self._told_us = self._splits.put([state[SPLITS] for state in states], self.context.operator, share)
        self._iterator = None


def behind(file: pa.parquet.ParquetFile, skip: int) -> tuple[list[int], int]:
    """The row groups of a Parquet file from the one on in which the row behind the first `skip` lies, and the rest."""
    groups = list(range(file.metadata.num_row_groups))
    while groups and skip >= (rows := file.metadata.row_group(groups[0]).num_rows):
        groups, skip = groups[1:], skip - rows
    return groups, skip


def behind_rows(batches: Iterable[pa.RecordBatch], skip: int) -> Iterator[pa.RecordBatch]:
    """Batches without their first so many rows."""
    for batch in batches:
        if skip < batch.num_rows:
            yield batch.slice(skip) if skip else batch
        skip = max(0, skip - batch.num_rows)
