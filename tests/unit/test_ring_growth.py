"""An inbox that grows: when, to what size, and that nobody's frames are lost or change places on the way."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._core import NoSharedMemory, RingSegment
from penstock.errors import InternalError
from penstock.run.transport import inbox as inbox_room
from penstock.run.transport import ring as ring_room
from penstock.run.transport.growth import MESSAGES_HELD_MIN, MESSAGES_WHOLE, UNIT, GrowthLimits, Traffic, capacity_after
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.wire import Frame, Kind, unpack_batch

SMALL = 16 * 1024
EAGER = GrowthLimits(bytes_max=1 << 20, messages_min=1, obstacles_min=1, looks_between=1)
SCHEMA = pa.schema([pa.field("bytes", pa.binary())])
TURNS_MAX = 10_000

# -- the decision ----------------------------------------------------------------------------------------------------


def traffic_of(sizes: list[int], refusals: int = 0, parts: int = 0) -> Traffic:
    squares = sum(((size + UNIT - 1) // UNIT) ** 2 for size in sizes)
    return Traffic(len(sizes), sum(sizes), squares, max(sizes), refusals, parts)


sizes_of_messages = st.lists(st.integers(1, 1 << 22), min_size=1, max_size=50)
powers = st.integers(12, 25).map(lambda power: 1 << power)
any_limits = st.builds(
    GrowthLimits,
    bytes_max=st.integers(0, 1 << 25),
    cached_bytes=powers,
    messages_min=st.integers(1, 60),
    obstacles_min=st.integers(1, 10),
)


@given(sizes_of_messages, st.integers(0, 20), st.integers(0, 20), powers, any_limits)
def test_a_ring_grows_for_a_reason_to_a_power_of_two_and_never_shrinks(
    sizes: list[int], refusals: int, parts: int, capacity: int, limits: GrowthLimits
) -> None:
    traffic = traffic_of(sizes, refusals, parts)
    after = capacity_after(traffic, capacity, limits)
    assert after >= capacity
    assert after & (after - 1) == 0
    if after > capacity:
        assert after <= limits.bytes_max
        assert refusals + parts >= limits.obstacles_min
        assert len(sizes) >= limits.messages_min
        assert capacity < MESSAGES_HELD_MIN * traffic.message_bytes
        assert capacity_after(traffic, after, limits) == after  # it asks for no more than it gave itself
        if after > limits.cached_bytes:
            assert parts > 0
            assert after / 2 < MESSAGES_WHOLE * max(sizes)


@given(st.integers(1, 1 << 18), powers)
def test_messages_of_one_size_get_a_ring_for_50_to_100_of_them(units: int, capacity: int) -> None:
    size = units * UNIT
    limits = GrowthLimits(bytes_max=1 << 30, cached_bytes=1 << 30)
    after = capacity_after(traffic_of([size] * 64, refusals=64), capacity, limits)
    assert after == capacity or after / size < 2 * MESSAGES_HELD_MIN
    assert after / size >= MESSAGES_HELD_MIN


@given(st.integers(1 << 10, 1 << 16), powers)
def test_messages_that_are_cut_get_a_ring_that_takes_them_whole_where_the_limit_allows_one(
    units: int, capacity: int
) -> None:
    size, limits = units * UNIT, GrowthLimits()
    after = capacity_after(traffic_of([size] * 64, parts=256), capacity, limits)
    if MESSAGES_WHOLE * size <= limits.bytes_max:
        assert after // 4 >= size
        assert after in {capacity, limits.cached_bytes} or after // 8 < size  # and not twice as large as that
    else:
        assert after == max(capacity, limits.cached_bytes)  # they are cut in any, so more is of no use


@given(sizes_of_messages)
def test_the_size_that_counts_lies_between_the_mean_and_the_largest(sizes: list[int]) -> None:
    rounded = [(size + UNIT - 1) // UNIT * UNIT for size in sizes]
    found = traffic_of(rounded).message_bytes
    assert sum(rounded) // len(rounded) <= found <= max(rounded)


def test_marks_do_not_hide_the_batches() -> None:
    assert traffic_of([UNIT] * 1000 + [1 << 20] * 10).message_bytes > 1_000_000


@given(sizes_of_messages, sizes_of_messages)
def test_what_came_since_is_what_came(before: list[int], after: list[int]) -> None:
    since = traffic_of(before + after, 5, 3).since(traffic_of(before, 2, 1))
    assert replace(since, longest=max(after)) == traffic_of(after, 3, 2)
    assert since.longest == max(before + after)


# -- the switch-over -------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """Worker 0, and others that send to it."""

    inboxes: list[Inbox]
    loop: Loop
    senders: dict[int, RingChannel]  # to worker 0
    receivers: dict[int, RingChannel]  # at worker 0
    sent: dict[int, int]
    got: dict[int, list[int]]
    departed: list[int | None] = field(default_factory=list)

    def send(self, worker: int, size: int) -> None:
        number = self.sent[worker]
        self.senders[worker].send_batch(worker, batch_of(worker, number, size), number)
        self.sent[worker] += 1

    def take(self) -> None:
        """One look of worker 0, as its loop has them; what came is checked."""
        self.inboxes[0].look()

    def arrived(self, frames: Sequence[Frame]) -> None:
        for frame in frames:
            batch = unpack_batch(frame, SCHEMA)
            assert batch.equals(batch_of(frame.edge, frame.value, len(batch.column(0)[0].as_py())))
            self.got[frame.edge].append(frame.value)

    def gone(self, departure: PeerGone) -> None:
        self.departed.append(departure.worker)

    def finish(self) -> None:
        """Everybody hears and writes until nothing waits and everything has come."""
        for _ in range(TURNS_MAX):
            for channel in self.senders.values():
                channel.hear()
                channel.flush()
            self.take()
            if all(len(self.got[worker]) == self.sent[worker] for worker in self.sent):
                break
        self.check()

    def finish_moving(self) -> None:
        """Everybody hears until nobody writes to the ring before."""
        for _ in range(TURNS_MAX):
            if self.inboxes[0]._before is None:
                return
            for channel in self.senders.values():
                channel.hear()
            self.take()
        pytest.fail("the ring before was never given up")

    def check(self) -> None:
        assert self.got == {worker: list(range(count)) for worker, count in self.sent.items()}

    @property
    def capacity(self) -> int:
        return self.inboxes[0].segment.capacity

    def grow(self) -> None:
        """Worker 0 looks until it has seen that somebody found no space."""
        held = self.capacity
        for _ in range(10):
            self.take()
            if self.capacity > held:
                return
        pytest.fail("the inbox did not grow")

    def fill(self, worker: int, size: int) -> None:
        while not self.senders[worker].wants_write:
            self.send(worker, size)


def batch_of(worker: int, number: int, size: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([bytes([(worker * 31 + number) % 251]) * size], pa.binary())], schema=SCHEMA)


@contextlib.contextmanager
def node(workers: int = 2, limits: GrowthLimits = EAGER, capacity: int = SMALL) -> Iterator[Node]:
    never = GrowthLimits(growths_max=0)
    edges = workers + 1  # each sends along the edge of its number
    inboxes = [Inbox(RingSegment(capacity), w, edges, limits if w == 0 else never) for w in range(workers + 1)]
    numbers = range(1, workers + 1)
    made = Node(inboxes, Loop(), {}, {}, dict.fromkeys(numbers, 0), {w: [] for w in numbers})
    with contextlib.ExitStack() as stack:
        stack.callback(made.loop.close)
        for inbox in inboxes:
            stack.callback(inbox.close)
        for worker in numbers:
            join(made, worker, stack)
        yield made


def join(made: Node, worker: int, stack: contextlib.ExitStack) -> None:
    """Let worker 0 and another exchange their inboxes; the other's descriptors are in nobody's loop."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ends = made.inboxes[0], made.inboxes[worker]
    for inbox, connection in zip(ends, pair, strict=True):
        inbox.offer_to(connection)
    channels = [inbox.connect(s, peer) for inbox, s, peer in zip(ends, pair, (worker, 0), strict=True)]
    for inbox, channel in zip(ends, channels, strict=True):
        inbox.offer_is_over()
        stack.callback(channel.close)  # twice where a test has closed it
    made.receivers[worker], made.senders[worker] = channels
    made.receivers[worker].register(made.loop, made)


