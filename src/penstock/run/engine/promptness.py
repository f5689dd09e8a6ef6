"""What a worker asks of its process in order to be prompt; undone at its end, because Spark uses processes again.

Timers: the kernel may be 50 us late for a plain thread, on every wait for a time. Threads that a user's function starts
inherit the shorter slack. Garbage: objects that are there when a worker starts, modules mostly, will stay, and each
collection that goes through them stops the worker for ten milliseconds and more; so they are frozen. A process that has
frozen its objects already (`deploy/worker/daemon.py`: forked workers share them) is left as it is, because unfreezing
would copy all those pages.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from penstock._core import set_timer_slack

TIMER_SLACK_NS = 1_000


@contextmanager
def prompt_thread() -> Iterator[None]:
    """For as long as the calling thread runs a worker."""
    slack_before_ns = set_timer_slack(TIMER_SLACK_NS)
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        if slack_before_ns > 0:
            set_timer_slack(slack_before_ns)
