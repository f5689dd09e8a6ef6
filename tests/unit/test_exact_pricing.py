"""Pricing against a list of all subsets: the best value, every set above a threshold, and bounds when it is stopped."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _core
from penstock.model.taskgraph import Floats

UNLIMITED = 1 << 40


@dataclass
class Case:
    """A random quadratic knapsack with cuts, conflicts and limits on memory and bandwidth."""

    profit: Floats
    outward: Floats
    resources: Floats
    conflict: np.ndarray
    cuts: list[tuple[int, int, int]]
    cut_price: Floats
    limits: Floats

    @classmethod
    def random(cls, seed: int, items: int) -> Case:
        rng = np.random.default_rng(seed)
        outward = rng.lognormal(0.0, 1.0, (items, items)) * (rng.random((items, items)) < 0.3)
        np.fill_diagonal(outward, 0.0)
        conflict = (
            np.triu(rng.random((items, items)) < 0.05, 1).astype(np.uint8)
            if seed % 3 == 1
            else np.zeros((0, 0), np.uint8)
        )
        triples = [tuple(sorted(rng.choice(items, 3, replace=False).tolist())) for _ in range(seed % 4)]
        load = rng.lognormal(0.0, 0.5, items)
        load[0] *= seed % 2  # sometimes an item without load
        limits = [load.sum() * rng.uniform(0.2, 0.6), rng.choice([np.inf, items / 3]), rng.choice([np.inf, 4.0])]
        return cls(
            rng.normal(-1.0, 1.0, items), outward, np.vstack([load, rng.random(items)]),
            np.ascontiguousarray(conflict + conflict.T), triples, rng.random(len(triples)), np.array(limits),
        )  # fmt: skip

    def arrays(self) -> tuple[object, ...]:
        share = np.zeros((len(self.cuts), len(self.profit)), dtype=np.uint8)
        for row, triple in enumerate(self.cuts):
            share[row, list(triple)] = 1
        weight = self.outward + self.outward.T
        return (self.profit, weight, self.resources, self.outward, self.conflict, share, self.cut_price, self.limits)

    def value(self, items: tuple[int, ...]) -> float | None:
        """Worth of a set, or None when a node cannot hold it."""
        held = list(items)
        load, memory = self.resources[:, held].sum(axis=1)
        inside = self.outward[np.ix_(held, held)].sum()
        busiest = max(self.outward[held].sum() - inside, self.outward[:, held].sum() - inside)
        if load > self.limits[0] or memory > self.limits[1] or busiest > self.limits[2]:
            return None
        if len(self.conflict) and any(self.conflict[a, b] for a, b in itertools.combinations(held, 2)):
            return None
        tripped = sum(p for t, p in zip(self.cuts, self.cut_price, strict=True) if len(set(t) & set(held)) >= 2)
        return float(self.profit[held].sum() + inside - tripped)

    def all_sets(self) -> dict[frozenset[int], float]:
        count = len(self.profit)
        subsets = (s for size in range(1, count + 1) for s in itertools.combinations(range(count), size))
        return {frozenset(s): v for s in subsets if (v := self.value(s)) is not None}


def as_sets(answer: tuple) -> dict[frozenset[int], float]:
    start, item, value = answer[:3]
    return {frozenset(item[start[k] : start[k + 1]].tolist()): float(v) for k, v in enumerate(value)}


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_best_set_is_found(seed: int) -> None:
    case = Case.random(seed, 8)
    best = max(case.all_sets().values(), default=-np.inf)
    answer = _core.price_sets(*case.arrays(), -50.0, False, UNLIMITED, UNLIMITED, 60.0)
    assert answer[4]
    assert max(as_sets(answer).values(), default=-np.inf) == pytest.approx(best)
    assert answer[3] == pytest.approx(max(best, -50.0))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(-3.0, 3.0))
def test_every_set_above_the_threshold_is_listed(seed: int, threshold: float) -> None:
    case = Case.random(seed, 8)
    wanted = {s: v for s, v in case.all_sets().items() if v > threshold + 1e-9}
    listed = as_sets(_core.price_sets(*case.arrays(), threshold, True, UNLIMITED, UNLIMITED, 60.0))
    assert wanted.keys() <= listed.keys()
    assert all(value > threshold for value in listed.values())
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
    for held, value in as_sets(_core.guess_sets(*case.arrays(), -1.0, 20)).items():
        assert possible[held] == pytest.approx(value)


def test_arrays_of_different_sizes_are_refused() -> None:
    arrays = list(Case.random(0, 9).arrays())
    arrays[1] = np.zeros((3, 3))
    with pytest.raises(ValueError, match="disagree in shape"):
        _core.guess_sets(*arrays, 0.0, 1)
