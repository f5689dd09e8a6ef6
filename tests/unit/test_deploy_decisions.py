"""What the deployment decides, without Spark: slots, binding, proofs, outcomes."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deploy.driver.binding import MOVED_NOTE, Placing, bind, fused, workers_needed
from penstock.deploy.driver.facts import is_in_process
from penstock.deploy.driver.given_plan import grouped, matched, require_own_plan
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.outcome import Reports, judge
from penstock.deploy.driver.preflight import (
    Executor,
    Facts,
    build_faults,
    decide_workers,
    passing_faults,
    session_faults,
)
from penstock.deploy.driver.rendezvous import STEP_SECONDS, wait_in_steps
from penstock.deploy.driver.slots import Slots, Use, node_names, taken_note, uses
from penstock.deploy.driver.submit import start_topology
from penstock.deploy.line.messages import Fault, Hello, decode, decode_deployment, encode, encode_deployment
from penstock.errors import InvalidInput, JobCancelled, JobFailed, NotEnoughSlots, UnfitSession
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster
from penstock.model.constraints import Constraint, Resource
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.fuse.contract import FuseOptions
from penstock.run.contract import MAIN, Task
from penstock.run.dataflow import Dataflow, Input, OperatorSpec, sized
from penstock.run.engine.worker import Deployment
from penstock.run.engine.worker_share import RunSettings

SCHEMA = pa.schema([pa.field("n", pa.int64())])


def facts(slots: int = 4, busy: int = 0, executors: int = 1, **changes: object) -> Facts:
    cores = tuple(Executor(str(i), "host", slots // executors) for i in range(executors))
    return dataclasses.replace(Facts(f"local[{slots}]", "4.3.0", slots, busy, cores), **changes)  # type: ignore[arg-type]


def dataflow(sources: int = 2, sinks: int = 2, *, frame: bool = False) -> Dataflow:
    return Dataflow(
        "flow",
        (
            OperatorSpec("a", "source", Task, sources, (), {MAIN: SCHEMA}, "source", one_per_worker=frame),
            OperatorSpec("b", "sink", Task, sinks, (Input("a"),), {}, "sink"),
        ),
    )


def hellos(*executors: str, machines: tuple[str, ...] = ()) -> list[Hello]:
    """A worker for each executor named."""
    return [
        Hello(
            i, len(executors), executor, "127.0.0.1", 1000 + i, 10 + i, 1,
            machines[i] if machines else "machine", "ipc", "3.11.7", "26", 8000.0,
        )
        for i, executor in enumerate(executors)
    ]  # fmt: skip


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"rows_max": 0},  # a source would be asked for ever and never give a row
        {"rows_max": 2.5},
        {"rows_max": (1 << 20) + 1},
        {"linger_ms": -1},
        {"linger_ms": float("nan")},
        {"linger_ms": 60_001},
        {"interval_s": 0},  # a worker would do nothing but report
        {"interval_s": float("inf")},
        {"interval_s": "1"},
        {"silence_s": 1.9},  # a busy machine would be taken for a stopped one
        {"silence_s": 86_401},
        {"silence_s": float("nan")},
    ],
)
def test_settings_that_would_hang_a_worker_are_refused_before_anything_starts(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(InvalidInput, match=rf"^{name} is .*; give a (whole )?number from"):
        start_topology(dataflow(), None, JobOptions(**options))  # type: ignore[arg-type] # Spark is not asked yet


# -- preflight ---------------------------------------------------------------------------------------------------------


def test_too_few_slots_names_topology_master_and_next_step() -> None:
    with pytest.raises(NotEnoughSlots) as caught:
        decide_workers(facts(3), "words", 20, wanted=4)
    assert str(caught.value) == (
        "topology 'words' needs 4 workers but master 'local[3]' offers 3 slots and one stays free for other queries; "
        "take a master with 5 slots or more, or ask for at most 2 workers"
    )


def test_too_few_slots_offers_the_last_one_where_that_helps() -> None:
    with pytest.raises(NotEnoughSlots) as caught:
        decide_workers(facts(1), "words", 20)
    assert str(caught.value).endswith(
        "; take a master with 2 slots or more, or let it take the last slot: take_last_slot=True in Python, "
        "--take-last-slot of the command"
    )
    with pytest.raises(
        NotEnoughSlots, match=r"offers 3 slots; take a master with 4 slots or more, or ask for at most 3"
    ):
        decide_workers(facts(3), "words", 20, wanted=4, take_last_slot=True)


def test_busy_slots_are_named() -> None:
    with pytest.raises(NotEnoughSlots, match="offers 4 slots, 2 of them busy, and one stays free"):
        decide_workers(facts(4, busy=2), "words", 20, wanted=2)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(1, 60), st.booleans(), st.none() | st.integers(1, 12))
def test_workers_never_exceed_what_is_free(
    slots: int, busy: int, tasks: int, take_last: bool, wanted: int | None
) -> None:
    given_facts = facts(slots, min(busy, slots))
    free = slots - min(busy, slots) - (0 if take_last else 1)
    try:
        workers, notes = decide_workers(given_facts, "t", tasks, wanted=wanted, take_last_slot=take_last)
    except NotEnoughSlots:
        assert (1 if wanted is None else min(wanted, tasks)) > free
        return
    assert 1 <= workers <= min(free, tasks)
    assert wanted is None or workers == min(wanted, tasks)
    assert bool(notes) == (workers == slots - min(busy, slots))


def test_the_papers_number_of_workers() -> None:
    assert decide_workers(facts(9, executors=3), "routes", 45)[0] == 8  # 3 x 3, and one slot stays free
    assert decide_workers(facts(8), "small", 7)[0] == 2


def test_slots_beyond_the_cores_get_no_workers_of_themselves() -> None:
    """Eight threads of one process on two cores: more than two workers would take turns."""
    assert decide_workers(facts(8), "routes", 45)[0] == 7
    assert decide_workers(facts(8, cores=2), "routes", 45)[0] == 2
    assert decide_workers(facts(8, cores=2), "routes", 45, wanted=5)[0] == 5
    assert decide_workers(facts(8, cores=2), "routes", 45, regions={"r": 4})[0] == 4
    assert decide_workers(facts(8, cores=16), "routes", 45)[0] == 7
    assert [is_in_process(name) for name in ("local", "local[8]", "local-cluster[2,2,1024]", "yarn")] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_region_wider_than_the_slots_is_refused() -> None:
    with pytest.raises(NotEnoughSlots) as caught:
        decide_workers(facts(4), "words", 20, regions={"narrow": 2, "wide": 5})
    assert str(caught.value) == (
        "region 'wide' of topology 'words' has 5 replicas but master 'local[4]' has 3 of 4 slots to give; "
        "lower its replicas to 3 or raise the slots"
    )


def test_every_replica_gets_a_worker_where_nobody_says_otherwise() -> None:
    assert decide_workers(facts(8), "small", 7, regions={"r": 5})[0] == 5
    workers, notes = decide_workers(facts(8), "small", 7, wanted=2, regions={"r": 5})
    assert workers == 2
    assert "5 replicas on 2 workers" in notes[0]


def test_every_fault_of_a_session_is_named() -> None:
    unfit = facts(spark_version="3.5.1", dynamic_allocation=True, speculation=True)
    assert len(session_faults(unfit)) == 3
    with pytest.raises(UnfitSession, match=r"Spark is 3\.5\.1"):
        decide_workers(unfit, "t", 1)


def test_other_pythons_and_too_little_memory_are_named() -> None:
    crowd = [dataclasses.replace(hello, memory_mb=300.0) for hello in hellos("x", "x")]
    assert "Python is 3.12.1 on the driver but 3.11.7" in build_faults(crowd, "3.12.1", "26", "")[0]
    assert "300 MB free for 2 workers" in passing_faults(crowd)[0]
    assert build_faults(hellos("x", "y"), "3.11.7", "26", "") == passing_faults(hellos("x", "y")) == []


def test_a_worker_of_another_build_is_refused() -> None:
    same, other, old = hellos("x:1", "y:2", "y:3")
    came = [
        dataclasses.replace(same, build="1.0 (core aa, package bb)"),
        dataclasses.replace(other, build="1.0 (core aa, package cc)"),
        old,
    ]
    assert build_faults(came[:1], "3.11.7", "26", "1.0 (core aa, package bb)") == []
    assert build_faults(came, "3.11.7", "26", "1.0 (core aa, package bb)") == [
        "penstock is 1.0 (core aa, package bb) on the driver but 1.0 (core aa, package cc) on executor y:2, "
        "of an unknown build on executor y:3; install the same wheel on all machines"
    ]


def test_what_a_worker_says_of_itself_is_told() -> None:
    found = passing_faults([dataclasses.replace(hellos("x:1")[0], unfit="no port is left")])
    assert found == ["worker 0 on executor x:1 cannot take part: no port is left"]


# -- binding -----------------------------------------------------------------------------------------------------------


def test_executors_are_nodes_on_one_machine_and_hosts_otherwise() -> None:
    assert node_names(hellos("h:2", "h:1", "h:2"), None) == ["n2", "n1", "n2"]
    assert node_names(hellos("h1:1", "h2:1", "h1:2", machines=("m1", "m2", "m1")), None) == ["h1", "h2", "h1"]
    assert len(set(node_names(hellos("h:1", "h:2"), "host"))) == 1


@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=7), st.integers(1, 9), st.integers(1, 9))
def test_every_task_gets_a_worker_on_the_node_of_its_plan(executors: list[str], sources: int, sinks: int) -> None:
    flow = dataflow(sources, sinks)
    deployment, plan = bound(flow, executors, Placing("even"))
    assert set(deployment.worker_of) == {f"a/{i}" for i in range(sources)} | {f"b/{i}" for i in range(sinks)}
    for task, worker in deployment.worker_of.items():
        assert deployment.workers[worker].node == plan.assignment[task].node
    assert decode_deployment(decode(encode(encode_deployment(deployment)))) == deployment


LITTLE = Profile({"a/0": TaskProfile(0.1), "b/0": TaskProfile(0.1)}, seconds=0.04)


@pytest.mark.parametrize("scheduler", ["even", "best"])
def test_more_load_than_cores_is_told_of_measured_loads_only(scheduler: str) -> None:
    flow = dataflow(10, 10)
    # `best` says so where its time ran out: it has plenty, also on a busy machine, and stops when it is done
    _, plan = bound(flow, "xy", Placing(scheduler, theta=60.0))
    assert plan.notes == (), "declared loads say how tasks compare, and the workers are as many as were decided on"
    measured = Profile({task: TaskProfile(0.5) for task in plan.assignment})
    _, plan = bound(flow, "xy", Placing(scheduler, profile=measured, theta=60.0))
    assert plan.notes == (
        "the profile measured a load of 10 cores, which is more than 2 workers can take at once (1.6): the job will "
        "run slower than it was measured; more workers would help",
    )


def test_fusion_tells_that_declared_loads_only_compare_tasks_where_a_worker_is_more_than_full() -> None:
    flow = dataflow(10, 10)
    options = FuseOptions(theta=1.0)
    _, plan = bound(flow, "xy", Placing(fuse="cola", fuse_options=options))
    assert sum("declared loads only say how tasks compare" in note for note in plan.notes) == 1
    _, plan = bound(dataflow(1, 1), "xyxy", Placing(fuse="cola", fuse_options=options, profile=LITTLE))
    assert not any("declared" in note for note in plan.notes)
    assert any("the profile covers 0.04 s" in note for note in plan.notes)


@pytest.mark.parametrize(("load", "told"), [(0.52, True), (0.3, False)])
def test_a_worker_with_more_than_its_thread_is_told_although_the_cores_are_enough(load: float, told: bool) -> None:
    """Three tasks of 0.52 on two workers: 1.56 of 1.6 cores, and one worker gets 1.04 of its 0.8."""
    flow = dataflow(3, 1)
    measured = Profile({**{f"a/{i}": TaskProfile(load) for i in range(3)}, "b/0": TaskProfile(0.01)})
    _, plan = bound(flow, "xy", Placing("best", profile=measured, theta=1.0))
    if told:
        assert plan.notes == (
            "by the loads that the profile measured, the fullest node or worker is given 1.3 times what it should "
            "carry, and the job may run slower than it was measured; more workers, or more and smaller tasks, would "
            "help",
        )
    else:
        assert [note.partition(":")[0] for note in plan.notes] == ["goal throughput"]


@given(st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=6), st.integers(1, 5))
def test_tasks_that_read_a_frame_stay_where_spark_hands_it_in(executors: list[str], sinks: int) -> None:
    flow = sized(dataflow(1, sinks, frame=True), len(executors))
    deployment, plan = bound(flow, executors, Placing("even"))
    assert all(deployment.worker_of[f"a/{i}"] == i for i in range(len(executors)))
    assert len(plan.assignment) == len(executors) + sinks


def bound(flow: Dataflow, executors: Iterable[str], placing: Placing) -> tuple[Deployment, Plan]:
    """What a job follows, after its certificate was looked at once more."""
    found = bind(flow, hellos(*executors), placing, "job", RunSettings())
    certified = found.certified
    assert check_plan(certified.graph, certified.cluster, certified.plan, placing.profile) == []
    return found.deployment, certified.plan


def a_plan(*slots: tuple[str, int]) -> Plan:
    return Plan("hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {f"a/{i}": Slot(*slot) for i, slot in enumerate(slots)})


def renamed(plan: Plan, offered: dict[str, int], *constraints: Constraint) -> dict[str, Slot]:
    """Where the plan's tasks go on nodes with so many workers."""
    real = matched(plan.assignment, offered, constraints, {"a": len(plan.assignment)})
    return {task: real[slot] for task, slot in plan.assignment.items()}


