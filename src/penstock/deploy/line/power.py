"""What a process can compute: the cores that it may use, and how long a fixed piece of work takes it.

Workers report both when they say hello, and the driver does the same piece of work, so that a node's capacity is in
cores of the driver's machine. The work is what a worker does: a loop of plain Python, and sums over a column. It is
measured in CPU time of this thread, so that other processes do not count, and the best of a few tries is taken, because
what disturbs a try only makes it longer. A process remembers the answer for a minute: the work takes 8 ms of each
worker and of the driver, and jobs of a tenth of a second follow each other (`test_the_speed_test_is_not_repeated`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

TRIES = 4
KEPT_SECONDS = 60.0
LOOPS = 30_000
COLUMN_ROWS, COLUMN_TURNS = 50_000, 20
CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> float:
    """Cores that this process may use: those that it may be scheduled on, less where a control group says less."""
    scheduled = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(scheduled), *_quotas(cgroup)])


def _quotas(cgroup: Path) -> list[float]:
    """The limits of the control group, where it has any: of version 2, or of version 1."""
    found: list[float] = []
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        if quota != "max":
            found.append(int(quota) / int(period))
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            found.append(int(quota) / int(period))
    return [limit for limit in found if limit > 0]


class SpeedTest:
    """The fixed piece of work, and how long it took here the last time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: tuple[float, float] | None = None  # milliseconds, and when they were measured

    def work_ms(self) -> float:
        """CPU milliseconds that the work takes, the least of a few tries; of at most KEPT_SECONDS ago."""
        now, known = self._clock(), self._known
        if known is None or now - known[1] > KEPT_SECONDS:
            column = np.arange(COLUMN_ROWS, dtype=np.float64)
            known = self._known = min(_once(column) for _ in range(TRIES)), now
        return known[0]


work_ms = SpeedTest().work_ms  # of this process


def _once(column: np.ndarray) -> float:
    began = time.thread_time_ns()
    counts: dict[int, int] = {}
    for i in range(LOOPS):
        counts[i & 1023] = counts.get(i & 1023, 0) + 1
    for _ in range(COLUMN_TURNS):
        float((column * 1.5 + 2.0).sum())
    return max(1, time.thread_time_ns() - began) / 1e6
