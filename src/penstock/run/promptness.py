"""What a worker asks of its process so that nothing makes it late; taken back at its end: Spark uses processes again.

Timers: the kernel may be 50 us late for a plain thread, on every wait for a time. Garbage: what is there when a worker
starts, modules mostly, will stay, and going through it again and again stops the worker for ten milliseconds and more.
A process that has frozen its objects already (`deploy/daemon.py`, so that forked workers share them) is left as it is:
unfreezing would copy all those pages. Threads that a user's function starts inherit the timers' slack.
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
