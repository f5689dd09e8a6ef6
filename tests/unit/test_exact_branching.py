"""Branch and price against brute force: pricing with paid k-th tasks, bounds under limits, and the tree alone."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unequal_instances import unequal_problem

from penstock import _core
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, Ints, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Problem
from penstock.optimise.exact import solver, tree
from penstock.optimise.exact.branches import ANY_TYPE, Feature, Limits, fractional
from penstock.optimise.exact.columns import ColumnGeneration
from penstock.optimise.exact.node_types import DensePairs
from penstock.optimise.exact.proof import Varying
from penstock.optimise.objective import is_feasible

UNLIMITED = 1 << 40


class Uneven:
    """A quadratic knapsack of kinds whose k-th items pay or cost, alone and in pairs, as branching makes them."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.kind = np.sort(rng.integers(0, 4, 9)).astype(np.int32)
        items, kinds = len(self.kind), np.arange(4)
        first = rng.lognormal(0.0, 1.0, (4, 4)) * (rng.random((4, 4)) < 0.7)
        outward = np.triu(first, 1)[np.ix_(self.kind, self.kind)]
        load = rng.lognormal(0.0, 0.5, 4)[self.kind]
        self.profit = rng.normal(-1.0, 1.0, 4)[self.kind] + rng.normal(0.0, 2.0, items) * (rng.random(items) < 0.4)
        self.weight = outward + outward.T
        pairs = [(i, j) for i in range(items) for j in range(i) if self.kind[i] != self.kind[j]]
        for i, j in (pairs[k] for k in rng.integers(0, len(pairs), 2)) if pairs else ():
            self.weight[i, j] = self.weight[j, i] = self.weight[i, j] + rng.random() * 3
        self.cuts = [pairs[k] for k in rng.integers(0, len(pairs), 2)] if pairs else []
        self.price = rng.random(len(self.cuts)) * 3
        self.resources = np.vstack([load, np.zeros(items)])
        self.limits = np.array([load.sum() * rng.uniform(0.2, 0.7), np.inf, np.inf])
        self.outward = outward
        self.present = kinds[np.isin(kinds, self.kind)]

    def arrays(self) -> tuple[object, ...]:
        share = np.zeros((len(self.cuts), len(self.kind)), dtype=np.uint8)
        for row, both in enumerate(self.cuts):
            share[row, list(both)] = 1
        resources = np.ascontiguousarray(self.resources)
        return (self.profit, self.weight, resources, self.outward, self.kind, share, self.price, self.limits)

    def all_sets(self) -> dict[tuple[int, ...], float]:
        """The worth of every set that takes each kind in its order."""
        members = [np.flatnonzero(self.kind == k) for k in self.present]
        found: dict[tuple[int, ...], float] = {}
        for counts in itertools.product(*(range(len(m) + 1) for m in members)):
            held = np.concatenate([m[:n] for m, n in zip(members, counts, strict=True)]).astype(int)
            if sum(counts) == 0 or self.resources[0, held].sum() > self.limits[0]:
                continue
            paid = sum(p for (a, b), p in zip(self.cuts, self.price, strict=True) if a in set(held) and b in set(held))
            found[counts] = float(self.profit[held].sum() + self.weight[np.ix_(held, held)].sum() / 2 - paid)
        return found

    def listed(self, answer: tuple) -> dict[tuple[int, ...], float]:
        start, item, value = answer[:3]
        sets = [item[start[k] : start[k + 1]] for k in range(len(value))]
        return {
            tuple(int((self.kind[s] == k).sum()) for k in self.present): float(v)
            for s, v in zip(sets, value.tolist(), strict=True)
        }


@settings(max_examples=150)
@given(st.integers(0, 100_000))
def test_the_best_set_is_found_where_late_tasks_of_a_class_pay(seed: int) -> None:
    case = Uneven(seed)
    best = max(case.all_sets().values(), default=-np.inf)
    answer = _core.price_sets(*case.arrays(), -50.0, False, UNLIMITED, UNLIMITED, 60.0)
    assert answer[4]
    assert max(case.listed(answer).values(), default=-np.inf) == pytest.approx(best)


@settings(max_examples=150)
@given(st.integers(0, 100_000), st.floats(-3.0, 3.0))
def test_all_sets_are_listed_where_late_tasks_of_a_class_pay(seed: int, threshold: float) -> None:
    case = Uneven(seed)
    wanted = {s: v for s, v in case.all_sets().items() if v > threshold + 1e-9}
    answer = _core.price_sets(*case.arrays(), threshold, True, UNLIMITED, UNLIMITED, 60.0)
    listed = case.listed(answer)
    assert wanted.keys() <= listed.keys()
    assert len(listed) == len(answer[2])  # no set twice
    assert all(listed[s] == pytest.approx(v) for s, v in wanted.items())


@settings(max_examples=100)
@given(st.integers(0, 100_000), st.integers(1, 30))
def test_a_stopped_search_bounds_sets_whose_late_tasks_pay(seed: int, nodes_max: int) -> None:
    case = Uneven(seed)
    best = max(case.all_sets().values(), default=-np.inf)
    answer = _core.price_sets(*case.arrays(), -50.0, False, nodes_max, UNLIMITED, 60.0)
    assert answer[3] >= best - 1e-9


