"""Flink's REST answers: `/jobs/ID` (with its plan), `/jobs/ID/vertices/VID` and of each of these `.../metrics?get=...`.

The metrics are rates of the last minute and come first; without them the totals since the start are divided by the time
that a subtask has run. A load is Flink's busy time: wall time of the subtask's thread that is neither idle nor held
back, sending and waiting for disks among it. Sources of the old kind do not tell it ("NaN"). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.imports.figures import (
    added,
    amount,
    evenly,
    one_answer,
    raise_faults,
    record,
    records,
    task_count,
    unread_note,
)
from penstock.imports.imported import UNKNOWN_LOAD, Flow, Found, Imported, Names, assemble, plain_name
from penstock.imports.traffic import fit_flows
from penstock.model.fields import Faults, Fields

BUSY = "busyTimeMsPerSecond"
RATES = ("numBytesOutPerSecond", "numBytesInPerSecond", "numRecordsOutPerSecond", "numRecordsInPerSecond")
_READ = frozenset({BUSY, *RATES})
TOTALS = ("write-bytes", "read-bytes", "write-records", "read-records")
_BUSY_TOTAL = "accumulated-busy-time"
NAMES_PER_REQUEST = 100
BUSY_MAX = 1.05  # of a subtask, in seconds a second: Flink's clocks are not read at one moment
_VERTEX = re.compile(r"[0-9a-f]{32}")
_GROUPINGS = {
    "FORWARD": "forward",
    "HASH": "fields",
    "BROADCAST": "all",
    "GLOBAL": "global",
    "REBALANCE": "shuffle",
    "RESCALE": "shuffle",
    "SHUFFLE": "shuffle",
}

Tasks = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Measured:
    """What each subtask of a vertex did in a second."""

    busy: tuple[float | None, ...]  # seconds
    bytes_out: Tasks
    bytes_in: Tasks
    records_out: Tasks
    records_in: Tasks


@dataclass(frozen=True, slots=True)
class _Answers:
    """The answers about one job."""

    job: Fields
    vertices: Mapping[str, Fields]
    metrics: Mapping[str, Mapping[str, float | None]]
    unread: Sequence[str]


def vertices_of(job: object) -> list[tuple[str, int]]:
    """Each vertex of a job's answer with its parallelism."""
    faults = Faults()
    found = [
        (entry.text("id"), task_count(entry, "parallelism")) for entry in records(record(job, "", faults), "vertices")
    ]
    raise_faults(faults)
    return found


def running_job(jobs: object) -> str:
    """The id of the one job that runs, from the answer of `/jobs/overview`."""
    faults = Faults()
    entries = records(record(jobs, "", faults), "jobs")
    running = [entry.text("jid") for entry in entries if entry.text("state") == "RUNNING"]
    raise_faults(faults)
    if len(running) != 1:
        known = ", ".join(running[:10]) or "none"
        msg = f"Flink runs {len(running)} jobs ({known}); name one: http://HOST:PORT/jobs/ID"
        raise InvalidInput(msg)
    return running[0]


def metric_names(parallelism: int) -> list[str]:
    """The metrics to ask for, of every subtask: lists for `get=`, none longer than addresses may be."""
    names = [f"{i}.{name}" for i in range(parallelism) for name in (BUSY, *RATES)]
    return [",".join(names[k : k + NAMES_PER_REQUEST]) for k in range(0, len(names), NAMES_PER_REQUEST)]


