"""The ring as a transport of the benchmark: bytes, and Arrow batches as images."""

from __future__ import annotations

import os
from typing import Any

from penstock._core import RingConsumer, RingProducer, RingRecord, RingSegment
from penstock.bench.ipc_cases import Case

RING_BYTES_MIN, RING_BYTES_MAX = 1 << 20, 4 << 20
MESSAGES_AIMED_AT = 64  # the paper finds 50 to 100


def ring_bytes(case: Case) -> int:
    """As many messages as the case asks for, else as many as the paper advises within what caches hold."""
    if case.ring_messages:
        return case.ring_messages * case.size
    return max(RING_BYTES_MIN, min(RING_BYTES_MAX, MESSAGES_AIMED_AT * case.size))


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

    def send(self, message: bytearray) -> None:
        """The one copy into the ring."""
        self._producer.send(0, message)

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


__all__ = ["RingLink", "RingReceiver", "RingRecord", "RingSender", "ring_bytes"]
