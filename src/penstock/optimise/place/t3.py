"""`t3`: T3-Scheduler, exactly as published (paper 000: Eskandari, Mair, Huang, Eyers, FGCS 89, 2018, section 4).

Nodes are filled one after the other, the largest first (4.3). A node starts from the heaviest pair of groups in the
simplified graph (4.2, 4.4.1) and grows by the neighbouring group with the greatest sum of edges into what it holds.
A pair that is too large for the node is partitioned by its heaviest task pairs (4.4.2), a single group by the tasks
with the highest rates into the node (4.4.3). The second level, w = ceil(t / T) workers by k-way partition (4.5), is
`workers.split_by_kway`. Appendices A, B and C are tests, step by step: `first_level` can record a trace of `Step`s.

What the paper leaves open is decided in docs/decisions/0034-published-schedulers.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.steps.simplified_graph import SimplifiedGraph
from penstock.optimise.steps.task_pairs import partition_pair

TASKS_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of the first level.

    what            tasks                           weight
    node            -                               the room of the node selected
    start           both groups of the pair         sum of the rates between them
    scenario 1, 2   the task pair                   its rate
    alone           the single new task             its rate
    partition       the tasks of it that fit        rates between them, or of a group's into the sub-graph
    lone            the group                       its load
    neighbour       the group                       sum of its edges into the sub-graph
    full            every task on the node          the room left
    """

    what: str
    node: int
    tasks: tuple[int, ...]
    weight: float


def schedule(problem: Problem, options: Options) -> Placement:
    """First level here; the second is the k-way split of every node's tasks."""
    problem.require_plausible()
    node, revisited = first_level(problem, options.seed)
    notes = ("every node was filled once and tasks were left over; nodes with room were selected again",)
    return Placement(node=node, notes=notes if revisited else ())


def first_level(problem: Problem, seed: int, trace: list[Step] | None = None) -> tuple[Ints, bool]:
    """Node of each task, and whether nodes had to be selected twice."""
    filling = _Filling(problem, trace)
    for node in _nodes_by(problem.capacity, seed):
        if filling.groups.left == 0:
            break
        filling.fill(node)
    revisited = filling.groups.left > 0
    if revisited:
        for node in _nodes_by(filling.room, seed):
            filling.fill(node)
    _require_complete(problem, filling)
    return filling.node, revisited


def _nodes_by(room: Floats, seed: int) -> list[int]:
    """Nodes with the greatest room first; equals in the order of the file for seed 0, else shuffled by the seed."""
    count = len(room)
    rank = np.arange(count) if seed == 0 else np.random.default_rng(seed).permutation(count)
    order: list[int] = np.lexsort((rank, -room)).tolist()
    return order


class _Filling:
    """The state of the first level: groups not yet assigned, room on the nodes, and where tasks went."""

    def __init__(self, problem: Problem, trace: list[Step] | None) -> None:
        self.groups = SimplifiedGraph(problem.graph)
        self.room = problem.capacity.copy()
        self.node: Ints = np.full(problem.task_count, -1, dtype=np.int32)
        self.trace = trace

    def fill(self, node: int) -> None:
        """Grow a sub-graph on the node until it is full or nothing is left (Algorithm 1, FIRST_LEVEL)."""
        groups = self.groups
        held = np.flatnonzero(self.node == node)
        groups.begin_subgraph(held)
        self._record("node", node, (), float(self.room[node]))
        while groups.left:
            chosen, has_neighbours = self._neighbour(node)
            if chosen is None and (len(held) or not has_neighbours):
                chosen = self._starting_point(node)
            if chosen is None:
                break
            self.room[node] -= groups.load[chosen].sum()
            self.node[chosen] = node
            groups.assign(chosen)
        if self.trace is not None:
            self._record("full", node, np.flatnonzero(self.node == node), float(self.room[node]))

    def _starting_point(self, node: int) -> Longs | None:
        """The heaviest group pair, or what of it fits; without a pair the heaviest group (Algorithm 2, n is empty)."""
        groups, room = self.groups, float(self.room[node])
        pair = groups.heaviest_pair(room)
        if pair is None:
            return self._lone_group(node)
        a, b = groups.ends(pair)
        both = np.concatenate([groups.tasks_of(a), groups.tasks_of(b)])
        self._record("start", node, both, groups.weight(pair))
        if groups.load[both].sum() <= room:
            return both
        picks = partition_pair(groups, pair, room)
        chosen = np.array([task for pick in picks for task in pick.tasks], dtype=np.int64)
        if self.trace is not None:
            for pick in picks:
                self._record(pick.how, node, pick.tasks, pick.rate)
            self._record("partition", node, chosen, groups.weight_between(chosen))
        return chosen

    def _lone_group(self, node: int) -> Longs | None:
        groups, room = self.groups, float(self.room[node])
        group = groups.heaviest_group(room)
        if group is None:
            return None
        tasks = groups.tasks_of(group)
        self._record("lone", node, tasks, float(groups.group_load[group]))
        if groups.group_load[group] <= room:
            return tasks
        chosen = _first_fit(tasks[np.argsort(-groups.load[tasks], kind="stable")], groups.load, room)
        self._record("partition", node, chosen, 0.0)
        return chosen

    def _neighbour(self, node: int) -> tuple[Longs | None, bool]:
        """The most attracted group of which something fits, or what of it fits; and whether there was any neighbour."""
        groups, room = self.groups, float(self.room[node])
        has_neighbours = False
        for group, attraction in groups.neighbours():
            has_neighbours = True
            if groups.lightest[group] > room:
                continue
            tasks = groups.tasks_of(group)
            if groups.group_load[group] <= room:
                self._record("neighbour", node, tasks, attraction)
                return tasks, True
            connected = tasks[groups.strongest[tasks] > 0]
            in_order = connected[np.argsort(-groups.strongest[connected], kind="stable")]
            chosen = _first_fit(in_order, groups.load, room)
            if len(chosen):
                self._record("neighbour", node, tasks, attraction)
                self._record("partition", node, chosen, float(groups.attraction[chosen].sum()))
                return chosen, True
        return None, has_neighbours or groups.has_neighbours

    def _record(self, what: str, node: int, tasks: Longs | tuple[int, ...], weight: float) -> None:
        if self.trace is not None:
            self.trace.append(Step(what, node, tuple(int(task) for task in tasks), weight))


def _first_fit(in_order: Longs, load: Floats, room: float) -> Longs:
    """Tasks in that order, each if it still fits, in the order chosen."""
    chosen: list[int] = []
    for task, weight in zip(in_order.tolist(), load[in_order].tolist(), strict=True):
        if weight <= room:
            chosen.append(task)
            room -= weight
    return np.array(chosen, dtype=np.int64)


def _require_complete(problem: Problem, filling: _Filling) -> None:
    left = np.flatnonzero(filling.node < 0)
    if len(left) == 0:
        return
    ids = problem.graph.ids
    named = ", ".join(repr(ids[task]) for task in left[:TASKS_NAMED_MAX].tolist())
    more = f" and {len(left) - TASKS_NAMED_MAX} more" if len(left) > TASKS_NAMED_MAX else ""
    smallest = float(problem.graph.load[left].min())
    msg = (
        f"t3 filled every node and {len(left)} tasks of load {problem.graph.load[left].sum():g} are left over "
        f"({named}{more}): the emptiest node has room for {filling.room.max():g} but the lightest of them needs "
        f"{smallest:g}; add a node, or try --scheduler best"
    )
    raise NoPlanFound(msg)
