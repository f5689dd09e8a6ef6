"""Functions of dates and times, all in UTC: the zone of a Spark session is not known where a topology is written."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.expressions.registry import Function, Values, kernel

DAY_US = 86_400_000_000
_PARTS: dict[str, Function] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofyear": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "weekofyear": pc.iso_week,
}


@kernel("time_part")
def time_part(kind: pa.DataType, a: Values, part: str) -> pa.Array:
    """A part of a date or time, as a number."""
    if part == "dayofweek":  # 1 is Sunday
        return pc.day_of_week(a, count_from_zero=False, week_start=7).cast(kind)
    if part == "weekday":  # 0 is Monday
        return pc.day_of_week(a).cast(kind)
    return _PARTS[part](a).cast(kind)


@kernel("time_floor")
def time_floor(kind: pa.DataType, a: Values, unit: str) -> pa.Array:
    """The beginning of the unit that a time lies in; weeks begin on Monday."""
    return pc.floor_temporal(a, unit=unit).cast(kind)


@kernel("time_shift", fails=True)
def time_shift(kind: pa.DataType, a: Values, us: int) -> pa.Array:
    """A time, `us` microseconds later."""
    return pc.add_checked(a.cast(pa.int64()), pa.scalar(us, pa.int64())).cast(kind)


@kernel("date_shift", fails=True)
def date_shift(kind: pa.DataType, a: Values, days: Values) -> pa.Array:
    """A date, `days` days later."""
    return pc.add_checked(a.cast(pa.int32()), days.cast(pa.int32())).cast(kind)


@kernel("days_between", fails=True)
def days_between(kind: pa.DataType, late: Values, early: Values) -> pa.Array:
    """Days from one date to another."""
    return pc.subtract_checked(late.cast(pa.int32()), early.cast(pa.int32()))


@kernel("format")
def formatted(kind: pa.DataType, a: Values, pattern: str) -> pa.Array:
    """A date or time as text, in the grammar of strftime; fractions of seconds are left out."""
    whole = pc.floor_temporal(a.cast(pa.timestamp("us")), unit="second").cast(pa.timestamp("s"))
    return pc.strftime(whole, pattern)
