"""Sources and sinks as users name them: `ps.io.files(...)`, `ps.io.collect()` and the others.

They are descriptions; the tasks that read and write are made in the worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_callable, require_choice, require_kind
from penstock.flow.schema import parse_schema
from penstock.run.contract import Build, Task
from penstock.run.operators.files import FilesSource, infer_schema, list_files
from penstock.run.operators.sinks import MODES, BatchCallback, Collect, Discard, Parquet, RowCallback
from penstock.run.operators.sources import GeneratorSource, HandedSource, RateSource
from penstock.run.operators.times import time_us

RATE_SCHEMA = "timestamp timestamp not null, value bigint not null"


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from."""

    kind: str
    build: Build
    schema: pa.Schema
    tasks: int = 1
    bounded: bool = True
    one_per_worker: bool = False
    frame: object | None = None  # a DataFrame that the deployment hands in


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go; `make` is given the schema of the stream."""

    kind: str
    make: Callable[[pa.Schema], Task]


def dataframe(df: Any, schema: str | pa.Schema | None = None) -> Source:  # noqa: ANN401 - pyspark is not known here
    """The rows of a Spark DataFrame; Spark hands one partition to every worker."""
    arrow = parse_schema(schema) if schema is not None else _frame_schema(df)
    return Source("dataframe", partial(HandedSource, arrow), arrow, one_per_worker=True, frame=df)


def _frame_schema(df: Any) -> pa.Schema:  # noqa: ANN401 - pyspark is not known here
    """The Arrow schema of anything with a `.schema`: an Arrow one, or one that looks like Spark's StructType."""
    given = getattr(df, "schema", None)
    if isinstance(given, pa.Schema):
        return given
    fields = getattr(given, "fields", None)
    if not fields:
        msg = f"dataframe source got {type(df).__name__} without a schema of columns; give a DataFrame, or schema='...'"
        raise InvalidInput(msg)
    columns = [
        f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"
        for field in fields
    ]
    return parse_schema(", ".join(columns))


def generator(
    function: Callable[[int, int], Iterable[Any]], schema: str | pa.Schema, tasks: int = 1, *, bounded: bool = True
) -> Source:
    """Rows or `pyarrow.RecordBatch`es that `function(task_index, tasks)` yields; None yields the worker for a moment.

    The function should not wait: it runs between the other tasks of its worker, and a stop is heard between two rows.
    Rows go out in batches of up to `rows_max`, or of what came within two milliseconds. `bounded=False` says that it
    never ends.
    """
    require_callable(function, "generator source")
    arrow = parse_schema(schema)
    return Source("generator", partial(GeneratorSource, function, arrow), arrow, tasks, bounded)


def files(
    pattern: str | PathLike[str],
    format: str = "parquet",  # noqa: A002 - as in PySpark
    schema: str | pa.Schema | None = None,
    tasks: int = 1,
) -> Source:
    """Files of a folder or pattern, in sorted order, shared out over the tasks; format is parquet, csv or json (lines).

    Without a schema, that of the first file counts for all. CSV files have a header line.
    """
    require_kind(pattern, str | PathLike, "files source", "a folder, a file or a pattern such as 'data/*.parquet'")
    found = list_files(str(pattern), format)
    arrow = parse_schema(schema) if schema is not None else infer_schema(found[0], format)
    return Source("files", partial(FilesSource, found, format, arrow), arrow, tasks)


def rate(rows_per_second: float, *, rows: int | None = None, start: datetime | None = None, tasks: int = 1) -> Source:
    """Rows (timestamp, value) at a steady rate, as Spark's rate source; `rows` makes it end after so many.

    `start` is the timestamp of value 0; left out, it is when the source starts.
    """
    if not (isinstance(rows_per_second, int | float) and 0 < rows_per_second < math.inf):
        msg = f"rate source has rows_per_second={rows_per_second!r}; give a number above 0"
        raise InvalidInput(msg)
    if rows is not None and (not isinstance(rows, int) or rows < 0):
        msg = f"rate source has rows={rows!r}; give a whole number from 0, or leave it out for an endless stream"
        raise InvalidInput(msg)
    arrow = parse_schema(RATE_SCHEMA)
    start_us = None if start is None else time_us(start)
    return Source("rate", partial(RateSource, rows_per_second, rows, start_us, arrow), arrow, tasks, rows is not None)


def collect() -> Sink:
    """Rows that `top.run(spark)` returns as a DataFrame."""
    return Sink("collect", _collect)


def parquet(path: str | PathLike[str], *, compression: str = "zstd", mode: str = "error") -> Sink:
    """Parquet files in a folder that every worker reaches, one part for each task, visible when it has finished.

    `mode` is about a folder that has files, as for Spark's writer: "error" (or "errorifexists") refuses it when the job
    starts, "append" adds to it, "overwrite" removes its Parquet files first.
    """
    require_kind(path, str | PathLike, "parquet sink", "the path of a folder")
    if not str(path):
        msg = "parquet sink got ''; give the path of a folder"
        raise InvalidInput(msg)
    mode = "error" if mode == "errorifexists" else mode
    require_choice(mode, MODES, "mode of a parquet sink")
    return Sink("parquet", partial(_parquet, str(path), compression, mode))


def callback(function: Callable[[Any], object], *, rows: bool = False) -> Sink:
    """A function that gets every batch, or every row with `rows=True`; it runs in the workers."""
    require_callable(function, "callback sink")
    return Sink("callback", partial(_callback, function, rows))


def discard() -> Sink:
    """Nowhere."""
    return Sink("discard", _discard)


def _collect(schema: pa.Schema) -> Task:
    return Collect()


def _discard(schema: pa.Schema) -> Task:
    return Discard()


def _parquet(path: str, compression: str, mode: str, schema: pa.Schema) -> Task:
    return Parquet(path, schema, compression, mode)


def _callback(function: Callable[[Any], object], rows: bool, schema: pa.Schema) -> Task:
    return RowCallback(function) if rows else BatchCallback(function)
