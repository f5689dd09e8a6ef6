"""Branching on what nodes hold, for interchangeable tasks too: rows of the master that count sets with a feature.

A *feature* is one or two parts (class, k), and is had by a set that holds at least k tasks of each part's class; a
node type may be named as well. How many sets of a plan have it is a whole number, so a fractional choice is cut in two:
at most the number below, at least the one above. On single tasks that is Ryan and Foster's rule (1981), with counts
Vanderbeck's (2011). Tasks of a class join a set in their order, so "at least k" is the k-th task, and pricing sees the
row's price as a profit of that task, a weight of two tasks or a cut on two: it stays the same knapsack.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs

ANY_TYPE = -1
FRACTION_MIN = 1e-6  # what counts as fractional
SINGLES, PAIRS = 6, 8  # features that are offered to a choice


@dataclass(frozen=True)
class Feature:
    """At least so many tasks of each class, on a node of that type."""

    parts: tuple[tuple[int, int], ...]
    node_type: int = ANY_TYPE

    def had_by(self, holds: Floats, node_type: Ints) -> Floats:
        """1 for each set that has it, 0 for the others."""
        had = np.ones(len(holds), dtype=bool) if self.node_type == ANY_TYPE else node_type == self.node_type
        for c, k in self.parts:
            had = had & (holds[:, c] >= k - 0.5)
        return had.astype(np.float64)


@dataclass(frozen=True)
class Limits:
    """How many sets of a plan have a feature."""

    feature: int
    low: float
    high: float


@dataclass(eq=False)
class Branches:
    """All features so far, with the limits that hold at the node of the tree that is looked at."""

    members: tuple[Ints, ...]  # tasks of each class
    features: list[Feature] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def had_by(self, holds: Floats, node_type: Ints) -> Floats:
        """A column for each feature."""
        had = np.zeros((len(holds), len(self.features)))
        for f, feature in enumerate(self.features):
            had[:, f] = feature.had_by(holds, node_type)
        return had

    def sound(self, price: Floats) -> Floats:
        """Prices without those that a missing limit would make infinite."""
        low, high = np.array(self.low), np.array(self.high)
        return np.where(((price > 0) & np.isinf(high)) | ((price < 0) & np.isinf(low)), 0.0, price)

    def paid(self, price: Floats) -> tuple[float, float]:
        """The most that all sets of a plan can pay at these sound prices, and the sum of magnitudes in it."""
        at = np.flatnonzero(price)
        if len(at) == 0:
            return 0.0, 0.0
        limit = np.where(price[at] > 0, np.array(self.high)[at], np.array(self.low)[at])
        return float(price[at] @ limit), float(np.abs(price[at]) @ np.abs(limit))

    def terms(self, price: Floats, node_type: int, tasks: int) -> tuple[Floats, Floats, list[tuple[int, int]], Floats]:
        """What pricing sees on that node type: profits, pair weights, and cuts on two tasks with their prices."""
        profit, weight = np.zeros(tasks), np.zeros((0, 0))
        cuts: list[tuple[int, int]] = []
        charges: list[float] = []
        for f in np.flatnonzero(price).tolist():
            feature = self.features[f]
            if feature.node_type not in (ANY_TYPE, node_type):
                continue
            item = [int(self.members[c][k - 1]) for c, k in feature.parts]
            if len(item) == 1:
                profit[item[0]] -= price[f]
            elif price[f] > 0:
                cuts.append((item[0], item[1]))
                charges.append(float(price[f]))
            else:
                weight = weight if len(weight) else np.zeros((tasks, tasks))
                weight[item[0], item[1]] -= price[f]
                weight[item[1], item[0]] -= price[f]
        return profit, weight, cuts, np.array(charges)


def fractional(
    holds: Floats, node_type: Ints, value: Floats, counts: Longs, pull: Floats
) -> list[tuple[Feature, float]]:
    """Features of which a fractional choice has no whole number of sets, with that number, the likeliest first.

    `pull` is the weight between one task of each class. A pair that talks much, and halves, come first.
    """
    used = value > FRACTION_MIN
    holds, node_type, value = np.rint(holds[used]), node_type[used], value[used]
    parts = [(c, k) for c in range(len(counts)) for k in range(1, int(holds[:, c].max(initial=0)) + 1)]
    if not parts:
        return []
    of_class = np.array([c for c, _ in parts])
    has = (holds[:, of_class] >= np.array([k for _, k in parts])).astype(np.float64)
    found: list[tuple[float, Feature, float]] = []
    for t in [ANY_TYPE, *np.unique(node_type).tolist()]:
        number = (has * (value * (1.0 if t == ANY_TYPE else node_type == t))[:, None]).sum(axis=0)
        short = np.abs(number - np.rint(number))
        found += [
            (float(short[p] * pull[of_class[p]].sum()), Feature((parts[p],), t), float(number[p]))
            for p in np.flatnonzero(short > FRACTION_MIN).tolist()
        ]
    singles = sorted(found, key=lambda each: (-each[0], each[1].parts, each[1].node_type))[:SINGLES]
    both = has.T @ (has * value[:, None])
    short = np.abs(both - np.rint(both))
    i, j = np.nonzero((short > FRACTION_MIN) & (of_class[:, None] < of_class[None, :]))
    score = short[i, j] * (pull[of_class[i], of_class[j]] + 1e-3 * pull.max(initial=0.0))
    best = np.argsort(-score, kind="stable")[:PAIRS].tolist()
    pairs = [(Feature((parts[i[p]], parts[j[p]])), float(both[i[p], j[p]])) for p in best]
    return [*((feature, number) for _, feature, number in singles), *pairs]
