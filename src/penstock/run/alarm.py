"""Alarm: a descriptor that becomes readable after a time, for waits too short for epoll's own timeout.

Python's epoll rounds timeouts up to whole milliseconds. A source that has a row every 50 us would sleep twenty times
too long, and this alone would be most of its latency. Longer waits do without: they need no such precision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import _core

PRECISE_SECONDS = 0.02  # waits below this are worth two system calls


class Alarm:
    """One timer of one worker."""

    def __init__(self) -> None:
        self._descriptor = _core.make_timer()

    def fileno(self) -> int:
        """Readable when the time has come."""
        return self._descriptor

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """While this lasts, the descriptor becomes readable after so many seconds, if they are few."""
        if seconds >= PRECISE_SECONDS:
            yield
            return
        _core.set_timer(self._descriptor, max(1, int(seconds * 1e9)))
        try:
            yield
        finally:
            _core.set_timer(self._descriptor, 0)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)