def packed_problem(seed: int) -> Problem:
    """Up to 8 tasks, alike within operators, on 3 nodes of two types, with rates of whole bytes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 4)
    sizes = sizes[: max(2, int((np.cumsum(sizes) <= 8).sum()))]
    load = rng.integers(2, 6, len(sizes)) / 4
    operators = tuple(Operator(f"o{k}", int(n), load=float(load[k])) for k, n in enumerate(sizes))
    streams = tuple(
        Stream(f"o{a}", f"o{b}", rate=float(rng.integers(1, 1000)))
        for a, b in itertools.combinations(range(len(sizes)), 2)
        if b == a + 1 or rng.random() < 0.4
    )
    room = np.array([1.0, 1.0, 1.5]) * max(float(load.max()), float((load * sizes).sum()) / 2.6)
    cluster = Cluster(tuple(Node(f"n{k}", float(c)) for k, c in enumerate(room)))
    return Problem(TaskGraph.expand(OperatorGraph("packed", operators, streams)), cluster)


def every_plan(problem: Problem) -> list[Ints]:
    nodes = range(problem.node_count)
    plans = (np.array(p, dtype=np.int32) for p in itertools.product(nodes, repeat=problem.task_count))
    return [plan for plan in plans if is_feasible(problem, plan)]


def sets_of(pairs: DensePairs, plan: Ints) -> tuple[Floats, Ints]:
    """What each node holds, and of which type it is."""
    type_of = {node: t for t, kind in enumerate(pairs.types) for node in kind.nodes}
    used = np.unique(plan).tolist()
    holds = [np.bincount(pairs.class_of[plan == k], minlength=len(pairs.classes.counts)) for k in used]
    return np.array(holds, dtype=np.float64), np.array([type_of[k] for k in used], dtype=np.int32)


def random_limits(rng: np.random.Generator, pairs: DensePairs) -> list[tuple[Feature, float, float]]:
    counts, found = pairs.classes.counts, []
    for _ in range(int(rng.integers(1, 4))):
        classes = sorted(rng.choice(len(counts), min(len(counts), int(rng.integers(1, 3))), replace=False).tolist())
        parts = tuple((c, int(rng.integers(1, counts[c] + 1))) for c in classes)
        number = int(rng.integers(0, 3))
        low, high = (-np.inf, float(number)) if rng.random() < 0.5 else (float(number), np.inf)
        found.append((Feature(parts, int(rng.choice([ANY_TYPE, 0, 1]))), low, high))
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_a_bound_under_limits_holds_for_every_plan_that_keeps_them(seed: int) -> None:
    problem, rng = packed_problem(seed), np.random.default_rng(seed)
    varying = Varying(problem)
    pairs, plans = DensePairs(varying), every_plan(problem)
    if not plans or not varying.total:
        return
    generation = ColumnGeneration(pairs, [plans[0]], Deadline.after(60.0))
    wanted = random_limits(rng, pairs)
    generation.enter([Limits(generation.feature_number(f), low, high) for f, low, high in wanted])
    with ThreadPoolExecutor(2) as executor:
        generation.settle(-np.inf, executor)
    kept = [
        varying.total - varying.cost(plan)
        for plan in plans
        if all(low <= feature.had_by(*sets_of(pairs, plan)).sum() <= high for feature, low, high in wanted)
    ]
    assert generation.bound.kept * pairs.unit >= max(kept, default=-np.inf) - 1e-6


def by_tree_alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Takes the other means of proof away; answers how many nodes each tree looked at."""
    visited: list[int] = []
    search = tree.Tree.search

    def counted(self: tree.Tree, kept: float) -> None:
        search(self, kept)
        visited.append(self.visited)

    monkeypatch.setattr(tree.Tree, "search", counted)
    monkeypatch.setattr(solver, "build_model", lambda *_: None)
    monkeypatch.setattr(solver, "violated_cuts", lambda *_: [])
    monkeypatch.setattr(solver, "_close", lambda *_: False)
    return visited


def test_the_tree_alone_finds_the_brute_force_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    visited = by_tree_alone(monkeypatch)
    for seed in range(60):
        problem = packed_problem(seed)
        plans = every_plan(problem)
        if not plans:
            continue
        found = solver.solve(problem, Deadline.after(60.0), seed=0)
        optimum = min(Varying(problem).fixed + Varying(problem).cost(plan) for plan in plans)
        assert found.proved_optimal
        assert found.lower_bound == optimum
    assert max(visited) > 1  # some were cut in two


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_tree_alone_agrees_with_the_list_of_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = unequal_problem(20, seed)
    listed = solver.solve(problem, Deadline.after(60.0), seed=0)
    by_tree_alone(monkeypatch)
    found = solver.solve(problem, Deadline.after(60.0), seed=0)
    assert listed.proved_optimal
    assert found.proved_optimal
    assert found.lower_bound == pytest.approx(listed.lower_bound, rel=1e-5)


def test_features_of_a_fractional_choice_have_no_whole_number_of_sets() -> None:
    holds = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    offered = fractional(
        holds, np.zeros(3, dtype=np.int32), np.array([0.5, 0.5, 0.5]), np.array([2, 1]), np.ones((2, 2))
    )
    assert offered
    assert all(abs(number - round(number)) > 0.1 for _, number in offered)
    assert (Feature(((0, 2),)), 0.5) in offered


def test_halves_of_a_node_leave_no_plan_out() -> None:
    problem = packed_problem(1)
    plans = every_plan(problem)
    pairs = DensePairs(Varying(problem))
    generation = ColumnGeneration(pairs, plans[:3], Deadline.after(60.0))
    with ThreadPoolExecutor(2) as executor:
        search = tree.Tree(generation, executor, lambda: -np.inf, lambda: None, lambda: None, lambda bound: None)
        below, above = search._limits(Feature(((0, 1),)), 1.5)
    assert below.feature == above.feature
    assert (below.high, above.low) == (1.0, 2.0)
