"""`rstorm`: R-Storm (Peng et al., Middleware 2015, algorithms 1 to 4), nearest node in resources and network.

Components come by breadth-first search from every source over both directions, tasks round by round: the first task of
every component, then the second of every component that has one. Each task goes to the nearest node that has room,

    distance = sqrt(((cpu - free_cpu) / free_cpu)^2 + ((memory - free_memory) / free_memory)^2 + net^2)

with net 0 on the node of the task before, 0.5 in its rack and 1 elsewhere. Workers are then split by k-way partition.

O(t n) for t tasks and n nodes, the inner n in numpy. Raises NoPlanFound when a task fits on no node. What is derived,
because the paper assumes that every node states both resources, is in docs/decisions/0034-published-schedulers.md.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats, Longs, TaskGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.steps.operator_pairs import OperatorLinks
from penstock.optimise.steps.room import Room

SAME_NODE, SAME_RACK, OTHER_RACK = 0.0, 0.5, 1.0


def task_order(graph: TaskGraph) -> list[int]:
    """Tasks round by round over the components in breadth-first order."""
    rank = np.empty(len(graph.operators), dtype=np.int64)
    rank[OperatorLinks.of(graph).breadth_first()] = np.arange(len(graph.operators))
    turn = np.arange(graph.task_count) - graph.first_task[graph.operator_of]
    order: list[int] = np.lexsort((rank[graph.operator_of], turn)).tolist()
    return order


def distances(load: float, memory_mb: float, cpu_free: Floats, memory_free: Floats, network: Floats) -> Floats:
    """R-Storm's distance of a task from each node."""
    squares = _relative(load, cpu_free) ** 2 + _relative(memory_mb, memory_free) ** 2 + network**2
    return np.sqrt(squares)


def _relative(need: float, free: Floats) -> Floats:
    """(need - free) / free with its limits: -1 where free is infinite, 0 where nothing is free."""
    some = (free > 0) & np.isfinite(free)
    ratio = np.where(some, (need - free) / np.where(some, free, 1.0), 0.0) if some.any() else np.zeros_like(free)
    ratio[np.isinf(free)] = -1.0
    return ratio


def richest_rack(problem: Problem, rack: Longs) -> int:
    """The rack with most free CPU + memory, before anything is placed; the first of equals."""
    amount = np.array([node.capacity for node in problem.cluster.nodes])
    if np.isfinite(problem.memory_mb).all():
        amount = amount + problem.memory_mb
    return int(np.argmax(np.bincount(rack, amount)))


def schedule(problem: Problem, options: Options) -> Placement:
    """Nearest node with room, task by task."""
    graph = problem.graph
    numbers: dict[str, int] = {}
    rack = np.array([numbers.setdefault(node.rack, len(numbers)) for node in problem.cluster.nodes], dtype=np.int64)
    room = Room(problem, "rstorm")
    before = -1
    for task in task_order(graph):
        candidates = room.fits(task)
        if not candidates.any():
            raise room.no_room(task)
        if before < 0:
            network = np.zeros(problem.node_count)
            inside = candidates & (rack == richest_rack(problem, rack))
            candidates = inside if inside.any() else candidates
        else:
            network = np.where(rack == rack[before], SAME_RACK, OTHER_RACK)
            network[before] = SAME_NODE
        far = distances(float(graph.load[task]), float(graph.memory_mb[task]), room.cpu_free, room.memory_free, network)
        before = int(np.argmin(np.where(candidates, far, np.inf)))
        room.put(task, before)
    return Placement(node=room.node)
