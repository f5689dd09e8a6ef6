"""What every transport promises: order, no loss, no duplication, backpressure, an end, long messages, and being left.

One suite over every transport, through the path that jobs use: two workers' Links, each with a port to the other and a
loop of its own. So what a test learns with the port in memory holds for sockets, for rings, for rings that grow, and
for those of a worker that came later.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certificates import credentials
from penstock.run.columns import kernels
from penstock.run.transport.growth import GrowthLimits, Traffic
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.memory import in_process_pair
from penstock.run.transport.protocol import ChannelStatistics, PeerGone, Port
from penstock.run.transport.socket import listen
from penstock.run.transport.wire import Frame, Kind, prepare, route_by_key, unpack_batch

EDGES = 100
EVERY_EDGE = range(EDGES)
WAIT_SECONDS = 20.0  # only a port that has lost something waits so long
LONG = 3 * 1024 * 1024 + 7
NEVER = GrowthLimits(growths_max=0)
EAGER = GrowthLimits(bytes_max=1 << 20, messages_min=1, obstacles_min=1, looks_between=1)


@dataclass
class End:
    """One worker's links, and what it has heard."""

    links: Links
    peer: int
    frames: list[Frame] = field(default_factory=list)

    @property
    def port(self) -> Port:
        return self.links._ports[self.peer]

    @property
    def counts(self) -> ChannelStatistics:
        return self.links.statistics()[self.peer][1]

    @property
    def waits(self) -> bool:
        return self.counts.bytes_waiting > 0

    def look(self) -> None:
        while frames := self.links.wait(0.0)[0]:
            self.frames += frames


Pair = tuple[End, End]
Ends = Callable[[], contextlib.AbstractContextManager[Pair]]


def ends_of(transport: Transport | None = None) -> Pair:
    """Two workers with every edge in both directions."""
    made = [Links(me, EDGES, *2 * (dict.fromkeys(EVERY_EDGE, 1 - me),), transport) for me in (0, 1)]
    return End(made[0], 1), End(made[1], 0)


@contextlib.contextmanager
def met(transport: Transport, *, late: bool = False) -> Iterator[Pair]:
    """Workers that have met as those of a job do; where `late`, both had begun before."""
    ends, key = ends_of(transport), os.urandom(32)
    listeners = [listen("127.0.0.1") for _ in ends]
    places = [WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], "here") for w, s in enumerate(listeners)]
    with contextlib.ExitStack() as stack:
        for end, listener in zip(ends, listeners, strict=True):
            stack.callback(listener.close)
            stack.callback(end.links.close)
        if late:
            yield from newcomers(ends, listeners, places, key)
            return
        called = threading.Thread(target=ends[1].links.open, args=(listeners[1], places, key))
        called.start()
        ends[0].links.open(listeners[0], places, key)
        called.join()
        yield ends


def newcomers(ends: Pair, listeners: list[socket.socket], places: list[WorkerPlace], key: bytes) -> Iterator[Pair]:
    """Workers that meet while both run."""
    for end, listener, other in zip(ends, listeners, reversed(places), strict=True):
        end.links._edges_with.clear()
        end.links.open(listener, places, key)
        end.links.add_peer(other, EVERY_EDGE, EVERY_EDGE)
    while not all(end.links.has_met(end.peer) for end in ends):
        for end in told(*ends):
            end.look()
    yield ends


@contextlib.contextmanager
def grown() -> Iterator[Pair]:
    """Rings that have been left for larger ones by the time that anything is sent."""
    with met(Transport("ring", 64 * 1024, EAGER)) as ends:
        for end in ends:
            assert end.links._inbox is not None
            end.links._inbox._grow(256 * 1024, Traffic())
        while any(end.links._inbox._before is not None for end in ends):  # type: ignore[union-attr] # said above
            for end in told(*ends):
                end.look()
        yield ends


@contextlib.contextmanager
def in_memory() -> Iterator[Pair]:
    ends = ends_of()
    for end, port in zip(ends, in_process_pair(0, 1, 256 * 1024), strict=True):
        end.links.adopt(port)
    yield ends
    for end in ends:
        end.links.close()


ENDS: dict[str, Ends] = {
    "socket": lambda: met(Transport("socket")),
    "ring": lambda: met(Transport("ring", 256 * 1024, NEVER)),
    "ring that grows": lambda: met(Transport("ring", 64 * 1024, EAGER)),
    "ring that has grown": grown,
    "memory": in_memory,
    "newcomer's socket": lambda: met(Transport("socket"), late=True),
    "newcomer's ring": lambda: met(Transport("ring", 256 * 1024, NEVER), late=True),
    "tls": lambda: met(Transport("socket", credentials=credentials())),
    "newcomer's tls": lambda: met(Transport("socket", credentials=credentials()), late=True),
}
every_transport = pytest.mark.parametrize("transport", ENDS.values(), ids=ENDS)


