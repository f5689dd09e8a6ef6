"""Pricing against a list of all subsets: the best value, every set above a threshold, and bounds when it is stopped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _core
from penstock.model.taskgraph import Floats, Ints

UNLIMITED = 1 << 40


@dataclass
class Case:
    """A random quadratic knapsack with twins, cuts and limits on memory and bandwidth."""

    profit: Floats
    outward: Floats
    resources: Floats
    kind: Ints
    cuts: list[tuple[int, ...]]  # kinds that count in the cut
    cut_price: Floats
    limits: Floats

    @classmethod
    def random(cls, seed: int, items: int) -> Case:
        rng = np.random.default_rng(seed)
        outward = rng.lognormal(0.0, 1.0, (items, items)) * (rng.random((items, items)) < 0.3)
        np.fill_diagonal(outward, 0.0)
        load, memory, profit = rng.lognormal(0.0, 0.5, items), rng.random(items), rng.normal(-1.0, 1.0, items)
        load[0] *= seed % 2  # sometimes an item without load
        kind = np.arange(items, dtype=np.int32)
        for twin in range(2, 2 + seed % 3):  # the items after number 1 become its twins
            kind[twin] = 1
            outward[twin], outward[:, twin] = outward[1], outward[:, 1]
            load[twin], memory[twin], profit[twin] = load[1], memory[1], profit[1]
        outward[1 : 2 + seed % 3, 1 : 2 + seed % 3] = 0.0
        cuts = [tuple(sorted(rng.choice(np.unique(kind), 3, replace=False).tolist())) for _ in range(seed % 4)]
        limits = [load.sum() * rng.uniform(0.2, 0.6), rng.choice([np.inf, items / 3]), rng.choice([np.inf, 4.0])]
        resources = np.vstack([load, memory])
        return cls(profit, outward, resources, kind, cuts, rng.random(len(cuts)), np.array(limits))

    def arrays(self) -> tuple[object, ...]:
        share = np.zeros((len(self.cuts), len(self.profit)), dtype=np.uint8)
        for row, kinds in enumerate(self.cuts):
            share[row] = np.isin(self.kind, kinds)
        weight = self.outward + self.outward.T
        return (self.profit, weight, self.resources, self.outward, self.kind, share, self.cut_price, self.limits)

    def value(self, items: tuple[int, ...]) -> float | None:
        """Worth of a set, or None when a node cannot hold it."""
        held = list(items)
        load, memory = self.resources[:, held].sum(axis=1)
        inside = self.outward[np.ix_(held, held)].sum()
        busiest = max(self.outward[held].sum() - inside, self.outward[:, held].sum() - inside)
        if load > self.limits[0] or memory > self.limits[1] or busiest > self.limits[2]:
            return None
        tripped = sum(
            price * (np.isin(self.kind[held], kinds).sum() // 2)
            for kinds, price in zip(self.cuts, self.cut_price, strict=True)
        )
        return float(self.profit[held].sum() + inside - tripped)

    def counts(self, items: Iterable[int]) -> tuple[int, ...]:
        """How many items of each kind a set holds: sets that agree in this are the same."""
        return tuple(np.bincount(self.kind[list(items)], minlength=len(self.kind)).tolist())

    def all_sets(self) -> dict[tuple[int, ...], float]:
        items = range(len(self.profit))
        subsets = (s for size in range(1, len(items) + 1) for s in itertools.combinations(items, size))
        return {self.counts(s): v for s in subsets if (v := self.value(s)) is not None}

    def listed(self, answer: tuple) -> dict[tuple[int, ...], float]:
        start, item, value = answer[:3]
        sets = [self.counts(item[start[k] : start[k + 1]].tolist()) for k in range(len(value))]
        return dict(zip(sets, value.tolist(), strict=True))


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_best_set_is_found(seed: int) -> None:
    case = Case.random(seed, 8)
    best = max(case.all_sets().values(), default=-np.inf)
    answer = _core.price_sets(*case.arrays(), -50.0, False, UNLIMITED, UNLIMITED, 60.0)
    assert answer[4]
    assert max(case.listed(answer).values(), default=-np.inf) == pytest.approx(best)
    assert answer[3] == pytest.approx(max(best, -50.0))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(-3.0, 3.0))
def test_every_set_above_the_threshold_is_listed(seed: int, threshold: float) -> None:
    case = Case.random(seed, 8)
    wanted = {s: v for s, v in case.all_sets().items() if v > threshold + 1e-9}
    answer = _core.price_sets(*case.arrays(), threshold, True, UNLIMITED, UNLIMITED, 60.0)
    listed = case.listed(answer)
    assert wanted.keys() <= listed.keys()
    assert all(value > threshold for value in listed.values())
    assert len(listed) == len(answer[2])  # no set twice
    assert all(listed[s] == pytest.approx(v) for s, v in wanted.items())


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_a_stopped_search_reports_a_true_bound(seed: int, nodes_max: int) -> None:
    case = Case.random(seed, 8)
    best = max(case.all_sets().values(), default=-np.inf)
    answer = _core.price_sets(*case.arrays(), -50.0, False, nodes_max, UNLIMITED, 60.0)
    assert answer[3] >= best - 1e-9


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_guesses_are_sets_that_a_node_can_hold(seed: int) -> None:
    case = Case.random(seed, 8)
    possible = case.all_sets()
    for held, value in case.listed(_core.guess_sets(*case.arrays(), -1.0, 20)).items():
        assert possible[held] == pytest.approx(value)


def test_arrays_of_different_sizes_are_refused() -> None:
    arrays = list(Case.random(0, 9).arrays())
    arrays[1] = np.zeros((3, 3))
    with pytest.raises(ValueError, match="disagree in shape"):
        _core.guess_sets(*arrays, 0.0, 1)
