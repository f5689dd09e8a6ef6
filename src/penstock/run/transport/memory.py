"""InProcessChannel: the port between two workers that are threads of one process; frames go by reference.

Images are handed over as they were prepared, and written when the reader opens them. It is for tests and simulation,
and keeps the contract of every port (tests/contract/test_channels.py): what is true of it in a test is true of the
others in a job. Rejected: a second one that passes bytes through a pipe in memory; a socket pair does the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from penstock._core import ImageCodec, PreparedImage
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import ChannelStatistics, Listener, PeerGone
from penstock.run.transport.wire import HEADER, Kind, codec_of


@dataclass(frozen=True, slots=True)
class HandedFrame:
    """A frame whose image has been prepared by one thread and is written by the one that opens it."""

    kind: int
    edge: int
    rows: int
    value: int
    image: PreparedImage | None = None
    sent_ns: int = 0

    @property
    def size(self) -> int:
        """Bytes of the image; 0 for all but data."""
        return 0 if self.image is None else self.image.size

    @property
    def bytes(self) -> int:
        """What it counts for on its way."""
        return HEADER.size + self.size

    def open(self, codec: ImageCodec, /) -> pa.RecordBatch:
        """The batch, in memory of its own."""
        if self.image is None:
            msg = f"a frame of kind {self.kind} holds no image"
            raise ValueError(msg)
        return self.image.open(codec)


class Bell:
    """A descriptor that is readable while it rings."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self._descriptor, 1)

    def hush(self) -> None:
        """Make the descriptor unreadable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class Way:
    """One direction of a connection: a bounded queue of frames, and what its two ends have said."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.frames: deque[HandedFrame] = deque()
        self.held = 0
        self.ended = False  # the writer sends no more
        self.deserted = False  # the reader has left

    def takes(self, frame: HandedFrame) -> bool:
        """Whether a frame may go in; one too large for the way goes when it is empty."""
        return self.held == 0 or self.held + frame.bytes <= self.capacity

    def put(self, frame: HandedFrame) -> None:
        """Append; the caller has asked `takes`."""
        self.frames.append(frame)
        self.held += frame.bytes

    def take_all(self) -> list[HandedFrame]:
        """Everything that is on the way."""
        taken = list(self.frames)
        self.frames.clear()
        self.held = 0
        return taken


class InProcessChannel:
    """One end of a connection between two threads of one process."""

    transport = "memory"

    def __init__(self, peer: int, out: Way, into: Way, lock: threading.Lock) -> None:
        self.peer = peer
        self.other: InProcessChannel | None = None
        self._bell = Bell()
        self._out, self._in, self._lock = out, into, lock
        self._waiting: deque[HandedFrame] = deque()
        self._waiting_bytes = self._sent = self._received = self._frames = self._blocked_ns = 0
        self._blocked_since_ns: int | None = None
        self._ending = self._closed = False
        self._loop: Loop | None = None
        self._listener: Listener | None = None

    def register(self, loop: Loop, listener: Listener) -> None:
        """Watch the bell."""
        self._loop, self._listener = loop, listener
        loop.register(self._bell.fileno(), self._on_bell)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the other end has room for; the bytes that both ends count."""
        return self.send_image(edge, codec_of(batch.schema).prepare(batch), origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        self._send(HandedFrame(Kind.DATA, edge, image.rows, origin_ns, image, time.time_ns()))
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a frame without a body and push out as much as the other end has room for."""
        self._send(HandedFrame(kind, edge, 0, value))

    def _send(self, frame: HandedFrame) -> None:
        self._waiting.append(frame)
        self._waiting_bytes += frame.bytes
        self._frames += 1
        self.flush()

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        with self._lock:
            if self._out.deserted:
                self._give_up_writing()
                raise self._gone()
            while self._waiting and self._out.takes(self._waiting[0]):
                frame = self._waiting.popleft()
                self._out.put(frame)
                self._waiting_bytes -= frame.bytes
                self._sent += frame.bytes
            self._meter()
            self._out.ended = self._out.ended or (self._ending and not self._waiting)
            self._announce()
            return not self._waiting

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the other end to read."""
        return bool(self._waiting)

    def say_goodbye(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        self._ending = True
        with contextlib.suppress(PeerGone):  # the peer may have closed first
            self.flush()

    def _give_up_writing(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _on_bell(self, _: int) -> None:
        if self._listener is None:
            return
        with self._lock:
            self._bell.hush()
            frames, ended = self._in.take_all(), self._in.ended
            if frames:
                self._announce()  # there is space again
        self._received += sum(frame.bytes for frame in frames)
        self._listener.arrived(frames)
        if self._waiting:
            with contextlib.suppress(PeerGone):  # its end says so too
                self.flush()
        if ended:
            self._leave_loop()
            self._listener.gone(self._gone())

    def _leave_loop(self) -> None:
        if self._loop is not None:
            self._loop.unregister(self._bell.fileno())
            self._loop = None

    # -- both ways ---------------------------------------------------------------------------------------------------

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        running = 0 if self._blocked_since_ns is None else time.monotonic_ns() - self._blocked_since_ns
        return ChannelStatistics(
            self._sent, self._received, self._frames, self._waiting_bytes, self._blocked_ns + running
        )

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        if self._closed:
            return
        self._leave_loop()
        with self._lock:
            self._closed = True
            self._give_up_writing()
            self._out.ended = self._in.deserted = True
            self._announce()
            self._bell.close()

    def _announce(self) -> None:
        if self.other is not None and not self.other._closed:
            self.other._bell.ring()

    def _meter(self) -> None:
        if self._waiting and self._blocked_since_ns is None:
            self._blocked_since_ns = time.monotonic_ns()
        elif not self._waiting and self._blocked_since_ns is not None:
            self._blocked_ns += time.monotonic_ns() - self._blocked_since_ns
            self._blocked_since_ns = None

    def _gone(self) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection", self.peer)


def in_process_pair(first: int, second: int, capacity: int = 1 << 20) -> tuple[InProcessChannel, InProcessChannel]:
    """Two ends between workers of these numbers; the end at `first` speaks to `second`."""
    lock, there, back = threading.Lock(), Way(capacity), Way(capacity)
    ends = InProcessChannel(second, there, back, lock), InProcessChannel(first, back, there, lock)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends
