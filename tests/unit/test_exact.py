"""`exact` against brute force over all assignments, on cases that must fail, and on the papers' 72 instances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unequal_instances import unequal_problem

from penstock.apps.layouts import LAYOUTS, PUBLISHED_SIZES, published_clusters
from penstock.errors import Infeasible, NoPlanFound
from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, Cluster, Node
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.exact import solver
from penstock.optimise.exact.neighbourhood_bound import neighbourhood_bound
from penstock.optimise.exact.proof import Varying
from penstock.optimise.objective import node_cost
from penstock.optimise.place import exact

# For 10, 12 .. 32 tasks. Diamond and star of 30 on the heterogeneous cluster are the papers' own figures.
PUBLISHED_OPTIMA = {
    ("linear", "homogeneous"): (8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28),
    ("diamond", "homogeneous"): (10, 22, 36, 48, 64, 78, 94, 108, 124, 138, 154, 168),
    ("star", "homogeneous"): (16, 22, 30, 36, 44, 52, 60, 68, 76, 84, 92, 100),
    ("linear", "heterogeneous"): (4, 4, 8, 8, 8, 12, 12, 16, 16, 20, 20, 24),
    ("diamond", "heterogeneous"): (8, 16, 30, 42, 54, 70, 84, 100, 114, 130, 146, 162),
    ("star", "heterogeneous"): (12, 16, 24, 32, 38, 46, 54, 62, 70, 78, 86, 94),
}


def keeps_limits(problem: Problem, node: Ints) -> bool:
    """Written apart from the solver's own check: one node at a time, one edge at a time."""
    graph = problem.graph
    edges = list(zip(graph.source.tolist(), graph.target.tolist(), graph.rate.tolist(), strict=True))
    for k in range(problem.node_count):
        here = {i for i in range(problem.task_count) if node[i] == k}
        if sum(graph.load[i] for i in here) > problem.capacity[k]:
            return False
        if sum(graph.memory_mb[i] for i in here) > problem.memory_mb[k]:
            return False
        if sum(r for a, b, r in edges if a in here and b not in here) > problem.bandwidth[k]:
            return False
        if sum(r for a, b, r in edges if b in here and a not in here) > problem.bandwidth[k]:
            return False
    return True


def brute_force(problem: Problem) -> float | None:
    """Least cost over every assignment, or None when none keeps the limits."""
    graph = problem.graph
    shape = (problem.node_count,) * problem.task_count
    every = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)
    crossing = every[:, graph.source] != every[:, graph.target]
    kept = np.ones(len(every), dtype=bool)
    for k in range(problem.node_count):
        here = every == k
        kept &= (here @ graph.load <= problem.capacity[k]) & (here @ graph.memory_mb <= problem.memory_mb[k])
        kept &= (crossing & here[:, graph.source]) @ graph.rate <= problem.bandwidth[k]
        kept &= (crossing & here[:, graph.target]) @ graph.rate <= problem.bandwidth[k]
    return float((crossing @ graph.rate)[kept].min()) if kept.any() else None


