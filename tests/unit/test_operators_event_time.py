"""Watermarks are made from the rows a task emits, and never run ahead of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pytest
from flow_kit import US, Recorder, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.schema import parse_schema
from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, ENDED, IDLE_US, MORE, SourceTask, Task
from penstock.run.dataflow import TimeSpec
from penstock.run.engine.routing import owner
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.rows import FilterRows
from penstock.run.operators.sources.generated import GeneratorSource
from penstock.run.operators.union import Union

SCHEMA = parse_schema("time timestamp, n bigint")


def batch_of(times: list) -> pa.RecordBatch:
    columns = [pa.array(times, pa.int64()).cast(US), pa.array(range(len(times)), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def build(lateness: int) -> partial:
    return partial(with_event_time, partial(FilterRows, lambda row: row.n % 3 != 1), TimeSpec("time", lateness))


@given(
    times=st.lists(st.one_of(st.none(), st.integers(-100, 100)), max_size=30),
    sizes=cuts,
    lateness=st.integers(0, 20),
    move_at=st.one_of(st.none(), st.integers(0, 8)),
)
def test_the_watermark_is_the_newest_emitted_time_less_the_lateness(
    times: list, sizes: list, lateness: int, move_at: int | None
) -> None:
    pieces = cut(batch_of(times), sizes)
    steps = [step for piece in pieces for step in (piece, 10_000)]  # upstream's own time does not count
    out = drive(build(lateness), steps, move_at=None if move_at is None else 2 * move_at, end=False)
    kept = [row[0] for row in out.rows() if row[0] is not None]
    assert set(out.watermarks) <= {time - lateness for time in kept}
    assert out.watermarks[-1:] == ([max(kept) - lateness] if kept else [])
    assert len(out.rows()) == sum(1 for i in range(len(times)) if i % 3 != 1)


def test_a_source_with_event_time_is_a_source() -> None:
    rows = [(5, 1), (3, 2)]
    source = partial(GeneratorSource, lambda task, tasks: iter(rows), SCHEMA)
    task, out = opened(partial(with_event_time, source, TimeSpec("time", 2)), rows_max=1), Recorder()
    assert isinstance(task, SourceTask)
    assert [task.poll(0, out) for _ in range(3)] == [MORE, MORE, ENDED]
    assert out.watermarks == [3]
    assert out.rows() == rows
    task.stop()
    assert task.poll(0, out) == ENDED


class Heard(Recorder):
    """Also remembers that readers were told not to wait, and to wait again."""

    def watermark(self, time_us: int) -> None:
        self.watermarks.append(time_us)


def behind_input(state: Mapping[str, bytes] | None = None) -> Task:
    task = opened(partial(with_event_time, Union, TimeSpec("time", 2, behind_input=True)))
    if state is not None:
        task.put_state(state)
    return task


@pytest.mark.parametrize(("times", "told"), [([50], [38]), ([], [])], ids=["with rows", "without rows"])
def test_a_task_that_was_idle_tells_readers_to_wait_when_it_wakes_after_a_restore_too(times: list, told: list) -> None:
    task, out = behind_input(), Heard()
    task.process(batch_of(times), 0, out)
    task.advance(40, out)
    task.idle(out)
    assert out.watermarks == [*told, IDLE_US]
    for woken in (behind_input(in_bytes(task.take_state())), task):
        heard = Heard()
        woken.advance(40, heard)
        assert heard.watermarks == (told or [BEFORE_TIME_US])
        woken.process(batch_of([47]), 0, heard)
        woken.advance(45, heard)
        assert heard.watermarks[1:] == ([43] if told else [38, 43])


def test_what_was_told_is_not_told_again_by_a_task_that_is_restored() -> None:
    """The engine does that, for all tasks alike."""
    task, out = behind_input(), Heard()
    task.process(batch_of([50]), 0, out)
    task.advance(40, out)
    restored, heard = behind_input(in_bytes(task.take_state())), Heard()
    restored.advance(40, heard)
    assert heard.watermarks == []
    restored.advance(END_OF_TIME_US, heard)
    assert heard.watermarks == [END_OF_TIME_US]


def test_among_other_tasks_the_least_that_was_told_counts_and_nobody_is_idle() -> None:
    states = []
    for time in (50, 30):
        task, out = behind_input(), Heard()
        task.process(batch_of([time]), 0, out)
        task.advance(60, out)
        task.idle(out)
        states.append(in_bytes(task.take_state()))
    task, heard = behind_input(), Heard()
    task.put_states([*states, {}], owner(0, 3))
    task.advance(60, heard)
    assert heard.watermarks == []
    task.process(batch_of([40]), 0, heard)
    assert heard.watermarks == [38]
