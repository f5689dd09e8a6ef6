"""A job's results as DataFrames: rows of `collect` sinks, and the folders that `parquet` sinks wrote.

Where every executor runs on this machine, collected rows are Parquet files in a private folder (`files`), and the
DataFrame reads these. On other clusters, and for types that Parquet lacks, rows come over the control line into a spool
and become a DataFrame in the JVM's memory. A few rows go into that memory in any case, so that no file has to stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.checkpoint.publication import CollectPublication
from penstock.deploy.results.files import ResultFolder
from penstock.deploy.results.kept_files import keep_while_read
from penstock.deploy.results.spool import ResultSpool
from penstock.deploy.results.types import spark_schema
from penstock.deploy.session.local import runs_here
from penstock.deploy.session.private_folder import PrivateFolder
from penstock.errors import CheckpointDamaged
from penstock.run.dataflow import Dataflow
from penstock.run.operators.sinks.positional import OPTIONS, fits_parquet, fitted, positional
from penstock.run.operators.sinks.row_groups import RowGroups
from penstock.run.operators.sinks.uris import hadoop_path
from penstock.run.operators.summed import ADVICE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITION_ROWS = 1_000_000
SMALL_BYTES = 1 << 20  # of a sink's files, whose rows may as well live in the JVM


class Results:
    """Collects rows while the job runs; makes DataFrames of them once, when they are asked for."""

    def __init__(self, spark: SparkSession, dataflow: Dataflow, published: Mapping[str, CollectPublication]) -> None:
        """`published` has the collecting sinks of a job with checkpoints: their rows are files of committed epochs."""
        self._spark, self._published = spark, published
        self._paths: dict[str, str] = {}
        self._order: list[str] = []
        schemas: dict[str, pa.Schema] = {}
        for name, (sink, schema) in dataflow.sinks().items():
            if sink.collects:
                schemas[name] = schema
            if sink.folder is not None:
                self._paths[name] = sink.folder
            if sink.kept:
                self._order.append(name)
        self._folder = PrivateFolder("results")
        self._spool = ResultSpool(self._folder, schemas)
        self._schemas = schemas
        here = runs_here(str(spark.sparkContext.master))
        written = {name: schema for name, schema in schemas.items() if here and fits_parquet(schema)}
        self.files = ResultFolder(str(self._folder.path), written)
        self._read_in_place: list[DataFrame] = []
        self._made: dict[str, DataFrame] | None = None

    @property
    def kept(self) -> bool:
        """Whether any sink keeps rows."""
        return bool(self._order)

    def take(self, sink: str, batch: pa.RecordBatch) -> None:
        """Rows of a collecting sink that came over the line."""
        self._spool.take(sink, batch)

    def finish(self) -> None:
        """No more rows come; OSError where the last of them find no room."""
        self._spool.finish()

    def frames(self) -> dict[str, DataFrame]:
        """The DataFrame of every sink that keeps rows, by the sink's name."""
        if self._made is None:
            self._made = {sink: self._frame(sink) for sink in self._order}
            self._spool.remove()  # Spark has its own copy now
            keep_while_read(self._folder, self._read_in_place)
        return dict(self._made)

    def discard(self) -> None:
        """Delete what was collected."""
        if self._made is None:
            self._spool.remove()
            self._folder.remove()

    def withdraw(self, job: str) -> None:
        """Remove the Parquet parts of a job without a result, finished or not, where this machine sees them."""
        for path in self._paths.values():
            for pattern in (f"part-*-{job}.parquet", f".part-*-{job}.parquet.writing"):
                for part in Path(path).glob(pattern):
                    with contextlib.suppress(OSError):  # a disk that has gone; the job's own error says more
                        part.unlink(missing_ok=True)

    def _frame(self, sink: str) -> DataFrame:
        if sink in self._paths:
            return self._spark.read.parquet(hadoop_path(self._paths[sink]))
        if sink in self._published:
            return self._read_published(sink, self._published[sink])
        if sink in self.files.schemas:
            return self._read(sink)
        return frame_of(self._spark, self._spool.table(sink))

    def _read(self, sink: str) -> DataFrame:
        """The files of a sink, with the names and types that its rows were declared to have."""
        if self.files.size(sink) <= SMALL_BYTES:
            return frame_of(self._spark, self.files.table(sink))
        frame = self._parquet(self.files.schemas[sink], [self.files.of(sink).as_uri()])
        self._read_in_place.append(frame)
        return frame.toDF(*self.files.schemas[sink].names)

    def _parquet(self, schema: pa.Schema, paths: list[str]) -> DataFrame:
        # Dates before 1582 need no correction: our files do not use the calendar of old versions of Spark.
        reader = self._spark.read.schema(spark_schema(positional(schema))).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(*paths)

    def _read_published(self, sink: str, published: CollectPublication) -> DataFrame:
        """The rows of committed epochs, which stay in the checkpoint folder."""
        schema = self._schemas[sink]
        _require_whole(published)
        if not published.is_parquet or published.size <= SMALL_BYTES:
            return frame_of(self._spark, published.table(schema))
        if all(len(paths) == 1 for paths in published.by_task().values()):
            return self._parquet(schema, published.files()).toDF(*schema.names)
        frame = self._parquet(schema, self._joined(sink, published))
        self._read_in_place.append(frame)
        return frame.toDF(*schema.names)

    def _joined(self, sink: str, published: CollectPublication) -> list[str]:
        """One file for each task: of several files Spark reads the longest first, and not the first."""
        folder = self._folder.path / f"joined-{self._order.index(sink)}"
        folder.mkdir(mode=0o700)
        for task, paths in published.by_task().items():
            joined = RowGroups(folder / f"part-{task:05d}.parquet", positional(self._schemas[sink]), **OPTIONS)
            for path in paths:
                for batch in published.batches(path):
                    joined.add(fitted(batch, joined.schema))
            joined.finish()
        return [folder.as_uri()]


def _require_whole(published: CollectPublication) -> None:
    """CheckpointDamaged where a file is not as it was written, or gone: nothing else would notice."""
    if (found := published.fault()) is not None:
        path, fault = found
        raise CheckpointDamaged(path, fault, ADVICE)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table as a DataFrame of exactly its types, in the JVM's memory."""
    schema = spark_schema(table.schema)
    if table.num_rows == 0:
        return spark.createDataFrame([], schema)
    frame = spark.createDataFrame(table, schema)
    # Spark makes a partition of every record batch, and a query a task of every partition: of 4.9 million rows in
    # 1,197 batches a count took 45 s, and 10 s from five partitions in the same run.
    return frame.coalesce(max(spark.sparkContext.defaultParallelism, -(-table.num_rows // PARTITION_ROWS)))
