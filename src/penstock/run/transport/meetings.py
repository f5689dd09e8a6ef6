"""Meetings: how a worker comes to its ports. All peers are met at the same time, in the loop; of two, the lower calls.

A call becomes a connection, the connection a proved peer, and a peer of this machine perhaps a ring. Nothing here
waits: the loop calls back, and `expire` names peers whose time is over and what is known of the reason. Rejected:
calling peers one after the other and hearing one caller at a time, where a silent stranger holds up the start.
"""

from __future__ import annotations

import errno
import resource
import select
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from penstock._core import RingRefused
from penstock.run.transport.door import NO_DESCRIPTOR, Door
from penstock.run.transport.handshake import Handshake, NotOurs
from penstock.run.transport.host import WorkerPlace
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.introduction import Introduction
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.segment import require_own_user
from penstock.run.transport.sharing import Sharing
from penstock.run.transport.tls.credentials import Credentials, TlsRefused

CALLS_MAX = 8  # of one peer, when its connection breaks before it has proved itself
CALL_PAUSE_SECONDS = 0.05  # before the second call, and twice as long before each one after it: a crowd has to pass
EARLY_MAX = 64  # peers that have proved the key and that are not expected yet

Met = Callable[[int, socket.socket, RingChannel | None], None]  # worker, its connection, its ring instead of that


