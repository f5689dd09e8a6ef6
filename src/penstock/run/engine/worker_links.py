"""What a worker needs of its connections: the links of a real job, or those of a simulation."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.engine.worker_share import WorkerShare
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.protocol import ChannelStatistics
from penstock.run.transport.segment import inbox_bytes
from penstock.run.transport.tls.credentials import Credentials
from penstock.run.transport.wire import Frame, Kind


class WorkerLinks(Protocol):
    """Edges are the job's numbers here. Frames of one edge arrive in the order in which they were sent, once each."""

    @property
    def woken_ns(self) -> int:
        """When the last wait that had to wait was over, on the monotonic clock: what follows is work."""

    def watch(self, descriptor: int) -> None:
        """Wake `wait` also when this descriptor is readable."""

    def open(
        self, listener: socket.socket, workers: Sequence[WorkerPlace], key: bytes, listen: Callable[[], None]
    ) -> None:
        """Connect to every worker that shares an edge with this one; calls `listen` when a watched one is readable."""

    def add_edges(self, place: WorkerPlace, sends_to: Collection[int], hears_from: Collection[int]) -> None:
        """Edges to and from another worker, which is met if it is not known yet; `has_met` tells when."""

    def has_met(self, peer: int) -> bool:
        """Whether frames may be sent to this worker; OSError where it was to be met for new edges and cannot be."""

    def keep_new_peers(self) -> None:
        """Edges that were added are in use from now on."""

    def forget_new_peers(self) -> None:
        """Nothing comes of edges that were added, and that have been left: nor of meeting workers for them."""

    def leave_edges(self, edges: Collection[int]) -> None:
        """Nothing is sent along these edges any more, either way."""

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Send rows along an edge; how many bytes the receiver will count against its window."""

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Send rows whose image has been prepared; how many bytes the receiver will count against its window."""

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Send a watermark, an end, a credit or the end of a slice along an edge."""

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        """Frames that have arrived and whether a watched descriptor is readable, after at most `seconds`."""

    def say_goodbye(self, listen: Callable[[], None]) -> None:
        """Push out everything, and wait until every peer has done so."""

    def statistics(self) -> Mapping[int, tuple[str, ChannelStatistics]]:
        """Transport and counters of each connection, by worker."""

    def close(self) -> None:
        """Give every connection up."""


def real_links(share: WorkerShare, me: int, transport: str, credentials: Credentials | None) -> Links:
    """Rings and sockets to the workers with which this one shares edges."""
    edges = share.layout.edges
    sends_to = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].target is None}
    hears_from = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].source is None}
    windows = [edges[i].window for i in share.peer_of if edges[i].source is None]
    kind = Transport(transport, inbox_bytes(windows), credentials=credentials)
    return Links(me, share.numbers.end, sends_to, hears_from, kind)
