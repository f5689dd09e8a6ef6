"""A source that is ahead waits for the slowest, whatever its speed; the slowest is never held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_kit import LocalJob

import penstock as ps
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US
from penstock.run.engine import pace
from penstock.run.engine.pace import Floors, Pace, pace_groups, pace_speakers
from penstock.run.engine.worker_share import RunSettings

ROW_BYTES = 16  # a time and a number


@pytest.fixture
def ten_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "BYTES_AHEAD_MAX", 20)


def two_streams(fast: Any, slow: Any) -> ps.Topology:  # noqa: ANN401
    top = ps.Topology("pair")
    a, b = (
        top.source(name, ps.io.generator(rows, f"{name} timestamp, n bigint")).event_time(name)
        for name, rows in (("a", fast), ("b", slow))
    )
    a.join(b, "n", window=ps.tumbling("1 ms")).sink("out", ps.io.collect())
    return top


def test_a_source_with_so_many_rows_ahead_waits_until_the_slowest_has_come_as_far(ten_ahead: None) -> None:
    one = Pace({0: 7, 1: 7})
    one.polled(0, 6, 100)
    one.polled(0, 6, 200)
    assert not one.may_run(0)  # the other has promised nothing
    assert one.may_run(1)
    one.polled(1, 1, 99)
    assert not one.may_run(0)
    one.polled(1, 1, 100)
    assert one.may_run(0)  # six of the twelve are no longer ahead
    one.polled(0, 6, 300)
    assert not one.may_run(0)
    one.polled(1, 0, None)  # idle, or ended
    assert one.may_run(0)


def test_sources_of_other_workers_are_waited_for_too(ten_ahead: None) -> None:
    one = Pace({0: 7}, elsewhere=[7])
    assert one.speaks
    one.polled(0, 20, 100)
    assert not one.may_run(0)
    assert one.floors() == {7: 100}
    one.heard({7: 100, 8: 5})
    assert one.may_run(0)
    floors = Floors({0: [7], 1: [7], 2: [7]})
    assert floors.exchange(0, {7: 50}) == {7: BEFORE_TIME_US}
    assert floors.exchange(1, {7: 70}) == {7: BEFORE_TIME_US}
    assert floors.exchange(2, {7: END_OF_TIME_US}) == {7: 50}
    assert floors.exchange(0, {7: 60}) == {7: 70}
    floors.left(1)  # its last word was 70, and would hold the others there for ever
    assert floors.exchange(0, {7: 80}) == {7: END_OF_TIME_US}
    floors.left(2)
    assert floors.exchange(0, {7: 90}) == {7: END_OF_TIME_US}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200_000), st.integers(0, 50), st.booleans()), max_size=40))
def test_the_slowest_is_never_held(steps: list) -> None:
    one = Pace(dict.fromkeys(range(3), 1))
    times: dict[int, int | None] = dict.fromkeys(range(3), BEFORE_TIME_US)
    for task, rows, moved, ends in steps:
        time = times[task]
        times[task] = None if ends or time is None else max(time, 0) + moved
        one.polled(task, rows, times[task])
        live = {t: us for t, us in times.items() if us is not None}
        if live:
            assert one.may_run(min(live, key=lambda t: live[t]))


def test_only_sources_with_event_time_that_meet_keep_pace() -> None:
    top = two_streams(lambda task, tasks: [], lambda task, tasks: [])
    rows = ps.io.generator(lambda task, tasks: [], "at timestamp")
    top.source("alone", rows).event_time("at").sink("alone.out", ps.io.discard())
    top.source("two tasks", rows, tasks=2).event_time("at").sink("two.out", ps.io.discard())
    top.source("no time", rows, tasks=2).sink("none.out", ps.io.discard())
    flow = top.build()
    groups = pace_groups(flow)
    assert sorted(groups) == ["a", "b", "two tasks"]
    assert groups["a"] == groups["b"] != groups["two tasks"]
    worker_of = {"a/0": 0, "b/0": 1, "two tasks/0": 1, "two tasks/1": 1, "alone/0": 2, "join1/0": 2}
    assert pace_speakers(flow, worker_of) == {0: {groups["a"]}, 1: {groups["a"]}}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_one_ahead_waits_so_that_a_join_keeps_little(
    workers: int, ten_ahead: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow side gives a row only when the fast one is held (or for the last rows, where nobody is)."""
    monkeypatch.setattr(pace, "BYTES_AHEAD_MAX", 100 * ROW_BYTES * (1 if workers == 2 else 2))
    rows, ahead, held = 1_000, [0, 0], threading.Event()

    def fast(task: int, tasks: int) -> Iterator[tuple[int, int]]:
        for n in range(rows):
            ahead[0] = n
            yield n * 1000, n

    def slow(task: int, tasks: int) -> Iterator[tuple[int, int] | None]:
        for n in range(rows):
            for _ in range(50 if n < 5 else 0):
                yield None
            held.set()
            ahead[1] = max(ahead[1], ahead[0] - n)
            yield n * 1000, n

    job = LocalJob(
        two_streams(fast, slow).build(), workers, {"a/0": 0, "b/0": workers - 1, "join1/0": 0}, RunSettings(rows_max=10)
    ).run()
    assert len(job.rows("out")) == rows
    assert ahead[1] < 300  # 100, what one poll adds, and what is heard late; without pace it is nearly all 1,000


def test_a_worker_whose_source_ends_first_holds_nobody_back(ten_ahead: None) -> None:
    """It leaves as soon as its source has ended, between two of its turns to say how far it is."""

    def rows(count: int) -> Any:  # noqa: ANN401
        return lambda task, tasks: ((n * 1000, n) for n in range(count))

    top = two_streams(rows(500), rows(3))
    job = LocalJob(top.build(), 2, {"a/0": 0, "b/0": 1, "join1/0": 0}, RunSettings(rows_max=5)).run()
    assert len(job.rows("out")) == 3


def test_what_a_worker_said_before_it_left_is_not_waited_for_when_it_comes_late() -> None:
    floors = Floors({0: [7], 1: [7]})
    floors.left(0)
    assert floors.exchange(0, {7: 5}) == {7: BEFORE_TIME_US}
    assert floors.exchange(1, {7: 9}) == {7: END_OF_TIME_US}


def test_who_is_held_asks_at_once_then_soon_and_at_last_seldom(ten_ahead: None) -> None:
    """Both may be held for what they have heard is old: they must not wait for each other at the pace of rest."""
    one = Pace({0: 7}, elsewhere=[7])
    one.heard({7: 50})
    one.polled(0, 20, 100)
    assert one.wait_us == pace.EVERY_US
    assert not one.is_pressed
    assert not one.may_run(0)
    assert one.is_pressed
    one.heard({7: 50})
    assert one.wait_us == pace.SOON_US
    assert not one.is_pressed
    waits = []
    for _ in range(7):
        assert not one.may_run(0)
        assert not one.is_pressed  # it has asked already
        one.heard({7: 50})
        waits.append(one.wait_us)
    assert waits == [10_000, 20_000, 40_000, 80_000, 160_000, pace.AT_REST_US, pace.AT_REST_US]
    assert not one.may_run(0)
    one.heard({7: 60})
    assert one.wait_us == pace.SOON_US
    one.heard({7: 100})
    assert one.may_run(0)
    assert one.wait_us == pace.EVERY_US
