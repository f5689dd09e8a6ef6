"""Port: the one face that every transport shows to a worker's loop, for one connection to one other worker.

A port registers its descriptors with the loop and tells its listener what comes: frames, or that the peer has gone, as
data. So Links knows no transport by its type, and the worker's loop sees nothing but frames. Sending does not block:
what the transport does not take at once waits in the port, and edge credits bound it. One sender's frames arrive in
their order, all of them, once; tests/contract/test_channels.py holds every transport to this.

Rejected: a port for each transport with all its peers (each send would look its peer up a second time), and frames
fetched by the loop from each port (a ring is one descriptor for all). Decision: docs/decisions/0031-transport-port.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.transport.loop import Loop
from penstock.run.transport.wire import Frame, Kind


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """What a port has done and how long its sends were blocked (paper 002, section 3)."""

    bytes_sent: int
    bytes_received: int
    frames_sent: int
    bytes_waiting: int
    blocked_ns: int


class PeerGone(ConnectionError):
    """The other end of a connection has closed or died; `worker` says which one, where that is known."""

    def __init__(self, message: str, worker: int | None = None) -> None:
        super().__init__(message)
        self.worker = worker


class Listener(Protocol):
    """The receiver of what a port takes in."""

    def arrived(self, frames: Sequence[Frame]) -> None:
        """Frames of one or several peers have come, those of each in their order."""

    def gone(self, departure: PeerGone) -> None:
        """A peer sends no more: it has said goodbye, or has died. What came before has been told before."""


class Port(Protocol):
    """This worker's end of a connection to one other worker."""

    peer: int
    transport: str  # as statistics name it

    def register(self, loop: Loop, listener: Listener) -> None:
        """Watch the descriptors of this connection; from now on the listener is told what comes."""

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Queue rows and push out as much as the transport takes; the bytes that both ends count."""

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Queue rows whose image has been prepared, as those of a routed batch; the bytes that both ends count."""

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Queue a watermark, an end, a credit or an epoch, and push out as much as the transport takes."""

    def flush(self) -> bool:
        """Push out what waits; True when nothing waits any more."""

    @property
    def wants_write(self) -> bool:
        """Whether something waits for the transport to take it; False where the peer cannot read any more."""

    def say_goodbye(self) -> None:
        """Close our direction, behind everything that was sent; the peer's stays open."""

    def statistics(self) -> ChannelStatistics:
        """Counters since the connection was opened."""

    def close(self) -> None:
        """Give the connection up; what waits is lost."""
