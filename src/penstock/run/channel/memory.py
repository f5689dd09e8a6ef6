"""Channels inside one process: one that passes frames by reference, one that passes bytes without a kernel.

InProcessChannel joins two workers that are threads of one process: images are handed over as they were prepared, and
written when the reader opens them. MemoryChannel is a byte stream like a socket, with a bounded pipe and the same
framing, but moves only when it is told to; it is for tests and simulation. Both keep the contract of every channel
(tests/contract/test_channels.py): what is true of them in a test is true of the others in a job.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock._core import ImageCodec, PreparedImage
from penstock.run.channel.protocol import ChannelStatistics, PeerGone
from penstock.run.wire import HEADER, BufferFrame, Frame, Kind, codec_of, pack, unpack


class Bell:
    """A descriptor that is readable while it rings."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self, *, rings: bool) -> None:
        """Make the descriptor readable, or not."""
        if rings:
            os.eventfd_write(self._descriptor, 1)
        else:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._descriptor

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


class Way:
    """One direction of a connection: a bounded queue of frames or bytes, and what its two ends have said."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.items: deque[tuple[Frame | bytes, int]] = deque()  # and the bytes that each counts for
        self.held = 0
        self.ended = False  # the writer sends no more
        self.deserted = False  # the reader has left

    def takes(self, size: int) -> bool:
        """Whether so many bytes may go in; one too large for the way goes when it is empty."""
        return self.held == 0 or self.held + size <= self.capacity

    def put(self, item: Frame | bytes, size: int) -> None:
        """Append; the caller has asked `takes`."""
        self.items.append((item, size))
        self.held += size

    def take_all(self) -> list[Frame | bytes]:
        """Everything that is on the way."""
        taken = [item for item, _ in self.items]
        self.items.clear()
        self.held = 0
        return taken


class _Channel:
    """What both channels share: two ways, a lock between threads, a bell at each end."""

    def __init__(self, peer: int, out: Way, into: Way, lock: threading.Lock) -> None:
        self.peer = peer
        self.bell = Bell()
        self.other: _Channel | None = None
        self._out, self._in, self._lock = out, into, lock
        self._waiting: deque[tuple[Frame | bytes, int]] = deque()
        self._waiting_bytes = self._sent = self._received = self._frames = self._blocked_ns = 0
        self._blocked_since_ns: int | None = None
        self._ending = self._closed = False

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""
        with self._lock:
            if self._out.deserted:
                self._waiting.clear()
                raise self._gone()
            while self._waiting and self._out.takes(self._waiting[0][1]):
                item, size = self._waiting.popleft()
                self._out.put(item, size)
                self._waiting_bytes -= size
                self._sent += size
            self._meter()
            if self._ending and not self._waiting:
                self._out.ended = True
            self._announce()
            return not self._waiting

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self.bell.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the other end to read."""
        return bool(self._waiting)

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""
        running = 0 if self._blocked_since_ns is None else time.monotonic_ns() - self._blocked_since_ns
        return ChannelStatistics(
            self._sent, self._received, self._frames, self._waiting_bytes, self._blocked_ns + running
        )

    def end_sending(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""
        self._ending = True
        if not self._out.deserted:
            self.flush()

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
        if self._closed:
            return
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._out.ended = self._in.deserted = True
            self._announce()
            self.bell.close()

    def _take(self) -> list[Frame | bytes]:
        with self._lock:
            items = self._in.take_all()
            self.bell.ring(rings=False)
            if not items and self._in.ended:
                raise self._gone()
            if self._in.ended:
                self.bell.ring(rings=True)  # the end is still to be read
            self._announce()  # there is space again
            return items

    def _announce(self) -> None:
        if self.other is not None and not self.other._closed:
            self.other.bell.ring(rings=True)

    def _meter(self) -> None:
        if self._waiting and self._blocked_since_ns is None:
            self._blocked_since_ns = time.monotonic_ns()
        elif not self._waiting and self._blocked_since_ns is not None:
            self._blocked_ns += time.monotonic_ns() - self._blocked_since_ns
            self._blocked_since_ns = None

    def _gone(self) -> PeerGone:
        return PeerGone(f"worker {self.peer} closed its connection", self.peer)


@dataclass(frozen=True, slots=True)
class HandedFrame:
    """A frame whose image has been prepared by one thread and is written by the one that opens it."""

    kind: int
    edge: int
    rows: int
    value: int
    image: PreparedImage | None = None

    @property
    def size(self) -> int:
        """Bytes of the image; 0 for all but data."""
        return 0 if self.image is None else self.image.size

    def open(self, codec: ImageCodec, /) -> pa.RecordBatch:
        """The batch, in memory of its own."""
        if self.image is None:
            msg = f"a frame of kind {self.kind} holds no image"
            raise ValueError(msg)
        return self.image.open(codec)


class InProcessChannel(_Channel):
    """Frames by reference between two threads of one process."""

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the other end has room for; the bytes that both ends count."""
        return self.send_image(edge, codec_of(batch.schema).prepare(batch), origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        self._send(HandedFrame(Kind.DATA, edge, image.rows, origin_ns, image))
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a frame without a body and push out as much as the other end has room for."""
        self._send(HandedFrame(kind, edge, 0, value))

    def _send(self, frame: HandedFrame) -> None:
        size = HEADER.size + frame.size
        self._waiting.append((frame, size))
        self._waiting_bytes += size
        self._frames += 1
        self.flush()

    def receive(self) -> list[Frame]:
        """Frames that have arrived; empty when there are none."""
        frames = [item for item in self._take() if isinstance(item, HandedFrame)]
        self._received += sum(HEADER.size + frame.size for frame in frames)
        return list(frames)


class MemoryChannel(_Channel):
    """Bytes through a bounded pipe, cut wherever the pipe is full, and framed as on a socket."""

    CUT = 4096

    def __init__(self, peer: int, out: Way, into: Way, lock: threading.Lock, edges: int = 1 << 30) -> None:
        super().__init__(peer, out, into, lock)
        self._edges = edges
        self._unread = bytearray()

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the pipe takes; the bytes that both ends count."""
        return self.send_image(edge, codec_of(batch.schema).prepare(batch), origin_ns)

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared; the bytes that both ends count."""
        body = bytearray(image.size)
        image.write_into(body)
        self._send(pack(Kind.DATA, edge, image.rows, origin_ns, image.size) + body)
        return image.size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a frame without a body and push out as much as the pipe takes."""
        self._send(pack(kind, edge, value=value))

    def _send(self, data: bytes) -> None:
        for at in range(0, len(data), self.CUT):
            piece = data[at : at + self.CUT]
            self._waiting.append((piece, len(piece)))
        self._waiting_bytes += len(data)
        self._frames += 1
        self.flush()

    def receive(self) -> list[Frame]:
        """Frames that the bytes which have arrived complete."""
        for item in self._take():
            if isinstance(item, bytes):
                self._received += len(item)
                self._unread += item
        return list(self._complete())

    def _complete(self) -> Iterator[BufferFrame]:
        at = 0
        while len(self._unread) - at >= HEADER.size:
            end = at + HEADER.size + HEADER.unpack_from(self._unread, at)[0]
            head, body = self._unread[at : at + HEADER.size], self._unread[at + HEADER.size : end]
            if end > len(self._unread):
                break
            yield unpack(head, pa.py_buffer(bytes(body)), self._edges)
            at = end
        del self._unread[:at]


def in_process_pair(first: int, second: int, capacity: int = 1 << 20) -> tuple[InProcessChannel, InProcessChannel]:
    """Two ends between workers of these numbers; the end at `first` speaks to `second`."""
    lock, there, back = threading.Lock(), Way(capacity), Way(capacity)
    ends = InProcessChannel(second, there, back, lock), InProcessChannel(first, back, there, lock)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends


def memory_pair(first: int, second: int, capacity: int = 1 << 20) -> tuple[MemoryChannel, MemoryChannel]:
    """Two ends of a byte stream between workers of these numbers."""
    lock, there, back = threading.Lock(), Way(capacity), Way(capacity)
    ends = MemoryChannel(second, there, back, lock), MemoryChannel(first, back, there, lock)
    ends[0].other, ends[1].other = ends[1], ends[0]
    return ends
