"""T3-Scheduler: the paper's three worked examples step by step, its linear cases, and plans that always fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps.layouts import PUBLISHED_SIZES, linear, published_clusters, star
from penstock.errors import Infeasible, NoPlanFound
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Problem
from penstock.optimise.door import place
from penstock.optimise.place.t3 import Step, first_level, schedule

# Appendix A: (1,4) = (1,5) = (1,6) = 10 is the highest rate, all nine sum to 81, and (2,5) is above (3,5).
RATES_OF_A_AND_B = ((10.0, 10.0, 10.0), (9.0, 9.0, 9.0), (8.0, 8.0, 8.0))


def traced(graph: OperatorGraph, cluster: Cluster, seed: int = 0) -> tuple[Problem, list[int], list[Step]]:
    problem = Problem(TaskGraph.expand(graph.validated()), cluster)
    trace: list[Step] = []
    node, _ = first_level(problem, seed, trace)
    return problem, node.tolist(), trace


def numbered(trace: list[Step], node: int) -> list[tuple[str, tuple[int, ...], float]]:
    """The steps on one node with tasks numbered from 1, as the paper numbers them, and without the slack on room."""
    return [
        (step.what, tuple(task + 1 for task in step.tasks), pytest.approx(step.weight, abs=1e-6))
        for step in trace
        if step.node == node
    ]


def test_appendix_a_partitions_a_group_pair_by_its_heaviest_task_pairs() -> None:
    assert sum(map(sum, RATES_OF_A_AND_B)) == 81
    graph = OperatorGraph("a", (Operator("A", 3), Operator("B", 3)), (Stream("A", "B", rate=RATES_OF_A_AND_B),))
    _, node, trace = traced(graph, Cluster.uniform([(2, 4.0)]))
    assert numbered(trace, 0) == [
        ("node", (), 4.0),
        ("start", (1, 2, 3, 4, 5, 6), 81.0),
        ("scenario 1", (1, 4), 10.0),  # (1,4), (1,5), (1,6) are equal: the first of them
        ("scenario 2", (2, 5), 9.0),  # (1,5) is next; 1 is taken, and of (2,5) and (3,5) the former is higher
        ("partition", (1, 4, 2, 5), 10.0 + 10.0 + 9.0 + 9.0),
        ("full", (1, 2, 4, 5), 0.0),
    ]
    assert numbered(trace, 1) == [
        ("node", (), 4.0),
        ("start", (3, 6), 8.0),  # (A2, B2)
        ("full", (3, 6), 2.0),
    ]
    assert node == [0, 0, 1, 0, 0, 1]


def test_appendix_b_partitions_a_single_group_by_its_rates_into_the_sub_graph() -> None:
    # Z makes (Z, A) the starting point, so that B has to join what is already there with 2 alpha of room left.
    graph = OperatorGraph(
        "b",
        (Operator("A", 3), Operator("B", 3), Operator("Z", 1)),
        (Stream("Z", "A", rate=100.0), Stream("A", "B", rate=RATES_OF_A_AND_B)),
    )
    _, node, trace = traced(graph, Cluster.uniform([(1, 6.0), (1, 1.0)]))
    assert numbered(trace, 0) == [
        ("node", (), 6.0),
        ("start", (1, 2, 3, 7), 300.0),
        ("neighbour", (4, 5, 6), 81.0),
        ("partition", (4, 5), 54.0),  # by (1,4), then by (1,5)
        ("full", (1, 2, 3, 4, 5, 7), 0.0),
    ]
    assert node == [0, 0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_appendix_c_schedules_top_trending_topics(seed: int) -> None:
    a, b, c = 3.0, 2.0, 1.0
    graph = OperatorGraph(
        "top trending topics",
        (Operator("A", 5), Operator("B", 9), Operator("C", 4), Operator("D", 1)),
        (Stream("A", "B", rate=a), Stream("B", "C", rate=b), Stream("C", "D", rate=c)),
    )
    capacities = {"1": 6.0, "2": 4.0, "3": 10.0, "4": 6.0, "5": 5.0}
    cluster = Cluster(
        tuple(
            Node(name, size, slots=4 if name == "3" else 2, worker_capacity=None) for name, size in capacities.items()
        )
    )
    _, _, trace = traced(graph, cluster, seed)
    operator_a, operator_b = tuple(range(1, 6)), tuple(range(6, 15))
    operator_c, operator_d = tuple(range(15, 19)), (19,)
    # Node 3 is the largest: (A, B) weighs 45a and has 14 tasks for a room of 10.
    steps = numbered(trace, 2)
    assert steps[:2] == [("node", (), 10.0), ("start", operator_a + operator_b, 45 * a)]
    assert [what for what, _, _ in steps[2:7]] == ["scenario 1"] + ["scenario 2"] * 4
    assert steps[8] == ("full", operator_a + operator_b[:5], 0.0)
    # Nodes 1 and 4 are equal: node 1 for seed 0, as in the paper. (B2, C) weighs 16b and has 8 tasks for a room of 6.
    second, third = [step.node for step in trace if step.what == "node"][1:]
    assert {second, third} == {0, 3}
    if seed == 0:
        assert (second, third) == (0, 3)
    steps = numbered(trace, second)
    assert steps[:2] == [("node", (), 6.0), ("start", operator_b[5:] + operator_c, 16 * b)]
    assert steps[-2][0::2] == ("partition", 9 * b)
    assert steps[-1] == ("full", operator_b[5:8] + operator_c[:3], 0.0)
    # The last: (B3, C2) weighs b, then D, its only neighbour.
    assert numbered(trace, third) == [
        ("node", (), 6.0),
        ("start", (operator_b[8], operator_c[3]), b),
        ("neighbour", operator_d, c),
        ("full", (operator_b[8], operator_c[3], *operator_d), 3.0),
    ]
    plan = place(graph, cluster, "t3", options=Options(seed=seed, tasks_per_worker=6))
    workers = {name: len({slot.worker for slot in plan.assignment.values() if slot.node == name}) for name in "314"}
    assert workers == {"3": 2, "1": 1, "4": 1} if seed == 0 else sorted(workers.values()) == [1, 1, 2]


def optimal_linear_costs(cluster: Cluster) -> list[float]:
    """Least cost of a row of 1, 2, ... operators of two tasks, by dynamic programming over all placements.

    Only consecutive operators talk, so all that matters about the past is each node's room and how many tasks of the
    last operator it holds; nodes alike in both are interchangeable.
    """
    State = tuple[tuple[int, int], ...]
    states: dict[State, int] = {tuple(sorted((int(node.capacity), 0) for node in cluster.nodes)): 0}
    best: list[float] = []
    for position in range(max(PUBLISHED_SIZES) // 2):
        following: dict[State, int] = {}
        for state, cost in states.items():
            for places in _two_places(state):
                together = sum(state[k][1] for k in places)
                added = 0 if position == 0 else 4 - together
                after = tuple(sorted((room - places.count(k), places.count(k)) for k, (room, _) in enumerate(state)))
                following[after] = min(following.get(after, cost + added), cost + added)
        states = following
        best.append(min(states.values()))
    return best


def _two_places(state: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    seen = set()
    for i, first in enumerate(state):
        for j in range(i, len(state)):
            kind = (first, state[j], i == j)
            if kind not in seen and first[0] >= 1 + (i == j) and state[j][0] >= 1:
                seen.add(kind)
                yield i, j


@pytest.mark.parametrize("name", ["homogeneous", "heterogeneous"])
def test_the_linear_cases_of_section_5_are_optimal(name: str) -> None:
    cluster = published_clusters()[name]
    optimum = optimal_linear_costs(cluster)
    costs = {size: place(linear(size), cluster, "t3").cost for size in PUBLISHED_SIZES}
    assert costs == {size: optimum[size // 2 - 1] for size in PUBLISHED_SIZES}


def test_lone_groups_share_nodes() -> None:
    # The centre is gone with the first node; a node for each of the sources and sinks would be too many.
    graph = star(32)
    plan = place(graph, published_clusters()["heterogeneous"], "t3")
    assert check_plan(graph, published_clusters()["heterogeneous"], plan) == []
    assert plan.nodes_used < len(graph.operators)


def test_a_neighbour_of_which_no_task_fits_is_passed_over() -> None:
    graph = OperatorGraph(
        "passed over",
        (Operator("a"), Operator("b"), Operator("large", load=2.0), Operator("small")),
        (Stream("a", "b", rate=9.0), Stream("b", "large", rate=5.0), Stream("b", "small", rate=1.0)),
    )
    _, node, _ = traced(graph, Cluster.uniform([(1, 3.0), (1, 2.0)]))
    assert node == [0, 0, 1, 0]


def test_no_two_tasks_of_the_pair_fit_together() -> None:
    graph = OperatorGraph("singles", (Operator("a", 2), Operator("b", 2)), (Stream("a", "b"),))
    _, node, _ = traced(graph, Cluster.uniform([(4, 1.0)]))
    assert sorted(node) == [0, 1, 2, 3]


def test_nodes_with_room_are_selected_again_when_all_were_filled() -> None:
    # Each pair fills its node but for 1, and the neighbours a node has are too large for that.
    graph = OperatorGraph(
        "again",
        (Operator("a", 2, load=2.0), Operator("b", 2, load=2.0), Operator("lone", 2)),
        (Stream("a", "b"),),
    )
    problem = Problem(TaskGraph.expand(graph), Cluster.uniform([(2, 5.0)]))
    placement = schedule(problem, Options())
    assert np.bincount(placement.node, problem.graph.load).tolist() == [5.0, 5.0]
    assert "selected again" in placement.notes[0]


def test_a_fragmented_cluster_is_an_error_that_says_what_is_left() -> None:
    graph = OperatorGraph("tight", (Operator("a", 3, load=2.0),))
    with pytest.raises(NoPlanFound, match=r"1 tasks of load 2 are left over \('a/2'\).*room for 1 .*needs 2"):
        place(graph, Cluster.uniform([(2, 3.0)]), "t3")


def test_a_cluster_too_small_is_infeasible_and_says_by_how_much() -> None:
    with pytest.raises(Infeasible, match="2 short"):
        place(linear(10), Cluster.uniform([(2, 4.0)]), "t3")


@st.composite
def topologies(draw: st.DrawFn) -> OperatorGraph:
    count = draw(st.integers(1, 5))
    numbers = st.floats(0.0, 3.0, allow_nan=False, width=16)
    operators = []
    for k in range(count):
        tasks = draw(st.integers(1, 4))
        operators.append(Operator(f"o{k}", tasks, tuple(draw(st.lists(numbers, min_size=tasks, max_size=tasks)))))
    streams = []
    for a in range(count):
        for b in range(a + 1, count):
            if draw(st.booleans()):
                row = st.lists(numbers, min_size=operators[b].tasks, max_size=operators[b].tasks).map(tuple)
                rate = draw(st.lists(row, min_size=operators[a].tasks, max_size=operators[a].tasks).map(tuple))
                streams.append(Stream(f"o{a}", f"o{b}", rate=rate))
    return OperatorGraph("random", tuple(operators), tuple(streams))


@given(topologies(), st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 3))
def test_every_plan_is_complete_and_fits_and_repeats(graph: OperatorGraph, capacities: list[int], seed: int) -> None:
    cluster = Cluster.uniform([(1, float(capacity)) for capacity in capacities])
    try:
        plan = place(graph, cluster, "t3", options=Options(seed=seed))
    except (Infeasible, NoPlanFound):
        return
    assert check_plan(graph, cluster, plan) == []
    assert place(graph, cluster, "t3", options=Options(seed=seed)).assignment == plan.assignment


@given(topologies(), st.integers(0, 3))
def test_ample_nodes_always_suffice(graph: OperatorGraph, seed: int) -> None:
    # One node of capacity 3 for each task: no load above 3 exists, so nothing can be left over.
    cluster = Cluster.uniform([(graph.task_count, 3.0)])
    plan = place(graph, cluster, "t3", options=Options(seed=seed))
    assert check_plan(graph, cluster, plan) == []
