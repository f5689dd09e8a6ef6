"""Parts of the minimum-ratio cut: the flow and the program bound each other, trees are shortest, annealing never harms.

What every method promises is in tests/contract/test_ratio_cuts.py.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from penstock.apps.vwap import vwap_graph
from penstock.model.taskgraph import Floats, TaskGraph
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.ratio_cut import minimum_ratio_cut
from penstock.optimise.fuse.ratio_cut.contract import CutOptions
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, checked_graph
from penstock.optimise.fuse.ratio_cut.cut_program import Range, best_set
from penstock.optimise.fuse.ratio_cut.garg_konemann import ratio_bound, relax
from penstock.optimise.fuse.ratio_cut.linear_program import Trees, tree_program
from penstock.optimise.fuse.ratio_cut.sparsest import FACTOR, _ranges

NEVER = Deadline.after(1e6)


def options(epsilon: float = 0.1) -> CutOptions:
    return CutOptions(epsilon, 0, NEVER)


def vwap_cut_graph(operators: int, seed: int = 0) -> CutGraph:
    tasks = TaskGraph.expand(vwap_graph(operators, seed))
    return checked_graph(tasks.load, (tasks.source, tasks.target, tasks.rate), None)


def distances(graph: CutGraph, length: Floats) -> Floats:
    """All distances, by Floyd and Warshall."""
    found = np.full((graph.size, graph.size), np.inf)
    np.fill_diagonal(found, 0.0)
    for u, v, long in zip(graph.streams.source, graph.streams.target, length, strict=True):
        found[u, v] = found[v, u] = min(found[u, v], long)
    for k in range(graph.size):
        found = np.minimum(found, found[:, k, None] + found[None, k, :])
    return found


@pytest.mark.parametrize("seed", range(3))
def test_flow_and_program_bound_each_other(seed: int) -> None:
    graph = vwap_cut_graph(60, seed)
    flow = relax(graph, options(0.05))
    program = tree_program(graph, NEVER, flow.length)
    assert flow.throughput <= flow.upper <= flow.throughput * 1.05
    assert flow.throughput <= program.throughput * (1 + 1e-9)
    assert program.upper <= flow.upper * (1 + 1e-9)
    assert program.throughput == pytest.approx(program.upper, rel=1e-5)


def test_upper_bound_is_that_of_the_lengths() -> None:
    """Length times capacity over demand times distance, with distances of our own."""
    graph = vwap_cut_graph(40)
    flow = relax(graph, options())
    demand = np.outer(graph.weight, graph.weight) / 2
    reach = float((demand * distances(graph, flow.length)).sum())
    assert float(flow.length @ graph.streams.weight) / reach <= flow.upper * (1 + 1e-9)


def test_trees_are_shortest_and_carry_all_demand() -> None:
    graph = vwap_cut_graph(40, seed=2)
    random = np.random.default_rng(0)
    length = random.random(len(graph.streams.weight))
    trees = Trees.of(graph, length)
    demand = np.outer(graph.weight, graph.weight) / 2
    np.fill_diagonal(demand, 0.0)
    expected = (demand * distances(graph, length)).sum(axis=1)
    assert trees.reach == pytest.approx(expected)
    assert trees.dense(len(length)) @ length == pytest.approx(expected)


def test_a_path_has_the_flow_that_arithmetic_gives() -> None:
    """Three vertices of weight 1 in a row, capacities 1: an edge carries two of the three pairs, so half fits."""
    graph = checked_graph([1.0, 1.0, 1.0], ([0, 1], [1, 2], [1.0, 1.0]), None)
    program = tree_program(graph, NEVER, np.ones(2))
    assert program.throughput == pytest.approx(0.5)
    assert ratio_bound(graph, program.throughput) == pytest.approx(0.75)  # the sparsest cut has ratio 1


def test_deadline_leaves_a_cut_with_a_true_bound() -> None:
    tasks = TaskGraph.expand(vwap_graph(150, 1))
    arrays = (tasks.load, tasks.source, tasks.target, tasks.rate)
    hurried = minimum_ratio_cut(*arrays, method="exact", seconds=1e-6)
    proved = minimum_ratio_cut(*arrays, method="exact")
    assert proved.proved
    assert hurried.bound <= proved.ratio <= hurried.ratio * (1 + 1e-6)


def test_annealing_is_never_worse_than_its_start() -> None:
    graph = vwap_cut_graph(60, seed=5)
    random = np.random.default_rng(1)
    for seed in range(5):
        start = random.random(graph.size) < 0.5
        side, ratio = graph.native.anneal(start.astype(np.uint8), seed, 3, 10.0)
        assert ratio == pytest.approx(graph.ratio(side.astype(np.bool_)))
        assert ratio <= graph.ratio(start) * (1 + 1e-12)


def test_best_set_finds_what_enumeration_finds() -> None:
    random = np.random.default_rng(4)
    weight = random.random(9)
    ends = random.integers(0, 9, (2, 20))
    graph = checked_graph(weight, (ends[0], ends[1], random.random(20)), None)
    half = graph.total / 2
    ratio = 2.0 * float(graph.streams.weight.sum()) / graph.total
    known = np.arange(9) == 8
    sides = [np.array([number >> i & 1 for i in range(9)], dtype=np.bool_) for number in range(1, 2**9 - 1)]
    values = [graph.streams.parted(s) - ratio * float(weight[s].sum()) for s in sides if weight[s].sum() <= half]
    side, bound = best_set(graph, ratio, Range(0.0, half, float(weight.min())), known, NEVER)
    assert side is not None
    assert graph.streams.parted(side) - ratio * float(weight[side].sum()) == pytest.approx(min(values))
    assert bound == pytest.approx(min(values), rel=1e-4)
    assert bound <= min(values) + 1e-9


@pytest.mark.parametrize("relaxed", [0.0, 0.4, 0.9])
def test_ranges_cover_every_weight_that_a_better_cut_can_have(relaxed: float) -> None:
    graph = checked_graph([1e-4, 0.01, 1.0, 2.0, 4.0], ([0, 1, 2, 3], [1, 2, 3, 4], [1.0] * 4), None)
    ranges = _ranges(graph, 1.0, relaxed)
    assert ranges[0].high == graph.total / 2
    for heavier, lighter in pairwise(ranges):
        assert lighter.high == heavier.low
    # At relaxed 0.9 of the ratio the lighter side weighs at least W - r / t = W (1 - 1 / 1.8).
    assert ranges[-1].low == pytest.approx(graph.total * (1 - 1 / 1.8) if relaxed == 0.9 else 0.0)
    assert all(part.gain_min * FACTOR * (1 + 1e-9) >= part.high for part in ranges)


def test_a_tiny_side_can_be_the_sparsest_and_is_proved() -> None:
    """A light vertex on a light edge: ratio 1e-9 / 1e-6 against 0.5 or more elsewhere."""
    weights = [1.0, 1.0, 1.0, 1e-6]
    cut = minimum_ratio_cut(weights, [0, 1, 2, 2], [1, 2, 0, 3], [1.0, 1.0, 1.0, 1e-9], method="exact")
    assert cut.side.tolist() == [False, False, False, True]
    assert cut.ratio == pytest.approx(1e-3)
    assert cut.proved


def test_a_bridge_of_tiny_capacity_does_not_stall_the_flow() -> None:
    cut = minimum_ratio_cut([1.0] * 4, [0, 1, 2], [1, 2, 3], [1e9, 1e-9, 1e9])
    assert cut.side.tolist() == [False, False, True, True]
    assert math.isclose(cut.ratio, 5e-10)
    assert 0 < cut.bound <= cut.ratio


@pytest.mark.parametrize("length", [[1.0], [1.0, math.nan, 1.0], [1.0, -1.0, 1.0]])
def test_native_core_refuses_lengths_that_are_none(length: list[float]) -> None:
    graph = checked_graph([1.0] * 4, ([0, 1, 2], [1, 2, 3], [1.0] * 3), None)
    for work in (graph.native.round, graph.native.trees):
        with pytest.raises(ValueError, match="length"):
            work(np.array(length))
