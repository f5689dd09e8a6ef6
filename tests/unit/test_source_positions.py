"""Sources go on exactly where they stood: at the row, with batches of other sizes, and with other tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv

from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.flow.topology import Topology
from penstock.run.contract import SourceTask, Task
from penstock.run.dataflow import AttachedSink, TimeSpec
from penstock.run.engine.routing import owner
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.sinks.attached import with_sinks
from penstock.run.operators.sources.files import FilesSource
from penstock.run.operators.sources.positions import position
from penstock.run.operators.sources.spooled import SETTING_SPOOLED, DataFrameSource
from penstock.run.operators.summed import SummedFile

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
ROWS_OF_FILES = st.lists(st.integers(0, 30), min_size=1, max_size=5)
Build = Callable[[], Task]


def polled(task: Task, out: Recorder, times: int | None = None, now_us: int = 10**12) -> None:
    """So many polls, or all until the end."""
    assert isinstance(task, SourceTask)
    while times is None or times > 0:
        said = task.poll(now_us, out)
        if said.ended:
            return
        now_us = max(now_us, said.wait_until_us or 0)
        times = None if times is None else times - 1


def begun(build: Build, tasks: int, polls: Sequence[int], out: Recorder, rows_max: int) -> list[Any]:
    """What each of so many tasks has saved after its own number of polls."""
    found = []
    for index in range(tasks):
        task = opened(build, tasks=tasks, index=index, rows_max=rows_max)
        polled(task, out, polls[index % len(polls)])
        found.append(task.take_state())
    return found


def continued(build: Build, states: Sequence[Any], tasks: int, rows_max: int) -> list[tuple[Task, Recorder]]:
    """The tasks that go on from there, each with what it gives until the end."""
    found = []
    for index in range(tasks):
        task, out = opened(build, tasks=tasks, index=index, rows_max=rows_max), Recorder()
        if tasks == len(states):
            task.put_state(states[index])
        else:
            task.put_states(states, owner(index, tasks))
        polled(task, out)
        found.append((task, out))
    return found


def files_of(folder: Path, counts: Sequence[int], kind: str, group: int) -> list[str]:
    """Numbered rows in files, in no order of time."""
    at, paths = 0, []
    for number, rows in enumerate(counts):
        numbers = np.arange(at, at + rows)
        table = pa.table([pa.array(numbers), pa.array(numbers * 7919 % 1000).cast(SCHEMA.field(1).type)], schema=SCHEMA)
        path = str(folder / f"{number}.{kind}")
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=group)
        else:
            csv.write_csv(table, path)
        paths.append(path)
        at += rows
    return paths


@given(
    counts=ROWS_OF_FILES,
    kind=st.sampled_from(["parquet", "csv"]),
    group=st.integers(1, 12),
    by_time=st.booleans(),
    tasks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    rows_max=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    polls=st.lists(st.integers(0, 12), min_size=1, max_size=4),
)
def test_files_go_on_at_the_row_under_any_size_of_batch_and_any_tasks(
    tmp_path_factory: pytest.TempPathFactory,
    counts: Sequence[int],
    kind: str,
    group: int,
    by_time: bool,
    tasks: tuple[int, int],
    rows_max: tuple[int, int],
    polls: Sequence[int],
) -> None:
    files = files_of(tmp_path_factory.mktemp("files"), counts, kind, group)

    def build() -> Task:
        source = FilesSource(files, kind, SCHEMA)
        if by_time:
            source.tells_time("at")
        return source

    first = Watched()
    told = [0] * tasks[0]
    states = []
    for index in range(tasks[0]):
        task, out = opened(build, tasks=tasks[0], index=index, rows_max=rows_max[0]), Watched()
        polled(task, out, polls[index % len(polls)])
        told[index] = out.watermarks[-1] if out.watermarks else -(1 << 62)
        states.append(task.take_state())
        first.batches.setdefault("out", []).extend(out.batches.get("out", []))
    again = []
    for index in range(tasks[1]):
        task, out = opened(build, tasks=tasks[1], index=index, rows_max=rows_max[1]), Watched()
        out.watermark(told[index] if tasks[0] == tasks[1] else min(told))  # as the engine tells it again
        if tasks[0] == tasks[1]:
            task.put_state(states[index])
        else:
            task.put_states(states, owner(index, tasks[1]))
        polled(task, out)
        again += out.rows()
    assert sorted(n for n, _ in first.rows() + again) == list(range(sum(counts)))


class Watched(Recorder):
    """No row is behind the watermark, and no watermark goes back."""

    def emit(self, batch: pa.RecordBatch, output: str = "out") -> None:
        super().emit(batch, output)
        if self.watermarks and batch.num_rows:
            assert min(batch["at"].cast(pa.int64()).to_pylist()) >= self.watermarks[-1]


@given(counts=st.lists(st.integers(1, 30), min_size=2, max_size=5), rows_max=st.integers(1, 9))
def test_a_spooled_dataframe_has_no_late_row_however_many_of_its_files_one_reader_takes_over(
    tmp_path_factory: pytest.TempPathFactory, counts: Sequence[int], rows_max: int
) -> None:
    """Each file spans all of the time: one behind the other, the second would be late as a whole."""
    files = files_of(tmp_path_factory.mktemp("spool"), counts, "parquet", 100)
    build = partial(with_event_time, lambda: DataFrameSource(SCHEMA), TimeSpec("at", 0))
    task, out = opened(build, rows_max=rows_max, **{SETTING_SPOOLED: {"op": [*map(SummedFile.of, files)]}}), Watched()
    polled(task, out)
    assert sorted(n for n, _ in out.rows()) == list(range(sum(counts)))


def test_files_that_are_not_those_of_the_epoch_are_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path, [5, 5], "parquet", 5)
    (state,) = begun(lambda: FilesSource(files, "parquet", SCHEMA), 1, [1], Recorder(), 3)
    more = files_of(tmp_path, [5, 5, 5], "parquet", 5)
    task = opened(lambda: FilesSource(more, "parquet", SCHEMA))
    with pytest.raises(InvalidInput, match="source 'op' has 3 files, and had 2 when its positions were kept; give the"):
        task.put_state(state)
    renamed = [files[0], str(tmp_path / "9.parquet")]
    with pytest.raises(InvalidInput, match="source 'op' has 2 files under other names when"):
        opened(lambda: FilesSource(renamed, "parquet", SCHEMA)).put_state(state)


def test_files_may_be_moved_together(tmp_path: Path) -> None:
    files = files_of(tmp_path, [5, 5], "parquet", 5)
    out = Recorder()
    states = begun(lambda: FilesSource(files, "parquet", SCHEMA), 1, [2], out, 3)
    (tmp_path / "elsewhere").mkdir()
    moved = [str(Path(path).rename(tmp_path / "elsewhere" / Path(path).name)) for path in files]
    ((_, rest),) = continued(lambda: FilesSource(moved, "parquet", SCHEMA), states, 1, 4)
    assert sorted(n for n, _ in out.rows() + rest.rows()) == list(range(10))


def test_another_order_of_reading_is_refused(tmp_path: Path) -> None:
    files = files_of(tmp_path, [9], "parquet", 3)
    (state,) = begun(lambda: FilesSource(files, "parquet", SCHEMA), 1, [1], Recorder(), 2)

    def by_time() -> Task:
        source = FilesSource(files, "parquet", SCHEMA)
        source.tells_time("at")
        return source

    task = opened(by_time)
    task.put_state(state)
    with pytest.raises(InvalidInput, match="source 'op' reads its files in the order of event time but did so one af"):
        polled(task, Recorder(), 1)


@given(
    per_second=st.sampled_from([3.0, 1000.0]),
    rows=st.integers(0, 200),
    tasks=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    polls=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    rows_max=st.integers(1, 9),
)
def test_a_rate_gives_each_value_once_however_often_its_tasks_change(
    per_second: float, rows: int, tasks: Sequence[int], polls: Sequence[int], rows_max: int
) -> None:
    source = io.rate(per_second, rows=rows, start=datetime(2024, 1, 1, tzinfo=UTC))
    states: Sequence[Any] = ()
    values: list[int] = []
    for turn, count in enumerate(tasks):
        is_last = turn == len(tasks) - 1
        saved = []
        for index in range(count):
            task, out = opened(source.build, tasks=count, index=index, rows_max=rows_max), Recorder()
            if states and len(states) == count:
                task.put_state(states[index])
            elif states:
                task.put_states(states, owner(index, count))
            polled(task, out, None if is_last else polls[(turn + index) % len(polls)])
            saved.append(task.take_state())
            given_out = [value for _, value in out.rows()]
            assert given_out == sorted(given_out)
            assert all(batch.num_rows <= rows_max for batch in out.batches.get("out", []))
            values += given_out
        states = saved
    assert sorted(values) == list(range(rows))


def paused(task: int, tasks: int) -> Iterator[int | None]:
    """Rows between pauses; how many there are differs from call to call."""
    paused.calls += 1  # type: ignore[attr-defined]
    for number in range(20):
        yield from [None] * (number % (paused.calls + 1))  # type: ignore[attr-defined]
        yield number


def test_pauses_of_a_generator_are_no_positions() -> None:
    paused.calls = 0  # type: ignore[attr-defined]
    source, out = io.generator(paused, "n bigint"), Recorder()
    states = begun(source.build, 1, [14], out, 2)
    ((_, rest),) = continued(source.build, states, 1, 3)
    assert [n for (n,) in out.rows() + rest.rows()] == list(range(20))
    assert 0 < len(rest.rows()) < 20


def test_a_generator_that_asks_is_told_where_to_start() -> None:
    asked: list[int] = []

    def numbers(task: int, tasks: int, start: int) -> Iterator[int]:
        asked.append(start)
        yield from range(start, 10)

    source, out = io.generator(numbers, "n bigint"), Recorder()
    states = begun(source.build, 1, [2], out, 3)
    ((again, rest),) = continued(source.build, states, 1, 4)
    assert asked == [0, 6]
    assert [n for (n,) in out.rows() + rest.rows()] == list(range(10))
    assert again.take_state() == {"taken": b"10"}


def test_a_generator_cannot_be_read_by_others_in_number() -> None:
    source = io.generator(lambda task, tasks: range(5), "n bigint")
    states = begun(source.build, 2, [1], Recorder(), 3)
    with pytest.raises(InvalidInput, match="source 'op' is a generator that was read by 2 tasks and has 3 now; give"):
        opened(source.build, tasks=3).put_states(states, owner(0, 3))


def test_a_generator_that_has_fewer_items_than_before_is_refused() -> None:
    states = begun(io.generator(lambda task, tasks: range(9), "n bigint").build, 1, [2], Recorder(), 3)
    with pytest.raises(InvalidInput, match="source 'op/0' cannot continue at item 6: it has fewer now"):
        continued(io.generator(lambda task, tasks: range(5), "n bigint").build, states, 1, 3)


def test_event_time_around_a_source_goes_on_from_the_slowest_task() -> None:
    top = Topology("timed")
    top.source("op", io.rate(1000.0, rows=40), tasks=2).event_time("timestamp").sink("out", io.discard())
    build = top.build().operator("op").build
    states = []
    for index, times in enumerate((3, 1)):
        task = opened(build, tasks=2, index=index, rows_max=4)
        polled(task, Recorder(), times)
        states.append(task.take_state())
    found = [continued_time(build, states, index) for index in range(3)]
    assert min(found) >= min(int(state["event_time"]) for state in states)


def continued_time(build: Build, states: Sequence[Any], index: int) -> int:
    """The first watermark of a task that goes on, none of whose rows is late."""
    task, out = opened(build, tasks=3, index=index, rows_max=4), Recorder()
    task.put_states(states, owner(index, 3))
    polled(task, out)
    for batch, told in zip(out.batches.get("out", []), [-(1 << 62), *out.watermarks], strict=False):
        assert min(batch["timestamp"].cast(pa.int64()).to_pylist()) >= told
    return out.watermarks[0]


def test_a_callback_goes_on_with_its_own_number_wherever_it_is_attached() -> None:
    seen: list[tuple[int, int]] = []

    def note(batch: pa.RecordBatch, sequence: int) -> None:
        seen.append((sequence, batch.num_rows))

    source = io.generator(lambda task, tasks: range(10), "n bigint")
    schema = source.schema
    attached = [AttachedSink("noted", "out", lambda: io.callback(note).make(schema))]
    states = begun(lambda: with_sinks(source.build, attached), 1, [2], Recorder(), 3)
    assert seen == [(0, 3), (3, 3)]
    continued(lambda: with_sinks(source.build, attached), states, 1, 4)
    assert seen[2:] == [(6, 4)]
    bare = opened(source.build)
    bare.put_state({name: state for name, state in states[0].items() if "/" not in name})
    assert bare.take_state() == {"taken": b"6"}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"taken": b"1200"}, "1,200 items taken"),
        ({"lanes": b"[[1500, 2, 4000, true]]", "began": b""}, "value 1,500 is next"),
        ({"lanes": b"[[4000, 2, 4000, true]]", "began": b""}, "no value is left"),
        ({"sum": b""}, None),
    ],
)
def test_positions_are_told_in_words(state: Mapping[str, bytes], said: str | None) -> None:
    assert position(state, finished=False) == said
    assert position(state, finished=True) == (None if said is None else "at its end")


def test_positions_in_files_are_told_in_words(tmp_path: Path) -> None:
    files = files_of(tmp_path, [9] * 8, "parquet", 3)
    task: Any = opened(lambda: FilesSource(files, "parquet", SCHEMA), tasks=2, index=1, rows_max=2)
    assert position(task.take_state(), finished=False) == "4 of 8 files left"
    polled(task, Recorder(), 3)
    words = position(task.take_state(), finished=False)
    assert words is not None
    assert words.startswith("4 of 8 files left: ")
    assert words.endswith(" rows of file 1 taken")
