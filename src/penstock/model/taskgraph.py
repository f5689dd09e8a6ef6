"""TaskGraph: a topology expanded to its tasks, in arrays, because optimisers visit every edge many times.

Task i of the arrays has the id `ids[i]`; operators come in file order and their tasks in index order. Edges are
directed and merged per pair; pairs without traffic are left out
(`test_parallel_streams_are_added_up_and_empty_pairs_left_out`). `adjacency` is the same graph without direction, in
compressed rows; cuts are counted on it. What an edge costs at its ends depends on how far apart they are: `ends`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.model.costs import DEFAULT_COSTS, DISTANCES, Distance, StreamCosts
from penstock.model.profile import EdgeProfile, Profile
from penstock.model.task_id import TaskId, tasks_of_operator
from penstock.model.topology import OperatorGraph
from penstock.model.traffic import BATCH_BYTES, ENDS, ROW_BYTES, End, Floats, MeasuredEnd, end_cpu, estimated

__all__ = ["Adjacency", "Floats", "Ints", "Longs", "TaskGraph"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Undirected compressed rows: `neighbour[start[i]:start[i + 1]]` are the neighbours of task i, ascending."""

    start: Longs
    neighbour: Ints
    weight: Floats  # both directions together
    outward: Floats  # the part of `weight` that flows from the row's task to the neighbour


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """Tasks with loads and memory, edges with rates."""

    operators: tuple[str, ...]
    first_task: Longs  # tasks of operator k are first_task[k] .. first_task[k + 1] - 1
    operator_of: Ints
    load: Floats
    memory_mb: Floats
    source: Ints
    target: Ints
    rate: Floats
    tuples: Floats
    batches: Floats
    counted: bool = False  # whether a profile says rows, batches or CPU of any edge; rates are bytes per second then
    relative: bool = False  # whether rates have no unit (`OperatorGraph.relative`)
    measured: tuple[MeasuredEnd, ...] = ()  # at most one for each distance and end
    costs: StreamCosts = DEFAULT_COSTS  # what `ends` takes where it is given none

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return len(self.load)

    @cached_property
    def ids(self) -> list[str]:
        """Task ids, `operator/index`."""
        counts = np.diff(self.first_task).tolist()
        return [task for named in zip(self.operators, counts, strict=True) for task in tasks_of_operator(*named)]

    @cached_property
    def adjacency(self) -> Adjacency:
        """The graph without direction, in compressed rows."""
        n = self.task_count
        row = np.concatenate([self.source, self.target]).astype(np.int64)
        column = np.concatenate([self.target, self.source]).astype(np.int64)
        outward = np.concatenate([self.rate, np.zeros_like(self.rate)])
        weight = np.concatenate([self.rate, self.rate])
        key, (weight, outward) = _merge_pairs(row * n + column, weight, outward)
        start = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(key // n, minlength=n), out=start[1:])
        return Adjacency(start, (key % n).astype(np.int32), weight, outward)

    @property
    def total_rate(self) -> float:
        """Sum of all rates: the cost of a plan that puts every task on a node of its own."""
        return float(self.rate.sum())

    def ends(self, distance: Distance, costs: StreamCosts | None = None) -> tuple[Floats, Floats]:
        """CPU seconds per second of each edge at its sending and its receiving end, with the two so far apart.

        CPU that was measured at this distance comes before the model.
        """
        at = (self.costs if costs is None else costs).at(distance)

        def cpu(end: End) -> Floats:
            seen = next((m for m in self.measured if m.distance == distance and m.end == end), None)
            return end_cpu(at.send if end == "send" else at.receive, self.rate, self.tuples, self.batches, seen)

        return cpu("send"), cpu("receive")

    def quotient(self, part: NDArray[np.integer]) -> TaskGraph:
        """This graph with the tasks of each part (0, 1, ... without gaps) fused into one task of a new operator.

        Loads, memory and what flows between two parts are summed; traffic inside a part disappears.
        """
        label = np.asarray(part, dtype=np.int64)
        count = int(label.max()) + 1 if len(label) else 0
        source, target = label[self.source], label[self.target]
        crossing = source != target
        key, edges = _merge_edges(source * count + target, self._edges(), crossing)
        return TaskGraph(
            operators=tuple(f"part{k}" for k in range(count)),
            first_task=np.arange(count + 1, dtype=np.int64),
            operator_of=np.arange(count, dtype=np.int32),
            load=np.bincount(label, self.load, minlength=count).astype(np.float64),
            memory_mb=np.bincount(label, self.memory_mb, minlength=count).astype(np.float64),
            source=(key // count).astype(np.int32),
            target=(key % count).astype(np.int32),
            rate=edges.rate,
            tuples=edges.tuples,
            batches=edges.batches,
            counted=self.counted,
            relative=self.relative,
            measured=edges.measured,
            costs=self.costs,
        )

    def _edges(self) -> _Edges:
        return _Edges(self.rate, self.tuples, self.batches, self.measured)

    @classmethod
    def expand(
        cls, graph: OperatorGraph, profile: Profile | None = None, costs: StreamCosts = DEFAULT_COSTS
    ) -> TaskGraph:
        """Tasks and edges of a sound operator graph, with a profile's measurements in place of declared ones.

        `costs` are what streams cost where the profile has no costs of its own.
        """
        counts = np.array([operator.tasks for operator in graph.operators], dtype=np.int64)
        first = np.concatenate([[0], np.cumsum(counts)])
        load = np.array([value for operator in graph.operators for value in operator.loads()], dtype=np.float64)
        memory = np.array([value for operator in graph.operators for value in operator.memories_mb()], dtype=np.float64)
        position = {operator.name: k for k, operator in enumerate(graph.operators)}

        def number(task: str) -> int:
            named = TaskId(task)
            return int(first[position[named.operator]]) + named.number

        if profile is not None:
            for task, measured in profile.tasks.items():
                load[number(task)] = measured.load
                if measured.memory_mb is not None:
                    memory[number(task)] = measured.memory_mb
        if profile is not None and profile.edges:
            source = np.array([number(edge.source) for edge in profile.edges], dtype=np.int64)
            target = np.array([number(edge.target) for edge in profile.edges], dtype=np.int64)
            found = _measured_edges(profile.edges)
        else:
            source, target, rate = _declared_edges(graph, first, position)
            found = _Edges(rate, rate / ROW_BYTES, rate / BATCH_BYTES, ())  # `estimated`, in arrays
        n = len(load)
        key, edges = _merge_edges(source * n + target, found, found.rate > 0)
        return cls(
            operators=tuple(operator.name for operator in graph.operators),
            first_task=first,
            operator_of=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
            load=load,
            memory_mb=memory,
            source=(key // n).astype(np.int32),
            target=(key % n).astype(np.int32),
            rate=edges.rate,
            tuples=edges.tuples,
            batches=edges.batches,
            counted=profile is not None and any(_is_counted(edge) for edge in profile.edges),
            relative=graph.relative and (profile is None or not profile.edges),
            measured=edges.measured,
            costs=costs if profile is None or profile.costs is None else profile.costs,
        )


@dataclass(frozen=True, eq=False)
class _Edges:
    """What flows over edges, in arrays."""

    rate: Floats
    tuples: Floats
    batches: Floats
    measured: tuple[MeasuredEnd, ...]


def _is_counted(edge: EdgeProfile) -> bool:
    return any(figure is not None for figure in (edge.tuples, edge.batches, edge.send_cpu, edge.receive_cpu))


def _measured_edges(edges: Sequence[EdgeProfile]) -> _Edges:
    rate = np.array([edge.rate for edge in edges], dtype=np.float64)
    tuples, batches = np.array([estimated(e.rate, e.tuples, e.batches) for e in edges], dtype=np.float64).T
    seen = [
        MeasuredEnd(distance, end, np.where(known, cpu, 0.0), rate * known, tuples * known, batches * known)
        for distance in DISTANCES
        for end in ENDS
        for cpu in [np.array([_cpu_of(edge, end, distance) for edge in edges], dtype=np.float64)]
        for known in [np.isfinite(cpu)]
        if known.any()
    ]
    return _Edges(rate, tuples, batches, tuple(seen))


def _cpu_of(edge: EdgeProfile, end: End, distance: Distance) -> float:
    """What was measured at that end and distance, NaN where nothing was."""
    cpu = edge.send_cpu if end == "send" else edge.receive_cpu
    return math.nan if cpu is None or edge.distance != distance else cpu


def _declared_edges(graph: OperatorGraph, first: Longs, position: dict[str, int]) -> tuple[Longs, Longs, Floats]:
    sources, targets, rates = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.float64)]
    for stream in graph.streams:
        a, b = position[stream.source], position[stream.target]
        from_tasks, to_tasks = np.arange(first[a], first[a + 1]), np.arange(first[b], first[b + 1])
        sources.append(np.repeat(from_tasks, len(to_tasks)))
        targets.append(np.tile(to_tasks, len(from_tasks)))
        rate = np.asarray(stream.rate, dtype=np.float64)
        if stream.grouping == "forward" and rate.ndim == 0:
            rate = rate * np.eye(len(from_tasks))  # task i sends to task i only
        rates.append(np.broadcast_to(rate, (len(from_tasks), len(to_tasks))).ravel())
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(rates)


def _merge_edges(key: Longs, edges: _Edges, kept: NDArray[np.bool_]) -> tuple[Longs, _Edges]:
    """The kept edges, sorted by key, those of equal keys added up."""
    flows = [edges.rate, edges.tuples, edges.batches]
    for seen in edges.measured:
        flows += [seen.cpu, seen.rate, seen.tuples, seen.batches]
    key, (rate, tuples, batches, *rest) = _merge_pairs(key[kept], *(flow[kept] for flow in flows))
    measured = [MeasuredEnd(seen.distance, seen.end, *rest[4 * k : 4 * k + 4]) for k, seen in enumerate(edges.measured)]
    return key, _Edges(rate, tuples, batches, tuple(measured))


def _merge_pairs(key: Longs, *values: Floats) -> tuple[Longs, list[Floats]]:
    """Sort by key and add up the values of equal keys."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    if len(key) == 0:
        return key, [value[order] for value in values]
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    return key[starts], [np.add.reduceat(value[order], starts) for value in values]
