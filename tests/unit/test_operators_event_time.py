"""Watermarks are made from the rows a task emits, and never run ahead of them."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from flow_kit import US, Recorder, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.schema import parse_schema
from penstock.run.contract import ENDED, MORE, SourceTask
from penstock.run.dataflow import TimeSpec
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.rows import FilterRows
from penstock.run.operators.sources.generated import GeneratorSource

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
