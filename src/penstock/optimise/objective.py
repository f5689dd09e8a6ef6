"""What a placement costs: traffic between nodes and between workers; how full the fullest node is; whether all fits."""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Problem


def node_cost(problem: Problem, node: Ints) -> float:
    """Sum of the rates between tasks on different nodes (paper 000, formula 1)."""
    graph = problem.graph
    return float(graph.rate[node[graph.source] != node[graph.target]].sum())


def worker_cost(problem: Problem, node: Ints, worker: Ints) -> float:
    """Sum of the rates between tasks on the same node but in different workers."""
    graph = problem.graph
    same_node = node[graph.source] == node[graph.target]
    return float(graph.rate[same_node & (worker[graph.source] != worker[graph.target])].sum())


def max_utilisation(problem: Problem, node: Ints) -> float:
    """Load over capacity on the fullest node."""
    load = np.bincount(node, problem.graph.load, minlength=problem.node_count)
    capacity = np.array([n.capacity for n in problem.cluster.nodes])
    return float((load / capacity).max())


def overfull(problem: Problem, node: Ints) -> list[int]:
    """Nodes whose CPU or memory limit the placement exceeds."""
    load = np.bincount(node, problem.graph.load, minlength=problem.node_count)
    memory = np.bincount(node, problem.graph.memory_mb, minlength=problem.node_count)
    return np.flatnonzero((load > problem.capacity) | (memory > problem.memory_mb)).tolist()


def is_feasible(problem: Problem, node: Ints) -> bool:
    """Whether no node carries, holds, sends or receives more than it can, by sums that share nothing with the core."""
    graph, count = problem.graph, problem.node_count
    if (np.bincount(node, graph.load, minlength=count) > problem.capacity).any():
        return False
    if (np.bincount(node, graph.memory_mb, minlength=count) > problem.memory_mb).any():
        return False
    if not np.isfinite(problem.bandwidth).any():
        return True
    crossing = node[graph.source] != node[graph.target]
    rate = graph.rate[crossing]
    sent = np.bincount(node[graph.source[crossing]], rate, minlength=count)
    received = np.bincount(node[graph.target[crossing]], rate, minlength=count)
    return not ((sent > problem.bandwidth) | (received > problem.bandwidth)).any()
