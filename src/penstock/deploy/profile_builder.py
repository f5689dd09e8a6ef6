"""From the metric log to a Profile, by Spark SQL: what each task took and what each pair of tasks exchanged.

Load is CPU seconds per second over the time that the log covers; rate is bytes per second, tuples likewise. The log
may hold days of intervals of thousands of tasks: the sums are Spark's, only one row per task and pair comes back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.deploy.metric_log import require_log_folder
from penstock.errors import InvalidInput
from penstock.model.profile import EdgeProfile, Profile, TaskProfile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = """
    select task, sum(cpu_us) / greatest(sum(interval_us), 1) as load
    from tasks group by task order by task
"""
_EDGES = """
    select source, target, sum(bytes) / s.seconds as rate, sum(tuples) / s.seconds as tuples
    from edges cross join
         (select greatest(max(time_us) - min(time_us - interval_us), 1) / 1e6 as seconds from tasks) s
    group by source, target, s.seconds order by source, target
"""


def require_metric_log(folder: str | Path) -> None:
    """Refuse a folder that holds no metric log; needs no Spark, so that a mistyped name costs no start of one."""
    require_log_folder(folder)
    for table in ("tasks", "edges"):
        path = Path(folder) / table
        if not any(path.glob("*.parquet")):
            msg = f"{folder} is no metric log: {path} holds no Parquet files; give what --metrics wrote"
            raise InvalidInput(msg)


def build_profile(spark: SparkSession, folder: str | Path) -> Profile:
    """The profile of a metric log; InvalidInput when the folder holds none."""
    require_metric_log(folder)
    for table in ("tasks", "edges"):
        spark.read.parquet(str(Path(folder) / table)).createOrReplaceTempView(table)
    tasks = {row.task: TaskProfile(float(row.load)) for row in spark.sql(_TASKS).collect()}
    edges = tuple(
        EdgeProfile(row.source, row.target, float(row.rate), float(row.tuples)) for row in spark.sql(_EDGES).collect()
    )
    return Profile(tasks, edges)
