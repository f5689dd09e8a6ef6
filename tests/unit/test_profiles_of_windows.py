"""Profiles of the last minute, of busy time, and of everything, from rows that are known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deploy.metrics import recent
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.recent import window_us
from penstock.deploy.metrics.sums import Sums
from penstock.errors import InvalidInput
from penstock.model.profile import EdgeProfile, TaskProfile
from penstock.run.engine.meters import TABLES

SECOND_US = 1_000_000


def row(table: str, **values: Any) -> pa.RecordBatch:  # noqa: ANN401
    """One row, zero wherever nothing is given."""
    text = {"node": "n", "distance": "ring"}
    usual = {
        name: text.get(name, False if name == "idle" else None if name == "ended" else 0)
        for name in TABLES[table].names
    }
    return pa.RecordBatch.from_pylist([usual | values], TABLES[table])


def task(end_s: float, load: float, rows: int = 1, length_s: float = 1.0) -> pa.RecordBatch:
    interval_us = int(length_s * SECOND_US)
    return row(
        "tasks",
        time_us=int(end_s * SECOND_US),
        interval_us=interval_us,
        task="a/0",
        cpu_us=int(load * interval_us),
        busy_us=2 * int(load * interval_us),
        runs=10,
        tuples_out=rows,
    )


def edge(end_s: float, tuples: int, **values: Any) -> pa.RecordBatch:  # noqa: ANN401
    end = {"time_us": int(end_s * SECOND_US), "interval_us": SECOND_US, "source": "a/0", "target": "b/0"}
    return row("edges", **end, tuples=tuples, bytes=8 * tuples, batches=tuples // 10, **values)


def logged(*batches: tuple[str, pa.RecordBatch]) -> MetricLog:
    log = MetricLog("job")
    for name, batch in batches:
        log.take(0, name, batch)
    return log


def test_a_profile_has_all_that_was_measured() -> None:
    log = logged(
        ("tasks", task(1, 0.2)),
        ("tasks", task(2, 0.6)),
        ("edges", edge(2, 400, send_us=100_000)),
        ("edges", edge(2, 0, receive_us=300_000, transport_us=60_000, queue_us=20_000)),
    )
    profile = log.sums().profile()
    assert profile.tasks == {"a/0": TaskProfile(pytest.approx(0.4), None, pytest.approx(0.2), pytest.approx(80_000))}
    assert profile.edges == (EdgeProfile("a/0", "b/0", 1600, 200, 20, "ring", 0.05, 0.15, 2000),)
    assert (profile.seconds, profile.rows, profile.rows_per_second) == (2, 2, 1)


def test_a_window_takes_the_intervals_that_ended_within_it() -> None:
    log = logged(*(("tasks", task(s, s / 100)) for s in range(1, 11)), *(("edges", edge(s, s)) for s in range(1, 11)))
    last = log.recent(3.0).profile()
    assert last.tasks["a/0"].load == pytest.approx((8 + 9 + 10) / 300)
    assert last.edges[0].tuples == pytest.approx((8 + 9 + 10) / 3)
    assert last.seconds == 3
    assert log.recent("3 s").profile() == log.recent(timedelta(seconds=3)).profile() == last
    assert log.recent(1000.0).profile() == log.sums().profile()


def named(end_s: float, name: str, came: int, went: int) -> tuple[str, pa.RecordBatch]:
    end_us = int(end_s * SECOND_US)
    counts = {"tuples_in": came, "tuples_out": went, "cpu_us": 1000, "runs": 1}
    return "tasks", row("tasks", time_us=end_us, interval_us=SECOND_US, task=name, **counts)


def test_a_task_that_ended_before_the_window_has_load_0_and_only_sources_emit_rows_of_their_own() -> None:
    """Left out, it would have its declared load; a window that closes after the last row is no source."""
    read = [named(s, "a/0", 0, 100) for s in range(1, 11)]
    counted = [named(s, "b/0", 100 if s < 11 else 0, 7 if s == 100 else 0) for s in range(1, 101)]
    log = logged(*read, *counted, ("edges", edge(5, 300)))
    last = log.recent(20.0).profile()
    assert {task: found.load for task, found in last.tasks.items()} == {"a/0": 0.0, "b/0": pytest.approx(0.001)}
    assert (last.rows, last.rows_per_second) == (0.0, None)
    assert log.sums().profile().rows == 1000


def test_a_window_that_is_shorter_than_the_intervals_is_refused() -> None:
    log = logged(named(9.5, "a/0", 0, 100), named(10, "b/0", 100, 0))
    told = r"window is 0.4 s, in which task 'a/0' ended no interval: they take 1 s; ask for at least 2 s"
    with pytest.raises(InvalidInput, match=told):
        log.recent(0.4)


def test_more_rows_at_once_than_are_kept_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_ROWS_MAX", 0)
    kept = recent.Recent()
    kept.add("tasks", task(1, 0.1))
    with pytest.raises(InvalidInput, match="the job keeps the last 0 s"):
        kept.sums(1.0, Sums())


def test_figures_of_busy_time_leave_quiet_intervals_out() -> None:
    quiet = [("tasks", task(s, 0.01, rows=0)) for s in range(1, 9)]
    log = logged(
        *quiet, ("tasks", task(9, 0.7)), ("tasks", task(10, 0.9)), ("edges", edge(9, 300)), ("edges", edge(3, 0))
    )
    busy, all_of_it = log.sums().profile(busy=True), log.sums().profile()
    assert busy.tasks["a/0"].load == pytest.approx(0.8)
    assert busy.tasks["a/0"].spread == pytest.approx(0.1)
    assert busy.edges[0].tuples == 300  # in the one second in which it sent rows
    assert all_of_it.edges[0].tuples == 30
    assert (busy.seconds, busy.rows) == (None, None)  # figures of different times


def test_the_spread_weighs_intervals_by_their_length() -> None:
    log = logged(("tasks", task(1, 0.5)), ("tasks", task(1.001, 1.0, length_s=0.001)))
    assert log.sums().profile().tasks["a/0"].spread == pytest.approx(0.0158, rel=0.01)


def test_a_pair_that_sent_no_row_has_no_traffic_and_an_unknown_distance_no_costs() -> None:
    log = logged(("tasks", task(1, 0.5)), ("edges", edge(1, 0, send_us=5)))
    assert log.sums().profile().edges == ()
    log.take(0, "edges", edge(1, 10, distance="memory", send_us=5))
    (found,) = log.sums().profile().edges
    assert (found.distance, found.send_cpu, found.batches) == (None, None, None)


def test_what_is_kept_has_limits_and_a_longer_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "KEPT_SECONDS", 5.0)
    log = logged(*(("tasks", task(s, 0.1)) for s in range(1, 21)))
    assert log.recent(5.0).seconds == 5
    with pytest.raises(InvalidInput, match=r"window is 19.0, and the job keeps the last 6 s; ask for less"):
        log.recent(19.0)
    monkeypatch.setattr(recent, "KEPT_ROWS_MAX", 3)
    log.take(0, "tasks", task(21, 0.1))
    assert log.recent(3.0).seconds == 3
    assert log.sums().seconds == 21


ended = st.lists(st.tuples(st.integers(1, 30), st.sampled_from(["tasks", "edges", "latency"])), max_size=40)


@given(intervals=ended, packed=st.integers(1, 9), length_s=st.integers(1, 40))
def test_what_is_packed_counts_as_before(intervals: list[tuple[int, str]], packed: int, length_s: int) -> None:
    """Workers report in any order, so a window may begin within what was packed together."""
    found = []
    for batches in (packed, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recent, "PACKED_BATCHES", batches)
            log = MetricLog("job")
            for at, (end_s, name) in enumerate(intervals):
                rows = {"tasks": task(end_s, at / 100), "edges": edge(end_s, 10 * at)}
                rows["latency"] = row("latency", time_us=end_s * SECOND_US, task="a/0", latency_us=at, rows=at)
                log.take(0, name, rows[name])
            found.append((log._recent.sums(length_s, log.sums()), log.latency_us(0.5, length_s)))
    assert found[0] == found[1]


def test_ten_minutes_of_small_intervals_take_little_room() -> None:
    """They took 27 MB as batches of their own, in which no job's memory came to rest (`make torture`, line soak)."""
    kept = recent.Recent()
    for second in range(601):
        for worker in range(6):
            names = [f"{name}/{worker}" for name in ("read", "count", "out")]
            at = {"time_us": second * SECOND_US + worker * 999, "interval_us": SECOND_US + worker * 17}
            for name in ("tasks", "edges", "latency"):
                rows = [
                    row(name, **at, **({"task": n} if name != "edges" else {"source": n, "target": n})) for n in names
                ]
                kept.add(name, pa.concat_batches(rows))
    packed = sum(len(stream) for each in kept._packed for stream in each.tables.values())
    assert sum(each.rows for each in kept._packed) > 30_000
    assert packed < 1_000_000
    assert len(kept._kept) < 2 * recent.PACKED_BATCHES


def test_what_was_measured_with_other_numbers_of_tasks_is_forgotten_also_where_it_is_packed() -> None:
    kept = recent.Recent()
    for second in range(2 * recent.PACKED_BATCHES + 3):
        kept.add("tasks", task(second, 0.1))
    assert kept._packed
    kept.forget()
    assert [*kept._since(0)] == []


@pytest.mark.parametrize(
    ("window", "told"),
    [
        (0.0, "must be above 0"),
        (-1.0, "must be above 0"),
        (float("nan"), "must be above 0"),
        ("0 s", "must be above 0"),
        ("-5 s", "must be above 0"),
        ("60", "write a number and a unit"),
        (True, "give text such as"),
    ],
)
def test_windows_that_are_none(window: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises(InvalidInput, match=told):
        window_us(window)


def test_tables_that_no_profile_needs_are_left_out() -> None:
    assert Sums().profile().tasks == {}
    sums = Sums()
    sums.add("decisions", row("decisions", taken=False, tasks="", words="", figures=""))
    assert sums == Sums()