def test_a_plan_finds_nodes_that_are_large_enough() -> None:
    plan = a_plan(("left", 0), ("right", 3), ("right", 7), ("right", 3))
    assert renamed(plan, {"n1": 1, "n2": 2}) == {
        "a/0": Slot("n1", 0),
        "a/1": Slot("n2", 0),
        "a/2": Slot("n2", 1),
        "a/3": Slot("n2", 0),
    }
    assert workers_needed(plan) == 3
    with pytest.raises(InvalidInput, match=r"needs workers 2\+1 on 2 nodes but Spark gave 3 on 1"):
        renamed(plan, {"n1": 3})


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_a_job_that_goes_on_elsewhere_keeps_its_tasks_in_their_groups(
    planned: list[tuple[str, int]], data: st.DataObject
) -> None:
    plan, groups = a_plan(*planned), len(set(planned))
    executors = data.draw(st.lists(st.sampled_from("xyz"), min_size=groups, max_size=groups + 2))
    slots = Slots.of(hellos(*executors), None)
    found = grouped(plan, slots)
    assert found is not None
    before, now = plan.assignment, found.assignment
    assert all((before[a] == before[b]) == (now[a] == now[b]) for a in before for b in before)
    assert {slots.worker(slot) for slot in now.values()} <= {*range(len(executors))}
    assert grouped(plan, Slots.of(hellos(*executors[: groups - 1]), None)) is None


