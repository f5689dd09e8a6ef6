"""Introduction: a connection on its way through the handshake, driven by the loop, without blocking.

With credentials a caller speaks TLS first, and a called one lets the caller choose: workers of one machine, whose words
do not leave it, do without (`meetings.py` refuses others that do). A hello of TLS begins with a byte that none of ours
begins with.

It reads no byte beyond the handshake. What follows may be frames, which the core reads, or descriptors, which come with
certain bytes and are lost where these are read without them.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable

from penstock.run.transport.handshake import Handshake
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.tls.credentials import Credentials, refusal

TLS_HELLO = b"\x16"  # the first byte of a handshake's record
Known = Callable[["Introduction"], None]
Failed = Callable[["Introduction", OSError], None]


class Introduction:
    """One connection; `known` is called when its other end is known, `failed` when it cannot be."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        handshake: Handshake,
        known: Known,
        failed: Failed,
        credentials: Credentials | None = None,
    ) -> None:
        self.connection = connection
        self._credentials = credentials  # until TLS has been agreed on, or done without
        self.handshake = handshake
        self._loop, self._known, self._failed = loop, known, failed
        self._has_begun = self._is_greeted = False
        self._is_caller = False
        self._owed = b""  # our opening, where the other end speaks first
        connection.setblocking(False)

    @property
    def has_begun(self) -> bool:
        """Whether there is a connection at all; before, its other end could not be reached yet."""
        return self._has_begun

    def call(self, address: tuple[str, int] | bytes) -> None:
        """Connect; where that fails at once it is told at once."""
        self._is_caller = True
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
            if self._is_greeted:
                self._advance()
            else:
                self._begin()
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except ssl.SSLWantWriteError:
            self._loop.modify(self.connection.fileno(), select.EPOLLIN | select.EPOLLOUT)
            return
        except ssl.SSLError as error:
            self._fail(refusal(error))
            return
        except OSError as error:
            self._fail(error)
            return
        if self.handshake.peer is not None:
            self.leave()
            self._known(self)

    def _begin(self) -> None:
        if not self._has_begun:
            self._connected()
        if self._credentials is not None:
            self._secure(self._credentials)
        if self._is_caller and isinstance(self.connection, ssl.SSLSocket):
            # In TLS 1.3 a caller is done before its certificate has been looked at. What it said by then would lie
            # unread when the other end refuses it, and the reason would be lost with the connection.
            self._owed = self.handshake.opening
        else:
            say(self.connection, self.handshake.opening)
        self._is_greeted = True

    def _secure(self, credentials: Credentials) -> None:
        """TLS, where it is spoken; comes back here until it is agreed on."""
        if not isinstance(self.connection, ssl.SSLSocket):
            if not self._is_caller and self.connection.recv(1, socket.MSG_PEEK) != TLS_HELLO:
                self._credentials = None
                return
            self.connection = (credentials.call if self._is_caller else credentials.answer)(self.connection)
        self.connection.do_handshake()
        self.handshake.bind(credentials.binding(self.connection))
        self._credentials = None
        self._loop.modify(self.connection.fileno(), select.EPOLLIN)

    def _connected(self) -> None:
        if code := self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, os.strerror(code))
        if self.connection.family != socket.AF_UNIX:  # no small write waits for the answer to the one before
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._has_begun = True
        self._loop.modify(self.connection.fileno(), select.EPOLLIN)

    def _advance(self) -> None:
        answer = self.handshake.receive(hear(self.connection, self.handshake.wanted))
        if self._owed and self.handshake.has_heard:
            say(self.connection, self._owed)  # a record of its own: the other end reads no further than its next step
            self._owed = b""
        if answer:
            say(self.connection, answer)

    def _fail(self, error: OSError) -> None:
        self.close()
        self._failed(self, error)


def say(connection: socket.socket, words: bytes) -> None:
    """Send a few bytes on a young connection, which has room for them."""
    try:
        sent = connection.send(words)
    except ssl.SSLWantWriteError:
        sent = 0
    if sent != len(words):
        msg = f"the connection does not take {len(words)} bytes"
        raise PeerGone(msg)


def hear(connection: socket.socket, count: int) -> bytes:
    """At most `count` bytes; BlockingIOError where there are none yet, PeerGone where none will come."""
    words = connection.recv(count)
    if not words:
        msg = "the other end closed the connection while both connected"
        raise PeerGone(msg)
    return words