def read_flink(documents: Mapping[str, object], *, unknown_load: float = UNKNOWN_LOAD) -> Imported:
    """The topology that these answers show, named by where they came from; InvalidInput with every fault."""
    faults = Faults()
    answers = _sorted_out(documents, faults)
    listed = records(answers.job, "vertices")
    entries = {entry.text("id"): entry for entry in listed}
    if len(entries) < len(listed):
        faults.add(answers.job.at("vertices"), "names a vertex twice")
    tasks = {vertex: task_count(entry, "parallelism") for vertex, entry in entries.items()}
    measured, since = _measured(answers, entries, tasks)
    links = _links(answers.job, tasks)
    given = Names()
    names = {vertex: given.give(entry.text("name")) for vertex, entry in entries.items()}
    raise_faults(faults)
    busiest = max(((load or 0.0, vertex) for vertex, one in measured.items() for load in one.busy), default=(0.0, ""))
    fed = {target for _, target, _ in links}
    found = [Found(names[vertex], measured[vertex].busy, vertex not in fed) for vertex in entries]
    notes = [
        f"figures are {since}",
        "loads are busy time: wall time of a subtask's thread that is neither idle nor held back, sending included",
        "Flink counts per subtask, not per pair: a pair's share is what its two ends sent and received, multiplied",
    ]
    if any(len([link for link in links if link[end] == vertex]) > 1 for vertex in entries for end in (0, 1)):
        notes.append(
            "Flink counts per vertex, not per stream: where one has several, they are fitted to both ends' totals"
        )
    if odd := sorted({way for _, _, way in links if _GROUPINGS.get(way) is None or way == "RESCALE"}):
        notes.append(f"streams of {', '.join(odd)[:100]} are taken for shuffle")
    if busiest[0] > BUSY_MAX:
        notes.append(
            f"{names[busiest[1]]!r} says that a subtask was busy {busiest[0]:.3g} seconds a second, where a thread has "
            "one: times and totals are not of the same run, or not of Flink"
        )
    notes += unread_note(answers.unread)
    name = answers.job.text("name", "flink")
    return assemble(plain_name(name), found, _flows(links, measured, names, tasks), notes, unknown_load)


def _sorted_out(documents: Mapping[str, object], faults: Faults) -> _Answers:
    """Which answer is which, by its keys; metrics do not say whose they are, so their name has to."""
    jobs: list[Fields] = []
    vertices: dict[str, Fields] = {}
    metrics: dict[str, dict[str, float | None]] = {}
    unread: list[str] = []
    for name, document in documents.items():
        if isinstance(document, list):
            whose = _VERTEX.findall(name)
            if not whose:
                unread.append(name)
            else:
                found = metrics.setdefault(whose[-1], {})
                for i, value in enumerate(document):
                    entry = record(value, f"{name}[{i}]", faults)
                    identifier = entry.text("id")
                    if identifier.partition(".")[2] in _READ:  # others may be text
                        found[identifier] = amount(entry, "value")
            continue
        fields = Fields(document if isinstance(document, dict) else {}, name, faults)
        if "jid" in fields.values and "vertices" in fields.values:
            jobs.append(fields)
        elif "subtasks" in fields.values and "id" in fields.values:
            vertices[fields.text("id")] = fields
        elif not {"jobs", "plan"} & fields.values.keys():  # lists of jobs and plans come with these, and are not needed
            unread.append(name)
    return _Answers(one_answer(jobs, "/jobs/ID, and those of its vertices", unread), vertices, metrics, unread)


def _measured(
    answers: _Answers, entries: Mapping[str, Fields], tasks: Mapping[str, int]
) -> tuple[dict[str, _Measured], str]:
    """What every vertex did, all of them over the same time: recent rates if all have them, else totals."""
    recent = {vertex: _recent(answers.metrics.get(vertex, {}), tasks[vertex]) for vertex in entries}
    found = {vertex: measured for vertex, measured in recent.items() if measured is not None}
    if len(found) == len(entries):
        return found, "Flink's rates of the last minute"
    return {
        vertex: _since_start(answers.vertices.get(vertex), entry, tasks[vertex]) for vertex, entry in entries.items()
    }, "totals since the start, divided by the time that each subtask has run (no metrics of every subtask were given)"


def _recent(metrics: Mapping[str, float | None], tasks: int) -> _Measured | None:
    """The rates of each subtask; None where one is missing."""
    if len(metrics) < tasks * len(RATES):
        return None
    columns = [[metrics.get(f"{i}.{name}") for i in range(tasks)] for name in RATES]
    if any(value is None for column in columns for value in column):
        return None
    busy = [metrics.get(f"{i}.{BUSY}") for i in range(tasks)]
    rates = (tuple(value or 0.0 for value in column) for column in columns)
    return _Measured(tuple(None if value is None else value / 1e3 for value in busy), *rates)


