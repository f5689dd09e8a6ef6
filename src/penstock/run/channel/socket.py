"""SocketChannel: frames over TCP, never blocking, with the time that sends were blocked measured.

The core does the work (`core/socket_channel.hpp`): writes gather a head, an image's descriptor and the batch's own
buffers in one system call, reads go into blocks where batches stay, and Python copies nothing. When the kernel's buffer
is full the rest waits there, and the time until it takes bytes again counts as blocked (paper 002, section 3: a
non-blocking send and a timed wait).

What stays here is who may connect: the worker with the lower number calls, and both ends prove that they hold the job's
key before a single frame is read, each over the other's fresh nonce, so that nothing recorded can be played back.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Sequence

import pyarrow as pa

from penstock import _core
from penstock.errors import InternalError
from penstock.run.channel.protocol import ChannelStatistics, PeerGone
from penstock.run.wire import Frame, Kind, WireFault, codec_of

# Credits keep what waits far below this; more means that they are not heeded.
OUTBOX_BYTES_MAX = 1 << 30
HANDSHAKE_SECONDS = 10.0
_HELLO = struct.Struct("<8sI32s")  # magic, worker, nonce
_MAGIC = b"penstok2"


class SocketChannel:
    """One end of a connection between two workers; used by one thread."""

    def __init__(
        self, connection: socket.socket, peer: int, edges: int, outbox_bytes_max: int = OUTBOX_BYTES_MAX
    ) -> None:
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            _send_at_once(connection)
            _keep_alive(connection)
        self.peer = peer
        self._socket = connection
        self._core = _core.SocketChannel(connection.fileno(), edges, outbox_bytes_max)

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the kernel takes; the bytes that both ends count."""
        return self.send_image(edge, codec_of(batch.schema).prepare(batch), origin_ns)

    def send_image(self, edge: int, image: _core.PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        try:
            self._core.send_image(edge, image, origin_ns)
        except ConnectionError as error:
            raise self._gone(error) from error
        except _core.ImageFault as error:
            raise WireFault(str(error)) from error
        except _core.OutboxFull as error:
            raise self._overfull(error) from error
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a watermark, an end, a credit or an epoch, and push out as much as the kernel takes."""
        try:
            self._core.send_mark(kind, edge, value)
        except ConnectionError as error:
            raise self._gone(error) from error
        except _core.OutboxFull as error:
            raise self._overfull(error) from error

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        try:
            return self._core.flush()
        except ConnectionError as error:
            raise self._gone(error) from error

    def wait_writable(self, seconds: float) -> bool:
        """Block until the kernel takes bytes again, at most so long; True when nothing waits any more."""
        try:
            return self._core.wait_writable(seconds)
        except ConnectionError as error:
            raise self._gone(error) from error

    def receive(self) -> Sequence[Frame]:
        """Frames that have arrived; empty when there are none."""
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

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return self._core.wants_write

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        return ChannelStatistics(*self._core.statistics())

    def end_sending(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        with contextlib.suppress(OSError):  # the peer may have closed first
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        self._core.clear()
        self._socket.close()

    def _overfull(self, error: BaseException) -> InternalError:
        return InternalError(f"worker {self.peer} is sent more than its credits allow: {error}")

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""), self.peer)


def _send_at_once(connection: socket.socket) -> None:
    """Let no small write wait for the answer to the one before: agreeing on rings took 40 ms that way."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel find out within a minute or two that the other machine has vanished."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def listen(host: str) -> socket.socket:
    """A listening socket on this address only, at a port that the kernel picks."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind((host, 0))
    listener.listen(128)
    return listener


def connect(
    address: tuple[str, int], me: int, peer: int, key: bytes, patience_seconds: float = HANDSHAKE_SECONDS
) -> socket.socket:
    """A connection to a worker that has proved to hold the job's key; so long may it take to answer at all."""
    connection = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    try:
        _send_at_once(connection)
        connection.settimeout(patience_seconds)
        if handshake(connection, me, key, first=True) != peer:
            msg = f"the process at {address[0]}:{address[1]} is not worker {peer}"
            raise PeerGone(msg)
        connection.settimeout(HANDSHAKE_SECONDS)
    except BaseException:
        connection.close()
        raise
    return connection


def accept(listener: socket.socket, me: int, key: bytes) -> tuple[socket.socket, int] | None:
    """The next connection and its worker, or None when whoever knocked does not hold the job's key."""
    connection, _ = listener.accept()
    connection.settimeout(HANDSHAKE_SECONDS)
    try:
        _send_at_once(connection)
        return connection, handshake(connection, me, key, first=False)
    except (OSError, PeerGone):
        connection.close()
        return None


def handshake(connection: socket.socket, me: int, key: bytes, *, first: bool) -> int:
    """Exchange nonces, then proofs of the job's key over both; the number of the worker at the other end."""
    mine = _HELLO.pack(_MAGIC, me, secrets.token_bytes(32))
    connection.sendall(mine)
    theirs = read_exactly(connection, _HELLO.size)
    magic, peer, _ = _HELLO.unpack(theirs)
    if magic != _MAGIC or theirs == mine:
        msg = "the peer does not speak our protocol"
        raise PeerGone(msg)
    role_mine, role_theirs = (b"connect", b"accept") if first else (b"accept", b"connect")
    connection.sendall(_proof(key, role_mine, mine, theirs))
    if not hmac.compare_digest(read_exactly(connection, 32), _proof(key, role_theirs, theirs, mine)):
        msg = "the peer does not hold the job's key"
        raise PeerGone(msg)
    return int(peer)


def _proof(key: bytes, role: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.new(key, role + own + other, hashlib.sha256).digest()


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes of a connection that blocks; PeerGone where it ends before."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            msg = "the peer closed during the handshake"
            raise PeerGone(msg)
        data += piece
    return data
