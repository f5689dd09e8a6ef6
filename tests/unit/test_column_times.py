"""Which values of a column are times, in every unit; and that a row without one is late and never lost."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from flow_kit import Recorder, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.windows import tumbling
from penstock.run.columns.kernels import Aggregate
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, LATE
from penstock.run.dataflow import TimeSpec
from penstock.run.operators.event_time import EventTime
from penstock.run.operators.keyed.unwindowed import AggregateFold
from penstock.run.operators.keyed.windowed import EventWindows, windowed_schema
from penstock.run.operators.rename import Rename
from penstock.run.operators.times import TIME_US_MAX, TIME_US_MIN, column_times

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
FAR = (1 << 62, (1 << 63) - 1, -(1 << 62), -(1 << 63), TIME_US_MAX + 1, TIME_US_MIN - 1)
YEARS = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the first and the last microsecond of 1 to 9999
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.sampled_from(sorted(UNITS)), st.lists(st.none() | INT64 | st.sampled_from([*FAR, *YEARS]), max_size=8))
def test_times_are_microseconds_where_they_are_times(unit: str, values: list[int | None]) -> None:
    column = pa.array(values, pa.int64()).view(pa.timestamp(unit, tz="UTC"))
    times, valid = column_times(pa.record_batch({"t": column}), "t")
    exact = [None if value is None else value * 1_000_000 // UNITS[unit] for value in values]
    assert valid.tolist() == [at is not None and TIME_US_MIN <= at <= TIME_US_MAX for at in exact]
    assert times[valid].tolist() == [at for at, is_time in zip(exact, valid, strict=True) if is_time]


def windows(schema: pa.Schema) -> EventWindows:
    fold = AggregateFold(schema, ["k"], [Aggregate("count", None, "n")])
    return EventWindows(fold, tumbling("1 day"), "t", windowed_schema(fold.output_schema, schema.field("t").type))


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_with_times_beyond_the_calendar_are_late_and_the_others_counted(ordered: bool) -> None:
    values = [*FAR, *YEARS, 0, None]
    values = sorted(values, key=lambda at: (at is None, at)) if ordered else values
    batch = pa.record_batch({"k": ["a"] * len(values), "t": pa.array(values, pa.int64()).view(pa.timestamp("us"))})
    out = Recorder()
    task = opened(partial(windows, batch.schema))
    task.process(batch, 0, out)
    task.finish(out)
    assert sorted(at for _, at in out.rows(LATE) if at is not None) == sorted(FAR)
    assert len(out.rows(LATE)) == len(FAR) + 1  # and the null
    assert sum(row[-1] for row in out.rows()) == len(YEARS) + 1


def test_a_time_beyond_the_calendar_does_not_move_the_watermark() -> None:
    batch = pa.record_batch({"t": pa.array([5, 1 << 62]).view(pa.timestamp("us"))})
    out = Recorder()
    opened(lambda: EventTime(Rename(batch.schema), TimeSpec("t", 0))).process(batch, 0, out)
    assert out.watermarks == [5]
    assert BEFORE_TIME_US < TIME_US_MIN < TIME_US_MAX < END_OF_TIME_US
    assert np.iinfo(np.int64).max > END_OF_TIME_US
