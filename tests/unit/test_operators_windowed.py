"""Windows against brute force: every window of every row, lateness, disorder, and any cut into batches."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from flow_kit import US, Recorder, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.schema import parse_schema
from penstock.flow.windows import sliding, tumbling
from penstock.run.columns.kernels import Aggregate
from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, LATE
from penstock.run.operators.keyed.unwindowed import AggregateFold, ReduceFold
from penstock.run.operators.keyed.windowed import (
    EventWindows,
    ProcessingWindows,
    assign,
    assign_slices,
    windowed_schema,
)
from penstock.run.operators.times import TIMESTAMP, Window

SCHEMA = parse_schema("word string, time timestamp, number bigint")
WINDOWS = [tumbling("10 microseconds"), sliding("30 us", "10 us"), sliding("25 us", "10 us"), sliding("7 us", "3 us")]
times = st.one_of(st.none(), st.integers(-60, 200))
rows = st.lists(st.tuples(st.sampled_from(["a", "b", None]), times, st.integers(0, 9)), max_size=40)
moves = st.one_of(st.none(), st.integers(0, 12))


def batch_of(values: list) -> pa.RecordBatch:
    columns = [
        pa.array([v[0] for v in values], pa.string()),
        pa.array([v[1] for v in values], pa.int64()).cast(US),
        pa.array([v[2] for v in values], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def fold() -> AggregateFold:
    return AggregateFold(SCHEMA, ["word"], [Aggregate("count", None, "count"), Aggregate("sum", "number", "total")])


def build(window: Window) -> partial:
    return partial(EventWindows, fold(), window, "time", windowed_schema(fold().output_schema, US))


def windows_of(time: int, window: Window) -> list[int]:
    """By definition: every multiple of the slide whose window holds the time."""
    first = (time - window.size_us) // window.slide_us * window.slide_us
    candidates = range(first, time + 1, window.slide_us)
    return [start for start in candidates if start <= time < start + window.size_us]


@given(
    found=st.lists(st.integers(-60, 200), min_size=1, max_size=40),
    window=st.sampled_from(WINDOWS),
    watermark_us=st.one_of(st.sampled_from((BEFORE_TIME_US, END_OF_TIME_US)), st.integers(-80, 220)),
)
def test_rows_in_order_of_time_are_sliced_as_others_are_filtered(
    found: list[int], window: Window, watermark_us: int
) -> None:
    batch = batch_of([("a", time, i) for i, time in enumerate(sorted(found))])
    sliced = assign_slices(batch, "time", window, watermark_us)
    if sliced is not None:
        assert sliced == assign(batch, "time", window, watermark_us)
    assert sliced is not None or max(found) - min(found) > 3 * len(found)  # far apart: mostly empty windows


def test_rows_out_of_order_without_a_time_or_ages_apart_are_not_sliced() -> None:
    window = WINDOWS[0]
    for found in ([2, 1], [1, None], [0, 10**15], []):
        assert assign_slices(batch_of([("a", time, 0) for time in found]), "time", window, BEFORE_TIME_US) is None


class Oracle:
    """Windows by brute force, row by row."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.watermark = BEFORE_TIME_US
        self.counts: Counter = Counter()
        self.totals: Counter = Counter()
        self.late: list = []

    def row(self, word: str | None, time: int | None, number: int) -> None:
        starts = [] if time is None else windows_of(time, self.window)
        still_open = [start for start in starts if start + self.window.size_us > self.watermark]
        for start in still_open:
            self.counts[start, word] += 1
            self.totals[start, word] += number
        if time is None or still_open != starts:
            self.late.append((word, time, number))

    def results(self) -> Counter:
        size = self.window.size_us
        return Counter((s, s + size, w, n, self.totals[s, w]) for (s, w), n in self.counts.items())


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(values=rows, sizes=cuts, marks=st.lists(st.integers(-60, 200), max_size=6), move_at=moves)
def test_event_windows_are_brute_force(
    window: Window, values: list, sizes: list, marks: list, move_at: int | None
) -> None:
    steps: list = []
    oracle = Oracle(window)
    marks = sorted(marks)
    for i, piece in enumerate(cut(batch_of(values), sizes)):
        steps.append(piece)
        if i < len(marks):
            steps.append(marks[i])
    seen = 0
    for step in steps:
        if isinstance(step, int):
            oracle.watermark = step
        else:
            for value in values[seen : seen + step.num_rows]:
                oracle.row(*value)
            seen += step.num_rows
    out = drive(build(window), steps, move_at=move_at)
    assert out.bag() == oracle.results()
    assert out.rows(LATE) == oracle.late
    assert out.watermarks[-1] == END_OF_TIME_US


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(values=rows, marks=st.lists(st.integers(-60, 200), min_size=1, max_size=6))
def test_watermarks_passed_on_keep_their_promise(window: Window, values: list, marks: list) -> None:
    """After a watermark of t downstream, no result may have a window_start before t."""

    class Promised(Recorder):
        def emit(self, batch: pa.RecordBatch, output: str = "out") -> None:
            super().emit(batch, output)
            if output == "out" and self.watermarks:
                assert min(batch.column(0).cast(pa.int64()).to_pylist()) >= self.watermarks[-1]

    out = Promised()
    task = opened(build(window))
    for i, value in enumerate(values):
        task.process(batch_of([value]), 0, out)
        if i < len(marks):
            task.advance(max(marks[: i + 1]), out)
    task.advance(END_OF_TIME_US, out)


