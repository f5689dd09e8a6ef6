"""TurboStream's scheduler: both algorithms followed by hand, the placements that come out, and its option."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Problem
from penstock.optimise.door import place
from penstock.optimise.objective import node_cost
from penstock.optimise.place.turbostream import Split, assign, consolidated, consolidation_tree, round_robin, schedule
from penstock.optimise.steps.kernighan_lin import improved


def graph_of(loads: dict[str, float], traffic: dict[str, float]) -> OperatorGraph:
    """Operators of one task; traffic keyed by two letters, source and target."""
    operators = tuple(Operator(name, load=load) for name, load in loads.items())
    return OperatorGraph("t", operators, tuple(Stream(ends[0], ends[1], rate=rate) for ends, rate in traffic.items()))


# Six operators of one task, in the manner of Figure 7 (whose drawing is not in the text), with these traffics:
#
#        5        4
#    s ----> a ------> c --1--> e
#    |                 ^        ^
#    | 3          2    |        | 7
#    +-----> b --------+        |
#            | 6                |
#            +-----> d ---------+
SIX = graph_of(dict.fromkeys("sabcde", 1.0), {"sa": 5, "sb": 3, "ac": 4, "bc": 2, "bd": 6, "ce": 1, "de": 7})


def edges(graph: TaskGraph) -> dict[tuple[int, int], float]:
    return dict(zip(zip(graph.source.tolist(), graph.target.tolist(), strict=True), graph.rate.tolist(), strict=True))


def test_one_level_consolidation_of_six_operators() -> None:
    # s: neighbours a (5), b (3); a is unvisited: parent 0 = {s, a}
    # a: visited
    # b: neighbours d (6), s (3), c (2); d is unvisited: parent 1 = {b, d}
    # c: neighbours a (4) and b (2) are visited, e (1) is not: parent 2 = {c, e}
    # d, e: visited
    tasks = TaskGraph.expand(SIX.validated())
    parent = consolidated(tasks)
    assert parent.tolist() == [0, 0, 1, 2, 1, 2]
    # Between parents: s->b 3; a->c 4; b->c 2 and d->e 7 together 9. What is inside (s->a, b->d, c->e) is gone.
    parents = tasks.quotient(parent)
    assert edges(parents) == {(0, 1): 3.0, (0, 2): 4.0, (1, 2): 9.0}
    assert parents.load.tolist() == [2.0, 2.0, 2.0]


def test_a_task_whose_neighbours_are_all_visited_is_its_own_parent() -> None:
    # a takes b (5 over 3), and c, which talks to a alone, is left.
    tasks = TaskGraph.expand(graph_of(dict.fromkeys("abc", 1.0), {"ab": 5, "ac": 3}))
    assert consolidated(tasks).tolist() == [0, 0, 1]


def test_consolidation_repeats_into_a_binary_tree_until_the_threshold() -> None:
    tasks = TaskGraph.expand(SIX)
    assert [level.graph.task_count for level in consolidation_tree(tasks, threshold=4)] == [3]
    # The second level: parent 0 has neighbours 2 (4) and 1 (3) and takes 2; parent 1 stays alone.
    levels = consolidation_tree(tasks, threshold=3)
    assert [level.parent.tolist() for level in levels] == [[0, 0, 1, 2, 1, 2], [0, 1, 0]]
    assert edges(levels[-1].graph) == {(0, 1): 3.0, (1, 0): 9.0}
    assert [level.graph.task_count for level in consolidation_tree(tasks, threshold=1)] == [3, 2, 1]


def test_consolidation_ends_where_nothing_is_joined_or_a_parent_would_be_too_heavy() -> None:
    apart = TaskGraph.expand(graph_of(dict.fromkeys("abc", 1.0), {}))
    assert [level.graph.task_count for level in consolidation_tree(apart, threshold=1)] == [3]
    assert [level.graph.task_count for level in consolidation_tree(TaskGraph.expand(SIX), 1, weight_max=3.0)] == [3]


def test_the_split_gathers_breadth_first_while_the_balance_improves() -> None:
    # a - b - c - d with traffics 5, 1, 5 and equal loads, for two equal nodes: target 1/2.
    tasks = TaskGraph.expand(graph_of(dict.fromkeys("abcd", 1.0), {"ab": 5, "bc": 1, "cd": 5}))
    split = Split(tasks, np.arange(4), target=0.5, factor=0.05)
    by_start = {start: split.gather(start) for start in range(4)}
    # From a: a (1/4), then its neighbour b (1/2), and the target is reached. From b: b, then a before c.
    # From c: c, then b before d, which cuts 5 + 5. From d: d, then c.
    assert {start: np.flatnonzero(got).tolist() for start, (got, _) in by_start.items()} == {
        0: [0, 1],
        1: [0, 1],
        2: [1, 2],
        3: [2, 3],
    }
    assert [balance for _, balance in by_start.values()] == [0.5] * 4
    assert [split.cut(got) for got, _ in by_start.values()] == [1.0, 1.0, 10.0, 1.0]
    assert split.best().tolist() == [True, True, False, False]  # the first of the least


def test_a_task_that_worsens_the_balance_is_skipped_and_an_unvisited_one_follows_an_empty_queue() -> None:
    # From a (3/10): its only neighbour b (6/10) would bring 9/10, further from 1/2 than 3/10, so it is skipped. The
    # queue is empty and 2/10 is beyond the factor: c (1/10), which nothing joins, is put in and brings 4/10.
    tasks = TaskGraph.expand(graph_of({"a": 3.0, "b": 6.0, "c": 1.0}, {"ab": 5}))
    gathered, balance = Split(tasks, np.arange(3), target=0.5, factor=0.05).gather(0)
    assert gathered.tolist() == [True, False, True]
    assert balance == pytest.approx(0.4)


def test_without_a_balanced_split_the_best_balanced_of_least_traffic_is_kept() -> None:
    # The three parents of SIX, 1/3 each, for two nodes: whichever starts is alone, since a second brings 2/3, as far
    # from 1/2 as 1/3. Traffic of each with the others: 3 + 4, 3 + 9, 4 + 9.
    parents = consolidation_tree(TaskGraph.expand(SIX), threshold=4)[0].graph
    split = Split(parents, np.arange(3), target=0.5, factor=0.05)
    assert [np.flatnonzero(split.gather(start)[0]).tolist() for start in range(3)] == [[0], [1], [2]]
    assert [split.cut(split.gather(start)[0]) for start in range(3)] == [7.0, 12.0, 13.0]
    assert split.best().tolist() == [True, False, False]


def test_the_placement_of_the_six_operators() -> None:
    problem = Problem(TaskGraph.expand(SIX), Cluster.uniform([(2, 4.0)]))
    placement = schedule(problem, Options())
    assert placement.node.tolist() == [0, 0, 1, 1, 1, 1]  # {s, a} and {b, c, d, e}
    assert node_cost(problem, placement.node) == 7.0
    assert placement.worker is not None
    assert placement.worker.tolist() == [0, 1, 0, 1, 2, 3]  # round-robin over the four workers of each node


def test_the_placement_of_the_row_of_four_on_three_nodes() -> None:
    # N = 3: N1 = 2, target 2/3 of four tasks that are not consolidated. From a: a, b (1/2), c, since 3/4 is nearer to
    # 2/3 than 1/2; cut 5. From b: b, a, c; cut 5. From c: c, b, d; cut 5. From d: d, c, b; cut 5. The first is kept.
    # {a, b, c} on two nodes, target 1/2: a alone (2/3 is as far off as 1/3), cut 5; b alone, cut 6; c alone, cut 1,
    # which is kept.
    tasks = TaskGraph.expand(graph_of(dict.fromkeys("abcd", 1.0), {"ab": 5, "bc": 1, "cd": 5}))
    node, all_starts = assign(tasks, np.array([4, 4, 4], dtype=np.int32), 0.05)
    assert node.tolist() == [1, 1, 0, 2]
    assert all_starts


def test_unequal_nodes_get_load_in_proportion_to_their_worker_slots() -> None:
    tasks = TaskGraph.expand(OperatorGraph("many", (Operator("a", 60), Operator("b", 60)), (Stream("a", "b"),)))
    node, _ = assign(tasks, np.array([6, 3, 2, 1], dtype=np.int32), 0.05)
    # 9 of 12 slots are the first half's: 90 of 120 tasks, within the factor of 5 % (6 tasks); then 2/3 of each half.
    filled = np.bincount(node)
    assert filled.tolist() == pytest.approx([60, 30, 20, 10], abs=6)
    assert filled[:2].sum() == pytest.approx(90, abs=6)


def test_round_robin_goes_over_each_nodes_slots() -> None:
    node = np.array([0, 1, 0, 0, 1, 0], dtype=np.int32)
    assert round_robin(node, np.array([3, 1], dtype=np.int32)).tolist() == [0, 0, 1, 2, 0, 0]


def test_an_overloading_plan_is_reported_by_the_door() -> None:
    # One heavy pair is consolidated, and no node holds it.
    graph = graph_of({"a": 3.0, "b": 3.0}, {"ab": 1})
    cluster = Cluster((Node("n1", 4.0), Node("n2", 4.0)))
    with pytest.raises(NoPlanFound, match="carries load 6 but its capacity is 4"):
        place(graph, cluster, "turbostream")
    assert place(graph, cluster, "turbostream", allow_overload=True).max_utilisation == 1.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("task_num_threshold", 0),
        ("task_num_threshold", 2.5),
        ("balance_factor", 0),
        ("balance_factor", 1.0),
        ("balance_factor", math.nan),
        ("balance_factor", "x"),
        ("kernighan_lin", 1),
    ],
)
def test_settings_that_cannot_be_are_named(name: str, value: object) -> None:
    problem = Problem(TaskGraph.expand(SIX), Cluster.uniform([(2, 4.0)]))
    with pytest.raises(InvalidInput, match=name):
        schedule(problem, Options(settings={name: value}))


def test_kernighan_lin_swaps_what_the_matching_got_wrong() -> None:
    # Two triangles, split the wrong way round; no node has room for a third task, so only a swap helps.
    tasks = TaskGraph.expand(
        graph_of(dict.fromkeys("abcdef", 1.0), {"ab": 5, "bc": 5, "ac": 5, "de": 5, "ef": 5, "df": 5, "cd": 1})
    )
    wrong = np.array([0, 0, 1, 0, 1, 1], dtype=np.int32)
    assert improved(tasks, wrong, np.array([3, 3], dtype=np.int32), 0.05).tolist() == [0, 0, 0, 1, 1, 1]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, 12))
    loads = draw(st.lists(st.floats(0.0, 2.0, width=16), min_size=count, max_size=count))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count) if draw(st.booleans())]
    operators = tuple(Operator(f"o{i}", load=load) for i, load in enumerate(loads))
    streams = tuple(Stream(f"o{a}", f"o{b}", rate=float(draw(st.integers(1, 9)))) for a, b in pairs)
    slots = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    nodes = tuple(Node(f"n{i}", 4.0, slots=count) for i, count in enumerate(slots))
    return Problem(TaskGraph.expand(OperatorGraph("random", operators, streams)), Cluster(nodes))


@given(problems(), st.one_of(st.none(), st.integers(1, 12)))
def test_every_plan_is_complete_and_repeats_and_swaps_never_cost(problem: Problem, threshold: int | None) -> None:
    settings: dict[str, object] = {} if threshold is None else {"task_num_threshold": threshold}
    placement = schedule(problem, Options(settings=settings))
    assert placement.worker is not None
    assert ((placement.node >= 0) & (placement.node < problem.node_count)).all()
    assert ((placement.worker >= 0) & (placement.worker < problem.slots[placement.node])).all()
    again = schedule(problem, Options(settings=settings))
    assert again.node.tolist() == placement.node.tolist()
    swapped = schedule(problem, Options(settings={**settings, "kernighan_lin": True}))
    assert node_cost(problem, swapped.node) <= node_cost(problem, placement.node) + 1e-9


@given(problems())
def test_tasks_of_one_parent_share_a_node(problem: Problem) -> None:
    placement = schedule(problem, Options())
    parent = consolidated(problem.graph)
    for number in range(int(parent.max()) + 1):
        assert len(set(placement.node[parent == number].tolist())) == 1
    assert all(np.bincount(parent) <= 2)
