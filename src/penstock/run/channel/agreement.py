"""Whether two workers of one machine speak through rings: both must be able to, or both use the socket between them.

The workers have met over TCP and proved the job's key. What follows are single bytes on that connection, so that
neither end can be left with another belief than its peer:

    the called   -> "r": I have an inbox and wait at my local address, or "s": sockets
    the caller   -> "s": sockets, or a call at the local address, where both inboxes change hands
    both         -> "y": I have your inbox and my place in it, or "n": sockets after all

Memory that cannot be had, a limit on descriptors, or a container's wall then cost speed and not the job. A connection
that breaks is no such obstacle: whoever closes the local one after "y", or leaves this one too, has died.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

from penstock._core import NoSharedMemory, RingFault, RingRefused
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.protocol import PeerGone
from penstock.run.channel.ring import RingChannel
from penstock.run.channel.segment import accept_locally, connect_locally
from penstock.run.channel.socket import HANDSHAKE_SECONDS, read_exactly

RING, SOCKET, YES, NO = b"r", b"s", b"y", b"n"
KNOCKS_MAX = 100  # of strangers at the local address
LEAVING_SECONDS = 1.0  # between the first and the last connection of a process that has died, at most

Obstacle = Callable[[str], None]  # told why there is no ring


def call(connection: socket.socket, inbox: Inbox | None, key: bytes, peer: int, tell: Obstacle) -> RingChannel | None:
    """The caller's part, over a connection that blocks; None where both use sockets."""
    if read_exactly(connection, 1) == SOCKET or inbox is None:
        connection.sendall(SOCKET)
        return None
    try:
        local = connect_locally(key, inbox.worker, peer)
    except (RingRefused, OSError) as error:
        if isinstance(error, ConnectionError) and _has_left(connection):
            msg = f"worker {peer} has left its local address: {error}"
            raise PeerGone(msg, peer) from error
        tell(f"worker {peer} of this machine cannot be reached at its local address: {error}")
        connection.sendall(SOCKET)
        return None
    return _exchange(connection, local, inbox, peer, tell)


def answer(
    connection: socket.socket,
    local_listener: socket.socket | None,
    inbox: Inbox | None,
    key: bytes,
    peer: int,
    tell: Obstacle,
) -> RingChannel | None:
    """The part of who was called, over a connection that blocks; None where both use sockets."""
    if inbox is None or local_listener is None:
        connection.sendall(SOCKET)
        read_exactly(connection, 1)
        return None
    connection.sendall(RING)
    poll = select.poll()
    for door in (connection, local_listener):
        poll.register(door.fileno(), select.POLLIN)
    for _ in range(KNOCKS_MAX):
        ready = dict(poll.poll(HANDSHAKE_SECONDS * 1000))
        if connection.fileno() in ready:
            read_exactly(connection, 1)  # raises where the caller has gone
            tell(f"worker {peer} of this machine does without shared memory")
            return None
        try:
            accepted = accept_locally(local_listener, inbox.worker, key) if ready else None
        except OSError as error:  # no descriptor left; the caller gives up waiting at the local address, and says so
            tell(f"worker {peer} of this machine cannot be let in at the local address: {error}")
            connection.settimeout(2 * HANDSHAKE_SECONDS)
            read_exactly(connection, 1)
            return None
        if accepted is not None and accepted[1] == peer:
            return _exchange(connection, accepted[0], inbox, peer, tell)
        if accepted is not None:
            accepted[0].close()
        if not ready:
            break
    msg = f"worker {peer} did not call at the local address within {HANDSHAKE_SECONDS:g} s"
    raise PeerGone(msg, peer)


def _has_left(connection: socket.socket) -> bool:
    """Whether a worker whose local connection broke is dead: then this one ends as well, within a moment.

    One that lives says nothing here before it has been called; it may have given up a handshake that took too long.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLRDHUP)
    return bool(poll.poll(LEAVING_SECONDS * 1000))


def _exchange(
    connection: socket.socket, local: socket.socket, inbox: Inbox, peer: int, tell: Obstacle
) -> RingChannel | None:
    channel, broken = None, None
    try:
        channel = inbox.connect(local, peer)
    except (RingRefused, RingFault, NoSharedMemory, OSError) as error:
        local.close()
        if isinstance(error, ConnectionError):
            broken = error
        else:
            tell(f"worker {peer} of this machine and this one cannot share memory: {error}")
    try:
        connection.sendall(NO if channel is None else YES)
        agreed = read_exactly(connection, 1) == YES
    except BaseException:
        _close(channel)
        raise
    if broken is not None and agreed:
        msg = f"worker {peer} agreed to share memory and has gone: {broken}"
        raise PeerGone(msg, peer) from broken
    if not agreed and (channel is not None or broken is not None):
        tell(f"worker {peer} of this machine cannot share memory")
    if agreed and channel is not None:
        return channel
    _close(channel)
    return None


def _close(channel: RingChannel | None) -> None:
    if channel is not None:
        with contextlib.suppress(OSError):
            channel.close()
