"""A job's results as DataFrames: spooled rows of `collect` sinks, and the folders that `parquet` sinks wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.deploy.spool import ResultSpool
from penstock.flow.schema import to_ddl
from penstock.run.dataflow import Dataflow
from penstock.run.operators.sinks import Collect, Parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_ROWS = 1_000_000


class Results:
    """Collects rows while the job runs; makes DataFrames of them once, when somebody asks."""

    def __init__(self, spark: SparkSession, dataflow: Dataflow) -> None:
        self._spark = spark
        self._paths: dict[str, str] = {}
        self._order: list[str] = []
        schemas: dict[str, pa.Schema] = {}
        for name, (build, schema) in dataflow.sinks().items():
            sink = build()
            if isinstance(sink, Collect):
                schemas[name] = schema
                self._order.append(name)
            elif isinstance(sink, Parquet):
                self._paths[name] = sink.path
                self._order.append(name)
        self._spool = ResultSpool(schemas)
        self._made: dict[str, DataFrame] | None = None

    def take(self, sink: str, batch: pa.RecordBatch) -> None:
        """Rows of a collecting sink."""
        self._spool.take(sink, batch)

    def frames(self) -> DataFrame | dict[str, DataFrame] | None:
        """The one sink's DataFrame, or a dict of them by sink, or None when no sink keeps rows."""
        if self._made is None:
            self._made = {sink: self._frame(sink) for sink in self._order}
            self._spool.remove()  # Spark has its own copy now
        if len(self._made) == 1:
            return next(iter(self._made.values()))
        return self._made or None

    def discard(self) -> None:
        """Delete what was spooled."""
        if self._made is None:
            self._spool.remove()

    def _frame(self, sink: str) -> DataFrame:
        if sink in self._paths:
            return self._spark.read.parquet(self._paths[sink])
        table = self._spool.table(sink)
        if table.num_rows == 0:  # no rows, no inference: the declared schema says it all
            return self._spark.createDataFrame([], to_ddl(table.schema))
        frame = self._spark.createDataFrame(table)
        # Spark makes a partition of every record batch, and a query a task of every partition: of 4.9 million rows in
        # 1,197 batches a count took 45 s, and 10 s from five partitions in the same run.
        parts = max(self._spark.sparkContext.defaultParallelism, -(-table.num_rows // PARTITION_ROWS))
        return frame.coalesce(parts)
