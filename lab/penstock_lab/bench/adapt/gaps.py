"""What arrivals at a sink say: how long nothing new came, how late rows were, how many there were. Pure.

A job that goes on from an epoch gives rows again that had come before. They are nothing new: a gap ends with the first
row of a number that had not come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


class Arrival(NamedTuple):
    """One batch at a sink."""

    came_s: float  # since 1970
    last: int  # the greatest number in it
    rows: int
    late_s: float  # of the row that was due first


class Window(NamedTuple):
    """A time, in seconds since 1970."""

    begin_s: float
    end_s: float


def new_ones(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Those with numbers beyond all that came before, in order of time."""
    found: list[Arrival] = []
    for arrival in sorted(arrivals):
        if not found or arrival.last > found[-1].last:
            found.append(arrival)
    return found


def largest_gap_s(arrivals: Sequence[Arrival], window: Window) -> float:
    """The longest time without new numbers of which some was in the window; infinite if no arrival follows."""
    times = [arrival.came_s for arrival in arrivals]
    first, last = np.searchsorted(times, window.begin_s), np.searchsorted(times, window.end_s)
    if last >= len(times):
        return math.inf
    inside = times[max(0, int(first) - 1) : int(last) + 1]
    return float(np.max(np.diff(inside))) if len(inside) > 1 else math.inf


def rows_per_second(arrivals: Sequence[Arrival], windows: Sequence[Window]) -> float | None:
    """New rows within the windows, over their length; by the numbers, because batches may have old rows too."""
    times, numbers = [arrival.came_s for arrival in arrivals], [arrival.last for arrival in arrivals]
    rows, seconds = 0, 0.0
    for window in windows:
        before, until = (int(np.searchsorted(times, at)) - 1 for at in window)
        if before >= 0 and window.end_s > window.begin_s:
            rows += numbers[until] - numbers[before]
            seconds += window.end_s - window.begin_s
    return rows / seconds if seconds else None


def late_ms(arrivals: Sequence[Arrival], windows: Sequence[Window], fraction: float) -> float | None:
    """A percentile of how late rows were that came within the windows: each batch counts as its oldest row."""
    found = [
        (arrival.late_s, arrival.rows)
        for arrival in arrivals
        if any(window.begin_s <= arrival.came_s < window.end_s for window in windows)
    ]
    if not found:
        return None
    found.sort()
    passed = np.cumsum([rows for _, rows in found])
    return 1e3 * found[int(np.searchsorted(passed, fraction * passed[-1]))][0]


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """The least value that so large a part of them does not exceed; of a few values the 99th percentile is the most."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]


def growth(samples: Sequence[float]) -> float | None:
    """How much more the last fifth of samples is than the second fifth, in the mean, as a share; the first warms up."""
    part = len(samples) // 5
    if part == 0:
        return None
    early, late = float(np.mean(samples[part : 2 * part])), float(np.mean(samples[-part:]))
    return late / early - 1 if early else None
