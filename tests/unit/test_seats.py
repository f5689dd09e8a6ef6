"""A worker is one thread: tasks are packed into workers that carry them; what cannot be is refused with a reason."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Infeasible, NoPlanFound
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Resource, Together
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Problem
from penstock.optimise.door import compare, place
from penstock.optimise.place import SCHEDULERS
from penstock.optimise.seats import SEATS_NOTE, crowded, narrowed, packed, seated, unseated
from penstock.optimise.workers import SLOTS_NOTE
from penstock.testing import certificate_faults, instances

FIVE = OperatorGraph("five", (Operator("a", 5, load=0.6), Operator("b", 2, load=0.3)), (Stream("a", "b", rate=3.0),))


def problem_of(graph: OperatorGraph, *nodes: Node) -> Problem:
    return Problem(TaskGraph.expand(graph), Cluster(nodes), graph.constraints)


class TestPacking:
    def test_by_hand(self) -> None:
        # First fit decreasing needs a third worker for the 3: 6+4, 5+... ; 6+4 and 5+3+2 is the one way.
        part = packed(np.array([6.0, 5.0, 4.0, 3.0, 2.0]), 10.0, 2)
        assert part is not None
        assert sorted(np.bincount(part, [6.0, 5.0, 4.0, 3.0, 2.0]).tolist()) == [10.0, 10.0]

    def test_a_task_alone_may_exceed_its_worker(self) -> None:
        part = packed(np.array([5.0, 0.5, 0.5]), 1.0, 2)
        assert part is not None
        assert part.tolist() == [0, 1, 1]
        assert packed(np.array([5.0, 0.5]), 1.0, 1) is None
        assert packed(np.array([5.0, 5.0, 0.0]), 1.0, 2) is None

    @given(
        load=st.lists(st.sampled_from([0.0, 0.25, 0.4, 0.5, 0.6, 0.9, 1.5]), min_size=1, max_size=6),
        workers=st.integers(1, 3),
    )
    def test_against_all_ways(self, load: list[float], workers: int) -> None:
        def holds(part: tuple[int, ...]) -> bool:
            members = [[x for x, w in zip(load, part, strict=True) if w == k] for k in range(workers)]
            return all(len(held) <= 1 or sum(held) <= 1.0 + 1e-9 for held in members)

        found = packed(np.array(load), 1.0 + 1e-9, workers)
        if found is None:
            assert not any(holds(part) for part in itertools.product(range(workers), repeat=len(load)))
        else:
            assert holds(tuple(found.tolist()))


class TestNarrowed:
    def test_a_node_carries_what_its_slots_carry(self) -> None:
        problem = problem_of(FIVE, Node("n1", 8.0, slots=2), Node("n2", 8.0), Node("n3", 1.5, slots=4))
        assert [node.capacity for node in narrowed(problem).cluster.nodes] == [2.0, 8.0, 1.5]

    def test_or_more_where_a_task_alone_is_more(self) -> None:
        graph = OperatorGraph("t", (Operator("big", load=5.0), Operator("b", 3, load=0.1)))
        problem = problem_of(graph, Node("n1", 8.0, slots=2), Node("n2", 8.0, slots=2, worker_capacity=None))
        assert [node.capacity for node in narrowed(problem).cluster.nodes] == [6.0, 8.0]

    @settings(max_examples=40)
    @given(instance=instances(max_tasks=6, max_nodes=3, cpu_only=True))
    def test_loses_no_plan(self, instance: tuple[OperatorGraph, Cluster]) -> None:
        """Whatever a certificate accepts of all assignments fits the narrowed nodes too."""
        graph, cluster = instance
        problem = Problem(TaskGraph.expand(graph), cluster)
        small = narrowed(problem)
        for nodes in itertools.product(range(len(cluster.nodes)), repeat=problem.task_count):
            node = np.array(nodes, dtype=np.int32)
            load = np.bincount(node, problem.graph.load, minlength=len(cluster.nodes))
            if (load <= problem.capacity).all() and not unseated(problem, node, Options()):
                assert (load <= small.capacity * (1 + 1e-9)).all()


class TestSeated:
    def test_workers_are_raised_where_loads_demand_it(self) -> None:
        problem = problem_of(FIVE, Node("n1", 8.0))
        node, worker = np.zeros(7, dtype=np.int32), np.zeros(7, dtype=np.int32)
        assert crowded(problem, node, worker).tolist() == [0]
        after, notes = seated(problem, node, worker, Options())
        assert crowded(problem, node, after).tolist() == []
        assert len(notes) == 1
        assert notes[0].startswith(SEATS_NOTE)

    def test_what_fits_stays_as_it_is(self) -> None:
        problem = problem_of(FIVE, Node("n1", 8.0, worker_capacity=None))
        node, worker = np.zeros(7, dtype=np.int32), np.array([3, 0, 0, 0, 1, 1, 0], dtype=np.int32)
        after, notes = seated(problem, node, worker, Options())
        assert after.tolist() == worker.tolist()
        assert notes == ()

    def test_many_tasks_are_seated_without_metis(self) -> None:
        graph = OperatorGraph("t", (Operator("a", 4_000, load=0.3), Operator("b", 10)), (Stream("a", "b"),))
        problem = problem_of(graph, Node("n1", 5_000.0))
        node, worker = np.zeros(4_010, dtype=np.int32), np.zeros(4_010, dtype=np.int32)
        after, _ = seated(problem, node, worker, Options())
        assert crowded(problem, node, after).tolist() == []
        assert after.max() < 1_500  # three of the 4000 to a worker are 1334, and one for each of ten


@pytest.mark.parametrize("scheduler", list(SCHEDULERS))
def test_every_scheduler_keeps_it_on_nodes_without_stated_slots(scheduler: str) -> None:
    cluster = Cluster.uniform([(3, 3.0)])
    plan = place(FIVE, cluster, scheduler, options=Options(theta=2.0))
    assert check_plan(FIVE, cluster, plan) == []
    assert certificate_faults(FIVE, cluster, plan) == []


@pytest.mark.parametrize("scheduler", ["best", "exact"])
@pytest.mark.parametrize("slots", [(3, 3), (4, 1), (3, 2)])
def test_best_and_exact_pack_into_stated_slots(scheduler: str, slots: tuple[int, int]) -> None:
    # Loads 0.6 x 5 + 0.3 x 2 fit five slots in one way only: each slot has one of the five, two slots have a 0.3 too.
    cluster = Cluster((Node("n1", 4.0, slots=slots[0]), Node("n2", 4.0, slots=slots[1])))
    plan = place(FIVE, cluster, scheduler, options=Options(theta=2.0))
    assert certificate_faults(FIVE, cluster, plan) == []
    assert plan.cost == (6.0 if slots == (4, 1) else 12.0)
    assert plan.lower_bound <= plan.cost


def test_a_published_scheduler_that_crowds_stated_slots_is_refused_and_compare_shows_it() -> None:
    cluster = Cluster((Node("n1", 4.0, slots=3), Node("n2", 4.0, slots=3)))
    with pytest.raises(
        NoPlanFound, match=r"worker 0 of node 'n1' carries load 3 in 5 tasks but one worker carries at "
    ):
        place(FIVE, cluster, "ffd")
    (plan,), failures = compare(FIVE, cluster, ["ffd"])
    assert failures == {}
    assert plan.faults[0].startswith("worker 0 of node 'n1' carries load 3 in 5 tasks")


def test_loads_beyond_all_slots_are_refused_by_arithmetic() -> None:
    cluster = Cluster((Node("n1", 8.0, slots=2), Node("n2", 8.0, slots=1)))
    with pytest.raises(Infeasible, match=r"need load 3.6 in all but the workers .* carry 3: a worker is one thread"):
        place(FIVE, cluster, "even")


def test_no_packing_is_said_with_node_and_slots() -> None:
    graph = OperatorGraph("t", (Operator("a", 3, load=0.6),))
    with pytest.raises(NoPlanFound, match=r"node 'n1', .* do not pack into its 2 slots, each of which carries 1;"):
        place(graph, Cluster((Node("n1", 8.0, slots=2),)), "best")


def test_a_task_alone_that_exceeds_its_worker_is_told() -> None:
    graph = OperatorGraph("t", (Operator("big", load=2.5), Operator("b", 3, load=0.1)), (Stream("big", "b"),))
    plan = place(graph, Cluster.uniform([(1, 6.0)]), "best")
    assert [note for note in plan.notes if note.startswith("bottleneck: ")] == [
        "bottleneck: 'big/0' alone is more than a worker can do: load 2.5, and one worker carries 1; "
        "split the operator into more tasks"
    ]
    together = {task: slot._replace(worker=0) for task, slot in plan.assignment.items()}
    faults = check_plan(graph, Cluster.uniform([(1, 6.0)]), replace(plan, assignment=together, inter_worker_cost=0.0))
    assert faults == [
        "worker 0 of node 'n1' carries load 2.8 in 4 tasks but one worker carries at most 1; "
        "give these tasks more workers"
    ]


class TestConstraints:
    def test_colocated_tasks_that_exceed_a_worker_are_refused_by_name(self) -> None:
        graph = replace(FIVE, constraints=(Resource("a", ("n1",)), Together("worker", ("a/0", "a/1"))))
        with pytest.raises(
            Infeasible, match=r"constraint 1 .*: 'a/0', 'a/1' must share a worker and need load 1.2 but"
        ):
            place(graph, Cluster.uniform([(1, 6.0)]), "best")

    @pytest.mark.parametrize("scheduler", ["best", "exact", "t3", "even"])
    def test_rules_and_workers_are_kept_together(self, scheduler: str) -> None:
        rules = (Together("worker", ("a/0", "b/0")), Apart("worker", ("b/0", "b/1")), Resource("b/1", ("n2",)))
        graph = replace(FIVE, constraints=rules)
        cluster = Cluster.uniform([(2, 4.0)])
        plan = place(graph, cluster, scheduler, options=Options(theta=1.0), meet=True)
        assert check_plan(graph, cluster, plan) == []


class TestNotes:
    def test_a_node_that_got_more_workers_is_not_called_capped(self) -> None:
        graph = OperatorGraph("t", (Operator("a", 3), Operator("b", 18, load=0.03)), (Stream("a", "b"),))
        notes = place(graph, Cluster.uniform([(1, 4.0)]), "best").notes
        assert any(note.startswith(SEATS_NOTE) for note in notes)
        assert not any(note.startswith(SLOTS_NOTE) for note in notes)

    @pytest.mark.parametrize("scheduler", ["best", "even"])
    def test_a_node_whose_slots_are_too_few_is_said_once(self, scheduler: str) -> None:
        graph = OperatorGraph("t", (Operator("a", 21, load=0.01),))
        notes = place(graph, Cluster((Node("n1", 4.0, slots=4),)), scheduler).notes
        assert [note for note in notes if note.startswith(SLOTS_NOTE)] == [
            "fewer slots than workers: node 'n1' would need 5 for 21 tasks but has 4, so workers there hold up to 6 "
            "tasks instead of 5"
        ]

    def test_figures_are_one_nodes_and_no_other_nodes(self) -> None:
        problem = problem_of(FIVE, Node("n1", 8.0), Node("n2", 8.0))
        node = np.array([0, 0, 0, 1, 1, 0, 0], dtype=np.int32)
        _, notes = seated(problem, node, np.zeros(7, dtype=np.int32), Options())
        assert notes == (
            "a worker is one thread: node 'n1' got 3 workers instead of 1, and 1 more node got more as well, so that "
            "no worker of several tasks carries too much",
        )
