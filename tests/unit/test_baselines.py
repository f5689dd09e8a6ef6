"""The schedulers that the papers compare with, on inputs small enough to work out by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.objective import node_cost
from penstock.optimise.place import SCHEDULERS, even, ffd, flink, ols, ols_as_shipped, ras, rstorm
from penstock.optimise.steps.operator_pairs import OperatorLinks
from penstock.optimise.steps.pairwise import NoBin, PairwisePacking
from penstock.testing import instances


def graph_of(operators: list[Operator], streams: list[tuple[str, str, float]] = ()) -> OperatorGraph:
    return OperatorGraph("t", tuple(operators), tuple(Stream(a, b, rate=r) for a, b, r in streams)).validated()


def problem_of(graph: OperatorGraph, *nodes: Node) -> Problem:
    return Problem(TaskGraph.expand(graph), Cluster(nodes).validated())


def where(problem: Problem, placement: Placement) -> dict[str, str]:
    return {task: problem.cluster.nodes[k].name for task, k in zip(problem.graph.ids, placement.node, strict=True)}


def run(schedule: object, problem: Problem, **settings: object) -> Placement:
    return schedule.schedule(problem, Options(settings=settings))


class TestEven:
    def test_it_deals_slots_node_by_node_starting_with_the_node_that_has_most(self) -> None:
        # Slots: a 1, b 3. Most first: b, a. Interleaved: b0 a0 b1 b2. Six tasks: b0 a0 b1 b2, then b0 a0 again.
        problem = problem_of(graph_of([Operator("x", 6)]), Node("a", 9, slots=1), Node("b", 9, slots=3))
        placement = run(even, problem)
        assert list(where(problem, placement).values()) == ["b", "a", "b", "b", "b", "a"]
        assert placement.worker.tolist() == [0, 0, 1, 2, 0, 0]


class TestOlsFormulas:
    @pytest.mark.parametrize(
        ("alfa", "expected"),
        [
            (0.0, 3),  # mn = ceil(10 / 4) = 3
            (1.0, 7),  # mx = 10 - 4 + 1 = 7: one worker may take all but one task for each other worker
            (0.5, 5),  # 3 + ceil(0.5 * (7 - 3)) = 5
            (0.1, 4),  # 3 + ceil(0.4) = 4
        ],
    )
    def test_tasks_per_worker(self, alfa: float, expected: int) -> None:
        assert ols.tasks_per_worker_max(10, 4, alfa) == expected

    def test_worker_load(self) -> None:
        assert ols.worker_load_max(10.0, 4, 1.5) == 3.0  # floor(1.5 * 10 / 4 = 3.75)
        assert ols.worker_load_max(10.0, 4, None) == float("inf")

    @pytest.mark.parametrize(
        ("workers", "nodes", "beta", "expected"),
        [
            (12, 6, 1.0, 6),  # n = 6, mn = ceil(12 / 6) = 2, mx = 6: 2 + ceil(1 * 4)
            (12, 6, 0.0, 2),
            (12, 6, 0.3, 4),  # 2 + ceil(1.2)
            (3, 10, 1.0, 3),  # n = min(10, 3)
            (30, 2, 0.0, 2),  # mn = 15 is more than there are nodes: capped at 2
        ],
    )
    def test_nodes_to_use(self, workers: int, nodes: int, beta: float, expected: int) -> None:
        assert ols.nodes_to_use(workers, nodes, beta) == expected

    @pytest.mark.parametrize(
        ("delta", "expected"),
        [(0.0, 3), (1.0, 9), (0.4, 6)],  # mn = ceil(12 / 4) = 3, mx = 12 - 4 + 1 = 9; 3 + ceil(0.4 * 6 = 2.4)
    )
    def test_workers_per_node(self, delta: float, expected: int) -> None:
        assert ols.workers_per_node_max(12, 4, delta) == expected

    def test_settings_out_of_range_are_all_named(self) -> None:
        problem = problem_of(graph_of([Operator("x")]), Node("a", 9))
        with pytest.raises(InvalidInput) as caught:
            run(ols, problem, alfa=2, beta=-1, delta="half", gamma=0.5, improvement=101, workers=1.5)
        assert len(caught.value.faults) == 6
        assert "setting 'gamma' is 0.5; it must be 1 or more" in caught.value.faults
        assert "setting 'delta' is 'half'; it must be a number" in caught.value.faults
        assert "setting 'workers' is 1.5; it must be a whole number" in caught.value.faults

    @pytest.mark.parametrize("value", [True, float("nan"), float("inf"), 0])
    def test_workers_must_be_a_whole_number_of_at_least_one(self, value: object) -> None:
        problem = problem_of(graph_of([Operator("x")]), Node("a", 9))
        with pytest.raises(InvalidInput, match="workers"):
            run(ols, problem, workers=value)

    def test_the_registry_knows_every_setting(self) -> None:
        known = tuple(field.name for field in fields(ols.Parameters))
        assert SCHEDULERS["ols"].settings == SCHEDULERS["ols-as-shipped"].settings == known

    def test_not_a_number_is_refused(self) -> None:
        problem = problem_of(graph_of([Operator("x")]), Node("a", 9))
        with pytest.raises(InvalidInput, match="alfa"):
            run(ols, problem, alfa=float("nan"))


class TestOls:
    def test_heavy_pairs_share_a_worker(self) -> None:
        # E = 4, S = 2: two tasks a worker. a-b 9 comes first: worker 0. c-d 8: worker 1 is empty, so least loaded.
        # b-c 1: candidates 0 and 1; any swap loses 9 + 8, so nothing moves. Nodes: nodesToUse = 2, one worker each.
        graph = graph_of([Operator(name) for name in "abcd"], [("a", "b", 9.0), ("b", "c", 1.0), ("c", "d", 8.0)])
        problem = problem_of(graph, Node("n1", 4), Node("n2", 4))
        placement = run(ols, problem, workers=2)
        assert where(problem, placement) == {"a/0": "n1", "b/0": "n1", "c/0": "n2", "d/0": "n2"}
        assert node_cost(problem, placement.node) == 1.0

    def test_a_task_moves_to_the_pair_that_comes_later_when_that_saves_traffic(self) -> None:
        # E = 4, S = 2, alfa 1: up to 3 tasks a worker. a-b 5 to worker 0; c-d 4 to worker 1 (least loaded).
        # b-c 3: candidates 0, 1; a and d stay. Kept: (b0, c0) 5 + 3 = 8; (b0, c1) 5 + 4 = 9; (b1, c1) 4 + 3 = 7.
        # (b0, c1) wins: unchanged. b-d 3: b with a in 0 (5); d with c in 1 (4). (b0, d0) 5 + 3 = 8; (b0, d1) 5 + 4 = 9.
        # (b1, d1): b keeps c 3 + d 4 + pair 3 = 10. So b moves to worker 1, and a stays alone.
        graph = graph_of(
            [Operator(name) for name in "abcd"],
            [("a", "b", 5.0), ("c", "d", 4.0), ("b", "c", 3.0), ("b", "d", 3.0)],
        )
        problem = problem_of(graph, Node("n1", 4), Node("n2", 4))
        placement = run(ols, problem, workers=2, alfa=1.0)
        assert where(problem, placement) == {"a/0": "n1", "b/0": "n2", "c/0": "n2", "d/0": "n2"}

    def test_empty_workers_are_filled_by_the_cheapest_move(self) -> None:
        # E = 3, S = 2, alfa 1: up to 2 tasks a worker. a-b 5 share worker 0, which is full; c is alone in 1.
        # With 2 workers nothing is empty. With S = 3 each worker takes one task and all traffic crosses.
        graph = graph_of([Operator(name) for name in "abc"], [("a", "b", 5.0), ("b", "c", 1.0)])
        problem = problem_of(graph, Node("n1", 9))
        two = run(ols, problem, workers=2, alfa=1.0)
        three = run(ols, problem, workers=3)
        assert len(set(two.worker.tolist())) == 2
        assert two.worker[0] == two.worker[1] != two.worker[2]
        assert sorted(three.worker.tolist()) == [0, 1, 2]

    def test_the_spread_moves_the_item_that_loses_least(self) -> None:
        # One bin of three items, all together: 0-1 exchange 5, 1-2 exchange 1. Leaving costs 5, 6 and 1: item 2 leaves.
        packing = PairwisePacking(np.ones(3), np.full(2, np.inf), np.array([3, 3]))
        pairs = [(0, 1, 5.0), (1, 2, 1.0)]
        packing.join(pairs)
        packing.pack(pairs)
        assert packing.bin_of == [0, 0, 0]
        packing.fill_empty(2)
        assert packing.bin_of == [0, 0, 1]

    def test_beta_decides_how_many_nodes_are_used(self) -> None:
        # S = 4 on K = 4 nodes. beta 1: 4 nodes. beta 0: ceil(4 / 4) = 1 node, maxWorkersNode = 4.
        graph = graph_of([Operator("a", 2), Operator("b", 2)], [("a", "b", 1.0)])
        problem = problem_of(graph, *(Node(f"n{k}", 4) for k in range(4)))
        assert len(set(run(ols, problem, workers=4).node.tolist())) == 4
        assert len(set(run(ols, problem, workers=4, beta=0.0).node.tolist())) == 1

    def test_as_shipped_forgets_what_a_node_holds_and_so_piles_workers_up(self) -> None:
        # S = 4 single tasks of load 1, beta 0: 1 node to use and up to 4 workers on it, but every node has capacity 3.
        # a-b 5 go to n1 (load 2). c-d 4: `ols` takes n2, the least loaded; as shipped n1 still counts as empty and is
        # first with a slot, so it ends with load 4 over capacity 3. b-c 1 moves nothing in either.
        graph = graph_of([Operator(name) for name in "abcd"], [("a", "b", 5.0), ("c", "d", 4.0), ("b", "c", 1.0)])
        problem = problem_of(graph, *(Node(f"n{k}", 3, slots=4) for k in (1, 2, 3, 4)))
        assert list(where(problem, run(ols, problem, workers=4, beta=0.0)).values()) == ["n1", "n1", "n2", "n2"]
        assert list(where(problem, run(ols_as_shipped, problem, workers=4, beta=0.0)).values()) == ["n1"] * 4

    def test_tasks_in_no_pair_fall_to_even(self) -> None:
        graph = graph_of([Operator("a"), Operator("b"), Operator("idle", 3, load=0.1)], [("a", "b", 1.0)])
        problem = problem_of(graph, Node("n1", 2), Node("n2", 2))
        placement = run(ols, problem)
        assert placement.node[2:].tolist() == run(even, problem).node[2:].tolist()

    def test_no_traffic_at_all_is_even(self) -> None:
        problem = problem_of(graph_of([Operator("a", 5)]), Node("n1", 3), Node("n2", 3))
        assert run(ols, problem).node.tolist() == run(even, problem).node.tolist()

    def test_a_plan_that_saves_too_little_is_not_adopted(self) -> None:
        # even: a n1, b n2, c n1, d n2, so all of 9 + 1 + 8 crosses. OLS leaves 1: it saves 94 per cent, not 95.
        graph = graph_of([Operator(name) for name in "abcd"], [("a", "b", 9.0), ("b", "c", 1.0), ("c", "d", 8.0)])
        problem = problem_of(graph, Node("n1", 4), Node("n2", 4))
        adopted = run(ols, problem, workers=2, improvement=94)
        kept = run(ols, problem, workers=2, improvement=95)
        assert node_cost(problem, adopted.node) == 1.0
        assert kept.node.tolist() == run(even, problem).node.tolist()
        assert "'even' is kept" in kept.notes[0]

    def test_relieving_an_overloaded_node_is_reason_enough(self) -> None:
        # even puts a (load 3) and c (load 3) on n1 of capacity 4; OLS moves one of them away, whatever the traffic.
        graph = graph_of(
            [Operator("a", load=3.0), Operator("b", load=0.5), Operator("c", load=3.0), Operator("d", load=0.5)],
            [("a", "b", 1.0), ("c", "d", 1.0)],
        )
        problem = problem_of(graph, Node("n1", 4, slots=2), Node("n2", 4, slots=2))
        placement = run(ols, problem, workers=2, improvement=100)
        assert placement.node[0] != placement.node[2]

    def test_unequal_slots_raise_the_workers_per_node_and_say_so(self) -> None:
        # S = 4, K = 2: two workers a node, but n1 has one slot only: n2 must take three.
        graph = graph_of([Operator("a", 2), Operator("b", 2)], [("a", "b", 1.0)])
        problem = problem_of(graph, Node("n1", 4, slots=1), Node("n2", 4, slots=3))
        placement = run(ols, problem)
        assert np.bincount(placement.node).tolist() == [1, 3]
        assert placement.notes == ("up to 3 workers on a node instead of 2: the nodes have unequal slots",)

    def test_a_gamma_that_admits_no_task_is_an_error_that_names_it(self) -> None:
        # Total 5, S = 5: floor(1 * 5 / 5) = 1, but `a` has load 3.
        graph = graph_of([Operator("a", load=3.0), Operator("b", 4, load=0.5)], [("a", "b", 1.0)])
        problem = problem_of(graph, Node("n1", 9))
        with pytest.raises(
            NoPlanFound, match=r"no worker for task 'a/0' of load 3: with gamma 1 a worker takes load 1"
        ):
            run(ols, problem, gamma=1)

    def test_a_worker_that_fits_no_node_is_an_error_that_names_the_room_left(self) -> None:
        graph = graph_of([Operator("a", load=2.0), Operator("b", load=2.0)], [("a", "b", 1.0)])
        problem = problem_of(graph, Node("n1", 3), Node("n2", 3))
        with pytest.raises(NoPlanFound, match=r"'ols' found no node for a worker of load 4; .* load 3 on 'n1'"):
            run(ols, problem, workers=1)

    @given(instances())
    def test_limits_on_workers_and_nodes_hold(self, instance: tuple) -> None:
        problem = Problem(TaskGraph.expand(instance[0]), instance[1])
        try:
            placement = run(ols, problem, workers=3)
        except NoPlanFound:
            return
        graph = problem.graph
        paired = np.unique(np.concatenate([graph.source, graph.target]))
        workers = min(3, graph.task_count, int(problem.slots.sum()))
        slots = list(zip(placement.node[paired].tolist(), placement.worker[paired].tolist(), strict=True))
        assert len(set(slots)) <= workers
        if len(paired):
            most = max(slots.count(slot) for slot in slots)
            assert most <= ols.tasks_per_worker_max(graph.task_count, workers, 0.0)
        used = np.bincount(placement.node[paired], graph.load[paired], minlength=problem.node_count)
        assert (used <= problem.capacity).all()


def brute_pairwise(
    load: list[float], pairs: list[tuple[int, int, float]], load_max: list[float], count_max: list[int]
) -> list[int] | None:
    """The procedure as the specification words it, recomputing all traffic for every candidate."""
    place = [-1] * len(load)

    def traffic() -> float:
        return sum(t for a, b, t in pairs if place[a] >= 0 and place[b] >= 0 and place[a] != place[b])

    def admits(bin_: int, items: list[int]) -> bool:
        inside = [k for k, p in enumerate(place) if p == bin_] + items
        return len(inside) <= count_max[bin_] and sum(load[k] for k in inside) <= load_max[bin_] + 1e-9

    def held(bin_: int) -> float:
        return sum(load[k] for k, p in enumerate(place) if p == bin_)

    def least(items: list[int]) -> int | None:
        fitting = [b for b in range(len(load_max)) if admits(b, items)]
        return min(fitting, key=held) if fitting else None

    for a, b, _ in pairs:
        if place[a] < 0 and place[b] < 0:
            both = least([a, b])
            if both is not None:
                place[a] = place[b] = both
                continue
            for item in (a, b):
                alone = least([item])
                if alone is None:
                    return None
                place[item] = alone
            continue
        candidates = sorted({place[a], place[b]} - {-1})
        heavier, lighter = (a, b) if load[a] >= load[b] else (b, a)
        # An item of the heavier load that is not there yet: the admission test of the published program.
        spare = least_for(load[heavier], place, load, load_max, count_max)
        if spare is None:
            spare = least_for(load[lighter], place, load, load_max, count_max)
        if spare is not None and spare not in candidates:
            candidates.append(spare)
        place[a] = place[b] = -1
        best = None
        for for_a in candidates:
            for for_b in candidates:
                if not admits(for_a, [a]):
                    continue
                place[a] = for_a
                if admits(for_b, [b]):
                    place[b] = for_b
                    if best is None or traffic() < best[0]:
                        best = (traffic(), for_a, for_b)
                place[a] = place[b] = -1
        if best is None:
            return None
        _, place[a], place[b] = best
    return place


def least_for(
    amount: float, place: list[int], load: list[float], load_max: list[float], count_max: list[int]
) -> int | None:
    held = [sum(load[k] for k, p in enumerate(place) if p == b) for b in range(len(load_max))]
    fits = [
        b for b in range(len(load_max)) if place.count(b) + 1 <= count_max[b] and held[b] + amount <= load_max[b] + 1e-9
    ]
    return min(fits, key=lambda b: held[b]) if fits else None


@pytest.mark.parametrize("seed", range(60))
def test_pairwise_packing_is_the_slow_procedure_made_fast(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items, bins = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    load = rng.integers(0, 5, items).astype(float)
    load_max = rng.integers(3, 14, bins).astype(float)
    count_max = rng.integers(1, 6, bins)
    every = [(a, b, float(rng.integers(1, 9))) for a in range(items) for b in range(a + 1, items) if rng.random() < 0.6]
    pairs = sorted(every, key=lambda pair: -pair[2])
    expected = brute_pairwise(load.tolist(), pairs, load_max.tolist(), count_max.tolist())
    packing = PairwisePacking(load, load_max, count_max)
    packing.join(pairs)
    try:
        packing.pack(pairs)
    except NoBin:
        assert expected is None
    else:
        assert packing.bin_of == expected


class TestRstorm:
    def test_breadth_first_over_both_directions_from_every_source(self) -> None:
        #   s1 -> m -> t    s2 -> m    alone
        graph = graph_of(
            [Operator(name) for name in ("s2", "t", "alone", "m", "s1")],
            [("s1", "m", 1.0), ("s2", "m", 1.0), ("m", "t", 1.0)],
        )
        tasks = TaskGraph.expand(graph)
        order = [tasks.operators[k] for k in OperatorLinks.of(tasks).breadth_first()]
        # From s2: m; from m first its successor t, then its other predecessor s1. s1 is seen; alone is a source.
        assert order == ["s2", "m", "t", "s1", "alone"]

    def test_tasks_come_round_by_round(self) -> None:
        tasks = TaskGraph.expand(graph_of([Operator("a", 3), Operator("b", 1), Operator("c", 2)], [("a", "c", 1.0)]))
        # Components: a, c (its successor), b. Round 1: a/0 c/0 b/0. Round 2: a/1 c/1. Round 3: a/2.
        assert [tasks.ids[k] for k in rstorm.task_order(tasks)] == ["a/0", "c/0", "b/0", "a/1", "c/1", "a/2"]

    def test_the_nearest_node_is_the_one_that_fits_most_closely_when_the_network_is_equal(self) -> None:
        # One rack, no task before: net is 0 for both. Task of load 2: on 'wide' ((2 - 8) / 8)^2 = 0.5625,
        # on 'snug' ((2 - 2.5) / 2.5)^2 = 0.04. Memory is unlimited on both: 1 each.
        problem = problem_of(graph_of([Operator("a", load=2.0)]), Node("wide", 8), Node("snug", 2.5))
        assert where(problem, run(rstorm, problem)) == {"a/0": "snug"}

    def test_network_distance_outweighs_a_better_fit(self) -> None:
        # Racks: r1 = {p 4, q 4}, r2 = {z 2}; a starts in r1, the richer, on p. b (load 2), from p which has 3 left:
        #   p: ((2 - 3) / 3)^2 + 0 = 0.11   q: ((2 - 4) / 4)^2 + 0.25 = 0.5   z: ((2 - 2) / 2)^2 + 1 = 1
        # c (load 2), p has 1 left and does not fit: q 0.5 against z 1. So c goes to q although z fits exactly.
        graph = graph_of(
            [Operator("a"), Operator("b", load=2.0), Operator("c", load=2.0)], [("a", "b", 1.0), ("b", "c", 1.0)]
        )
        problem = problem_of(graph, Node("z", 2, rack="r2"), Node("p", 4, rack="r1"), Node("q", 4, rack="r1"))
        assert where(problem, run(rstorm, problem)) == {"a/0": "p", "b/0": "p", "c/0": "q"}

    def test_the_distance_is_the_printed_formula(self) -> None:
        far = rstorm.distances(1.0, 100.0, np.array([4.0, 2.0]), np.array([400.0, 200.0]), np.array([0.5, 1.0]))
        # ((1-4)/4)^2 + ((100-400)/400)^2 + 0.25 = 0.5625 + 0.5625 + 0.25; ((1-2)/2)^2 + ((100-200)/200)^2 + 1 = 1.5
        assert far == pytest.approx([1.375**0.5, 1.5**0.5])

    def test_limits_of_the_distance(self) -> None:
        far = rstorm.distances(0.0, 0.0, np.array([0.0, 1.0]), np.array([np.inf, 0.0]), np.array([0.0, 0.0]))
        assert far.tolist() == [1.0, 1.0]  # nothing free: 0; unlimited: 1

    def test_memory_excludes_a_node(self) -> None:
        graph = graph_of([Operator("a", 2, memory_mb=600.0)])
        problem = problem_of(graph, Node("n1", 9, memory_mb=1000.0), Node("n2", 9, memory_mb=1000.0))
        assert sorted(where(problem, run(rstorm, problem)).values()) == ["n1", "n2"]

    def test_the_richest_rack_counts_memory_where_all_state_it(self) -> None:
        nodes = (Node("a", 9, memory_mb=100.0, rack="r1"), Node("b", 4, memory_mb=900.0, rack="r2"))
        problem = problem_of(graph_of([Operator("x")]), *nodes)
        assert where(problem, run(rstorm, problem)) == {"x/0": "b"}  # 904 against 109


class TestRas:
    def test_components_by_connections_and_turns_with_neighbours(self) -> None:
        # Sizes: a 1, b 2, c 3, d 1.   a -> b -> c, b -> d.
        # conn(b) = 2 * (1 + 3 + 1) = 10, conn(c) = 3 * 2 = 6, conn(a) = conn(d) = 1 * 2 = 2.
        # b first, its neighbours by |b| * |nb|: c 6, then a 2 and d 2 by name. Turns: b c a d, b c, c.
        graph = graph_of(
            [Operator("d"), Operator("c", 3), Operator("a"), Operator("b", 2)],
            [("a", "b", 1.0), ("b", "c", 1.0), ("b", "d", 1.0)],
        )
        tasks = TaskGraph.expand(graph)
        order = [tasks.ids[k] for k in ras.task_order(tasks)]
        assert order == ["b/0", "c/0", "a/0", "d/0", "b/1", "c/1", "c/2"]

    def test_racks_and_nodes_by_their_scarcer_share(self) -> None:
        # r1: cpu 8 of 20, memory 300 of 1000: scarcer 0.3. r2: 12 of 20, 700 of 1000: 0.6, so r2 comes first.
        # In r2: x cpu 8/12, memory 100/700 = 0.143; y cpu 4/12 = 0.333, memory 600/700: y comes first.
        nodes = (
            Node("w", 8, memory_mb=300.0, rack="r1"),
            Node("x", 8, memory_mb=100.0, rack="r2"),
            Node("y", 4, memory_mb=600.0, rack="r2"),
        )
        problem = problem_of(graph_of([Operator("a")]), *nodes)
        assert [nodes[k].name for k in ras.node_order(problem)] == ["y", "x", "w"]

    def test_equal_nodes_go_by_name(self) -> None:
        nodes = (Node("b", 4), Node("c", 4), Node("a", 4), Node("big", 5))
        problem = problem_of(graph_of([Operator("x")]), *nodes)
        assert [nodes[k].name for k in ras.node_order(problem)] == ["big", "a", "b", "c"]

    def test_first_node_with_room(self) -> None:
        problem = problem_of(graph_of([Operator("a", 5)]), Node("small", 2), Node("large", 3))
        assert list(where(problem, run(ras, problem)).values()) == ["large"] * 3 + ["small"] * 2


class TestFfd:
    def test_memory_then_load_descending_first_fit(self) -> None:
        # Order: c (300 MB), b (100 MB, load 2), a (100 MB, load 1), d (0 MB).
        # c on n1 (300 of 400). b: 400 of 400 on n1, load 1 + 2 of 3. a: n1 has no memory, n2. d (load 1): n1 full, n2.
        graph = graph_of(
            [
                Operator("a", memory_mb=100.0),
                Operator("b", load=2.0, memory_mb=100.0),
                Operator("c", memory_mb=300.0),
                Operator("d"),
            ]
        )
        problem = problem_of(graph, Node("n1", 3, memory_mb=400.0), Node("n2", 3, memory_mb=400.0))
        assert where(problem, run(ffd, problem)) == {"a/0": "n2", "b/0": "n1", "c/0": "n1", "d/0": "n2"}


class TestFlink:
    def test_the_example_of_its_own_page(self) -> None:
        # Parallelism 1, 4, 4, 2, 3, four slots. B and C: task i to slot i. A: slot 0. D: slots 1, 2. E: slots 3, 0, 1.
        names = zip("abcde", (1, 4, 4, 2, 3), strict=True)
        tasks = TaskGraph.expand(graph_of([Operator(name, size) for name, size in names]))
        slot = flink.share_slots(tasks).tolist()
        assert slot == [0, 0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 0, 1]
        counts = np.bincount(slot)
        assert counts.max() - counts.min() == 1

    def test_slots_go_to_the_node_with_fewest_tasks(self) -> None:
        # Six tasks of a, three of b: slots hold 2 2 2 1 1 1. Three nodes of two slots: 2 + 1 tasks each.
        problem = problem_of(
            graph_of([Operator("a", 6), Operator("b", 3)]), *(Node(f"n{k}", 9, slots=2) for k in range(3))
        )
        placement = run(flink, problem)
        assert np.bincount(placement.node).tolist() == [3, 3, 3]
        assert sorted(set(placement.worker.tolist())) == [0, 1]

    def test_full_nodes_are_passed_over(self) -> None:
        node, worker = flink.spread_slots([1, 1, 1, 1], [1, 3])
        assert (node, worker) == ([0, 1, 1, 1], [0, 0, 1, 2])

    def test_too_few_slots_is_an_error_that_names_the_operator(self) -> None:
        problem = problem_of(graph_of([Operator("a", 3), Operator("wide", 5)]), Node("n1", 9, slots=4))
        with pytest.raises(NoPlanFound, match=r"operator 'wide', 5 in all, but the cluster has 4"):
            run(flink, problem)


@pytest.mark.parametrize(("module", "name"), [(rstorm, "rstorm"), (ras, "ras"), (ffd, "ffd")])
class TestNoRoom:
    def test_load(self, module: object, name: str) -> None:
        # Three tasks of load 2 on two nodes of 3: in all 6 of 6, but each node takes one.
        problem = problem_of(graph_of([Operator("a", 3, load=2.0)]), Node("n1", 3), Node("n2", 3))
        with pytest.raises(NoPlanFound) as caught:
            run(module, problem)
        message = str(caught.value)
        assert f"scheduler {name!r} found no node for task 'a/2': it needs load 2," in message
        assert "after 2 of 3 tasks the most that is left is load 1 on 'n1'" in message

    def test_memory(self, module: object, name: str) -> None:
        graph = graph_of([Operator("a", 3, load=0.5, memory_mb=200.0)])
        problem = problem_of(graph, Node("n1", 3, memory_mb=300.0), Node("n2", 3, memory_mb=350.0))
        with pytest.raises(NoPlanFound, match=r"needs load 0\.5 and 200 MB.*and 150 MB on 'n2'"):
            run(module, problem)
