"""Rules: the constraints of a topology compiled to arrays over tasks, so that a check is a comparison of labels.

Every separation has one form, a row of labels: two tasks with different labels (-1 is no label) may not share a worker,
or a node. `separate-*` labels its names; `dedicated-*` labels its own tasks 0 and all others 1; `replicas` labels
groups, and for workers also everything outside them. Colocations become classes: a *block* shares a worker, a *site*
shares a node. A pin allows one node; tasks that are pinned to one worker are a block with its number (`pinned`) and a
label that keeps the others off. Isomorphic replicas become mirrors (a row of tasks for each group, position by
position), and what binds or parts two positions in one group binds or parts them in all. Rejected: pairs of tasks, as
the paper writes them, which are quadratic as soon as an operator has many tasks or is dedicated.

A constraint that no plan at all can keep (the same task on both sides of a separation) has no arrays; it is in
`impossible`, with the reason. Isomorphic replicas of unequal shape do not get here: the topology refuses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.constraints import Apart, Constraint, Dedicated, Jobs, Pin, Replicas, Resource, Together, names_in
from penstock.model.task_id import TaskId
from penstock.model.taskgraph import Longs, TaskGraph
from penstock.optimise.contract import Problem

Flags = NDArray[np.bool_]
ROUNDS_MAX = 1_000  # of closing blocks over mirrors; each round joins at least two blocks


@dataclass(frozen=True, eq=False)
class Rules:
    """What the constraints demand, over tasks."""

    allowed: Flags  # (tasks, nodes)
    worker_label: Longs  # (rows, tasks)
    node_label: Longs  # (rows, tasks)
    block: Longs  # tasks of one block share a worker
    site: Longs  # tasks of one site share a node
    named: Flags  # tasks that some constraint names
    pinned: Longs  # the number of the worker on its node that a task is pinned to, or -1
    mirrors: tuple[Longs, ...]  # each (groups, positions): task numbers
    impossible: tuple[tuple[int, str], ...]  # constraints that cannot hold, with the reason


class Classes:
    """Disjoint sets over numbers, each known by its smallest member."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, a: int) -> int:
        """The smallest member of a's class."""
        while self.parent[a] != a:
            self.parent[a] = self.parent[self.parent[a]]
            a = self.parent[a]
        return a

    def join(self, a: int, b: int) -> bool:
        """Make one class of two; false when they are one already."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return False
        self.parent[max(a, b)] = min(a, b)
        return True

    def join_all(self, members: Sequence[int]) -> None:
        """Make one class of all of them."""
        for a, b in itertools.pairwise(members):
            self.join(a, b)

    def labels(self) -> Longs:
        """Class numbers without gaps."""
        roots = [self.find(a) for a in range(len(self.parent))]
        return np.unique(roots, return_inverse=True)[1].astype(np.int64)


@dataclass(eq=False)
class _Compiling:
    """Rows and classes as they gather."""

    problem: Problem
    blocks: Classes
    sites: Classes
    allowed: Flags
    worker_rows: list[Longs]
    node_rows: list[Longs]
    mirrors: list[Longs]
    impossible: list[tuple[int, str]]
    pins: dict[int, tuple[str, int]]  # the worker that a task is pinned to

    def tasks(self, name: str) -> list[int]:
        return task_numbers(self.problem.graph, name)


def task_numbers(graph: TaskGraph, name: str) -> list[int]:
    """Task numbers behind a name, which is an operator or a task and exists."""
    if name in graph.operators:
        k = graph.operators.index(name)
        return list(range(int(graph.first_task[k]), int(graph.first_task[k + 1])))
    task = TaskId(name)
    return [int(graph.first_task[graph.operators.index(task.operator)]) + task.number]


def compile_rules(problem: Problem, constraints: Sequence[Constraint] | None = None) -> Rules:
    """The rules of a problem's constraints, or of some of them."""
    given = problem.constraints if constraints is None else constraints
    n = problem.task_count
    work = _Compiling(problem, Classes(n), Classes(n), np.ones((n, problem.node_count), dtype=bool), [], [], [], [], {})
    named = np.zeros(n, dtype=bool)
    for position, constraint in enumerate(given):
        for name in names_in(constraint):
            named[work.tasks(name)] = True
        _add(work, position, constraint)
    pinned = _pinned(work)
    _close_over_mirrors(work)
    for t in range(n):
        work.sites.join(t, work.blocks.find(t))
    return Rules(
        allowed=work.allowed,
        worker_label=_stacked([*work.worker_rows, *_mirrored_rows(work)], n),
        node_label=_stacked(work.node_rows, n),
        block=work.blocks.labels(),
        site=work.sites.labels(),
        named=named,
        pinned=pinned,
        mirrors=tuple(work.mirrors),
        impossible=tuple(work.impossible),
    )


