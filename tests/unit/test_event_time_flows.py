"""Event time through whole flows: who is late, who is not, what is refused, and what is told about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_kit import LocalJob

import penstock as ps
from penstock.deploy.driver.time_notes import lost_notes, time_notes
from penstock.deploy.metrics.sums import Sums
from penstock.run.engine.meters import TABLES
from penstock.run.engine.worker import TaskFault
from penstock.run.engine.worker_share import RunSettings
from penstock.run.operators.times import moment_of

SECOND = 1_000_000


def in_order(task: int, tasks: int) -> Iterator[tuple[int, int]]:
    """Every task's rows are in order; task 0 is far behind the others, in time as in rows."""
    for n in range(200):
        yield (n * (1 if task == 0 else 5) * SECOND // 10, n)


def source(top: ps.Topology, tasks: int, rows: Any = in_order) -> Any:  # noqa: ANN401
    return top.source("rows", ps.io.generator(rows, "at_us bigint, n bigint", tasks=tasks))


def parsed(stream: Any, tasks: int) -> Any:  # noqa: ANN401
    return stream.map(lambda row: (moment_of(row.at_us), row.n), "at timestamp, n bigint", name="parse", tasks=tasks)


def sums_of(job: LocalJob) -> Sums:
    sums = Sums()
    for control in job.controls:
        for tables in control.tables:
            for name in ("tasks", "edges"):
                sums.add(name, tables[name])
    return sums


@settings(max_examples=12)
@given(
    sources=st.integers(1, 4),
    maps=st.integers(1, 4),
    counts=st.integers(1, 3),
    workers=st.integers(1, 3),
    rows_max=st.sampled_from([1, 7, 4096]),
)
def test_event_time_behind_a_map_waits_for_the_slowest_source_task(
    sources: int, maps: int, counts: int, workers: int, rows_max: int
) -> None:
    top = ps.Topology("mapped")
    timed = parsed(source(top, sources), maps).event_time("at", "0 seconds")
    counted = timed.key_by("n").count(window=ps.tumbling("5 seconds"), tasks=counts)
    counted.sink("out", ps.io.collect())
    counted.late.sink("late", ps.io.collect())
    job = LocalJob(top.build(), workers, settings=RunSettings(rows_max=rows_max)).run()
    assert job.rows("late") == []
    found = Counter({(row["window_start"].timestamp(), row["n"]): row["count"] for row in job.rows("out")})
    wanted = Counter((us // SECOND // 5 * 5, n) for task in range(sources) for us, n in in_order(task, sources))
    assert found == wanted


def test_windows_behind_a_map_close_as_time_goes_on() -> None:
    top = ps.Topology("closing")
    timed = parsed(source(top, 2), 2).event_time("at", "0 seconds")
    timed.key_by("n").count(window=ps.tumbling("1 second")).sink("out", ps.io.collect())
    job = LocalJob(top.build(), 1, settings=RunSettings(rows_max=10)).run()
    assert len(job.delivered["out"]) > 5  # a batch for each window that closed, not all at the end


def test_rows_that_others_have_mixed_get_no_event_time() -> None:
    top = ps.Topology("mixed")
    once = parsed(source(top, 2), 2)
    twice = once.filter(lambda row: True, name="again", tasks=2)
    with pytest.raises(
        ps.InvalidInput,
        match=r"event_time of 'again' comes after 'parse', each task of which mixes the rows of several tasks of "
        r"'rows'.*"
        r"call event_time on 'parse' or before.*or give 'rows' one task; or leave lateness out",
    ):
        twice.event_time("at", "1 second")
    once.event_time("at", "1 second")  # here it can be told


@pytest.mark.parametrize("tasks", [1, 3])
def test_one_source_task_is_never_mixed_whatever_follows(tasks: int) -> None:
    top = ps.Topology("alone")
    once = parsed(source(top, 1), tasks)
    assert once.filter(lambda row: True, tasks=2).event_time("at", "1 s").time_column == "at"


def test_a_region_has_the_order_of_its_splitter() -> None:
    def merged(tasks: int) -> Any:  # noqa: ANN401
        top = ps.Topology("region")
        return (
            source(top, tasks)
            .parallel(2)
            .map(lambda row: (moment_of(row.at_us), row.n), "at timestamp, n bigint")
            .merge()
        )

    assert merged(1).event_time("at", "1 s").time_column == "at"
    with pytest.raises(ps.InvalidInput, match=r"comes after '\w+\.split', each task of which mixes"):
        merged(2).event_time("at", "1 s")


def backwards(task: int, tasks: int) -> Iterator[tuple[int, int]]:
    for n in reversed(range(100)):
        yield n * SECOND, n


def test_without_a_lateness_windows_of_bounded_rows_wait_for_the_end_and_nothing_is_late() -> None:
    top = ps.Topology("unordered")
    timed = parsed(source(top, 2, backwards), 2).filter(lambda row: True, tasks=2).event_time("at")
    timed.key_by("n").count(window=ps.tumbling("10 seconds")).sink("out", ps.io.collect())
    flow = top.build()
    job = LocalJob(flow, 2, settings=RunSettings(rows_max=5)).run()
    assert sum(row["count"] for row in job.rows("out")) == 200
    notes = time_notes(flow, sums_of(job), 0)
    assert len(notes) == 1
    assert notes[0].startswith("event time of 'filter1' comes from rows in no known order, so its windows close when")


def late_flow(on_late: str = "side") -> ps.Topology:
    top = ps.Topology("late")
    rows = [(100 * SECOND, 1), (1 * SECOND, 1), (None, 1), (101 * SECOND, 2)]
    given = ps.io.generator(lambda task, tasks: rows, "at timestamp, n bigint")
    timed = top.source("rows", given).event_time("at")
    timed.key_by("n").count(window=ps.tumbling("10 seconds"), name="count", on_late=on_late).sink(
        "out", ps.io.collect()
    )
    return top


def test_late_rows_are_counted_and_told_though_nobody_reads_them() -> None:
    flow = late_flow().build()
    job = LocalJob(flow, 1, settings=RunSettings(rows_max=1)).run()
    sums = sums_of(job)
    assert sums.tasks["count/0"]["late"] == 2
    assert sums.tasks["count/0"]["tuples_out"] == 2  # results, not rows that were dropped
    in_2024, in_1969 = 1_700_000_000 * SECOND, -10_000 * SECOND
    told = "2 rows were late and nobody reads .late of 'count'; event time there had come to 1970-01-01T00:01:41+00:00"
    untimed = "; rows without a time count as late too"
    assert time_notes(flow, sums, in_2024) == (told + untimed,)
    assert time_notes(flow, sums, in_1969) == (
        f"{told}, ahead of the clock: a row from the future makes all others late{untimed}",
    )


def test_a_function_that_may_have_moved_times_is_named_with_the_rows_that_were_late() -> None:
    top = ps.Topology("moved")
    rows = [(t * SECOND, 1) for t in (1, 12, 23, 34)]
    timed = top.source("rows", ps.io.generator(lambda task, tasks: rows, "at timestamp, n bigint")).event_time("at")
    moved = timed.map(lambda row: (row.at.replace(second=0), row.n), schema="at timestamp, n bigint", name="to_minutes")
    moved.where("n > 0").key_by("n").count(window=ps.tumbling("10 seconds"), name="count").sink("out", ps.io.collect())
    flow = top.build()
    sums = sums_of(LocalJob(flow, 1, settings=RunSettings(rows_max=1)).run())
    (note,) = time_notes(flow, sums, 1_700_000_000 * SECOND)
    assert note.startswith("2 rows were late and nobody reads .late of 'count'")
    assert note.endswith("; where 'to_minutes' changed the column of event time, write event_time again behind it")


def test_late_rows_that_somebody_reads_are_no_news() -> None:
    top = late_flow()
    top.build()
    counts = ps.Topology("read")
    rows = [(100 * SECOND, 1), (1 * SECOND, 1)]
    timed = counts.source("rows", ps.io.generator(lambda task, tasks: rows, "at timestamp, n bigint")).event_time("at")
    counted = timed.key_by("n").count(window=ps.tumbling("10 seconds"))
    counted.sink("out", ps.io.collect())
    counted.late.sink("late", ps.io.collect())
    flow = counts.build()
    job = LocalJob(flow, 1, settings=RunSettings(rows_max=1)).run()
    assert len(job.rows("late")) == 1
    assert time_notes(flow, sums_of(job), 0) == ()


@pytest.mark.parametrize(
    ("read", "told"),
    [((), "late and nobody reads .late and .late_right"), (("late",), "late on both sides and nobody")],
)
def test_late_rows_of_a_join_are_told_unless_both_sides_are_read(read: tuple[str, ...], told: str) -> None:
    top = ps.Topology("join")
    rows = [(100 * SECOND, 1), (1 * SECOND, 1)]
    a, b = (
        top.source(name, ps.io.generator(lambda task, tasks: rows, f"{name} timestamp, n bigint")).event_time(name)
        for name in "ab"
    )
    joined = a.join(b, "n", window=ps.tumbling("10 seconds"), name="join")
    joined.sink("out", ps.io.collect())
    for output in read:
        getattr(joined, output).sink(output, ps.io.collect())
    flow, sums = top.build(), Sums()
    row = dict.fromkeys(TABLES["tasks"].names, 0) | {
        "task": "join/0",
        "node": "n1",
        "idle": False,
        "ended": False,
        "late": 2,
    }
    sums.add("tasks", pa.RecordBatch.from_pylist([row], TABLES["tasks"]))
    (note,) = time_notes(flow, sums, 0)
    assert note.startswith(f"2 rows were {told}")
    joined.late_right.sink("right", ps.io.collect())
    assert bool(time_notes(top.build(), sums, 0)) == (not read)


def test_late_rows_end_the_job_where_that_was_asked_for() -> None:
    flow = late_flow("error").build()
    with pytest.raises(TaskFault, match=r"RowsLate: operator 'count': a row of 1970-01-01T00:00:01\+00:00 is late"):
        LocalJob(flow, 1, settings=RunSettings(rows_max=1)).run()
    with pytest.raises(ps.InvalidInput, match=r"on_late of count of 'rows' is 'drop'; it is 'side' or 'error'"):
        late_flow("drop")


def test_late_rows_of_a_join_end_the_job_where_that_was_asked_for() -> None:
    top = ps.Topology("join")
    rows = [(100 * SECOND, 1), (1 * SECOND, 1)]
    a, b = (
        top.source(name, ps.io.generator(lambda task, tasks: rows, f"{name} timestamp, n bigint")).event_time(name)
        for name in "ab"
    )
    a.join(b, "n", window=ps.tumbling("10 seconds"), on_late="error").sink("out", ps.io.collect())
    with pytest.raises(TaskFault, match=r"RowsLate: operator 'join1': a row of 1970-01-01T00:00:01\+00:00 is late"):
        LocalJob(top.build(), 1, settings=RunSettings(rows_max=1)).run()


def test_bounded_rows_without_event_time_have_no_windows_by_the_clock_unless_that_is_said() -> None:
    top = ps.Topology("clock")
    rows = source(top, 1)
    with pytest.raises(
        ps.InvalidInput, match=r"count of 'rows' has a window, but 'rows' has no event time.*event_time"
    ):
        rows.key_by("n").count(window=ps.tumbling("10 seconds"))
    assert rows.key_by("n").count(window=ps.tumbling("10 seconds", time="processing")).windowed
    endless = top.source("ticks", ps.io.rate(10))
    assert endless.key_by("value").count(window=ps.tumbling("10 seconds")).windowed


class Passes(ps.Stateful):
    schema = "at timestamp, n bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Any) -> None:  # noqa: ANN401
        emit((row.at, row.n))


def test_event_time_behind_state_is_never_ahead_of_its_input() -> None:
    """Rows of two readers go through one stateful task; what it emits of the slower one is in time all the same."""
    top = ps.Topology("stateful")
    timed = parsed(source(top, 2), 2).event_time("at", "0 seconds").key_by("n").process(Passes)
    counted = timed.event_time("at", "0 seconds").key_by("n").count(window=ps.tumbling("5 seconds"), on_late="error")
    counted.sink("out", ps.io.collect())
    job = LocalJob(top.build(), 2, settings=RunSettings(rows_max=7)).run()
    assert sum(row["count"] for row in job.rows("out")) == 400
    assert len(job.delivered["out"]) > 5  # and windows close as time goes on


def test_state_that_mixes_readers_without_event_time_gets_none() -> None:
    top = ps.Topology("mixer")
    state = parsed(source(top, 2), 2).key_by("n").process(Passes, name="state")
    with pytest.raises(ps.InvalidInput, match=r"event_time of 'state' comes after 'state', each task of which mixes"):
        state.event_time("at", "0 seconds")
    assert state.event_time("at").time_column == "at"  # bounded: windows wait for the end


def test_a_reader_whose_rows_a_filter_keeps_away_holds_nobody_back() -> None:
    """Task 1 has rows all the while, none of which pass: it is not idle, and its edge says nothing."""
    closed: list[object] = []

    def ticks(task: int, tasks: int) -> Iterator[tuple[object, int] | None]:
        n = 0
        while not closed:
            n += 1
            yield moment_of(n * SECOND), task

    top = ps.Topology("filtered")
    ticking = top.source("ticks", ps.io.generator(ticks, "at timestamp, k bigint", tasks=2, bounded=False), idle="1 ms")
    timed = ticking.where("k = 0").event_time("at", "0 seconds")
    timed.key_by("k").count(window=ps.tumbling("10 seconds")).sink("seen", ps.io.callback(closed.append, rows=True))
    LocalJob(top.build(), 1, settings=RunSettings(rows_max=64, interval_s=0.02)).run()
    assert closed


def test_a_note_about_times_beyond_the_calendar_is_a_note() -> None:
    flow = late_flow().build()
    job = LocalJob(flow, 1, settings=RunSettings(rows_max=1)).run()
    sums = sums_of(job)
    sums.watermarks_us["count/0"] = 300_000_000_000 * SECOND
    (note,) = time_notes(flow, sums, 0)
    assert "had come to 300000000000000000 us since 1970" in note


@pytest.mark.parametrize("read", [False, True])
def test_rows_that_failed_are_counted_and_told_where_nobody_reads_them(read: bool) -> None:
    top = ps.Topology("failing")
    given = ps.io.generator(lambda task, tasks: [(n,) for n in (4, 0, 2, 0, 1)], "n bigint")
    halves = top.source("rows", given).map(lambda row: (8 // row.n,), "h bigint", name="halve", on_error="quarantine")
    halves.sink("out", ps.io.collect())
    if read:
        halves.errors.sink("errors", ps.io.collect())
    flow = top.build()
    sums = sums_of(LocalJob(flow, 1).run())
    assert sums.tasks["halve/0"]["quarantined"] == 2
    told = "2 rows failed in 'halve' and were dropped: nobody reads its .errors"
    assert lost_notes(flow, sums, 0) == (() if read else (told,))
