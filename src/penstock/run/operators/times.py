"""Durations, timestamps and windows as whole microseconds.

    >>> parse_duration_us("1 minute 30 seconds", "lateness")
    90000000
    >>> Window(30, 10).starts_of(25)
    [20, 10, 0]

A window is half open, [start, start + size), and starts at multiples of its slide since 1970-01-01 UTC, as Spark's
do. So two operators with equal windows agree on the bounds by themselves. Rejected: windows that begin with the first
row, which differ from task to task.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput

UNITS_US = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
DURATION_US_MAX = 3650 * UNITS_US["day"]
PANES_MAX = 1_000  # windows that one row may belong to
# The years 1 to 9999, and on either side as much as a window may reach beyond them.
TIME_US_MIN = -62_135_596_800_000_000 - DURATION_US_MAX
TIME_US_MAX = 253_402_300_799_999_999 + DURATION_US_MAX
_INT64 = np.iinfo(np.int64)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMESTAMP = pa.timestamp("us", tz="UTC")

Duration = str | timedelta
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def parse_duration_us(given: Duration | object, what: str) -> int:
    """Microseconds of "10 seconds", "1 minute 30 seconds", "500 ms" or a timedelta."""
    if isinstance(given, timedelta):
        total = given // timedelta(microseconds=1)
    elif isinstance(given, str):
        total = _parse_text(given, what)
    else:
        msg = f"{what} is {given!r}; give text such as '10 seconds' or a datetime.timedelta"
        raise InvalidInput(msg)
    if not 0 <= total <= DURATION_US_MAX:
        msg = f"{what} is {given!r}; it must be between 0 and 3650 days"
        raise InvalidInput(msg)
    return total


def _parse_text(text: str, what: str) -> int:
    rest = text.lower().removeprefix("interval ")
    total = 0.0
    at = 0
    while match := _PART.match(rest, at):
        unit = match.group(2)
        name = unit if unit in UNITS_US else unit.removesuffix("s")
        if name not in UNITS_US:
            msg = f"{what} is {text!r}: unknown unit {unit!r}; known: {', '.join(UNITS_US)}"
            raise InvalidInput(msg)
        total += float(match.group(1)) * UNITS_US[name]
        at = match.end()
    if at == 0 or at < len(rest):
        msg = f"{what} is {text!r}; write a number and a unit, such as '10 seconds' or '1 minute 30 seconds'"
        raise InvalidInput(msg)
    return round(total)


def time_us(moment: datetime | date | int) -> int:
    """Microseconds since 1970 in UTC; a datetime without a zone counts as UTC, and an int is microseconds already."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return (moment - _EPOCH.date()) // timedelta(days=1) * UNITS_US["day"]


def moment_of(at_us: int) -> datetime:
    """The UTC datetime of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=at_us)


def column_times(batch: pa.RecordBatch, column: str) -> tuple[Int64Array, BoolArray]:
    """The column as microseconds, and which of them are times: neither null nor far outside the calendar.

    Arrow holds times far beyond the years 1 to 9999. Window bounds cannot be written there, and the marks for the end
    of time lie before some of them. So a row with a time that far away counts as a row without a time, which is late.
    """
    array = batch.column(batch.schema.get_field_index(column))
    per_second = _PER_SECOND[array.type.unit]
    whole = array.view(pa.int64())
    known = whole.null_count == 0
    raw = (whole if known else whole.fill_null(0)).to_numpy(zero_copy_only=False)
    valid = np.ones(len(raw), dtype=np.bool_) if known else whole.is_valid().to_numpy(zero_copy_only=False)
    first = max(TIME_US_MIN * per_second // 1_000_000, _INT64.min)  # in the column's unit: scaling could overflow
    last = min(TIME_US_MAX * per_second // 1_000_000, _INT64.max)
    if len(raw) and (raw.min() < first or raw.max() > last):
        valid = valid & (raw >= first) & (raw <= last)
        raw = np.where(valid, raw, 0)
    if per_second > 1_000_000:
        raw = np.floor_divide(raw, per_second // 1_000_000)
    elif per_second < 1_000_000:
        raw = raw * (1_000_000 // per_second)
    return raw, valid


def window_type(kind: pa.DataType) -> pa.DataType:
    """The type of window bounds over an event-time column: microseconds, with or without a zone as the column."""
    return pa.timestamp("us", tz=kind.tz)


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of one size that start every `slide_us`; `time` None means event time if the stream has it."""

    size_us: int
    slide_us: int
    time: str | None = None  # "event" or "processing"

    @property
    def copies(self) -> int:
        """The most windows that one row can belong to."""
        return -(-self.size_us // self.slide_us)

    def starts_of(self, at_us: int) -> list[int]:
        """Starts of all windows that contain a time, latest first."""
        last = at_us // self.slide_us * self.slide_us
        return [last - k * self.slide_us for k in range(self.copies) if last - k * self.slide_us + self.size_us > at_us]

    def last_starts(self, times_us: Int64Array) -> Int64Array:
        """The latest start of a window that contains each time."""
        starts: Int64Array = np.floor_divide(times_us, self.slide_us) * self.slide_us
        return starts

    def first_open(self, watermark_us: int) -> int:
        """The start of the earliest window that rows at or after the watermark can still belong to."""
        return (watermark_us - self.size_us) // self.slide_us * self.slide_us + self.slide_us

    def late_before(self, watermark_us: int) -> int:
        """Rows before this time miss a window that has closed; other windows of theirs may still be open."""
        return self.first_open(watermark_us) - self.slide_us + self.size_us
