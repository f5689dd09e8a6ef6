"""The Spark action that holds a job's slots: one barrier stage, run by a thread of the driver in its own job group.

`rdd.barrier()` where sources read for themselves, `mapInArrow(barrier=True)` where they read DataFrames. The latter's
output allows no `take` or `show`, so it is a status row per worker and the rows go to the driver on their own way.
An input that Spark's optimiser finds to be empty is never handed to anybody: then the job runs without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.deploy.tagged import tagged
from penstock.deploy.worker_main import STATUS_SCHEMA, WorkerCall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: str) -> DataFrame:
    """`frame.mapInArrow(function, schema, barrier=True)`, also where pandas is not installed.

    PySpark asks for pandas at this door although nothing behind it does; where it is missing, the same three steps are
    taken without asking.
    """
    from pyspark.errors import PySparkImportError

    try:
        return frame.mapInArrow(function, schema, barrier=True)
    except PySparkImportError:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
        from pyspark.sql.udf import _create_udf
        from pyspark.util import PythonEvalType

        udf = _create_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column: Any = udf(*[frame[name] for name in frame.columns])
        java: Any = frame._jdf
        return ClassicDataFrame(java.mapInArrow(column._jc, True, None), frame.sparkSession)


class Action:
    """A barrier stage on its way."""

    def __init__(
        self,
        spark: SparkSession,
        call: WorkerCall,
        workers: int,
        frames: Sequence[DataFrame],
        *,
        nobody_came: Callable[[], bool],
        on_end: Callable[[], None],
    ) -> None:
        self._spark, self._call, self._workers, self._frames = spark, call, workers, frames
        self._nobody_came, self._on_end = nobody_came, on_end
        self.group = f"penstock-{call.job}"
        self.error: Exception | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Submit the stage."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=self._run, name=self.group, session=self._spark)
        thread.daemon = True
        thread.start()

    @property
    def ended(self) -> bool:
        """Whether Spark is done with it."""
        return self._ended.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Whether it has ended within so many seconds."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """Let Spark kill the workers: SIGKILL, a few seconds later."""
        self._spark.sparkContext.cancelJobGroup(self.group)

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self.group, f"Penstock {self._call.dataflow.name}")
            if self._frames:
                frame = self._frames[0] if len(self._frames) == 1 else tagged(self._frames)
                map_in_arrow(frame.repartition(self._workers), self._call.on_batches, STATUS_SCHEMA).collect()
            if not self._frames or self._nobody_came():
                self._run_without_input()
        except Exception as error:  # Spark's, py4j's or ours: the job's outcome tells them apart
            self.error = error
        finally:
            self._ended.set()
            self._on_end()

    def _run_without_input(self) -> None:
        slots = self._spark.sparkContext.parallelize(range(self._workers), self._workers)
        slots.barrier().mapPartitions(self._call.on_partition).collect()
