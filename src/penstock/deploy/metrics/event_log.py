"""A profile from a Spark event log, read and added up by Spark; `imports/spark_stages.py` decides what it means.

A log has an event for each task, so a long one has millions. Spark reads the few fields that count, and one row for
each stage and for each task of an operator comes back. A line that is no event is a fault, except the last of a log
that is still written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.deploy.driver.spark_words import reason
from penstock.deploy.metrics.event_log_files import IN_PROGRESS, log_files, plain_files
from penstock.deploy.session.local import runs_here
from penstock.errors import InvalidInput
from penstock.imports.imported import Imported
from penstock.imports.spark_stages import (
    STAGES_MAX,
    Activity,
    Stage,
    StageGroup,
    group_stages,
    imported_stages,
    tasks_of,
)
from penstock.model.topology import TASKS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_OPERATOR_MAX = 4096
EVENTS_MAX = 2 * STAGES_MAX
_STAGE = (
    "struct<`Stage ID`: bigint, `Stage Name`: string, `Number of Tasks`: bigint, `Parent IDs`: array<bigint>,"
    " `RDD Info`: array<struct<`RDD ID`: bigint, Name: string, Scope: string>>>"
)
_SCHEMA = (
    "Event string, `App Name` string, `Job ID` bigint, Properties map<string, string>,"
    f" `Stage Infos` array<{_STAGE}>, `Stage Info` {_STAGE}, `Stage ID` bigint,"
    " `Task End Reason` struct<Reason: string>,"
    " `Task Info` struct<Index: bigint, `Launch Time`: bigint, `Finish Time`: bigint>,"
    " `Task Metrics` struct<`Executor Deserialize Time`: bigint, `Executor Run Time`: bigint,"
    " `Executor CPU Time`: bigint, `Executor Deserialize CPU Time`: bigint,"
    " `Shuffle Read Metrics`: struct<`Remote Bytes Read`: bigint, `Local Bytes Read`: bigint,"
    " `Total Records Read`: bigint>,"
    " `Shuffle Write Metrics`: struct<`Shuffle Bytes Written`: bigint, `Shuffle Records Written`: bigint>>,"
    " damaged string"
)
_TOLD = """
    select Event, `App Name` as name, `Job ID` as job, Properties['spark.sql.execution.id'] as query,
           `Stage Infos` as stages, `Stage Info`.`Stage ID` as done, damaged
    from events
    where Event in ('SparkListenerApplicationStart', 'SparkListenerJobStart', 'SparkListenerStageCompleted')
      and (damaged is null or {refuse})
"""
_TASKS = """
    select `Stage ID` as stage, `Task Info`.Index as part, `Task Info`.`Launch Time` as begun,
           -- The driver notes the end of a task after its slot may have begun the next one.
           least(`Task Info`.`Finish Time`, `Task Info`.`Launch Time` + coalesce(m.`Executor Deserialize Time`, 0)
                 + coalesce(m.`Executor Run Time`, 0)) as ended, `Task End Reason`.Reason = 'Success' as good,
           coalesce(m.`Executor CPU Time`, 0) + coalesce(m.`Executor Deserialize CPU Time`, 0) as cpu_ns,
           coalesce(r.`Remote Bytes Read`, 0) + coalesce(r.`Local Bytes Read`, 0) as bytes_read,
           coalesce(r.`Total Records Read`, 0) as rows_read,
           coalesce(w.`Shuffle Bytes Written`, 0) as bytes_written,
           coalesce(w.`Shuffle Records Written`, 0) as rows_written, damaged
    from (select *, `Task Metrics` as m, `Task Metrics`.`Shuffle Read Metrics` as r,
                 `Task Metrics`.`Shuffle Write Metrics` as w
          from events where Event = 'SparkListenerTaskEnd' and (damaged is null or {refuse}))
"""
# How many tasks ran at once, and for how long any did: a running count over beginnings and ends.
_BUSY = """
    select max(running) as most, sum(case when running > 0 then until - at else 0 end) as busy_ms
    from (select at, sum(change) over (order by at, change) as running, lead(at) over (order by at, change) as until
          from (select begun as at, 1 as change from tasks union all select ended, -1 from tasks))
