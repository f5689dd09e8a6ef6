"""SimplifiedGraph: T3's graph of groups, kept up to date while tasks leave it for nodes (paper 000, section 4.2).

A vertex is a group of tasks, weighted by the sum of their loads; an edge is weighted by the sum of the rates between
two groups. A partition assigns its first part at once, so an operator has at most one group that is not assigned: its
tasks that are not yet on a node. Groups are therefore numbered like operators, and assigning tasks shrinks their group.

Beside the graph this keeps what the sub-graph on the node being filled attracts: per task its strongest single rate
into the sub-graph and the sum of its rates, per group the sum. A task's edges are visited once, when it is assigned, so
a whole schedule costs O(edges) here. The heaviest group pair and the most attracted neighbour come from heaps with
stale entries: an entry whose weight has changed is dropped or renewed when it surfaces. Rejected: recomputing the
weights after each partition, which is quadratic for a pair of large operators on small nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Longs, TaskGraph


@dataclass(frozen=True, eq=False)
class TaskPairs:
    """Communicating task pairs of one group pair, heaviest first, then by lowest task numbers."""

    first: Longs
    second: Longs
    rate: Floats


class SimplifiedGraph:
    """Groups of tasks that are not yet assigned, and what the sub-graph being grown attracts."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.load = graph.load
        self.group_of = graph.operator_of
        groups = len(graph.operators)
        self.unassigned: NDArray[np.bool_] = np.ones(graph.task_count, dtype=bool)
        self._marked: NDArray[np.bool_] = np.zeros(graph.task_count, dtype=bool)
        self.left = graph.task_count
        self.group_load = np.bincount(self.group_of, self.load, minlength=groups)
        self.lightest = np.full(groups, np.inf)  # load of the lightest task that the group still holds
        np.minimum.at(self.lightest, self.group_of, self.load)
        self.strongest = np.zeros(graph.task_count)
        self.attraction = np.zeros(graph.task_count)
        self._group_attraction = np.zeros(groups)
        self._neighbours: list[tuple[float, int]] = []
        self._index_pairs(groups)

    def _index_pairs(self, groups: int) -> None:
        adjacency = self.graph.adjacency
        row = np.repeat(np.arange(self.graph.task_count), np.diff(adjacency.start))
        low = np.minimum(self.group_of[row], self.group_of[adjacency.neighbour]).astype(np.int64)
        high = np.maximum(self.group_of[row], self.group_of[adjacency.neighbour])
        key, pair_of_entry = np.unique(low * groups + high, return_inverse=True)
        self._pair_of_entry = pair_of_entry.astype(np.int32)
        self._ends = np.stack([key // groups, key % groups], axis=1)
        upward = np.flatnonzero(row < adjacency.neighbour)  # each undirected edge once
        by_pair = upward[np.argsort(self._pair_of_entry[upward], kind="stable")]
        self._edges_of_pair = by_pair
        self._row_of_edge = row[by_pair]
        count = np.bincount(self._pair_of_entry[upward], minlength=len(key))
        self._halves = 2 * count
        self._weight = np.bincount(self._pair_of_entry[upward], adjacency.weight[upward], minlength=len(key))
        self._first_edge = np.concatenate([[0], np.cumsum(count)])
        self._sorted: dict[int, TaskPairs] = {}
        self._heaviest = [(-weight, pair) for pair, weight in enumerate(self._weight.tolist())]
        heapq.heapify(self._heaviest)

    def tasks_of(self, group: int) -> Longs:
        """Tasks of the group that are not assigned, ascending."""
        first, end = int(self.graph.first_task[group]), int(self.graph.first_task[group + 1])
        return first + np.flatnonzero(self.unassigned[first:end])

    def ends(self, pair: int) -> tuple[int, int]:
        """The two groups of a pair, lower number first."""
        return int(self._ends[pair, 0]), int(self._ends[pair, 1])

    def weight(self, pair: int) -> float:
        """Sum of the rates between the unassigned tasks of a pair's groups."""
        return float(self._weight[pair])

    def heaviest_pair(self, room: float) -> int | None:
        """The group pair of greatest weight of which a task fits the room; the lowest numbered of equals."""
        passed_over: list[tuple[float, int]] = []
        found: int | None = None
        while self._heaviest:
            weight, pair = heapq.heappop(self._heaviest)
            if self._halves[pair] == 0:
                continue
            if -weight != self._weight[pair]:
                heapq.heappush(self._heaviest, (-float(self._weight[pair]), pair))
                continue
            passed_over.append((weight, pair))
            if self.lightest[self._ends[pair]].min() <= room:
                found = pair
                break
        for entry in passed_over:
            heapq.heappush(self._heaviest, entry)
        return found

    def heaviest_group(self, room: float) -> int | None:
        """The unassigned group of greatest load of which a task fits the room."""
        fitting = np.flatnonzero(self.lightest <= room)
        return int(fitting[np.argmax(self.group_load[fitting])]) if len(fitting) else None

    def task_pairs(self, pair: int) -> TaskPairs:
        """The pair's task pairs in the order in which a partition looks at them; some may be assigned by now."""
        if pair not in self._sorted:
            edges = slice(self._first_edge[pair], self._first_edge[pair + 1])
            entry, row = self._edges_of_pair[edges], self._row_of_edge[edges]
            neighbour, rate = self.graph.adjacency.neighbour[entry].astype(np.int64), self.graph.adjacency.weight[entry]
            order = np.lexsort((neighbour, row, -rate))
            self._sorted[pair] = TaskPairs(row[order], neighbour[order], rate[order])
        known = self._sorted[pair]
        if self._halves[pair] < len(known.rate):  # most have gone: forget them, at a cost paid by their going
            live = self.unassigned[known.first] & self.unassigned[known.second]
            self._sorted[pair] = TaskPairs(known.first[live], known.second[live], known.rate[live])
        return self._sorted[pair]

    def rates_between(self, task: int, group: int) -> tuple[Longs, Floats]:
        """Neighbours of a task in a group, ascending, and the rates to them."""
        adjacency = self.graph.adjacency
        begin, end = adjacency.start[task], adjacency.start[task + 1]
        neighbour = adjacency.neighbour[begin:end]
        inside = slice(*np.searchsorted(neighbour, self.graph.first_task[group : group + 2]))
        return neighbour[inside].astype(np.int64), adjacency.weight[begin:end][inside]

    def weight_between(self, tasks: Longs) -> float:
        """Sum of the rates among the tasks."""
        _, weight, _, among = self._edges_of(tasks)
        return float(weight[among].sum()) / 2

    def begin_subgraph(self, tasks: Longs) -> None:
        """Forget what the last sub-graph attracted and start from these tasks, which are already assigned."""
        self.strongest[:] = 0.0
        self.attraction[:] = 0.0
        self._group_attraction[:] = 0.0
        self._neighbours = []
        self._attract(*self._edges_of(tasks)[:2])

    def neighbours(self) -> Iterator[tuple[int, float]]:
        """Groups joined to the sub-graph and the sum of their edges into it, greatest first; follows assignments.

        A group that is not taken when it is offered is offered again when its attraction changes.
        """
        while self._neighbours:
            attraction, group = heapq.heappop(self._neighbours)
            if -attraction == self._group_attraction[group]:
                yield group, -attraction

    @property
    def has_neighbours(self) -> bool:
        """Whether any unassigned task talks to the sub-graph."""
        return bool((self._group_attraction > 0).any())

    def assign(self, tasks: Longs) -> None:
        """Take tasks out of their groups into the sub-graph."""
        self.unassigned[tasks] = False
        self.left -= len(tasks)
        neighbour, weight, pair, inside_twice = self._edges_of(tasks)
        self._weaken(pair, weight, inside_twice)
        for group in np.unique(self.group_of[tasks]).tolist():
            rest = self.tasks_of(group)
            self.group_load[group] = self.load[rest].sum()
            self.lightest[group] = self.load[rest].min() if len(rest) else np.inf
            self._set_attraction(group, float(self.attraction[rest].sum()))
        self._attract(neighbour[~inside_twice], weight[~inside_twice])

    def _edges_of(self, tasks: Longs) -> tuple[Longs, Floats, Longs, NDArray[np.bool_]]:
        """Edges from the tasks to unassigned ones, and those among the tasks, which appear twice and are flagged."""
        adjacency = self.graph.adjacency
        begin, end = adjacency.start[tasks], adjacency.start[tasks + 1]
        lengths = end - begin
        entry = np.repeat(begin - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
        neighbour = adjacency.neighbour[entry].astype(np.int64)
        self._marked[tasks] = True
        among = self._marked[neighbour]
        self._marked[tasks] = False
        relevant = self.unassigned[neighbour] | among
        entry = entry[relevant]
        return neighbour[relevant], adjacency.weight[entry], self._pair_of_entry[entry], among[relevant]

    def _weaken(self, pair: Longs, weight: Floats, inside_twice: NDArray[np.bool_]) -> None:
        """Take edges off their pairs; halves of an edge that appears twice make one."""
        halves = np.where(inside_twice, 1, 2)
        np.subtract.at(self._halves, pair, halves)
        np.subtract.at(self._weight, pair, weight * halves / 2)
        self._weight[pair[self._halves[pair] == 0]] = 0.0  # no edge left, so no residue of the sum either

    def _attract(self, neighbour: Longs, weight: Floats) -> None:
        if len(neighbour) == 0:
            return
        outside = self.unassigned[neighbour]
        neighbour, weight = neighbour[outside], weight[outside]
        np.maximum.at(self.strongest, neighbour, weight)
        np.add.at(self.attraction, neighbour, weight)
        groups, position = np.unique(self.group_of[neighbour], return_inverse=True)
        for group, gained in zip(groups.tolist(), np.bincount(position, weight).tolist(), strict=True):
            self._set_attraction(group, float(self._group_attraction[group]) + gained)

    def _set_attraction(self, group: int, attraction: float) -> None:
        self._group_attraction[group] = attraction
        if attraction > 0:
            heapq.heappush(self._neighbours, (-attraction, group))
