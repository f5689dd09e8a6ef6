"""Storm's REST answers: `/api/v1/topology/ID`, `.../component/NAME` of each component, and `.../visualization`.

Written after Storm's documentation of the UI's REST API; `visualization`, where alone groupings are said, after the
names that Storm's UI gives them. Storm counts tuples and the wall time of `execute`; it tells neither bytes nor CPU,
and nothing of a spout's work. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.imports.figures import amount, evenly, one_answer, raise_faults, record, records, task_count, unread_note
from penstock.imports.imported import UNKNOWN_LOAD, Flow, Found, Imported, Names, assemble, plain_name
from penstock.model.fields import Faults, Fields
from penstock.model.topology import TASKS_MAX

TUPLE_BYTES = 100.0
_TASKS_OF = re.compile(r"\[(\d{1,9})-(\d{1,9})\]")  # an executor's id: its first and last task
# Groupings as Storm's Thrift names them. A global grouping is a fields grouping without fields, and looks like one.
_GROUPINGS = {
    "shuffle": "shuffle",
    "fields": "fields",
    "all": "all",
    "direct": "direct",
    "local_or_shuffle": "local-or-shuffle",
    "none": "shuffle",
}


@dataclass(frozen=True, slots=True)
class _Component:
    """One spout or bolt, by task."""

    name: str
    tasks: int
    spout: bool
    requested: float | None  # the CPU that the user asked for, in cores
    loads: tuple[float | None, ...]
    emitted: tuple[float, ...]
    executed: tuple[float, ...]
    inputs: tuple[tuple[str, str, float], ...]  # component, stream, tuples


def component_names(topology: object) -> list[str]:
    """The components that a topology's answer names, system components left out."""
    faults = Faults()
    fields = record(topology, "", faults)
    names = [entry.text("spoutId") for entry in records(fields, "spouts")]
    names += [entry.text("boltId") for entry in records(fields, "bolts")]
    raise_faults(faults)
    return [name for name in names if not name.startswith("__")]


def read_storm(
    documents: Mapping[str, object], *, tuple_bytes: float = TUPLE_BYTES, unknown_load: float = UNKNOWN_LOAD
) -> Imported:
    """The topology that these answers show, named by where they came from; InvalidInput with every fault."""
    faults = Faults()
    topology, components, visualization, unread = _sorted_out(documents, faults)
    seconds = _seconds(topology)
    found = [
        component
        for kind, key in (("spout", "spoutId"), ("bolt", "boltId"))
        for entry in records(topology, f"{kind}s")
        if (component := _component(entry, entry.text(key), kind == "spout", seconds, components, topology))
    ]
    groupings = _groupings(visualization)
    raise_faults(faults)
    given = Names()
    names = {component.name: given.give(component.name) for component in found}
    flows = _flows({component.name: component for component in found}, names, groupings, seconds, tuple_bytes)
    operators = [Found(names[one.name], one.loads, one.spout, one.requested if one.spout else None) for one in found]
    notes = (
        f"Storm counts tuples, not bytes: each is taken for {tuple_bytes:g} bytes (--tuple-bytes)",
        "loads of bolts are executed tuples times execute latency: wall time by Storm's sample of tuples, not CPU",
        "Storm counts per executor, not per pair: a pair's share is what its two ends emitted and executed, multiplied",
        "Storm does not tell what spouts need: they have the CPU that was requested for them, where it is said"
        if any(one.requested for one in found if one.spout)
        else "Storm does not tell what spouts need",
        "groupings are the visualization's, which shows a global one as fields; a custom one is taken for shuffle"
        if visualization
        else "no visualization was given, which alone tells groupings: every stream is taken for shuffle",
        *unread_note(unread),
    )
    return assemble(plain_name(topology.text("name", "storm")), operators, flows, notes, unknown_load)


def _sorted_out(
    documents: Mapping[str, object], faults: Faults
) -> tuple[Fields, dict[str, Fields], list[Fields], list[str]]:
    """Which answer is which, by its keys: the topology, its components, visualizations, and what is none of these."""
    topologies: list[Fields] = []
    components: dict[str, Fields] = {}
    visualization: list[Fields] = []
    unread: list[str] = []
    for name, document in documents.items():
        fields = Fields(document if isinstance(document, dict) else {}, name, faults)
        if "componentType" in fields.values:
            components[fields.text("id")] = fields
        elif "spouts" in fields.values and "uptimeSeconds" in fields.values:
            topologies.append(fields)
        elif fields.values and all(isinstance(v, dict) and ":inputs" in v for v in fields.values.values()):
            visualization.append(fields)
        else:
            unread.append(name)
    topology = one_answer(topologies, "/api/v1/topology/ID, and those of its components", unread)
    return topology, components, visualization, unread


