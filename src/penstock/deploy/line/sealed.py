"""Sealed lines: how a driver and its workers prove themselves to each other and sign every message, over plain TCP.

    driver -> magic, nonce                                  every caller hears this
    worker -> magic, worker, lane, nonce, proof             48 bytes and a proof, before anything of it is believed
    driver -> proof                                         so a false driver is found out as well
    either -> kind, length, seal of both; body, seal of all of it with its number

Proofs and seals are HMAC-SHA256. Each line derives its keys from both nonces, so nothing can be replayed, moved to
another line or reordered. A body is read after its length has passed the seal and the limit of its kind
(`test_a_body_of_300_megabytes_is_never_read`). Nothing is encrypted unless all of it runs
inside TLS; then the proofs cover both certificates as well. Rejected: Arrow Flight, which reads a message of any size
before it knows the caller (decision 28); and TLS with a shared key, which Python has from 3.13 on.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.run.transport.tls.credentials import Credentials, refusal

KEY_BYTES = 32
LANES = ("talk", "poll", "data", "pace", "keep")
WORDS, RESULTS, METRICS, END = 1, 2, 3, 4  # kinds of message
GREETING = struct.Struct("<8s32s")  # magic, the driver's nonce
_CLAIM = struct.Struct("<8sI4s32s")  # magic, worker, lane, the worker's nonce
_HEAD = struct.Struct("<BI")  # kind, length
_MAGIC = b"penctl01"
_HEAD_SEAL_BYTES = 16
_SEAL_BYTES = 32
OPENING_BYTES = _CLAIM.size + _SEAL_BYTES
_TOGETHER_BYTES = 1 << 16  # smaller messages are one write

Bytes = bytes | bytearray | memoryview


class LineBroken(ConnectionError):
    """The other end has gone, does not hold the key, or does not keep to the protocol."""


class LineEnded(LineBroken):
    """The other end has closed, or has died."""


class Claim(NamedTuple):
    """The worker and lane that a caller claims to be; true only once its proof has been checked."""

    worker: int
    lane: str
    said: bytes  # both greetings, which the proofs are over
    proof: bytes


def derive(key: bytes, *words: object) -> bytes:
    """A key for one purpose; neither `key` nor the key for another purpose can be derived from it."""
    return hmac.new(key, "\0".join(map(str, words)).encode(), hashlib.sha256).digest()


def veiled(secret: bytes, pad: bytes) -> bytes:
    """A secret XORed with a pad that is used for nothing else; the same pad again gives the secret."""
    return bytes(a ^ b for a, b in zip(secret, pad, strict=True))


# -- opening -----------------------------------------------------------------------------------------------------------


def greeting() -> bytes:
    """The driver's first words to every caller."""
    return GREETING.pack(_MAGIC, secrets.token_bytes(32))


def read_claim(greeted: bytes, opening: bytes, binding: bytes = b"") -> Claim | None:
    """The claim in an opening, not proved yet; None where the bytes hold none. `binding`: of the TLS around it."""
    magic, worker, lane, _ = _CLAIM.unpack_from(opening)
    name = lane.decode("ascii", "replace")
    if magic != _MAGIC or name not in LANES:
        return None
    return Claim(worker, name, greeted + opening[: _CLAIM.size] + binding, opening[_CLAIM.size :])


def is_proved(claim: Claim, key: bytes) -> bool:
    """Whether the caller holds this key."""
    return hmac.compare_digest(claim.proof, _proof(key, "worker", claim.said))


def accept_claim(claim: Claim, key: bytes) -> tuple[bytes, bytes]:
    """The driver's own proof, and the key of the line."""
    return _proof(key, "driver", claim.said), _proof(key, "line", claim.said)


def open_line(
    address: tuple[str, int], key: bytes, worker: int, lane: str, seconds: float, credentials: Credentials | None = None
) -> Line:
    """A line to the driver that holds this key; LineBroken for any other process, OSError where none answers.

    With credentials it is encrypted; TlsRefused where the two ends do not accept each other's certificates.
    """
    connection, binding = socket.create_connection(address, timeout=seconds), b""
    try:
        prepare(connection)
        if credentials is not None:
            connection = secured = credentials.call(connection)
            secured.do_handshake()
            binding = credentials.binding(secured)
        greeted = bytes(read_exactly(connection, GREETING.size))
        claim = _CLAIM.pack(_MAGIC, worker, lane.encode(), secrets.token_bytes(32))
        said = greeted + claim + binding
        connection.sendall(claim + _proof(key, "worker", said))
        shown = bytes(read_exactly(connection, _SEAL_BYTES))
        if not hmac.compare_digest(shown, _proof(key, "driver", said)):
            msg = f"the process at {address[0]}:{address[1]} is not this job's driver: it does not hold the job's key"
            raise LineBroken(msg)
        return Line(connection, _proof(key, "line", said), at_driver=False)
    except ssl.SSLError as error:
        connection.close()
        raise refusal(error) from error
    except BaseException:
        connection.close()
        raise


