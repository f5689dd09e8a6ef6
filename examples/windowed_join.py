"""Windowed join: advertisements shown and clicked, joined within ten seconds of event time.

Run it with `penstock run examples/windowed_join.py:topology`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import penstock as ps

START = datetime(2026, 1, 1, tzinfo=UTC)


def shown(task: int, tasks: int) -> Iterator[tuple[int, datetime]]:
    """An advertisement every 100 ms (synthetic)."""
    for number in range(task, 2000, tasks):
        yield number, START + timedelta(milliseconds=100 * number)


def clicked(task: int, tasks: int) -> Iterator[tuple[int, datetime]]:
    """Every seventh is clicked, 700 ms later (synthetic)."""
    for number in range(task, 2000, tasks):
        if number % 7 == 0:
            yield number, START + timedelta(milliseconds=100 * number + 700)


def topology() -> ps.Topology:
    """Impressions and clicks of the same advertisement in the same window."""
    top = ps.Topology("clicks")
    impressions = top.source("shown", ps.io.generator(shown, "ad bigint, shown_at timestamp"), tasks=2)
    clicks = top.source("clicked", ps.io.generator(clicked, "ad bigint, clicked_at timestamp"), tasks=2)
    joined = impressions.event_time("shown_at", lateness="1 second").join(
        clicks.event_time("clicked_at", lateness="1 second"), on="ad", window=ps.tumbling("10 seconds"), tasks=2
    )
    joined.sink("joined", ps.io.collect())
    return top
