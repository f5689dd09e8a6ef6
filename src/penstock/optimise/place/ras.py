"""`ras`: R-Storm as Storm 1.1.1 ships it (resource-aware scheduler), which the Otago papers most likely measured.

Components by conn(c), the sum over neighbours nb of |c| * |nb|, descending, then name. For each component in turn: one
task of it, then one of each neighbour (most connections first, then name), again and again until all of these are
placed. Racks, and nodes inside each, are ordered once, before anything is placed, by (tasks of this topology there
descending, the scarcer of its shares of free CPU and memory descending, the mean of the two descending, name); a share
is of the cluster for a rack and of the rack for a node. Each task goes to the first node that has room for it.

O(t n + c log c) for t tasks, n nodes and c components, the inner n in numpy. Raises NoPlanFound when a task fits on no
node. What is Storm's and what is derived: docs/decisions/0034-published-schedulers.md.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Longs, TaskGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.steps.operator_pairs import OperatorLinks
from penstock.optimise.steps.room import Room


def task_order(graph: TaskGraph) -> list[int]:
    """Tasks in the order in which Storm places them."""
    links = OperatorLinks.of(graph)
    size = np.diff(graph.first_task).tolist()
    left = [
        list(range(first + count - 1, first - 1, -1))
        for first, count in zip(graph.first_task[:-1].tolist(), size, strict=True)
    ]

    def by_connections(operators: list[int], connections: list[int]) -> list[int]:
        return [
            k for _, _, k in sorted((-c, graph.operators[k], k) for k, c in zip(operators, connections, strict=True))
        ]

    everyone = list(range(len(size)))
    total = [size[k] * sum(size[nb] for nb in links.neighbours(k)) for k in everyone]
    order: list[int] = []
    for k in by_connections(everyone, total):
        near = links.neighbours(k)
        turns = [k, *by_connections(near, [size[k] * size[nb] for nb in near])]
        while turns := [operator for operator in turns if left[operator]]:
            order += [left[operator].pop() for operator in turns]
    return order


def node_order(problem: Problem) -> Longs:
    """Nodes in the order in which every task tries them: rack by rack."""
    nodes = problem.cluster.nodes
    members: dict[str, list[int]] = {}
    for k, node in enumerate(nodes):
        members.setdefault(node.rack, []).append(k)
    cpu = np.array([node.capacity for node in nodes])
    memory = problem.memory_mb if np.isfinite(problem.memory_mb).all() else cpu
    racks = list(members)
    of_rack = _ranked(
        [float(cpu[members[rack]].sum()) for rack in racks],
        [float(memory[members[rack]].sum()) for rack in racks],
        racks,
    )
    order: list[int] = []
    for rack in (racks[r] for r in of_rack):
        inside = members[rack]
        ranks = _ranked(cpu[inside].tolist(), memory[inside].tolist(), [nodes[k].name for k in inside])
        order += [inside[r] for r in ranks]
    return np.array(order, dtype=np.int64)


def _ranked(cpu: list[float], memory: list[float], names: list[str]) -> list[int]:
    """Positions by the scarcer share, then the mean share, both descending, then name."""
    cpu_all, memory_all = sum(cpu), sum(memory)
    shares = [(c / cpu_all, m / memory_all) for c, m in zip(cpu, memory, strict=True)]
    return sorted(range(len(names)), key=lambda i: (-min(shares[i]), -sum(shares[i]), names[i]))


def schedule(problem: Problem, options: Options) -> Placement:
    """First node with room, in Storm's order of tasks and nodes."""
    room = Room(problem, "ras")
    nodes = node_order(problem)
    for task in task_order(problem.graph):
        room.put_on_first(task, nodes)
    return Placement(node=room.node)