SCHEMA = pa.schema([pa.field("bytes", pa.binary())])


def batch_of(number: int, size: int) -> pa.RecordBatch:
    """One row of about so many bytes; none for size 0."""
    rows = [bytes([number % 251]) * size] if size else []
    return pa.record_batch([pa.array(rows, pa.binary())], schema=SCHEMA)


def send(end: End, number: int, size: int) -> None:
    batch = batch_of(number, size)
    assert end.links.send_batch(number % EDGES, batch, number) == prepare(batch).size


def fill(end: End) -> int:
    """Send until the transport takes no more; how many batches that were."""
    sent = 0
    while not end.waits:
        send(end, sent, 40_000)
        sent += 1
        assert sent < 10_000, "the sender was never held back"
    return sent


def told(*ends: End) -> list[End]:
    """The ends that have something to do, and know it: neither does anything without being told."""
    poll = select.poll()
    by_descriptor = {end.links._loop._fileno: end for end in ends}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    ready = poll.poll(WAIT_SECONDS * 1000)
    assert ready, "both ends wait for each other"
    return [by_descriptor[descriptor] for descriptor, _ in ready]


def exchange(sender: End, receiver: End, count: int) -> list[Frame]:
    """So many frames, with both ends doing what the worker's loop does."""
    while len(receiver.frames) < count:
        for end in told(sender, receiver):
            end.look()
    taken, receiver.frames = receiver.frames, []
    return taken


def look_for_ever(end: End) -> None:
    while True:
        for ready in told(end):
            ready.look()


def send_for_ever(end: End) -> None:
    for number in range(10_000):
        send(end, number, 1000)


def rest(end: End) -> list[Frame]:
    """Frames until the peer is said to have gone, by its number."""
    with pytest.raises(PeerGone, match=f"worker {end.peer} closed its connection before") as gone:
        look_for_ever(end)
    assert gone.value.worker == end.peer
    taken, end.frames = end.frames, []
    return taken


def check(frames: list[Frame], sizes: list[int]) -> None:
    assert [frame.value for frame in frames] == list(range(len(sizes)))
    for frame, size in zip(frames, sizes, strict=True):
        assert frame.edge == frame.value % EDGES
        assert frame.kind == Kind.DATA
        batch = batch_of(frame.value, size)
        assert frame.rows == batch.num_rows
        assert frame.size == prepare(batch).size
        assert unpack_batch(frame, SCHEMA).equals(batch)


@every_transport
@settings(max_examples=20)
@given(sizes=st.lists(st.sampled_from([0, 1, 64, 1000, 40_000, 100_000]), min_size=1, max_size=20))
def test_frames_arrive_in_order_once_and_whole(transport: Ends, sizes: list[int]) -> None:
    with transport() as (sender, receiver):
        for number, size in enumerate(sizes):
            send(sender, number, size)
        check(exchange(sender, receiver, len(sizes)), sizes)
        assert not sender.port.wants_write
        assert sender.counts.frames_sent == len(sizes)
        assert sender.counts.bytes_waiting == 0


@every_transport
def test_both_directions_at_once(transport: Ends) -> None:
    with transport() as (one, other):
        for number in range(50):
            send(one, number, 1000)
            send(other, number, 2000)
        check(exchange(one, other, 50), [1000] * 50)
        check(exchange(other, one, 50), [2000] * 50)


@every_transport
def test_marks_have_no_body(transport: Ends) -> None:
    with transport() as (sender, receiver):
        for kind in (Kind.WATERMARK, Kind.END, Kind.CREDIT, Kind.EPOCH):
            sender.links.send_mark(kind, 3, -7)
        frames = exchange(sender, receiver, 4)
        assert [frame.kind for frame in frames] == [Kind.WATERMARK, Kind.END, Kind.CREDIT, Kind.EPOCH]
        assert {(frame.edge, frame.rows, frame.value, frame.size) for frame in frames} == {(3, 0, -7, 0)}


@every_transport
def test_marks_and_batches_keep_their_order_while_they_wait(transport: Ends) -> None:
    with transport() as (sender, receiver):
        sent = fill(sender)
        sender.links.send_mark(Kind.WATERMARK, 7, sent)
        send(sender, sent + 1, LONG)
        sender.links.send_mark(Kind.END, 7, sent + 2)
        frames = exchange(sender, receiver, sent + 3)
        assert [frame.value for frame in frames] == list(range(sent + 3))
        assert [frame.kind for frame in frames[sent:]] == [Kind.WATERMARK, Kind.DATA, Kind.END]


@every_transport
def test_routed_rows_arrive_as_the_batches_that_they_would_have_been(transport: Ends) -> None:
    batch = pa.record_batch({"word": [f"w{i % 7}" for i in range(1000)], "i": list(range(1000))})
    parts = dict(enumerate(kernels.partition(batch, ("word",), 3)))
    with transport() as (sender, receiver):
        routed = route_by_key(batch, ("word",), 3)
        for part, image in routed:
            assert sender.links.send_image(part, image, part) == image.size
        for frame in exchange(sender, receiver, len(routed)):
            assert unpack_batch(frame, batch.schema).equals(parts[frame.edge])


