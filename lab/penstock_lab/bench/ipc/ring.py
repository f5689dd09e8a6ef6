"""The ring as a transport of the benchmark: bytes, and Arrow batches as images."""

from __future__ import annotations

import functools
import os
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock._core import ImageCodec, RingConsumer, RingProducer, RingSegment
from penstock.errors import InvalidInput
from penstock_lab.bench.ipc.cases import Case

RING_BYTES_MIN, RING_BYTES_MAX = 1 << 20, 4 << 20
MESSAGES_AIMED_AT = 64  # the paper finds 50 to 100
MESSAGES_MIN = 6  # a record may take a quarter of the ring at most


def ring_bytes(case: Case) -> int:
    """The size that the case asks for, else room for the paper's number of messages within what caches hold."""
    if case.ring_bytes:
        return case.ring_bytes
    return max(RING_BYTES_MIN, min(RING_BYTES_MAX, MESSAGES_AIMED_AT * case.size), MESSAGES_MIN * case.size)


class RingLink:
    """An inbox ring; producers attach to it by the descriptors that they inherit."""

    def __init__(self, case: Case) -> None:
        self._segment = RingSegment(ring_bytes(case))

    def sender(self) -> RingSender:
        """A producer under the number of its process."""
        return RingSender(RingSegment.attach(self._segment.fileno(), self._segment.wake_fileno()))

    def receiver(self) -> RingReceiver:
        """The consumer."""
        return RingReceiver(self._segment)


class RingSender:
    """Reserve, copy, publish."""

    def __init__(self, segment: RingSegment) -> None:
        self._producer = RingProducer(segment, os.getpid())
        self.send: Any = functools.partial(self._producer.send, 0)  # as bare as the sockets' own

    def close(self) -> None:
        """Leave in good order."""
        self._producer.close()


class RingReceiver:
    """Records read in place."""

    def __init__(self, segment: RingSegment) -> None:
        self._consumer = RingConsumer(segment)
        self.receive: Any = self._consumer.next

    def close(self) -> None:
        """Producers that still wait are told."""
        self._consumer.close()


class ArrowRingLink(RingLink):
    """Batches as frames, by the calls with which workers send and open them: one copy, read in place."""

    def sender(self) -> ArrowRingSender:
        """A producer of batches."""
        return ArrowRingSender(RingSegment.attach(self._segment.fileno(), self._segment.wake_fileno()))

    def receiver(self) -> ArrowRingReceiver:
        """The consumer."""
        return ArrowRingReceiver(self._segment)


class ArrowRingSender(RingSender):
    """Lay the image out, reserve, write it, publish."""

    def __init__(self, segment: RingSegment) -> None:
        super().__init__(segment)
        producer, codec, send_batch = self._producer, _codec(), _core.ring_send_batch

        def send(batch: pa.RecordBatch) -> None:
            if not send_batch(producer, 0, codec, batch, 0, None):
                msg = f"a batch of {batch.nbytes} bytes is too long for one record of the ring; ask for a larger ring"
                raise InvalidInput(msg)

        self.send = send


class ArrowRingReceiver(RingReceiver):
    """Batches whose columns lie in the ring."""

    def __init__(self, segment: RingSegment) -> None:
        super().__init__(segment)
        consumer, codec, following = self._consumer, _codec(), _core.ring_next_frame
        self.receive = lambda: following(consumer, 1).open(codec)  # type: ignore[union-attr] # it waits without a limit


def _codec() -> ImageCodec:
    from penstock_lab.bench.ipc.arrow import SCHEMA

    return ImageCodec(SCHEMA.__arrow_c_schema__(), SCHEMA)
