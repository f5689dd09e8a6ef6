"""Inbox: a worker's ring, into which every worker of its machine writes, and the larger one that it leaves it for.

An inbox is sized from a hint and grows when messages turn out to be larger (growth.py decides). A segment is sealed at
its size, so growing is a switch-over, which loses nothing wherever a peer dies (tests/fault/test_switch_faults.py):

    this worker   makes the next segment, an epoch on, with the same eventfd; offers it over the connections; reads both
    each peer     takes it, puts a `moved` mark behind its last record in the ring before, and writes to the next one
    this worker   keeps what a peer sent through the next ring until it has read that peer's mark, so that order holds
    this worker   gives the ring before up when every peer has moved, ended or died, and nothing in it is unread

A peer without memory for the next ring stays, and both are read until it ends. Decision: docs/decisions/0014-ring.md.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from penstock import _core
from penstock._core import ImageFault, NoSharedMemory, RingConsumer, RingFault, RingFrame, RingRefused, RingSegment
from penstock.run.transport.growth import GrowthLimits, Traffic, capacity_after, is_stale
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import Listener, PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.segment import offer, take
from penstock.run.transport.wire import BODY_BYTES_MAX, HEADER, WireFault

FRAMES_PER_LOOK = 256
OF_THE_MOMENT = ("pinned_bytes", "unfinished")  # of the rings that are read; not counters

log = logging.getLogger(__name__)


class Inbox:
    """A worker's ring, shared by the channels to all workers of its machine."""

    def __init__(self, segment: RingSegment, worker: int, edges: int, limits: GrowthLimits | None = None) -> None:
        self.worker = worker
        self.segment = segment  # the one that peers write to, or are asked to
        self.held_back: set[RingChannel] = set()  # channels that wait for space in their peer's ring
        self._edges = edges
        self._limits = limits or GrowthLimits()
        # Of our own: it is registered with the loop and outlives the segments that share it.
        self._wake = os.dup(segment.wake_fileno())
        self._consumer = _reader(segment)
        self._before: RingConsumer | None = None  # of the ring that some peer has not left yet
        self._channels: dict[int, RingChannel] = {}
        self._unheard: set[RingChannel] = set()  # made, and not registered yet
        self._loop: Loop | None = None
        self._listener: Listener | None = None
        self._closed = False
        self._offers = 0  # to newcomers that have no channel yet
        self._growths = self._looks = 0
        self._seen = Traffic()  # when counting for the next growth began
        self._past = Counter[str]()  # what was counted in rings that have been given up
        self._consumer.arm()

    # -- newcomers ---------------------------------------------------------------------------------------------------

    def offer_to(self, connection: socket.socket) -> None:
        """Offer the inbox to a newcomer; it does not grow until `offer_is_over`."""
        self._offers += 1
        offer(connection, self.segment)

    def offer_is_over(self) -> None:
        """The newcomer has a channel, or never will."""
        self._offers -= 1

    def connect(self, connection: socket.socket, peer: int) -> RingChannel:
        """A channel to the worker at the other end, whose inbox is taken; BlockingIOError where it is still to come."""
        theirs = take(connection, None)
        channel = RingChannel(self, peer, connection, theirs)
        connection.setblocking(False)
        self._channels[peer] = channel
        self._unheard.add(channel)
        self.wake_for_space(peer, theirs.wake_fileno())
        return channel

    def register(self, channel: RingChannel, loop: Loop, listener: Listener) -> None:
        """Tell the listener what comes from this peer, too."""
        self._unheard.discard(channel)
        if self._loop is None:
            self._loop, self._listener = loop, listener
            loop.register(self._wake, self._on_wake)
            loop.regularly(self._look_anyway)

    def wake_for_space(self, peer: int, wake: int) -> None:
        """Write this eventfd when space comes free for which the peer has asked; -1 for none."""
        for consumer in self._readers():
            consumer.wake_for_space(peer, wake)

    def wake_fileno(self) -> int:
        """Readable when something has come or space has come free; says nothing of dead peers."""
        return self._wake

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _on_wake(self, _: int) -> None:
        self.look()

    def _look_anyway(self) -> None:
        """Look, whatever else there was to hear and however busy this worker is.

        A peer that was stopped between taking our flag down and calling us keeps the others from calling, too.
        """
        self.look()

    def look(self) -> bool:
        """Tell of what has arrived, write what waited for space; whether there may be more, and the eventfd says so."""
        if self._closed:
            return False
        more = self._look_at_one() if self._before is None else self._look_at_both(self._before)
        if self.held_back:
            for channel in tuple(self.held_back):
                channel.write_again()
        return more

    def _look_at_one(self) -> bool:
        consumer = self._consumer
        consumer.disarm()
        frames = self._take(consumer)
        self.sort(frames if not self._unheard else self._not_early(frames))
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
        self._sort_older(older)
        self.sort(self._not_early(newer))
        if len(older) < FRAMES_PER_LOOK:
            self._give_up(before)
        for consumer in self._readers():
            if not consumer.arm():
                consumer.signal()
        return FRAMES_PER_LOOK in (len(older), len(newer))

    def sort(self, frames: Sequence[RingFrame]) -> None:
        """Tell the listener of frames and ends whose turn has come."""
        channels, arrived = self._channels, []
        for frame in frames:
            channel = channels.get(frame.producer)
            if channel is None:
                continue  # of one that has been closed here
            if frame.is_end:
                self._end(channel)
            else:
                channel.bytes_received += frame.bytes
                arrived.append(frame)
        if arrived and self._listener is not None:
            self._listener.arrived(arrived)

    def _sort_older(self, frames: Sequence[RingFrame]) -> None:
        """Frames of the ring before; a peer's mark in it lets in what came early through the next one."""
        begun = 0
        for at, frame in enumerate(frames):
            if frame.is_moved:
                self.sort(frames[begun:at])
                begun = at + 1
                if (channel := self._channels.get(frame.producer)) is not None:
                    channel.moved()
        self.sort(frames[begun:])

    def _not_early(self, frames: Sequence[RingFrame]) -> list[RingFrame]:
        """Those whose turn has come; the others stay with their channels."""
        now = []
        for frame in frames:
            channel = self._channels.get(frame.producer)
            if channel is not None and channel.keeps:
                channel.keep(frame)
            else:
                now.append(frame)
        return now

    def _end(self, channel: RingChannel) -> None:
        channel.ended()
        if self._listener is not None:
            self._listener.gone(PeerGone(f"worker {channel.peer} has said goodbye", channel.peer))

    def outlive(self, channel: RingChannel) -> None:
        """A peer has gone; what it wrote before still counts."""
        channel.give_up_writing()
        self.settle()
        while self.look():
            pass  # at most a ring's worth: the writer is gone, and others wait for space
        channel.moved()
        if not channel.has_ended and self._listener is not None:
            self._listener.gone(PeerGone(f"worker {channel.peer} closed its connection", channel.peer))

    def _take(self, consumer: RingConsumer) -> list[RingFrame]:
        try:
            return _core.ring_take_frames(consumer, self._edges, FRAMES_PER_LOOK)
        except (ImageFault, RingFault) as error:
            msg = f"a worker of this machine wrote what is no frame into worker {self.worker}'s ring: {error}"
            raise WireFault(msg) from error

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
        """Forget a channel that is being closed; a successor of its peer does not inherit what that one wrote."""
        self._unheard.discard(channel)
        if self._channels.get(channel.peer) is channel and not self._closed:
            del self._channels[channel.peer]
            for consumer in self._readers():
                consumer.wake_for_space(channel.peer, -1)
                consumer.revoke(channel.peer)

    def close(self) -> None:
        """Close the inbox; peers that write to it hear of it. Batches that are held stay readable."""
        if not self._closed:
            self._closed = True
            for consumer in self._readers():
                consumer.close()
            del self._consumer, self._before, self.segment  # what is held of them lives on
            if self._loop is not None:
                self._loop.unregister(self._wake)
            os.close(self._wake)

    # -- growing -----------------------------------------------------------------------------------------------------

    def _consider(self) -> None:
        """Grow, if what has come since the last time says so."""
        self._looks = 0
        if self._growths >= self._limits.growths_max or self._offers:
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
        """Close the ring before, when no peer writes to it and nothing in it is unread."""
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
