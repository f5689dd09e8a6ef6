"""A quick lower bound on any placement's cost: what each task cannot have beside it on the roomiest node.

A task on a node of capacity c keeps at most the traffic of the neighbours that fit into c less its own load, by a
fractional knapsack. What is left over must cross; every crossing is counted at both ends, so half the sum is a bound.
Weak beside column generation, but it takes milliseconds and has no limit on size.
"""

from __future__ import annotations

import numpy as np

from penstock.optimise.exact.proof import Varying

SMALLEST_LOAD = 1e-12  # keeps rates per load finite


def neighbourhood_bound(varying: Varying) -> float:
    """A true lower bound on the varying cost of every placement."""
    problem = varying.problem
    graph, load = problem.graph, problem.graph.load
    source, target, rate = graph.source[varying.edges], graph.target[varying.edges], graph.rate[varying.edges]
    if len(rate) == 0:
        return 0.0
    n = problem.task_count
    key, at = np.unique(
        np.concatenate([source.astype(np.int64) * n + target, target.astype(np.int64) * n + source]),
        return_inverse=True,
    )
    weight = np.bincount(at.ravel(), np.concatenate([rate, rate]), minlength=len(key))
    row, size = key // n, load[key % n]
    order = np.lexsort((-weight / np.maximum(size, SMALLEST_LOAD), row))
    weight, size = weight[order], size[order]
    # The rows are laid end to end, so each row's running load is a difference of one long running sum.
    running = np.concatenate([[0.0], np.cumsum(size)])
    first = np.searchsorted(row, np.arange(n))
    before = running[:-1] - running[first[row]]
    room = problem.capacity.max() * (1 + 1e-9) - load[row] - before
    part = np.clip(np.where(size > 0, room / np.maximum(size, SMALLEST_LOAD), 1.0), 0.0, 1.0)
    return float(max(0.0, (weight * (1.0 - part)).sum() / 2 * (1 - 1e-9)))
