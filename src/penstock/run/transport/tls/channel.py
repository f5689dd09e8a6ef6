"""TlsChannel: the port over TCP under TLS 1.3; for peers with which this worker cannot share memory.

The core writes and reads frames at one end of a pair of local sockets, as it would at a connection, and this port seals
and opens what passes at the other. So frames, limits and faults are those of the socket channel, and what is added is
two copies in the kernel. Python's TLS reads one record at a time, so whatever is not read yet can be heard by epoll.
Rejected: frames written in Python, 10 us each; TLS in the core, which would link OpenSSL beside Python's own.

A connection that ends without TLS's own goodbye counts as one that ended: every edge says its end in a frame, and Links
takes a peer that leaves before for dead (`test_a_peer_that_leaves_before_its_edges_have_ended_has_died`).
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic_ns

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import ChannelStatistics, Listener, PeerGone
from penstock.run.transport.socket import OUTBOX_BYTES_MAX, SocketChannel, prepare
from penstock.run.transport.tls.credentials import reason
from penstock.run.transport.wire import Frame, Kind

PIECE_BYTES = 1 << 16  # of plain text at once: less than a local socket takes
PIECES_PER_TURN = 16  # so that one connection does not starve the others


class TlsChannel:
    """One end of a connection between two workers; used by one thread."""

    transport = "tls"

    def __init__(
        self, connection: ssl.SSLSocket, peer: int, edges: int, outbox_bytes_max: int = OUTBOX_BYTES_MAX
    ) -> None:
        connection.setblocking(False)
        prepare(connection)
        near, self._far = socket.socketpair()
        self._far.setblocking(False)
        self.peer = peer
        self._frames = SocketChannel(near, peer, edges, outbox_bytes_max)
        self._tls = connection
        self._out, self._in = memoryview(bytearray(PIECE_BYTES)), memoryview(bytearray(PIECE_BYTES))
        self._unsent = self._out[:0]
        self._sent = 0  # plain bytes that TCP has taken
        self._has_ended = False  # the peer sends no more
        self._broken: PeerGone | None = None  # where it did not end in order
        self._blocked_ns = self._blocked_since_ns = 0
        self._loop: Loop | None = None
        self._listener: Listener | None = None

    def register(self, loop: Loop, listener: Listener) -> None:
        """Watch the connection; what came with the handshake's last words is told at once."""
        self._loop, self._listener = loop, listener
        loop.register(self._tls.fileno(), self._on_event)
        if self._tls.pending():
            self._take_in(listener)

    # -- out -----------------------------------------------------------------------------------------------------------

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the kernel takes; the bytes that both ends count."""
        size = self._frames.send_batch(edge, batch, origin_ns)
        self._push()
        return size

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        size = self._frames.send_image(edge, image, origin_ns)
        self._push()
        return size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a watermark, an end, a credit or an epoch, and push out as much as the kernel takes."""
        self._frames.send_mark(kind, edge, value)
        self._push()

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        self._unblock()
        self._push()
        return not self.wants_write

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self._unsent) or self._frames.wants_write

    def _push(self) -> None:
        """Seal and send what there is, until the kernel takes no more."""
        if self._blocked_since_ns:
            return  # until it is told that there is room
        try:
            while self._unsent or self._fetch():
                sent = self._tls.send(self._unsent)
                self._sent += sent
                self._unsent = self._unsent[sent:]
        except ssl.SSLWantWriteError:
            self._blocked_since_ns = monotonic_ns()
            self._watch(select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            raise self._gone(error) from error

    def _fetch(self) -> bool:
        """The next piece of what the core has written, where there is one; the core writes on into the room."""
        try:
            got = self._far.recv_into(self._out)
        except BlockingIOError:
            return False
        self._unsent = self._out[:got]
        if self._frames.wants_write:
            self._frames.flush()
        return got > 0

    def _unblock(self) -> None:
        if self._blocked_since_ns:
            self._blocked_ns += monotonic_ns() - self._blocked_since_ns
            self._blocked_since_ns = 0

    def _watch(self, events: int) -> None:
        if self._loop is not None:
            self._loop.modify(self._tls.fileno(), events)

    # -- in ------------------------------------------------------------------------------------------------------------

    def _on_event(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._on_writable()
        if events & ~select.EPOLLOUT and self._listener is not None:
            self._take_in(self._listener)

    def _on_writable(self) -> None:
        try:
            waits = not self.flush()
        except PeerGone:  # what it sent before may still be read, and its end comes after that
            self._drop()
            waits = False
        if not waits:
            self._watch(select.EPOLLIN)

    def _take_in(self, listener: Listener) -> None:
        try:
            listener.arrived(self.receive())
        except PeerGone as departure:
            self._leave_loop()
            self._drop()
            listener.gone(departure)

    def receive(self) -> Sequence[Frame]:
        """Frames that have arrived; empty when there are none, PeerGone when none will come."""
        frames: list[Frame] = []
        pieces = 0
        while not self._has_ended and (pieces < PIECES_PER_TURN or self._tls.pending()):
            pieces += 1
            piece = self._open_piece()
            if piece is None:
                break
            self._hand_on(piece, frames)
        if not self._has_ended or frames:  # what came before the end is told before it
            return frames
        if self._broken is not None:
            raise self._broken
        return self._frames.receive()

    def _open_piece(self) -> memoryview | None:
        """Plain text that has come; None where none has, or none will."""
        try:
            got = self._tls.recv_into(self._in)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            self._broken, got = self._gone(error), 0
        if not got:
            self._has_ended = True
            self._far.shutdown(socket.SHUT_WR)  # so the core sees the end behind what it has
            return None
        return self._in[:got]

    def _hand_on(self, piece: memoryview, frames: list[Frame]) -> None:
        while piece:
            with contextlib.suppress(BlockingIOError):  # the core makes room
                piece = piece[self._far.send(piece) :]
            frames += self._frames.receive()

    # -- the rest ------------------------------------------------------------------------------------------------------

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened, of plain bytes."""
        counts = self._frames.statistics()
        blocked = monotonic_ns() - self._blocked_since_ns if self._blocked_since_ns else 0
        waiting = counts.bytes_waiting + counts.bytes_sent - self._sent
        return replace(counts, bytes_sent=self._sent, bytes_waiting=waiting, blocked_ns=self._blocked_ns + blocked)

    def say_goodbye(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        with contextlib.suppress(OSError):  # the peer may have closed first
            socket.socket.shutdown(self._tls, socket.SHUT_WR)  # TLS stays: the other direction is still read

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        self._drop()
        self._leave_loop()
        self._frames.close()
        self._far.close()
        self._tls.close()

    def _leave_loop(self) -> None:
        if self._loop is not None:
            self._loop.unregister(self._tls.fileno())
            self._loop = None

    def _drop(self) -> None:
        self._unsent = self._out[:0]
        self._frames.clear()

    def _gone(self, error: OSError) -> PeerGone:
        why = f"TLS: {reason(error)}" if isinstance(error, ssl.SSLError) else str(error)
        return PeerGone(f"worker {self.peer} closed its connection: {why}", self.peer)
