"""Inbox: a worker's ring, into which every worker of its node writes, and the larger one that it leaves it for.

An inbox is sized from a hint and grows when the messages turn out to be larger (growth.py decides). Growing is a
switch-over, for a segment is sealed at its size:

    this worker   makes the next segment, an epoch on, with the same eventfd; offers it over the connections; reads both
    each peer     takes it, puts a `moved` mark behind its last record in the ring before, and writes to the next one
    this worker   keeps what a peer sent through the next ring until it has read that peer's mark, so that order holds
    this worker   gives the ring before up when every peer has moved, ended or died, and nothing in it is unread

A peer writes to the next ring only after its mark is published: one that dies on the way has written to one of the two,
or its mark can be read. A peer that has no memory for the next ring stays with the ring before, and both are read until
it ends. Where there is no memory for a next ring at all, nothing happens but a line in the log.

All peers connect before the first look: an inbox that has grown is refused by who calls for the first time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from collections import Counter
from itertools import chain

from penstock import _core
from penstock._core import ImageFault, NoSharedMemory, RingConsumer, RingFault, RingFrame, RingRefused, RingSegment
from penstock.run.channel.growth import GrowthLimits, Traffic, capacity_after, is_stale
from penstock.run.channel.ring import RingChannel
from penstock.run.channel.segment import exchange
from penstock.run.wire import BODY_BYTES_MAX, HEADER, WireFault

FRAMES_PER_LOOK = 256
OF_THE_MOMENT = ("pinned_bytes", "unfinished")  # of the rings that are read; not counters

log = logging.getLogger(__name__)


class Inbox:
    """A worker's ring, shared by the channels to all workers of its node."""

    def __init__(self, segment: RingSegment, worker: int, edges: int, limits: GrowthLimits | None = None) -> None:
        self.worker = worker
        self.segment = segment  # the one that peers write to, or are asked to
        self._edges = edges
        self._limits = limits or GrowthLimits()
        # Of our own: it is registered with epolls and outlives the segments that share it.
        self._wake = os.dup(segment.wake_fileno())
        self._consumer = _reader(segment)
        self._before: RingConsumer | None = None  # of the ring that some peer has not left yet
        self._channels: dict[int, RingChannel] = {}
        self._epoll: select.epoll | None = None
        self._closed = False
        self._growths = self._looks = 0
        self._seen = Traffic()  # when counting for the next growth began
        self._past = Counter[str]()  # what was counted in rings that have been given up
        self._consumer.arm()

    def connect(self, connection: socket.socket, peer: int) -> RingChannel:
        """A channel to the worker at the other end: both inboxes change hands over the connection."""
        theirs = exchange(connection, self.segment)
        channel = RingChannel(self, peer, connection, theirs)
        connection.setblocking(False)
        self._channels[peer] = channel
        self.wake_for_space(peer, theirs.wake_fileno())
        if self._epoll is not None:
            self._epoll.register(channel.connection_fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        return channel

    def wake_for_space(self, peer: int, wake: int) -> None:
        """Write this eventfd when space comes free for which the peer has asked; -1 for none."""
        for consumer in self._readers():
            consumer.wake_for_space(peer, wake)

    def wake_fileno(self) -> int:
        """Readable when something has come or space has come free; says nothing of dead peers."""
        return self._wake

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
        if self._before is not None:
            return self._look_at_both(self._before)
        consumer = self._consumer
        consumer.disarm()
        frames = self._take(consumer)
        for frame in frames:
            channel = self._channels.get(frame.producer)
            if channel is not None:
                channel.arrived(frame)
        if not consumer.arm():
            consumer.signal()
        self._looks += 1
        if self._looks >= self._limits.looks_between:
            self._consider()
        return len(frames) == FRAMES_PER_LOOK

    def _look_at_both(self, before: RingConsumer) -> bool:
        """The same while peers move. Both rings have one eventfd: it is read before either is armed again."""
        for consumer in (before, self._consumer):
            consumer.disarm()
        older, newer = self._take(before), self._take(self._consumer)
        for frame in older:
            if (channel := self._channels.get(frame.producer)) is not None:
                channel.follow() if frame.is_moved else channel.arrived(frame)
        for frame in newer:
            if (channel := self._channels.get(frame.producer)) is not None:
                channel.arrived_next(frame)
        if len(older) < FRAMES_PER_LOOK:
            self._give_up(before)
        for consumer in self._readers():
            if not consumer.arm():
                consumer.signal()
        return FRAMES_PER_LOOK in (len(older), len(newer))

    def _take(self, consumer: RingConsumer) -> list[RingFrame]:
        try:
            return _core.ring_take_frames(consumer, self._edges, FRAMES_PER_LOOK)
        except (ImageFault, RingFault) as error:
            msg = f"a worker of this machine wrote what is no frame into worker {self.worker}'s ring: {error}"
            raise WireFault(msg) from error

    def call_again(self) -> None:
        """Keep the descriptor readable: there is more to take."""
        self._consumer.signal()

    def settle(self) -> None:
        """Step over what dead workers left unfinished, and free their places."""
        for consumer in self._readers():
            consumer.departed()

    def statistics(self) -> dict[str, int]:
        """Counters of all rings that this inbox has had."""
        counted = Counter(self._past)
        for consumer in self._readers():
            counted.update(_added(consumer))
            now = consumer.statistics()
            counted.update({name: now[name] for name in OF_THE_MOMENT})
        return dict(counted)

    def leave(self, channel: RingChannel) -> None:
        """Forget a channel that is being closed."""
        if self._channels.pop(channel.peer, None) is not None and not self._closed:
            self.wake_for_space(channel.peer, -1)
            if self._epoll is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._epoll.unregister(channel.connection_fileno())

    def close(self) -> None:
        """Close the inbox; peers that write to it hear of it. Batches that are held stay readable."""
        if not self._closed:
            self._closed = True
            for consumer in self._readers():
                consumer.close()
            del self._consumer, self._before, self.segment  # what is held of them lives on
            os.close(self._wake)
            if self._epoll is not None:
                self._epoll.close()

    # -- growing -----------------------------------------------------------------------------------------------------

    def _consider(self) -> None:
        """Grow, if what has come since the last time says so."""
        self._looks = 0
        if self._growths >= self._limits.growths_max:
            return
        seen = Traffic.counted(self._consumer.statistics())
        traffic = seen.since(self._seen)
        if is_stale(traffic, self._limits):
            self._seen = seen
        capacity = capacity_after(traffic, self.segment.capacity, self._limits)
        if capacity > self.segment.capacity:
            self._grow(capacity, traffic)

    def _grow(self, capacity: int, traffic: Traffic) -> None:
        held = self.segment.capacity
        why = (
            f"messages of {traffic.message_bytes} bytes found no space {traffic.refusals} times"
            f" and went in {traffic.parts} parts"
        )
        try:
            segment = RingSegment(
                capacity, epoch=self.segment.epoch + 1, producers=self.segment.producers, wake=self._wake
            )
            consumer = _reader(segment)
        except (NoSharedMemory, RingRefused) as error:
            self._growths = self._limits.growths_max  # and is not tried again
            log.warning("worker %d's inbox stays at %d bytes although %s: %s", self.worker, held, why, error)
            return
        self._growths += 1
        log.info("worker %d's inbox grows from %d bytes to %d: %s", self.worker, held, segment.capacity, why)
        self._before, self._consumer, self.segment, self._seen = self._consumer, consumer, segment, Traffic()
        consumer.arm()
        for channel in self._channels.values():
            channel.invite(segment)

    def _give_up(self, before: RingConsumer) -> None:
        """Close the ring before, when nobody writes to it and nothing in it is unread."""
        if any(channel.is_behind for channel in self._channels.values()) or before.statistics()["unfinished"]:
            return
        self._past.update(_added(before))
        before.close()
        self._before = None

    def _readers(self) -> chain[RingConsumer]:
        return chain(() if self._before is None else (self._before,), (self._consumer,))


def _added(consumer: RingConsumer) -> Counter[str]:
    """The counters that can be added up over rings."""
    counted = Counter(consumer.statistics())
    for name in ("longest", *OF_THE_MOMENT):
        del counted[name]
    return counted


def _reader(segment: RingSegment) -> RingConsumer:
    return RingConsumer(segment, message_max=BODY_BYTES_MAX + HEADER.size)
