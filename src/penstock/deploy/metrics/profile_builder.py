"""From the metric log to a Profile, by Spark SQL: each task's load and the traffic of each pair of tasks.

Load is CPU seconds per second over the time that the log covers; rates are bytes and tuples per second. The log may
hold days of intervals of thousands of tasks, so Spark adds them up, and one row per task and pair comes back.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.deploy.driver.spark_words import reason
from penstock.deploy.metrics.logged_jobs import LoggedJob, choose_job, damaged, logged_jobs, require_whole, table_files
from penstock.deploy.metrics.metric_log import require_log_folder
from penstock.errors import InvalidInput
from penstock.model.profile import EdgeProfile, Profile, TaskProfile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = """
    select task, sum(cpu_us) / greatest(sum(interval_us), 1) as load, min(least(cpu_us, interval_us)) as least
    from tasks group by task order by task
"""
_EDGES = """
    select source, target, sum(bytes) / s.seconds as rate, sum(tuples) / s.seconds as tuples,
           min(least(bytes, tuples)) as least
    from edges cross join
         (select greatest(max(time_us) - min(time_us - interval_us), 1) / 1e6 as seconds from tasks) s
    group by source, target, s.seconds order by source, target
"""


def require_metric_log(folder: str | Path) -> None:
    """Refuse a folder that holds no metric log; needs no Spark, so that a mistyped name is told before Spark starts."""
    require_log_folder(folder)
    for table in ("tasks", "edges"):
        path = Path(folder) / table
        if not any(path.glob("*.parquet")):
            msg = f"{folder} is no metric log: {path} holds no Parquet files; give what --metrics wrote"
            raise InvalidInput(msg)


def logged_job(folder: str | Path, job: str | None = None, topology: str | None = None) -> tuple[LoggedJob, str]:
    """The job of a log that a profile is made of, and a note on the choice; needs no Spark."""
    require_metric_log(folder)
    return choose_job(folder, logged_jobs(folder), job, topology)


def build_profile(
    spark: SparkSession, folder: str | Path, job: str | None = None, topology: str | None = None
) -> Profile:
    """The profile of a job in a metric log, the latest unless one is named; InvalidInput when the folder holds none.

    A folder may hold the logs of several topologies; then `topology` or `job` says which is meant.
    """
    chosen, _ = logged_job(folder, job, topology)
    for table in ("tasks", "edges"):
        paths = table_files(folder, table, chosen.id)
        for path in paths:
            require_whole(path)
        if not paths:
            msg = f"{folder} has no {table} of job {chosen}; give what --metrics wrote"
            raise InvalidInput(msg)
        spark.read.parquet(*map(str, paths)).createOrReplaceTempView(table)
    return Profile(*_measured(spark, folder))


def _measured(spark: SparkSession, folder: str | Path) -> tuple[dict[str, TaskProfile], tuple[EdgeProfile, ...]]:
    """The figures that Spark SQL finds in the tables; unreadable files and impossible figures are one-line errors."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        tasks, edges = spark.sql(_TASKS).collect(), spark.sql(_EDGES).collect()
    except (PySparkException, Py4JError) as error:
        raise damaged(folder, ValueError(reason(str(error)))) from None
    for row in (*tasks, *edges):
        if row.least is None or row.least < 0:
            whose = f"task {row.task!r}" if "task" in row else f"{row.source!r} -> {row.target!r}"
            raise damaged(folder, ValueError(f"{whose} has measured {row.least}, and figures begin at 0"))
    return (
        {row.task: TaskProfile(float(row.load)) for row in tasks},
        tuple(EdgeProfile(row.source, row.target, float(row.rate), float(row.tuples)) for row in edges),
    )
