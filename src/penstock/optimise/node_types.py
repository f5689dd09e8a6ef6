"""Placement as a packing: node types, dense pair rates and what a set of tasks asks of a node.

Nodes with equal limits are one type, which takes away most of the symmetry that makes a task-by-node model hopeless.
The exact solver's two models (`configurations`, `columns`) both start from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.classes import Classes, classes_of
from penstock.optimise.contract import Problem

TOLERANCE = 1e-6  # relative: a bound this close below a cost proves it


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


def fits(problem: Problem, node: Ints) -> bool:
    """Whether a placement keeps every limit: capacity, memory, and bandwidth each way."""
    graph, count = problem.graph, problem.node_count
    crossing = node[graph.source] != node[graph.target]
    sent = np.bincount(node[graph.source[crossing]], graph.rate[crossing], minlength=count)
    received = np.bincount(node[graph.target[crossing]], graph.rate[crossing], minlength=count)
    return bool(
        np.all(np.bincount(node, graph.load, minlength=count) <= problem.capacity)
        and np.all(np.bincount(node, graph.memory_mb, minlength=count) <= problem.memory_mb)
        and np.all(sent <= problem.bandwidth)
        and np.all(received <= problem.bandwidth)
    )


def cost_step(problem: Problem) -> float:
    """A rate of which every placement's cost is a multiple, or 0 when there is none: bounds can be rounded up to it."""
    rate = problem.graph.rate
    if len(rate) == 0:
        return 0.0
    multiples = rate / rate.min()
    whole = np.all(multiples == np.rint(multiples)) and multiples.sum() < 1e6
    return float(rate.min()) if whole else 0.0


def is_proof(bound: float, cost: float) -> bool:
    """Whether the bound shows that nothing cheaper exists."""
    return bound >= cost - TOLERANCE * max(1.0, cost)


@dataclass(frozen=True, eq=False)
class DensePairs:
    """The task graph as dense matrices, in units in which the largest rate of a pair is 1 (solvers count in those)."""

    problem: Problem

    @cached_property
    def unit(self) -> float:
        """Rate that counts as 1."""
        weight = self.problem.graph.adjacency.weight
        return float(weight.max()) if len(weight) else 1.0

    @cached_property
    def outward(self) -> Floats:
        """Rate from row to column, in units."""
        graph = self.problem.graph
        matrix = np.zeros((graph.task_count, graph.task_count))
        matrix[graph.source, graph.target] = graph.rate / self.unit
        np.fill_diagonal(matrix, 0.0)
        return matrix

    @cached_property
    def weight(self) -> Floats:
        """Rate of a pair, both directions together, in units."""
        return self.outward + self.outward.T

    @cached_property
    def total(self) -> float:
        """All rates together, in units."""
        return float(self.outward.sum())

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
