"""I-Scheduler: the paper's example iteration by iteration, its fallbacks, and phi found by experiment."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps.layouts import linear, published_clusters, star
from penstock.errors import Infeasible, InvalidInput, NoPlanFound
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.door import place
from penstock.optimise.objective import node_cost, overfull
from penstock.optimise.place.ischeduler import first_level, schedule, schedule_with, solved

THETA = 60.0  # the stand-in for the solver looks at no clock


def brute_force(problem: Problem, deadline: Deadline, seed: int) -> Placement:
    """Stands in for the exact solver: every assignment that fits, cut off where it is already dearer than the best."""
    graph, room = problem.graph, problem.capacity.copy()
    node = np.full(problem.task_count, -1, dtype=np.int32)
    best: tuple[float, list[int]] = (math.inf, [])
    adjacency = graph.adjacency

    def descend(task: int, cost: float) -> None:
        nonlocal best
        if cost >= best[0]:
            return
        if task == problem.task_count:
            best = (cost, node.tolist())
            return
        row = slice(adjacency.start[task], adjacency.start[task + 1])
        tried = set()
        for k in range(problem.node_count):
            kind = (float(problem.capacity[k]), k if (node == k).any() else -1)  # empty nodes of one size are alike
            if kind in tried or graph.load[task] > room[k]:
                continue
            tried.add(kind)
            placed = node[adjacency.neighbour[row]]
            node[task] = k
            room[k] -= graph.load[task]
            descend(task + 1, cost + float(adjacency.weight[row][(placed >= 0) & (placed != k)].sum()))
            node[task] = -1
            room[k] += graph.load[task]

    descend(0, 0.0)
    if not best[1]:
        msg = "no assignment fits"
        raise Infeasible(msg)
    return Placement(np.array(best[1], dtype=np.int32), lower_bound=best[0], proved_optimal=True)


def clumps(sizes: tuple[int, ...], inside: float = 10.0) -> OperatorGraph:
    """Clumps of one-task operators, all pairs within one talking, and a thin chain between clumps."""
    streams, first = [], 0
    for number, size in enumerate(sizes):
        members = range(first, first + size)
        streams += [Stream(f"o{a}", f"o{b}", rate=inside - number) for a, b in itertools.combinations(members, 2)]
        if first:
            streams.append(Stream(f"o{first - 1}", f"o{first}", rate=1.0))
        first += size
    return OperatorGraph("clumps", tuple(Operator(f"o{i}") for i in range(first)), tuple(streams))


def problem_of(graph: OperatorGraph, cluster: Cluster) -> Problem:
    return Problem(TaskGraph.expand(graph.validated()), cluster)


# Section 4.5: 12 tasks, one node of capacity 4, two of 3, one of 2, phi 8. The figure with the task graph is not in
# the text; clumps of 4, 3, 3 and 2 are a graph on which the best cut is plain to see.
EXAMPLE = problem_of(clumps((4, 3, 3, 2)), Cluster.uniform([(1, 4.0), (2, 3.0), (1, 2.0)]))


def test_the_example_of_section_4_5_iteration_by_iteration() -> None:
    fusion = first_level(EXAMPLE, phi=8, seed=0)
    first, second = fusion.iterations
    assert (first.t, first.f, round(first.c), first.q) == (12, 0, 4, 1)
    assert first.k == 3  # formula 6: ceil(12 / 4)
    assert math.ceil((first.t + first.f - 8) / (round(first.c) - 1)) == 2  # formula 8 wants two parts fused,
    assert first.alpha == 1  # but there is one node of capacity 4 (formula 9)
    assert (second.t, second.f, round(second.c), second.q) == (8, 1, 3, 2)
    assert second.k == 3
    assert second.alpha == 1  # ceil((8 + 1 - 8) / (3 - 1)); without f nothing would be fused, against the paper's text
    assert len(fusion.left) + len(fusion.parts) <= 8
    assert fusion.optimising
    sizes = [len(part) for part in fusion.parts]
    assert sizes[0] == 4
    assert sizes[1] in (2, 3)


def test_the_example_of_section_4_5_ends_with_a_plan_that_fills_every_node() -> None:
    placement = schedule_with(EXAMPLE, 8, THETA, 0, brute_force)
    assert np.bincount(placement.node).tolist() == [4, 3, 3, 2]
    assert node_cost(EXAMPLE, placement.node) == 3.0  # only the chain is cut
    assert not placement.proved_optimal  # parts were fused


def test_nothing_is_fused_when_phi_covers_the_graph_and_the_proof_stands() -> None:
    problem = problem_of(linear(10), published_clusters()["homogeneous"])
    placement = schedule_with(problem, 10, THETA, 0, brute_force)
    assert first_level(problem, 10, 0).parts == []
    assert placement.proved_optimal
    assert placement.lower_bound == node_cost(problem, placement.node) == 8.0


def test_homogeneous_nodes_need_one_iteration() -> None:
    fusion = first_level(problem_of(linear(32), published_clusters()["homogeneous"]), 0, 0)
    assert [(it.k, it.alpha) for it in fusion.iterations] == [(8, 8)]
    assert len(fusion.left) == 0


def test_parts_smaller_than_nodes_are_followed_by_another_cut_for_the_same_nodes() -> None:
    # Formula 8 asks for ceil((26 - 8) / 3) = 6 parts as if all had 4 tasks; 26 tasks in 7 parts have 3 or 4.
    fusion = first_level(problem_of(linear(26), published_clusters()["homogeneous"]), 8, 0)
    first, *rest = fusion.iterations
    assert (first.k, first.alpha, first.q) == (7, 6, 10)
    assert all(it.q == 4 and round(it.c) == 4 for it in rest)
    assert fusion.optimising
    assert len(fusion.left) + len(fusion.parts) <= 8


def test_k_above_phi_falls_back_to_the_heuristic() -> None:
    fusion = first_level(problem_of(linear(32), published_clusters()["homogeneous"]), 4, 0)
    assert not fusion.optimising
    assert [(it.k, it.alpha) for it in fusion.iterations] == [(8, 8)]


def test_capacity_one_does_not_divide_by_zero() -> None:
    problem = problem_of(linear(4), Cluster.uniform([(4, 1.0)]))
    placement = schedule_with(problem, 3, THETA, 0, brute_force)
    assert sorted(placement.node.tolist()) == [0, 1, 2, 3]


def test_what_fits_one_node_is_fused_into_one_task() -> None:
    fusion = first_level(problem_of(linear(4), published_clusters()["homogeneous"]), 0, 0)
    assert [part.tolist() for part in fusion.parts] == [[0, 1, 2, 3]]


def test_unpackable_parts_fall_back_to_the_heuristic_with_a_note() -> None:
    def refuses(problem: Problem, deadline: Deadline, seed: int) -> Placement:
        msg = "no packing"
        raise Infeasible(msg)

    placement = schedule_with(EXAMPLE, 8, THETA, 0, refuses)
    assert placement.notes == ("fell back to the heuristic for phi 8: no packing",)
    assert overfull(EXAMPLE, placement.node) == []
    assert (placement.node >= 0).all()


def test_parts_with_a_task_too_large_for_the_next_nodes_go_first() -> None:
    # The pair of light tasks talks most, but the heavy task fits the large node only.
    graph = OperatorGraph(
        "heavy",
        (Operator("a", load=1.5), Operator("b", load=1.5), Operator("heavy", load=2.5)),
        (Stream("a", "b", rate=9.0),),
    )
    cluster = Cluster.uniform([(1, 3.0), (2, 2.0)])
    plan = place(graph, cluster, "ischeduler", options=Options(theta=0))
    assert plan.assignment["heavy/0"].node == "n1"


def test_node_types_used_up_is_an_error_that_says_so() -> None:
    graph = OperatorGraph("tight", (Operator("a", 3, load=2.0),))
    with pytest.raises(NoPlanFound, match=r"used up all 1 types of nodes \(2 nodes\) and 1 tasks of load 2 are left"):
        place(graph, Cluster.uniform([(2, 3.0)]), "ischeduler", options=Options(theta=0))


@pytest.mark.parametrize("phi", [-1, 2.5, "8", True])
def test_phi_must_be_a_count(phi: object) -> None:
    with pytest.raises(InvalidInput, match="phi is"):
        schedule(EXAMPLE, Options(settings={"phi": phi}))


def test_the_solver_sees_cpu_only() -> None:
    cluster = Cluster((Node("n1", 8.0, memory_mb=1.0, bandwidth_mbps=1.0),))
    seen: list[Problem] = []

    def remembers(problem: Problem, deadline: Deadline, seed: int) -> Placement:
        seen.append(problem)
        return brute_force(problem, deadline, seed)

    graph = problem_of(clumps((2, 2)), cluster)
    solved(graph, first_level(graph, 8, 0), Deadline.after(THETA), 0, remembers)
    assert np.isinf(seen[0].memory_mb).all()
    assert np.isinf(seen[0].bandwidth).all()


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, 7))
    unequal = draw(st.booleans())
    loads = draw(st.lists(st.floats(0.25, 2.0, width=16), min_size=count, max_size=count)) if unequal else [1.0] * count
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if draw(st.booleans())]
    operators = tuple(Operator(f"o{i}", load=load) for i, load in enumerate(loads))
    streams = tuple(Stream(f"o{a}", f"o{b}", rate=float(draw(st.integers(1, 9)))) for a, b in pairs)
    capacities = draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    return problem_of(OperatorGraph("random", operators, streams), Cluster.uniform([(1, float(c)) for c in capacities]))


@given(problems(), st.integers(0, 6), st.integers(0, 3))
def test_every_plan_is_complete_and_fits_and_repeats(problem: Problem, phi: int, seed: int) -> None:
    try:
        problem.require_plausible()
        placement = schedule_with(problem, phi, THETA, seed, brute_force)
    except (Infeasible, NoPlanFound):
        return
    assert (placement.node >= 0).all()
    assert overfull(problem, placement.node) == []
    again = schedule_with(problem, phi, THETA, seed, brute_force)
    assert again.node.tolist() == placement.node.tolist()
    assert node_cost(problem, placement.node) >= brute_force(problem, Deadline.after(THETA), 0).lower_bound - 1e-9


def test_the_door_certifies_the_heuristic_on_a_published_case() -> None:
    graph, cluster = star(30), published_clusters()["heterogeneous"]
    plan = place(graph, cluster, "ischeduler", options=Options(theta=0))
    assert check_plan(graph, cluster, plan) == []


def test_a_quotient_sums_loads_memory_and_rates() -> None:
    graph = OperatorGraph(
        "q",
        (Operator("a", 2, load=1.0, memory_mb=3.0), Operator("b", load=2.0), Operator("c", load=4.0)),
        (Stream("a", "b", rate=5.0), Stream("b", "c", rate=7.0)),
    )
    quotient = TaskGraph.expand(graph).quotient(np.array([0, 1, 0, 1]))
    assert quotient.load.tolist() == [3.0, 5.0]
    assert quotient.memory_mb.tolist() == [3.0, 3.0]
    edges = zip(quotient.source.tolist(), quotient.target.tolist(), quotient.rate.tolist(), strict=True)
    assert list(edges) == [(0, 1, 7.0), (1, 0, 5.0)]  # b -> c, and a/1 -> b; a/0 -> b is inside
