"""`best` with the goal throughput: the busiest worker first, and the spread of operators where nothing was measured."""

from __future__ import annotations

import itertools
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_deploy_decisions import dataflow, hellos

from penstock.deploy.driver import binding
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.slots import USABLE_SHARE
from penstock.errors import InvalidInput, UserError
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Apart, Constraint, Pin, Together
from penstock.model.plan import Plan
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Options, Problem
from penstock.optimise.door import place
from penstock.optimise.fuse.steps.rules import Rules
from penstock.optimise.place import SCHEDULERS
from penstock.optimise.search import throughput
from penstock.optimise.search.annealed import CUT_NOTE
from penstock.optimise.search.pressure import PRESSURE_NOTE, Price, Pricing
from penstock.run.engine.worker_share import RunSettings
from penstock.testing import certificate_faults, instances, profiles

THETA = 4.0
QUERY = OperatorGraph(
    "query",
    (Operator("read", 2, source=True), Operator("count", 2), Operator("most", 2), Operator("out")),
    (Stream("read", "count", "fields"), Stream("count", "most", "fields"), Stream("most", "out")),
)


def job_cluster(*workers: int, cores: float = 2.0, load: float = 7.0) -> Cluster:
    """Nodes as a job makes them of so many workers on one host, stretched until a load fits with some room."""
    share = [min(count, cores * count / sum(workers)) * 0.8 for count in workers]
    factor = 1.2 * load / sum(share)
    return Cluster(
        tuple(
            Node(f"n{k}", part * factor, slots=count, worker_capacity=factor)
            for k, (count, part) in enumerate(zip(workers, share, strict=True))
        )
    )


def in_job(theta: float = THETA, seed: int = 0, goal: str = "throughput") -> Options:
    """Options as a job gives them."""
    return Options(seed, theta, settings={"goal": goal}, usable_share=USABLE_SHARE)


def pricing(graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None) -> Pricing:
    problem = Problem(TaskGraph.expand(graph, profile), cluster, graph.constraints)
    return Pricing.of(problem, problem.task_count, USABLE_SHARE)


def price_of(plan: Plan, graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None) -> Price:
    at = pricing(graph, cluster, profile)
    number = {node.name: k for k, node in enumerate(cluster.nodes)}
    slots = [plan.assignment[task] for task in at.problem.graph.ids]
    _, worker = np.unique([slot.worker for slot in slots], return_inverse=True)  # workers may be numbered with gaps
    return at.price(np.array([number[slot.node] for slot in slots], dtype=np.int32), worker.astype(np.int32))


