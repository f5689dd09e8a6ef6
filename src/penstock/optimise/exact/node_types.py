"""Placement as a packing: node types, dense pair rates and what a set of tasks asks of a node.

Nodes with equal limits are one type, which takes away most of the symmetry that makes a task-by-node model hopeless.
The exact solver's two models (`configurations`, `columns`) both start from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Problem
from penstock.optimise.exact.classes import Classes, classes_of
from penstock.optimise.exact.proof import Varying


@dataclass(frozen=True)
class NodeType:
    """Nodes with the same limits."""

    capacity: float
    memory_mb: float
    bandwidth: float
    nodes: tuple[int, ...]

    @property
    def limits(self) -> tuple[float, float, float]:
        """Capacity, memory and bandwidth."""
        return (self.capacity, self.memory_mb, self.bandwidth)


def node_types(problem: Problem) -> tuple[NodeType, ...]:
    """The cluster's node types, largest capacity first."""
    alike: dict[tuple[float, float, float], list[int]] = {}
    for k, limits in enumerate(zip(problem.capacity, problem.memory_mb, problem.bandwidth, strict=True)):
        alike.setdefault((float(limits[0]), float(limits[1]), float(limits[2])), []).append(k)
    return tuple(NodeType(*limits, tuple(nodes)) for limits, nodes in sorted(alike.items(), reverse=True))


@dataclass(frozen=True, eq=False)
class DensePairs:
    """The task graph as dense matrices, in units in which the largest rate of a pair is 1 (solvers count in those).

    Pairs that no node can hold together have no weight: they cross in every plan (`proof.Varying`).
    """

    varying: Varying

    @property
    def problem(self) -> Problem:
        """The problem."""
        return self.varying.problem

    @cached_property
    def unit(self) -> float:
        """Rate that counts as 1."""
        largest = float(self._between(self.varying.edges).max(initial=0.0))
        return largest if largest > 0 else 1.0

    @cached_property
    def outward(self) -> Floats:
        """Rate from row to column, in units, of all pairs: bandwidth counts them all."""
        graph = self.problem.graph
        matrix = np.zeros((graph.task_count, graph.task_count))
        matrix[graph.source, graph.target] = graph.rate / self.unit
        np.fill_diagonal(matrix, 0.0)
        return matrix

    @cached_property
    def weight(self) -> Floats:
        """Rate of a pair that can be together, both directions, in units."""
        return self._between(self.varying.edges) / self.unit

    @cached_property
    def total(self) -> float:
        """All varying rates together, in units."""
        return self.varying.total / self.unit

    @cached_property
    def class_weight(self) -> Floats:
        """Weight between one task of each class; tasks of one class never talk to each other."""
        first = np.array([tasks[0] for tasks in self.classes.members])
        matrix: Floats = self.weight[np.ix_(first, first)]
        np.fill_diagonal(matrix, 0.0)
        return matrix

    def kept_by(self, holds: Floats) -> Floats:
        """Traffic inside sets that are given as tasks per class, one row each."""
        kept: Floats = ((holds @ self.class_weight) * holds).sum(axis=1) / 2
        return kept

    def _between(self, edges: NDArray[np.bool_]) -> Floats:
        graph = self.problem.graph
        matrix = np.zeros((graph.task_count, graph.task_count))
        matrix[graph.source[edges], graph.target[edges]] = graph.rate[edges]
        return matrix + matrix.T

    @cached_property
    def resources(self) -> Floats:
        """Two rows: load and memory of each task."""
        return np.ascontiguousarray(np.vstack([self.problem.graph.load, self.problem.graph.memory_mb]))

    @cached_property
    def types(self) -> tuple[NodeType, ...]:
        """Node types with bandwidth in units."""
        return tuple(
            NodeType(t.capacity, t.memory_mb, t.bandwidth / self.unit, t.nodes) for t in node_types(self.problem)
        )

    @cached_property
    def classes(self) -> Classes:
        """Classes of interchangeable tasks."""
        return classes_of(self.problem.graph, directed=bool(np.any(np.isfinite(self.problem.bandwidth))))

    @cached_property
    def class_of(self) -> Ints:
        """The class of each task."""
        number = np.empty(self.problem.task_count, dtype=np.int32)
        for c, tasks in enumerate(self.classes.members):
            number[tasks] = c
        return number

    def kept(self, tasks: Ints) -> float:
        """Traffic inside a set of tasks."""
        return float(self.weight[np.ix_(tasks, tasks)].sum() / 2)

    def suits(self, tasks: Ints, node_type: NodeType) -> bool:
        """Whether a node of this type can carry the set alone."""
        load, memory = self.resources[:, tasks].sum(axis=1)
        if load > node_type.capacity or memory > node_type.memory_mb:
            return False
        if not np.isfinite(node_type.bandwidth):
            return True
        inside = self.outward[np.ix_(tasks, tasks)].sum()
        sent, received = self.outward[tasks].sum() - inside, self.outward[:, tasks].sum() - inside
        return bool(max(sent, received) <= node_type.bandwidth)
