"""Column generation over node sets, for tasks that differ: a linear program with few columns and a bound for all.

A column is what one node of a type holds, as a number of tasks of each class of interchangeable tasks (where all tasks
differ, classes of one). The master (`master`) covers every class. Pricing finds sets that are worth more than their
tasks' prices, by greedy growth, and when that finds nothing by branch and bound (`core/search/exact/pricing.cpp`).
Whatever pricing proves gives a bound at once (Lagrange): at any prices, no plan keeps more than all tasks' prices, all
cuts' prices and the nodes' best values together. The bound also holds when pricing was stopped, because the search then
reports what its open branches could still reach.

Rejected: a task-by-node program (symmetric, its bound stays near 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from penstock import _core
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.exact.branches import Branches, Feature, Limits
from penstock.optimise.exact.master import Master, Prices
from penstock.optimise.exact.node_types import DensePairs

PRICE_TOLERANCE = 1e-9  # in units of the largest pair rate
GUESSES_PER_TYPE = 20
ROUNDS_MAX = 5_000
PROBE_NODES = 20_000  # branch and bound nodes before an answer with columns is good enough
PROBE_COLUMNS = 12
NODES_MAX = 2_000_000_000
FIRST_NODES = 64  # after which the time of one node is known
NODES_PER_LOOK = 1024  # nodes from one look of pricing at the clock to the next
LATE_MAX = 0.05  # seconds
SLACK = 0.05  # of the gap that pricing may leave
SLACK_BELOW = 0.9
LENT_PRICE = 0.1  # of a set that a branch asks for and no column gives, at first
LENT_RISE = 4.0
LENT_MIN = 1e-7
EPSILON = float(np.finfo(np.float64).eps)

Flags = NDArray[np.uint8]
Knapsack = tuple[Floats, Floats, Floats, Floats, Ints, Flags, Floats, Floats]
Cut = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Columns:
    """Node sets as arrays, one row each."""

    holds: Floats  # tasks of each class
    node_type: Ints
    kept: Floats  # traffic inside

    def __len__(self) -> int:
        return len(self.kept)

    def thinned(self, keep: Longs) -> Columns:
        """The numbered columns alone."""
        return Columns(self.holds[keep], self.node_type[keep], self.kept[keep])

    def joined(self, more: Columns) -> Columns:
        """These and those."""
        return Columns(
            np.vstack([self.holds, more.holds]),
            np.concatenate([self.node_type, more.node_type]),
            np.concatenate([self.kept, more.kept]),
        )

    @classmethod
    def none(cls, classes: int) -> Columns:
        """No columns yet."""
        return cls(np.zeros((0, classes)), np.zeros(0, dtype=np.int32), np.zeros(0))


@dataclass(eq=False)
class Cuts:
    """Subset-row cuts (Jepsen et al. 2008) on up to three classes with an odd number of tasks together.

    A set trips a cut once for every two tasks that it holds of those classes; all chosen sets together may trip it half
    as often, rounded down, as there are tasks. On three single tasks: at most one set may hold two of them.
    """

    counts: Longs  # tasks in each class
    classes: list[Cut] = field(default_factory=list)

    def shares(self) -> Floats:
        """One row per cut, 1 at its classes."""
        share = np.zeros((len(self.classes), len(self.counts)))
        for row, cut in enumerate(self.classes):
            share[row, list(cut)] = 1.0
        return share

    def trips(self, holds: Floats) -> Floats:
        """How often each set trips each cut."""
        return np.floor(holds @ self.shares().T / 2 + 1e-9)

    def limits(self) -> Floats:
        """How often all sets together may trip each cut."""
        return np.floor(self.shares() @ self.counts / 2 + 1e-9)


@dataclass(frozen=True, eq=False)
class Bound:
    """Prices and what they prove: no plan keeps more than `kept`."""

    kept: float
    task: Floats
    cut: Floats
    node_value: Floats  # per node type: no set is worth more on one of its nodes
    branch: Floats = field(default_factory=lambda: np.zeros(0))


def lagrangian(task: Floats, cuts: Cuts, cut: Floats, nodes: Longs, node_value: Floats, total: float) -> float:
    """What no plan keeps more than: prices of all tasks and cuts, and the best value of every node.

    Raised by what these sums, and those of pricing that they rest on, may be off in floating point.
    """
    limits = cuts.limits()
    magnitude = np.abs(task) @ cuts.counts + np.abs(cut) @ limits + np.abs(node_value) @ nodes + total
    rounding = 8 * EPSILON * (cuts.counts.sum() + nodes.sum()) * magnitude
    return float(task @ cuts.counts + cut @ limits + nodes @ node_value + rounding)


class ColumnGeneration:
    """The master, its columns and the best bound so far."""

    def __init__(self, pairs: DensePairs, placements: Iterable[Ints], deadline: Deadline) -> None:
        self.pairs, self.deadline = pairs, deadline
        self.counts = np.array(pairs.classes.counts, dtype=np.int64)
        self.columns = Columns.none(len(self.counts))
        self.cuts = Cuts(self.counts)
        self.branches = Branches(pairs.classes.members)
        worst = np.full(len(pairs.types), pairs.total)
        self.bound = Bound(pairs.total, np.zeros(len(self.counts)), np.zeros(0), worst)
        self._nodes = np.array([len(t.nodes) for t in pairs.types])
        self._node_seconds = 0.0  # of one node of pricing's search, once that is known
        self._seen: set[bytes] = set()
        self._master = Master(self.counts.tolist(), self._nodes.tolist(), artificial_price=pairs.total + 1.0)
        self._limits = [np.array(t.limits) for t in pairs.types]
        self.add([np.flatnonzero(p == k).astype(np.int32) for p in placements for k in np.unique(p)])
        self.prices = self._master.solve(self.deadline)

    def add(self, sets: Iterable[Ints]) -> int:
        """Add each set that is new, once for each node type that can carry it; returns how many columns that made."""
        rows: list[tuple[Longs, int, float]] = []
        for tasks in sets:
            held = np.bincount(self.pairs.class_of[tasks], minlength=len(self.counts))
            if (key := held.tobytes()) in self._seen:
                continue
            self._seen.add(key)
            kept = self.pairs.kept(tasks)
            rows += [(held, t, kept) for t, kind in enumerate(self.pairs.types) if self.pairs.suits(tasks, kind)]
        if not rows:
            return 0
        fresh = Columns(
            np.array([held for held, _, _ in rows], dtype=np.float64),
            np.array([t for _, t, _ in rows], dtype=np.int32),
            np.array([kept for _, _, kept in rows]),
        )
        had = self.branches.had_by(fresh.holds, fresh.node_type)
        self._master.add(fresh.kept, fresh.node_type, fresh.holds, self.cuts.trips(fresh.holds), had)
        self.columns = self.columns.joined(fresh)
        return len(rows)

    def add_cuts(self, cuts: Sequence[Cut]) -> None:
        """Add cuts to the master; the bound so far stays true."""
        fresh = Cuts(self.counts, list(cuts))
        for trips, limit in zip(fresh.trips(self.columns.holds).T, fresh.limits().tolist(), strict=True):
            self._master.add_cut(trips, limit)
        self.cuts.classes += cuts

    def enter(self, limits: Iterable[Limits]) -> None:
        """Go to a node of the tree, where these limits hold and no others; the bound begins anew."""
        branches = self.branches
        low, high = [-np.inf] * len(branches.features), [np.inf] * len(branches.features)
        for each in limits:
            low[each.feature] = max(low[each.feature], each.low)
            high[each.feature] = min(high[each.feature], each.high)
        for f, wanted in enumerate(zip(low, high, strict=True)):
            if wanted != (branches.low[f], branches.high[f]):
                self._master.limit_branch(f, *wanted)
        branches.low, branches.high = low, high
        worst = np.full(len(self._nodes), self.pairs.total)
        self.bound = Bound(np.inf, np.zeros(len(self.counts)), np.zeros(len(self.cuts.classes)), worst)

    def feature_number(self, feature: Feature) -> int:
        """The number of a feature's row, which is made where there is none."""
        if feature in self.branches.features:
            return self.branches.features.index(feature)
        self._master.add_branch(feature.had_by(self.columns.holds, self.columns.node_type))
        self.branches.features.append(feature)
        self.branches.low.append(-np.inf)
        self.branches.high.append(np.inf)
        return len(self.branches.features) - 1

    def solved(self) -> Prices:
        """The master's answer now."""
        return self._master.solve(self.deadline)

    def settle(self, kept_known: float, executor: ThreadPoolExecutor) -> bool:
        """Generate columns at a node of the tree; true when none is missing, false when it is settled before."""
        lent_at = LENT_PRICE
        self._master.lend_at(lent_at)
        for _ in range(ROUNDS_MAX):
            self.prices = self._master.solve(self.deadline)
            if self.deadline.remaining <= 0:
                return False
            if self.add(self._guesses(self.prices, executor)):
                continue
            fresh = self.add(self._searched(self.prices, executor, self.deadline.remaining, kept_known))
            if self.bound.kept <= kept_known:
                return False
            if not fresh and (self._master.lent < LENT_MIN or lent_at > self.pairs.total):
                return True
            if not fresh:
                lent_at *= LENT_RISE
                self._master.lend_at(lent_at)
        return False

    def converge(self, kept_known: float, executor: ThreadPoolExecutor) -> None:
        """Generate columns until none is missing, the bound meets a known plan, or time is up."""
        bound_due = 0.4 * self.deadline.remaining
        steady: Prices | None = None
        for _ in range(ROUNDS_MAX):
            self.prices = self._master.solve(self.deadline)
            steady = self.prices if steady is None else steady.drawn_to(self.prices)
            if self.deadline.remaining <= 0:
                return
            if self.deadline.remaining < bound_due and self.bound.kept > kept_known:
                # Not converged with most of the time gone: steadier prices give the better bound now.
                self.add(self._searched(steady, executor, 0.4 * self.deadline.remaining))
                bound_due = 0.5 * self.deadline.remaining
            if self.add(self._guesses(self.prices, executor)):
                continue
            if (
                not self.add(self._searched(self.prices, executor, self.deadline.remaining, kept_known))
                or self.bound.kept <= kept_known
            ):
                return

    def list_above(self, margin: float, columns_max: int, executor: ThreadPoolExecutor) -> Columns | None:
        """Every column that a plan within `margin` of the bound can use, or None when they are too many."""

        def listed(t: int) -> Columns | None:
            threshold = float(self.bound.node_value[t] - margin)
            knapsack = self._knapsack(t, self.bound.task, self.bound.cut, self.bound.branch)
            start, item, value, _, complete = self._price(
                knapsack, threshold, True, NODES_MAX, columns_max, self.deadline
            )
            if not complete:
                return None
            holds = np.zeros((len(value), len(self.counts)))
            row = np.repeat(np.arange(len(value)), np.diff(start))
            np.add.at(holds, (row, self.pairs.class_of[item]), 1.0)
            return Columns(holds, np.full(len(value), t, dtype=np.int32), self.pairs.kept_by(holds))

        every = Columns.none(len(self.counts))
        for part in executor.map(listed, range(len(self._limits))):
            if part is None:
                return None
            every = every.joined(part)
        return every

    def _knapsack(self, t: int, task: Floats, cut: Floats, branch: Floats) -> Knapsack:
        """What pricing is asked for a node type; cuts that cost nothing are left out."""
        if len(branch):
            return self._branched(t, task, cut, branch)
        pairs, costly = self.pairs, np.flatnonzero(cut > 0)
        share = self.cuts.shares()[costly][:, pairs.class_of].astype(np.uint8)
        profit = -task[pairs.class_of]
        return (
            profit, pairs.weight, pairs.resources, pairs.outward, pairs.class_of,
            np.ascontiguousarray(share), cut[costly], self._limits[t],
        )  # fmt: skip

    def _branched(self, t: int, task: Floats, cut: Floats, branch: Floats) -> Knapsack:
        pairs = self.pairs
        profit, weight, on_two, charges = self.branches.terms(self.branches.sound(branch), t, len(pairs.class_of))
        plain = self._knapsack(t, task, cut, np.zeros(0))
        share = np.zeros((len(on_two), len(pairs.class_of)), dtype=np.uint8)
        for row, both in enumerate(on_two):
            share[row, list(both)] = 1
        together = pairs.weight + weight if len(weight) else pairs.weight
        return (
            plain[0] + profit, together, *plain[2:5],
            np.ascontiguousarray(np.vstack([plain[5], share])), np.concatenate([plain[6], charges]), plain[7],
        )  # fmt: skip

    def _price(
        self, knapsack: Knapsack, threshold: float, every: bool, nodes_max: int, columns_max: int, until: Deadline
    ) -> tuple[Ints, Ints, Floats, float, bool]:
        """Pricing by branch and bound, with a limit on nodes where the core's rare looks at the clock are too rare."""
        if self._node_seconds * NODES_PER_LOOK > LATE_MAX:
            nodes_max = min(nodes_max, 1 + int(until.remaining / self._node_seconds))
        elif self._node_seconds == 0:
            nodes_max = min(nodes_max, FIRST_NODES)
        begun = until.clock()
        start, item, value, best, complete, nodes = _core.price_sets(
            *knapsack, threshold, every, nodes_max, columns_max, until.remaining
        )
        if nodes >= FIRST_NODES:
            known, self._node_seconds = self._node_seconds, max(1e-9, (until.clock() - begun) / nodes)
            if known == 0 and not complete:
                return self._price(knapsack, threshold, every, NODES_MAX, columns_max, until)
        return start, item, value, best, complete

    def _guesses(self, prices: Prices, executor: ThreadPoolExecutor) -> list[Ints]:
        def guess(t: int) -> list[Ints]:
            if self.deadline.remaining <= 0:
                return []
            start, item, value, *_ = _core.guess_sets(
                *self._knapsack(t, prices.task, prices.cut, prices.branch),
                float(prices.node_type[t] + PRICE_TOLERANCE), GUESSES_PER_TYPE,
            )  # fmt: skip
            return [item[start[k] : start[k + 1]] for k in range(len(value))]

        return [found for sets in executor.map(guess, range(len(self._limits))) for found in sets]

    def _slack(self, prices: Prices, kept_known: float) -> float:
        """How far above its node's price a set may stay unseen: pricing is slow where many sets are about as good.

        All nodes together lose a share of the gap by it; where the answer lies below what is known, they lose what
        still rules it out.
        """
        gap = prices.kept - kept_known
        if not np.isfinite(gap):
            return 0.0
        return float((SLACK * gap if gap > 0 else -SLACK_BELOW * gap) / self._nodes.sum())

    def _searched(
        self, prices: Prices, executor: ThreadPoolExecutor, seconds: float, kept_known: float = -np.inf
    ) -> list[Ints]:
        """Sets by branch and bound; also raises the bound where it can."""
        slack = PRICE_TOLERANCE + self._slack(prices, kept_known)
        until = Deadline(self.deadline.clock() + seconds, self.deadline.clock)

        def search(t: int) -> tuple[list[Ints], float]:
            threshold = float(prices.node_type[t] + slack)
            knapsack = self._knapsack(t, prices.task, prices.cut, prices.branch)
            found: list[Ints] = []
            for nodes_max, columns_max in ((PROBE_NODES, PROBE_COLUMNS), (NODES_MAX, NODES_MAX)):
                start, item, value, best, complete = self._price(
                    knapsack, threshold, False, nodes_max, columns_max, until
                )
                found += [item[start[k] : start[k + 1]] for k in range(len(value))]
                if complete or found:
                    break
            return found, best

        answers = list(executor.map(search, range(len(self._limits))))
        node_value = np.maximum(0.0, np.array([best for _, best in answers]))
        paid, magnitude = self.branches.paid(branch := self.branches.sound(prices.branch))
        total = self.pairs.total + magnitude
        kept = lagrangian(prices.task, self.cuts, prices.cut, self._nodes, node_value, total) + paid
        if kept < self.bound.kept:
            self.bound = Bound(kept, prices.task, prices.cut, node_value, branch)
        return [found for sets, _ in answers for found in sets]
