"""Segments from hand to hand: how a worker gives its inbox to the others of its machine, and how large an inbox is.

A segment has no name. Its descriptors travel over an abstract Unix socket whose address follows from the job's key, to
a process of the same user that has proved to hold that key. So nothing is left behind in a file system. Rejected: names
under /dev/shm, which outlive killed processes, and which Python's resource tracker unlinks under living ones. The
connection stays open: over it come the larger rings of an inbox that grows, and its end says that the process has gone.

Sizes follow the paper's finding (003, section VI) that a ring should hold 50 to 100 messages; more is footprint in the
cache and nothing else (docs/decisions/0014-ring.md). Here are the first sizes; growth.py has those that messages need.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Iterable

from penstock._core import NoSharedMemory, RingRefused, RingSegment
from penstock.run.transport.protocol import PeerGone

INBOX_BYTES_MAX = 4 * 1024 * 1024  # beyond, a ring does not stay in the cache
MESSAGES_HELD = 64
CAPACITY_MIN = 256 * 1024
CAPACITY_MAX = 32 * 1024 * 1024
BACKLOG = 1024  # a hundred workers may call one at the same moment, beside strangers
_OFFER = struct.Struct("<8sQQ")  # magic, epoch, capacity
_MAGIC = b"pnsoffer"
_CREDENTIALS = struct.Struct("3i")  # process, user, group


def capacity_for(message_bytes: float, limit: int = CAPACITY_MAX, messages: int = MESSAGES_HELD) -> int:
    """The bytes of a ring for messages of this size: the power of two that holds `messages`, within the limit."""
    wanted = max(CAPACITY_MIN, int(message_bytes * messages))
    capacity = 1 << (wanted - 1).bit_length()
    ceiling = 1 << (min(limit, CAPACITY_MAX).bit_length() - 1)
    return min(capacity, ceiling)


def inbox_bytes(windows: Iterable[int]) -> int:
    """The bytes of a worker's inbox, for edges with these windows from workers of its machine.

    Twice what their credits allow, for a ring frees in order and its end may be lost to a record that does not fit;
    never more than stays in the cache. Where the credits allow more, senders wait for space with what they have
    prepared, which the same credits bound.
    """
    wanted = max(CAPACITY_MIN, min(INBOX_BYTES_MAX, 2 * sum(windows)))
    return 1 << (wanted - 1).bit_length()


def local_address(key: bytes, worker: int) -> bytes:
    """The address where a worker waits for the others of its node; it follows from the job's key."""
    return b"\0penstock-" + hmac.new(key, b"inbox %d" % worker, hashlib.sha256).hexdigest()[:32].encode()


def listen_locally(key: bytes, worker: int) -> socket.socket:
    """A listening socket without a name in any file system."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.bind(local_address(key, worker))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def offer(connection: socket.socket, segment: RingSegment) -> None:
    """Give a segment's descriptors to the process at the other end."""
    message = _OFFER.pack(_MAGIC, segment.epoch, segment.capacity)
    socket.send_fds(connection, [message], [segment.fileno(), segment.wake_fileno()])


def take(connection: socket.socket, epoch: int | None) -> RingSegment:
    """The segment that the other end offers, checked; one of another epoch than is due is refused. None takes any.

    BlockingIOError where none has been offered yet.
    """
    data, descriptors, flags, _ = socket.recv_fds(connection, _OFFER.size, 2, socket.MSG_CMSG_CLOEXEC)
    try:
        if len(data) != _OFFER.size:
            msg = f"worker's offer of a segment broke off after {len(data)} bytes"
            raise PeerGone(msg)
        if len(descriptors) != 2 or flags & socket.MSG_CTRUNC:
            msg = f"{len(descriptors)} of a segment's 2 descriptors could be taken; raise the limit on open files"
            raise NoSharedMemory(msg)
        magic, offered, _ = _OFFER.unpack(data)
        if magic != _MAGIC:
            msg = "the peer offers something that is no segment; run the same build everywhere"
            raise RingRefused(msg)
        if epoch is not None and offered != epoch:
            msg = f"a segment of epoch {offered} is offered where {epoch} is due: one of the two workers was replaced"
            raise RingRefused(msg)
        return RingSegment.attach(descriptors[0], descriptors[1], offered)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def require_own_user(connection: socket.socket) -> None:
    """Refuse a process of another user at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(credentials)
    if user != os.geteuid():
        msg = f"a process of user {user} is at the other end; this one belongs to user {os.geteuid()}"
        raise RingRefused(msg)
