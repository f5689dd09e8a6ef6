"""The jobs of this process that have not ended: what they hold of Spark's slots, and their end with the process."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.deploy.driver.job import Job

_live: weakref.WeakSet[Job] = weakref.WeakSet()


def entered(job: Job) -> None:
    """A job begins."""
    _live.add(job)
    atexit.unregister(_cancel)  # what was registered last runs first: before Spark is ended under the job
    atexit.register(_cancel)


def left(job: Job) -> None:
    """A job has ended."""
    _live.discard(job)


def besides(without: Job | None = None) -> list[Job]:
    """All but this one."""
    return [job for job in _live if job is not without]


def workers_at_work(without: Job | None = None) -> dict[str, int]:
    """How many workers the jobs of this process hold, by topology; a process has one Spark context."""
    held: Counter[str] = Counter()
    for job in besides(without):
        held[job.name] += job.workers_held
    return dict(held)


def _cancel() -> None:
    for job in besides():
        with contextlib.suppress(Exception):
            job.cancel()