class TestPrice:
    def test_by_hand(self) -> None:
        # Two tasks of load 1 and 3 on one node of two cores: apart 3 of one thread; together 4 of one thread.
        graph = OperatorGraph("t", (Operator("a", load=1.0), Operator("b", load=3.0)), (Stream("a", "b", rate=1e-9),))
        at = pricing(graph, Cluster((Node("n1", 1.6, slots=2),)))
        node = np.zeros(2, dtype=np.int32)
        assert at.pressure(node, np.array([0, 1], dtype=np.int32)) == pytest.approx(3.0, rel=1e-3)
        assert at.pressure(node, np.zeros(2, dtype=np.int32)) == pytest.approx(4.0, rel=1e-3)
        assert at.least() == 3.0

    def test_cores_count_as_well_as_threads(self) -> None:
        # Four tasks of load 1 in four workers, of which two can run at once: half of what there is to do.
        graph = OperatorGraph("t", (Operator("a", 4),))
        at = pricing(graph, Cluster((Node("n1", 1.6, slots=4),)))
        node, four = np.zeros(4, dtype=np.int32), np.arange(4, dtype=np.int32)
        assert at.pressure(node, four) == pytest.approx(2.0, rel=1e-3)
        assert at.pressure(node, four % 2) == pytest.approx(2.0, rel=1e-3)

    def test_the_capacity_of_a_file_is_all_that_its_node_can_do(self) -> None:
        graph = OperatorGraph("t", (Operator("a", 4),))
        cluster = Cluster((Node("n1", 2.0, slots=4), Node("n2", 2.0, slots=4, worker_capacity=None)))
        problem = Problem(TaskGraph.expand(graph), cluster)
        four = np.arange(4, dtype=np.int32)
        at = Pricing.of(problem, 4)
        for where in (0, 1):
            assert at.pressure(np.full(4, where, dtype=np.int32), four) == pytest.approx(2.0)
        assert at.pressure(np.ones(4, dtype=np.int32), four * 0) == pytest.approx(2.0)  # a worker with threads enough
        assert at.pressure(np.zeros(4, dtype=np.int32), four * 0) == pytest.approx(4.0)  # one of a single thread
        job = Pricing.of(problem, 4, 0.8)  # of which a node's 2 are 2.5 cores, and so a worker with threads enough
        for where in (0, 1):
            assert job.pressure(np.full(4, where, dtype=np.int32), four) == pytest.approx(1.6)
        assert job.pressure(np.ones(4, dtype=np.int32), four * 0) == pytest.approx(1.6)

    def test_communication_counts_at_its_distance(self) -> None:
        graph = OperatorGraph("t", (Operator("a"), Operator("b")), (Stream("a", "b"),))
        tasks = {"a/0": TaskProfile(load=0.1), "b/0": TaskProfile(load=0.1)}
        profile = Profile(tasks, (EdgeProfile("a/0", "b/0", 1e7, tuples=1e6, batches=5e3),))
        at = pricing(graph, Cluster((Node("n1", 1.6), Node("n2", 1.6))), profile)
        zero, one = np.zeros(2, dtype=np.int32), np.array([0, 1], dtype=np.int32)
        call, ring, socket = (at.price(*plan) for plan in ((zero, zero), (zero, one), (one, zero)))
        assert call.communication < ring.communication < socket.communication
        assert (call.between_nodes, call.between_workers) == (0.0, 0.0)
        assert (ring.between_nodes, ring.between_workers) == (0.0, 1e7)
        assert (socket.between_nodes, socket.between_workers) == (1e7, 0.0)


class TestJobsWithoutAProfile:
    @pytest.mark.parametrize("workers", [(2,), (1, 1)])
    def test_readers_and_counters_are_spread_evenly(self, workers: tuple[int, ...]) -> None:
        plan = place(QUERY, job_cluster(*workers), "best", options=in_job())
        for operator in ("read", "count", "most"):
            assert plan.assignment[f"{operator}/0"] != plan.assignment[f"{operator}/1"]
        assert len(set(plan.assignment.values())) == 2

    def test_bytes_alone_would_not_spread_them(self) -> None:
        """The goal is what makes the difference."""
        cluster = job_cluster(2, load=10.0)
        few, fast = (place(QUERY, cluster, "best", options=in_job(goal=goal)) for goal in ("bytes", "throughput"))
        assert few.assignment["read/0"] == few.assignment["read/1"]
        assert price_of(fast, QUERY, cluster) < price_of(few, QUERY, cluster)

    def test_more_workers_than_cores_are_not_filled_for_nothing(self) -> None:
        plan = place(QUERY, job_cluster(8), "best", options=in_job())
        assert len(set(plan.assignment.values())) <= 3


def test_little_work_that_talks_much_stays_in_one_worker() -> None:
    """Measured: two tasks of load 0.2 that send 200 MB/s would pay more for a ring than they gain."""
    graph = OperatorGraph("t", (Operator("a"), Operator("b")), (Stream("a", "b"),))
    tasks = {"a/0": TaskProfile(load=0.2), "b/0": TaskProfile(load=0.2)}
    profile = Profile(tasks, (EdgeProfile("a/0", "b/0", 2e8, tuples=1e6, batches=2e4),))
    cluster = Cluster((Node("n1", 1.6, slots=2),))
    plan = place(graph, cluster, "best", profile=profile, options=in_job())
    assert len(set(plan.assignment.values())) == 1


