"""A stateful operator: visits per user, and a farewell when a user has not been seen for a minute of event time.

Run it with `penstock run examples/visit_counter.py:topology`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import penstock as ps

START = datetime(2026, 1, 1, tzinfo=UTC)


def visits(task: int, tasks: int) -> Iterator[tuple[str, datetime]]:
    """Ten users who come and go (synthetic)."""
    for number in range(task, 5000, tasks):
        user = (number // 3) % 10
        yield f"user{user}", START + timedelta(seconds=number // 10 + 600 * (number // 2500))


class Visits(ps.Stateful):
    """Counts each user's visits; emits the count when the user has been away for a minute, and at the end."""

    schema = "user string, visits bigint"

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """One more visit; the minute begins anew."""
        state["visits"] = state.get("visits", 0) + 1
        timers.clear()
        timers.at(row.seen_at + timedelta(minutes=1))

    def on_timer(self, key: Any, time: Any, state: Any, timers: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """The user has gone."""
        emit((key, state.pop("visits", 0)))


def topology() -> ps.Topology:
    """Visits by user, counted per stay."""
    top = ps.Topology("visits")
    seen = top.source("seen", ps.io.generator(visits, "user string, seen_at timestamp"), tasks=2)
    stays = seen.event_time("seen_at", lateness="5 seconds").key_by("user").process(Visits, tasks=2)
    stays.sink("stays", ps.io.collect())
    return top
