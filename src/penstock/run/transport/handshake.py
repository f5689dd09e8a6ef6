"""Handshake: how two workers prove to each other that they hold the job's key; bytes in, bytes out.

    >>> one, other = Handshake(0, b"key", first=True), Handshake(1, b"key", first=False)
    >>> to_one, to_other = other.receive(one.opening), one.receive(other.opening)
    >>> _ = one.receive(to_one), one.receive(other.receive(to_other))
    >>> one.peer, other.peer
    (1, 0)

Each end sends its number and a fresh nonce, then a proof over both openings and its own role: no recorded or reflected
bytes are a proof (`test_our_own_words_sent_back_are_refused`). An opening also says whether its sender has an inbox.
In the end the called worker welcomes the caller, which then knows that it was let in and not turned away.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

from penstock.run.transport.protocol import PeerGone

OPENING = struct.Struct("<8sIB32s")  # magic, worker, whether it shares memory, nonce
PROOF_BYTES = 32
MAGIC = b"penstok3"
WELCOME = b"w"
ROLES = (b"connect", b"accept")


class NotOurs(PeerGone):
    """The process at the other end is no worker of this job."""


class Handshake:
    """One end's part; `first` is the one that called."""

    def __init__(
        self,
        me: int,
        key: bytes,
        *,
        first: bool,
        shares_memory: bool = False,
        deadline: float = float("inf"),
        nonce: bytes | None = None,
    ) -> None:
        self.opening = OPENING.pack(MAGIC, me, shares_memory, nonce or secrets.token_bytes(32))
        self.shares_memory = shares_memory
        self.deadline = deadline  # of a monotonic clock; the caller of this object gives up then
        self.peer: int | None = None  # when it has been proved
        self.peer_shares_memory = False
        self._key = key
        self._first = first
        self._roles = ROLES if first else ROLES[::-1]  # ours, theirs
        self._theirs = self._unread = self._binding = b""
        self._has_proved = False  # the other end

    def bind(self, binding: bytes) -> None:
        """Have the proofs cover what both ends know of the connection, as its certificates; before any is made."""
        self._binding = binding

    @property
    def wanted(self) -> int:
        """Bytes that the next step needs, and not one more: what follows them belongs to others. 0 at the end."""
        if self.peer is not None:
            return 0
        due = len(WELCOME) if self._has_proved else PROOF_BYTES if self._theirs else OPENING.size
        return due - len(self._unread)

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come yet."""
        return not self._theirs and not self._unread

    @property
    def has_heard(self) -> bool:
        """Whether the other end's opening has come."""
        return bool(self._theirs)

    def receive(self, data: bytes) -> bytes:
        """Take at most as many bytes as are wanted; the bytes to answer. NotOurs where the other end is a stranger."""
        self._unread += data
        if self.wanted:
            return b""
        taken, self._unread = self._unread, b""
        if self._has_proved:
            return self._welcomed(taken)
        return self._proved(taken) if self._theirs else self._opened(taken)

    def _opened(self, theirs: bytes) -> bytes:
        if not theirs.startswith(MAGIC) or theirs == self.opening:
            msg = "the process at the other end does not speak our protocol"
            raise NotOurs(msg)
        self._theirs = theirs
        return self._proof(self._roles[0], self.opening, theirs)

    def _proved(self, proof: bytes) -> bytes:
        if not hmac.compare_digest(proof, self._proof(self._roles[1], self._theirs, self.opening)):
            msg = "the process at the other end does not hold the job's key"
            raise NotOurs(msg)
        self._has_proved = True
        return b"" if self._first else self._end(WELCOME)

    def _welcomed(self, word: bytes) -> bytes:
        if word != WELCOME:
            msg = "the process at the other end does not speak our protocol"
            raise NotOurs(msg)
        return self._end(b"")

    def _end(self, last_word: bytes) -> bytes:
        _, self.peer, shares, _ = OPENING.unpack(self._theirs)
        self.peer_shares_memory = bool(shares)
        return last_word

    def _proof(self, role: bytes, own: bytes, other: bytes) -> bytes:
        return hmac.digest(self._key, role + own + other + self._binding, hashlib.sha256)