@pytest.mark.parametrize(("load", "workers"), [(0.002, 1), (0.2, 7)])
def test_measured_work_that_is_next_to_nothing_is_not_shared_out(load: float, workers: int) -> None:
    """Seven tasks that take 1.4 % of a core got a worker each, on three nodes, and 600 kB/s between them."""
    tasks = {f"{o.name}/{i}": TaskProfile(load) for o in QUERY.operators for i in range(o.tasks)}
    count = {operator.name: operator.tasks for operator in QUERY.operators}
    edges = tuple(
        EdgeProfile(f"{s.source}/{i}", f"{s.target}/{j}", 1e5, 1e3, 20.0)
        for s in QUERY.streams
        for i, j in itertools.product(range(count[s.source]), range(count[s.target]))
    )
    cluster = Cluster(tuple(Node(f"n{k}", 2.4, slots=3) for k in range(3)))
    plan = place(QUERY, cluster, "best", profile=Profile(tasks, edges), options=in_job())
    assert len(set(plan.assignment.values())) == workers
    assert (plan.cost == 0.0) == (workers == 1)
    (note,) = plan.notes
    assert ("0.014" in note) == (workers == 1)  # the note tells the pressure as it is


def test_a_share_that_no_node_has_is_refused() -> None:
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match=r"usable_share is .*; it must be above 0 and at most 1"):
            place(QUERY, job_cluster(2), "best", options=Options(usable_share=share))


def test_a_job_says_which_share_of_its_cores_its_nodes_offer() -> None:
    with mock.patch.object(throughput.Pricing, "of", wraps=Pricing.of) as made:
        binding.bind(dataflow(2, 1), hellos("x", "x"), JobOptions(theta=0.1).placing(5), "job", RunSettings())
    assert {call.args[2] for call in made.call_args_list} == {USABLE_SHARE}


@settings(max_examples=25)
@given(data=st.data())
def test_throughput_is_never_behind_another_scheduler(data: st.DataObject) -> None:
    graph, cluster = data.draw(instances(max_tasks=8, max_nodes=3, cpu_only=True))
    profile = data.draw(st.none() | profiles(graph))
    try:
        ours = place(graph, cluster, "best", profile=profile, options=in_job())
    except UserError:
        return
    assert check_plan(graph, cluster, ours, profile) == []
    if profile is None:
        assert certificate_faults(graph, cluster, ours) == []
    assert any(note.startswith(PRESSURE_NOTE) for note in ours.notes)
    for name in SCHEDULERS:
        if name in {"exact", "ischeduler", "best"}:  # by the clock, by a measured phi; bytes are best's own start
            continue
        try:
            theirs = place(graph, cluster, name, profile=profile, options=Options(theta=0.0))
        except UserError:
            continue
        mine = price_of(ours, graph, cluster, profile)
        assert mine <= price_of(theirs, graph, cluster, profile), f"{name} has a plan under less pressure"


