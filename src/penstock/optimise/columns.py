"""Column generation over node sets, for tasks that differ: a linear program with few columns and a bound for all.

A column is a set of tasks on one node of a type; the master (`master`) covers every task once. Pricing finds sets that
are worth more than their tasks' prices, first by greedy growth, and only when that finds nothing by branch and bound
(`core/pricing.cpp`). Whatever pricing proves gives a bound at once (Lagrange): at prices p for tasks and s for cuts, no
plan keeps more than sum p + sum s + the nodes' best values. It holds at any prices and also when pricing was stopped,
because the search then reports what its open branches could still reach.

Rejected: a task-by-node program (symmetric, its bound stays near 0); smoothed prices, see the decision page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock import _core
from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.contract import Deadline
from penstock.optimise.master import Master, Prices
from penstock.optimise.node_types import DensePairs

PRICE_TOLERANCE = 1e-8  # in units of the largest pair rate
GUESSES_PER_TYPE = 20
ROUNDS_MAX = 5_000
PROBE_NODES = 20_000  # branch and bound nodes before an answer with columns is good enough
PROBE_COLUMNS = 12
NODES_MAX = 2_000_000_000

Flags = NDArray[np.uint8]
Knapsack = tuple[Floats, Floats, Floats, Floats, Flags, Flags, Floats, Floats]
_NO_FLAGS: Flags = np.zeros((0, 0), dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class Column:
    """Tasks (ascending) on a node of a type, and the traffic they keep inside."""

    tasks: Ints
    node_type: int
    kept: float


@dataclass(frozen=True, eq=False)
class Bound:
    """Prices and what they prove: no plan keeps more than `kept`."""

    kept: float
    item: Floats
    cut: Floats
    node_value: Floats  # per node type: no set is worth more on one of its nodes


@dataclass(eq=False)
class Cuts:
    """Subset-row cuts: of three tasks, at most one chosen set may hold two."""

    tasks: int
    triples: list[tuple[int, int, int]] = field(default_factory=list)

    def shares(self) -> Flags:
        """One row per cut, 1 at its tasks."""
        share = np.zeros((len(self.triples), self.tasks), dtype=np.uint8)
        for row, triple in enumerate(self.triples):
            share[row, list(triple)] = 1
        return share

    def tripped(self, tasks: Ints) -> Ints:
        """Cuts of which the set holds two or more tasks."""
        if not self.triples:
            return np.empty(0, dtype=np.int32)
        return np.flatnonzero(self.shares()[:, tasks].sum(axis=1) >= 2).astype(np.int32)


def sets_of(placement: Ints) -> list[Ints]:
    """The task set of every node that a placement uses."""
    return [np.flatnonzero(placement == k).astype(np.int32) for k in np.unique(placement)]


class ColumnGeneration:
    """The master, its columns and the best bound so far."""

    def __init__(self, pairs: DensePairs, placements: Iterable[Ints], deadline: Deadline) -> None:
        self.pairs, self.deadline = pairs, deadline
        self.columns: list[Column] = []
        self.cuts = Cuts(len(pairs.weight))
        self.bound = Bound(
            pairs.total, np.zeros(len(pairs.weight)), np.zeros(0), np.full(len(pairs.types), pairs.total)
        )
        self._seen: set[bytes] = set()
        self._master = Master(
            len(pairs.weight), [len(t.nodes) for t in pairs.types], artificial_price=pairs.total + 1.0
        )
        self._limits = [np.array(t.limits) for t in pairs.types]
        for placement in placements:
            self.add(sets_of(placement))
        self.prices = self._master.solve()

    def add(self, sets: Iterable[Ints]) -> int:
        """Add each set that is new, once for each node type that can carry it; returns how many columns that made."""
        fresh: list[Column] = []
        for found in sets:
            tasks = np.sort(found)
            if (key := tasks.tobytes()) in self._seen:
                continue
            self._seen.add(key)
            kept = self.pairs.kept(tasks)
            fresh += [
                Column(tasks, t, kept) for t, kind in enumerate(self.pairs.types) if self.pairs.suits(tasks, kind)
            ]
        self._master.add([(c.kept, c.node_type, c.tasks, self.cuts.tripped(c.tasks)) for c in fresh])
        self.columns += fresh
        return len(fresh)

    def add_cuts(self, triples: Sequence[tuple[int, int, int]]) -> None:
        """Add cuts to the master; the bound so far stays true."""
        for triple in triples:
            self.cuts.triples.append(triple)
            trips = [k for k, c in enumerate(self.columns) if len(np.intersect1d(c.tasks, triple)) >= 2]
            self._master.add_cut(np.array(trips, dtype=np.int32))
        self.prices = self._master.solve()

    def converge(self, kept_known: float, executor: ThreadPoolExecutor) -> None:
        """Generate columns until none is missing, the bound meets a known plan, or time is up."""
        for _ in range(ROUNDS_MAX):
            self.prices = self._master.solve()
            if self.deadline.remaining <= 0:
                return
            if self.add(self._guesses(self.prices, executor)):
                continue
            if not self.add(self._searched(self.prices, executor)) or self.bound.kept <= kept_known:
                return

    def enumerate_above(self, margin: float, columns_max: int, executor: ThreadPoolExecutor) -> list[Column] | None:
        """Every column that a plan within `margin` of the bound can use, or None when they are too many."""
        share, share_price = self._cut_arrays(self.bound.cut)

        def listed(t: int) -> tuple[bool, list[Column]]:
            start, item, value, _, complete, _ = _core.price_sets(
                *self._knapsack(t, self.bound.item, share, share_price),
                float(self.bound.node_value[t] - margin), True, NODES_MAX, columns_max, self.deadline.remaining,
            )  # fmt: skip
            sets = (np.sort(item[start[k] : start[k + 1]]) for k in range(len(value)))
            return complete, [Column(tasks, t, self.pairs.kept(tasks)) for tasks in sets] if complete else []

        answers = list(executor.map(listed, range(len(self._limits))))
        if not all(complete for complete, _ in answers):
            return None
        return [column for _, columns in answers for column in columns]

    def _cut_arrays(self, price: Floats) -> tuple[Flags, Floats]:
        """Shares and prices of the cuts that cost anything: pricing need not look at the others."""
        costly = np.flatnonzero(price > PRICE_TOLERANCE)
        if len(costly) == 0:
            return _NO_FLAGS, np.zeros(0)
        return np.ascontiguousarray(self.cuts.shares()[costly]), price[costly]

    def _knapsack(self, t: int, item: Floats, share: Flags, share_price: Floats) -> Knapsack:
        pairs = self.pairs
        return (-item, pairs.weight, pairs.resources, pairs.outward, _NO_FLAGS, share, share_price, self._limits[t])

    def _guesses(self, prices: Prices, executor: ThreadPoolExecutor) -> list[Ints]:
        share, share_price = self._cut_arrays(prices.cut)

        def guess(t: int) -> list[Ints]:
            start, item, value, *_ = _core.guess_sets(
                *self._knapsack(t, prices.item, share, share_price),
                float(prices.node_type[t] + PRICE_TOLERANCE), GUESSES_PER_TYPE,
            )  # fmt: skip
            return [item[start[k] : start[k + 1]] for k in range(len(value))]

        return [found for sets in executor.map(guess, range(len(self._limits))) for found in sets]

    def _searched(self, prices: Prices, executor: ThreadPoolExecutor) -> list[Ints]:
        """Sets by branch and bound; also raises the bound where it can."""
        share, share_price = self._cut_arrays(prices.cut)
        ignored = prices.cut.sum() - share_price.sum()

        def search(t: int) -> tuple[list[Ints], float]:
            threshold = float(prices.node_type[t] + PRICE_TOLERANCE)
            knapsack = self._knapsack(t, prices.item, share, share_price)
            found: list[Ints] = []
            for nodes_max in (PROBE_NODES, NODES_MAX):
                start, item, value, best, complete, _ = _core.price_sets(
                    *knapsack, threshold, False, nodes_max, PROBE_COLUMNS if nodes_max == PROBE_NODES else NODES_MAX,
                    self.deadline.remaining,
                )  # fmt: skip
                found += [item[start[k] : start[k + 1]] for k in range(len(value))]
                if complete or found:
                    break
            return found, best

        answers = list(executor.map(search, range(len(self._limits))))
        node_value = np.maximum(0.0, np.array([best for _, best in answers]))
        counts = np.array([len(t.nodes) for t in self.pairs.types])
        kept = float(prices.item.sum() + prices.cut.sum() - ignored + counts @ node_value)
        if kept < self.bound.kept:
            self.bound = Bound(kept, prices.item, np.where(prices.cut > PRICE_TOLERANCE, prices.cut, 0.0), node_value)
        return [found for sets, _ in answers for found in sets]
