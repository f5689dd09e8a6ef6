"""Links: one worker's connections to the others, and the one place where it waits.

Which edge goes to which worker is data; channels, descriptors and epoll stay in here. A peer that closes before it has
ended every edge it feeds has died, and that is PeerGone; one that closes afterwards has said goodbye.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.channel.protocol import Channel, ChannelStatistics, PeerGone
from penstock.run.channel.socket import SocketChannel, accept, connect
from penstock.run.wire import Frame, Kind

CONNECT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """Where a worker runs and listens."""

    index: int
    node: str
    host: str
    port: int


class Links:
    """Connections of worker `me`; edges are job-wide numbers here."""

    def __init__(self, me: int, edges: int, sends_to: Mapping[int, int], hears_from: Mapping[int, int]) -> None:
        self._me = me
        self._edges = edges
        self._peer_of = {**sends_to, **hears_from}  # edge -> worker at its other end
        self._ends_due = Counter(hears_from.values())  # worker -> edges from it that have not ended
        self._channels: dict[int, Channel] = {}  # by worker
        self._by_descriptor: dict[int, Channel] = {}
        self._gone: set[int] = set()
        self._epoll = select.epoll()
        self._watched: set[int] = set()  # descriptors that the worker itself wants to hear of

    def open(self, listener: socket.socket, workers: Sequence[WorkerPlace], key: bytes) -> None:
        """Connect to every worker that shares an edge with this one; of two, the lower number calls."""
        peers = set(self._peer_of.values())
        for peer in sorted(p for p in peers if p > self._me):
            place = workers[peer]
            self._add(peer, connect((place.host, place.port), self._me, peer, key))
        expected = {p for p in peers if p < self._me}
        deadline = time.monotonic() + CONNECT_SECONDS
        while expected:
            listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                accepted = accept(listener, self._me, key)
            except TimeoutError:
                msg = (
                    f"worker {self._me} waited {CONNECT_SECONDS:g} s in vain for workers {sorted(expected)} to connect"
                )
                raise PeerGone(msg) from None
            if accepted is None:
                continue
            connection, peer = accepted
            if peer in expected:
                expected.discard(peer)
                self._add(peer, connection)
            else:
                connection.close()

    def _add(self, peer: int, connection: socket.socket) -> None:
        channel = SocketChannel(connection, peer, self._edges)
        self._channels[peer] = channel
        self._by_descriptor[channel.fileno()] = channel
        self._epoll.register(channel.fileno(), select.EPOLLIN)

    def watch(self, descriptor: int) -> None:
        """Wake `wait` also when this descriptor is readable."""
        self._watched.add(descriptor)
        self._epoll.register(descriptor, select.EPOLLIN)

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Send rows along an edge; how many bytes the receiver will count against its window."""
        channel = self._channels[self._peer_of[edge]]
        waited = channel.wants_write
        size = channel.send_batch(edge, batch, origin_ns)
        self._watch_writes(channel, waited)
        return size

    def send_image(self, edge: int, image: PreparedImage, origin_ns: int) -> int:
        """Send rows whose image has been prepared; how many bytes the receiver will count against its window."""
        channel = self._channels[self._peer_of[edge]]
        waited = channel.wants_write
        size = channel.send_image(edge, image, origin_ns)
        self._watch_writes(channel, waited)
        return size

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Send a watermark, an end or a credit along an edge."""
        channel = self._channels[self._peer_of[edge]]
        if channel.peer in self._gone:
            return  # only credits are left to send to a worker that has said goodbye
        waited = channel.wants_write
        channel.send_mark(kind, edge, value)
        self._watch_writes(channel, waited)

    def _watch_writes(self, channel: Channel, waited: bool) -> None:
        if channel.wants_write and not waited:
            self._epoll.modify(channel.fileno(), select.EPOLLIN | select.EPOLLOUT)

    def wait(self, seconds: float) -> tuple[list[Frame], bool]:
        """Frames that have arrived and whether a watched descriptor is readable, after at most so many seconds."""
        frames: list[Frame] = []
        called = False
        for descriptor, event in self._epoll.poll(seconds):
            if descriptor in self._watched:
                called = True
                continue
            channel = self._by_descriptor[descriptor]
            if event & select.EPOLLOUT and channel.flush():
                self._epoll.modify(descriptor, select.EPOLLIN)
            if event & ~select.EPOLLOUT:
                self._receive(channel, frames)
        return frames, called

    def _receive(self, channel: Channel, frames: list[Frame]) -> None:
        try:
            arrived = channel.receive()
        except PeerGone:
            if self._ends_due[channel.peer]:
                raise
            self._gone.add(channel.peer)
            self._epoll.unregister(channel.fileno())
            return
        for frame in arrived:
            if frame.kind == Kind.END:
                self._ends_due[channel.peer] -= 1
        frames += arrived

    def say_goodbye(self) -> None:
        """Push out everything, close our direction, and wait until every peer has closed its own.

        A connection closed with unread bytes resets the peer's, and with it the last frames that the peer has not
        read yet; so both directions end in order.
        """
        for channel in self._channels.values():
            while channel.peer not in self._gone and not channel.flush():
                self.wait(0.1)
            channel.end_sending()
        while len(self._gone) < len(self._channels):
            self.wait(1.0)

    def statistics(self) -> dict[int, ChannelStatistics]:
        """Counters of each connection, by worker."""
        return {peer: channel.statistics() for peer, channel in self._channels.items()}

    def close(self) -> None:
        """Give every connection up."""
        for channel in self._channels.values():
            channel.close()
        self._epoll.close()
