"""Links: one worker's connections to the others, and the one place where it waits.

Which edge goes to which worker is data; channels, descriptors and epoll stay in here. Workers that can share memory use
rings, others sockets; which two can is data too (WorkerPlace.machine). A ring's eventfd, the connections over which
larger rings come and whose end says that a peer has died, and sockets are descriptors of one epoll.

A peer that leaves while an edge between us has not ended has died, and that is PeerGone; one that leaves afterwards has
said goodbye.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock._core import NoSharedMemory, PreparedImage, RingRefused, RingSegment, epoll_wait_ns
from penstock.errors import InvalidInput
from penstock.run.channel import agreement
from penstock.run.channel.growth import GrowthLimits
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.protocol import Channel, ChannelStatistics, PeerGone
from penstock.run.channel.ring import RingChannel
from penstock.run.channel.segment import listen_locally
from penstock.run.channel.socket import SocketChannel, accept, connect
from penstock.run.wire import Frame, Kind

CONNECT_SECONDS = 30.0
KNOCK_SECONDS = 1.0
PRODUCERS_MIN = 64  # places in an inbox
LOOK_ANYWAY_SECONDS = 0.05  # from one look into the ring to the next, at most

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where a worker runs and listens; workers of the same `machine` can share memory, those without one cannot."""

    index: int
    node: str
    host: str
    port: int
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Transport:
    """How workers of one machine speak: `auto` (rings where there is memory), `ring` (or fail), or `socket`."""

    kind: str = "auto"
    inbox_bytes: int = 1 << 20  # to begin with
    growth: GrowthLimits = field(default_factory=GrowthLimits)