def test_a_job_that_goes_on_elsewhere_keeps_workers_of_one_node_on_one() -> None:
    plan = a_plan(("left", 0), ("right", 1), ("right", 4))
    found = grouped(plan, Slots.of(hellos("x", "y", "y"), None))
    assert found is not None
    assert {task: slot.node for task, slot in found.assignment.items()} == {"a/0": "n1", "a/1": "n2", "a/2": "n2"}


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_a_renamed_plan_keeps_tasks_together_and_fits(slots: list[tuple[str, int]], data: st.DataObject) -> None:
    plan = a_plan(*slots)
    needs = Counter(node for node, _ in set(slots))
    sizes = [data.draw(st.integers(count, count + 2)) for count in needs.values()]
    offered = {f"n{i}": size for i, size in enumerate(sizes)}
    found = renamed(plan, offered)
    together = {(plan.assignment[a] == plan.assignment[b]) == (found[a] == found[b])
                for a in plan.assignment for b in plan.assignment}  # fmt: skip
    assert together == {True}
    assert all(slot.worker < offered[slot.node] for slot in found.values())


def test_a_node_whose_tasks_are_restricted_is_itself_and_the_others_give_way() -> None:
    plan = a_plan(("gpu", 0), ("big", 0), ("big", 1))
    only = Resource("a/0", ("gpu",))
    assert renamed(plan, {"gpu": 3, "other": 2}, only)["a/0"] == Slot("gpu", 0)
    assert renamed(plan, {"gpu": 3, "other": 2})["a/0"].node == "other", "without it the neediest takes the largest"
    with pytest.raises(InvalidInput) as caught:
        renamed(plan, {"n1": 2, "n2": 2}, only)
    assert str(caught.value) == (
        "the plan has 'a/0' on node 'gpu', where it needs 1 worker, and constraint 0 (resource) allows it only on "
        "'gpu'; Spark gave nodes 'n1' with 2 workers, 'n2' with 2 workers, of which no choice keeps that; run it where "
        "such a node is (node='host' names nodes by their hosts), or make a plan without the constraint"
    )


