"""What every channel promises: order, no loss, no duplication, backpressure, an end, long messages, and being left.

One suite over every transport, so that what a test learns with the channels in memory holds for sockets and rings.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._core import RingSegment
from penstock.run import kernels
from penstock.run.channel.growth import GrowthLimits
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.memory import in_process_pair, memory_pair
from penstock.run.channel.protocol import Channel, PeerGone
from penstock.run.channel.socket import SocketChannel
from penstock.run.wire import Frame, Kind, prepare, route_by_key, unpack_batch

EDGES = 100
WAIT_SECONDS = 20.0  # only a channel that has lost something waits so long
LONG = 3 * 1024 * 1024 + 7
NEVER = GrowthLimits(growths_max=0)
EAGER = GrowthLimits(bytes_max=1 << 20, messages_min=1, obstacles_min=1, looks_between=1)

Pair = tuple[Channel, Channel]
Channels = Callable[[], contextlib.AbstractContextManager[Pair]]


@contextlib.contextmanager
def socket_pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    ends = SocketChannel(one, 1, EDGES), SocketChannel(other, 0, EDGES)
    with contextlib.ExitStack() as stack:
        for channel in ends:
            stack.callback(channel.close)
        yield ends


@contextlib.contextmanager
def ring_pair(capacity: int = 256 * 1024, slots: int = 64, limits: GrowthLimits = NEVER) -> Iterator[Pair]:
    inboxes = [Inbox(RingSegment(capacity, slots=slots), worker, EDGES, limits) for worker in (0, 1)]
    sockets = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    made: dict[int, Channel] = {}
    caller = threading.Thread(target=lambda: made.update({1: inboxes[1].connect(sockets[1], 0)}))
    caller.start()
    made[0] = inboxes[0].connect(sockets[0], 1)
    caller.join()
    with contextlib.ExitStack() as stack:
        for worker in (0, 1):
            stack.callback(inboxes[worker].close)
            stack.callback(made[worker].close)
        yield made[0], made[1]


@contextlib.contextmanager
def pair_in_memory(make: Callable[[int, int, int], Pair]) -> Iterator[Pair]:
    ends = make(0, 1, 256 * 1024)
    with contextlib.ExitStack() as stack:
        for channel in ends:
            stack.callback(channel.close)
        yield ends


CHANNELS: dict[str, Channels] = {
    "socket": socket_pair,
    "ring": ring_pair,
    "ring that grows": lambda: ring_pair(64 * 1024, limits=EAGER),
    "in-process": lambda: pair_in_memory(in_process_pair),
    "in-memory": lambda: pair_in_memory(memory_pair),
}
every_channel = pytest.mark.parametrize("channels", CHANNELS.values(), ids=CHANNELS)


SCHEMA = pa.schema([pa.field("bytes", pa.binary())])


def batch_of(number: int, size: int) -> pa.RecordBatch:
    """One row of about so many bytes; none for size 0."""
    rows = [bytes([number % 251]) * size] if size else []
    return pa.record_batch([pa.array(rows, pa.binary())], schema=SCHEMA)


def send(channel: Channel, number: int, size: int) -> None:
    batch = batch_of(number, size)
    assert channel.send_batch(number % EDGES, batch, number) == prepare(batch).size


def wait_for(channel: Channel) -> None:
    assert select.select([channel.fileno()], [], [], WAIT_SECONDS)[0], "nothing came"


def exchange(sender: Channel, receiver: Channel, count: int) -> list[Frame]:
    """So many frames, with both ends doing what the worker's loop does."""
    frames: list[Frame] = []
    while len(frames) < count:
        if sender.wants_write:
            sender.flush()
        wait_for(receiver)
        frames += receiver.receive()
    return frames


def rest(channel: Channel, who: str) -> list[Frame]:
    """Frames until the peer has gone; fails when it is not said to be."""
    frames: list[Frame] = []
    try:
        while True:
            wait_for(channel)
            frames += channel.receive()
            if channel.wants_write:
                channel.flush()
    except PeerGone as error:
        assert who in str(error)  # noqa: PT017 - the frames before it count too
    return frames


def check(frames: list[Frame], sizes: list[int]) -> None:
    assert [frame.value for frame in frames] == list(range(len(sizes)))
    for frame, size in zip(frames, sizes, strict=True):
        assert frame.edge == frame.value % EDGES
        assert frame.kind == Kind.DATA
        batch = batch_of(frame.value, size)
        assert frame.rows == batch.num_rows
        assert frame.size == prepare(batch).size
        assert unpack_batch(frame, SCHEMA).equals(batch)


@every_channel
@settings(max_examples=30)
@given(sizes=st.lists(st.sampled_from([0, 1, 64, 1000, 40_000, 100_000]), min_size=1, max_size=20))
def test_frames_arrive_in_order_once_and_whole(channels: Channels, sizes: list[int]) -> None:
    with channels() as (sender, receiver):
        for number, size in enumerate(sizes):
            send(sender, number, size)
        check(exchange(sender, receiver, len(sizes)), sizes)
        assert not sender.wants_write
        counts = sender.statistics()
        assert counts.frames_sent == len(sizes)
        assert counts.bytes_waiting == 0


@every_channel
def test_both_directions_at_once(channels: Channels) -> None:
    with channels() as (one, other):
        for number in range(50):
            send(one, number, 1000)
            send(other, number, 2000)
        check(exchange(one, other, 50), [1000] * 50)
        check(exchange(other, one, 50), [2000] * 50)