def test_a_ring_grows_to_hold_50_messages_and_the_former_one_goes() -> None:
    with node(1) as made:
        made.fill(1, 3000)
        made.finish()
        made.fill(1, 3000)
        made.finish()
        made.finish_moving()
        assert made.capacity == 256 * 1024  # the power of two above 50 times 3.3 KB
        assert made.inboxes[0].statistics()["messages"] == made.sent[1] + 1  # and the mark


def test_one_that_has_not_moved_holds_up_nobody_who_has() -> None:
    with node(2) as made:
        made.fill(1, 3000)
        made.fill(2, 3000)
        made.grow()
        made.senders[1].hear()
        for _ in range(50):
            made.send(1, 3000)
        assert not made.senders[1].wants_write
        for _ in range(3):
            made.take()
        assert made.got[1] == list(range(made.sent[1]))
        assert made.inboxes[0]._before is not None  # worker 2 writes to it still
        made.finish()
        made.finish_moving()


def test_a_message_of_which_a_part_has_gone_ends_in_the_ring_where_it_began() -> None:
    with node(1) as made:
        made.send(1, 3000)
        made.send(1, 30_000)  # in parts, of which only some find space
        made.send(1, 3000)
        made.grow()
        made.finish()
        made.send(1, 30_000)
        made.finish()
        assert made.capacity > SMALL


