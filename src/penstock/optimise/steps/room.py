"""Room: what is left of every node's CPU and memory while a scheduler hands out tasks one at a time.

rstorm, ras and ffd differ in the order of tasks and nodes, not in what fits; this is the part that they share. Amounts
used are kept instead of amounts left, so that limits which contain the slack are compared as the contract says.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.contract import Problem


class Room:
    """CPU and memory of each node, used so far and in all; `node` is the growing placement, -1 where undecided."""

    def __init__(self, problem: Problem, scheduler: str) -> None:
        self._problem = problem
        self._scheduler = scheduler
        self._cpu_used = np.zeros(problem.node_count)
        self._memory_used = np.zeros(problem.node_count)
        self._cpu_total = np.array([node.capacity for node in problem.cluster.nodes], dtype=np.float64)
        self._memory_total = np.array(
            [np.inf if node.memory_mb is None else node.memory_mb for node in problem.cluster.nodes]
        )
        self.node = np.full(problem.task_count, -1, dtype=np.int32)

    @property
    def cpu_free(self) -> Floats:
        """CPU left on each node, never below 0."""
        return np.maximum(0.0, self._cpu_total - self._cpu_used)

    @property
    def memory_free(self) -> Floats:
        """Memory left on each node in MB, infinite where it is unlimited, never below 0."""
        return np.maximum(0.0, self._memory_total - self._memory_used)

    def fits(self, task: int) -> NDArray[np.bool_]:
        """Whether each node has the CPU and the memory for the task."""
        graph = self._problem.graph
        enough_cpu: NDArray[np.bool_] = self._cpu_used + graph.load[task] <= self._problem.capacity
        enough_memory: NDArray[np.bool_] = self._memory_used + graph.memory_mb[task] <= self._problem.memory_mb
        return enough_cpu & enough_memory

    def put(self, task: int, node: int) -> None:
        """Place the task and take its needs from the node."""
        graph = self._problem.graph
        self.node[task] = node
        self._cpu_used[node] += graph.load[task]
        self._memory_used[node] += graph.memory_mb[task]

    def put_on_first(self, task: int, nodes: Longs) -> None:
        """Place the task on the first of the nodes, in their order, that has room; NoPlanFound when none has."""
        fits = self.fits(task)[nodes]
        first = int(np.argmax(fits))
        if not fits[first]:
            raise self.no_room(task)
        self.put(task, int(nodes[first]))

    def no_room(self, task: int) -> NoPlanFound:
        """The error for a task that fits nowhere: its needs, and the best room that is left."""
        graph, names = self._problem.graph, [node.name for node in self._problem.cluster.nodes]
        cpu, memory = int(np.argmax(self.cpu_free)), int(np.argmax(self.memory_free))
        placed = int((self.node >= 0).sum())
        needs, left = f"load {graph.load[task]:g}", f"load {self.cpu_free[cpu]:g} on {names[cpu]!r}"
        if np.isfinite(self._memory_total).any():
            needs += f" and {graph.memory_mb[task]:g} MB"
            left += f" and {self.memory_free[memory]:g} MB on {names[memory]!r}"
        return NoPlanFound(
            f"scheduler {self._scheduler!r} found no node for task {graph.ids[task]!r}: it needs {needs}, and after "
            f"{placed} of {graph.task_count} tasks the most that is left is {left}; try --scheduler best, or add nodes"
        )
