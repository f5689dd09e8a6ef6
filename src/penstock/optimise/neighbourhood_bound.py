"""A quick lower bound on any placement's cost: what each task cannot have beside it on the roomiest node.

A task on a node of capacity c keeps at most the traffic of the neighbours that fit into c less its own load, by a
fractional knapsack. What is left over must cross; every crossing is counted at both ends, so half the sum is a bound.
Weak beside column generation, but it takes milliseconds and has no limit on size.
"""

from __future__ import annotations

import numpy as np

from penstock.optimise.contract import Problem

SMALLEST_LOAD = 1e-12  # keeps rates per load finite


def neighbourhood_bound(problem: Problem) -> float:
    """A true lower bound on the cost of every placement."""
    adjacency, load = problem.graph.adjacency, problem.graph.load
    if len(adjacency.weight) == 0:
        return 0.0
    row = np.repeat(np.arange(problem.task_count), np.diff(adjacency.start))
    size = load[adjacency.neighbour]
    order = np.lexsort((-adjacency.weight / np.maximum(size, SMALLEST_LOAD), row))
    weight, size = adjacency.weight[order], size[order]
    # The rows are laid end to end, so each row's running load is a difference of one long running sum.
    running = np.concatenate([[0.0], np.cumsum(size)])
    before = running[:-1] - running[adjacency.start[row]]
    room = problem.capacity.max() * (1 + 1e-9) - load[row] - before
    part = np.clip(np.where(size > 0, room / np.maximum(size, SMALLEST_LOAD), 1.0), 0.0, 1.0)
    return float(max(0.0, (weight * (1.0 - part)).sum() / 2 * (1 - 1e-9)))
