"""`ffd`: Heron's first-fit decreasing packing, a peer that looks at needs and at no traffic.

Tasks by memory, then CPU, both descending, then by id; each goes to the first node that has room for both. It uses few
nodes and is what a packing that is blind to communication achieves.

From Heron: the order by memory and the search through containers in the order of their ids. Derived: Heron opens equal
containers as it goes, while our nodes are given and differ, so "container id" reads as the order of the cluster file;
CPU breaks ties of memory, which is the whole order where no memory is stated; Heron's padding of 10 % for its stream
manager is left out, because a node's capacity is usable as it stands.

O(t log t + t n) for t tasks and n nodes, the inner n in numpy. Raises NoPlanFound when a task fits nowhere.
"""

from __future__ import annotations

import numpy as np

from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.steps.room import Room


def schedule(problem: Problem, options: Options) -> Placement:
    """First fit in the order of the file, largest memory (then CPU) first."""
    room = Room(problem, "ffd")
    nodes = np.arange(problem.node_count)
    order = np.lexsort((np.arange(problem.task_count), -problem.graph.load, -problem.graph.memory_mb))
    for task in order.tolist():
        room.put_on_first(task, nodes)
    return Placement(node=room.node)
