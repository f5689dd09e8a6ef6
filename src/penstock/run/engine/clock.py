"""The worker's clock: the one place where the engine asks what time it is."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock() -> Callable[[], int]:
    """The time of day in microseconds, as it runs on from now: setting the machine's clock later moves no wait."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + ahead_ns) // 1000


def origin_ns(due_us: int | None) -> int:
    """From when the latency of a source's next rows counts: from when they were due, where they are late."""
    now_ns = time.time_ns()
    return now_ns if due_us is None else min(now_ns, due_us * 1000)
