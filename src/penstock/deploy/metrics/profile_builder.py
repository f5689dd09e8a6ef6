"""From the metric log to a Profile: Spark SQL adds the rows up, one row for each task and pair comes back.

The log may hold days of intervals of thousands of tasks. What the sums mean is `sums.profile_of`, for this builder as
for the one in the driver's memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.deploy.driver.spark_words import reason
from penstock.deploy.metrics.logged_jobs import LoggedJob, choose_job, damaged, logged_jobs, require_whole, table_files
from penstock.deploy.metrics.metric_log import require_log_folder
from penstock.deploy.metrics.observed import Observed
from penstock.deploy.metrics.recent import Window, window_us
from penstock.deploy.metrics.sums import EDGE_SUMMED, EdgeSums, TaskSums, profile_of, require_ended
from penstock.errors import InvalidInput
from penstock.model.profile import Profile
from penstock.run.engine.meters import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS = """
    select task, sum(if({counted}, interval_us, 0)) as counted_us,
           sum(if({counted}, cpu_us, 0)) as cpu_us,
           sum(if({counted}, double(cpu_us) * cpu_us / greatest(interval_us, 1), 0D)) as squares,
           sum(if({counted}, busy_us, 0)) as busy_us, sum(if({counted}, runs, 0)) as runs,
           sum(if({counted}, tuples_in, 0)) as tuples_in, sum(if({counted}, tuples_out, 0)) as tuples_out,
           sum(if({within}, interval_us, 0)) as covered_us, min(time_us - interval_us) as first_us,
           min(if({within}, time_us - interval_us, null)) as began_us, max(time_us) as last_us,
           max_by(interval_us, time_us) as last_interval_us, max_by(coalesce(ended, false), time_us) as ended,
           sum(tuples_in) > 0 as fed, min(least(cpu_us, interval_us, tuples_in, tuples_out, runs)) as least
    from tasks group by task
"""
_EDGES = """
    select source, target, sum(tuples) as tuples, sum(bytes) as bytes, sum(batches) as batches,
           sum(send_us) as send_us, sum(receive_us) as receive_us, sum(transport_us) as transport_us,
           sum(queue_us) as queue_us, sum(if(tuples > 0, interval_us, 0)) as moved_us,
           sum(if(tuples > 0, send_us, 0)) as moved_send_us, sum(if({came}, interval_us, 0)) as came_us,
           sum(if({came}, receive_us, 0)) as came_receive_us, max(distance) as distance,
           min(least(bytes, tuples)) as least
    from edges where {within} group by source, target
"""
_NEWEST = "select greatest((select max(time_us) from tasks), (select max(time_us) from edges)) as newest_us"
_MOVED = "tuples_in > 0 or tuples_out > 0"
_CAME = "transport_us > 0 or queue_us > 0 or (tuples > 0 and distance = 'call')"  # as `EdgeSums.add` has it
_MOVING = ("moved_us", "moved_send_us", "came_us", "came_receive_us")
_SPARK_TYPES = {pa.int64(): "bigint", pa.int32(): "int", pa.string(): "string", pa.bool_(): "boolean"}


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
    spark: SparkSession,
    folder: str | Path,
    job: str | None = None,
    topology: str | None = None,
    *,
    window: Window | None = None,
    busy: bool = False,
) -> Profile:
    """The profile of a job in a metric log, the latest unless one is named; InvalidInput when the folder holds none.

    A folder may hold the logs of several topologies; then `topology` or `job` says which is meant. `window` ("60 s",
    or seconds) takes the intervals that ended within that time before the log's end, instead of all. `busy` gives the
    figures of each task and pair over the intervals in which it moved rows, for sources that come in bursts.
    """
    chosen, _ = logged_job(folder, job, topology)
    length_us = None if window is None else window_us(window)
    for table in ("tasks", "edges"):
        paths = table_files(folder, table, chosen.id)
        for path in paths:
            require_whole(path)
        if not paths:
            msg = f"{folder} has no {table} of job {chosen}; give what --metrics wrote"
            raise InvalidInput(msg)
        columns = ", ".join(f"{field.name} {_SPARK_TYPES[field.type]}" for field in TABLES[table])
        spark.read.schema(columns).parquet(*map(str, paths)).createOrReplaceTempView(table)
    return _measured(spark, folder, length_us, busy=busy)


def _measured(spark: SparkSession, folder: str | Path, length_us: int | None, *, busy: bool) -> Profile:
    """The figures that Spark SQL finds in the tables; unreadable files and impossible figures are one-line errors."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        within, newest_us = "true", 0
        if length_us is not None:
            newest_us = spark.sql(_NEWEST).collect()[0].newest_us or 0
            within = f"time_us > {newest_us - length_us}"
        counted = f"{within} and ({_MOVED})" if busy else within
        tasks = spark.sql(_TASKS.format(within=within, counted=counted)).collect()
        edges = spark.sql(_EDGES.format(within=within, came=_CAME)).collect()
    except (PySparkException, Py4JError) as error:
        raise damaged(folder, ValueError(reason(str(error)))) from None
    for row in (*tasks, *edges):
        if row.least is None or row.least < 0:
            whose = f"task {row.task!r}" if "task" in row else f"{row.source!r} -> {row.target!r}"
            raise damaged(folder, ValueError(f"{whose} has measured {row.least}, and figures begin at 0"))
    observed = {
        row.task: Observed(
            row.covered_us, row.began_us, row.began_us == row.first_us, row.last_us, row.last_interval_us, row.ended
        )
        for row in tasks
    }
    for task, seen in observed.items():
        if length_us is not None and seen.began_us is None:
            require_ended(task, seen, newest_us, length_us)
    loads = {
        row.task: TaskSums(
            row.counted_us, row.cpu_us, row.squares, row.busy_us or 0, row.runs, row.tuples_in, row.tuples_out, row.fed
        )
        for row in tasks
    }
    pairs = {
        (row.source, row.target): EdgeSums(
            **{column: row[column] or 0 for column in (*EDGE_SUMMED, *_MOVING)}, distance=row.distance or ""
        )
        for row in edges
    }
    return profile_of(loads, pairs, observed, busy=busy)