@every_transport
def test_nothing_is_readable_before_something_is_sent(transport: Ends) -> None:
    with transport() as (sender, receiver):
        receiver.look()
        assert receiver.frames == []
        assert not select.select([receiver.links._loop._fileno], [], [], 0)[0]
        send(sender, 0, 8)
        check(exchange(sender, receiver, 1), [8])


@every_transport
def test_a_slow_reader_holds_the_sender_back(transport: Ends) -> None:
    with transport() as (sender, receiver):
        sent = fill(sender)
        for number in range(sent, sent + 10):  # what comes later waits behind
            send(sender, number, 40_000)
        check(exchange(sender, receiver, sent + 10), [40_000] * (sent + 10))
        assert sender.counts.blocked_ns > 0
        assert sender.counts.bytes_waiting == 0
        assert sender.counts.bytes_sent == receiver.counts.bytes_received


@every_transport
def test_messages_longer_than_the_transport_holds(transport: Ends) -> None:
    with transport() as (sender, receiver):
        sizes = [8, LONG, 16, LONG, 8]
        for number, size in enumerate(sizes):
            send(sender, number, size)
        check(exchange(sender, receiver, len(sizes)), sizes)


@every_transport
def test_a_goodbye_comes_after_everything_and_closes_one_direction(transport: Ends) -> None:
    with transport() as (sender, receiver):
        for number in range(20):
            send(sender, number, 40_000)
        while sender.port.wants_write:
            for end in told(sender, receiver):
                end.look()
        receiver.links._ends_due.clear()  # as if all edges had ended
        receiver.links._ends_owed.clear()
        sender.port.say_goodbye()
        while 0 not in receiver.links._gone:
            for end in told(receiver):
                end.look()
        check(receiver.frames, [40_000] * 20)
        receiver.port.send_batch(0, batch_of(0, 8), 0)  # the other direction is open still
        check(exchange(receiver, sender, 1), [8])


@every_transport
def test_workers_whose_edges_have_ended_part_in_peace(transport: Ends) -> None:
    with transport() as ends:
        for end in ends:
            for edge in EVERY_EDGE:
                end.links.send_mark(Kind.END, edge)
        for end in ends:
            end.links.send_mark(Kind.CREDIT, 0, 1)
        other = threading.Thread(target=ends[1].links.say_goodbye)
        other.start()
        ends[0].links.say_goodbye()
        other.join(WAIT_SECONDS)
        assert not other.is_alive()
        ends[0].links.send_mark(Kind.CREDIT, 0, 1)  # nobody is there to want it
        assert [end.links._gone for end in ends] == [{1}, {0}]


@every_transport
def test_a_peer_that_leaves_before_its_edges_have_ended_has_died(transport: Ends) -> None:
    with transport() as (sender, receiver):
        send(sender, 0, 8)
        for edge in EVERY_EDGE[1:]:
            sender.links.send_mark(Kind.END, edge)
        sender.links.close()
        frames = rest(receiver)
        check(frames[:1], [8])
        assert [frame.edge for frame in frames[1:]] == list(EVERY_EDGE[1:])


@every_transport
def test_a_death_is_noticed_by_one_that_waits_to_write(transport: Ends) -> None:
    with transport() as (sender, receiver):
        fill(sender)
        receiver.links.close()
        assert rest(sender) == []


@every_transport
def test_sending_to_the_dead_is_peer_gone(transport: Ends) -> None:
    with transport() as (sender, receiver):
        receiver.links.close()
        with pytest.raises(PeerGone, match="worker 1 closed") as gone:
            send_for_ever(sender)
        assert gone.value.worker == 1


@every_transport
def test_frames_outlive_their_port(transport: Ends) -> None:
    with transport() as (sender, receiver):
        send(sender, 0, 40_000)
        frames = exchange(sender, receiver, 1)
    check(frames, [40_000])


@every_transport
def test_nothing_is_left_open(transport: Ends) -> None:
    with transport():
        pass  # whatever is made once
    before = os.listdir("/proc/self/fd")
    with transport() as (sender, receiver):
        send(sender, 0, 1000)
        exchange(sender, receiver, 1)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@every_transport
def test_a_watched_descriptor_is_told_beside_frames(transport: Ends) -> None:
    with transport() as (sender, receiver):
        driver = os.eventfd(1)
        try:
            receiver.links.watch(driver)
            send(sender, 0, 8)
            called = False
            while not receiver.frames:
                frames, called = receiver.links.wait(1.0)
                receiver.frames += frames
                assert called
            check(receiver.frames, [8])
        finally:
            os.close(driver)