@given(st.data())
def test_a_matching_is_found_whenever_there_is_one(data: st.DataObject) -> None:
    """Against trying every way of giving real nodes to the plan's."""
    planned, real = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    needs = [data.draw(st.integers(1, 3)) for _ in range(planned)]
    offered = {f"n{k}": data.draw(st.integers(1, 3)) for k in range(real)}
    plan = a_plan(*((f"p{i}", w) for i, count in enumerate(needs) for w in range(count)))
    first = [sum(needs[:i]) for i in range(planned)]
    allowed = [data.draw(st.none() | st.sets(st.sampled_from(sorted(offered)), min_size=1)) for _ in needs]
    limits = [Resource(f"a/{first[i]}", tuple(sorted(nodes))) for i, nodes in enumerate(allowed) if nodes is not None]
    ways = [
        way
        for way in itertools.permutations(offered, planned)
        if all(count <= offered[k] and (nodes is None or k in nodes)
               for count, nodes, k in zip(needs, allowed, way, strict=True))
    ]  # fmt: skip
    try:
        found = renamed(plan, offered, *limits)
    except InvalidInput:
        assert ways == []
    else:
        assert tuple(found[f"a/{i}"].node for i in first) in ways


def test_the_seed_of_a_job_reaches_its_fusion_beside_options_that_state_none() -> None:
    graph = OperatorGraph("t", (Operator("a", 2, load=0.1), Operator("b", 2, load=0.1)), (Stream("a", "b"),))
    cluster = Cluster.uniform([(2, 2.0)])
    for seed, own, meant in ((7, None, 7), (7, FuseOptions(gamma=0.9), 7), (7, FuseOptions(seed=3), 3)):
        assert fused(graph, cluster, Placing(fuse="none", seed=seed, fuse_options=own), ()).seed == meant


