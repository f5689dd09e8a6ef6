"""A source without rows tells that time need not wait for it, and tells that it must before the next row goes out."""

from __future__ import annotations

import pyarrow as pa
import pytest
from worker_kit import LocalJob

import penstock as ps
from penstock.deploy.driver.time_notes import time_notes
from penstock.deploy.metrics.sums import Sums
from penstock.run.contract import BEFORE_TIME_US, IDLE_US
from penstock.run.dataflow import Grouping
from penstock.run.engine.meters import TABLES
from penstock.run.engine.outputs import OutStream, SourceOutputs
from penstock.run.engine.routing import Router

ROWS = pa.RecordBatch.from_pydict({"n": [1]})


class Carried:
    """A worker that remembers."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        self.events.append(("rows", edge))

    def push_watermark(self, edge: int, time_us: int) -> None:
        self.events.append((time_us, edge))


def outputs(idle_us: int | None) -> tuple[SourceOutputs, list[object]]:
    carried = Carried()
    router = Router(Grouping("all"), targets=range(2), local=[True, True], index=0, tasks=1)
    return SourceOutputs(carried, 0, {"out": [OutStream(router, [0, 1])]}, idle_us), carried.events  # type: ignore[arg-type]


def test_after_so_long_without_rows_time_goes_on_and_the_first_row_stops_it_on_every_edge() -> None:
    out, events = outputs(100)
    assert out.polled(0) == 100  # to be asked again by then
    assert out.polled(99) == 100
    assert events == []
    assert out.polled(100) is None
    assert events == [(IDLE_US, 0), (IDLE_US, 1)]
    assert out.event_time() == (None, True)
    assert out.polled(500) is None
    events.clear()
    out.emit(ROWS)
    assert events == [(BEFORE_TIME_US, 0), (BEFORE_TIME_US, 1), ("rows", 0), ("rows", 1)]
    assert out.event_time() == (None, False)
    assert out.polled(600) is None  # rows came
    assert out.polled(10_600) == 10_700  # it was not asked for long, and is quiet from here on
    out.watermark(7)
    out.emit(ROWS)
    assert [out.polled(us) for us in (10_650, 10_651, 10_751)] == [None, 10_751, None]
    assert out.is_idle
    events.clear()
    out.emit(ROWS)
    assert events[:2] == [(7, 0), (7, 1)]


def test_a_source_that_is_not_to_fall_idle_never_does() -> None:
    out, events = outputs(None)
    assert [out.polled(us) for us in (0, 10**15)] == [None, None]
    assert events == []


def test_endless_sources_fall_idle_after_a_minute_and_bounded_ones_never_unless_told() -> None:
    top = ps.Topology("t")
    endless = ps.io.generator(lambda task, tasks: iter(()), "n bigint", bounded=False)
    bounded = ps.io.generator(lambda task, tasks: iter(()), "n bigint")
    for name, source, idle in (
        ("a", endless, None),
        ("b", endless, "5 s"),
        ("c", bounded, None),
        ("d", bounded, "2 s"),
    ):
        top.source(name, source, idle=idle).sink(f"{name}.out", ps.io.discard())
    assert [o.idle_us for o in top.build().operators] == [60_000_000, 5_000_000, None, 2_000_000]


def test_windows_close_though_one_source_task_has_no_rows() -> None:
    """Task 1 has nothing until a window of task 0 has closed: without idleness, none ever would."""
    closed = []

    def ticks(task: int, tasks: int):  # noqa: ANN202
        if task == 0:
            yield from ((n * 1_000_000, n) for n in range(20))
        while not closed:
            yield None

    top = ps.Topology("idle")
    timed = top.source("ticks", ps.io.generator(ticks, "at timestamp, n bigint", tasks=2), idle="1 ms").event_time("at")
    counts = timed.key_by("n").count(window=ps.tumbling("10 seconds"))
    counts.sink("seen", ps.io.callback(closed.append, rows=True))
    counts.sink("out", ps.io.collect())
    job = LocalJob(top.build(), 2).run()
    assert len(job.rows("out")) == 20
    rows = [row for control in job.controls for table in control.tables for row in table["tasks"].to_pylist()]
    assert any(row["idle"] for row in rows if row["task"] == "ticks/1")


def test_an_idle_source_task_is_told_while_it_is_idle() -> None:
    top = ps.Topology("idle")
    source = ps.io.generator(lambda task, tasks: iter(()), "n bigint", tasks=8, bounded=False)
    top.source("ticks", source).filter(lambda row: True, name="all").sink("out", ps.io.discard())
    flow, sums = top.build(), Sums()

    def notes(idle: dict[str, bool]) -> tuple[str, ...]:
        zeros = dict.fromkeys(TABLES["tasks"].names, 0) | {"node": "n1", "ended": False}
        rows = [zeros | {"task": task, "idle": is_idle} for task, is_idle in idle.items()]
        sums.add("tasks", pa.RecordBatch.from_pylist(rows, TABLES["tasks"]))
        return time_notes(flow, sums, 0)

    assert notes({"ticks/0": False, "all/0": True}) == ()
    (note,) = notes({"ticks/1": True})
    assert note.startswith("source task 'ticks/1' had no rows for a while: event time goes on without them; idle= of")
    assert "'ticks/5' and 2 more had no rows" in notes({f"ticks/{i}": True for i in range(1, 8)})[0]
    assert notes({f"ticks/{i}": False for i in range(1, 8)}) == ()  # they have woken


@pytest.mark.parametrize("idle_side", ["a", "b"])
def test_a_join_lets_go_of_its_rows_though_one_side_has_none(idle_side: str) -> None:
    """The idle side ends when a window of the other has closed: without idleness the join would keep all rows."""
    closed: list[object] = []

    def rows(side: str):  # noqa: ANN202
        def ticks(task: int, tasks: int):  # noqa: ANN202
            if side != idle_side:
                yield from ((n * 1_000_000, n) for n in range(100))
            while not closed:
                yield None

        return ticks

    top = ps.Topology("idle_join")
    a, b = (
        top.source(side, ps.io.generator(rows(side), f"{side} timestamp, n bigint"), idle="1 ms").event_time(side)
        for side in "ab"
    )
    joined = a.join(b, "n", window=ps.tumbling("10 seconds"), how="full")
    joined.sink("seen", ps.io.callback(closed.append, rows=True))
    joined.sink("out", ps.io.collect())
    job = LocalJob(top.build(), 2).run()
    assert len(job.rows("out")) == 100