"""
_FIGURES = """
    select g.operator, pmod(part, g.tasks) as task, sum(cpu_ns) / 1e9 as cpu_s, sum(bytes_read) as bytes_read,
           sum(rows_read) as rows_read, sum(bytes_written) as bytes_written, sum(rows_written) as rows_written
    from tasks t join operator_of_stage g on t.stage = g.stage where good group by 1, 2
"""


def require_tasks_max(tasks_max: int | None) -> None:
    """Refuse a most number of tasks that no operator can have."""
    if tasks_max is not None and not 1 <= tasks_max <= TASKS_PER_OPERATOR_MAX:
        msg = f"tasks_max is {tasks_max}; it must be 1 to {TASKS_PER_OPERATOR_MAX}"
        raise InvalidInput(msg)


def import_spark(spark: SparkSession, source: str | Path, *, tasks_max: int | None = None) -> Imported:
    """A topology and its profile from a Spark event log: an operator for each stage that is not the same work again.

    An operator gets as many tasks as its stage had, but at most `tasks_max`, or what ran at once in the application.
    """
    require_tasks_max(tasks_max)
    files = log_files(source)
    with plain_files(files) as plain:
        if plain != files and not runs_here(str(spark.sparkContext.master)):
            msg = f"{source} is compressed, and executors elsewhere cannot see it unpacked; use a local session"
            raise InvalidInput(msg)
        return _imported(spark, source, plain, tasks_max, unfinished=any(f.name.endswith(IN_PROGRESS) for f in files))


def _imported(
    spark: SparkSession, source: str | Path, plain: Sequence[Path], tasks_max: int | None, *, unfinished: bool
) -> Imported:
    """What the events come to; whatever Spark says of them is one line."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    own = spark.newSession()  # for views and a setting that are no business of the caller's
    own.conf.set("spark.sql.shuffle.partitions", str(own.sparkContext.defaultParallelism))
    events = own.read.schema(_SCHEMA).option("columnNameOfCorruptRecord", "damaged").json([*map(str, plain)])
    tasks: DataFrame | None = None
    try:
        events.createOrReplaceTempView("events")
        _require_whole(events, source, unfinished=unfinished)
        refuse = "false" if unfinished else "true"  # damaged events, those with a field of a wrong type among them
        name, stages = _stages(own.sql(_TOLD.format(refuse=refuse)), source)
        groups, group_of = group_stages(stages)
        tasks = own.sql(_TASKS.format(refuse=refuse)).persist()
        tasks.createOrReplaceTempView("tasks")
        failed = _require_sound(own, source)
        busy = own.sql(_BUSY).collect()[0]
        limit = tasks_max or min(max(1, busy.most or 1), TASKS_PER_OPERATOR_MAX)
        activity = _activity(own, source, groups, group_of, limit)
    except (PySparkException, Py4JError) as error:
        msg = f"cannot read the event log {source}: {reason(str(error))}"
        raise InvalidInput(msg) from None
    finally:
        if tasks is not None:
            tasks.unpersist()
    notes = [f"{failed} attempts of tasks that did not succeed are left out"] if failed else []
    return imported_stages(name, groups, activity, seconds=(busy.busy_ms or 0) / 1e3, tasks_max=limit, notes=notes)


def _require_whole(events: DataFrame, source: str | Path, *, unfinished: bool) -> None:
    """InvalidInput where lines are no events. Spark looks only into fields that are asked for: these are not all."""
    bad = events.select("Event", "damaged").where("damaged is not null or Event is null").limit(2).collect()
    if len(bad) > (1 if unfinished else 0):
        raise _damaged(source, bad[0].damaged or "an object without an Event")


def _damaged(source: str | Path, line: str) -> InvalidInput:
    return InvalidInput(f"{source} is not a Spark event log, or it is damaged: a line is {line[:80]!r}")