def test_a_plan_for_another_topology_is_refused() -> None:
    for slots in ([("n1", 0)], [("n1", 0), ("n2", 0), ("n3", 0)]):  # more workers than there are, too
        with pytest.raises(
            InvalidInput, match=r"^the plan is of another topology: it does not know 'b' of 'flow'; make"
        ):
            bind(dataflow(len(slots), 1), hellos("x"), Placing(plan=a_plan(*slots)), "job", RunSettings())
    other = Dataflow("words", (OperatorSpec("lines", "source", Task, 1, (), {MAIN: SCHEMA}, "source"),))
    with pytest.raises(InvalidInput, match=r"it places 'a', which 'words' does not have and it does not know 'lines'"):
        require_own_plan(other, a_plan(("n1", 0)))
    fewer = Dataflow("flow", (dataflow(3, 1).operators[0],))
    with pytest.raises(
        InvalidInput, match=r"for other numbers of tasks than 'flow' has: it has no place for task 'a/1'"
    ):
        require_own_plan(fewer, a_plan(("n1", 0)))
    require_own_plan(Dataflow("flow", (dataflow(1, 1, frame=True).operators[0],)), a_plan(("n1", 0), ("n2", 0)))


def test_only_who_gave_a_plan_is_told_that_readers_of_a_frame_are_elsewhere() -> None:
    flow = sized(dataflow(1, 1, frame=True), 2)
    _, plan = bound(flow, "xy", Placing("even"))
    assert plan.notes == ()
    crossed = dataclasses.replace(
        a_plan(), assignment={"a/0": Slot("n2", 0), "a/1": Slot("n1", 0), "b/0": Slot("n1", 0)}
    )
    _, plan = bound(flow, "xy", Placing(plan=crossed))
    assert plan.notes == (MOVED_NOTE,)


