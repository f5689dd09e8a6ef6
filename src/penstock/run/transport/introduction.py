"""Introduction: a connection on its way through the handshake, driven by the loop, without blocking.

It reads no byte beyond the handshake. What follows may be frames, which the core reads, or descriptors, which come with
certain bytes and are lost where these are read without them.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable

from penstock.run.transport.handshake import Handshake
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone

Known = Callable[["Introduction"], None]
Failed = Callable[["Introduction", OSError], None]


class Introduction:
    """One connection; `known` is called when its other end is known, `failed` when it cannot be."""

    def __init__(
        self, loop: Loop, connection: socket.socket, handshake: Handshake, known: Known, failed: Failed
    ) -> None:
        self.connection = connection
        self.handshake = handshake
        self._loop, self._known, self._failed = loop, known, failed
        self._has_begun = False
        connection.setblocking(False)

    @property
    def has_begun(self) -> bool:
        """Whether there is a connection at all; before, its other end could not be reached yet."""
        return self._has_begun

    def call(self, address: tuple[str, int] | bytes) -> None:
        """Connect; where that fails at once it is told at once."""
        code = self.connection.connect_ex(address)
        if code not in {0, errno.EINPROGRESS}:
            self._fail(OSError(code, os.strerror(code)))
            return
        self._loop.register(self.connection.fileno(), self._on_event, select.EPOLLOUT)
        if code == 0:
            self._on_event(select.EPOLLOUT)

    def answer(self) -> None:
        """Begin with a connection that was accepted; the caller's opening has mostly come already."""
        self._loop.register(self.connection.fileno(), self._on_event)
        self._on_event(select.EPOLLOUT)
        if self._has_begun and self.connection.fileno() >= 0:
            self._on_event(select.EPOLLIN)

    def leave(self) -> socket.socket:
        """The connection, out of the loop."""
        self._loop.unregister(self.connection.fileno())
        return self.connection

    def close(self) -> None:
        """Give the connection up."""
        if self.connection.fileno() >= 0:
            self.leave().close()

    def _on_event(self, _: int) -> None:
        try:
            if self._has_begun:
                self._advance()
            else:
                self._begin()
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if self.handshake.peer is not None:
            self.leave()
            self._known(self)

    def _begin(self) -> None:
        if code := self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        if self.connection.family != socket.AF_UNIX:  # no small write waits for the answer to the one before
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say(self.connection, self.handshake.opening)
        self._has_begun = True
        self._loop.modify(self.connection.fileno(), select.EPOLLIN)

    def _advance(self) -> None:
        answer = self.handshake.receive(hear(self.connection, self.handshake.wanted))
        if answer:
            say(self.connection, answer)

    def _fail(self, error: OSError) -> None:
        self.close()
        self._failed(self, error)


def say(connection: socket.socket, words: bytes) -> None:
    """Send a few bytes on a young connection, which has room for them."""
    if connection.send(words) != len(words):
        msg = f"the connection does not take {len(words)} bytes"
        raise PeerGone(msg)


def hear(connection: socket.socket, count: int) -> bytes:
    """At most `count` bytes; BlockingIOError where there are none yet, PeerGone where none will come."""
    words = connection.recv(count)
    if not words:
        msg = "the other end closed the connection while both connected"
        raise PeerGone(msg)
    return words
