"""OperatorGraph: the operators and streams of a topology, before they are placed.

    >>> graph = OperatorGraph("words", (Operator("lines", tasks=2), Operator("count", tasks=3, load=0.5)),
    ...                       (Stream("lines", "count", rate=4.0),))
    >>> graph.task_count
    5

Frozen records with stable readable ids (`operator/index`), which reappear in plans, errors, metrics and pictures.
The name is COLA's (paper 004: operator graph); "topology" names the builder with which users write dataflows.
Construction checks nothing, so that `faults()` can name every fault of a file at once; `validated()` raises them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.errors import InvalidInput
from penstock.model.constraints import Constraint, constraint_faults

GROUPINGS = ("shuffle", "fields", "global", "all", "local-or-shuffle", "direct", "partial-key", "forward")
OPERATORS_MAX = 200_000
TASKS_MAX = 1_000_000
EDGES_MAX = 20_000_000
NAME_LENGTH_MAX = 200
MAGNITUDE_MAX = 1e15  # of a load, memory size or rate: sums of millions of them stay exact enough to be compared

Load = float | tuple[float, ...]
Rate = float | tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex of the operator graph: code that runs as `tasks` parallel instances."""

    name: str
    tasks: int = 1
    load: Load = 1.0  # CPU capacity that each task takes, or one value per task
    memory_mb: float | tuple[float, ...] = 0.0  # resident memory of each task, or one value per task
    source: bool = False  # reads from outside; inferred from the streams where a file does not say

    def loads(self) -> tuple[float, ...]:
        """One load per task."""
        return self.load if isinstance(self.load, tuple) else (self.load,) * self.tasks

    def memories_mb(self) -> tuple[float, ...]:
        """One memory size per task."""
        return self.memory_mb if isinstance(self.memory_mb, tuple) else (self.memory_mb,) * self.tasks


@dataclass(frozen=True, slots=True)
class Stream:
    """One arc of the operator graph; `rate` is per pair of tasks, in bytes per second where bandwidth matters."""

    source: str
    target: str
    grouping: str = "shuffle"
    rate: Rate = 1.0


@dataclass(frozen=True, slots=True)
class OperatorGraph:
    """A directed acyclic graph of operators, with loads, rates and placement constraints."""

    name: str
    operators: tuple[Operator, ...]
    streams: tuple[Stream, ...] = ()
    constraints: tuple[Constraint, ...] = field(default=())
    relative: bool = False  # rates say how streams compare and have no unit: a program's, before it is measured

    @property
    def task_count(self) -> int:
        """Tasks of all operators together."""
        return sum(operator.tasks for operator in self.operators)

    def faults(self) -> list[str]:
        """Every fault of this graph, one sentence each; empty when it is sound."""
        return graph_faults(self)

    def validated(self) -> OperatorGraph:
        """This graph, or InvalidInput with every fault."""
        if faults := self.faults():
            raise InvalidInput(faults)
        return self


class Placeable(Protocol):
    """What has tasks to be placed, such as a topology under construction."""

    def placeable(self, named: Iterable[str] = ()) -> OperatorGraph:
        """Its graph; of what reads a DataFrame it has as many tasks as these names of tasks speak of."""


def graph_of(given: OperatorGraph | Placeable, named: Iterable[str] = ()) -> OperatorGraph:
    """The operator graph that is meant."""
    if isinstance(given, OperatorGraph):
        return given
    if not callable(getattr(given, "placeable", None)):
        msg = f"topology got {given!r}; give a penstock.Topology or a penstock.OperatorGraph"
        raise InvalidInput(msg)
    return given.placeable(named)


def graph_faults(graph: OperatorGraph) -> list[str]:
    """Names, sizes, numbers, shapes, cycles and constraints, in that order."""
    if not graph.operators:
        return [f"topology {graph.name!r} has no operators; give at least one"]
    if len(graph.operators) > OPERATORS_MAX:
        return [f"topology {graph.name!r} has {len(graph.operators)} operators; the limit is {OPERATORS_MAX}"]
    faults: list[str] = []
    tasks_of: dict[str, int] = {}
    for operator in graph.operators:
        if operator.name in tasks_of:
            faults.append(f"operator name {operator.name!r} is used twice; names must be unique")
        tasks_of[operator.name] = operator.tasks
        faults += _operator_faults(operator)
    sound_counts = all(_is_count(operator.tasks) for operator in graph.operators)
    if sound_counts and graph.task_count > TASKS_MAX:
        faults.append(f"topology {graph.name!r} has {graph.task_count} tasks; the limit is {TASKS_MAX}")
    pairs = 0
    for stream in graph.streams:
        stream_faults = _stream_faults(stream, tasks_of, sound_counts)
        faults += stream_faults
        if not stream_faults and sound_counts:
            pairs += tasks_of[stream.source] * tasks_of[stream.target]
    if pairs > EDGES_MAX:
        faults.append(f"topology {graph.name!r} has {pairs} task pairs; the limit is {EDGES_MAX}")
    if cycle := _find_cycle(graph):
        faults.append(f"streams form a cycle: {' -> '.join(cycle)}; remove one of them")
    if sound_counts and not faults:
        faults += constraint_faults(graph.constraints, tasks_of, ((s.source, s.target) for s in graph.streams))
    return faults