# -- outcomes ----------------------------------------------------------------------------------------------------------


def reports(**changes: object) -> Reports:
    both = {hello.worker: hello for hello in hellos("x", "y")}
    clean = Reports("t", both, {0: "finished", 1: "finished"}, [], None, None, cancel_asked=False)
    return dataclasses.replace(clean, **changes)  # type: ignore[arg-type]


def test_a_finished_job_has_no_error() -> None:
    assert judge(reports()) is None


def test_a_worker_that_said_hello_and_nothing_since_has_not_finished() -> None:
    error = judge(reports(statuses={0: "finished"}))
    assert str(error).startswith("topology 't': worker 1 ended without a word, and its rows with it")


def test_the_users_failure_outranks_its_echoes() -> None:
    faults = [
        Fault(0, "peer", "worker 1 closed its connection"),
        Fault(1, "task", "operator 'b' failed: ValueError", "b/1", "n2", "Traceback"),
    ]
    error = judge(reports(faults=faults, statuses={0: "failed", 1: "failed"}, spark_error="aborted"))
    assert isinstance(error, JobFailed)
    assert (error.operator, error.task, error.worker, error.node) == ("b", "b/1", 1, "n2")
    assert error.user_traceback == "Traceback"


def test_a_worker_s_node_is_told_although_the_thread_that_complained_does_not_know_it() -> None:
    fault = Fault(1, "worker", "worker 1 could not keep its part of an epoch in /kept: no room")
    deployment, _ = bound(dataflow(), "xy", Placing("even"))
    for known, node in ((deployment, deployment.workers[1].node), (None, hellos("x", "y")[1].address)):
        error = judge(reports(faults=[fault], deployment=known))
        assert isinstance(error, JobFailed)
        assert node
        assert error.node == node
        assert str(error).startswith(f"topology 't': worker 1 (node {node!r}) failed: worker 1 could not keep")


def test_the_worker_that_died_is_named_rather_than_those_that_spark_killed_afterwards() -> None:
    faults = [Fault(2, "peer", "worker 1, or however it is said, has gone", lost=1)]
    error = judge(reports(faults=faults, statuses={}, spark_error="Python worker exited"))
    assert isinstance(error, JobFailed)
    assert error.worker == 1
    assert "pid 11" in str(error)


def test_sparks_own_failure_is_told_where_it_took_the_rows_away() -> None:
    faults = [Fault(1, "peer", "worker 0 closed its connection", lost=0), Fault(0, "input", "Spark's rows ended early")]
    error = judge(reports(faults=faults, statuses={1: "failed"}, spark_error="[DIVIDE_BY_ZERO] Division by zero"))
    assert isinstance(error, JobFailed)
    assert "failed in Spark: [DIVIDE_BY_ZERO]" in str(error)
    unexplained = judge(reports(faults=faults[1:], statuses={0: "failed", 1: "cancelled"}))
    assert "Spark's rows ended early" in str(unexplained)