@every_channel
def test_marks_have_no_body(channels: Channels) -> None:
    with channels() as (sender, receiver):
        for kind in (Kind.WATERMARK, Kind.END, Kind.CREDIT, Kind.EPOCH):
            sender.send_mark(kind, 3, -7)
        frames = exchange(sender, receiver, 4)
        assert [frame.kind for frame in frames] == [Kind.WATERMARK, Kind.END, Kind.CREDIT, Kind.EPOCH]
        assert {(frame.edge, frame.rows, frame.value, frame.size) for frame in frames} == {(3, 0, -7, 0)}


@every_channel
def test_marks_and_batches_keep_their_order_while_they_wait(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sent = 0
        while not sender.wants_write:
            send(sender, sent, 40_000)
            sent += 1
        sender.send_mark(Kind.WATERMARK, 7, sent)
        send(sender, sent + 1, LONG)
        sender.send_mark(Kind.END, 7, sent + 2)
        frames = exchange(sender, receiver, sent + 3)
        assert [frame.value for frame in frames] == list(range(sent + 3))
        assert [frame.kind for frame in frames[sent:]] == [Kind.WATERMARK, Kind.DATA, Kind.END]


@every_channel
def test_routed_rows_arrive_as_the_batches_that_they_would_have_been(channels: Channels) -> None:
    batch = pa.record_batch({"word": [f"w{i % 7}" for i in range(1000)], "i": list(range(1000))})
    parts = dict(enumerate(kernels.partition(batch, ("word",), 3)))
    with channels() as (sender, receiver):
        routed = route_by_key(batch, ("word",), 3)
        for part, image in routed:
            assert sender.send_image(part, image, part) == image.size
        for frame in exchange(sender, receiver, len(routed)):
            assert unpack_batch(frame, batch.schema).equals(parts[frame.edge])


@every_channel
def test_nothing_is_readable_before_something_is_sent(channels: Channels) -> None:
    with channels() as (sender, receiver):
        assert receiver.receive() == []
        assert not select.select([receiver.fileno()], [], [], 0)[0]
        send(sender, 0, 8)
        check(exchange(sender, receiver, 1), [8])


@every_channel
def test_a_slow_reader_holds_the_sender_back(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sent = 0
        while not sender.wants_write:
            send(sender, sent, 40_000)
            sent += 1
            assert sent < 10_000, "the sender was never held back"
        assert sender.statistics().bytes_waiting > 0
        for number in range(sent, sent + 10):  # what comes later waits behind
            send(sender, number, 40_000)
        check(exchange(sender, receiver, sent + 10), [40_000] * (sent + 10))
        counts = sender.statistics()
        assert counts.blocked_ns > 0
        assert counts.bytes_waiting == 0
        assert counts.bytes_sent == receiver.statistics().bytes_received


@every_channel
def test_a_sender_that_waits_is_told_of_space(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sent = 0
        while not sender.wants_write:
            send(sender, sent, 40_000)
            sent += 1
        frames: list[Frame] = []
        while len(frames) < sent:  # neither end does anything without being told
            poll = select.poll()
            poll.register(receiver.fileno(), select.POLLIN)
            poll.register(sender.fileno(), select.POLLIN | (select.POLLOUT if sender.wants_write else 0))
            told = dict(poll.poll(WAIT_SECONDS * 1000))
            assert told, "both ends wait for each other"
            if receiver.fileno() in told:
                frames += receiver.receive()
            if sender.fileno() in told:
                assert sender.receive() == []
                sender.flush()
        check(frames, [40_000] * sent)


@every_channel
def test_messages_longer_than_the_transport_holds(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sizes = [8, LONG, 16, LONG, 8]
        for number, size in enumerate(sizes):
            send(sender, number, size)
        check(exchange(sender, receiver, len(sizes)), sizes)


@every_channel
def test_the_end_comes_after_everything(channels: Channels) -> None:
    with channels() as (sender, receiver):
        for number in range(20):
            send(sender, number, 40_000)
        frames: list[Frame] = []
        while sender.wants_write:
            wait_for(receiver)
            frames += receiver.receive()
            sender.flush()
        sender.end_sending()
        frames += rest(receiver, "worker 0")
        check(frames, [40_000] * 20)
        send(receiver, 0, 8)  # the other direction is open still
        check(exchange(receiver, sender, 1), [8])


@every_channel
def test_the_end_waits_behind_what_waits(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sent = 0
        while not sender.wants_write:
            send(sender, sent, 40_000)
            sent += 1
        frames: list[Frame] = []
        while sender.wants_write:
            wait_for(receiver)
            frames += receiver.receive()
            sender.flush()
        sender.end_sending()
        frames += rest(receiver, "worker 0")
        check(frames, [40_000] * sent)


@every_channel
def test_a_peer_that_closes_is_noticed_by_who_reads(channels: Channels) -> None:
    with channels() as (sender, receiver):
        send(sender, 0, 8)
        sender.close()
        check(rest(receiver, "worker 0"), [8])


@every_channel
def test_a_peer_that_closes_is_noticed_by_who_waits_to_write(channels: Channels) -> None:
    with channels() as (sender, receiver):
        sent = 0
        while not sender.wants_write:
            send(sender, sent, 40_000)
            sent += 1
        receiver.close()
        assert rest(sender, "worker 1") == []


@every_channel
def test_frames_outlive_their_channel(channels: Channels) -> None:
    with channels() as (sender, receiver):
        send(sender, 0, 40_000)
        frames = exchange(sender, receiver, 1)
    check(frames, [40_000])


@every_channel
def test_nothing_is_left_open(channels: Channels) -> None:
    with channels():
        pass  # whatever is made once
    before = os.listdir("/proc/self/fd")
    with channels() as (sender, receiver):
        send(sender, 0, 1000)
        exchange(sender, receiver, 1)
    assert len(os.listdir("/proc/self/fd")) == len(before)
