"""RingChannel: frames through shared memory, between workers of one node.

Each worker has one Inbox, into which every worker of its node writes; a RingChannel is one peer's share of it together
with our place in the peer's. Sending never blocks: what the peer's ring does not take waits here, and the peer writes
our eventfd when space comes free. Received bodies lie in the ring, and their space is free again when the last
reference to them goes.

One descriptor (`fileno`) stands for arrivals, for space and for a peer's death; it is an epoll of its own, so that a
worker waits for rings and sockets in one call. It is level-triggered as a socket is: after `receive` it stays readable
exactly when there is more.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock._core import RingConsumer, RingFault, RingGone, RingProducer, RingRecord, RingRefused, RingSegment
from penstock.run.channel.protocol import ChannelStatistics, PeerGone
from penstock.run.channel.segment import exchange
from penstock.run.wire import BODY_BYTES_MAX, HEADER, Frame, Kind, WireFault

RECORDS_PER_LOOK = 256
_EDGE_AT = 8
_edge = struct.Struct("<I")


class Inbox:
    """A worker's ring, shared by the channels to all workers of its node."""

    def __init__(self, segment: RingSegment, worker: int, edges: int) -> None:
        self.worker = worker
        self.segment = segment
        self._edges = edges
        self._consumer = RingConsumer(segment, message_max=BODY_BYTES_MAX + HEADER.size)
        self._channels: dict[int, RingChannel] = {}
        self._epoll = select.epoll()
        self._epoll.register(segment.wake_fileno(), select.EPOLLIN)
        self._closed = False
        self._consumer.arm()

    def connect(self, connection: socket.socket, peer: int) -> RingChannel:
        """A channel to the worker at the other end: both inboxes change hands over the connection."""
        theirs = exchange(connection, self.segment)
        connection.setblocking(False)
        self._consumer.wake_for_space(peer, theirs.wake_fileno())
        channel = RingChannel(self, peer, connection, theirs)
        self._channels[peer] = channel
        self._epoll.register(connection.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return channel

    def fileno(self) -> int:
        """The descriptor to poll for everything that concerns this inbox."""
        return self._epoll.fileno()

    def look(self) -> None:
        """Hand what has arrived to its channels, and leave the descriptor readable when there is more."""
        consumer = self._consumer
        consumer.disarm()
        records = consumer.drain(RECORDS_PER_LOOK)
        for record in records:
            channel = self._channels.get(record.producer)
            if channel is not None:
                channel.arrived(record)
        if not consumer.arm():
            consumer.signal()

    def call_again(self) -> None:
        """Keep the descriptor readable: there is more to take."""
        self._consumer.signal()

    def settle(self) -> None:
        """Step over what dead workers left unfinished, and free their places."""
        self._consumer.departed()

    def statistics(self) -> dict[str, int]:
        """Counters of the ring since it was made."""
        return self._consumer.statistics()

    def leave(self, channel: RingChannel) -> None:
        """Forget a channel that is being closed."""
        if self._channels.pop(channel.peer, None) is not None and not self._closed:
            self._consumer.wake_for_space(channel.peer, -1)
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(channel.connection_fileno())

    def frame_of(self, record: RingRecord) -> Frame:
        """The frame that a record holds, its body in place; refused when it is none of this job's."""
        if len(record) < HEADER.size:
            msg = f"a record of {len(record)} bytes arrived; a frame has at least {HEADER.size}"
            raise WireFault(msg)
        length, kind, edge, rows, value = HEADER.unpack_from(record)
        if not Kind.DATA <= kind <= Kind.EPOCH or edge >= self._edges or length != len(record) - HEADER.size:
            msg = f"a record holds no frame: kind {kind}, edge {edge} of {self._edges}, {length} of {len(record)} bytes"
            raise WireFault(msg)
        body = pa.py_buffer(record).slice(HEADER.size) if kind == Kind.DATA else None
        return Frame(kind, edge, rows, value, body)

    def close(self) -> None:
        """Close the inbox; peers that write to it hear of it. Frames that are held stay readable."""
        if not self._closed:
            self._closed = True
            self._consumer.close()
            del self._consumer, self.segment  # what is held of it lives on
            self._epoll.close()


class Piece(NamedTuple):
    """What one record will hold; `whole` is 0 unless it is a part of a longer frame."""

    edge: int
    first: bytes | memoryview
    second: pa.Buffer | None
    whole: int = 0
    is_first: bool = False
    is_last: bool = False

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return len(self.first) + (0 if self.second is None else int(self.second.size))


class RingChannel:
    """One end of a connection between two workers of one node."""

    def __init__(self, inbox: Inbox, peer: int, connection: socket.socket, theirs: RingSegment) -> None:
        self.peer = peer
        self._inbox = inbox
        self._connection = connection
        self._producer = RingProducer(theirs, inbox.worker)
        self._part_max = theirs.part_bytes_max
        self._waiting: deque[Piece] = deque()
        self._waiting_bytes = 0
        self._arrived: deque[Frame] = deque()
        self._ended = self._ending = False
        self._closed: ChannelStatistics | None = None
        self._received = self._frames = 0

    def send(self, header: bytes, body: pa.Buffer | None = None) -> None:
        """Write a frame into the peer's ring, or keep it until there is space."""
        self._frames += 1
        size = len(header) + (0 if body is None else body.size)
        for piece in self._pieces(header, body, size):
            if self._waiting or not self._try(piece):
                self._waiting.append(piece)
                self._waiting_bytes += piece.size
        if self._waiting:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; True when nothing waits any more."""
        asked = False
        while self._waiting:
            piece = self._waiting[0]
            if self._try(piece):
                self._waiting.popleft()
                self._waiting_bytes -= piece.size
            elif asked:
                return False
            else:  # ask to be told, then look once more: the space may have come in between
                self._producer.notify_space()
                asked = True
        return self._flush_end()

    def receive(self) -> list[Frame]:
        """Frames that have arrived from this peer; PeerGone after the last one of a peer that has left."""
        self._look()
        if not self._arrived:
            if self._ended:
                raise self._gone(None)
            if self._has_hung_up():
                self._inbox.settle()
                self._look()  # what it published before it died
                if not self._arrived:
                    raise self._gone(None)
        frames = list(self._arrived)
        self._arrived.clear()
        if self._ended:
            self._inbox.call_again()  # the end is still to be read
        return frames

    def arrived(self, record: RingRecord) -> None:
        """Take a record of this peer from the inbox."""
        if record.is_end:
            self._ended = True
            return
        self._received += len(record)
        self._arrived.append(self._inbox.frame_of(record))

    def fileno(self) -> int:
        """The descriptor to poll; the inbox's, which all channels of this worker share."""
        return self._inbox.fileno()

    def connection_fileno(self) -> int:
        """The descriptor whose end says that the peer has gone."""
        return self._connection.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for space in the peer's ring."""
        return bool(self._waiting) or self._ending

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        if self._closed is not None:
            return self._closed
        counts = self._producer.statistics()
        return ChannelStatistics(
            counts["bytes"], self._received, self._frames, self._waiting_bytes, counts["blocked_ns"]
        )

    def end_sending(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        self._ending = True
        with contextlib.suppress(PeerGone):  # the peer may have closed first
            self.flush()

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        if self._closed is None:
            self._closed = self.statistics()
            self._waiting.clear()
            self._inbox.leave(self)
            self._producer.close()
            del self._producer  # and with it the peer's segment
            self._connection.close()

    def _pieces(self, header: bytes, body: pa.Buffer | None, size: int) -> Iterator[Piece]:
        """A frame as the ring takes it: whole, or in parts when it is longer than one record may be."""
        edge = _edge.unpack_from(header, _EDGE_AT)[0]
        if body is None or size <= self._part_max:
            yield Piece(edge, header, body)
            return
        yield Piece(edge, header, None, size, is_first=True)
        view = memoryview(body)
        for at in range(0, len(view), self._part_max):
            part = view[at : at + self._part_max]
            yield Piece(edge, part, None, size, is_last=at + len(part) == len(view))

    def _try(self, piece: Piece) -> bool:
        try:
            if piece.whole == 0:
                return self._producer.send(piece.edge, piece.first, piece.second, 0.0)
            return self._producer.send_part(
                piece.edge, piece.first, piece.whole, first=piece.is_first, last=piece.is_last, timeout=0.0
            )
        except (RingGone, RingRefused, RingFault) as error:
            raise self._gone(error) from error

    def _flush_end(self) -> bool:
        if self._ending:
            try:
                if not self._producer.send_end(0.0):
                    self._producer.notify_space()
                    return False
            except (RingGone, RingRefused, RingFault) as error:
                self._ending = False
                raise self._gone(error) from error
            self._ending = False
        return True

    def _has_hung_up(self) -> bool:
        try:
            return self._connection.recv(1) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _look(self) -> None:
        try:
            self._inbox.look()
        except RingFault as error:
            raise self._gone(error) from error

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""))