def test_a_cancelled_job_is_no_failure() -> None:
    assert isinstance(judge(reports(cancel_asked=True, statuses={}, spark_error="cancelled")), JobCancelled)


def test_a_worker_that_ended_early_is_noticed() -> None:
    assert isinstance(judge(reports(statuses={0: "finished", 1: "cancelled"})), JobFailed)


def test_ctrl_c_in_the_driver_is_a_cancelled_job_and_not_a_dead_worker() -> None:
    spark_said = "[SPARK_JOB_CANCELLED] Job 10 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA"
    assert isinstance(judge(reports(statuses={}, spark_error=spark_said)), JobCancelled)


def test_a_jvm_that_ended_is_to_blame_and_no_worker() -> None:
    ended = "Spark's JVM ended (pid 7, signal 9)"
    echo = [Fault(0, "worker", "Interrupted: SIGHUP"), Fault(1, "peer", "worker 0 has gone", lost=0)]
    error = judge(reports(faults=echo, statuses={}, spark_error="Error while sending or receiving", jvm_ended=ended))
    assert str(error) == "topology 't': Spark's JVM ended (pid 7, signal 9), and its workers with it"


def test_a_driver_that_cannot_keep_the_rows_says_so_whatever_its_workers_say() -> None:
    faults = [Fault(0, "worker", "the driver takes no more rows"), Fault(1, "task", "operator 'b' failed", "b/0")]
    error = judge(reports(faults=faults, statuses={}, spark_error="aborted", given_up="no room"))
    assert str(error) == "topology 't': no room"


@pytest.mark.parametrize("said", ["java.io.EOFException", "Python worker exited unexpectedly (crashed)"])
def test_a_worker_that_ended_before_it_said_hello_is_named_and_not_one_that_came(said: str) -> None:
    here = hellos("x", "y")
    error = judge(reports(hellos={0: here[0]}, workers=2, statuses={}, spark_error=f"Job aborted: {said}\n  at x.y.Z"))
    assert isinstance(error, JobFailed)
    assert error.worker == 1
    assert str(error).startswith("topology 't': worker 1 ended before it said hello; it was killed, ")
    error = judge(reports(hellos={}, workers=2, statuses={}, spark_error=said))
    assert "one of workers 0, 1 ended before it said hello" in str(error)


def test_workers_that_never_came_for_another_reason_are_not_said_to_have_ended() -> None:
    error = judge(reports(hellos={}, workers=2, statuses={}, spark_error="No module named 'penstock'"))
    assert str(error).startswith("topology 't' failed in Spark: No module named 'penstock' where the workers are")


def test_jobs_that_hold_the_slots_are_named() -> None:
    held = facts(4, busy=2, jobs=("slow",))
    with pytest.raises(NotEnoughSlots, match=r"2 of them busy with job 'slow', .*; cancel a job or wait for its end"):
        decide_workers(held, "next", 2, wanted=2, tasks_per_worker=5, take_last_slot=False)
    with pytest.raises(NotEnoughSlots, match=r"1 of 4 slots to give with job 'slow'; cancel a job, lower its replicas"):
        decide_workers(held, "next", 2, wanted=None, tasks_per_worker=5, take_last_slot=False, regions={"r": 2})


