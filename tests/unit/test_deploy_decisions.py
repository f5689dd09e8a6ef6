"""What the deployment decides, without Spark: slots, binding, proofs, outcomes."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deploy.binding import Placing, bind, node_names, renamed, sized, workers_needed
from penstock.deploy.messages import (
    Doorkeeper,
    Fault,
    Hello,
    decode,
    decode_deployment,
    encode,
    encode_deployment,
    proof,
)
from penstock.deploy.outcome import Reports, judge
from penstock.deploy.preflight import Executor, Facts, decide_workers, hello_faults, session_faults
from penstock.deploy.submit import start_topology
from penstock.errors import InvalidInput, JobCancelled, JobFailed, NotEnoughSlots, UnfitSession
from penstock.model.plan import Plan, Slot
from penstock.run.contract import MAIN, Task
from penstock.run.dataflow import Dataflow, Input, OperatorSpec
from penstock.run.layout import RunSettings

KEY = bytes(range(32))
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
    ],
)
def test_settings_that_would_hang_a_worker_are_refused_before_anything_starts(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(InvalidInput, match=rf"^{name} is .*; give a (whole )?number from"):
        start_topology(dataflow(), None, **options)  # type: ignore[arg-type] # Spark is not asked yet


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
        "; take a master with 2 slots or more, or give run or start take_last_slot=True in Python"
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
    found = hello_faults(crowd, "3.12.1", "26")
    assert "Python is 3.12.1 on the driver but 3.11.7" in found[0]
    assert "300 MB free for 2 workers" in found[1]
    assert hello_faults(hellos("x", "y"), "3.11.7", "26") == []


# -- binding -----------------------------------------------------------------------------------------------------------


def test_executors_are_nodes_on_one_machine_and_hosts_otherwise() -> None:
    assert node_names(hellos("h:2", "h:1", "h:2"), None) == ["n2", "n1", "n2"]
    assert node_names(hellos("h1:1", "h2:1", "h1:2", machines=("m1", "m2", "m1")), None) == ["h1", "h2", "h1"]
    assert len(set(node_names(hellos("h:1", "h:2"), "host"))) == 1


@given(st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=7), st.integers(1, 9), st.integers(1, 9))
def test_every_task_gets_a_worker_on_the_node_of_its_plan(executors: list[str], sources: int, sinks: int) -> None:
    flow = dataflow(sources, sinks)
    deployment, plan = bind(flow, hellos(*executors), Placing("even"), "job", RunSettings())
    assert set(deployment.worker_of) == {f"a/{i}" for i in range(sources)} | {f"b/{i}" for i in range(sinks)}
    for task, worker in deployment.worker_of.items():
        assert deployment.workers[worker].node == plan.assignment[task].node
    assert decode_deployment(decode(encode(encode_deployment(deployment)))) == deployment


def test_more_load_than_cores_is_placed_by_relative_load_and_noted() -> None:
    _, plan = bind(dataflow(10, 10), hellos("x", "y"), Placing("even"), "job", RunSettings())
    assert "placed by relative load" in plan.notes[-1]


@given(st.lists(st.sampled_from(["x", "y"]), min_size=1, max_size=6), st.integers(1, 5))
def test_tasks_that_read_a_frame_stay_where_spark_hands_it_in(executors: list[str], sinks: int) -> None:
    flow = sized(dataflow(1, sinks, frame=True), len(executors))
    deployment, plan = bind(flow, hellos(*executors), Placing("even"), "job", RunSettings())
    assert all(deployment.worker_of[f"a/{i}"] == i for i in range(len(executors)))
    assert len(plan.assignment) == len(executors) + sinks


def a_plan(*slots: tuple[str, int]) -> Plan:
    return Plan("hand", 0, 0.0, 0.0, 0.0, 0.0, False, 1, 1.0, {f"a/{i}": Slot(*slot) for i, slot in enumerate(slots)})


def test_a_plan_finds_nodes_that_are_large_enough() -> None:
    plan = a_plan(("left", 0), ("right", 3), ("right", 7), ("right", 3))
    bound = renamed(plan, {"n1": 1, "n2": 2})
    assert dict(bound.assignment) == {
        "a/0": Slot("n1", 0),
        "a/1": Slot("n2", 0),
        "a/2": Slot("n2", 1),
        "a/3": Slot("n2", 0),
    }
    assert workers_needed(plan) == 3
    with pytest.raises(InvalidInput, match=r"needs workers 2\+1 on 2 nodes but Spark gave 3 on 1"):
        renamed(plan, {"n1": 3})


@given(st.lists(st.tuples(st.sampled_from("pqr"), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_a_renamed_plan_keeps_tasks_together_and_fits(slots: list[tuple[str, int]], data: st.DataObject) -> None:
    plan = a_plan(*slots)
    needs = Counter(node for node, _ in set(slots))
    sizes = [data.draw(st.integers(count, count + 2)) for count in needs.values()]
    offered = {f"n{i}": size for i, size in enumerate(sizes)}
    bound = renamed(plan, offered)
    together = {(plan.assignment[a] == plan.assignment[b]) == (bound.assignment[a] == bound.assignment[b])
                for a in plan.assignment for b in plan.assignment}  # fmt: skip
    assert together == {True}
    assert all(slot.worker < offered[slot.node] for slot in bound.assignment.values())


def test_a_plan_for_another_topology_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no place for task 'b/0'"):
        bind(dataflow(1, 1), hellos("x"), Placing(plan=a_plan(("n1", 0))), "job", RunSettings())


# -- proofs ------------------------------------------------------------------------------------------------------------


def test_a_proof_is_good_once_for_its_own_call() -> None:
    door = Doorkeeper(KEY, workers_max=2)
    shown = proof(KEY, 1, "talk", "action", 1)
    assert door.admits(shown, "put") is None
    assert door.admits(shown, "action") == 1
    assert door.admits(shown, "action") is None
    assert door.admits(proof(KEY, 2, "talk", "action", 1), "action") is None
    assert door.admits(proof(bytes(32), 1, "talk", "action", 2), "action") is None


@given(st.permutations(range(1, 40)))
def test_calls_may_overtake_each_other(order: list[int]) -> None:
    door = Doorkeeper(KEY, workers_max=1)
    for number in order:
        assert door.admits(proof(KEY, 0, "data", "put", number), "put") == 0
    assert all(door.admits(proof(KEY, 0, "data", "put", number), "put") is None for number in order)


@given(st.text() | st.from_regex(r"-?\d{1,30}\.(talk|poll)\.-?\d{1,30}\.[0-9a-f]{0,70}", fullmatch=True))
def test_no_other_header_is_admitted(header: str) -> None:
    assert Doorkeeper(KEY, workers_max=3).admits(header, "action") is None


# -- outcomes ----------------------------------------------------------------------------------------------------------


def reports(**changes: object) -> Reports:
    both = {hello.worker: hello for hello in hellos("x", "y")}
    clean = Reports("t", both, {0: "finished", 1: "finished"}, [], None, None, cancel_asked=False)
    return dataclasses.replace(clean, **changes)  # type: ignore[arg-type]


def test_a_finished_job_has_no_error() -> None:
    assert judge(reports()) is None


def test_the_users_failure_outranks_its_echoes() -> None:
    faults = [
        Fault(0, "peer", "worker 1 closed its connection"),
        Fault(1, "task", "operator 'b' failed: ValueError", "b/1", "n2", "Traceback"),
    ]
    error = judge(reports(faults=faults, statuses={0: "failed", 1: "failed"}, spark_error="aborted"))
    assert isinstance(error, JobFailed)
    assert (error.operator, error.task, error.worker, error.node) == ("b", "b/1", 1, "n2")
    assert error.user_traceback == "Traceback"


def test_the_worker_that_died_is_named_rather_than_those_that_spark_killed_afterwards() -> None:
    faults = [Fault(2, "peer", "worker 1, or however it is said, has gone", lost=1)]
    error = judge(reports(faults=faults, statuses={}, spark_error="Python worker exited"))
    assert isinstance(error, JobFailed)
    assert error.worker == 1
    assert "pid 11" in str(error)


def test_a_cancelled_job_is_no_failure() -> None:
    assert isinstance(judge(reports(cancel_asked=True, statuses={}, spark_error="cancelled")), JobCancelled)


def test_a_worker_that_ended_early_is_noticed() -> None:
    assert isinstance(judge(reports(statuses={0: "finished", 1: "cancelled"})), JobFailed)


def test_ctrl_c_in_the_driver_is_a_cancelled_job_and_not_a_dead_worker() -> None:
    spark_said = "[SPARK_JOB_CANCELLED] Job 10 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA"
    assert isinstance(judge(reports(statuses={}, spark_error=spark_said)), JobCancelled)


def test_jobs_that_hold_the_slots_are_named() -> None:
    held = facts(4, busy=2, jobs=("slow",))
    with pytest.raises(NotEnoughSlots, match=r"2 of them busy with job 'slow', .*; cancel a job or wait for its end"):
        decide_workers(held, "next", 2, wanted=2, tasks_per_worker=5, take_last_slot=False)
    with pytest.raises(NotEnoughSlots, match=r"1 of 4 slots to give with job 'slow'; cancel a job, lower its replicas"):
        decide_workers(held, "next", 2, wanted=None, tasks_per_worker=5, take_last_slot=False, regions={"r": 2})