def _seconds(topology: Fields) -> float:
    """The time that the counts cover: the window that was asked for, or as much of it as the topology has run."""
    uptime = amount(topology, "uptimeSeconds") or 0.0
    window = topology.values.get("window", ":all-time")
    seconds = uptime if window == ":all-time" else min(uptime, amount(topology, "window") or uptime)
    if seconds <= 0:
        topology.faults.add(topology.at("uptimeSeconds"), "must be more than 0: nothing was counted yet")
        return 1.0
    return seconds


def _component(
    entry: Fields, name: str, spout: bool, seconds: float, answers: Mapping[str, Fields], topology: Fields
) -> _Component | None:
    if name.startswith("__"):  # ackers and metrics are Storm's own
        return None
    tasks = task_count(entry, "tasks")
    answer = answers.get(name)
    if answer is None:
        entry.faults.add(
            entry.where, f"no answer of .../component/{name[:100]} was given; it tells what {name!r} reads"
        )
        return None
    window = topology.values.get("window", ":all-time")
    if answer.values.get("window", ":all-time") != window:
        answer.faults.add(answer.at("window"), f"must be the topology's, {str(window)[:40]!r}; ask for one window")
    requested = amount(entry, "requestedCpu") or amount(answer, "requestedCpu")
    inputs = tuple(
        (stats.text("component"), stats.text("stream", "default"), amount(stats, "executed") or 0.0)
        for stats in ([] if spout else records(answer, "inputStats"))
        if not stats.text("component").startswith("__") and not stats.text("stream", "default").startswith("__")
    )
    by_task = _by_task(answer, tasks)
    if by_task is None:
        busy = (amount(entry, "executed") or 0.0) * (amount(entry, "executeLatency") or 0.0) / 1e3
        loads, emitted, executed = evenly(busy / seconds, tasks), evenly(1.0, tasks), evenly(1.0, tasks)
    else:
        emitted, executed, busy_of = by_task
        loads = tuple(busy / seconds for busy in busy_of)
    unknown: tuple[float | None, ...] = (None,) * tasks
    cores = None if not requested else requested / 100
    return _Component(name, tasks, spout, cores, unknown if spout else loads, emitted, executed, inputs)


def _by_task(answer: Fields, tasks: int) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]] | None:
    """Emitted, executed and busy seconds of each task; an executor's are shared out over its tasks.

    None unless the executors' tasks are as many as the component's.
    """
    rows: list[tuple[int, int, float, float, float]] = []
    for stats in records(answer, "executorStats"):
        found = _TASKS_OF.fullmatch(stats.text("id", ""))
        first, last = (int(found[1]), int(found[2])) if found else (0, 0)
        if not found or not 0 <= last - first < TASKS_MAX:
            stats.faults.add(stats.at("id"), f"must be the executor's tasks as [24-25] but is {stats.text('id', '')!r}")
            continue
        executed = amount(stats, "executed") or 0.0
        busy = executed * (amount(stats, "executeLatency") or 0.0) / 1e3
        rows.append((first, last - first + 1, amount(stats, "emitted") or 0.0, executed, busy))
    if sum(count for _, count, *_ in rows) != tasks:
        return None
    figures = [share for _, count, *figures in sorted(rows) for share in [[f / count for f in figures]] * count]
    emitted, executed_of, busy_of = (tuple(column) for column in zip(*figures, strict=True))
    return emitted, executed_of, busy_of


def _groupings(visualization: Sequence[Fields]) -> dict[tuple[str, str, str], str]:
    """The grouping of each (target, source, stream)."""
    found: dict[tuple[str, str, str], str] = {}
    for fields in visualization:
        for target in fields.values:
            for entry in records(record(fields.values[target], fields.at(target), fields.faults), ":inputs"):
                source, stream = entry.text(":component"), entry.text(":stream", "default")
                if not source.startswith("__") and not stream.startswith("__"):
                    found[target, source, stream] = entry.text(":grouping", "shuffle")
    return {key: grouping for key, grouping in found.items() if not key[0].startswith("__")}


def _flows(
    by_name: Mapping[str, _Component],
    names: Mapping[str, str],
    groupings: Mapping[tuple[str, str, str], str],
    seconds: float,
    tuple_bytes: float,
) -> list[Flow]:
    """One flow for each stream that somebody reads, those that carried nothing among them."""
    counts = dict.fromkeys(groupings, 0.0)
    for component in by_name.values():
        for source, stream, executed in component.inputs:
            key = component.name, source, stream
            counts[key] = counts.get(key, 0.0) + executed
    faults = [
        f"{target!r} reads {source!r}, which the topology does not have"
        for target, source, _ in counts
        if source not in by_name or target not in by_name
    ]
    if faults:
        raise InvalidInput(faults)
    return [
        Flow(
            names[source],
            names[target],
            _GROUPINGS.get(groupings.get((target, source, stream), "shuffle"), "shuffle"),
            executed / seconds * tuple_bytes,
            executed / seconds,
            by_name[source].emitted,
            by_name[target].executed,
        )
        for (target, source, stream), executed in counts.items()
    ]
