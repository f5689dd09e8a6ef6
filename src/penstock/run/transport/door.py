"""Door: where other workers knock, and strangers.

A stranger costs a descriptor for a short time, and at most STRANGERS_MAX are heard: at the limit the stranger that has
been silent for longest goes, and a peer that is sent away calls again. All callers are heard at the same time, so no
worker waits behind a stranger (tests/unit/test_strangers.py). A door at which no worker is expected is not watched, and
its callers wait in the kernel.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable

from penstock.run.transport.handshake import Handshake
from penstock.run.transport.introduction import Introduction
from penstock.run.transport.loop import Loop
from penstock.run.transport.tls.credentials import Credentials

HANDSHAKE_SECONDS = 30.0  # for a caller: a peer may be as slow as its machine is busy
STRANGERS_MAX = 64  # heard at the same time, beside the expected workers
KNOCKS_PER_TURN = 64
NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}

Admit = Callable[[socket.socket, Handshake], None]


class Door:
    """A listening socket; a caller that proves the job's key is let in."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        greet: Callable[[float], Handshake],
        admit: Admit,
        exhausted: Callable[[OSError], None],
        credentials: Credentials | None = None,
    ) -> None:
        self._loop, self._listener, self._greet, self._admit = loop, listener, greet, admit
        self._credentials = credentials  # for callers that speak TLS
        self._exhausted = exhausted  # told when there is no descriptor left
        self._knocking: dict[Introduction, None] = {}  # the longest-waiting first
        self._knocks_max = STRANGERS_MAX
        self._is_open = False
        self.turned_away = 0
        listener.setblocking(False)

    def open(self, expected: int) -> None:
        """Hear callers; `expected` peers are to come."""
        self._knocks_max = expected + STRANGERS_MAX
        if not self._is_open:
            self._is_open = True
            self._loop.register(self._listener.fileno(), self._on_knock)

    def shut(self) -> None:
        """Expect no worker any more; callers without proof are sent away."""
        if self._is_open:
            self._is_open = False
            self._loop.unregister(self._listener.fileno())
        while self._knocking:
            self._turn_away(next(iter(self._knocking)))

    def close(self) -> None:
        """Leave the address; the kernel refuses callers that wait there."""
        self.shut()
        self._listener.close()

    def expire(self, now: float) -> None:
        """Turn away callers whose time is over."""
        for knock in [knock for knock in self._knocking if knock.handshake.deadline <= now]:
            self._turn_away(knock)

    def _on_knock(self, _: int) -> None:
        for _ in range(KNOCKS_PER_TURN):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return  # no caller, or one that has gone again
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                if not self._knocking:
                    self._exhausted(error)
                    return
                self._turn_away(self._least())
            else:
                self._hear(connection)
            if not self._is_open:
                return  # the last one that was expected has come

    def _hear(self, connection: socket.socket) -> None:
        if len(self._knocking) >= self._knocks_max:
            self._turn_away(self._least())
        handshake = self._greet(time.monotonic() + HANDSHAKE_SECONDS)
        knock = Introduction(self._loop, connection, handshake, self._known, self._failed, self._credentials)
        self._knocking[knock] = None
        knock.answer()

    def _least(self) -> Introduction:
        """The caller that has been silent for longest, or else the one that came first."""
        return next((knock for knock in self._knocking if knock.handshake.is_silent), next(iter(self._knocking)))

    def _known(self, knock: Introduction) -> None:
        del self._knocking[knock]
        self._admit(knock.connection, knock.handshake)

    def _failed(self, knock: Introduction, _: OSError) -> None:
        del self._knocking[knock]
        self.turned_away += 1

    def _turn_away(self, knock: Introduction) -> None:
        del self._knocking[knock]
        self.turned_away += 1
        knock.close()