def name_faults(who: str, name: str, forbidden: str = "") -> list[str]:
    """The faults of a name that people will read in tables, errors and pictures."""
    if not name.strip():
        return [f"{who} has an empty name; name it"]
    if len(name) > NAME_LENGTH_MAX:
        return [f"{who} has a name of {len(name)} characters; the limit is {NAME_LENGTH_MAX}"]
    if not name.isprintable():
        return [f"{who} has a control character or half a character in its name; rename it"]
    if forbidden and forbidden in name:
        return [f"{who} contains {forbidden!r}, which separates operator and index in task ids; rename it"]
    return []


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number_fault(what: str, value: float) -> str | None:
    if math.isfinite(value) and 0 <= value <= MAGNITUDE_MAX:
        return None
    return f"{what} is {value:g}; it must be finite, 0 or more and at most {MAGNITUDE_MAX:g}"


def _operator_faults(operator: Operator) -> list[str]:
    who = f"operator {operator.name[: NAME_LENGTH_MAX + 1]!r}"
    faults: list[str] = []
    faults += name_faults(who, operator.name, forbidden="/")
    if not _is_count(operator.tasks):
        return [*faults, f"{who} has tasks {operator.tasks}; the least is 1"]
    if operator.tasks > TASKS_MAX:
        return [*faults, f"{who} has {operator.tasks} tasks; the limit is {TASKS_MAX}"]
    for label, given in (("load", operator.load), ("memory_mb", operator.memory_mb)):
        if isinstance(given, tuple):
            if len(given) != operator.tasks:
                faults.append(f"{who} has {operator.tasks} tasks but {len(given)} {label} values; give one per task")
            faults += filter(
                None, (_number_fault(f"{label} of task '{operator.name}/{i}'", v) for i, v in enumerate(given))
            )
        elif fault := _number_fault(f"{label} of {who}", given):
            faults.append(fault)
    return faults


def _stream_faults(stream: Stream, tasks_of: dict[str, int], sound_counts: bool) -> list[str]:
    who = f"stream {stream.source!r} -> {stream.target!r}"
    faults = [f"{who} names unknown operator {end!r}" for end in (stream.source, stream.target) if end not in tasks_of]
    if stream.grouping not in GROUPINGS:
        faults.append(f"{who} has unknown grouping {stream.grouping!r}; known: {', '.join(GROUPINGS)}")
    if stream.grouping == "forward" and tasks_of.get(stream.source, 0) != tasks_of.get(stream.target, 0):
        counts = f"{tasks_of.get(stream.source, 0)} and {tasks_of.get(stream.target, 0)}"
        faults.append(f"{who} is forward, from each task to its like, but its operators have {counts} tasks")
    if not isinstance(stream.rate, tuple):
        if fault := _number_fault(f"rate of {who}", stream.rate):
            faults.append(fault)
        return faults
    if sound_counts and stream.source in tasks_of and stream.target in tasks_of:
        rows, columns = tasks_of[stream.source], tasks_of[stream.target]
        if len(stream.rate) != rows or any(len(row) != columns for row in stream.rate):
            widths = sorted({len(row) for row in stream.rate})
            shape = f"{len(stream.rate)} rows of {'/'.join(map(str, widths)) or 0}"
            faults.append(f"{who} has a rate matrix of {shape}; it must be {rows} rows of {columns}")
    for i, row in enumerate(stream.rate):
        faults += filter(None, (_number_fault(f"rate {i},{j} of {who}", value) for j, value in enumerate(row)))
    return faults


def _find_cycle(graph: OperatorGraph) -> list[str]:
    """Kahn's algorithm; the vertices that it cannot remove hold a cycle, and one walk among them finds it."""
    successors: dict[str, list[str]] = {operator.name: [] for operator in graph.operators}
    indegree = dict.fromkeys(successors, 0)
    for stream in graph.streams:
        if stream.source in successors and stream.target in successors:
            successors[stream.source].append(stream.target)
            indegree[stream.target] += 1
    ready = [name for name, degree in indegree.items() if degree == 0]
    while ready:
        for successor in successors[ready.pop()]:
            indegree[successor] -= 1
            if indegree[successor] == 0:
                ready.append(successor)
    stuck = {name for name, degree in indegree.items() if degree > 0}
    if not stuck:
        return []
    # Every stuck vertex has a stuck predecessor, so walking backwards must come round.
    predecessor = {t: s for s in sorted(stuck) for t in successors[s] if t in stuck}
    path: list[str] = []
    at = min(stuck)
    while at not in path:
        path.append(at)
        at = predecessor[at]
    cycle = path[path.index(at) :]
    return [at, *reversed(cycle)]
