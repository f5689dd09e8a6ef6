"""Loop: the one place where a worker waits, and the handler of each descriptor.

Rings, sockets, doors, callers and the driver's line are descriptors of one epoll; each has a handler that is called
with what happened to it. A handler takes in what there is without waiting. It must bear being called for nothing,
because its descriptor's number may have been another descriptor's a moment ago.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from time import monotonic, monotonic_ns

from penstock._core import epoll_wait_ns

REGULARLY_SECONDS = 0.05

Handler = Callable[[int], None]  # given the events


class Loop:
    """An epoll and its handlers."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._fileno = self._epoll.fileno()
        self._handlers: dict[int, Handler] = {}
        self._regular: list[Callable[[], None]] = []
        self._regular_at = 0.0
        self.woken_ns = 0  # when the last turn that had to wait began to work

    def register(self, descriptor: int, handler: Handler, events: int = select.EPOLLIN) -> None:
        """Call the handler whenever one of these events happens to the descriptor."""
        self._epoll.register(descriptor, events)
        self._handlers[descriptor] = handler

    def modify(self, descriptor: int, events: int) -> None:
        """Wait for other events of a descriptor."""
        self._epoll.modify(descriptor, events)

    def unregister(self, descriptor: int) -> None:
        """Forget a descriptor, which is still open; nothing happens where it is not registered."""
        if self._handlers.pop(descriptor, None) is not None:
            with contextlib.suppress(OSError, ValueError):  # the epoll may be closed already
                self._epoll.unregister(descriptor)

    def regularly(self, act: Callable[[], None]) -> None:
        """Call this now and then after a turn, however much there is to handle: for what no descriptor tells."""
        self._regular.append(act)

    def turn(self, seconds: float) -> None:
        """Wait at most `seconds` for something to happen, and have it handled."""
        handlers = self._handlers
        happened = epoll_wait_ns(self._fileno, int(seconds * 1e9))
        if seconds:
            self.woken_ns = monotonic_ns()
        for descriptor, events in happened:
            handler = handlers.get(descriptor)
            if handler is not None:
                handler(events)
        if self._regular and (now := monotonic()) >= self._regular_at:
            self._regular_at = now + REGULARLY_SECONDS
            for act in self._regular:
                act()

    def close(self) -> None:
        """Give the epoll back."""
        self._epoll.close()
        self._fileno = -1  # the number may be another descriptor's by now
        self._handlers.clear()
        self._regular.clear()
