"""Several DataFrames through the one input that Spark gives to a barrier stage.

A barrier stage has one parent, so the frames become one: every row carries the number of its frame and one struct
column for each frame, null in all but its own (`tagged`). In the worker a `Splitter` takes the rows apart again and
hands every source its own. `repartition` stands between union and stage, because Spark refuses a union just before one.

Rejected: writing all but one to Parquet first, which waits for the whole of them, needs a folder that every node
reaches, and reads and writes everything once more; and rows as opaque bytes, which costs a serialisation by row where
a struct column stays Arrow from end to end. The price is paid in width: fixed-width columns of the other frames take
their space in every batch, as nulls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAG = "source"
AHEAD_BATCHES_MAX = 8  # that may wait for one source while another asks for more


def tagged(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all frames, each under its own struct column `s0`, `s1`, ... with its number in `source`."""
    from functools import reduce

    from pyspark.sql import functions as f

    def one(number: int, frame: DataFrame) -> DataFrame:
        own = f.struct(*[f.col(f"`{name.replace('`', '``')}`") for name in frame.columns])
        columns = [own if k == number else f.lit(None).cast(other.schema) for k, other in enumerate(frames)]
        named = [column.alias(f"s{k}") for k, column in enumerate(columns)]
        return frame.select(f.lit(number).cast("int").alias(TAG), *named)

    return reduce(lambda a, b: a.unionAll(b), [one(k, frame) for k, frame in enumerate(frames)])


class Splitter:
    """Gives each source its rows of a tagged input, in the order in which they come.

    Sources ask in turns, from one thread. What comes for another source waits for it, up to a limit; then whoever asks
    is told "nothing yet" until that one has taken some. No operator waits for one particular input, so it will.
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