def _proof(key: bytes, role: str, said: bytes) -> bytes:
    return hmac.new(key, role.encode() + b"\0" + said, hashlib.sha256).digest()


def prepare(connection: socket.socket) -> None:
    """Have small messages sent at once, and a vanished machine noticed by the kernel within two minutes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


# -- messages ----------------------------------------------------------------------------------------------------------


class Sealer:
    """Seals the messages of one direction; each has a number, so none can be left out, doubled or moved."""

    def __init__(self, key: bytes) -> None:
        self._key, self._number = key, 0

    def head(self, kind: int, length: int) -> bytes:
        """What goes before a body of this length."""
        plain = _HEAD.pack(kind, length)
        return plain + self._seal(b"head", plain)[:_HEAD_SEAL_BYTES]

    def length(self, head: bytes) -> tuple[int, int]:
        """The kind and the length that a head tells; LineBroken where its seal does not hold."""
        plain = head[: _HEAD.size]
        if not hmac.compare_digest(head[_HEAD.size :], self._seal(b"head", plain)[:_HEAD_SEAL_BYTES]):
            msg = "a message's head does not carry the seal of this line"
            raise LineBroken(msg)
        kind, length = _HEAD.unpack(plain)
        return kind, length

    def body(self, head: bytes, *parts: Bytes) -> bytes:
        """The seal of a whole message; the next has the next number."""
        seal = self._seal(b"body", head, *parts)
        self._number += 1
        return seal

    def _seal(self, what: bytes, *parts: Bytes) -> bytes:
        made = hmac.new(self._key, what + self._number.to_bytes(8, "little"), hashlib.sha256)
        for part in parts:
            made.update(part)
        return made.digest()


class Line:
    """A connection whose two ends have proved themselves; one thread sends and one receives, or one does both."""

    def __init__(self, connection: socket.socket, key: bytes, *, at_driver: bool) -> None:
        self.connection, self.key = connection, key
        self._spares_rows = isinstance(connection, ssl.SSLSocket) or _is_near(connection)
        down, up = Sealer(derive(key, "down")), Sealer(derive(key, "up"))
        self._out, self._in = (down, up) if at_driver else (up, down)

    def send(self, kind: int, *parts: Bytes) -> None:
        """One message; waits for room as long as the connection's timeout says."""
        head = self._out.head(kind, sum(len(part) for part in parts))
        pieces = [head, *parts, self._out.body(head, *self._sealed(kind, parts))]
        if sum(map(len, pieces)) <= _TOGETHER_BYTES:
            pieces = [b"".join(pieces)]
        for piece in pieces:
            self.connection.sendall(piece)

    def receive(self, limits: Mapping[int, int], seconds: float | None = None) -> tuple[int, bytearray]:
        """The next message, of one of these kinds and not longer than its limit.

        With `seconds`, the message may begin at any time and must then arrive within that time; without, the
        connection's own timeout counts.
        """
        if seconds is not None:
            self.connection.settimeout(None)
        first = read_exactly(self.connection, 1)
        if seconds is not None:
            self.connection.settimeout(seconds)
        head = bytes(first + read_exactly(self.connection, _HEAD.size + _HEAD_SEAL_BYTES - 1))
        kind, length = self._in.length(head)
        if kind not in limits or length > limits[kind]:
            msg = f"a message of kind {kind} and {length} bytes; the limits are {dict(limits)}"
            raise LineBroken(msg)
        body = read_exactly(self.connection, length)
        seal = bytes(read_exactly(self.connection, _SEAL_BYTES))
        if not hmac.compare_digest(seal, self._in.body(head, *self._sealed(kind, (body,)))):
            msg = f"a message of kind {kind} and {length} bytes does not carry the seal of this line"
            raise LineBroken(msg)
        return kind, body

    def _sealed(self, kind: int, parts: Sequence[Bytes]) -> Sequence[Bytes]:
        """The part of a body that its seal covers: not rows on loopback, where root alone could change them, or in TLS.

        Sealing rows would take twice the time of everything else that is done with them here.
        """
        return () if self._spares_rows and kind != WORDS else parts

    def break_off(self) -> None:
        """End the connection for both ends, also for threads that wait on it; call `close` afterwards."""
        try:
            # Not SSLSocket's own, which first turns the connection into a plain one under the threads that use it.
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)
        except OSError:  # the connection has ended already
            return

    def close(self) -> None:
        """Give the connection up."""
        self.connection.close()


def _is_near(connection: socket.socket) -> bool:
    """Whether the connection is over loopback; both ends find the same answer."""
    if connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return False
    ends = (connection.getsockname()[0], connection.getpeername()[0])
    return all(ipaddress.ip_address(str(end).partition("%")[0]).is_loopback for end in ends)


def read_exactly(connection: socket.socket, count: int) -> bytearray:
    """The next `count` bytes; LineBroken where the connection ends before, TimeoutError where they take too long."""
    data = bytearray(count)
    room = memoryview(data)
    while room:
        got = connection.recv_into(room)
        if not got:
            msg = "the other end closed the line"
            raise LineEnded(msg)
        room = room[got:]
    return data