class Meetings:
    """The peers that worker `me` has not met yet, and how far each of them is."""

    def __init__(
        self,
        loop: Loop,
        me: int,
        key: bytes,
        listener: socket.socket,
        met: Met,
        tell: Callable[[str], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.key = key
        self._loop, self._me, self._met, self._tell = loop, me, met, tell
        self._credentials = credentials  # where connections between machines are encrypted
        greet = partial(self._handshake, first=False)
        self._door = Door(loop, listener, greet, self._admit, self._exhausted, credentials)
        self._local_door: Door | None = None
        self._inbox: Inbox | None = None
        self._places: dict[int, WorkerPlace] = {}  # of the peers that are not met yet
        self._deadlines: dict[int, float] = {}
        self._seconds = 0.0  # that a peer is given
        self._near: set[int] = set()
        self._calls: dict[int, Introduction] = {}
        self._broken: Counter[int] = Counter()  # calls that broke off, by peer
        self._call_again: dict[int, float] = {}  # peer -> when
        self._expected: set[int] = set()
        self._early: dict[int, tuple[socket.socket, Handshake]] = {}
        self._sharing: dict[int, Sharing] = {}

    def share(self, inbox: Inbox, local_listener: socket.socket) -> None:
        """Offer this inbox to peers of this machine from now on, and let them call here."""
        self._inbox = inbox
        self._local_door = Door(
            self._loop, local_listener, partial(self._handshake, first=False), self._admit_locally, self._cannot_admit
        )

    def begin(self, place: WorkerPlace, now: float, seconds: float, *, near: bool) -> None:
        """Meet this worker within `seconds`; `near` where it may share memory with this one."""
        peer = place.index
        if peer in self._deadlines:
            self._give_up(peer)  # nothing has come of it yet
        self._places[peer], self._deadlines[peer], self._seconds = place, now + seconds, seconds
        if near:
            self._near.add(peer)
        if self._me < peer:
            self._call(place, now + seconds)
        elif (early := self._early.pop(peer, None)) is not None and not _has_hung_up(early[0]):
            self._proved(peer, *early)
        else:
            if early is not None:
                early[0].close()  # it called for something of which nothing came
            self._expected.add(peer)
            self._door.open(len(self._expected))

    @property
    def pending(self) -> bool:
        """Whether a peer is to be met, or has come too early."""
        return bool(self._deadlines or self._early)

    def is_meeting(self, peer: int) -> bool:
        """Whether this peer is still to be met."""
        return peer in self._deadlines

    def forget(self, peers: Collection[int]) -> None:
        """Nothing comes of meeting these, nor of what others have called early for: as if none had begun."""
        for peer in peers:
            self._give_up(peer)
        for connection, _ in self._early.values():
            connection.close()
        self._early.clear()

    # -- a connection and its other end ------------------------------------------------------------------------------

    def _handshake(self, deadline: float, *, first: bool) -> Handshake:
        shares = self._inbox is not None and self._local_door is not None
        return Handshake(self._me, self.key, first=first, shares_memory=shares, deadline=deadline)

    def _call(self, place: WorkerPlace, deadline: float) -> None:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        try:
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        except OSError as error:
            self._exhausted(error)
            raise
        handshake = self._handshake(deadline, first=True)
        credentials = None if place.index in self._near else self._credentials
        known, failed = self._reached(place), self._not_reached(place)
        call = Introduction(self._loop, connection, handshake, known, failed, credentials)
        self._calls[place.index] = call
        call.call((place.host, place.port))

    def _reached(self, place: WorkerPlace) -> Callable[[Introduction], None]:
        def known(call: Introduction) -> None:
            del self._calls[place.index]
            if call.handshake.peer != place.index:
                self._forget(place.index)
                call.connection.close()
                msg = f"the process at {_address(place)} is worker {call.handshake.peer}, not worker {place.index}"
                raise PeerGone(msg, place.index)
            self._proved(place.index, call.connection, call.handshake)

        return known

    def _not_reached(self, place: WorkerPlace) -> Callable[[Introduction, OSError], None]:
        def failed(call: Introduction, error: OSError) -> None:
            self._broken[place.index] += call.has_begun
            if call.has_begun and not isinstance(error, NotOurs | TlsRefused) and self._broken[place.index] < CALLS_MAX:
                del self._calls[place.index]  # it may have taken us for a stranger among many, or no worker is there
                pause = CALL_PAUSE_SECONDS * 2 ** (self._broken[place.index] - 1)
                self._call_again[place.index] = time.monotonic() + pause
                return
            self._forget(place.index)
            msg = f"worker {place.index} was lost while both connected at {_address(place)}: {error}"
            raise PeerGone(msg, place.index) from error

        return failed

    def _admit(self, connection: socket.socket, handshake: Handshake) -> None:
        peer = handshake.peer
        if peer in self._expected:
            self._expected.discard(peer)
            self._proved(peer, connection, handshake)
        elif peer is None or (peer not in self._early and len(self._early) >= EARLY_MAX):
            connection.close()
        else:
            if peer in self._early:
                self._early[peer][0].close()  # who calls again has given up its first call
            self._early[peer] = connection, handshake

    def _exhausted(self, error: OSError) -> None:
        """Say what is missing and what to do: the system says nothing but `too many open files`."""
        if error.errno in NO_DESCRIPTOR:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            msg = f"no descriptor is left for a connection to another worker; raise the limit on open files ({limit})"
            raise OSError(errno.EMFILE, msg) from error

    # -- a proved peer -----------------------------------------------------------------------------------------------

    def _proved(self, peer: int, connection: socket.socket, handshake: Handshake) -> None:
        if self._credentials is not None and peer not in self._near and not isinstance(connection, ssl.SSLSocket):
            connection.close()
            self._forget(peer)
            msg = f"worker {peer} called without TLS, which this job has between machines"
            raise PeerGone(msg, peer)
        if peer not in self._near or self._inbox is None:
            self._settled(peer, connection, None)
        elif not (handshake.shares_memory and handshake.peer_shares_memory):
            self._tell(f"worker {peer} of this machine does without shared memory")
            self._settled(peer, connection, None)
        else:
            sharing = Sharing(self._loop, self._inbox, peer, connection, self._settled, self._lose, self._tell)
            self._sharing[peer] = sharing
            if self._me < peer:
                now = time.monotonic()  # half of the time that is left, so that there is some for a socket instead
                sharing.call(self.key, self._handshake(now + (self._deadlines[peer] - now) / 2, first=True))
            elif self._local_door is not None:
                self._local_door.open(len(self._sharing))

    def _admit_locally(self, connection: socket.socket, handshake: Handshake) -> None:
        try:
            require_own_user(connection)
        except (RingRefused, OSError):
            connection.close()
            return
        sharing = None if handshake.peer is None else self._sharing.get(handshake.peer)
        if sharing is None:
            connection.close()
        else:
            sharing.meet(connection)

    def _cannot_admit(self, error: OSError) -> None:
        """No descriptor is left for local connections: peers that wait there are told, and sockets are used."""
        if self._local_door is not None:
            self._local_door.close()
            self._local_door = None
        for peer, sharing in list(self._sharing.items()):
            if peer < self._me:
                sharing.refuse(f"worker {peer} of this machine cannot be let in at the local address: {error}")

    def _settled(self, peer: int, connection: socket.socket, ring: RingChannel | None) -> None:
        self._forget(peer)
        self._met(peer, connection, ring)

    def _lose(self, departure: PeerGone) -> None:
        if departure.worker is not None:
            self._forget(departure.worker)
        raise departure

    def _forget(self, peer: int) -> None:
        for known in (self._places, self._deadlines, self._sharing, self._calls, self._call_again, self._broken):
            known.pop(peer, None)
        self._near.discard(peer)
        self._expected.discard(peer)
        if not self._expected:
            self._door.shut()
        if self._local_door is not None and not any(other < self._me for other in self._sharing):
            self._local_door.shut()

    # -- time --------------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Turn strangers away whose time is over; TimeoutError or PeerGone where a peer's time is over."""
        self._door.expire(now)
        if self._local_door is not None:
            self._local_door.expire(now)
        for sharing in list(self._sharing.values()):
            sharing.expire(now)
        for peer in [peer for peer, at in self._call_again.items() if at <= now]:
            del self._call_again[peer]
            self._call(self._places[peer], self._deadlines[peer])
        for peer in [peer for peer, (_, handshake) in self._early.items() if handshake.deadline <= now]:
            self._early.pop(peer)[0].close()
        late = sorted(peer for peer, deadline in self._deadlines.items() if deadline <= now)
        if late:
            error = self._lateness(late)
            for peer in late:
                self._give_up(peer)
            raise error

    def _lateness(self, late: list[int]) -> OSError:
        """The peers that have not come, and what is known of the reasons."""
        peer = next((peer for peer in late if peer not in self._expected), None)
        if peer is None:
            strangers = self._door.turned_away
            beside = f"; {strangers} others knocked and did not hold the job's key" if strangers else ""
            msg = f"worker {self._me} waited {self._seconds:g} s in vain for workers {late} to connect{beside}"
            return PeerGone(msg, late[0])
        place, call = self._places[peer], self._calls.get(peer)
        where = f"at {_address(place)} within {self._seconds:g} s"
        if call is not None and not call.has_begun:
            msg = (
                f"worker {peer} could not be reached {where}: its machine is down, or something between the two lets "
                "no connection through; let workers reach each other at all ports"
            )
        else:
            msg = (
                f"worker {peer} did not answer {where} while both connected; it is stopped, or in a constructor of its "
                "tasks: make that quicker, or do its work in `open`"
            )
        return TimeoutError(msg)

    def _give_up(self, peer: int) -> None:
        for way in (self._calls.get(peer), self._sharing.get(peer)):
            if way is not None:
                way.close()
        self._forget(peer)

    def close(self) -> None:
        """Give every meeting up; the listener is its owner's."""
        for peer in list(self._deadlines):
            self._give_up(peer)
        self._door.shut()
        if self._local_door is not None:
            self._local_door.close()
        for connection, _ in self._early.values():
            connection.close()


def _has_hung_up(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


def _address(place: WorkerPlace) -> str:
    return f"{place.host}:{place.port}"
