"""RingChannel: the port through shared memory, between workers of one machine.

Each worker has one Inbox, into which every worker of its machine writes; a RingChannel is one peer's share of it
together with our place in the peer's. An image is written once, by the core, straight into the peer's memory, and
opened where it lies; its space is free again when the last reference to the batch goes. What the peer's ring does not
take waits here, as a prepared image that has not been written, and the peer writes our eventfd when space comes free.

Frames of all peers come through the inbox, which tells the listener at once; a channel keeps frames that come early.
Its own descriptor is the local connection: larger rings are offered over it, and its end says that the peer has died.
Errors while waiting frames are written are therefore passed over: the end says the same, after the peer's last frames.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from collections.abc import Iterator
from time import time_ns
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock import _core
from penstock._core import (
    NoSharedMemory,
    PreparedImage,
    RingFault,
    RingFrame,
    RingGone,
    RingProducer,
    RingRefused,
    RingSegment,
)
from penstock.run.transport.loop import Loop
from penstock.run.transport.outbox import Image, Item, Mark, Move, Outbox, Part
from penstock.run.transport.protocol import ChannelStatistics, Listener, PeerGone
from penstock.run.transport.segment import offer, take
from penstock.run.transport.socket import OUTBOX_BYTES_MAX
from penstock.run.transport.wire import HEADER, Kind, codec_of, cut, is_long, pack, require_sendable

if TYPE_CHECKING:
    from penstock.run.transport.inbox import Inbox

OFFERS_PER_LOOK = 8

log = logging.getLogger(__name__)


class RingChannel:
    """One end of a connection between two workers of one machine."""

    transport = "ring"

    def __init__(
        self,
        inbox: Inbox,
        peer: int,
        connection: socket.socket,
        theirs: RingSegment,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
    ) -> None:
        self.peer = peer
        self._inbox = inbox
        self._connection = connection
        self._waiting = Outbox(peer, outbox_bytes_max)
        self._sent = self._blocked_ns = 0  # through rings that the peer has left
        self._write_to(theirs, RingProducer(theirs, inbox.worker))
        self._early: list[RingFrame] = []  # before we listen, or through our next ring ahead of this peer's mark
        self._behind = self._has_hung_up = False
        self._ended = self._ending = self._said_end = False
        self._closed: ChannelStatistics | None = None
        self._frames = 0
        self.bytes_received = 0
        self._loop: Loop | None = None
        self._is_heard = False

    def register(self, loop: Loop, listener: Listener) -> None:
        """Watch the connection, and the inbox where it is not watched yet."""
        self._loop, self._is_heard = loop, True
        loop.register(self._connection.fileno(), self._on_connection, select.EPOLLIN | select.EPOLLRDHUP)
        self._inbox.register(self, loop, listener)
        self.catch_up()

    def _on_connection(self, _: int) -> None:
        if not self.hear():
            self._leave_loop()
            self._inbox.outlive(self)

    def _leave_loop(self) -> None:
        if self._loop is not None:
            self._loop.unregister(self._connection.fileno())
            self._loop = None

    def _write_to(self, segment: RingSegment, producer: RingProducer) -> None:
        self._producer = producer
        self._epoch = segment.epoch
        self._image_max = segment.part_bytes_max - HEADER.size
        self._part_max = segment.part_bytes_max
        self.peer_wake = segment.wake_fileno()  # open as long as the producer holds the segment
        with contextlib.suppress(RingGone):  # its end is told by what is written next
            producer.check_peer()  # the descriptor for this look is had now, and not when memory and time are short

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Write rows into the peer's ring, or keep them until there is space; the bytes that both ends count."""
        codec = codec_of(batch.schema)
        if not self._waiting:
            try:
                size = _core.ring_send_batch(self._producer, edge, codec, batch, origin_ns)
            except (RingGone, RingRefused, RingFault) as error:
                raise self._gone(error) from error
            if size:
                self._frames += 1
                return size
        image = codec.prepare(batch)  # it is long, or has to wait
        if is_long(image):
            return sum(self.send_batch(edge, piece, origin_ns) for piece in cut(batch))
        return self.send_image(edge, image, origin_ns)

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

    def _keep(self, item: Image) -> None:
        """Let an image wait; it says later since when."""
        item.image.stamp()
        self._waiting.put(item)

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Write a watermark, an end, a credit or an epoch into the peer's ring, or keep it until there is space."""
        self._frames += 1
        if not self._waiting:
            try:
                if _core.ring_send_mark(self._producer, kind, edge, value):
                    return
            except (RingGone, RingRefused, RingFault) as error:
                raise self._gone(error) from error
        self._waiting.put(Mark(kind, edge, value))
        if len(self._waiting) == 1:
            self.flush()

    def flush(self) -> bool:
        """Write what waits; True when nothing waits any more."""
        is_done = self._write_waiting()
        (self._inbox.held_back.discard if is_done else self._inbox.held_back.add)(self)
        return is_done

    def write_again(self) -> None:
        """There may be space again; where the peer has gone its connection says so, after what it has published."""
        try:
            self.flush()
        except PeerGone:
            self.give_up_writing()

    def give_up_writing(self) -> None:
        """No peer will read what waits."""
        self._waiting.clear()
        self._ending = False
        self._inbox.held_back.discard(self)

    def _write_waiting(self) -> bool:
        asked = False
        while self._waiting:
            item = self._waiting[0]
            if self._try(item):
                self._waiting.take_first()
                asked = asked and not isinstance(item, Move)  # no space has been asked for in the next ring yet
            elif not asked:  # ask to be told, then look once more: the space may have come in between
                self._producer.notify_space()
                asked = True
            elif not self._take_offers():
                return False
        return self._flush_end()

    def _send_long(self, edge: int, image: PreparedImage, origin_ns: int) -> None:
        """A frame that is longer than one record may be goes in parts, which the peer puts together."""
        require_sendable(image)
        self._waiting.require_room(HEADER.size + image.size)
        for part in self._parts(edge, image, origin_ns):
            self._waiting.put(part)
        self.flush()

    def _parts(self, edge: int, image: PreparedImage, origin_ns: int) -> Iterator[Part]:
        whole = HEADER.size + image.size
        written = memoryview(bytearray(whole))
        written[: HEADER.size] = pack(Kind.DATA, edge, image.rows, origin_ns, image.size, time_ns())
        image.write_into(written[HEADER.size :])
        for at in range(0, whole, self._part_max):
            piece = written[at : at + self._part_max]
            yield Part(edge, piece, whole, at == 0, at + len(piece) == whole)

    def _try(self, item: Item) -> bool:
        try:
            match item:
                case Image(edge, image, value):
                    return _core.ring_send_image(self._producer, edge, image, value)
                case Mark(kind, edge, value):
                    return _core.ring_send_mark(self._producer, kind, edge, value)
                case Part(edge, piece, whole, is_first, is_last):
                    return self._producer.send_part(edge, piece, whole, first=is_first, last=is_last, timeout=0.0)
                case Move(segment, producer):
                    return self._move_to(segment, producer)
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
            self._said_end = True
        return True

    @property
    def wants_write(self) -> bool:
        """Whether something waits for space in the peer's ring."""
        return bool(self._waiting) or self._ending

    def say_goodbye(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        self._ending = True
        self.write_again()  # or nothing, where the peer has closed first

    # -- following the peer's inbox, when it grows -------------------------------------------------------------------

    def hear(self) -> bool:
        """Follow the peer's inbox where it has grown; False when the peer has gone."""
        with contextlib.suppress(PeerGone):  # its connection says so too
            if self._take_offers():
                self.flush()
        return not self._has_hung_up

    def _take_offers(self) -> bool:
        """Take the next ring that the peer offers; whether there was one that we move to."""
        self._has_hung_up = False
        for _ in range(OFFERS_PER_LOOK):
            try:
                segment = take(self._connection, self._epoch + 1)
                if self._said_end or self._closed is not None:
                    continue  # nothing more is written to either
                self._waiting.put_move(Move(segment, RingProducer(segment, self._inbox.worker)))
            except BlockingIOError:
                return False
            except (RingRefused, RingFault, RingGone, NoSharedMemory) as error:
                log.warning("worker %d stays with worker %d's former ring: %s", self._inbox.worker, self.peer, error)
            except OSError:
                self._has_hung_up = True
                return False
            else:
                return True
        return False

    def _move_to(self, segment: RingSegment, producer: RingProducer) -> bool:
        """Say in the ring so far that we go on in the next one; False where it has no space for that."""
        left = self._producer
        if not left.send_moved(0.0):
            return False
        counts = left.statistics()
        self._sent += counts["bytes"]
        self._blocked_ns += counts["blocked_ns"]
        self._inbox.wake_for_space(self.peer, segment.wake_fileno())  # before the descriptor that it had is closed
        self._write_to(segment, producer)
        left.close()
        return True

    # -- receiving ---------------------------------------------------------------------------------------------------

    @property
    def keeps(self) -> bool:
        """Whether frames from the inbox's newest ring come early for this peer, and stay with it."""
        return self._behind or not self._is_heard

    def keep(self, frame: RingFrame) -> None:
        """Let a frame wait until its turn comes."""
        self._early.append(frame)

    def moved(self) -> None:
        """Nothing more comes through the inbox's ring before this one: the peer has moved, ended or died."""
        self._behind = False
        self.catch_up()

    def catch_up(self) -> None:
        """Hand over what came early, if its turn has come."""
        if self._early and not self.keeps:
            early, self._early = self._early, []
            self._inbox.sort(early)

    def ended(self) -> None:
        """The peer has said that it sends no more."""
        self._ended = True
        self._behind = False  # nothing more comes through either ring

    @property
    def has_ended(self) -> bool:
        """Whether the peer has said that it sends no more."""
        return self._ended

    def invite(self, segment: RingSegment) -> None:
        """Offer our next ring to the peer, which writes to the one before until it says that it has moved."""
        if self._ended or self._has_hung_up:
            return  # it writes no more, and would not move
        self._behind = True
        self._inbox.wake_for_space(self.peer, self.peer_wake)
        try:
            offer(self._connection, segment)
        except ConnectionError:
            return  # it has gone, which its connection says too
        except OSError as error:  # it stays where it is
            log.warning(
                "worker %d could not be offered worker %d's next ring: %s", self.peer, self._inbox.worker, error
            )

    @property
    def is_behind(self) -> bool:
        """Whether the peer may still write to the inbox's ring before this one."""
        return self._behind

    # -- both ways ---------------------------------------------------------------------------------------------------

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        if self._closed is not None:
            return self._closed
        counts = self._producer.statistics()
        return ChannelStatistics(
            self._sent + counts["bytes"],
            self.bytes_received,
            self._frames,
            self._waiting.bytes,
            self._blocked_ns + counts["blocked_ns"],
        )

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        if self._closed is None:
            self._closed = self.statistics()
            self.give_up_writing()
            self._leave_loop()
            self._inbox.leave(self)
            self._producer.close()
            del self._producer  # and with it the peer's segment
            self._connection.close()

    def _gone(self, error: BaseException | None) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection" + (f": {error}" if error else ""), self.peer)
