"""SocketChannel: frames over TCP, never blocking, with the time that sends were blocked measured.

Writes gather header and Arrow body in one system call without joining them. When the kernel's buffer is full the rest
waits here, and the time until it takes bytes again counts as blocked (paper 002, section 3: a non-blocking send and a
timed wait). Connections are made by the worker with the lower number; both ends prove that they hold the job's key
before a single frame is read, each over the other's fresh nonce, so that nothing recorded can be played back.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections import deque

import pyarrow as pa

from penstock.run.channel.protocol import ChannelStatistics, PeerGone
from penstock.run.wire import Frame, FrameReader

READ_BYTES = 256 * 1024
GATHER_MAX = 64  # buffers in one system call
HANDSHAKE_SECONDS = 10.0
_HELLO = struct.Struct("<8sI32s")  # magic, worker, nonce
_MAGIC = b"penstok1"


class SocketChannel:
    """One end of a connection between two workers."""

    def __init__(self, connection: socket.socket, peer: int, edges: int) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer = peer
        self._socket = connection
        self._reader = FrameReader(edges)
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._blocked_since_ns: int | None = None
        self._blocked_ns = 0
        self._sent = self._received = self._frames = 0

    def send(self, header: bytes, body: pa.Buffer | None = None) -> None:
        """Queue a frame and push out as much as the kernel takes."""
        self._waiting.append(memoryview(header))
        self._waiting_bytes += len(header)
        if body is not None:
            self._waiting.append(memoryview(body).cast("B"))
            self._waiting_bytes += body.size
        self._frames += 1
        if self._blocked_since_ns is None:
            self.flush()

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        while self._waiting:
            try:
                sent = self._socket.sendmsg([self._waiting[i] for i in range(min(GATHER_MAX, len(self._waiting)))])
            except BlockingIOError:
                if self._blocked_since_ns is None:
                    self._blocked_since_ns = time.monotonic_ns()
                return False
            except (ConnectionError, BrokenPipeError) as error:
                raise self._gone(error) from error
            self._unblock()
            self._sent += sent
            self._waiting_bytes -= sent
            self._drop(sent)
        return True

    def receive(self) -> list[Frame]:
        """Frames that have arrived; a large one is read in as few pieces as the kernel allows."""
        try:
            data = self._socket.recv(max(READ_BYTES, min(self._reader.wanted, 16 * READ_BYTES)))
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise self._gone(error) from error
        if not data:
            raise self._gone(None)
        self._received += len(data)
        return self._reader.feed(data)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the kernel to take it."""
        return bool(self._waiting)

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        running = 0 if self._blocked_since_ns is None else time.monotonic_ns() - self._blocked_since_ns
        return ChannelStatistics(
            self._sent, self._received, self._frames, self._waiting_bytes, self._blocked_ns + running
        )

    def end_sending(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        with contextlib.suppress(OSError):  # the peer may have closed first
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        self._waiting.clear()
        self._socket.close()

    def _drop(self, sent: int) -> None:
        """Forget so many bytes from the front of what waits."""
        while sent:
            first = self._waiting[0]
            if len(first) > sent:
                self._waiting[0] = first[sent:]
                return
            sent -= len(first)
            self._waiting.popleft()

    def _unblock(self) -> None:
        if self._blocked_since_ns is not None:
            self._blocked_ns += time.monotonic_ns() - self._blocked_since_ns
            self._blocked_since_ns = None

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""))


def listen(host: str) -> socket.socket:
    """A listening socket on this address only, at a port that the kernel picks."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.bind((host, 0))
    listener.listen(128)
    return listener


def connect(address: tuple[str, int], me: int, peer: int, key: bytes) -> socket.socket:
    """A connection to a worker that has proved to hold the job's key."""
    connection = socket.create_connection(address, timeout=HANDSHAKE_SECONDS)
    try:
        if _handshake(connection, me, key, first=True) != peer:
            msg = f"the process at {address[0]}:{address[1]} is not worker {peer}"
            raise PeerGone(msg)
    except BaseException:
        connection.close()
        raise
    return connection


def accept(listener: socket.socket, me: int, key: bytes) -> tuple[socket.socket, int] | None:
    """The next connection and its worker, or None when whoever knocked does not hold the job's key."""
    connection, _ = listener.accept()
    connection.settimeout(HANDSHAKE_SECONDS)
    try:
        return connection, _handshake(connection, me, key, first=False)
    except (OSError, PeerGone):
        connection.close()
        return None


def _handshake(connection: socket.socket, me: int, key: bytes, *, first: bool) -> int:
    """Exchange nonces, then proofs over both; the number of the worker at the other end."""
    mine = _HELLO.pack(_MAGIC, me, secrets.token_bytes(32))
    connection.sendall(mine)
    theirs = _read_exactly(connection, _HELLO.size)
    magic, peer, _ = _HELLO.unpack(theirs)
    if magic != _MAGIC or theirs == mine:
        msg = "the peer does not speak our protocol"
        raise PeerGone(msg)
    role_mine, role_theirs = (b"connect", b"accept") if first else (b"accept", b"connect")
    connection.sendall(_proof(key, role_mine, mine, theirs))
    if not hmac.compare_digest(_read_exactly(connection, 32), _proof(key, role_theirs, theirs, mine)):
        msg = "the peer does not hold the job's key"
        raise PeerGone(msg)
    return int(peer)


def _proof(key: bytes, role: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.new(key, role + own + other, hashlib.sha256).digest()


def _read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            msg = "the peer closed during the handshake"
            raise PeerGone(msg)
        data += piece
    return data