def _stacked(rows: list[Longs], n: int) -> Longs:
    return np.array(rows, dtype=np.int64).reshape(len(rows), n)


def _add(work: _Compiling, position: int, constraint: Constraint) -> None:
    n, cluster = work.problem.task_count, work.problem.cluster
    match constraint:
        case Resource(operator=name, nodes=nodes):
            work.allowed[work.tasks(name)] &= np.array([node.name in nodes for node in cluster.nodes])
        case Together(where=where, operators=names):
            classes = work.blocks if where == "worker" else work.sites
            classes.join_all([t for name in names for t in work.tasks(name)])
        case Apart(where=where, operators=names):
            row = _labelled(work, position, [work.tasks(name) for name in names], names)
            if row is not None:
                (work.worker_rows if where == "worker" else work.node_rows).append(row)
        case Dedicated(where=where, operator=name):
            row = np.ones(n, dtype=np.int64)
            row[work.tasks(name)] = 0
            (work.worker_rows if where == "worker" else work.node_rows).append(row)
        case Pin(operator=name, node=node):
            work.allowed[work.tasks(name)] &= np.array([other.name == node for other in cluster.nodes])
            _add_pin(work, position, constraint)
        case Replicas():
            _add_replicas(work, position, constraint)
        case Jobs(groups=groups):
            sides = [[t for name in group for t in work.tasks(name)] for group in groups]
            row = _labelled(work, position, sides, [f"job {g}" for g in range(len(groups))])
            if row is not None:
                work.worker_rows.append(row)


def _add_pin(work: _Compiling, position: int, pin: Pin) -> None:
    for t in work.tasks(pin.operator):
        node, worker = work.pins.setdefault(t, (pin.node, pin.worker))
        if (node, worker) != (pin.node, pin.worker):
            task = work.problem.graph.ids[t]
            reason = (
                f"{task!r} would have to be in worker {worker} of {node!r} and in worker {pin.worker} of {pin.node!r}"
            )
            work.impossible.append((position, reason))


def _pinned(work: _Compiling) -> Longs:
    """The worker number of every pinned task; tasks of one worker become a block, those of two are labelled apart."""
    n = work.problem.task_count
    number, row = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    first: dict[tuple[str, int], int] = {}
    for t, place in work.pins.items():
        work.blocks.join(t, first.setdefault(place, t))
        number[t], row[t] = place[1], first[place]
    if work.pins:
        work.worker_rows.append(row)
    return number


def _labelled(work: _Compiling, position: int, sides: list[list[int]], names: Sequence[str]) -> Longs | None:
    """A row with a label for each side, or None when a task is on two sides."""
    row = np.full(work.problem.task_count, -1, dtype=np.int64)
    for label, tasks in enumerate(sides):
        for t in tasks:
            if row[t] >= 0:
                task = work.problem.graph.ids[t]
                reason = f"{task!r} would have to be apart from itself: it is in {names[row[t]]} and in {names[label]}"
                work.impossible.append((position, reason))
                return None
            row[t] = label
    return row


def _add_replicas(work: _Compiling, position: int, constraint: Replicas) -> None:
    members = [[t for name in group for t in work.tasks(name)] for group in constraint.groups]
    row = _labelled(work, position, members, [f"group {g}" for g in range(len(members))])
    if row is None:
        return
    work.node_rows.append(row)
    work.worker_rows.append(np.where(row < 0, len(members), row))
    if constraint.isomorphic:  # a sound topology's groups have one shape
        work.mirrors.append(np.array(members, dtype=np.int64))


def _close_over_mirrors(work: _Compiling) -> None:
    """Join positions in every group that are joined in one, until nothing changes."""
    for _ in range(ROUNDS_MAX):
        joined = False
        for mirror in work.mirrors:
            for group in mirror.tolist():
                first: dict[int, int] = {}
                for p, t in enumerate(group):
                    q = first.setdefault(work.blocks.find(t), p)
                    if q != p:
                        for other in mirror.tolist():
                            joined |= work.blocks.join(other[p], other[q])
        if not joined:
            return


def _mirrored_rows(work: _Compiling) -> list[Longs]:
    """Worker rows that part in every group what is parted in one."""
    rows: list[Longs] = []
    for mirror in work.mirrors:
        for row in (*work.worker_rows, *work.node_rows):
            for group in mirror:
                if len(np.unique(row[group][row[group] >= 0])) > 1:
                    image = np.full(work.problem.task_count, -1, dtype=np.int64)
                    image[mirror] = row[group]
                    rows.append(image)
    return rows
