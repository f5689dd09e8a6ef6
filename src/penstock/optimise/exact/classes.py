"""Interchangeable tasks: equal load, memory and neighbourhood, so that which of them goes where makes no difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Ints, TaskGraph


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of interchangeable tasks, and the rates between one task of each."""

    members: tuple[Ints, ...]
    load: Floats
    memory: Floats
    outward: Floats  # class by class: rate from one task to one task

    @property
    def counts(self) -> list[int]:
        """Tasks in each class."""
        return [len(tasks) for tasks in self.members]


def classes_of(graph: TaskGraph, directed: bool) -> Classes:
    """Classes of tasks; direction matters where bandwidth is limited."""
    adjacency = graph.adjacency
    alike: dict[tuple[float, float, bytes], list[int]] = {}
    for task in range(graph.task_count):
        row = slice(adjacency.start[task], adjacency.start[task + 1])
        around = adjacency.neighbour[row].tobytes() + adjacency.weight[row].tobytes()
        if directed:
            around += adjacency.outward[row].tobytes()
        alike.setdefault((float(graph.load[task]), float(graph.memory_mb[task]), around), []).append(task)
    members = tuple(np.array(tasks, dtype=np.int32) for tasks in alike.values())
    first = np.array([tasks[0] for tasks in members])
    number = np.full(graph.task_count, -1)
    number[first] = np.arange(len(first))
    outward = np.zeros((len(first), len(first)))
    between = (number[graph.source] >= 0) & (number[graph.target] >= 0)
    outward[number[graph.source[between]], number[graph.target[between]]] = graph.rate[between]
    np.fill_diagonal(outward, 0.0)
    return Classes(members, graph.load[first], graph.memory_mb[first], outward)