def _require_sound(spark: SparkSession, source: str | Path) -> int:
    """InvalidInput where a task has figures that cannot be; else how many attempts failed."""
    figures = ("part", "cpu_ns", "bytes_read", "rows_read", "bytes_written", "rows_written")
    wrong = " or ".join([*(f"{figure} < 0" for figure in figures), "ended < begun"])
    wrong += "".join(f" or {column} is null" for column in ("stage", "part", "begun", "ended", "good"))
    found = spark.sql(
        f"select count_if(not good) as failed, min(if({wrong}, to_json(struct(*)), null)) as wrong,"  # noqa: S608
        " min(damaged) as damaged from tasks"
    ).collect()[0]
    if found.damaged is not None:
        raise _damaged(source, found.damaged)
    if found.wrong is not None:
        msg = f"{source} has a task with a time or figure that cannot be: {found.wrong[:300]}"
        raise InvalidInput(msg)
    return int(found.failed)


def _stages(events: DataFrame, source: str | Path) -> tuple[str, list[Stage]]:
    """The application's name and the stages that jobs list, each once, in the job that listed it first."""
    told = events.limit(EVENTS_MAX + 1).collect()
    if bad := [row.damaged for row in told if row.damaged is not None]:
        raise _damaged(source, bad[0])
    if len(told) > EVENTS_MAX:
        msg = f"{source} tells of more than {EVENTS_MAX} jobs and stages; import a part of it"
        raise InvalidInput(msg)
    ran = {row.done for row in told if row.done is not None}
    found: dict[int, Stage] = {}
    for job in sorted((row for row in told if row.stages), key=lambda row: -1 if row.job is None else row.job):
        for row in job.stages:
            number, tasks = (None, None) if row is None else (row["Stage ID"], row["Number of Tasks"])
            rdds = [] if row is None else row["RDD Info"] or []
            if number is None or tasks is None or not 1 <= tasks <= TASKS_MAX or not all(map(_is_rdd, rdds)):
                msg = f"{source} lists stage {number} with {tasks} tasks; a stage has a number, RDDs and 1 task or more"
                raise InvalidInput(msg)
            if number not in found:
                found[number] = _stage(row, job.query or f"job {job.job}", number in ran)
    return next((row.name for row in told if row.name), "spark"), list(found.values())


def _is_rdd(rdd: Any) -> bool:  # noqa: ANN401 - a Row of Spark's, or null
    return rdd is not None and rdd["RDD ID"] is not None


def _stage(row: Any, query: str, ran: bool) -> Stage:  # noqa: ANN401 - a Row of Spark's
    rdds = sorted((rdd["RDD ID"], rdd["Name"] or "", _scope(rdd["Scope"])) for rdd in row["RDD Info"] or [])
    number, _, last = rdds[-1] if rdds else (-1 - row["Stage ID"], "", "")
    return Stage(
        row["Stage ID"],
        row["Stage Name"] or "",
        tuple(parent for parent in row["Parent IDs"] or [] if parent is not None),
        row["Number of Tasks"],
        number,
        tuple(sorted(f"{name} {scope}" for _, name, scope in rdds)),
        last or (rdds[-1][1] if rdds else ""),
        query,
        ran,
    )


def _scope(text: str | None) -> str:
    """The name in an RDD's scope, which is JSON inside JSON; its id is numbered anew by every query."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return ""
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def _activity(
    spark: SparkSession,
    source: str | Path,
    groups: Sequence[StageGroup],
    group_of: dict[int, int],
    limit: int,
) -> dict[tuple[int, int], Activity]:
    """What each task of each operator did."""
    sizes = [tasks_of(group, limit) for group in groups]
    if sum(sizes) > TASKS_MAX:
        msg = f"{source} would have {sum(sizes)} tasks; the limit is {TASKS_MAX}; give a smaller --tasks-max"
        raise InvalidInput(msg)
    rows = [(stage, group, sizes[group]) for stage, group in group_of.items()]
    known = spark.createDataFrame(rows, "stage bigint, operator int, tasks int")
    known.createOrReplaceTempView("operator_of_stage")
    return {
        (row.operator, row.task): Activity(
            row.cpu_s, float(row.bytes_read), float(row.rows_read), float(row.bytes_written), float(row.rows_written)
        )
        for row in spark.sql(_FIGURES).collect()
    }