class Links:
    """Connections of worker `me`; edges are job-wide numbers here."""

    def __init__(
        self,
        me: int,
        edges: int,
        sends_to: Mapping[int, int],
        hears_from: Mapping[int, int],
        transport: Transport | None = None,
    ) -> None:
        self._me = me
        self._edges = edges
        self._transport = transport or Transport()
        self._peer_of = {**sends_to, **hears_from}  # edge -> worker at its other end
        self._ends_due = Counter(hears_from.values())  # worker -> edges from it that have not ended
        self._ends_owed = Counter(sends_to.values())  # worker -> edges to it that have not ended
        self._channels: dict[int, Channel] = {}  # by worker
        self._by_descriptor: dict[int, SocketChannel] = {}
        self._gone: set[int] = set()
        self._epoll = select.epoll()
        self._epoll_fileno = self._epoll.fileno()
        self._watched: set[int] = set()  # descriptors that the worker itself wants to hear of
        self._looked_at = 0.0
        self._inbox: Inbox | None = None
        self._rings: dict[int, RingChannel] = {}  # by worker
        self._alive: dict[
            int, RingChannel
        ] = {}  # by the connection over which the peer's rings come, until it has died
        self._dead: set[int] = set()  # workers whose connection has ended
        self.notes: list[str] = []  # why workers of one machine do not share memory

    # -- beginning ---------------------------------------------------------------------------------------------------

    def open(
        self,
        listener: socket.socket,
        workers: Sequence[WorkerPlace],
        key: bytes,
        listen: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect to every worker that shares an edge with this one; of two, the lower number calls.

        Who waits to be called calls `listen` whenever a watched descriptor is readable.
        """
        peers = set(self._peer_of.values())
        near = self._near(peers, workers)
        local_listener = self._make_inbox(len(near), key) if near else None
        try:
            for peer in sorted(p for p in peers if p > self._me):
                place = workers[peer]
                with _meeting(peer), contextlib.ExitStack() as undo:
                    connection = connect((place.host, place.port), self._me, peer, key, CONNECT_SECONDS)
                    undo.callback(connection.close)
                    ring = agreement.call(connection, self._inbox, key, peer, self._note) if peer in near else None
                    undo.pop_all()
                self._add(peer, connection, ring, near)
            expected = {p for p in peers if p < self._me}
            deadline = time.monotonic() + CONNECT_SECONDS
            while expected:
                self._await_knock(listener, deadline, expected, listen)
                self._answer(listener, expected, near, local_listener, key)
        finally:
            if local_listener is not None:
                local_listener.close()
        if self._inbox is not None:
            self._epoll.register(self._inbox.wake_fileno(), select.EPOLLIN)

    def _near(self, peers: set[int], workers: Sequence[WorkerPlace]) -> set[int]:
        """The peers that may share memory with this worker."""
        machine = workers[self._me].machine
        if self._transport.kind == "socket" or not machine:
            return set()
        return {peer for peer in peers if workers[peer].machine == machine}

    def _make_inbox(self, peers: int, key: bytes) -> socket.socket | None:
        """Our inbox, and where others of this machine can ask for it; None where there cannot be one."""
        listener = None
        try:
            listener = listen_locally(key, self._me)
            segment = RingSegment(self._transport.inbox_bytes, producers=max(PRODUCERS_MIN, peers))
            self._inbox = Inbox(segment, self._me, self._edges, self._transport.growth)
        except (NoSharedMemory, RingRefused, OSError) as error:
            if listener is not None:
                listener.close()
            self._note(f"worker {self._me} has no shared memory: {error}")
            return None
        return listener

    def _await_knock(
        self, listener: socket.socket, deadline: float, expected: set[int], listen: Callable[[], None]
    ) -> None:
        """Return when somebody knocks; PeerGone when nobody has in time."""
        poll = select.poll()
        for descriptor in (listener.fileno(), *self._watched):
            poll.register(descriptor, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            ready = dict(poll.poll(max(0.0, left) * 1000))
            if listener.fileno() in ready:
                return
            if ready:
                listen()
            if left <= 0:
                msg = (
                    f"worker {self._me} waited {CONNECT_SECONDS:g} s in vain for workers {sorted(expected)} to connect"
                )
                raise PeerGone(msg, min(expected))

    def _answer(
        self,
        listener: socket.socket,
        expected: set[int],
        near: set[int],
        local_listener: socket.socket | None,
        key: bytes,
    ) -> None:
        """Let in who knocks, if it is one that we expect."""
        listener.settimeout(KNOCK_SECONDS)
        accepted = None
        with contextlib.suppress(TimeoutError):  # whoever knocked has gone again
            accepted = accept(listener, self._me, key)
        if accepted is None:
            return
        connection, peer = accepted
        if peer not in expected:
            connection.close()
            return
        expected.discard(peer)
        ring = None
        if peer in near:
            with _meeting(peer), contextlib.ExitStack() as undo:
                undo.callback(connection.close)
                ring = agreement.answer(connection, local_listener, self._inbox, key, peer, self._note)
                undo.pop_all()
        self._add(peer, connection, ring, near)

    def _add(self, peer: int, connection: socket.socket, ring: RingChannel | None, near: set[int]) -> None:
        if ring is not None:
            connection.close()
            self._channels[peer] = self._rings[peer] = ring
            self._alive[ring.connection_fileno()] = ring
            self._epoll.register(ring.connection_fileno(), select.EPOLLIN | select.EPOLLRDHUP)
            return
        if self._transport.kind == "ring" and peer in near:
            connection.close()
            why = self.notes[-1] if self.notes else "the peer uses sockets"
            msg = f"transport 'ring' was asked for, but {why}; give transport 'auto', which uses sockets then"
            raise InvalidInput(msg)
        channel = SocketChannel(connection, peer, self._edges)
        self._channels[peer] = channel
        self._by_descriptor[channel.fileno()] = channel
        self._epoll.register(channel.fileno(), select.EPOLLIN)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        log.warning("%s; sockets are used instead", text)

    def watch(self, descriptor: int) -> None:
        """Wake `wait` also when this descriptor is readable."""
        self._watched.add(descriptor)
        self._epoll.register(descriptor, select.EPOLLIN)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Send rows along an edge; how many bytes the receiver will count against its window."""
        channel = self._channels[self._peer_of[edge]]
        waited = channel.wants_write
        size = channel.send_batch(edge, batch, origin_ns)
        self._watch_writes(channel, waited)
        return size

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Send rows whose image has been prepared; how many bytes the receiver will count against its window."""
        channel = self._channels[self._peer_of[edge]]
        waited = channel.wants_write
        size = channel.send_image(edge, image, origin_ns)
        self._watch_writes(channel, waited)
        return size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Send a watermark, an end or a credit along an edge."""
        channel = self._channels[self._peer_of[edge]]
        if channel.peer in self._gone:
            return  # only credits are left to send to a worker that has said goodbye
        waited = channel.wants_write
        channel.send_mark(kind, edge, value)
        if kind == Kind.END:
            self._ends_owed[channel.peer] -= 1
        self._watch_writes(channel, waited)

    def _watch_writes(self, channel: Channel, waited: bool) -> None:
        """A socket is writable again in the epoll; a ring's reader writes our eventfd."""
        if channel.wants_write and not waited and channel.peer not in self._rings:
            self._epoll.modify(channel.fileno(), select.EPOLLIN | select.EPOLLOUT)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        """Frames that have arrived and whether a watched descriptor is readable, after at most so many seconds."""
        frames: list[Frame] = []
        called = False
        events = epoll_wait_ns(self._epoll_fileno, int(seconds * 1e9))
        for descriptor, event in events:
            channel = self._by_descriptor.get(descriptor)
            if channel is not None:
                if event & select.EPOLLOUT and channel.flush():
                    self._epoll.modify(descriptor, select.EPOLLIN)
                if event & ~select.EPOLLOUT:
                    self._receive(channel, frames)
            elif descriptor in self._watched:
                called = True
            elif descriptor in self._alive:
                if not self._alive[descriptor].hear():
                    self._hung_up(self._alive.pop(descriptor), frames)
            else:
                self._look(frames)
        # A peer that was stopped between taking our flag down and calling us keeps the others from calling, too. So the
        # ring is looked at now and then, whatever else there was to hear and however busy this worker is.
        if self._inbox is not None and time.monotonic() - self._looked_at >= LOOK_ANYWAY_SECONDS:
            self._look(frames)
        return frames, called

    def _receive(self, channel: SocketChannel, frames: list[Frame]) -> None:
        try:
            arrived = channel.receive()
        except PeerGone:
            self._part_from(channel.peer)
            self._epoll.unregister(channel.fileno())
            return
        self._count(channel.peer, arrived, frames)

    def _look(self, frames: list[Frame]) -> bool:
        """Take what has come through the ring, and write what waited for space; whether there may be more."""
        if self._inbox is None:
            return False
        self._looked_at = time.monotonic()
        more = self._inbox.look()
        for peer, channel in self._rings.items():
            if peer not in self._gone and channel.has_news:
                self._count(peer, channel.take(), frames)
                if channel.has_ended:
                    self._part_from(peer)
            if channel.wants_write and peer not in self._dead:
                channel.flush()
        return more

    def _hung_up(self, channel: RingChannel, frames: list[Frame]) -> None:
        """A peer of this machine has gone; what it wrote before still counts."""
        self._epoll.unregister(channel.connection_fileno())
        self._dead.add(channel.peer)
        if self._inbox is not None:
            self._inbox.settle()
        while self._look(frames):
            pass  # at most a ring's worth: the writer is gone, and others wait for space
        channel.follow()
        self._count(channel.peer, channel.take(), frames)
        if channel.peer not in self._gone:
            self._part_from(channel.peer)

    def _count(self, peer: int, arrived: Sequence[Frame], frames: list[Frame]) -> None:
        for frame in arrived:
            if frame.kind == Kind.END:
                self._ends_due[peer] -= 1
        frames += arrived

    def _part_from(self, peer: int) -> None:
        """A peer sends no more: it has said goodbye, or has died."""
        if self._ends_due[peer] or self._ends_owed[peer]:
            msg = f"worker {peer} closed its connection before its streams had ended"
            raise PeerGone(msg, peer)
        self._gone.add(peer)

    # -- ending ------------------------------------------------------------------------------------------------------

    def say_goodbye(self, listen: Callable[[], None] = lambda: None) -> None:
        """Push out everything, close our direction, and wait until every peer has closed its own.

        A connection closed with unread bytes resets the peer's, and with it the last frames that the peer has not
        read yet; so both directions end in order. How long peers work on after us is theirs to know: the wait ends when
        they do, when they die (a machine that vanishes is found by keep-alive), or when `listen`, which is called
        whenever a watched descriptor is readable, raises.
        """
        for channel in self._channels.values():
            while channel.peer not in self._gone and not channel.flush():
                self._hear(0.1, listen)
            channel.end_sending()
        while len(self._gone) < len(self._channels) or any(c.wants_write for c in self._alive.values()):
            self._hear(1.0, listen)

    def _hear(self, seconds: float, listen: Callable[[], None]) -> None:
        _, called = self.wait(seconds)
        if called:
            listen()

    def statistics(self) -> dict[int, tuple[str, ChannelStatistics]]:
        """Transport and counters of each connection, by worker."""
        return {
            peer: ("ring" if peer in self._rings else "socket", channel.statistics())
            for peer, channel in self._channels.items()
        }

    def close(self) -> None:
        """Give every connection up."""
        for channel in self._channels.values():
            with contextlib.suppress(OSError):
                channel.close()
        if self._inbox is not None:
            self._inbox.close()
        self._epoll.close()
        self._epoll_fileno = -1  # the number may be somebody else's by now


@contextlib.contextmanager
def _meeting(peer: int) -> Iterator[None]:
    """A connection that breaks while two workers meet: the other one has gone. Whatever goes wrong, nothing stays open.

    A peer that answers late is no such thing: it may be at work in a user's constructor.
    """
    try:
        yield
    except ConnectionError as error:
        if isinstance(error, PeerGone) and error.worker is not None:
            raise
        msg = f"worker {peer} was lost while both connected: {error}"
        raise PeerGone(msg, peer) from error
    except TimeoutError as error:
        msg = (
            f"worker {peer} did not answer in time while both connected ({error}; at most {CONNECT_SECONDS:g} s); it "
            "is stopped, out of reach, or in a constructor of its tasks: make that quicker, or do its work in `open`"
        )
        raise TimeoutError(msg) from error
