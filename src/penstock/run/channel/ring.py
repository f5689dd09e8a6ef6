"""RingChannel: frames through shared memory, between workers of one node.

Each worker has one Inbox, into which every worker of its node writes; a RingChannel is one peer's share of it together
with our place in the peer's. An image is written once, by the core, straight into the peer's memory, and opened where
it lies; its space is free again when the last reference to the batch goes. Sending never blocks: what the peer's ring
does not take waits here, as a prepared image that has not been written, and the peer writes our eventfd when space
comes free.

A worker registers the inbox's eventfd and the peers' connections, whose end says that they have died, with the epoll
in which it waits for sockets too. `fileno` stands for all of them together, as one descriptor that is level-triggered
as a socket is; it is an epoll of its own, which costs one more step for each wake-up, and is made when asked for.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock import _core
from penstock._core import (
    ImageFault,
    PreparedImage,
    RingConsumer,
    RingFault,
    RingFrame,
    RingGone,
    RingProducer,
    RingRefused,
    RingSegment,
)
from penstock.run.channel.protocol import ChannelStatistics, PeerGone
from penstock.run.channel.segment import exchange
from penstock.run.wire import BODY_BYTES_MAX, HEADER, Frame, Kind, WireFault, codec_of, pack

FRAMES_PER_LOOK = 256


class Inbox:
    """A worker's ring, shared by the channels to all workers of its node."""

    def __init__(self, segment: RingSegment, worker: int, edges: int) -> None:
        self.worker = worker
        self.segment = segment
        self._edges = edges
        self._consumer = RingConsumer(segment, message_max=BODY_BYTES_MAX + HEADER.size)
        self._channels: dict[int, RingChannel] = {}
        self._epoll: select.epoll | None = None
        self._closed = False
        self._consumer.arm()

    def connect(self, connection: socket.socket, peer: int) -> RingChannel:
        """A channel to the worker at the other end: both inboxes change hands over the connection."""
        theirs = exchange(connection, self.segment)
        channel = RingChannel(self, peer, connection, theirs)
        connection.setblocking(False)
        self._consumer.wake_for_space(peer, theirs.wake_fileno())
        self._channels[peer] = channel
        if self._epoll is not None:
            self._epoll.register(channel.connection_fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return channel

    def wake_fileno(self) -> int:
        """Readable when something has come or space has come free; says nothing of dead peers."""
        return self.segment.wake_fileno()

    def fileno(self) -> int:
        """The descriptor to poll for everything that concerns this inbox."""
        if self._epoll is None:
            self._epoll = select.epoll()
            self._epoll.register(self.wake_fileno(), select.EPOLLIN)
            for channel in self._channels.values():
                self._epoll.register(channel.connection_fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return self._epoll.fileno()

    def look(self) -> bool:
        """Hand what has arrived to its channels, and leave the descriptor readable when there is more; whether so."""
        consumer = self._consumer
        consumer.disarm()
        try:
            frames = _core.ring_take_frames(consumer, self._edges, FRAMES_PER_LOOK)
        except (ImageFault, RingFault) as error:
            msg = f"a worker of this machine wrote what is no frame into worker {self.worker}'s ring: {error}"
            raise WireFault(msg) from error
        for frame in frames:
            channel = self._channels.get(frame.producer)
            if channel is not None:
                channel.arrived(frame)
        if not consumer.arm():
            consumer.signal()
        return len(frames) == FRAMES_PER_LOOK

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
            if self._epoll is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._epoll.unregister(channel.connection_fileno())

    def close(self) -> None:
        """Close the inbox; peers that write to it hear of it. Batches that are held stay readable."""
        if not self._closed:
            self._closed = True
            self._consumer.close()
            del self._consumer, self.segment  # what is held of it lives on
            if self._epoll is not None:
                self._epoll.close()


class Mark(NamedTuple):
    """A frame without a body that waits."""

    kind: Kind
    edge: int
    value: int

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return HEADER.size


class Image(NamedTuple):
    """A batch that waits, not yet written."""

    edge: int
    image: PreparedImage
    value: int

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return HEADER.size + self.image.size


class Part(NamedTuple):
    """A piece of a frame that is longer than a record may be."""

    edge: int
    bytes: memoryview
    whole: int
    is_first: bool
    is_last: bool

    @property
    def size(self) -> int:
        """Bytes that wait with it."""
        return len(self.bytes)


class RingChannel:
    """One end of a connection between two workers of one node."""

    def __init__(self, inbox: Inbox, peer: int, connection: socket.socket, theirs: RingSegment) -> None:
        self.peer = peer
        self._inbox = inbox
        self._connection = connection
        self._producer = RingProducer(theirs, inbox.worker)
        self._image_max = theirs.part_bytes_max - HEADER.size
        self._part_max = theirs.part_bytes_max
        self._waiting: deque[Mark | Image | Part] = deque()
        self._waiting_bytes = 0
        self._arrived: list[RingFrame] = []
        self._ended = self._ending = False
        self._closed: ChannelStatistics | None = None
        self._received = self._frames = 0

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Write rows into the peer's ring, or keep them until there is space; the bytes that both ends count."""
        return self.send_image(edge, codec_of(batch.schema).prepare(batch), origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Write rows whose image has been prepared, or keep it until there is space; the bytes that both ends count."""
        size = image.size
        self._frames += 1
        if size > self._image_max:
            self._send_long(edge, image, origin_ns)
        elif self._waiting:
            self._keep(Image(edge, image, origin_ns))
        else:
            try:
                taken = _core.ring_send_image(self._producer, edge, image, origin_ns)
            except (RingGone, RingRefused, RingFault) as error:
                raise self._gone(error) from error
            if not taken:
                self._keep(Image(edge, image, origin_ns))
                self.flush()
        return size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Write a watermark, an end, a credit or an epoch into the peer's ring, or keep it until there is space."""
        self._frames += 1
        if not self._waiting:
            try:
                if _core.ring_send_mark(self._producer, kind, edge, value):
                    return
            except (RingGone, RingRefused, RingFault) as error:
                raise self._gone(error) from error
        self._keep(Mark(kind, edge, value))
        if len(self._waiting) == 1:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; True when nothing waits any more."""
        asked = False
        while self._waiting:
            item = self._waiting[0]
            if self._try(item):
                self._waiting.popleft()
                self._waiting_bytes -= item.size
            elif asked:
                return False
            else:  # ask to be told, then look once more: the space may have come in between
                self._producer.notify_space()
                asked = True
        return self._flush_end()

    def receive(self) -> list[Frame]:
        """Frames that have arrived from this peer; PeerGone after the last one of a peer that has left."""
        self._inbox.look()
        if not self._arrived and not self._ended and self._has_hung_up():
            self._inbox.settle()
            while self._inbox.look():
                pass  # what it published before it died
            if not self._arrived:
                raise self._gone(None)
        if self._ended:
            if not self._arrived:
                raise self._gone(None)
            self._inbox.call_again()  # the end is still to be read
        return self.take()

    def take(self) -> list[Frame]:
        """What the inbox has handed over."""
        frames, self._arrived = self._arrived, []
        return frames  # type: ignore[return-value] # a RingFrame is a Frame

    @property
    def has_news(self) -> bool:
        """Whether there are frames to take, or the end to hear."""
        return bool(self._arrived) or self._ended

    @property
    def has_ended(self) -> bool:
        """Whether the peer has said that it sends no more."""
        return self._ended

    def arrived(self, frame: RingFrame) -> None:
        """Take a frame of this peer from the inbox."""
        if frame.is_end:
            self._ended = True
            return
        self._received += frame.bytes
        self._arrived.append(frame)

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

    def _keep(self, item: Mark | Image | Part) -> None:
        self._waiting.append(item)
        self._waiting_bytes += item.size

    def _send_long(self, edge: int, image: PreparedImage, origin_ns: int) -> None:
        """A frame that is longer than one record may be goes in parts, which the peer puts together."""
        if image.size > BODY_BYTES_MAX:
            msg = f"a batch of {image.size} bytes is to be sent; the limit is {BODY_BYTES_MAX}"
            raise WireFault(msg)
        for part in self._parts(edge, image, origin_ns):
            self._keep(part)
        self.flush()

    def _parts(self, edge: int, image: PreparedImage, origin_ns: int) -> Iterator[Part]:
        whole = HEADER.size + image.size
        written = memoryview(bytearray(whole))
        written[: HEADER.size] = pack(Kind.DATA, edge, image.rows, origin_ns, image.size)
        image.write_into(written[HEADER.size :])
        for at in range(0, whole, self._part_max):
            piece = written[at : at + self._part_max]
            yield Part(edge, piece, whole, at == 0, at + len(piece) == whole)

    def _try(self, item: Mark | Image | Part) -> bool:
        try:
            match item:
                case Image(edge, image, value):
                    return _core.ring_send_image(self._producer, edge, image, value)
                case Mark(kind, edge, value):
                    return _core.ring_send_mark(self._producer, kind, edge, value)
                case Part(edge, piece, whole, is_first, is_last):
                    return self._producer.send_part(edge, piece, whole, first=is_first, last=is_last, timeout=0.0)
        except (RingGone, RingRefused, RingFault) as error:
            raise self._gone(error) from error

    def _flush_end(self) -> bool:
        if self._ending:
            try:
                if not self._producer.send_end(0.0):
                    self._producer.notify_space()
                    if not self._producer.send_end(0.0):  # the space may have come in between
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

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""))
