"""Links: one worker's connections to the others, and its one wait.

Which edge goes to which worker is data, and each worker is reached through a port. Once two workers have met (`adopt`),
Links does not know which transport the port is. A peer that leaves while an edge between the two has not ended has
died, which is PeerGone; one that leaves afterwards has said goodbye (tests/contract/test_channels.py). All peers are
met in one loop, and further ones while a job runs (`add_peer`). Decision: docs/decisions/0031-transport-port.md.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock._core import NoSharedMemory, PreparedImage, RingRefused, RingSegment
from penstock.errors import InternalError, InvalidInput
from penstock.run.transport.growth import GrowthLimits
from penstock.run.transport.host import WorkerPlace
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.loop import Loop
from penstock.run.transport.meetings import Meetings
from penstock.run.transport.protocol import ChannelStatistics, PeerGone, Port
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.segment import listen_locally
from penstock.run.transport.socket import SocketChannel
from penstock.run.transport.tls.channel import TlsChannel
from penstock.run.transport.tls.credentials import Credentials
from penstock.run.transport.wire import Frame, Kind

CONNECT_SECONDS = 30.0  # until all workers have met
EXPIRE_SECONDS = 0.5  # between two looks for peers whose time is over, while workers meet
PRODUCERS_MIN = 64  # places in an inbox
END = int(Kind.END)

__all__ = ["Links", "Transport", "WorkerPlace"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transport:
    """How workers of one machine speak: `auto` (rings where there is memory), `ring` (or fail), or `socket`."""

    kind: str = "auto"
    inbox_bytes: int = 1 << 20  # to begin with
    growth: GrowthLimits = field(default_factory=GrowthLimits)
    credentials: Credentials | None = None  # where connections between machines are encrypted


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
        self._edges_with: defaultdict[int, list[int]] = defaultdict(list)  # the same by worker
        for edge, peer in self._peer_of.items():
            self._edges_with[peer].append(edge)
        self._ends_due = Counter(hears_from.values())  # worker -> edges from it that have not ended
        self._ends_owed = Counter(sends_to.values())  # worker -> edges to it that have not ended
        self._hears = set(hears_from)
        self._has_ended: set[int] = set()  # edges whose end has come, or was sent
        self._ports: dict[int, Port] = {}  # by worker
        self._port_of: dict[int, Port] = {}  # by edge
        self._gone: set[int] = set()  # workers that send no more
        self._departed: list[PeerGone] = []  # told in this turn
        self._new_peers: set[int] = set()  # met for edges of which something or nothing may come
        self._unmet: dict[int, OSError] = {}  # of these: why they cannot be met
        self._parted: list[PeerGone] = []  # of these: that have met us and gone; they may have heard that nothing comes
        self._arrived: list[Frame] = []
        self._called = False
        self._loop = Loop()
        self._meetings: Meetings | None = None
        self._is_meeting = self._has_tried_memory = False
        self._machine = ""
        self._near: set[int] = set()  # peers that may share memory with this worker
        self._inbox: Inbox | None = None
        self.notes: list[str] = []  # why workers of one machine do not share memory

    # -- meeting -----------------------------------------------------------------------------------------------------

    def open(
        self,
        listener: socket.socket,
        workers: Sequence[WorkerPlace],
        key: bytes,
        listen: Callable[[], None] = lambda: None,
    ) -> None:
        """Meet every worker that shares an edge with this one; `listen` is called when a watched descriptor says so."""
        self._machine = workers[self._me].machine
        credentials = self._transport.credentials
        self._meetings = meetings = Meetings(self._loop, self._me, key, listener, self._met, self._note, credentials)
        peers = sorted(self._edges_with)
        for peer in peers:
            self._begin(meetings, workers[peer], len(peers))
        early: list[Frame] = []  # of peers that have met all of their own peers
        while not self._ports.keys() >= set(peers):
            frames, called = self.wait(EXPIRE_SECONDS)
            early += frames
            if called:
                listen()
        self._arrived = early + self._arrived

    def add_peer(self, place: WorkerPlace, sends_to: Collection[int] = (), hears_from: Collection[int] = ()) -> None:
        """Meet one more worker while this one runs, with edges to and from it; `wait` drives it, `has_met` tells.

        A worker that has gone may come again, with edges of the same or of other numbers.
        """
        peer = place.index
        if self._meetings is None or peer == self._me or (peer in self._ports and peer not in self._gone):
            msg = f"worker {self._me} cannot add worker {peer}: it is not open, is that worker, or has it as a peer"
            raise InternalError(msg)
        if (former := self._ports.pop(peer, None)) is not None:
            former.close()
        self._gone.discard(peer)
        for edge in self._edges_with.pop(peer, ()):
            del self._peer_of[edge]
            self._port_of.pop(edge, None)
            self._hears.discard(edge)
        self._edges_with[peer] = list({*sends_to, *hears_from})
        self._hears.update(hears_from)
        self._has_ended.difference_update(self._edges_with[peer])
        self._peer_of.update(dict.fromkeys(self._edges_with[peer], peer))
        self._ends_owed[peer], self._ends_due[peer] = len(sends_to), len(hears_from)
        self._begin(self._meetings, place, 1)

    def add_edges(self, place: WorkerPlace, sends_to: Collection[int], hears_from: Collection[int]) -> None:
        """Edges to and from another worker, which is met if it is not known yet; `has_met` tells when."""
        peer = place.index
        if peer not in self._ports or peer in self._gone:
            self._new_peers.add(peer)
            self.add_peer(place, sends_to, hears_from)
            return
        edges = {*sends_to, *hears_from}
        self._edges_with[peer] += edges
        self._peer_of.update(dict.fromkeys(edges, peer))
        self._port_of.update(dict.fromkeys(edges, self._ports[peer]))
        self._ends_owed[peer] += len(sends_to)
        self._ends_due[peer] += len(hears_from)
        self._hears.update(hears_from)
        self._has_ended -= edges

    def leave_edges(self, edges: Collection[int]) -> None:
        """Nothing is sent along these edges any more, either way: no end is waited for."""
        for edge in edges:
            peer = self._peer_of.pop(edge)
            self._edges_with[peer].remove(edge)
            self._port_of.pop(edge, None)
            if edge not in self._has_ended:
                (self._ends_due if edge in self._hears else self._ends_owed)[peer] -= 1
            self._hears.discard(edge)
            self._has_ended.discard(edge)

    def has_met(self, peer: int) -> bool:
        """Whether frames may be sent to this worker; OSError where it was to be met for new edges and cannot be."""
        if peer in self._unmet:
            raise self._unmet[peer]
        return peer in self._ports and not (peer in self._new_peers and peer in self._gone)

    def keep_new_peers(self) -> None:
        """Edges that were added are in use from now on: who was met for them is a peer like others."""
        self._departed += self._parted
        self._new_peers.clear()
        self._unmet.clear()
        self._parted.clear()

    def forget_new_peers(self) -> None:
        """Nothing comes of edges that were added, and that have been left: who was met for them is not known any more.

        Both ends do so, in any order, and what was half met goes too. So they may meet again for other edges.
        """
        self._departed = [departure for departure in self._departed if departure.worker not in self._new_peers]
        for peer in self._new_peers:
            if (port := self._ports.pop(peer, None)) is not None:
                port.close()
            self._gone.discard(peer)
            for known in (self._edges_with, self._ends_due, self._ends_owed):
                known.pop(peer, None)
        if self._meetings is not None:
            self._meetings.forget(self._new_peers)
        self._new_peers.clear()
        self._unmet.clear()
        self._parted.clear()

    def _begin(self, meetings: Meetings, place: WorkerPlace, peers: int) -> None:
        if self._transport.kind != "socket" and self._machine and place.machine == self._machine:
            self._near.add(place.index)
            if not self._has_tried_memory:
                self._make_inbox(meetings, peers)
        self._is_meeting = True
        meetings.begin(place, time.monotonic(), CONNECT_SECONDS, near=place.index in self._near)

    def _make_inbox(self, meetings: Meetings, peers: int) -> None:
        """Our inbox, and where others of this machine can ask for it; a note where there cannot be one."""
        self._has_tried_memory, listener = True, None
        try:
            listener = listen_locally(meetings.key, self._me)
            segment = RingSegment(self._transport.inbox_bytes, producers=max(PRODUCERS_MIN, peers))
            self._inbox = Inbox(segment, self._me, self._edges, self._transport.growth)
        except (NoSharedMemory, RingRefused, OSError) as error:
            if listener is not None:
                listener.close()
            self._note(f"worker {self._me} has no shared memory: {error}")
        else:
            meetings.share(self._inbox, listener)

    def _met(self, peer: int, connection: socket.socket, ring: RingChannel | None) -> None:
        if ring is not None:
            self.adopt(ring)
        elif peer in self._near and self._transport.kind == "ring":
            connection.close()
            why = self.notes[-1] if self.notes else "the peer uses sockets"
            msg = f"transport 'ring' was asked for, but {why}; give transport 'auto', which uses sockets then"
            raise InvalidInput(msg)
        elif isinstance(connection, ssl.SSLSocket):
            self.adopt(TlsChannel(connection, peer, self._edges))
        else:
            self.adopt(SocketChannel(connection, peer, self._edges))

    def adopt(self, port: Port) -> None:
        """Speak to a worker through this port from now on."""
        self._ports[port.peer] = port
        self._port_of.update(dict.fromkeys(self._edges_with[port.peer], port))
        port.register(self._loop, self)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        log.warning("%s; sockets are used instead", text)

    @property
    def woken_ns(self) -> int:
        """When the last wait that had to wait was over, on the monotonic clock: what follows is work."""
        return self._loop.woken_ns

    def watch(self, descriptor: int) -> None:
        """Wake `wait` also when this descriptor is readable."""
        self._loop.register(descriptor, self._on_call)

    def _on_call(self, _: int) -> None:
        self._called = True

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Send rows along an edge; how many bytes the receiver will count against its window."""
        return self._port_of[edge].send_batch(edge, batch, origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Send rows whose image has been prepared; how many bytes the receiver will count against its window."""
        return self._port_of[edge].send_image(edge, image, origin_ns)

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Send a watermark, an end or a credit along an edge."""
        port = self._port_of[edge]
        if port.peer in self._gone:
            return  # the peer has said goodbye and credits alone are left to send, or its death has been told
        port.send_mark(kind, edge, value)
        if kind == END:
            self._ends_owed[port.peer] -= 1
            self._has_ended.add(edge)

    # -- waiting -----------------------------------------------------------------------------------------------------

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        """Frames that have arrived and whether a watched descriptor is readable, after at most `seconds`."""
        self._called = False
        if self._is_meeting:
            seconds = self._tend_meetings(seconds)
        if self._arrived or self._departed:
            seconds = 0.0  # there is something to tell already
        if self._departed and not self._arrived:  # what they sent was told by the last wait, and others send on
            self._judge()
        try:
            self._loop.turn(seconds)
        except OSError as error:
            self._require_for_later(error)
        frames, self._arrived = self._arrived, []
        if self._departed and not frames:  # what a peer sent before it went comes first
            self._judge()
        return frames, self._called

    def _tend_meetings(self, seconds: float) -> float:
        """Look for peers whose time is over; answers how long to wait for the next look."""
        if self._meetings is not None:
            try:
                self._meetings.expire(time.monotonic())
            except OSError as error:
                self._require_for_later(error)
            self._is_meeting = self._meetings.pending
        return min(seconds, EXPIRE_SECONDS)

    def _require_for_later(self, error: OSError) -> None:
        """Raise again what is not the end of meeting somebody for new edges: these can still be left, and all go on."""
        known = self._ports.keys() | self._unmet.keys()
        lost = [p for p in self._new_peers - known if self._meetings is not None and not self._meetings.is_meeting(p)]
        if not lost:
            raise error
        self._unmet.update(dict.fromkeys(lost, error))

    def arrived(self, frames: Sequence[Frame]) -> None:
        """Ports tell of frames."""
        for frame in frames:
            if frame.kind == END and (peer := self._peer_of.get(frame.edge)) is not None:  # the worker refuses others
                self._ends_due[peer] -= 1
                self._has_ended.add(frame.edge)
        self._arrived += frames

    def gone(self, departure: PeerGone) -> None:
        """Ports tell of a peer that sends no more."""
        self._departed.append(departure)

    def _judge(self) -> None:
        """Tell of peers that have gone since the last turn: each has said goodbye, or has died."""
        while self._departed:
            departure = self._departed.pop(0)
            peer = departure.worker
            if peer is None:
                raise departure
            self._gone.add(peer)
            if peer in self._new_peers:
                self._parted.append(departure)
            elif self._ends_due[peer] or self._ends_owed[peer]:
                msg = f"worker {peer} closed its connection before its streams had ended"
                raise PeerGone(msg, peer) from departure

    # -- ending ------------------------------------------------------------------------------------------------------

    def say_goodbye(self, listen: Callable[[], None] = lambda: None) -> None:
        """Push out everything, close our direction, and wait until every peer has closed its own.

        A connection closed with unread bytes resets the peer's, and with it the last frames that the peer has not
        read yet; so both directions end in order. How long peers work on after us is theirs to know: the wait ends when
        they do, when they die (a machine that vanishes is found by keep-alive), or when `listen`, which is called
        whenever a watched descriptor is readable, raises.
        """
        said: set[int] = set()
        while True:
            for port in [port for peer, port in self._ports.items() if peer not in said]:  # some may be met meanwhile
                while port.peer not in self._gone and not port.flush():
                    self._hear(0.1, listen)
                port.say_goodbye()
                said.add(port.peer)
            if len(self._gone) >= len(self._ports) and not any(port.wants_write for port in self._ports.values()):
                return
            self._hear(1.0, listen)

    def _hear(self, seconds: float, listen: Callable[[], None]) -> None:
        _, called = self.wait(seconds)
        if called:
            listen()

    def statistics(self) -> dict[int, tuple[str, ChannelStatistics]]:
        """Transport and counters of each connection, by worker."""
        return {peer: (port.transport, port.statistics()) for peer, port in self._ports.items()}

    def close(self) -> None:
        """Give every connection up."""
        if self._meetings is not None:
            self._meetings.close()
        for port in self._ports.values():
            with contextlib.suppress(OSError):
                port.close()
        if self._inbox is not None:
            self._inbox.close()
        self._loop.close()