def test_rules_are_met_by_what_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are about fifty starts, and making one meet rules takes a tenth of a second where tasks are hundreds."""
    asked: list[Ints] = []

    def met(problem: Problem, rules: Rules, node: Ints, worker: Ints) -> tuple[Ints, Ints]:
        asked.append(node)
        return node, worker

    monkeypatch.setattr(throughput, "met", met)
    graph = replace(QUERY, constraints=(Apart("worker", ("read/0", "count/0")),))
    cluster = job_cluster(2, 2)
    for theta, some in ((THETA, True), (0.0, False)):
        asked.clear()
        plan = place(graph, cluster, "best", options=in_job(theta))
        assert check_plan(graph, cluster, plan) == []
        assert bool(asked) == some


@settings(max_examples=15)
@given(instance=instances(max_operators=3, max_tasks=5, max_nodes=2, cpu_only=True))
def test_it_is_near_the_least_pressure_of_all_plans(instance: tuple[OperatorGraph, Cluster]) -> None:
    graph, cluster = instance
    try:
        plan = place(graph, cluster, "best", options=in_job())
    except UserError:
        return
    at = pricing(graph, cluster)
    least = (
        min(
            at.price(np.array(nodes, dtype=np.int32), np.array(workers, dtype=np.int32)).level
            for nodes in itertools.product(range(len(cluster.nodes)), repeat=at.problem.task_count)
            for workers in itertools.product(range(min(3, at.problem.task_count)), repeat=at.problem.task_count)
            if _holds(at.problem, np.array(nodes), np.array(workers))
        )
        if at.problem.task_count <= 4
        else None
    )
    assert at.least() <= at.pressure(*_arrays(plan, at)) * 1.001
    if least is not None:
        assert price_of(plan, graph, cluster).level <= least + 1


def _arrays(plan: Plan, at: Pricing) -> tuple[np.ndarray, np.ndarray]:
    number = {node.name: k for k, node in enumerate(at.problem.cluster.nodes)}
    slots = [plan.assignment[task] for task in at.problem.graph.ids]
    _, worker = np.unique([slot.worker for slot in slots], return_inverse=True)
    return np.array([number[slot.node] for slot in slots], dtype=np.int32), worker.astype(np.int32)


def _holds(problem: Problem, node: np.ndarray, worker: np.ndarray) -> bool:
    for k, n in enumerate(problem.cluster.nodes):
        here = np.flatnonzero(node == k)
        if problem.graph.load[here].sum() > n.capacity * (1 + 1e-9):
            return False
        for w in np.unique(worker[here]).tolist():
            together = problem.graph.load[here[worker[here] == w]]
            if n.slots is not None and w >= n.slots:
                return False
            if len(together) > 1 and n.worker_capacity is not None and together.sum() > n.worker_capacity * (1 + 1e-9):
                return False
    return True


@pytest.mark.parametrize(
    "constraints",
    [
        (Together("worker", ("read/0", "count/1")), Apart("worker", ("most/0", "most/1"))),
        (Pin("read/0", "n0", 0), Pin("read/1", "n0", 1)),
        (Apart("worker", ("out", "most")),),
    ],
)
def test_constraints_are_kept(constraints: tuple[Constraint, ...]) -> None:
    graph = replace(QUERY, constraints=constraints)
    cluster = job_cluster(2, load=9.0)
    plan = place(graph, cluster, "best", options=in_job())
    assert check_plan(graph, cluster, plan) == []
    if isinstance(constraints[0], Pin):
        assert plan.assignment["read/0"] != plan.assignment["read/1"]
        assert plan.assignment["count/0"] != plan.assignment["count/1"]


@pytest.mark.parametrize(("theta", "cut"), [(0.0, True), (3_600.0, False)])
def test_a_search_that_the_clock_cuts_says_so(theta: float, cut: bool) -> None:
    plan = place(QUERY, job_cluster(2), "best", options=in_job(theta))
    assert (CUT_NOTE in plan.notes) is cut


def test_the_same_seed_gives_the_same_plan() -> None:
    one, two = (place(QUERY, job_cluster(2, 1), "best", options=in_job(seed=3)) for _ in range(2))
    assert one.assignment == two.assignment


def test_an_unknown_goal_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown goal 'speed'; known: bytes, throughput"):
        place(QUERY, job_cluster(2), "best", options=Options(settings={"goal": "speed"}))


@pytest.mark.parametrize("name", sorted(throughput.NODES_ALONE))
def test_on_one_node_schedulers_that_leave_workers_open_say_nothing(name: str) -> None:
    problem = Problem(TaskGraph.expand(QUERY), Cluster((Node("n1", 40.0),)))
    placement = SCHEDULERS[name].load()(problem, Options(theta=0.0))
    assert placement.worker is None
    assert not placement.node.any()
