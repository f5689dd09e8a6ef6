"""Sources and sinks as users name them: `ps.io.files(...)`, `ps.io.collect()` and the others.

They are descriptions: what is read or written stands in their fields, for the builder and the driver to ask, beside a
factory that makes the task in a worker.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Concatenate, Literal, get_args, overload
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_callable, require_choice
from penstock.flow.schema import parse_schema
from penstock.flow.spark_types import Schema
from penstock.model.kinds import require_kind
from penstock.run.columns.kernels import Row
from penstock.run.contract import Build, Task
from penstock.run.endpoints import KEEPS_NOTHING, READS_NO_FILES, Mode, SinkFacts, SourceFacts
from penstock.run.operators.sinks.callbacks import SEQUENCE, BatchCallback, RowCallback, asked_by
from penstock.run.operators.sinks.plain import Collect, Discard, Parquet
from penstock.run.operators.sources.files import FilesSource, infer_schema, list_files
from penstock.run.operators.sources.generated import GeneratorSource, RateSource
from penstock.run.operators.sources.spooled import DataFrameSource
from penstock.run.operators.times import time_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Sink",
    "Source",
    "callback",
    "collect",
    "dataframe",
    "discard",
    "files",
    "generator",
    "parquet",
    "rate",
]
RATE_SCHEMA = "timestamp timestamp not null, value bigint not null"


def __dir__() -> list[str]:
    """What users find at a prompt: sources and sinks, and not what this module imports."""
    return __all__


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows come from."""

    kind: str
    build: Build
    schema: pa.Schema
    tasks: int = 1
    bounded: bool = True
    one_per_worker: bool = False
    frame: DataFrame | None = None  # a DataFrame that the deployment hands in
    over: Callable[[pa.Schema], Build] | None = None  # how to read some of the columns, where that can be done
    facts: SourceFacts = READS_NO_FILES


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go; `make` is given the schema of the stream."""

    kind: str
    make: Callable[[pa.Schema], Task]
    facts: SinkFacts = KEEPS_NOTHING


def dataframe(df: DataFrame, schema: Schema | None = None) -> Source:
    """The rows of a Spark DataFrame, read side by side by as many workers as it has partitions.

    Where `.event_time(column)` follows at once, every task gets its rows in order of that column, so that none is late.
    """
    require_batch(df)
    arrow = parse_schema(schema) if schema is not None else _frame_schema(df)
    return Source("dataframe", _handed(arrow), arrow, one_per_worker=True, frame=df, over=_handed)


def _handed(schema: pa.Schema) -> Build:
    return partial(DataFrameSource, schema)


def require_batch(df: object) -> None:
    """Refuse a streaming DataFrame, of which Spark says no more than that it must be started."""
    if getattr(df, "isStreaming", False) is True:
        msg = (
            "dataframe source got a streaming DataFrame, whose rows come only in micro-batches of a writeStream; run "
            "the topology on each of them in foreachBatch, or read files with ps.io.files(...)"
        )
        raise InvalidInput(msg)


def _frame_schema(df: object) -> pa.Schema:
    """The Arrow schema of anything with a `.schema`: an Arrow one, or one that looks like Spark's StructType."""
    given = getattr(df, "schema", None)
    if not isinstance(given, pa.Schema) and not getattr(given, "fields", None):
        msg = f"dataframe source got {type(df).__name__} without a schema of columns; give a DataFrame, or schema='...'"
        raise InvalidInput(msg)
    return parse_schema(given)


def absolute(path: str | PathLike[str]) -> str:
    """A path as the driver means it: workers have working folders of their own."""
    return os.path.abspath(path)


def generator(
    function: Callable[Concatenate[int, int, ...], Iterable[object]],
    schema: Schema,
    tasks: int = 1,
    *,
    bounded: bool = True,
) -> Source:
    """Rows or `pyarrow.RecordBatch`es that `function(task_index, tasks)` yields; None yields the worker for a moment.

    The function should not wait: it runs between the other tasks of its worker, and a stop is heard between two rows.
    Rows go out in batches of up to `rows_max`, or of what came within two milliseconds. `bounded=False` says that it
    never ends.

    A job that goes on from a checkpoint calls the function again and leaves out the items that it has taken before, so
    they have to come in the same order again. A function that asks for `start` by that name, without a default, is
    given their number and begins behind them itself.
    """
    require_callable(function, "generator source")
    arrow = parse_schema(schema)
    build = partial(GeneratorSource, function, arrow)
    return Source("generator", build, arrow, tasks, bounded, facts=SourceFacts(by_task=True))


