"""CPU time is shared out by slices: by the clock of the wall within a slice, exactly over slices."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock._core import Tally, latency_bucket
from penstock.run.engine import meters
from penstock.run.engine.meters import SLICE_NS, TABLES, Meters, joined, percentile, upper_end_us


class Clocks:
    """Two clocks that move when they are told to."""

    def __init__(self) -> None:
        self.wall = self.cpu = 1_000

    def work(self, ns: int) -> None:
        self.wall += ns
        self.cpu += ns

    def idle(self, ns: int) -> None:
        self.wall += ns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr(meters, "time", SimpleNamespace(thread_time_ns=lambda: found.cpu))
    return found


def timed_by(clocks: Clocks, *tasks: str) -> Meters:
    made = Meters(0, "n0", tasks, [])
    made.switch = lambda to: made._tally.switch_to(to, clocks.wall)
    made.start(0)
    return made


def counted(made: Meters) -> list[int]:
    made.settle(at_once=True)
    return made.cpu_ns


def test_nested_runs_are_charged_to_whoever_is_at_work(clocks: Clocks) -> None:
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


def test_waiting_costs_nobody_anything(clocks: Clocks) -> None:
    made = timed_by(clocks, "a/0")
    made.switch(0)
    clocks.work(500)
    made.switch(made.waiting)
    clocks.idle(1_000_000)
    made.switch(made.loop)
    assert counted(made) == [500]


def test_a_task_that_sleeps_for_longer_than_a_slice_is_not_charged_for_it(clocks: Clocks) -> None:
    made = timed_by(clocks, "busy/0", "sleepy/0")
    for _ in range(10):
        made.switch(0)
        clocks.work(SLICE_NS)
        made.switch(made.loop)
        made.settle()
        made.switch(1)
        clocks.idle(10 * SLICE_NS)
        made.switch(made.loop)
        made.settle()
    busy, sleepy = counted(made)
    assert busy == 10 * SLICE_NS
    assert sleepy == 0


def test_bytes_of_what_passes_are_exact_where_rows_are_alike() -> None:
    import pyarrow as pa

    made = Meters(0, "n0", ["a/0"], [("a/0", "b/0")])
    for rows in range(1, 50):
        made.passed(0, 0, pa.record_batch({"i": list(range(rows))}), rows)
    edges = made.snapshot(1, [(0, 0)], [0])["edges"].to_pylist()
    assert [(row["tuples"], row["bytes"]) for row in edges] == [(sum(range(1, 50)), 8 * sum(range(1, 50)))]


def test_counts_start_afresh_when_they_are_taken_and_know_their_limits() -> None:
    tally = Tally(tasks=2, edges=1)
    tally.run(1, 5)
    tally.sent(1, 0, 5, 40)
    tally.arrived(0, 100)
    tally.arrived(0, 101)
    assert tally.take_counts() == ([0, 5], [0, 1], [0, 40], [5], [40])
    assert tally.take_latency() == [(0, latency_bucket(100), 2)]
    assert tally.take_counts() == ([0, 0], [0, 0], [0, 0], [0], [0])
    assert tally.take_latency() == []
    for refused in (lambda: tally.run(2, 1), lambda: tally.switch_to(4), lambda: tally.sent(0, 1, 1, 1)):
        with pytest.raises(IndexError):
            refused()


@given(latency_us=st.integers(0, 1 << 40))
def test_buckets_hold_what_falls_into_them(latency_us: int) -> None:
    end = upper_end_us(latency_bucket(latency_us))
    assert latency_us <= end <= latency_us * 1.13 + 1


def test_percentiles_count_entries() -> None:
    assert percentile([(10, 98), (20, 1), (30, 1)], 0.5) == 10
    assert percentile([(10, 98), (20, 1), (30, 1)], 0.99) == 20
    assert percentile([], 0.5) == 0


def test_joined_intervals_keep_counts_and_the_last_state() -> None:
    def rows(name: str, *values: tuple[object, ...]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([dict(zip(TABLES[name].names, v, strict=True)) for v in values], TABLES[name])

    latency = [rows("latency", (1, "a/0", 7, 2), (1, "a/0", 9, 1)), rows("latency", (2, "a/0", 7, 3))]
    assert joined("latency", latency) == rows("latency", (2, "a/0", 7, 5), (1, "a/0", 9, 1))
    links = [rows("links", (i, 1, 0, 1, "ring", 10, 100, i, 5)) for i in (1, 2)]
    assert joined("links", links) == rows("links", (2, 2, 0, 1, "ring", 20, 200, 2, 10))
    balance = [rows("balance", (i, "r", 0, 500 + i, 0.5, 1.0 * i, 10 * i, 0)) for i in (1, 2)]
    assert joined("balance", balance) == balance[1]
    assert joined("balance", balance[:1]) == balance[0]
