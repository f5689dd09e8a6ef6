"""By how much the capacities of a cluster must grow before a problem's loads fit: two bounds, by arithmetic.

A job has cores to give, and loads that may say no more than how tasks compare. So its capacities are stretched, all by
one factor. Nothing fits below `least_stretch`; whatever the placement, everything fits at `surest_stretch`.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import compile_rules


def least_stretch(problem: Problem) -> float:
    """A factor below which no placement keeps the constraints and fits.

    It is the largest of those for all loads, for each site, for what must be on one node and for each block.
    """
    rules, load, capacity = compile_rules(problem), problem.graph.load, _capacity(problem)
    count = int(rules.site.max()) + 1
    allowed = np.ones((count, problem.node_count), dtype=bool)
    np.logical_and.at(allowed, rules.site, rules.allowed)
    sites = np.bincount(rules.site, load, minlength=count)
    largest = np.where(allowed, capacity, 0.0).max(axis=1)
    forced = allowed.sum(axis=1) == 1
    on_node = (allowed[forced] * sites[forced, None]).sum(axis=0)
    tasks, blocks = np.bincount(rules.block), np.bincount(rules.block, load)
    threads = problem.worker_capacity.max()
    possible = largest > 0  # a site without a node is a clash, which no stretch mends
    return max(
        float(load.sum() / capacity.sum()),
        float((sites[possible] / largest[possible]).max(initial=0.0)),
        float((on_node / capacity).max(initial=0.0)),
        float((blocks[tasks > 1] / threads).max(initial=0.0)),
    )


def surest_stretch(problem: Problem) -> float:
    """A factor at which the smallest worker, and so the smallest node, could carry all tasks."""
    smallest = min(_capacity(problem).min(), problem.worker_capacity.min())
    return float(problem.graph.load.sum() / smallest)


def fullest(problem: Problem, node: Ints, worker: Ints) -> float:
    """Load over capacity of the fullest node, or of the fullest worker with two tasks or more."""
    at_node = np.bincount(node, problem.graph.load, minlength=problem.node_count) / _capacity(problem)
    (nodes, _), seat = np.unique(np.stack([node, worker]), axis=1, return_inverse=True)
    tasks, load = np.bincount(seat.reshape(-1)), np.bincount(seat.reshape(-1), problem.graph.load)
    limit = np.array([np.inf if k.worker_capacity is None else k.worker_capacity for k in problem.cluster.nodes])
    at_worker = np.where(tasks > 1, load / limit[nodes], 0.0)
    return float(max(at_node.max(), at_worker.max(initial=0.0)))


def _capacity(problem: Problem) -> Floats:
    """As the cluster states it: with the slack that the problem's limits contain, an exact fit would just not fit."""
    return np.array([node.capacity for node in problem.cluster.nodes])
