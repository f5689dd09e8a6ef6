"""A producer is killed at each step of its move to a larger ring: all that it published arrives, once and in order.

What is published is counted in memory that both processes share, at the call that publishes; a second producer lives on
and has everything delivered, and the ring before is given up.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from penstock import _core
from penstock._core import RingSegment
from penstock.run.transport import ring
from penstock.run.transport.growth import GrowthLimits, Traffic
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.wire import Frame

POINTS = ("next_taken", "moved", "first_in_next", "third_in_next", "parts_under_way")
SMALL, LARGE = 16 * 1024, 256 * 1024
VICTIM, HEALTHY = 1, 2
FRAMES = 120  # of the healthy one
REPEATS = 25
NEVER = GrowthLimits(growths_max=0)
PATIENCE_SECONDS = 60.0
pytestmark = pytest.mark.xdist_group("ring-faults")


def batch_of(number: int, point: str) -> pa.RecordBatch:
    long = number % 9 == 4
    size = 1000 + number % 7 if not long else 9_000 if point != "parts_under_way" else 70_000  # in parts in either ring
    return pa.record_batch({"x": pa.array([bytes([number % 251]) * size], pa.binary())})


class Ledger:
    """How many frames each worker has published."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def count(self, worker: int) -> None:
        struct.pack_into("<Q", self._memory, 8 * worker, self[worker] + 1)

    def __getitem__(self, worker: int) -> int:
        return int(struct.unpack_from("<Q", self._memory, 8 * worker)[0])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def count_and_die(ledger: Ledger, worker: int, point: str) -> None:
    """Wrap what publishes, in this process: it counts, and dies at the point."""
    send_parts, take, move_to = RingChannel._try, ring.take, RingChannel._move_to
    in_next = [-1]  # frames written to the next ring; none before the move

    def counted(send: Callable[..., int]) -> Callable[..., int]:
        def sends(*words: object) -> int:
            taken = send(*words)
            if taken:
                ledger.count(worker)
                in_next[0] += in_next[0] >= 0
            if in_next[0] == {"first_in_next": 1, "third_in_next": 3}.get(point):
                die()
            return taken

        return sends

    def tried(channel: RingChannel, item: ring.Item) -> bool:
        written = send_parts(channel, item)
        if isinstance(item, ring.Part) and written and item.is_last:
            ledger.count(worker)
        elif isinstance(item, ring.Part) and written and in_next[0] >= 0 and point == "parts_under_way":
            die()
        return written

    def taken(*words: object) -> RingSegment:
        segment = take(*words)  # type: ignore[arg-type]
        if point == "next_taken":
            die()
        return segment

    def moved(*words: object) -> bool:
        has_moved = move_to(*words)  # type: ignore[arg-type]
        if has_moved and point == "moved":
            die()
        in_next[0] = max(in_next[0], 0) if has_moved else in_next[0]
        return has_moved

    _core.ring_send_image = counted(_core.ring_send_image)  # type: ignore[assignment]
    _core.ring_send_batch = counted(_core.ring_send_batch)  # type: ignore[assignment]
    RingChannel._try = tried  # type: ignore[method-assign]
    ring.take = taken  # type: ignore[assignment]
    RingChannel._move_to = moved  # type: ignore[method-assign]


class Heard:
    """What the ports of a worker tell: the numbers of the frames on each edge, and who has gone."""

    def __init__(self) -> None:
        self.numbers: dict[int, list[int]] = {VICTIM: [], HEALTHY: []}
        self.departed: set[int | None] = set()

    def arrived(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.numbers[frame.edge].append(frame.value)

    def gone(self, departure: PeerGone) -> None:
        self.departed.add(departure.worker)


def met(inbox: Inbox, connection: socket.socket, peer: int) -> RingChannel:
    """Exchange inboxes with the process at the other end."""
    inbox.offer_to(connection)
    channel = inbox.connect(connection, peer)
    inbox.offer_is_over()
    return channel


def produce(connection: socket.socket, worker: int, ledger: Ledger, point: str) -> None:
    """Send without end, or so many frames; some go in parts, before and after the move."""
    count_and_die(ledger, worker, point)
    loop, channel = Loop(), met(Inbox(RingSegment(SMALL), worker, 1 + HEALTHY, NEVER), connection, 0)
    channel.register(loop, Heard())
    number = 0
    while point or number < FRAMES:
        loop.turn(0.05 if channel.wants_write else 0.0)
        if not channel.wants_write:
            channel.send_batch(worker, batch_of(number, point), number)
            number += 1
    while channel.wants_write:
        loop.turn(0.05)
    channel.say_goodbye()
    while channel.wants_write:
        loop.turn(0.05)


def forked(body: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(int(PATIENCE_SECONDS))
        body()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


@pytest.mark.parametrize("point", POINTS)
def test_a_producer_killed_on_its_way_to_the_next_ring_loses_nothing(point: str) -> None:
    for turn in range(REPEATS):
        ledger = Ledger()
        pairs = {worker: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for worker in (VICTIM, HEALTHY)}

        def life(worker: int, ledger: Ledger = ledger, pairs: dict[int, tuple[socket.socket, ...]] = pairs) -> None:
            for other, (ours, theirs) in pairs.items():
                ours.close()
                if other != worker:
                    theirs.close()
            produce(pairs[worker][1], worker, ledger, point if worker == VICTIM else "")

        children = {worker: forked(lambda worker=worker: life(worker)) for worker in pairs}  # type: ignore[misc]
        inbox, loop, heard = Inbox(RingSegment(SMALL), 0, 1 + HEALTHY, NEVER), Loop(), Heard()
        channels = {}
        for worker, (ours, theirs) in pairs.items():
            theirs.close()
            channels[worker] = met(inbox, ours, worker)
        for channel in channels.values():
            channel.register(loop, heard)
        while heard.departed < set(channels):
            if inbox.segment.capacity == SMALL and sum(map(len, heard.numbers.values())) > 5 + 7 * turn:
                inbox._grow(LARGE, Traffic())
            loop.turn(0.05)
        codes = {worker: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for worker, child in children.items()}
        assert codes == {VICTIM: -signal.SIGKILL, HEALTHY: 0}
        assert heard.numbers == {worker: list(range(ledger[worker])) for worker in channels}
        assert ledger[HEALTHY] == FRAMES
        inbox.look()
        assert inbox._before is None
        for channel in channels.values():
            channel.close()
        inbox.close()
        loop.close()
