"""What may be scaled in a running job, who owns which keys then, and what figures are planned with."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.deploy.driver.preflight import Executor, Facts
from penstock.deploy.scaling.room import numbered_anew, require_room, who_leaves, workers_of_node
from penstock.deploy.scaling.rules import forward_streams, scaled
from penstock.errors import InvalidInput, NotEnoughSlots
from penstock.flow import io
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.rescaled import rescaled
from penstock.model.task_id import TaskId
from penstock.run.columns import kernels
from penstock.run.dataflow import Dataflow, as_placed
from penstock.run.engine.routing import owner

ROWS = pa.RecordBatch.from_pydict({"k": list(range(500)), "n": [0] * 500})


def rows(task: int, tasks: int) -> Iterable[tuple[int, int]]:
    return ()


def topology() -> ps.Topology:
    """An operator of each kind that the rules tell apart."""
    top = ps.Topology("kinds")
    made = top.source("made", io.generator(rows, "k bigint, n bigint"))
    ticks = top.source("ticks", io.rate(10, rows=10), tasks=2).select("value as n", "value % 3 as k", name="ticked")
    ticks.key_by("k").count(name="count", tasks=2).sink("counts", io.collect())
    ticks.partial_key("k").map(lambda row: row, "n bigint, k bigint", name="free", tasks=2).sink(
        "free out", io.collect()
    )
    ticks.direct(lambda row: 0).filter("n > 0", name="chosen", tasks=2).sink("chosen out", io.collect())
    ticks.global_().filter("n > 1", name="first", tasks=1).sink("first out", io.collect())
    ticks.aggregate(rows="count(*)", name="all").sink("all out", io.collect())
    ticks.top(3, by="n", name="top").sink("top out", io.collect())
    region = made.parallel(2, name="region")
    region.filter("n > 2", name="inside").merge().sink("region out", io.collect())
    made.filter("n > 3", name="plain", tasks=2).sink("plain out", io.collect(), tasks=2)
    return top


def flow() -> Dataflow:
    return topology().build()


def tasks(dataflow: Dataflow) -> dict[str, int]:
    return {spec.name: spec.tasks for spec in dataflow.operators}


@pytest.mark.parametrize("operator", ["count", "free", "plain", "plain out", "ticks", "ticked"])
@pytest.mark.parametrize("number", [1, 3, 7])
def test_what_can_be_shared_out_can_be_scaled(operator: str, number: int) -> None:
    before = flow()
    if tasks(before)[operator] == number:
        return
    assert tasks(scaled(before, operator, number)) == {**tasks(before), operator: number}


@pytest.mark.parametrize(
    ("operator", "number", "why"),
    [
        ("count", 2, "operator 'count' cannot have 2 tasks instead of 2: it has that many already"),
        ("count", 0, "asked for 0 tasks; it can have 1 to"),
        ("count", True, "asked for True tasks"),
        ("count", 1 << 40, "it can have 1 to"),
        ("counts", 2, "unknown operator or parallel region 'counts'"),
        ("made", 2, "source 'made' cannot have 2 tasks instead of 1: which rows a task of a generator yields"),
        ("chosen", 3, "a function of yours chooses its tasks by number"),
        ("first", 2, "all of its rows go to its first task"),
        ("all", 2, "all of its rows go to its first task|it has no keys"),
        ("top", 2, "all of its rows go to its first task"),
        ("inside", 3, "part of parallel region 'region'; scale the region"),
    ],
)
def test_what_cannot_is_refused_in_a_line(operator: str, number: int, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as refused:
        scaled(flow(), operator, number)
    assert "\n" not in str(refused.value)


def test_state_in_two_tasks_for_each_key_stays_where_it_is() -> None:
    top = ps.Topology("two")
    ticks = top.source("ticks", io.rate(10, rows=10)).key_by("value").partial_key()
    ticks.count(name="kept", tasks=2).sink("out", io.collect())
    with pytest.raises(InvalidInput, match="cannot have 3 tasks instead of 2: with partial_key"):
        scaled(top.build(), "kept", 3)


def test_a_task_that_a_constraint_names_does_not_go() -> None:
    top = topology()
    top.require(ps.separate_workers("count/0", "count/1"))
    assert tasks(scaled(top.build(), "count", 5))["count"] == 5
    with pytest.raises(InvalidInput, match="cannot have 1 tasks: a separate-workers constraint names 'count/1'"):
        scaled(top.build(), "count", 1)


def test_rows_are_not_mixed_where_event_time_is_made_of_them() -> None:
    top = ps.Topology("mixed")
    ticks = top.source("ticks", io.rate(10, rows=10)).filter("value > 0", name="some")
    timed = ticks.select("timestamp as at", "value as n", name="named").event_time("at", lateness="1 second")
    timed.key_by("n").count(window=ps.tumbling("1 second"), name="count").sink("out", io.collect())
    assert tasks(scaled(top.build(), "some", 2))["some"] == 2
    with pytest.raises(InvalidInput, match="'some' would mix the rows of several tasks of 'ticks'"):
        scaled(top.build(), "ticks", 2)


def known(batch: pa.RecordBatch, task: int, sequence: int) -> None:
    """A store whose key is task and sequence."""


def unknown(batch: pa.RecordBatch, task: int) -> None:
    """One that has keys of its own."""


def with_a_callback(function: object, *, reads: str = "k", attached: bool = False) -> Dataflow:
    top = ps.Topology("told")
    ticks = top.source("ticks", io.rate(10, rows=10), tasks=2).select("value as n", "value % 3 as k", name="ticked")
    counted = ticks.key_by("k").aggregate(rows="count(*)", name="count", tasks=2)
    wanted = counted.key_by("k").aggregate(rows="sum(rows)", name="last", tasks=2) if reads == "k" else counted
    wanted.sink("out", io.callback(function), **({} if attached else {"tasks": 2}))  # type: ignore[arg-type]
    return top.build()


@pytest.mark.parametrize("operator", ["out", "count"])
def test_a_callback_that_tells_rows_by_task_and_sequence_keeps_its_tasks(operator: str) -> None:
    flow = with_a_callback(known, reads="any")
    assert tasks(scaled(with_a_callback(unknown, reads="any"), operator, 3))[operator] == 3
    why = f"'{operator}' cannot have other numbers of tasks: callback sink 'out' asks for `sequence`.* by a key of"
    with pytest.raises(InvalidInput, match=why) as refused:
        scaled(flow, operator, 3)
    assert "\n" not in str(refused.value)


def test_a_callback_inside_the_tasks_of_an_operator_keeps_them_too() -> None:
    flow = with_a_callback(known, attached=True)
    with pytest.raises(InvalidInput, match="'last' cannot have other numbers of tasks: callback sink 'out'"):
        scaled(flow, "last", 3)


def test_what_comes_to_a_callback_s_tasks_by_key_may_come_from_others() -> None:
    flow = with_a_callback(known, attached=True)
    assert tasks(scaled(flow, "count", 3))["count"] == 3
    assert tasks(scaled(flow, "ticked", 3))["ticked"] == 3


def test_a_plan_says_how_many_tasks_there_are() -> None:
    before = flow()
    after = scaled(before, "count", 5)
    names = [TaskId.of(spec.name, i) for spec in after.operators for i in range(spec.tasks)]
    assert as_placed(before, names) == after
    assert as_placed(before, ()) is before


@given(st.integers(1, 9), st.integers(1, 9))
def test_every_key_is_in_one_task_before_and_after(before: int, after: int) -> None:
    """And in the one to which rows of that key go."""
    for number in (before, after):
        masks = [owner(task, number)(ROWS, ["k"]) for task in range(number)]
        assert (np.sum(masks, axis=0) == 1).all()
        parts = kernels.partition(ROWS, ("k",), number)
        for mask, part in zip(masks, parts, strict=True):
            assert sorted(ROWS.filter(pa.array(mask))["k"].to_pylist()) == sorted(
                [] if part is None else part["k"].to_pylist()
            )


@given(st.lists(st.floats(0, 4), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 4), st.booleans())
def test_a_profile_for_other_numbers_tells_the_same_of_each_operator(
    loads: list[float], now: int, readers: int, is_forward: bool
) -> None:
    then = len(loads)
    readers = then if is_forward else readers
    ends = [(i, i) for i in range(then)] if is_forward else [(i, j) for i in range(then) for j in range(readers)]
    edges = tuple(EdgeProfile(f"a/{i}", f"b/{j}", 10.0 + i + j, 5.0, send_cpu=1.0) for i, j in ends)
    profile = Profile({f"a/{i}": TaskProfile(load, 2.0) for i, load in enumerate(loads)}, edges, seconds=3.0)
    after = {"a": now, "b": now if is_forward else readers}
    found = rescaled(profile, {"a": then, "b": readers}, after, {("a", "b")} if is_forward else ())
    if now == then:
        assert found is profile
        return
    assert found.tasks.keys() == {f"a/{i}" for i in range(now)}
    assert sum(task.load for task in found.tasks.values()) == pytest.approx(sum(loads))
    assert sum(task.memory_mb or 0 for task in found.tasks.values()) == pytest.approx(2.0 * then)
    assert sum(edge.rate for edge in found.edges) == pytest.approx(sum(edge.rate for edge in edges))
    assert sum(edge.tuples or 0 for edge in found.edges) == pytest.approx(5.0 * len(edges))
    assert len(found.edges) == (now if is_forward else now * readers)
    assert found.seconds == 3.0


def test_replicas_send_task_by_task() -> None:
    top = ps.Topology("joined")
    region = top.source("made", io.generator(rows, "k bigint, n bigint")).parallel(2, name="region")
    region.filter("n > 2", name="one").filter("n > 3", name="two").merge().sink("out", io.collect())
    assert forward_streams(top.build()) == {("one", "two")}
    with pytest.raises(InvalidInput, match=r"operator 'one' cannot have 3 tasks .* and 'two' changes with it"):
        scaled(top.build(), "two", 3)


def facts(slots: int, busy: int) -> Facts:
    return Facts("local-cluster", "4.0.0", slots, busy, (Executor("1", "here", slots),))


def test_there_has_to_be_room_for_more_workers() -> None:
    require_room(facts(4, 2), "one", 2, 1, tasks=5, take_last_slot=False)
    require_room(facts(4, 2), "one", 2, 2, tasks=5, take_last_slot=True)
    said = (
        "has 4 slots, 2 of them free, of which one stays free for other queries; ask for at most 1, end other jobs, or"
    )
    with pytest.raises(NotEnoughSlots, match=said):
        require_room(facts(4, 2), "one", 2, 2, tasks=5, take_last_slot=False)
    with pytest.raises(NotEnoughSlots, match=r"has 4 slots, 0 of them free; ask for at most 0, end other jobs$"):
        require_room(facts(4, 5), "one", 2, 2, tasks=5, take_last_slot=True)
    with pytest.raises(InvalidInput, match="2 workers and 3 tasks, so 2 more would have nothing to do"):
        require_room(facts(9, 2), "one", 2, 2, tasks=3, take_last_slot=False)
    for strange in (0, -1, True, 1.5, 5000):
        with pytest.raises(InvalidInput, match="workers to add are"):
            require_room(facts(9, 2), "one", 2, strange, tasks=9000, take_last_slot=False)  # type: ignore[arg-type]


def test_who_has_least_to_do_leaves_and_the_others_are_numbered_anew() -> None:
    worker_of = {"a/0": 0, "a/1": 0, "b/0": 1, "b/1": 2, "c/0": 3, "c/1": 3}
    assert who_leaves(worker_of, 4, 1, "one") == (2,)
    assert who_leaves(worker_of, 4, 3, "one") == (1, 2, 3)
    assert numbered_anew(4, (2,)) == {0: 0, 1: 1, 3: 2}
    for strange in (0, 4, True):
        with pytest.raises(InvalidInput, match="one at least stays"):
            who_leaves(worker_of, 4, strange, "one")
    assert workers_of_node("n2", ["n1", "n2", "n2"], "one") == (1, 2)
    with pytest.raises(InvalidInput, match="unknown node of job 'one' 'n3'"):
        workers_of_node("n3", ["n1", "n2"], "one")
    with pytest.raises(InvalidInput, match="all workers of job 'one' are on node 'n1'"):
        workers_of_node("n1", ["n1", "n1"], "one")
