"""How DataFrames are handed to workers: which columns, how many partitions, in which order.

Without event time rows come as Spark reads them, and no row is shuffled: partitions are put together (`coalesce`) where
there are more than workers, and workers without one read nothing. With event time a source must see its rows in order
of time, and all workers should be at the same time of day: rows are shared out by a hash over the time and other
columns, so that every worker gets a sample of every moment, and sorted within each partition, which Spark does on disk
where memory does not suffice. One worker needs the sort and no shuffle. Several frames become one (`tagged`) before
that, sorted by one column of times, so that they advance together.

Rejected: a range partitioning by time, under which workers are hours apart and windows close at the end; round
robin, which sorts all rows by their bytes first unless the session says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from penstock.deploy.worker.tagged import AT, tagged, tick
from penstock.run.dataflow import Dataflow

HASHED = (t.NumericType, t.StringType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType)
HASHED_COLUMNS_MAX = 16  # enough to tell rows of one time apart


@dataclass(frozen=True)
class FrameInput:
    """A DataFrame as one source reads it."""

    frame: DataFrame
    time: str | None = None  # the column of event time that was declared on the source itself
    columns: tuple[str, ...] | None = None  # those that the topology uses; None: all

    @property
    def selected(self) -> DataFrame:
        """The frame with the columns that are needed and no others."""
        return self.frame if self.columns is None else self.frame.select(*map(tick, self.columns))


def frame_inputs(dataflow: Dataflow, frames: Mapping[str, DataFrame]) -> list[FrameInput]:
    """What each source of DataFrames reads, in the order of `frames`."""
    times = {operator.name: operator.event_time for operator in dataflow.operators}
    return [FrameInput(frame, getattr(times[name], "column", None)) for name, frame in frames.items()]


def handed(inputs: Sequence[FrameInput], workers: int) -> DataFrame:
    """One DataFrame of at most `workers` partitions with the rows of all inputs, in order where one has event time."""
    if len(inputs) == 1:
        frame, time = inputs[0].selected, inputs[0].time
        return _gathered(frame, workers) if time is None else _in_order(frame, time, workers)
    frame = tagged([(given.selected, given.time) for given in inputs])
    return _in_order(frame, AT, workers).drop(AT) if AT in frame.columns else _gathered(frame, workers)


def _gathered(frame: DataFrame, workers: int) -> DataFrame:
    """The frame in at most `workers` partitions; one that its user gathered into fewer keeps them and its order.

    Spark's optimiser takes `coalesce(1).coalesce(3)` for `coalesce(3)`.
    """
    java: Any = frame._jdf
    plan = java.queryExecution().optimizedPlan()
    if str(plan.getClass().getSimpleName()).startswith("Repartition") and int(plan.numPartitions()) <= workers:
        return frame
    return frame.coalesce(workers)


def _in_order(frame: DataFrame, time: str, workers: int) -> DataFrame:
    at = f.col(tick(time))
    others = [column for field in frame.schema.fields if field.name != time for column in _hashable(field)]
    spread = frame.coalesce(1) if workers == 1 else frame.repartition(workers, at, *others[:HASHED_COLUMNS_MAX])
    return spread.sortWithinPartitions(at)


def _hashable(field: t.StructField, inside: str = "") -> list[Column]:
    """The plain columns of a field: they tell rows of one time apart, and Spark has a hash for each of them."""
    path = inside + tick(field.name)
    if isinstance(field.dataType, t.StructType):
        return [column for inner in field.dataType.fields for column in _hashable(inner, f"{path}.")]
    return [f.col(path)] if isinstance(field.dataType, HASHED) else []
