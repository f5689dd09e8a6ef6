"""State that is taken at a marker and put back into other tasks, fewer or more: the answers are those of one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from flow_kit import US, Recorder, opened
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock._core import Clock
from penstock.checkpoint import parts
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Aggregate, Row
from penstock.run.columns.unwritten import Sliced, in_bytes
from penstock.run.contract import END_OF_TIME_US, LATE, LATE_RIGHT, MAIN, Polled, SourceTask, Task
from penstock.run.dataflow import TimeSpec
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.engine.routing import owner
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.keyed import open_windows
from penstock.run.operators.keyed.join import Side, WindowJoin, joined_schema
from penstock.run.operators.keyed.top import Ranking, TopAll, TopWindows
from penstock.run.operators.keyed.top_per_key import KeyedRanking, TopFold
from penstock.run.operators.keyed.unwindowed import AggregateFold, KeyedFold, ReduceFold, Reducer
from penstock.run.operators.keyed.windowed import EventWindows, ProcessingWindows, windowed_schema
from penstock.run.operators.state import saved_keys
from penstock.run.operators.state.process import Emit, KeyState, Process, RowTime, Stateful, Timers
from penstock.run.operators.times import Window

SCHEMA = parse_schema("k string, n bigint, ts timestamp")
RIGHT = parse_schema("who string, m bigint, at timestamp")
WINDOW = Window(10, 4)
BOUND = SCHEMA.field("ts").type
GAP = timedelta(microseconds=7)
Steps = list[Any]  # a batch, (batch, port), or an int watermark


class Visits(Stateful):
    """Rows of a visit and the largest of them, told when its key has been silent; and the delay of a reminder."""

    schema = "k string, rows bigint, largest bigint"

    def on_row(self, key: object, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:
        state.setdefault("seen", []).append(row.n)
        timers.clear()
        timers.at(row.ts + GAP)

    def on_timer(self, key: object, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:
        emit((key, len(state["seen"]), max(state["seen"])))
        state.clear()

    def on_end(self, key: object, state: KeyState, emit: Emit) -> None:
        emit((key, -1, len(state["seen"])))


def summed(so_far: Row, row: Row) -> tuple:
    return so_far.k, so_far.n + row.n, max(so_far.ts, row.ts)


def prepared() -> Task:
    top = ps.Topology("t")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [], "k string, n bigint, ts timestamp"))
    counted = rows.key_by("k").aggregate(d="count(distinct n)", s="sum(n + 1)", b="max_by(n, ts)", name="fold")
    counted.sink("out", ps.io.discard())
    return next(spec for spec in top.build().operators if spec.name == "fold").build()


@dataclass(frozen=True)
class Case:
    build: Callable[[], Task]
    columns: tuple[tuple[str, ...], ...] = (("k",),)  # by which rows are routed, by port
    final: Callable[[list[tuple]], list[tuple]] = list  # what all tasks gave -> the answer
    clocked: bool = False


AGGREGATES = [Aggregate("count", None, "c"), Aggregate("sum", "n", "s"), Aggregate("last", "n", "l")]
FOLD = AggregateFold(SCHEMA, ("k",), AGGREGATES)
PLAIN = AggregateFold(SCHEMA, ("k",), [Aggregate("max", "ts", "m"), Aggregate("first", "n", "f")])
LEFT_SIDE, RIGHT_SIDE = Side(SCHEMA, ("k",), "ts"), Side(RIGHT, ("who",), "at")
WINDOWED = windowed_schema(FOLD.output_schema, BOUND)


def best_three(rows: list[tuple]) -> list[tuple]:
    return sorted(rows, key=lambda row: (-row[1], row[0] is None, row[0] or "", row[2]))[:3]


def join(how: str) -> Task:
    schema = windowed_schema(joined_schema(LEFT_SIDE, RIGHT_SIDE, how), BOUND)
    return WindowJoin(LEFT_SIDE, RIGHT_SIDE, WINDOW, how, schema)


def visits(*, ordered: bool) -> Task:
    return Process(Visits, ("k",), parse_schema(Visits.schema), RowTime("ts", ordered=ordered))


CASES = {
    "aggregate": Case(partial(KeyedFold, FOLD, "end")),
    "aggregate, plain": Case(partial(KeyedFold, PLAIN, "end")),
    "aggregate, changes": Case(partial(KeyedFold, FOLD, "changes")),
    "aggregate, each": Case(partial(KeyedFold, FOLD, "each")),
    "aggregate of distinct values": Case(prepared),
    "aggregate of all rows": Case(partial(KeyedFold, AggregateFold(SCHEMA, (), AGGREGATES), "end"), ((),)),
    "reduce": Case(partial(KeyedFold, ReduceFold(SCHEMA, ("k",), summed), "end")),
    "windows": Case(partial(EventWindows, FOLD, WINDOW, "ts", WINDOWED)),
    "windows, reduce": Case(
        partial(EventWindows, ReduceFold(SCHEMA, ("k",), summed), WINDOW, "ts", windowed_schema(SCHEMA, BOUND))
    ),
    "windows by the clock": Case(partial(ProcessingWindows, FOLD, Window(5, 5), SCHEMA, WINDOWED), clocked=True),
    "top": Case(partial(TopAll, Ranking(SCHEMA, 3, "n", True, ("k",)), "end"), final=best_three),
    "top without keys": Case(partial(TopAll, Ranking(SCHEMA, 3, "n"), "end"), ((),), final=best_three),
    "top of windows": Case(partial(TopWindows, KeyedRanking(SCHEMA, 2, "n", per=("k",), window_column="ts"))),
    "top per key": Case(partial(KeyedFold, TopFold(SCHEMA, ("k",), 2, "n", True), "end")),
    "join, inner": Case(partial(join, "inner"), (("k",), ("who",))),
    "join, full": Case(partial(join, "full"), (("k",), ("who",))),
    "process, timers": Case(partial(visits, ordered=False)),
    "process, in order of time": Case(partial(visits, ordered=True)),
    "behind event time": Case(
        partial(
            with_event_time,
            partial(KeyedFold, ReduceFold(SCHEMA, ("k",), summed), "changes"),
            TimeSpec("ts", 0, behind_input=True),
        )
    ),
}


class Spread:
    """An operator on several tasks, to which rows are routed by key."""

    def __init__(self, case: Case, tasks: int) -> None:
        self.case, self.now_us = case, 0
        self.out: list[Recorder] = []
        self._open(tasks)

    def _open(self, count: int) -> None:
        self.tasks = [opened(self.case.build, tasks=count, index=i, deliver=lambda *_: None) for i in range(count)]
        self.owns = [owner(i, count) for i in range(count)]
        self.outs = [Recorder() for _ in range(count)]
        self.out += self.outs

    def feed(self, step: Any) -> None:  # noqa: ANN401 - a step
        if isinstance(step, int):
            self.now_us += 2
            for task, out in zip(self.tasks, self.outs, strict=True):
                if self.case.clocked:
                    task.wake(self.now_us, out)
                else:
                    task.advance(step, out)
            return
        batch, port = step if isinstance(step, tuple) else (step, 0)
        for task, owns, out in zip(self.tasks, self.owns, self.outs, strict=True):
            rows = batch.filter(pa.array(owns(batch, self.case.columns[port])))
            if rows.num_rows:
                task.process(rows, port, out)

    def move(self, count: int) -> None:
        states = [in_bytes(task.take_state()) for task in self.tasks]
        for task in self.tasks:
            task.close()
        same = count == len(self.tasks)
        self._open(count)
        for i, task in enumerate(self.tasks):
            if same:
                task.put_state(states[i])
            else:
                task.put_states(states, self.owns[i])

    def answer(self) -> dict[str, Counter]:
        for task, out in zip(self.tasks, self.outs, strict=True):
            if not self.case.clocked:
                task.advance(END_OF_TIME_US, out)
            task.finish(out)
            task.close()
        found = {name: Counter(row for out in self.out for row in out.rows(name)) for name in (LATE, LATE_RIGHT)}
        return found | {MAIN: Counter(self.case.final([row for out in self.out for row in out.rows()]))}


rows = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d", "e", "f", "g", None]), st.integers(0, 9), st.integers(0, 40)),
    min_size=1,
    max_size=8,
)
moves = st.lists(st.tuples(rows, st.integers(0, 1), st.integers(0, 12), st.sampled_from([0, 1, 2, 3, 5])), max_size=8)


def batch_of(values: Sequence[tuple], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    k, n, at = zip(*values, strict=True)
    columns = [pa.array(k, pa.string()), pa.array(n, pa.int64()), pa.array(at, pa.int64()).cast(US)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@pytest.mark.parametrize("name", CASES)
@given(plan=moves, begin=st.sampled_from([1, 2, 3]))
def test_answers_are_the_same_after_any_moves(name: str, plan: list, begin: int) -> None:
    """After each batch and watermark the state may move to 1, 2, 3 or 5 tasks."""
    case = CASES[name]
    one, several = Spread(case, 1), Spread(case, begin)
    watermark = 0
    for values, side, moved_us, tasks in plan:
        watermark += moved_us
        port = side if len(case.columns) > 1 else 0
        batch = batch_of(values, RIGHT if port else SCHEMA)
        for spread in (one, several):
            spread.feed((batch, port))
            spread.feed(watermark)
        if tasks:
            several.move(tasks)
    assert several.answer() == one.answer()


WINDOWS = ("windows", "windows, reduce", "top of windows", "join, inner", "join, full")


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("tasks", [1, 3])
def test_thousands_of_open_windows_are_a_few_states(name: str, tasks: int) -> None:
    """Files in no order keep a window open for each moment; a checkpoint has an entry for each state of a task."""
    case = CASES[name]
    one, several = Spread(case, 1), Spread(case, 1)
    every = [(f"key {n % 3}", n, n * 4) for n in range(2_500)]
    for spread in (one, several):
        spread.feed((batch_of(every), 0))
        if len(case.columns) > 1:
            spread.feed((batch_of(every[::2], RIGHT), 1))
    state = several.tasks[0].take_state()
    assert len(state) <= 3
    assert len(several.tasks[0].open_windows) >= 2_500  # type: ignore[attr-defined] # all of these have them
    (kept,) = parts.decode(b"".join(map(bytes, parts.encode([TaskSnapshot("op/0", False, state)]))), "a.part")
    assert kept.state == in_bytes(several.tasks[0].take_state())
    several.move(tasks)
    assert several.answer() == one.answer()


def test_more_windows_than_a_checkpoint_has_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_windows, "WINDOWS_MAX", 9)
    for name in WINDOWS:
        spread = Spread(CASES[name], 1)
        spread.feed((batch_of([("a", 1, n * 4) for n in range(20)]), 0))
        with pytest.raises(InvalidInput, match="windows are open in one task, and a checkpoint has room for 9 of them"):
            spread.tasks[0].take_state()


@given(
    windows=st.dictionaries(st.integers(-5, 5), st.lists(rows, max_size=3), max_size=5),
    joined=st.sampled_from([1, 2, 5, 1000]),
)
def test_rows_of_windows_come_back_by_window_however_they_are_joined(windows: dict, joined: int) -> None:
    batches = {start: [batch_of(values) for values in parts] for start, parts in windows.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_windows, "ROWS_A_BATCH", joined)
        state = in_bytes({"": open_windows.WindowRows(batches, SCHEMA)})[""]
    found = {start: pa.Table.from_batches(parts).to_pylist() for start, parts in open_windows.put_rows([state]).items()}
    assert found == {start: pa.Table.from_batches(parts).to_pylist() for start, parts in batches.items() if parts}


@pytest.mark.parametrize(
    "state", [b"", b"no line", b"[1]\nrest", b"[[0,5]]\nrest", b'["ab"]\n', b"[[0,-1],[1,5]]\nrest"]
)
def test_folds_of_windows_that_were_made_up_are_refused(state: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"open windows|does not begin with the windows"):
        open_windows.folds_of(state)


def test_rows_of_windows_of_another_number_are_refused() -> None:
    state = in_bytes({"": open_windows.WindowRows({0: [batch_of([("a", 1, 1)])]}, SCHEMA)})[""]
    with pytest.raises(InvalidInput, match="the rows of open windows are 1, and their lengths are of 2"):
        open_windows.put_rows([state.replace(b"[[0,1]]", b"[[0,2]]")])


@given(
    rows=st.integers(0, 60),
    begin=st.integers(1, 4),
    moves=st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=5, max_size=5), st.integers(1, 5)), max_size=4),
)
def test_a_rate_source_gives_each_value_once_whatever_its_tasks(rows: int, begin: int, moves: list) -> None:
    """Between moves each task is polled as often as it happens to be, so some are far ahead of others."""
    build = io.rate(1e6, rows=rows, start=datetime(2024, 1, 1, tzinfo=UTC)).build
    now_us, out = 1_000_000, Recorder()

    def polled(task: Task, now_us: int) -> Polled:
        assert isinstance(task, SourceTask)
        return task.poll(now_us, out)

    tasks = [opened(build, rows_max=4, tasks=begin, index=i) for i in range(begin)]
    for polls, count in moves:
        now_us += 11
        for task, times in zip(tasks, polls, strict=False):
            for _ in range(times):
                polled(task, now_us)
        states = [in_bytes(task.take_state()) for task in tasks]
        tasks = [opened(build, rows_max=4, tasks=count, index=i) for i in range(count)]
        for i, task in enumerate(tasks):
            task.put_states(states, owner(i, count))
    for task in tasks:
        while not (said := polled(task, now_us)).ended:
            now_us = max(now_us, said.wait_until_us or now_us)
    assert sorted(value for _, value in out.rows()) == list(range(rows))


# -- slices ------------------------------------------------------------------------------------------------------------


def known(task: Process) -> tuple:
    """Everything that a stateful task knows, in an order that does not depend on how it was written."""
    states = sorted((str(key), deepcopy(dict(state))) for key, state in task.table.states())
    return states, task.table.timers(Clock.EVENT), task.watermark_us


@given(before=moves, behind=moves, turns=st.lists(st.integers(0, 3), max_size=16))
def test_what_is_written_in_slices_is_the_state_at_the_marker(before: list, behind: list, turns: list[int]) -> None:
    """Slices of one key each, between rows and timers that change keys, forget them and bring new ones."""
    case = Case(partial(visits, ordered=False))
    spread = Spread(case, 1)
    (task,) = spread.tasks
    assert isinstance(task, Process)
    watermark = 0
    for values, _, moved_us, _ in before:
        watermark += moved_us
        spread.feed(batch_of(values))
        spread.feed(watermark)
    at_marker = known(task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_keys, "KEYS_A_SLICE", 1)
        state = task.take_state()
        (slices,) = [each for each in state.values() if isinstance(each, Sliced)]
        for i, (values, _, moved_us, _) in enumerate(behind):
            for _ in range(turns[i] if i < len(turns) else 0):
                slices.slice()
            watermark += moved_us
            spread.feed(batch_of(values))
            spread.feed(watermark)
        again = opened(case.build)
        again.put_state(in_bytes(state))
    assert isinstance(again, Process)
    assert known(again) == at_marker


def test_a_task_that_ends_has_been_written_as_it_was_before() -> None:
    spread = Spread(Case(partial(visits, ordered=False)), 1)
    spread.feed(batch_of([("a", 1, 1), ("b", 2, 2)]))
    (task,) = spread.tasks
    assert isinstance(task, Process)
    at_marker, state = known(task), task.take_state()
    spread.answer()
    again = opened(spread.case.build)
    again.put_state(in_bytes(state))
    assert isinstance(again, Process)
    assert known(again) == at_marker


def test_a_second_writing_begins_when_the_first_is_done() -> None:
    spread = Spread(Case(partial(visits, ordered=False)), 1)
    spread.feed(batch_of([("a", 1, 1), ("b", 2, 2)]))
    (task,) = spread.tasks
    first = task.take_state()
    spread.feed(batch_of([("a", 3, 3)]))
    second = task.take_state()
    found = []
    for state in (first, second):
        again = opened(spread.case.build)
        again.put_state(in_bytes(state))
        assert isinstance(again, Process)
        found.append(dict(again.table.states())["a"]["seen"])
    assert found == [[1], [1, 3]]


def grown(so_far: Row, row: Row) -> Row:
    so_far.seen.extend(row.seen)
    return so_far


@pytest.mark.parametrize("kind", ["n bigint", "seen array<bigint>"])
def test_a_reducer_is_written_as_it_was_although_it_goes_on(kind: str) -> None:
    schema = parse_schema(f"k string, {kind}")
    nested = kind.startswith("seen")

    def batch(numbers: range) -> pa.RecordBatch:
        values = [[n] for n in numbers] if nested else list(numbers)
        keys = [f"key {n % 700}" for n in numbers]
        return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values, schema.field(1).type)], schema=schema)

    reducer = Reducer(schema, ("k",), grown if nested else lambda so_far, row: (so_far.k, so_far.n + row.n))
    reducer.update(batch(range(1_500)))
    expected = reducer.rows().to_pylist()
    state = reducer.take_state()
    assert isinstance(state, Sliced)
    assert nested or state.slice()
    reducer.update(batch(range(2_000)))
    again = Reducer(schema, ("k",), grown)
    again.put_state(in_bytes({"": state})[""])
    assert again.rows().to_pylist() == expected
    assert again.changed().num_rows == 700


def test_what_an_aggregate_gave_does_not_change_with_it() -> None:
    task, out = opened(partial(KeyedFold, FOLD, "end")), Recorder()
    task.process(batch_of([("a", 1, 1)]), 0, out)
    state = task.take_state()
    task.process(batch_of([("a", 5, 1), ("b", 1, 1)]), 0, out)
    again = opened(partial(KeyedFold, FOLD, "end"))
    again.put_state(in_bytes(state))
    again.finish(out)
    assert out.rows() == [("a", 1, 1, 1)]