def test_a_window_closes_exactly_at_its_end() -> None:
    task, out = opened(build(tumbling("10 us"))), Recorder()
    task.process(batch_of([("a", 5, 1)]), 0, out)
    task.advance(9, out)
    assert out.rows() == []
    task.process(batch_of([("a", 0, 2)]), 0, out)  # behind the watermark, but its window is open
    task.advance(10, out)
    assert out.rows() == [(0, 10, "a", 2, 3)]
    task.process(batch_of([("a", 9, 1)]), 0, out)
    assert out.rows(LATE) == [("a", 9, 1)]


@given(values=rows, sizes=cuts, move_at=moves)
def test_reduce_in_windows_sees_rows_in_order(values: list, sizes: list, move_at: int | None) -> None:
    window = sliding("30 us", "10 us")
    build_reduce = partial(
        EventWindows,
        ReduceFold(SCHEMA, ["word"], lambda a, b: (a.word, a.time, a.number * 10 % 997 + b.number)),
        window,
        "time",
        windowed_schema(SCHEMA, US),
    )
    expected: dict = {}
    for word, time, number in values:
        for start in [] if time is None else windows_of(time, window):
            before = expected.get((start, word))
            expected[start, word] = (time, number) if before is None else (before[0], before[1] * 10 % 997 + number)
    out = drive(build_reduce, cut(batch_of(values), sizes), move_at=move_at)
    assert out.bag() == Counter((s, s + 30, w, t, n) for (s, w), (t, n) in expected.items())


# -- processing time -------------------------------------------------------------------------------------------------


def build_processing(window: Window) -> partial:
    return partial(ProcessingWindows, fold(), window, SCHEMA, windowed_schema(fold().output_schema, TIMESTAMP))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(
    steps=st.lists(st.tuples(st.integers(0, 30), rows), max_size=8),
    move_at=moves,
)
def test_processing_windows_count_rows_where_the_clock_stands(window: Window, steps: list, move_at: int | None) -> None:
    out, task, now = Recorder(), opened(build_processing(window)), 1000
    expected: Counter = Counter()
    for i, (pause, values) in enumerate(steps):
        if i == move_at:
            state = in_bytes(task.take_state())
            task = opened(build_processing(window))
            task.put_state(state)
        while (due := task.wake_at()) is not None and due <= now + pause:
            task.wake(max(now, due), out)
        now += pause
        if values:
            task.process(batch_of(values), 0, out)
            assert task.wake_at() == 0
            task.wake(now, out)
        for word, _, _ in values:
            for start in windows_of(now, window):
                expected[start, word] += 1
        closed = {row[0] for row in out.rows()}
        assert all(start + window.size_us <= now for start in closed)
    task.finish(out)
    assert Counter({(row[0], row[2]): row[3] for row in out.rows()}) == expected
    assert len(out.rows()) == len(expected)


def test_processing_windows_wake_at_their_end_and_a_clock_set_back_reopens_nothing() -> None:
    task, out = opened(build_processing(tumbling("10 us"))), Recorder()
    assert task.wake_at() == 0
    task.wake(1003, out)
    assert task.wake_at() == 1010
    task.process(batch_of([("a", None, 1)]), 0, out)
    task.wake(1004, out)
    task.wake(1010, out)
    assert out.rows() == [(1000, 1010, "a", 1, 1)]
    task.process(batch_of([("a", None, 1)]), 0, out)
    task.wake(1001, out)
    task.wake(1020, out)
    assert out.rows()[1:] == [(1010, 1020, "a", 1, 1)]
    assert out.watermarks[-1] == 1020