def test_a_wait_that_an_interrupt_can_miss_is_made_of_short_steps() -> None:
    waited: list[float] = []

    def ended(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == 4

    assert wait_in_steps(ended, None)
    assert waited == [STEP_SECONDS] * 4
    event = threading.Event()
    assert not wait_in_steps(event.wait, 0.01)
    assert not wait_in_steps(event.wait, 0.0)
    event.set()
    assert wait_in_steps(event.wait, 0.0)


# -- what other jobs of the session use --------------------------------------------------------------------------------


def sharing(*executors: str, machines: tuple[str, ...] = (), cores: float = 1.0) -> list[Hello]:
    return [dataclasses.replace(hello, cores=cores) for hello in hellos(*executors, machines=machines)]


def test_a_worker_of_another_job_takes_what_was_measured_and_else_what_was_declared() -> None:
    there = hellos("e1", "e1", "e2")
    worker_of = {"a/0": 0, "a/1": 1, "b/0": 1, "b/1": 2}
    measured = Profile(
        {"a/0": TaskProfile(0.2), "a/1": TaskProfile(0.9)},
        (EdgeProfile("a/0", "b/1", 5.0, send_cpu=0.1, receive_cpu=0.3),),
    )
    found = uses(there, worker_of, measured, dict.fromkeys(worker_of, 0.5))
    # worker 0: 0.2 and 0.1 of sending; 1: 0.9 + 0.5, of which one thread takes 1; 2: 0.5 and 0.3 of receiving
    assert [(use.address, use.boot_id, round(use.cores, 9)) for use in found] == [
        ("e1", "machine", 0.3), ("e1", "machine", 1.0), ("e2", "machine", 0.8),
    ]  # fmt: skip
    assert [use.declared for use in found] == [False, True, True]
    none = uses(there, worker_of, measured, {"a/0": 0.5, "a/1": 0.5})  # nothing is guessed of what declares nothing
    assert [use.declared for use in none] == [False] * 3


def test_what_others_use_is_taken_off_the_node_where_they_are() -> None:
    here = sharing("e1", "e2", cores=2.0)  # two executors of one host of two cores: each node has one
    plain = Slots.of(here, None)
    assert [node.capacity for node in plain.cluster().nodes] == [0.8, 0.8]
    busy = Slots.of(here, None, others=[Use("e2", "machine", 0.6), Use("elsewhere", "other", 1.0)])
    assert [node.capacity for node in busy.cluster().nodes] == [0.8, pytest.approx(0.32)]
    assert [node.worker_capacity for node in busy.cluster().nodes] == [1.0, 1.0]  # a thread is what it was
    (note,) = taken_note(busy)
    assert note == "other jobs of this session use 0.6 cores of 'n2', which are taken off what this one has"
    guessed = Slots.of(here, None, others=[Use("e1", "machine", 0.5), Use("e2", "machine", 0.6, declared=True)])
    (note,) = taken_note(guessed)
    assert "0.5 cores of 'n1' and 0.6 cores of 'n2' (declared, not measured yet), which are taken off" in note
    full = Slots.of(here, None, others=[Use("e1", "machine", 1.0)] * 3)
    assert full.cluster().nodes[0].capacity == pytest.approx(0.05 * 0.8)  # something: the job has a worker there
    assert taken_note(plain) == ()


def test_an_executor_without_a_worker_of_this_job_takes_from_its_whole_host() -> None:
    here = sharing("e1", "e2", cores=4.0)
    assert dict(Slots.of(here, None, others=[Use("e3", "machine", 1.0)]).taken) == {"n1": 0.5, "n2": 0.5}
    hosts = sharing("h1:7", "h2:7", machines=("m1", "m2"))
    assert dict(Slots.of(hosts, None, others=[Use("h2:9", "m2", 0.4)]).taken) == {"h2": 0.4}
    unknown = Slots.of(hellos("e1"), None, others=[Use("e1", "machine", 0.4)])  # nobody said how many cores there are
    assert (unknown.cluster().nodes[0].capacity, taken_note(unknown)) == (0.8, ())


def test_a_job_keeps_away_from_where_others_are_at_work() -> None:
    here = sharing("e1", "e2", cores=2.0)
    for busy, free in (("e1", "n2"), ("e2", "n1")):
        bound = bind(dataflow(1, 1), here, Placing(), "job", RunSettings(), others=[Use(busy, "machine", 0.7)])
        assert {slot.node for slot in bound.certified.plan.assignment.values()} == {free}
        assert [note for note in bound.notes if note.startswith("other jobs of this session use 0.7 cores of")]
        assert bound.loads == {"a/0": 1.0, "b/0": 1.0}
