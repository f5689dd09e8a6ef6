"""Files as a source: Parquet, CSV and JSON lines, shared out over the tasks in sorted order and streamed.

The list of files is made where the topology is built, so that every task shares out the same list. A task holds one
piece of one file at a time: a row group's batches, or a block of text.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.operators.sources import PositionedSource

FORMATS = ("parquet", "csv", "json")
FILES_MAX = 1_000_000
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
            import pyarrow.parquet as pq

            return pq.read_schema(path).remove_metadata()
        return _text_batches(path, kind, None)[0]
    except (pa.ArrowException, OSError) as error:
        msg = f"cannot read the schema of {path!r} as {kind}: {error}; give schema='...'"
        raise InvalidInput(msg) from error


def _text_batches(path: str, kind: str, schema: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """A streaming reader of a text file; declared columns are read as their types and others are left out."""
    if kind == "csv":
        from pyarrow import csv

        convert = csv.ConvertOptions(
            column_types=None if schema is None else schema,
            include_columns=None if schema is None else schema.names,
            include_missing_columns=False,
        )
        reader = csv.open_csv(path, convert_options=convert)
    else:
        import pyarrow.json as json_lines

        options = json_lines.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore" if schema else "infer"
        )
        reader = json_lines.open_json(path, parse_options=options)
    return reader.schema, iter(reader)


class FilesSource(PositionedSource):
    """The files of one task, batch by batch."""

    def __init__(self, files: Sequence[str], kind: str, schema: pa.Schema) -> None:
        self.files = tuple(files)
        self.kind = kind
        self.schema = schema

    def items(self) -> Iterator[object]:
        """Every tasks-th file."""
        for path in self.files[self.context.index :: self.context.tasks]:
            try:
                yield from self._batches(path)
            except (pa.ArrowException, OSError) as error:
                msg = f"source {self.context.operator!r} cannot read {path!r} as {self.kind}: {error}"
                raise InvalidInput(msg) from error

    def _batches(self, path: str) -> Iterator[pa.RecordBatch]:
        if self.kind == "parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(path) as file:
                missing = [name for name in self.schema.names if name not in file.schema_arrow.names]
                if missing:
                    msg = f"{path!r} has no column {missing[0]!r}; it has {', '.join(file.schema_arrow.names)}"
                    raise InvalidInput(msg)
                yield from file.iter_batches(self.context.rows_max, columns=self.schema.names)
            return
        rows_max = self.context.rows_max
        for batch in _text_batches(path, self.kind, self.schema)[1]:
            for at in range(0, batch.num_rows, rows_max):
                yield batch.slice(at, rows_max)
