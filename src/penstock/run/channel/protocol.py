"""Channel: the one face of every transport between two workers.

Sending never blocks: what the transport does not take at once waits in the channel, and edge credits bound how much
that can be. Frames of one sender arrive in the order in which they were sent, all of them, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.wire import Frame, Kind


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a channel has done and how long its sends were blocked (paper 002, section 3)."""

    bytes_sent: int
    bytes_received: int
    frames_sent: int
    bytes_waiting: int
    blocked_ns: int


class Channel(Protocol):
    """A duplex connection to one other worker."""

    peer: int

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the transport takes; the bytes that both ends count."""

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared, as those of a routed batch; the bytes that both ends count."""

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a watermark, an end, a credit or an epoch, and push out as much as the transport takes."""

    def receive(self) -> Sequence[Frame]:
        """Frames that have arrived; empty when there are none."""

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""

    def fileno(self) -> int:
        """The descriptor to poll."""

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the transport to take it."""

    def statistics(self) -> ChannelStatistics:
        """Counters since the channel was opened."""

    def end_sending(self) -> None:
        """Close our direction; the peer reads what was sent, then the end."""

    def close(self) -> None:
        """Give the connection up; what waits is lost."""


class PeerGone(ConnectionError):
    """The other end of a channel has closed or died; `worker` says which one, where that is known."""

    def __init__(self, message: str, worker: int | None = None) -> None:
        super().__init__(message)
        self.worker = worker