def agrees_with_brute_force(problem: Problem) -> Placement | None:
    optimum = brute_force(problem)
    if optimum is None:
        with pytest.raises(Infeasible):
            solver.solve(problem, Deadline.after(60.0), seed=0)
        return None
    placement = solver.solve(problem, Deadline.after(60.0), seed=0)
    assert keeps_limits(problem, placement.node)
    assert node_cost(problem, placement.node) == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert placement.proved_optimal
    assert placement.lower_bound <= optimum + 1e-6 * max(1.0, optimum)
    return placement


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    """Up to 6 tasks on up to 3 nodes, alike or not, with or without memory and bandwidth limits."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda s: sum(s) <= 6))
    alike = draw(st.booleans())
    amount = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.25])

    def amounts(count: int) -> tuple[float, ...]:
        return (draw(amount),) * count if alike else tuple(draw(amount) for _ in range(count))

    operators = tuple(Operator(f"o{k}", s, load=amounts(s), memory_mb=amounts(s)) for k, s in enumerate(sizes))
    streams = tuple(
        Stream(f"o{a}", f"o{b}", rate=tuple(amounts(sizes[b]) for _ in range(sizes[a])))
        for a, b in itertools.combinations(range(len(sizes)), 2)
        if draw(st.booleans())
    )
    limit = st.one_of(st.none(), st.sampled_from([1.0, 2.0, 4.0]))

    def node(k: int) -> Node:
        bandwidth = draw(limit)
        scaled = None if bandwidth is None else bandwidth / BYTES_PER_SECOND_PER_MBPS
        return Node(f"n{k}", draw(st.sampled_from([1.0, 2.0, 3.5])), memory_mb=draw(limit), bandwidth_mbps=scaled)

    cluster = Cluster(tuple(node(k) for k in range(draw(st.integers(1, 3)))))
    return Problem(TaskGraph.expand(OperatorGraph("small", operators, streams)), cluster)


@given(small_problems())
@settings(max_examples=120)
def test_cost_is_the_brute_force_optimum_and_proved(problem: Problem) -> None:
    agrees_with_brute_force(problem)


def whole_quick_bound(problem: Problem) -> float:
    varying = Varying(problem)
    return varying.fixed + neighbourhood_bound(varying)


@given(small_problems())
@settings(max_examples=60)
def test_quick_bound_is_below_the_optimum(problem: Problem) -> None:
    optimum = brute_force(problem)
    assert optimum is None or whole_quick_bound(problem) <= optimum + 1e-9


def test_quick_bound_sees_what_cannot_fit() -> None:
    problem = Problem(TaskGraph.expand(LAYOUTS["star"](30)), Cluster.uniform([(10, 4.0)]))
    # Each of 4 centres has 26 neighbours and room for 3; each of the 26 has 4 and room for 3.
    assert whole_quick_bound(problem) == pytest.approx((4 * 23 + 26 * 1) / 2)


@given(small_problems())
@settings(max_examples=80)
def test_column_generation_alone_is_the_brute_force_optimum(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver, "build_model", lambda *_: None)
        agrees_with_brute_force(problem)


@pytest.mark.parametrize("seed", range(6))
def test_unequal_tasks_agree_with_brute_force(seed: int) -> None:
    problem = unequal_problem(7, seed)
    loads = problem.graph.load
    capacity = max(float(loads.sum()) / 4 * 1.3, float(loads.max()))
    nodes = tuple(Node(f"n{k}", capacity * (1.0 + 0.4 * (k == 0))) for k in range(4))
    agrees_with_brute_force(Problem(problem.graph, Cluster(nodes)))


@pytest.mark.parametrize("cluster", ["homogeneous", "heterogeneous"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tasks", PUBLISHED_SIZES)
def test_published_instances_are_proved(layout: str, cluster: str, tasks: int) -> None:
    problem = Problem(TaskGraph.expand(LAYOUTS[layout](tasks)), published_clusters()[cluster])
    placement = exact.schedule(problem, Options())
    cost = node_cost(problem, placement.node)
    assert placement.proved_optimal
    assert keeps_limits(problem, placement.node)
    assert placement.lower_bound == cost
    assert cost == PUBLISHED_OPTIMA[layout, cluster][PUBLISHED_SIZES.index(tasks)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_models_agree_on_published_instances(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(TaskGraph.expand(LAYOUTS[layout](20)), published_clusters()["heterogeneous"])
    by_classes = exact.schedule(problem, Options())
    monkeypatch.setattr(solver, "build_model", lambda *_: None)
    by_columns = exact.schedule(problem, Options())
    assert by_columns.proved_optimal
    assert node_cost(problem, by_columns.node) == node_cost(problem, by_classes.node)


@pytest.mark.parametrize("seed", range(3))
def test_unequal_tasks_are_proved(seed: int) -> None:
    problem = unequal_problem(20, seed)
    placement = exact.schedule(problem, Options(seed=seed))
    assert placement.proved_optimal
    assert keeps_limits(problem, placement.node)


def test_everything_on_one_node_costs_nothing() -> None:
    problem = Problem(TaskGraph.expand(LAYOUTS["diamond"](20)), Cluster.uniform([(3, 2.0), (1, 20.0)]))
    placement = exact.schedule(problem, Options())
    assert (node_cost(problem, placement.node), placement.lower_bound, placement.proved_optimal) == (0.0, 0.0, True)


def test_independent_parts_are_packed_without_a_cut() -> None:
    chains = tuple(Operator(f"{name}{k}", 2) for k in range(4) for name in "ab")
    graph = OperatorGraph("parts", chains, tuple(Stream(f"a{k}", f"b{k}") for k in range(4)))
    placement = exact.schedule(Problem(TaskGraph.expand(graph), Cluster.uniform([(4, 4.0)])), Options())
    assert placement.proved_optimal
    assert placement.lower_bound == 0.0


@pytest.mark.parametrize(
    ("loads", "capacities"),
    [([3.0] * 5, [(3, 5.0)]), ([3.0, 3.1, 3.2, 3.3, 3.4], [(4, 4.5)])],
)
def test_bin_packing_that_cannot_be_is_infeasible(loads: list[float], capacities: list[tuple[int, float]]) -> None:
    graph = OperatorGraph("tight", (Operator("a", len(loads), load=tuple(loads)),))
    with pytest.raises(Infeasible, match="no plan exists"):
        exact.schedule(Problem(TaskGraph.expand(graph), Cluster.uniform(capacities)), Options())


def test_a_task_that_no_node_can_hold_is_named() -> None:
    graph = OperatorGraph("mixed", (Operator("a", 1, load=2.0, memory_mb=1.0),))
    cluster = Cluster((Node("fast", 4.0, memory_mb=0.5), Node("large", 1.0, memory_mb=8.0)))
    with pytest.raises(Infeasible, match="'a/0' needs load 2 and 1 MB"):
        exact.schedule(Problem(TaskGraph.expand(graph), cluster), Options())


def test_no_time_and_no_plan_is_not_called_infeasible() -> None:
    loads = np.random.default_rng(3).uniform(1.0, 2.0, 90)
    graph = OperatorGraph("tight", (Operator("a", 90, load=tuple(loads.tolist())),))
    cluster = Cluster.uniform([(30, float(loads.sum()) / 30 * 1.00001)])
    with pytest.raises(NoPlanFound, match="raise --theta"):
        solver.solve(Problem(TaskGraph.expand(graph), cluster), Deadline.after(0.0), seed=0)


def test_a_stopped_search_still_gives_a_plan_and_a_true_bound() -> None:
    problem = unequal_problem(30, 1)
    stopped = solver.solve(problem, Deadline.after(0.05), seed=0)
    optimum = solver.solve(problem, Deadline.after(60.0), seed=0)
    assert optimum.proved_optimal
    assert keeps_limits(problem, stopped.node)
    assert stopped.lower_bound <= node_cost(problem, optimum.node) + 1e-6
    assert stopped.lower_bound <= node_cost(problem, stopped.node)


def test_a_given_start_is_never_made_worse() -> None:
    problem = unequal_problem(30, 2)
    optimum = solver.solve(problem, Deadline.after(60.0), seed=0)
    again = solver.solve(problem, Deadline.after(0.0), seed=5, start=optimum.node)
    assert node_cost(problem, again.node) == pytest.approx(node_cost(problem, optimum.node))


def test_same_seed_same_plan() -> None:
    problem = unequal_problem(24, 4)
    first, second = (exact.schedule(problem, Options(seed=7)) for _ in range(2))
    np.testing.assert_array_equal(first.node, second.node)
