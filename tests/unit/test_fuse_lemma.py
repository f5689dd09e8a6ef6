"""Lemma 1 and SIZE against brute force, and LPT against its formula."""

from __future__ import annotations

import itertools
import math

import numpy as np
from fuse_kit import graph_of
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.exhaustive import least
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, fuse_graph
from penstock.optimise.fuse.steps.lpt import lpt
from penstock.optimise.fuse.steps.preprocess import glued, super_operators
from penstock.optimise.fuse.steps.rules import compile_rules

WEIGHTS = st.sampled_from((0.0, 0.05, 0.1, 0.2, 0.3, 0.6))


def as_fuse_graph(graph: OperatorGraph, cluster: Cluster) -> FuseGraph:
    problem = Problem(TaskGraph.expand(graph), cluster, graph.constraints)
    return fuse_graph(problem, compile_rules(problem))


@st.composite
def small_graphs(draw: st.DrawFn) -> OperatorGraph:
    count = draw(st.integers(2, 6))
    names = [f"o{i}" for i in range(count)]
    loads = {name: draw(WEIGHTS) for name in names}
    pairs = [pair for pair in itertools.combinations(names, 2) if draw(st.booleans())]
    return graph_of(loads, {pair: draw(WEIGHTS) for pair in pairs})


def least_of_vertices(graph: FuseGraph) -> float | None:
    """The least C over all partitions of the vertices that some assignment to nodes can carry."""
    best: float | None = None
    for part in itertools.product(range(graph.count), repeat=graph.count):
        if any(part[v] > max(part[:v], default=-1) + 1 for v in range(graph.count)):
            continue
        sizes = graph.sizes(np.array(part))
        cost = graph.communication(np.array(part))
        if best is not None and cost >= best:
            continue
        for host in itertools.product(range(len(graph.capacity)), repeat=len(sizes)):
            used = np.bincount(host, sizes, minlength=len(graph.capacity))
            carried = (sizes <= graph.worker_limit[list(host)]) | (np.bincount(part) == 1)
            if (used <= graph.capacity * (1 + 1e-9)).all() and carried.all():
                best = cost
                break
    return best


class TestLemma1:
    @settings(max_examples=60)
    @given(
        graph=small_graphs(),
        capacity=st.sampled_from((0.6, 0.9, 1.2, 1.8)),
        worker_capacity=st.sampled_from((None, 0.4, 0.7, 1.0)),
    )
    def test_gluing_keeps_the_optimum(
        self, graph: OperatorGraph, capacity: float, worker_capacity: float | None
    ) -> None:
        cluster = Cluster.uniform([(2, capacity)], worker_capacity)
        truth = least(graph, cluster)
        small = least_of_vertices(glued(as_fuse_graph(graph, cluster)))
        assert (truth is None) == (small is None)
        if truth is not None and small is not None:
            assert math.isclose(truth[0], small, abs_tol=1e-9)

    def test_the_condition_is_the_papers(self) -> None:
        # b's other edge and load come to 0.375; the edge to a is exactly as heavy, so the lemma holds.
        graph = graph_of({"a": 0.9, "b": 0.125, "c": 0.9}, {("a", "b"): 0.375, ("b", "c"): 0.25})
        cluster = Cluster.uniform([(2, 2.0)], worker_capacity=None)
        assert super_operators(as_fuse_graph(graph, cluster)).tolist() == [0, 0, 1]
        lighter = graph_of({"a": 0.9, "b": 0.125, "c": 0.9}, {("a", "b"): 0.374, ("b", "c"): 0.25})
        assert super_operators(as_fuse_graph(lighter, cluster)).tolist() == [0, 1, 2]

    def test_what_no_worker_carries_together_stays_two(self) -> None:
        graph = graph_of({"a": 0.9, "b": 0.125}, {("a", "b"): 0.375})
        for limit, found in ((1.1, [0, 0]), (1.0, [0, 1])):  # together they are of SIZE 1.025
            cluster = Cluster.uniform([(2, 2.0)], worker_capacity=limit)
            assert super_operators(as_fuse_graph(graph, cluster)).tolist() == found

    def test_it_is_iterated_over_super_operators(self) -> None:
        # Only when c and d are one is their edge to b heavier than all else of b.
        graph = graph_of(
            {"a": 1.0, "b": 0.1, "c": 1.0, "d": 0.1},
            {("a", "b"): 0.2, ("b", "c"): 0.2, ("b", "d"): 0.2, ("c", "d"): 0.4},
        )
        cluster = Cluster.uniform([(2, 4.0)], worker_capacity=None)
        assert super_operators(as_fuse_graph(graph, cluster)).tolist() == [0, 1, 1, 1]

    def test_constrained_operators_are_left_alone(self) -> None:
        from penstock.model.constraints import Apart

        graph = graph_of({"a": 0.1, "b": 0.1}, {("a", "b"): 9.0}, Apart("worker", ("a", "b")))
        assert super_operators(as_fuse_graph(graph, Cluster.uniform([(2, 20.0)]))).tolist() == [0, 1]


def test_size_counts_operators_and_cut_streams() -> None:
    graph = graph_of({"a": 1.0, "b": 2.0, "c": 4.0}, {("a", "b"): 0.1, ("b", "c"): 0.2, ("a", "c"): 0.4})
    found = as_fuse_graph(graph, Cluster.uniform([(2, 9.0)]))
    assert found.sizes(np.array([0, 0, 1])).tolist() == [3.0 + 0.6, 4.0 + 0.6000000000000001]
    assert found.communication(np.array([0, 0, 1])) == 1.2000000000000002
    assert found.sizes(np.array([0, 0, 0])).tolist() == [7.0]


@given(
    sizes=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=9),
    capacity=st.lists(st.sampled_from((1.0, 1.0, 2.0, 3.0)), min_size=1, max_size=5),
)
def test_lpt_is_the_printed_rule(sizes: list[float], capacity: list[float]) -> None:
    used = [0.0] * len(capacity)
    expected = [0] * len(sizes)
    for p in sorted(range(len(sizes)), key=lambda p: -sizes[p]):
        k = min(range(len(capacity)), key=lambda k: ((used[k] + sizes[p]) / capacity[k], k))
        used[k] += sizes[p]
        expected[p] = k
    assert lpt(np.array(sizes), np.array(capacity)).tolist() == expected