def _since_start(answer: Fields | None, entry: Fields, tasks: int) -> _Measured:
    """The totals of each subtask, or of the vertex shared out evenly, divided by the time that it has run."""
    if answer is None:
        whole = _totals(entry)
        busy = None if whole[0] is None else whole[0] / tasks
        return _Measured((busy,) * tasks, *(evenly(added([total]), tasks) for total in whole[1:]))
    subtasks = sorted(records(answer, "subtasks"), key=lambda one: one.whole("subtask"))
    numbers = [one.whole("subtask") for one in subtasks]
    if numbers != list(range(tasks)):
        said = f"has {len(numbers)} entries but the job gives it {tasks} subtasks"
        if len(numbers) == tasks:
            said = f"has the numbers {str(numbers)[:60]}, which must count from 0"
        answer.faults.add(answer.at("subtasks"), said)
        return _Measured((None,) * tasks, *(evenly(0.0, tasks) for _ in TOTALS))
    rows = [_totals(subtask) for subtask in subtasks]
    return _Measured(
        tuple(row[0] for row in rows), *(tuple(added([row[k]]) for row in rows) for k in range(1, 1 + len(TOTALS)))
    )


def _totals(fields: Fields) -> tuple[float | None, ...]:
    """Busy time and traffic by the second; faults where Flink has not gathered them yet."""
    milliseconds = amount(fields, "duration") or 0.0
    if milliseconds <= 0:
        fields.faults.add(fields.at("duration"), "must be more than 0: it has not run yet")
        return (None, *(0.0 for _ in TOTALS))
    metrics = record(fields.values.get("metrics", {}), fields.at("metrics"), fields.faults)
    if any(metrics.values.get(f"{name}-complete") is False for name in TOTALS):
        fields.faults.add(
            metrics.where, "Flink calls it incomplete, as the first answer about a running job is; ask again"
        )
    busy = amount(metrics, _BUSY_TOTAL)
    return (
        None if busy is None else busy / milliseconds,
        *((amount(metrics, name) or 0.0) / milliseconds * 1e3 for name in TOTALS),
    )


def _links(job: Fields, tasks: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """The streams of the plan: source, target and how records are shared out."""
    plan = record(job.values.get("plan"), job.at("plan"), job.faults)
    found: list[tuple[str, str, str]] = []
    for node in records(plan, "nodes"):
        target = node.text("id")
        for entry in records(node, "inputs"):
            source = entry.text("id")
            for end in (source, target):
                if end not in tasks:
                    entry.faults.add(entry.where, f"names vertex {end[:40]!r}, which the job does not have")
            found.append((source, target, entry.text("ship_strategy", "SHUFFLE")))
    return [link for link in found if link[0] in tasks and link[1] in tasks]


def _flows(
    links: Sequence[tuple[str, str, str]],
    measured: Mapping[str, _Measured],
    names: Mapping[str, str],
    tasks: Mapping[str, int],
) -> list[Flow]:
    """Each stream's part of what the vertices at its ends sent and received."""
    ends = [(source, target) for source, target, _ in links]
    sent = {vertex: added(one.bytes_out) for vertex, one in measured.items()}
    received = {vertex: added(one.bytes_in) for vertex, one in measured.items()}
    rates = fit_flows(ends, sent, received)
    sent = {vertex: added(one.records_out) for vertex, one in measured.items()}
    received = {vertex: added(one.records_in) for vertex, one in measured.items()}
    tuples = fit_flows(ends, sent, received)
    return [
        Flow(
            names[source],
            names[target],
            "shuffle" if way == "FORWARD" and tasks[source] != tasks[target] else _GROUPINGS.get(way, "shuffle"),
            rate,
            count,
            measured[source].bytes_out,
            measured[target].bytes_in,
        )
        for (source, target, way), rate, count in zip(links, rates, tuples, strict=True)
    ]
