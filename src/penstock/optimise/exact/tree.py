"""Branch and price: where cuts stall, the master's fractional answer is cut in two, over and over (`branches`).

The node with the weakest bound comes first, so the bound of all rises steadily. Of some features, the one is branched
on whose two halves lose most by the columns at hand. At every node the bound is Lagrange's, in our own arithmetic.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from penstock.optimise.exact.branches import Feature, Limits, fractional
from penstock.optimise.exact.columns import ColumnGeneration

NODES_MAX = 20_000
WHOLE = 1e-7
LOSS_MIN = 1e-6  # of a half, so that the other half's counts


@dataclass(order=True)
class Node:
    """Part of all plans: limits on features, and what none of these plans keeps more than."""

    weakest: float  # minus the bound
    number: int
    limits: tuple[Limits, ...] = field(compare=False)


@dataclass(eq=False)
class Tree:
    """The search over nodes; `known` says what must be beaten, and changes when a plan is found."""

    generation: ColumnGeneration
    executor: ThreadPoolExecutor
    known: Callable[[], float]
    whole: Callable[[], None]  # the master's answer is a plan
    close: Callable[[], float | None]  # a bound from the list of all useful sets, where it is short
    rose: Callable[[float], None]  # a bound for all plans
    visited: int = 0

    def search(self, kept: float) -> None:
        """Until every plan that keeps more than what is known is ruled out, or time is up."""
        nodes = [Node(-kept, 0, ())]
        while nodes and self.generation.deadline.remaining > 0 and self.visited < NODES_MAX:
            if -nodes[0].weakest <= self.known():
                break
            node = heapq.heappop(nodes)
            bound, halves = self._look(node)
            for half in halves:
                heapq.heappush(nodes, Node(-bound, self.visited * 2 + len(nodes), (*node.limits, half)))
            if not halves and bound > self.known():
                heapq.heappush(nodes, Node(-bound, 0, node.limits))
                self._tell(nodes)
                return
            self._tell(nodes)

    def _tell(self, nodes: list[Node]) -> None:
        self.rose(max(self.known(), -nodes[0].weakest if nodes else -np.inf))

    def _look(self, node: Node) -> tuple[float, tuple[Limits, ...]]:
        """A better bound for the node and its halves: none where it is ruled out, or cannot be cut in two."""
        generation = self.generation
        self.visited += 1
        generation.enter(node.limits)
        converged = generation.settle(self.known(), self.executor)
        bound = min(-node.weakest, generation.bound.kept)
        if bound <= self.known() or not converged:
            return bound, ()
        chosen = generation.prices.chosen
        if np.abs(chosen - np.rint(chosen)).max(initial=0.0) < WHOLE:
            self.whole()
            generation.settle(self.known(), self.executor)  # to the end: a better plan leaves pricing less slack
            return min(bound, generation.bound.kept), ()
        listed = self.close()
        if listed is not None:
            bound = min(bound, listed)
        return bound, () if bound <= self.known() else self._halves()

    def _halves(self) -> tuple[Limits, ...]:
        generation = self.generation
        columns, chosen = generation.columns, generation.prices.chosen
        offered = fractional(columns.holds, columns.node_type, chosen, generation.counts, generation.pairs.class_weight)
        best: tuple[float, tuple[Limits, ...]] = (-1.0, ())
        low, high = list(generation.branches.low), list(generation.branches.high)
        held = [Limits(f, low[f], high[f]) for f in range(len(low)) if (low[f], high[f]) != (-np.inf, np.inf)]
        now = generation.prices.kept
        for feature, number in offered:
            halves = self._limits(feature, number)
            losses = []
            for half in halves:
                generation.enter([*held, half])
                losses.append(max(LOSS_MIN, now - generation.solved().kept))
            score = losses[0] * losses[1]
            if score > best[0]:
                best = (score, halves)
        return best[1]

    def _limits(self, feature: Feature, number: float) -> tuple[Limits, Limits]:
        f = self.generation.feature_number(feature)
        return Limits(f, -np.inf, float(np.floor(number))), Limits(f, float(np.ceil(number)), np.inf)