def test_what_comes_ahead_through_the_next_ring_waits_for_what_is_still_in_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with node(1) as made:
        for _ in range(30):
            made.send(1, 100)
        made.fill(1, 3000)
        monkeypatch.setattr(inbox_room, "FRAMES_PER_LOOK", 1)
        made.inboxes[0]._grow(16 * SMALL, Traffic())
        made.senders[1].hear()
        made.send(1, 3000)
        made.take()
        assert made.got[1] == [0]
        assert made.receivers[1]._early
        made.finish()


def test_one_whose_stream_has_ended_does_not_keep_the_former_ring() -> None:
    with node(2) as made:
        made.send(2, 10)
        made.senders[2].say_goodbye()
        made.fill(1, 3000)
        made.grow()
        made.finish()
        made.finish_moving()
        assert made.departed == [2]


def test_the_end_of_a_stream_may_come_through_the_next_ring() -> None:
    with node(1) as made:
        made.fill(1, 3000)
        made.grow()
        made.senders[1].say_goodbye()
        made.finish()
        made.take()
        assert made.departed == [1]


@pytest.mark.parametrize("hears", [False, True])
def test_a_peer_that_leaves_on_the_way_has_written_to_one_of_the_two(hears: bool) -> None:
    with node(2) as made:
        made.send(2, 1000)
        made.fill(1, 3000)
        made.grow()
        if hears:
            made.senders[2].hear()
            made.send(2, 1000)
        made.senders.pop(2).close()
        for _ in range(TURNS_MAX):
            made.loop.turn(0.0)
            if made.departed:
                break
        assert made.departed == [2]
        made.finish()
        made.finish_moving()


def test_without_memory_the_ring_stays_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object, **__: object) -> RingSegment:
        msg = "no memory left"
        raise NoSharedMemory(msg)

    with node(1) as made, caplog.at_level(logging.INFO):
        monkeypatch.setattr(inbox_room, "RingSegment", none)
        for _ in range(3):
            made.fill(1, 3000)
            made.finish()
        assert made.capacity == SMALL
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "no memory left" in caplog.text


def test_a_peer_without_memory_stays_with_the_former_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(connection: socket.socket, epoch: int) -> RingSegment:
        take(connection, epoch)
        msg = "no memory left"
        raise NoSharedMemory(msg)

    take = ring_room.take
    with node(2) as made:
        made.fill(1, 3000)
        made.fill(2, 3000)
        made.grow()
        monkeypatch.setattr(ring_room, "take", none)
        made.senders[1].hear()
        monkeypatch.setattr(ring_room, "take", take)
        for _ in range(3):
            made.finish()
            made.fill(1, 3000)
            made.fill(2, 3000)
        made.finish()
        assert made.receivers[1].is_behind
        assert not made.receivers[2].is_behind


def test_growing_has_an_end_and_leaves_no_descriptor() -> None:
    with node(2) as made:
        made.fill(1, 3000)
        made.finish()
    before = len(os.listdir("/proc/self/fd"))
    with node(2) as made:
        for size in (1000, 3000, 10_000, 30_000, 60_000):
            for worker in (1, 2):
                made.fill(worker, size)
            made.finish()
        assert SMALL < made.capacity <= EAGER.bytes_max
        assert 1 < made.inboxes[0]._growths <= EAGER.growths_max
    assert len(os.listdir("/proc/self/fd")) == before


def test_blocking_time_and_bytes_are_counted_over_both_rings() -> None:
    with node(1) as made:
        made.fill(1, 3000)
        made.finish()
        made.fill(1, 3000)
        blocked = made.senders[1].statistics().blocked_ns
        made.finish()
        counts = made.senders[1].statistics()
        assert counts.blocked_ns > blocked > 0
        assert counts.frames_sent == made.sent[1]
        assert counts.bytes_sent == made.receivers[1].statistics().bytes_received
        assert counts.bytes_waiting == 0


