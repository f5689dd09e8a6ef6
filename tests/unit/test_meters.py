"""What time and bytes are charged to: tasks, ends of edges, the loop, and nothing left over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._core import SLICE_NS, Tally, latency_bucket
from penstock.run.engine.core_wait import waited_ns
from penstock.run.engine.meters import TABLES, Clocks, Meters, joined, percentile, upper_end_us
from penstock.run.engine.outputs import Packet
from penstock.run.transport.wire import Kind, codec_of

US = 1_000
HEAD = 64
NUMBERS = pa.record_batch({"i": [1, 2, 3]})
IMAGE = codec_of(NUMBERS.schema).prepare(NUMBERS)


class Watch:
    """Two clocks that move when they are told to."""

    def __init__(self) -> None:
        self.wall = self.cpu = 1_000 * US

    def work(self, us: int) -> None:
        self.wall += us * US
        self.cpu += us * US

    def idle(self, us: int) -> None:
        self.wall += us * US


@pytest.fixture
def clocks() -> Watch:
    return Watch()


def timed_by(watch: Watch, *tasks: str) -> Meters:
    """A worker of these tasks; two edges, from the first to the last and back."""
    edges = [(tasks[0], tasks[-1]), (tasks[-1], tasks[0])]
    clocks = Clocks(lambda: watch.wall, lambda: watch.cpu)
    made = Meters(0, "n0", tasks, edges, [NUMBERS.schema] * 2, clocks)
    made.start(0)
    return made


def reported(made: Meters) -> dict[str, list[dict[str, object]]]:
    count = len(made.tuples_out)
    tables = made.snapshot(1, [(0, 0)] * count, [0] * count)
    return {name: batch.to_pylist() for name, batch in tables.items()}


def counted(made: Meters) -> list[object]:
    return [row["cpu_us"] for row in reported(made)["tasks"]]


def test_a_send_that_is_put_aside_for_whom_it_wakes_is_not_charged_for_that_time(clocks: Watch) -> None:
    """Fewer cores than workers: each send takes 10 us and is put aside for 990, in the middle."""
    made, sends = timed_by(clocks, "a", "b"), 4_000
    for _ in range(sends):
        made.run(0, 1)
        clocks.work(90)
        made.sending(0)
        clocks.work(5)
        clocks.idle(990)
        clocks.work(5)
        made.sent(0, 0, NUMBERS, 3)
        made.switch(made.loop)
        made.settle()
    tables = reported(made)
    work = sum(float(str(row["cpu_us"])) for row in tables["tasks"])
    sent = sum(float(str(row["send_us"])) for row in tables["edges"])
    assert work + sent == pytest.approx(sends * 100, rel=0.01)
    assert work == pytest.approx(sends * 90, rel=0.02)


def test_nested_runs_are_charged_to_whoever_is_at_work(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    made.switch(0)
    clocks.work(100)
    caller = made.switch(1)
    clocks.work(40)
    assert made.switch(caller) == 1
    clocks.work(60)
    made.switch(made.loop)
    clocks.work(1_000)
    assert counted(made) == [160, 40]


def test_waiting_costs_nobody_anything(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0")
    made.switch(0)
    clocks.work(500)
    made.switch(made.waiting)
    clocks.idle(1_000_000)
    made.switch(made.loop)
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [500]
    (worker,) = tables["workers"]
    assert (worker["cpu_us"], worker["loop_us"], worker["waiting_us"]) == (500, 0, 1_000_000)


def test_cpu_that_waiting_took_is_the_loops(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0")
    made.switch(0)
    clocks.work(500)
    made.switch(made.waiting)
    clocks.work(30)  # going to sleep and waking up
    made.switch(made.loop)
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [500]
    assert tables["workers"][0]["loop_us"] == 30


def test_a_task_that_sleeps_for_longer_than_a_slice_is_not_charged_for_it(clocks: Watch) -> None:
    made, slice_us = timed_by(clocks, "busy/0", "sleepy/0"), SLICE_NS // US
    for _ in range(10):
        made.run(0, 1)
        clocks.work(slice_us)
        made.switch(made.loop)
        made.settle()
        made.run(1, 1)
        clocks.idle(10 * slice_us)
        made.switch(made.loop)
        made.settle()
    busy, sleepy = reported(made)["tasks"]
    assert (busy["cpu_us"], sleepy["cpu_us"]) == (10 * slice_us, 0)
    assert (busy["busy_us"], sleepy["busy_us"]) == (10 * slice_us, 100 * slice_us)  # how long its code takes
    assert sleepy["runs"] == 10


def test_an_edge_is_charged_with_sending_and_the_task_with_the_rest(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    made.run(0, 3)
    clocks.work(100)
    made.sending(0)
    clocks.work(7)
    made.sent(0, 0, NUMBERS, 3)
    clocks.work(10)
    made.switch(made.loop)
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [110, 0]
    (edge,) = tables["edges"]
    assert (edge["send_us"], edge["receive_us"]) == (7, 0)
    assert (edge["tuples"], edge["bytes"], edge["batches"], edge["distance"]) == (3, 24, 1, "call")
    assert tables["tasks"][0]["bytes_out"] == 24


def test_a_call_is_charged_to_its_edge_until_the_called_task_runs_and_then_to_the_caller(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    made.run(0, 0)
    clocks.work(100)
    made.passed(0, 0, NUMBERS, 3)
    clocks.work(2)
    caller = made.run(1, 3)
    clocks.work(50)
    made.switch(caller)
    clocks.work(5)
    made.switch(made.loop)
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [105, 50]
    assert [row["send_us"] for row in tables["edges"]] == [2]


def test_taking_in_is_charged_by_bytes_and_opening_to_the_frame_that_is_opened(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    made.switch(made.waiting)
    clocks.idle(1_000)
    woken_ns = clocks.wall
    clocks.work(40)
    made.woken(woken_ns)
    made.taken(0, Kind.DATA, 0, 2 * HEAD)  # 3 parts of 4
    clocks.work(11)
    made.run(1, 3)  # straight into the task
    clocks.work(100)
    made.switch(made.loop)
    made.taken(1, Kind.CREDIT, 0, 0)  # 1 part of 4, at the sending end
    clocks.work(1)
    made.looked()
    tables = reported(made)
    flows = {row["source"]: (row["send_us"], row["receive_us"]) for row in tables["edges"]}
    assert flows == {"a/0": (0, 30 + 11), "b/0": (10 + 1, 0)}
    assert [row["cpu_us"] for row in tables["tasks"]] == [0, 100]
    assert tables["workers"][0]["waiting_us"] == 1_000


def test_a_look_that_finds_nothing_is_the_loops(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0")
    made.switch(made.arriving)
    clocks.work(9)
    made.switch(made.loop)
    made.looked()
    tables = reported(made)
    assert tables["workers"][0]["loop_us"] == 9
    assert tables["edges"] == []


def test_what_the_loop_does_on_its_way_to_something_is_charged_to_that(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    clocks.work(3)
    made.due(0, 1)
    clocks.work(100)
    made.switch(made.loop)
    clocks.work(4)
    made.dequeued((Packet(NUMBERS, 0, 0),))
    clocks.work(20)
    made.run(1, 3)
    clocks.work(50)
    made.switch(made.loop)
    clocks.work(5)
    made.receiving(1)
    clocks.work(7)
    made.rest()
    tables = reported(made)
    assert [(row["cpu_us"], row["busy_us"]) for row in tables["tasks"]] == [(103, 100), (50, 50)]
    assert [row["receive_us"] for row in tables["edges"]] == [4 + 20, 5 + 7]
    assert tables["workers"][0]["loop_us"] == 0


def test_the_rest_of_the_loop_is_shared_out_by_how_often_each_thing_made_it_turn(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    for edges in ([0, 0, 0], [1]):
        made.due(0, 1)
        made.switch(made.waiting)
        clocks.work(30)  # going to sleep
        made.woken(clocks.wall)
        for edge in edges:
            made.taken(edge, Kind.DATA, 0, 100)
            made.run(1, 1)
            made.switch(made.loop)
        made.looked()
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [20, 0]
    assert [row["receive_us"] for row in tables["edges"]] == [30, 10]
    assert tables["workers"][0]["loop_us"] == 0


def test_reports_are_the_workers_own(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0")
    made.due(0, 1)
    clocks.work(10)
    made.switch(made.reporting)
    clocks.work(300)
    made.switch(made.loop)
    clocks.work(6)
    tables = reported(made)
    assert [row["cpu_us"] for row in tables["tasks"]] == [16]
    assert (tables["workers"][0]["cpu_us"], tables["workers"][0]["loop_us"]) == (316, 300)


def test_queues_and_transports_are_summed_over_batches(clocks: Watch) -> None:
    made = timed_by(clocks, "a/0", "b/0")
    sent_ns = clocks.wall
    clocks.idle(50)
    made.taken(0, Kind.DATA, sent_ns, 100)
    made.queued(0)
    made.looked()
    clocks.idle(30)
    made.taken(0, Kind.DATA, sent_ns + 1_000_000 * US, 100)  # by a clock that is ahead of ours
    made.queued(0)
    made.looked()
    clocks.idle(5)
    made.dequeued((Packet(NUMBERS, 0, 0),))
    made.run(1, 3)
    made.switch(made.loop)
    (edge,) = reported(made)["edges"]
    assert (edge["transport_us"], edge["queue_us"]) == (50, 35 + 5)  # the second one waits still
    clocks.idle(100)
    made.dequeued((Packet(NUMBERS, 0, 0),))
    made.switch(made.loop)
    (edge,) = reported(made)["edges"]
    assert (edge["transport_us"], edge["queue_us"]) == (0, 100)


ACTS: list[Callable[[Meters], object]] = [
    lambda made: made.run(0, 1),
    lambda made: made.run(1, 1),
    lambda made: made.due(0, 1),
    lambda made: made.dequeued((Packet(NUMBERS, 0, 1),)),
    lambda made: made.sending(0),
    lambda made: made.handing(1),
    lambda made: made.sent(0, 0, NUMBERS, 3),
    lambda made: made.kept(0, 0, IMAGE),
    lambda made: made.held(0, 0, IMAGE),
    lambda made: made.passed(1, 1, NUMBERS, 3),
    lambda made: made.rest(),
    lambda made: made.switch(made.loop),
    lambda made: made.switch(made.waiting),
    lambda made: made.switch(made.arriving),
    lambda made: made.switch(made.reporting),
    lambda made: made.taken(1, Kind.DATA, 0, 100),
    lambda made: made.taken(0, Kind.CREDIT, 0, 0),
    lambda made: made.receiving(1),
    lambda made: made.looked(),
    lambda made: made.settle(True),
]


@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5_000), st.booleans()), max_size=60))
def test_all_cpu_time_is_charged_to_something(
    acts: list[tuple[Callable[[Meters], object], int, bool]],
) -> None:
    watch = Watch()
    made, began_ns = timed_by(watch, "a/0", "b/0"), watch.cpu
    charged = 0
    for act, ns, works in acts:
        act(made)
        watch.wall += ns
        watch.cpu += ns if works else 0
        if ns % 7 == 0:
            charged += sum(_all_of(reported(made)))
    tables = reported(made)
    charged += sum(_all_of(tables))
    ends = len(made.tuples_out) + 2 * 2 + 1
    assert watch.cpu - began_ns - ends * US <= charged * US <= watch.cpu - began_ns  # each keeps part of a microsecond
    (worker,) = tables["workers"]
    assert worker["cpu_us"] == sum(_all_of(tables))


def _all_of(tables: dict[str, list[dict[str, object]]]) -> list[int]:
    found = [row["cpu_us"] for row in tables["tasks"]] + [tables["workers"][0]["loop_us"]]
    found += [row[end] for row in tables["edges"] for end in ("send_us", "receive_us")]
    return found  # type: ignore[return-value] # columns of integers


def test_counts_start_afresh_when_they_are_taken_and_know_their_limits() -> None:
    tally = Tally(2, [None])
    tally.run(1, 5)
    tally.switch_to(tally.loop)
    tally.sent(0, 0, pa.record_batch({"i": [1]}), 5)
    tally.arrived(0, 1000, 3)
    tally.arrived(0, 1001, 4)
    assert tally.take_tasks()[:3] == ([0, 5], [0, 1], [8, 0])
    assert [edge[:4] for edge in tally.take_edges()] == [(0, 5, 8, 1)]
    assert tally.take_latency() == [(0, latency_bucket(1000), 2, 7)]
    assert tally.take_tasks()[:3] == ([0, 0], [0, 0], [0, 0])
    assert tally.take_edges() == tally.take_latency() == []
    for refused in (
        lambda: tally.run(2, 1),
        lambda: tally.switch_to(6),
        lambda: tally.sending(1),
        lambda: tally.sent(0, 1, NUMBERS, 1),
        lambda: tally.queued(1),
    ):
        with pytest.raises(IndexError):
            refused()


@given(latency_us=st.integers(0, 1 << 40))
def test_buckets_hold_what_falls_into_them(latency_us: int) -> None:
    end = upper_end_us(latency_bucket(latency_us))
    assert latency_us <= end <= latency_us * 1.04 + 1


def test_percentiles_count_entries() -> None:
    assert percentile([(10, 98), (20, 1), (30, 1)], 0.5) == 10
    assert percentile([(10, 98), (20, 1), (30, 1)], 0.99) == 20
    assert percentile([], 0.5) == 0


def test_joined_intervals_keep_counts_and_the_last_state() -> None:
    def rows(name: str, *values: tuple[object, ...]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([dict(zip(TABLES[name].names, v, strict=True)) for v in values], TABLES[name])

    latency = [rows("latency", (1, "a/0", 7, 2, 20), (1, "a/0", 9, 1, 10)), rows("latency", (2, "a/0", 7, 3, 30))]
    assert joined("latency", latency) == rows("latency", (2, "a/0", 7, 5, 50), (1, "a/0", 9, 1, 10))
    links = [rows("links", (i, 1, 0, 1, "ring", 10, 100, i, 5)) for i in (1, 2)]
    assert joined("links", links) == rows("links", (2, 2, 0, 1, "ring", 20, 200, 2, 10))
    balance = [rows("balance", (i, "r", 0, 500 + i, 0.5, 1.0 * i, 10 * i, 0)) for i in (1, 2)]
    assert joined("balance", balance) == balance[1]
    assert joined("balance", balance[:1]) == balance[0]


def test_time_without_a_core_is_told_where_the_machine_counts_it(clocks: Watch, tmp_path: Path) -> None:
    (tmp_path / "schedstat").write_bytes(b"54696 1234567 3\n")
    assert waited_ns(str(tmp_path / "schedstat")) == 1_234_567
    (tmp_path / "schedstat").write_bytes(b"54696")
    assert waited_ns(str(tmp_path / "schedstat")) is None
    assert waited_ns(str(tmp_path / "none")) is None
    real = Meters(0, "n0", ("a/0",), [])
    real.start(0)
    (told,) = reported(real)["workers"]
    assert (told["delayed_us"] is None) == (waited_ns() is None)
    assert reported(timed_by(clocks, "a/0"))["workers"][0]["delayed_us"] is None  # its thread is everybody's
