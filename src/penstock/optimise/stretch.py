"""By how much the capacities of a cluster must grow before a problem's loads fit: two bounds, by arithmetic.

A job has cores to give, and loads that may say no more than how tasks compare. So its capacities are stretched, all by
one factor. Nothing fits below `least_stretch`; whatever the placement, everything fits at `surest_stretch`.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import compile_rules


def least_stretch(problem: Problem) -> float:
    """A factor below which no placement keeps the constraints and fits: of all loads, of each site, of forced ones."""
    rules, load, capacity = compile_rules(problem), problem.graph.load, _capacity(problem)
    count = int(rules.site.max()) + 1
    allowed = np.ones((count, problem.node_count), dtype=bool)
    np.logical_and.at(allowed, rules.site, rules.allowed)
    sites = np.bincount(rules.site, load, minlength=count)
    largest = np.where(allowed, capacity, 0.0).max(axis=1)
    forced = allowed.sum(axis=1) == 1
    on_node = (allowed[forced] * sites[forced, None]).sum(axis=0)
    possible = largest > 0  # a site without a node is a clash, which no stretch mends
    return max(
        float(load.sum() / capacity.sum()),
        float((sites[possible] / largest[possible]).max(initial=0.0)),
        float((on_node / capacity).max(initial=0.0)),
    )


def surest_stretch(problem: Problem) -> float:
    """A factor at which the smallest node could carry all tasks."""
    return float(problem.graph.load.sum() / _capacity(problem).min())


def _capacity(problem: Problem) -> Floats:
    """As the cluster states it: with the slack that the problem's limits contain, an exact fit would just not fit."""
    return np.array([node.capacity for node in problem.cluster.nodes])
