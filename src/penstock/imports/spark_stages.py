"""Stages of a Spark event log as operators: which stages are the same work again, and who feeds whom.

Spark numbers stages anew for every job. A stage whose shuffle is there already is listed and skipped; it has the RDD of
the stage that ran. Micro-batches and queries that are asked again run the same stages under new numbers; they count as
one operator when their RDDs, their parents and their place in the job agree. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.imports.imported import Flow, Found, Imported, Names, assemble, plain_name
from penstock.imports.traffic import fit_flows

STAGES_MAX = 200_000


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage as the log lists it."""

    number: int
    name: str  # what the user called, such as `collect at words.py:9`
    parents: tuple[int, ...]
    tasks: int
    rdd: int  # the number of the last RDD, which is the stage's own
    steps: tuple[str, ...]  # its RDDs, by name and scope, in no order that means anything
    last_step: str
    query: str  # the query or job that it belongs to
    ran: bool


@dataclass(frozen=True, slots=True)
class StageGroup:
    """Stages that are the same work again: one operator."""

    name: str
    tasks: int
    feeds_from: tuple[int, ...]  # numbers of groups


@dataclass(frozen=True, slots=True)
class Activity:
    """What one partition of a group did, over the whole log."""

    cpu_s: float = 0.0
    bytes_read: float = 0.0
    rows_read: float = 0.0
    bytes_written: float = 0.0
    rows_written: float = 0.0


def group_stages(stages: Sequence[Stage]) -> tuple[list[StageGroup], dict[int, int]]:
    """The groups, and the group of each stage that ran."""
    if len(stages) > STAGES_MAX:
        msg = f"the event log has {len(stages)} stages; the limit is {STAGES_MAX}; roll it, and give a part"
        raise InvalidInput(msg)
    ran = sorted((stage for stage in stages if stage.ran), key=lambda stage: stage.number)
    rdd_of = {stage.number: stage.rdd for stage in stages}
    group_of_rdd: dict[int, int] = {}  # the latest stage that ran and made this RDD
    numbers: dict[tuple[object, ...], int] = {}
    seen: dict[tuple[object, ...], dict[int, int]] = {}
    groups: list[StageGroup] = []
    names = Names()
    group_of: dict[int, int] = {}
    for stage in ran:
        feeds = tuple(sorted({group_of_rdd[rdd_of[p]] for p in stage.parents if rdd_of.get(p) in group_of_rdd}))
        shape = stage.name, stage.steps, feeds
        # Two equal scans of one query are two operators; the same scan in the next query is the first one again.
        places = seen.setdefault((*shape, stage.query), {})
        place = places.setdefault(stage.rdd, len(places))
        number = numbers.setdefault((*shape, place), len(groups))
        if number == len(groups):
            title = f"stage {stage.number} {stage.last_step}"
            groups.append(StageGroup(names.give(title), stage.tasks, feeds))
        elif stage.tasks > groups[number].tasks:
            groups[number] = StageGroup(groups[number].name, stage.tasks, feeds)
        group_of[stage.number] = number
        group_of_rdd[stage.rdd] = number
    return groups, group_of


def tasks_of(group: StageGroup, tasks_max: int) -> int:
    """How many tasks an operator gets; partition i is the work of task i modulo this, as keys by hash would be."""
    return max(1, min(group.tasks, tasks_max))


def imported_stages(
    name: str,
    groups: Sequence[StageGroup],
    activity: Mapping[tuple[int, int], Activity],
    *,
    seconds: float,
    tasks_max: int,
    notes: Sequence[str] = (),
) -> Imported:
    """The topology of these groups; `activity` is by group and task, `seconds` the time in which anything ran."""
    if not groups or seconds <= 0:
        msg = f"the event log of {name!r} has no finished task of a finished stage"
        raise InvalidInput(msg)
    rows = [
        [activity.get((number, i), Activity()) for i in range(tasks_of(group, tasks_max))]
        for number, group in enumerate(groups)
    ]
    links = [(str(source), str(target)) for target, group in enumerate(groups) for source in group.feeds_from]

    def fitted(written: str, read: str) -> list[float]:
        sent, received = (
            {str(number): sum(getattr(one, figure) for one in tasks) / seconds for number, tasks in enumerate(rows)}
            for figure in (written, read)
        )
        return fit_flows(links, sent, received)

    flows = [
        Flow(
            groups[int(source)].name,
            groups[int(target)].name,
            "fields" if len(rows[int(target)]) > 1 else "global",
            rate,
            tuples,
            tuple(one.bytes_written for one in rows[int(source)]),
            tuple(one.bytes_read for one in rows[int(target)]),
        )
        for (source, target), rate, tuples in zip(
            links, fitted("bytes_written", "bytes_read"), fitted("rows_written", "rows_read"), strict=True
        )
    ]
    found = [
        Found(group.name, tuple(one.cpu_s / seconds for one in tasks), source=not group.feeds_from)
        for group, tasks in zip(groups, rows, strict=True)
    ]
    told = [
        f"loads and rates are over the {seconds:g} s in which a task ran, as if all stages ran side by side",
        "loads are CPU time of tasks, reading and writing shuffles included; what executors do beside tasks is not in",
        "Spark counts shuffle bytes (compressed) per task, not per pair: a pair's share is its two ends', multiplied",
        "the log does not say by which rule a shuffle shares rows out: taken for fields",
        *notes,
    ]
    if any(group.tasks > tasks_max for group in groups):
        told.append(
            f"stages of more than {tasks_max} tasks have {tasks_max}: partition i counts for task i modulo {tasks_max} "
            "(--tasks-max)"
        )
    if full := [operator.name for operator in found if max(load or 0.0 for load in operator.loads) > 1]:
        told.append(f"{full[0]!r} has a task of more than one core; a larger --tasks-max shares its partitions out")
    return assemble(plain_name(name), found, flows, told)
