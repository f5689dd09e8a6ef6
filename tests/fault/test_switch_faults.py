"""A producer is killed at each step of its move to a larger ring: all that it published arrives, once and in order.

What is published is counted in memory that both processes share, at the call that publishes; a second producer lives on
and has everything delivered, and the ring before is given up.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock import _core
from penstock._core import RingSegment
from penstock.run.channel import ring
from penstock.run.channel.growth import GrowthLimits, Traffic
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.protocol import PeerGone
from penstock.run.channel.ring import RingChannel

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


def produce(connection: socket.socket, worker: int, ledger: Ledger, point: str) -> None:
    """Send without end, or so many frames; some go in parts, before and after the move."""
    count_and_die(ledger, worker, point)
    channel = Inbox(RingSegment(SMALL), worker, 1, NEVER).connect(connection, 0)
    number = 0
    while point or number < FRAMES:
        if channel.wants_write:
            channel.hear()
            if not channel.flush():
                select.select([channel.fileno()], [], [], 0.05)
            continue
        channel.hear()
        channel.send_batch(0, batch_of(number, point), number)
        number += 1
    while channel.wants_write:
        channel.hear()
        channel.flush()
    channel.end_sending()
    while channel.wants_write:
        channel.flush()


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


def read_until_gone(channel: RingChannel, got: list[int]) -> bool:
    """One look; True when the peer has ended or died."""
    try:
        got += [frame.value for frame in channel.receive()]
    except PeerGone:
        return True
    return False


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
        inbox = Inbox(RingSegment(SMALL), 0, 1, NEVER)
        channels = {}
        for worker, (ours, theirs) in pairs.items():
            theirs.close()
            channels[worker] = inbox.connect(ours, worker)
        got: dict[int, list[int]] = {worker: [] for worker in channels}
        going = set(channels)
        while going:
            if inbox.segment.capacity == SMALL and sum(map(len, got.values())) > 5 + 7 * turn:
                inbox._grow(LARGE, Traffic())
            select.select([inbox.fileno()], [], [], 0.05)
            going -= {worker for worker in going if read_until_gone(channels[worker], got[worker])}
        codes = {worker: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for worker, child in children.items()}
        assert codes == {VICTIM: -signal.SIGKILL, HEALTHY: 0}
        assert got == {worker: list(range(ledger[worker])) for worker in channels}
        assert ledger[HEALTHY] == FRAMES
        inbox.look()
        assert inbox._before is None
        for channel in channels.values():
            channel.close()
        inbox.close()
