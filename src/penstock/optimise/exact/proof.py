"""What a proof of optimality is measured on: the part of the cost that plans can change, its step, and contraction.

A bound proves a plan when it comes closer to the plan's cost than another plan could. Measured against the whole cost
that is a trap: one pair at 1e8 that no node can hold together makes 1e-6 of the cost larger than everything that a plan
decides. So costs here leave out what every plan pays (`Varying`), and where rates are whole multiples of a step, bounds
are rounded up to it, which makes a proof exact. Without a step a proof means: no plan is cheaper by a millionth of
the varying cost, nor by a hundredth of the smallest rate, whichever is less.

A solver resolves differences in proportion to its largest number. A pair that carries more than the best known plan
costs is together in every better plan, so it is fused into one task (`contracted`), which takes the heavy rates out of
the numbers. Rejected: scaling by the smallest rate, which moves the trouble to the constraint side of the solver.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Problem

PROOF_OF_COST = 1e-6  # without a step: of the varying cost
PROOF_OF_RATE = 1e-2  # without a step: of the smallest rate that varies
ROUNDING = 1e-12  # of all varying rates: what sums in floating point may be off, with much to spare
STEP_TOLERANCE = 1e-5  # of the step, by which a bound must exceed a possible cost before it counts as above it
WHOLE_MAX = 2.0**50  # whole numbers up to here, and their sums, are exact
FRACTION_BITS = 20  # rates with at most these binary places have an exact step
CONTRACTIONS_MAX = 100


@dataclass(frozen=True, eq=False)
class Varying:
    """The cost without what every plan pays: pairs that no node can hold together always cross."""

    problem: Problem

    @cached_property
    def edges(self) -> NDArray[np.bool_]:
        """Edges whose two tasks some node could hold together."""
        graph = self.problem.graph
        load = graph.load[graph.source] + graph.load[graph.target]
        memory = graph.memory_mb[graph.source] + graph.memory_mb[graph.target]
        held = np.zeros(len(load), dtype=bool)
        for capacity, memory_mb in set(
            zip(self.problem.capacity.tolist(), self.problem.memory_mb.tolist(), strict=True)
        ):
            held |= (load <= capacity) & (memory <= memory_mb)
        open_edges: NDArray[np.bool_] = held & (graph.source != graph.target)
        return open_edges

    @cached_property
    def fixed(self) -> float:
        """What every plan pays."""
        graph = self.problem.graph
        return float(graph.rate[~self.edges & (graph.source != graph.target)].sum())

    @cached_property
    def total(self) -> float:
        """The varying cost when every task is alone."""
        return float(self.problem.graph.rate[self.edges].sum())

    @cached_property
    def step(self) -> float:
        """A rate of which every varying cost is a multiple, or 0 when there is none."""
        return common_step(self.problem.graph.rate[self.edges])

    @property
    def rounding(self) -> float:
        """What a sum of varying rates may be off."""
        return ROUNDING * self.total

    def cost(self, node: Ints) -> float:
        """The varying cost of a placement."""
        graph = self.problem.graph
        return float(graph.rate[self.edges & (node[graph.source] != node[graph.target])].sum())

    def rounded_up(self, bound: float) -> float:
        """The least possible cost that is not below the bound."""
        if self.step <= 0 or not math.isfinite(bound):
            return bound
        return math.ceil(bound / self.step - STEP_TOLERANCE) * self.step

    def tolerance(self, cost: float) -> float:
        """How far below this cost a bound may lie and still prove it."""
        if self.step > 0:
            return self.step / 2
        rate = self.problem.graph.rate[self.edges]
        smallest = float(rate.min()) if len(rate) else 0.0
        return min(PROOF_OF_COST * cost, PROOF_OF_RATE * smallest)

    def to_beat(self, cost: float) -> float:
        """A cost that every better plan stays below by some margin, and no better plan comes up to."""
        if math.isinf(cost):
            return cost
        if self.step <= 0:
            return cost - self.tolerance(cost) / 2
        margin = min(0.5, max(1e-3, 4e-6 * self.total / self.step))  # more where a solver sees less
        return (math.ceil(cost / self.step - STEP_TOLERANCE) - 1 + margin) * self.step


def common_step(rate: Floats) -> float:
    """The largest number of which all rates are whole multiples, 0 when none is found."""
    if len(rate) == 0:
        return 0.0
    for scale in (1.0, 2.0**FRACTION_BITS):
        scaled = rate * scale
        if np.all(scaled == np.rint(scaled)) and scaled.sum() < WHOLE_MAX:
            return float(np.gcd.reduce(scaled.astype(np.int64))) / scale
    multiples = rate / rate.min()
    whole = np.all(multiples == np.rint(multiples)) and multiples.sum() < 1e6
    return float(rate.min()) if whole else 0.0


@dataclass(frozen=True, eq=False)
class Contraction:
    """The problem with tasks fused that every better plan keeps together."""

    group_of: Ints  # of each task of the whole problem
    varying: Varying  # of the contracted problem
    offset: float  # varying cost of the whole problem that every plan of the contracted one pays
    limit: float  # a plan that parts a group costs at least this much (varying cost of the whole problem)

    @property
    def problem(self) -> Problem:
        """The contracted problem."""
        return self.varying.problem

    @property
    def is_smaller(self) -> bool:
        """Whether anything was fused."""
        return self.problem.task_count < len(self.group_of)

    @property
    def holds_a_plan(self) -> bool:
        """Whether every fused task fits some node."""
        graph = self.problem.graph
        held = np.zeros(graph.task_count, dtype=bool)
        for capacity, memory in set(zip(self.problem.capacity.tolist(), self.problem.memory_mb.tolist(), strict=True)):
            held |= (graph.load <= capacity) & (graph.memory_mb <= memory)
        return bool(held.all())

    @classmethod
    def nothing(cls, varying: Varying) -> Contraction:
        """Nothing fused, because no plan is known yet."""
        return cls(np.arange(varying.problem.task_count, dtype=np.int32), varying, 0.0, math.inf)

    def packed(self, node: Ints | None) -> Ints | None:
        """A placement of the contracted problem from one of the whole one; None where it parts a group."""
        if node is None or not self.keeps_groups(node):
            return None
        small = np.empty(self.problem.task_count, dtype=np.int32)
        small[self.group_of] = node
        return small

    def lifted(self, node: Ints) -> Ints:
        """A placement of the whole problem."""
        return node[self.group_of].astype(np.int32)

    def keeps_groups(self, node: Ints) -> bool:
        """Whether a placement of the whole problem parts no group."""
        first = np.zeros(self.problem.task_count, dtype=np.int64)
        first[self.group_of] = np.arange(len(self.group_of))
        return bool(np.all(node == node[first][self.group_of]))

    def to_beat(self, cost: float) -> float:
        """`Varying.to_beat` for a plan of the whole problem, in costs of the contracted one."""
        return self.varying.to_beat(cost - self.offset)

    def kept_to_beat(self, cost: float) -> float:
        """Varying traffic inside nodes; a plan that keeps more of it costs less than `cost`."""
        return self.varying.total - self.to_beat(cost)

    def lower_bound(self, bound: float) -> float:
        """What a bound of the contracted problem says about the whole one."""
        return min(self.varying.rounded_up(bound) + self.offset, self.limit)


def contracted(whole: Varying, cost: float) -> Contraction:
    """Fuse whatever every plan with a varying cost below `cost` keeps together, over and over."""
    graph = whole.problem.graph
    group_of = np.arange(graph.task_count, dtype=np.int32)
    varying, offset = whole, 0.0
    for _ in range(CONTRACTIONS_MAX):
        fused = _fused(varying, cost - offset)
        if fused is None:
            break
        group_of = fused[group_of].astype(np.int32)
        varying = Varying(Problem(graph.quotient(group_of), whole.problem.cluster))
        offset = _offset(whole, varying, group_of)
    return Contraction(group_of, varying, offset, cost)


def _fused(varying: Varying, cost: float) -> Ints | None:
    """A group number for each task, pairs with a rate of `cost` or more together; None when there are none."""
    graph = varying.problem.graph
    n, low, high = graph.task_count, np.minimum(graph.source, graph.target), np.maximum(graph.source, graph.target)
    pair, at = np.unique(low[varying.edges].astype(np.int64) * n + high[varying.edges], return_inverse=True)
    heavy = pair[np.bincount(at.ravel(), graph.rate[varying.edges], minlength=len(pair)) >= cost]
    if len(heavy) == 0:
        return None
    leader = list(range(n))

    def led_by(task: int) -> int:
        while leader[task] != task:
            leader[task] = task = leader[leader[task]]
        return task

    for a, b in zip((heavy // n).tolist(), (heavy % n).tolist(), strict=True):
        leader[led_by(a)] = led_by(b)
    groups: Ints = np.unique([led_by(task) for task in range(n)], return_inverse=True)[1].ravel().astype(np.int32)
    return groups


def _offset(whole: Varying, varying: Varying, group_of: Ints) -> float:
    """Rates that vary in the whole problem and not any more between groups; summed apart from what never varied."""
    graph, small = whole.problem.graph, varying.problem.graph
    count = small.task_count
    still = small.source[varying.edges].astype(np.int64) * count + small.target[varying.edges]
    source, target = group_of[graph.source].astype(np.int64), group_of[graph.target].astype(np.int64)
    decided = whole.edges & (source != target) & ~np.isin(source * count + target, still)
    return float(graph.rate[decided].sum())
