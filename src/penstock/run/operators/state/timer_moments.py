"""What a user may give to `timers.at`, `at_processing` and `after`, as microseconds.

A moment is a datetime of the same kind as the event-time column: with a zone for a `timestamp`, without one for a
`timestamp_ntz`. So `row.ts + timedelta(...)` fits, and local time is not taken for UTC
(`test_timers_refuse_what_is_no_moment`). An int is microseconds since 1970, from 1973 to 9999: a smaller int is
seconds, milliseconds or a delay, and the timer would fire at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from penstock.errors import InvalidInput
from penstock.run.operators.convert import shown
from penstock.run.operators.state.event_rows import RowTime
from penstock.run.operators.times import Duration, moment_of, parse_duration_us, time_us

INT_US_MIN = 10**14  # 3 March 1973; the milliseconds of any date up to the year 5138 are below
INT_US_MAX = 253_402_300_799_999_999  # the last microsecond of the year 9999
_CALLS = ("timers.at", "timers.at_processing")  # by clock


def timer_us(operator: str, time: RowTime | None, moment: object, clock: int) -> int:
    """Microseconds of a moment on a clock (0: event time, 1: processing time), or an error that says what to write."""
    who = f"{_CALLS[clock]}({shown(moment)}) of {operator!r}"
    if clock == 0 and time is None:
        msg = (
            f"{who}: the stream has no event time, so the timer would fire at the end only; call "
            f".event_time(column, lateness=...) before key_by, or use timers.after('10 seconds')"
        )
        raise InvalidInput(msg)
    if isinstance(moment, datetime):
        _require_kind_of_zone(moment, time if clock == 0 else None, who)
        return time_us(moment)
    if isinstance(moment, int) and not isinstance(moment, bool) and INT_US_MIN <= moment <= INT_US_MAX:
        return moment
    msg = f"{who}: give a datetime, or row.{'ts' if time is None else time.column} + timedelta(...)"
    if isinstance(moment, timedelta | str) or (isinstance(moment, int) and moment < INT_US_MIN):
        msg += "; for a delay on the worker's clock there is timers.after('10 seconds')"
    if isinstance(moment, int):
        msg += f"; an int is microseconds since 1970 and from {INT_US_MIN} to {INT_US_MAX}"
    raise InvalidInput(msg)


def _require_kind_of_zone(moment: datetime, time: RowTime | None, who: str) -> None:
    if time is not None and not time.zoned:
        if moment.tzinfo is not None:
            msg = f"{who} has a zone but column {time.column!r} has none; write moment.replace(tzinfo=None)"
            raise InvalidInput(msg)
    elif moment.tzinfo is None:
        same = "as the clock does" if time is None else f"as column {time.column!r} has"
        msg = f"{who} has no zone; give one, {same}: datetime.now(UTC), datetime(..., tzinfo=UTC)"
        raise InvalidInput(msg)


@lru_cache(maxsize=256)
def delay_us(delay: Duration) -> int:
    """Microseconds of a delay; cached, because every row gives the same few texts."""
    return parse_duration_us(delay, "timer delay")


def moment_for(at_us: int, time: RowTime | None) -> datetime:
    """The moment that `on_timer` gets: of the same kind as the event-time column."""
    moment = moment_of(at_us)
    return moment if time is None or time.zoned else moment.replace(tzinfo=None)
