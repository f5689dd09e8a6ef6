"""Several DataFrames through the one input that Spark gives to a stage.

A stage's tasks have one input, so the frames become one (`tagged`): every row carries the number of its frame and one
struct column for each frame, null in all but its own. Where frames have event time, rows carry that too, to sort by. In
the worker a `Splitter` hands every source its own rows. The price: fixed-width columns of the other frames take their
space in every batch, as nulls.

Rejected: writing all frames but one to Parquet first, which reads and writes every row once more and needs a folder
that every node reaches; and rows as opaque bytes, which serialises row by row where a struct column stays Arrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TAG = "source"
AT = "at"  # event time, common to all frames
AHEAD_BATCHES_MAX = 8  # that may wait for one source while another asks for more


def tagged(frames: Sequence[tuple[DataFrame, str | None]]) -> DataFrame:
    """The rows of all frames, each under its own struct column `s0`, `s1`, ... with its number in `source`.

    A frame comes with the name of its column of event time, if it has one. Column `at` holds that time; it is null for
    rows of frames without event time.
    """
    from functools import reduce

    from pyspark.sql import functions as f

    kinds = {frame.schema[time].dataType.typeName() for frame, time in frames if time is not None}

    def one(number: int, frame: DataFrame, time: str | None) -> DataFrame:
        own = f.struct(*[f.col(tick(name)) for name in frame.columns])
        columns = [own if k == number else f.lit(None).cast(other.schema) for k, (other, _) in enumerate(frames)]
        named = [column.alias(f"s{k}") for k, column in enumerate(columns)]
        at = [_at(frame, time, kinds).alias(AT)] if kinds else []
        return frame.select(f.lit(number).cast("int").alias(TAG), *at, *named)

    parts = [one(k, frame, time) for k, (frame, time) in enumerate(frames)]
    return reduce(lambda a, b: a.unionAll(b), parts)


def _at(frame: DataFrame, time: str | None, kinds: set[str]) -> Column:
    """A frame's times in the one type that all frames share."""
    from pyspark.sql import functions as f

    if time is None:
        return f.lit(None).cast(min(kinds) if len(kinds) == 1 else "timestamp")
    column = f.col(tick(time))
    if len(kinds) == 1:
        return column
    if frame.schema[time].dataType.typeName() != "timestamp_ntz":
        return column.cast("timestamp")
    # Times without a zone count as UTC, as in the workers: in the session's zone, hours would change their order when
    # clocks go back.
    return f.concat(column.cast("string"), f.lit("Z")).cast("timestamp")


def tick(name: str) -> str:
    """A column by its exact name, dots and all."""
    return f"`{name.replace('`', '``')}`"


class Splitter:
    """Gives each source its rows of a tagged input, in the order in which they come.

    Sources ask in turns, from one thread. Rows of another source wait for it, up to a limit. At the limit every asking
    source is told "nothing yet" until that source has taken some. It will, because no operator waits for one input.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch | None], sources: int) -> None:
        self._batches = batches
        self._waiting: list[deque[pa.RecordBatch]] = [deque() for _ in range(sources)]
        self._ended = False

    def reader(self, number: int) -> Iterator[pa.RecordBatch | None]:
        """The rows of one source; None says "nothing yet"."""
        while True:
            if self._waiting[number]:
                yield self._waiting[number].popleft()
            elif self._ended:
                return
            elif self._full():
                yield None
            else:
                self._take()
                if not self._waiting[number] and not self._ended:
                    yield None

    def _full(self) -> bool:
        return any(len(waiting) >= AHEAD_BATCHES_MAX for waiting in self._waiting)

    def _take(self) -> None:
        """Share out one batch, if there is one."""
        try:
            batch = next(self._batches)
        except StopIteration:
            self._ended = True
            return
        if batch is not None:
            for number, waiting in enumerate(self._waiting):
                if (mine := rows_of(batch, number)) is not None:
                    waiting.append(mine)


def rows_of(batch: pa.RecordBatch, number: int) -> pa.RecordBatch | None:
    """The rows of one frame as they were; None when the batch holds none."""
    rows = pc.filter(batch.column(f"s{number}"), pc.equal(batch.column(TAG), pa.scalar(number, pa.int32())))
    if not len(rows):
        return None
    return pa.RecordBatch.from_arrays(rows.flatten(), names=[field.name for field in rows.type])
