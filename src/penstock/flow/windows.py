"""Windows as users write them: `ps.tumbling("10 seconds")`, `ps.sliding("30 seconds", "10 seconds")`.

`time` says which time counts: "event" is the column named by `.event_time(...)`, "processing" is the worker's clock
when the row arrives. By default it is event time where the stream has one. Without event time, an endless stream goes
by the clock. Input that ends is refused: a window over last year's rows cannot mean the hour of the run
(`test_bounded_rows_without_event_time_have_no_windows_by_the_clock_unless_that_is_said`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from penstock.errors import InvalidInput
from penstock.run.operators.times import PANES_MAX, Duration, Window, parse_duration_us

WindowTime = Literal["event", "processing"]


def tumbling(size: Duration, *, time: WindowTime | None = None) -> Window:
    """Windows side by side: every row belongs to one."""
    return sliding(size, size, time=time)


def sliding(size: Duration, slide: Duration, *, time: WindowTime | None = None) -> Window:
    """Windows of one size that start every `slide`: a row belongs to size / slide of them."""
    size_us = parse_duration_us(size, "window size")
    slide_us = parse_duration_us(slide, "window slide")
    if size_us < 1 or slide_us < 1:
        msg = f"window of {size!r} sliding by {slide!r}: both must be at least one microsecond"
        raise InvalidInput(msg)
    if slide_us > size_us:
        msg = f"window of {size!r} slides by {slide!r} and would skip rows; slide by at most its size"
        raise InvalidInput(msg)
    if time not in {None, "event", "processing"}:
        msg = f"window time is {time!r}; it is 'event' or 'processing'"
        raise InvalidInput(msg)
    window = Window(size_us, slide_us, time)
    if window.copies > PANES_MAX:
        msg = (
            f"window of {size!r} sliding by {slide!r} puts a row into {window.copies} windows; the limit is {PANES_MAX}"
        )
        raise InvalidInput(msg)
    return window


def window_words(window: Window | None, time_column: str | None) -> dict[str, str]:
    """A window, for whoever compares."""
    if window is None:
        return {}
    size, slide = (timedelta(microseconds=us) for us in (window.size_us, window.slide_us))
    clock = "the worker's clock" if time_column is None else f"column {time_column!r}"
    return {"window": f"{size} long, every {slide}, by {clock}"}
