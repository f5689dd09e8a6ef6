"""SocketChannel: the port over TCP, which does not block and measures for how long the kernel took nothing.

The core does the work (`core/image/socket_channel.hpp`): writes gather a head, an image's descriptor and the batch's
own buffers in one system call, reads go into blocks where batches stay, and Python copies nothing. When the kernel's
buffer is full the rest waits there, and the time until it takes bytes again counts as blocked (paper 002, section 3).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Sequence

import pyarrow as pa

from penstock import _core
from penstock.errors import InternalError
from penstock.run.transport.loop import Loop
from penstock.run.transport.ports import NoPortLeft, Ports
from penstock.run.transport.protocol import ChannelStatistics, Listener, PeerGone
from penstock.run.transport.wire import Frame, Kind, WireFault, codec_of, cut, is_long, require_sendable

# Credits keep what waits far below this; more means that they are not heeded.
OUTBOX_BYTES_MAX = 1 << 30
BACKLOG = 1024  # a hundred workers may call one at the same moment, beside strangers


class SocketChannel:
    """One end of a connection between two workers; used by one thread."""

    transport = "socket"

    def __init__(
        self, connection: socket.socket, peer: int, edges: int, outbox_bytes_max: int = OUTBOX_BYTES_MAX
    ) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            prepare(connection)
        self.peer = peer
        self._socket = connection
        self._core = _core.SocketChannel(connection.fileno(), edges, outbox_bytes_max)
        self._loop: Loop | None = None
        self._listener: Listener | None = None
        self._watches_writes = False

    def register(self, loop: Loop, listener: Listener) -> None:
        """Watch the connection."""
        self._loop, self._listener = loop, listener
        loop.register(self._socket.fileno(), self._on_event)

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the kernel takes; the bytes that both ends count."""
        image = codec_of(batch.schema).prepare(batch)
        if is_long(image):
            return sum(self.send_batch(edge, piece, origin_ns) for piece in cut(batch))
        return self.send_image(edge, image, origin_ns)

    def send_image(self, edge: int, image: _core.PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        require_sendable(image)
        try:
            self._core.send_image(edge, image, origin_ns)
        except ConnectionError as error:
            raise self._gone(error) from error
        except _core.ImageFault as error:
            raise WireFault(str(error)) from error
        except _core.OutboxFull as error:
            raise self._overfull(error) from error
        if self._core.wants_write and not self._watches_writes:
            self._watch_writes()
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a watermark, an end, a credit or an epoch, and push out as much as the kernel takes."""
        try:
            self._core.send_mark(kind, edge, value)
        except ConnectionError as error:
            raise self._gone(error) from error
        except _core.OutboxFull as error:
            raise self._overfull(error) from error
        if self._core.wants_write and not self._watches_writes:
            self._watch_writes()

    def _watch_writes(self) -> None:
        """Hear when the kernel takes bytes again."""
        if self._loop is not None:
            self._watches_writes = True
            self._loop.modify(self._socket.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        try:
            return self._core.flush()
        except ConnectionError as error:
            raise self._gone(error) from error

    def _on_event(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._on_writable()
        if events & ~select.EPOLLOUT and self._listener is not None:
            try:
                self._listener.arrived(self.receive())
            except PeerGone as departure:
                self._leave_loop()
                self._core.clear()
                self._listener.gone(departure)

    def _on_writable(self) -> None:
        try:
            waits = not self.flush()
        except PeerGone:  # what it sent before may still be read, and its end comes after that
            self._core.clear()
            waits = False
        if not waits and self._loop is not None:
            self._watches_writes = False
            self._loop.modify(self._socket.fileno(), select.EPOLLIN)

    def _leave_loop(self) -> None:
        if self._loop is not None:
            self._loop.unregister(self._socket.fileno())
            self._loop = None

    def receive(self) -> Sequence[Frame]:
        """Frames that have arrived; empty when there are none, PeerGone when none will come."""
        try:
            frames = self._core.receive()
        except ConnectionError as error:
            raise self._gone(error) from error
        except _core.ImageFault as error:
            msg = f"worker {self.peer} sent what is no frame: {error}"
            raise WireFault(msg) from error
        if frames is None:
            raise self._gone(None)
        return frames

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return self._core.wants_write

    def clear(self) -> None:
        """Give up what waits."""
        self._core.clear()

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        return ChannelStatistics(*self._core.statistics())

    def say_goodbye(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        with contextlib.suppress(OSError):  # the peer may have closed first
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        self._core.clear()
        self._leave_loop()
        self._socket.close()

    def _overfull(self, error: BaseException) -> InternalError:
        return InternalError(f"worker {self.peer} is sent more than its credits allow: {error}")

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""), self.peer)


def prepare(connection: socket.socket) -> None:
    """Let no small write wait for the answer to the one before, and the kernel find out that a machine has vanished."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def listen(host: str, ports: Ports | None = None) -> socket.socket:
    """A listening socket on this address only, at the first port that is free, or at one that the kernel picks."""
    if ports is None:
        return _listen_at(host, 0)
    for port in ports.numbers:
        try:
            return _listen_at(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    msg = f"every port of {ports.name} {ports} is taken at {host}; give a wider range, or end what listens there"
    raise NoPortLeft(errno.EADDRINUSE, msg)


def _listen_at(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if port:  # connections of the job before may still be fading away there
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