def files(
    pattern: str | PathLike[str],
    format: str = "parquet",  # noqa: A002 - as in PySpark
    schema: Schema | None = None,
    tasks: int = 1,
) -> Source:
    """Files of a folder or pattern, in sorted order, shared out over the tasks; format is parquet, csv or json (lines).

    Without a schema, that of the first file counts for all. CSV files have a header line. A relative path means the
    driver's working folder; workers must see the files there.
    """
    require_kind(pattern, str | PathLike, "files source", "a folder, a file or a pattern such as 'data/*.parquet'")
    found = list_files(absolute(pattern), format)
    arrow = parse_schema(schema) if schema is not None else infer_schema(found[0], format)
    over = partial(_files, found, format)
    return Source("files", over(arrow), arrow, tasks, over=over, facts=SourceFacts(files=found))


def _files(found: tuple[str, ...], kind: str, schema: pa.Schema) -> Build:
    return partial(FilesSource, found, kind, schema)


def rate(rows_per_second: float, *, rows: int | None = None, start: datetime | None = None, tasks: int = 1) -> Source:
    """Rows (timestamp, value) at a steady rate, as Spark's rate source; `rows` makes it end after that number.

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
    build = partial(RateSource, rows_per_second, rows, start_us, arrow)
    schedule = f"{rows_per_second:g} rows a second" + ("" if rows is None else f", {rows} in all")
    facts = SourceFacts(schedule=schedule + ("" if start is None else f", from {start}"))
    return Source("rate", build, arrow, tasks, rows is not None, facts=facts)


def collect() -> Sink:
    """Rows that `top.run(spark)` returns as a DataFrame."""
    return Sink("collect", _collect, SinkFacts(collects=True))


def parquet(
    path: str | PathLike[str], *, compression: str = "zstd", mode: Mode | Literal["errorifexists"] = "error"
) -> Sink:
    """Parquet files in a folder that every worker reaches, one part for each task, visible when it has finished.

    A relative path means the driver's working folder; a folder that workers do not see is refused when the job starts.

    `mode` is about a folder that has files, as for Spark's writer: "error" (or "errorifexists") refuses it when the job
    starts, "append" adds to it, "overwrite" removes its Parquet files first.
    """
    require_kind(path, str | PathLike, "parquet sink", "the path of a folder")
    if not str(path):
        msg = "parquet sink got ''; give the path of a folder"
        raise InvalidInput(msg)
    plain: Mode = "error" if mode == "errorifexists" else mode
    require_choice(plain, get_args(Mode), "mode of a parquet sink")
    folder = _folder(os.fspath(path))
    return Sink("parquet", partial(_parquet, folder, compression), SinkFacts(folder=folder, mode=plain))


def _folder(given: str) -> str:
    """A folder as the driver means it; a URI that is no path stays one."""
    if given.startswith("file://"):
        return unquote(urlsplit(given).path)
    return given if "://" in given else absolute(given)


@overload
def callback(function: Callable[Concatenate[pa.RecordBatch, ...], object], *, rows: Literal[False] = False) -> Sink: ...
@overload
def callback(function: Callable[Concatenate[Row, ...], object], *, rows: Literal[True]) -> Sink: ...
def callback(function: Callable[..., object], *, rows: bool = False) -> Sink:
    """A function that gets every batch, or every row with `rows=True`; it runs in the workers.

    A job that recovers hands over again what came after its last checkpoint. A function that has to tell such rows
    takes `epoch`, `sequence` or `task` as well, by these names: `sequence` numbers the rows of one task and goes on
    where the checkpoint stood; of a batch it is the first row's.
    """
    require_callable(function, "callback sink")
    facts = SinkFacts(repeats=True, numbers=SEQUENCE in asked_by(function))
    return Sink("callback", partial(_callback, function, rows), facts)


def discard() -> Sink:
    """Nowhere."""
    return Sink("discard", _discard)


def _collect(schema: pa.Schema) -> Task:
    return Collect(schema)


def _discard(schema: pa.Schema) -> Task:
    return Discard()


def _parquet(path: str, compression: str, schema: pa.Schema) -> Task:
    return Parquet(path, schema, compression)


def _callback(function: Callable[..., object], rows: bool, schema: pa.Schema) -> Task:
    return RowCallback(function) if rows else BatchCallback(function)