def test_one_that_waits_is_told_of_space_in_the_next_ring() -> None:
    with node(1, GrowthLimits(bytes_max=2 * SMALL, messages_min=1, obstacles_min=1, looks_between=1)) as made:
        made.senders[1].register(made.loop, made)
        for _ in range(100):  # more than either ring holds
            made.send(1, 3000)
        while len(made.got[1]) < 100:  # neither end does anything without being told
            assert select.select([made.loop._fileno], [], [], 20)[0], "both ends wait for each other"
            made.loop.turn(0.0)
        assert made.capacity == 2 * SMALL
        made.check()


def test_a_newcomer_is_let_into_a_ring_that_has_grown() -> None:
    with node(2) as made, contextlib.ExitStack() as stack:
        made.fill(1, 3000)
        made.grow()
        made.inboxes.append(Inbox(RingSegment(SMALL), 3, 4, GrowthLimits(growths_max=0)))
        stack.callback(made.inboxes[3].close)
        made.inboxes[0]._edges = 4
        made.sent[3], made.got[3] = 0, []
        join(made, 3, stack)  # while worker 1 has not moved yet
        assert not made.receivers[3].is_behind
        made.fill(3, 3000)
        made.finish()
        made.finish_moving()
        held = made.capacity
        made.inboxes[0]._grow(2 * held, Traffic())  # and it follows to the next one
        made.fill(3, 9000)
        made.finish()
        made.finish_moving()
        assert made.senders[3]._epoch == made.inboxes[0].segment.epoch


def test_what_a_worker_left_unread_is_not_taken_for_its_successors() -> None:
    with node(2) as made, contextlib.ExitStack() as stack:
        made.send(1, 1000)
        made.send(2, 1000)
        made.receivers[1].close()  # before anybody has looked
        made.inboxes[1] = Inbox(RingSegment(SMALL), 1, 3, GrowthLimits(growths_max=0))
        stack.callback(made.inboxes[1].close)
        join(made, 1, stack)
        made.sent[1] = 0
        made.send(1, 500)
        made.finish()


def test_an_inbox_does_not_grow_between_an_offer_and_its_answer() -> None:
    with node(1) as made:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            made.inboxes[0].offer_to(ours)
            made.fill(1, 3000)
            made.finish()
            assert made.capacity == SMALL
            made.inboxes[0].offer_is_over()
            made.fill(1, 3000)
            made.finish()
            assert made.capacity > SMALL


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 2), st.sampled_from([10, 900, 3000, 9000, 40_000])),
    st.tuples(st.sampled_from(["hear", "flush"]), st.integers(1, 2), st.just(0)),
    st.tuples(st.sampled_from(["take", "grow"]), st.just(0), st.just(0)),
)


@settings(max_examples=60)
@given(st.lists(steps, max_size=60), st.sampled_from([SMALL, 4 * SMALL]), st.sampled_from([1, 2, 256]))
def test_any_interleaving_keeps_every_senders_order(
    plan: list[tuple[str, int, int]], capacity: int, per_look: int
) -> None:
    with pytest.MonkeyPatch.context() as patch, node(2, capacity=capacity) as made:
        patch.setattr(inbox_room, "FRAMES_PER_LOOK", per_look)  # few: the next ring is read ahead of the one before
        for what, worker, size in plan:
            match what:
                case "send":
                    made.send(worker, size)
                case "hear":
                    assert made.senders[worker].hear()
                case "flush":
                    made.senders[worker].flush()
                case "grow" if made.inboxes[0]._before is None and made.capacity < EAGER.bytes_max:
                    made.inboxes[0]._grow(2 * made.capacity, Traffic())
                case _:
                    made.take()
        made.finish()


def test_an_outbox_has_a_limit() -> None:
    with node(1, GrowthLimits(growths_max=0)) as made:
        sender = made.senders[1]
        sender._waiting._bytes_max = 100_000
        made.fill(1, 3000)
        while sender.statistics().bytes_waiting < 96_000:
            made.send(1, 3000)
        with pytest.raises(InternalError, match=r"worker 0 is sent more than its credits allow: \d+ bytes wait"):
            made.send(1, 4000)
        with pytest.raises(InternalError, match="200"):
            made.send(1, 200_000)
        assert sender.statistics().bytes_waiting <= 100_000
        made.finish()
        sender.send_mark(Kind.END, 1)
