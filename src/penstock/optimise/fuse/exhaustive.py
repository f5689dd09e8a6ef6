"""The exact model for small cases: every partition into workers on every choice of nodes.

Methods are measured against this model. It shares nothing with them but the names of tasks: sizes are summed from the
files' own words, and constraints are judged by the certificate. A worker of more than one task carries no more than its
node says that a worker does; tasks that a constraint holds together count as one. Up to about eight tasks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import Together
from penstock.model.plan import Slot
from penstock.model.task_id import TaskId, tasks_of_operator
from penstock.model.topology import OperatorGraph

TASKS_MAX = 9
SLACK = 1e-9


def least(
    graph: OperatorGraph,
    cluster: Cluster,
    objective: Callable[[float, float], float] = lambda _, communication: communication,
    stream_cost: float = 1.0,
) -> tuple[float, dict[str, Slot]] | None:
    """The least f(U, C) of all plans that keep every constraint and limit, with a plan; None when there is none."""
    tasks, load, memory, edges = _read(graph, stream_cost)
    if len(tasks) > TASKS_MAX:
        msg = f"the exhaustive model takes at most {TASKS_MAX} tasks; topology {graph.name!r} has {len(tasks)}"
        raise InvalidInput(msg)
    best: tuple[float, dict[str, Slot]] | None = None
    for part in _partitions(len(tasks)):
        workers = max(part) + 1
        cut = [(a, b, w) for a, b, w in edges if part[a] != part[b]]
        size = [0.0] * workers
        held = [0.0] * workers
        for t, w in enumerate(part):
            size[w] += load[t]
            held[w] += memory[t]
        for a, b, cost in cut:
            size[part[a]] += cost
            size[part[b]] += cost
        communication = 2 * math.fsum(w for _, _, w in cut)
        for host in itertools.product(range(len(cluster.nodes)), repeat=workers):
            used = _utilisation(cluster, host, size, held)
            if used > 1 + SLACK or (best is not None and objective(used, communication) >= best[0]):
                continue
            if not _carried(graph, cluster, host, tasks, part, size):
                continue
            plan = _assignment(cluster, tasks, part, host)
            if plan is not None and not constraint_violations(graph, plan):
                best = (objective(used, communication), plan)
    return best


def _read(
    graph: OperatorGraph, stream_cost: float
) -> tuple[list[str], list[float], list[float], list[tuple[int, int, float]]]:
    tasks = [task for o in graph.operators for task in tasks_of_operator(o.name, o.tasks)]
    number = {task: t for t, task in enumerate(tasks)}
    size = {o.name: o.tasks for o in graph.operators}
    edges = []
    for stream in graph.streams:
        for i, j in itertools.product(range(size[stream.source]), range(size[stream.target])):
            if stream.grouping == "forward" and i != j and not isinstance(stream.rate, tuple):
                continue  # from each task to its like alone
            rate = stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
            ends = number[TaskId.of(stream.source, i)], number[TaskId.of(stream.target, j)]
            edges.append((*ends, rate * stream_cost))
    load = [value for o in graph.operators for value in o.loads()]
    memory = [value for o in graph.operators for value in o.memories_mb()]
    return tasks, load, memory, edges


def _partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Every partition of `count` things once: a thing joins an earlier part or begins the next."""

    def grown(head: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(head) == count:
            yield head
            return
        for part in range(max(head, default=-1) + 2):
            yield from grown((*head, part))

    yield from grown(())


def _utilisation(cluster: Cluster, host: Sequence[int], size: Sequence[float], held: Sequence[float]) -> float:
    """How full the fullest node is; infinite where memory does not suffice."""
    used, memory = [0.0] * len(cluster.nodes), [0.0] * len(cluster.nodes)
    for w, k in enumerate(host):
        used[k] += size[w]
        memory[k] += held[w]
    for node, amount in zip(cluster.nodes, memory, strict=True):
        if node.memory_mb is not None and amount > node.memory_mb * (1 + SLACK):
            return math.inf
    return max(amount / node.capacity for node, amount in zip(cluster.nodes, used, strict=True))


def _carried(
    graph: OperatorGraph,
    cluster: Cluster,
    host: Sequence[int],
    tasks: Sequence[str],
    part: Sequence[int],
    size: Sequence[float],
) -> bool:
    """Whether every worker that could be divided is one that a worker of its node carries."""
    for w, k in enumerate(host):
        limit = cluster.nodes[k].worker_capacity
        inside = [task for task, worker in zip(tasks, part, strict=True) if worker == w]
        if limit is not None and size[w] > limit * (1 + SLACK) and not _is_one(graph, inside):
            return False
    return True


def _is_one(graph: OperatorGraph, inside: Sequence[str]) -> bool:
    """Whether colocations, each with the next, leave these tasks no way apart."""
    held = {inside[0]}
    for _ in inside:
        for constraint in graph.constraints:
            if isinstance(constraint, Together) and constraint.where == "worker":
                named = {
                    task for task in inside for name in constraint.operators if name in (task, TaskId(task).operator)
                }
                held |= named if named & held else set()
    return held == set(inside)


def _assignment(
    cluster: Cluster, tasks: Sequence[str], part: Sequence[int], host: Sequence[int]
) -> dict[str, Slot] | None:
    """The plan's slots; None where a node states fewer."""
    count = [0] * len(cluster.nodes)
    local = []
    for k in host:
        local.append(count[k])
        count[k] += 1
    if any(node.slots is not None and used > node.slots for node, used in zip(cluster.nodes, count, strict=True)):
        return None
    return {task: Slot(cluster.nodes[host[w]].name, local[w]) for task, w in zip(tasks, part, strict=True)}
