"""The socket channel: order, equal counts at both ends, waiting within limits, lasting memory, faults and endings."""

from __future__ import annotations

import gc
import socket
import struct
import weakref
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_strategies import any_batches, cells

from penstock.errors import InternalError
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.socket import SocketChannel
from penstock.run.transport.wire import (
    BODY_BYTES_MAX,
    HEADER,
    BufferFrame,
    Frame,
    Kind,
    WireFault,
    unpack_batch,
    write_image,
)

EDGES = 8
HEAD = struct.Struct("<IB3xIIq40x")
NUMBERS = pa.schema([("i", pa.int64())])


def numbers(count: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"i": np.arange(first, first + count)})


@pytest.fixture
def pair() -> Iterator[tuple[SocketChannel, SocketChannel]]:
    left, right = socket.socketpair()
    channels = SocketChannel(left, 1, EDGES), SocketChannel(right, 0, EDGES)
    yield channels
    for channel in channels:
        channel.close()


def head(length: int = 0, kind: int = Kind.DATA, edge: int = 0, rows: int = 0, value: int = 0) -> bytes:
    return HEAD.pack(length, kind, edge, rows, value)


def take(sender: SocketChannel, receiver: SocketChannel, count: int) -> list[Frame]:
    """So many frames, the sender pushing whenever it can."""
    frames: list[Frame] = []
    for _ in range(1_000_000):
        if len(frames) >= count:
            return frames
        sender.flush()
        frames += receiver.receive()
    return pytest.fail(f"{len(frames)} of {count} frames arrived")


def test_frames_arrive_in_order_and_both_ends_count_the_same(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    sizes = []
    for i in range(50):
        sizes.append(sender.send_batch(i % EDGES, numbers(i * 40, i), i))
        sender.send_mark(Kind.WATERMARK, i % EDGES, -i)
    frames = take(sender, receiver, 100)
    data = frames[::2]
    assert [frame.size for frame in data] == sizes
    assert [(f.kind, f.edge, f.rows, f.value) for f in data] == [(Kind.DATA, i % EDGES, i * 40, i) for i in range(50)]
    assert [(f.kind, f.value, f.size) for f in frames[1::2]] == [(Kind.WATERMARK, -i, 0) for i in range(50)]
    for i, frame in enumerate(data):
        assert unpack_batch(frame, NUMBERS).equals(numbers(i * 40, i))
    sent, received = sender.statistics(), receiver.statistics()
    assert sent.bytes_sent == received.bytes_received == sum(sizes) + 100 * HEAD.size
    assert (sent.frames_sent, sent.bytes_waiting) == (100, 0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(any_batches(), min_size=1, max_size=3), cuts=st.lists(st.integers(1, 300), max_size=20))
def test_a_stream_cut_anywhere_gives_the_same_batches(batches: list[pa.RecordBatch], cuts: list[int]) -> None:
    left, raw = socket.socketpair()
    sender = SocketChannel(left, 1, EDGES)
    for edge, batch in enumerate(batches):
        size = sender.send_batch(edge, batch, 7)
        assert size == write_image(batch).size  # gathered or written: the same image
    stream = raw.recv(1 << 24)
    assert not sender.wants_write
    source, right = socket.socketpair()
    receiver = SocketChannel(right, 0, EDGES)
    frames: list[Frame] = []
    for piece in (*cuts, len(stream)):
        source.sendall(stream[:piece])
        stream = stream[piece:]
        frames += receiver.receive()
    for batch, frame in zip(batches, frames, strict=True):
        assert cells(unpack_batch(frame, batch.schema)) == cells(batch)
    for end in (sender, receiver, raw, source):
        end.close()


def test_gathered_bytes_are_the_written_image() -> None:
    left, raw = socket.socketpair()
    sender = SocketChannel(left, 1, EDGES)
    batch = pa.record_batch({"s": [None, *("word" * i for i in range(150))], "n": np.arange(151)}).slice(3, 120)
    sender.send_batch(0, batch, 0)
    stream = raw.recv(1 << 20)
    assert stream[HEAD.size :] == write_image(batch).to_pybytes()
    sender.close()
    raw.close()


def test_large_and_small_frames_mixed(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    counts = [10, 400_000, 3, 70_000, 16_000, 300_000, 300_000, 1, 40_000, 0, 20_000]
    for i, count in enumerate(counts):
        sender.send_batch(0, numbers(count, i), i)
        sender.send_mark(Kind.CREDIT, 1, i)
    frames = take(sender, receiver, 2 * len(counts))
    for i, count in enumerate(counts):
        assert unpack_batch(frames[2 * i], NUMBERS).equals(numbers(count, i))
        assert frames[2 * i + 1].value == i


def test_batches_stay_as_they_are_while_more_arrives(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    kept = []
    for i in range(1200):  # 48 MB, of which every block is kept: far more than the pool holds
        sender.send_batch(0, numbers(5000, i), i)
        (frame,) = take(sender, receiver, 1)
        batch = unpack_batch(frame, NUMBERS)
        if i % 3 == 0:
            kept.append((i, batch.column(0).slice(100, 50)))
        del frame, batch  # so that the kept column is all that holds its block
    sender.close()
    receiver.close()
    for i, column in kept:
        assert column.to_pylist() == list(range(i + 100, i + 150))


def test_what_the_kernel_refuses_waits_and_the_time_is_counted(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    values = np.arange(100_000)
    alive = weakref.ref(values)
    sizes = [sender.send_batch(0, pa.record_batch({"i": values}), 0)]
    sizes += [sender.send_batch(0, numbers(100_000), 0) for _ in range(4)]
    del values
    gc.collect()
    assert sender.wants_write
    assert alive() is not None  # written from the batch's own buffers, so they are held
    waiting = sender.statistics().bytes_waiting
    assert 0 < waiting == sum(sizes) + 5 * HEAD.size - sender.statistics().bytes_sent
    assert not sender.flush()
    frames = take(sender, receiver, 5)
    assert all(unpack_batch(frame, NUMBERS).equals(numbers(100_000)) for frame in frames)
    assert not sender.wants_write
    assert sender.flush()
    gc.collect()
    assert alive() is None
    counts = sender.statistics()
    assert counts.bytes_waiting == 0
    assert counts.blocked_ns > 0


def test_an_outbox_beyond_its_limit_is_our_bug() -> None:
    left, right = socket.socketpair()
    sender = SocketChannel(left, 1, EDGES, outbox_bytes_max=1_000_000)
    while sender.statistics().bytes_waiting < 900_000:
        sender.send_batch(0, numbers(10_000), 0)
    with pytest.raises(InternalError, match=r"worker 1 .* limit of 1000000"):
        sender.send_batch(0, numbers(20_000), 0)
    for _ in range((1_000_000 - sender.statistics().bytes_waiting) // HEADER.size):
        sender.send_mark(Kind.CREDIT, 0, 1)
    with pytest.raises(InternalError, match=r"worker 1 .* limit of 1000000"):
        sender.send_mark(Kind.CREDIT, 0, 1)
    assert sender.statistics().bytes_waiting <= 1_000_000
    sender.close()
    right.close()


def test_the_mark_of_a_slice_goes_out_although_nothing_follows(pair: tuple[SocketChannel, SocketChannel]) -> None:
    pair[0].send_mark(Kind.SLICE, 0, 7 << 16 | 1)
    (frame,) = pair[1].receive()
    assert (frame.kind, frame.value) == (Kind.SLICE, 7 << 16 | 1)


def test_a_row_beyond_the_limit_is_refused_before_it_is_sent(pair: tuple[SocketChannel, SocketChannel]) -> None:
    length = BODY_BYTES_MAX + 1
    ends = pa.py_buffer(np.array([0, length], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(np.zeros(length, np.uint8))])
    huge = pa.RecordBatch.from_arrays([value], names=["i"])
    with pytest.raises(WireFault, match=r"one row takes 2684\d+ bytes .* the limit is 268435456 bytes"):
        pair[0].send_batch(0, huge, 0)
    assert not pair[0].wants_write


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (head(64, kind=0), "unknown kind 0"),
        (head(64, kind=9), "unknown kind 9"),
        (head(64, edge=EDGES), f"edge {EDGES}"),
        (head(100), "claims 100"),
        (head(1 << 30), "claims 1073741824"),
        (head(0), "claims 0"),
        (head(64, kind=Kind.CREDIT), "kind 4 claims 64"),
    ],
)
def test_what_is_no_frame_is_a_fault_after_the_frames_before_it(bad: bytes, told: str) -> None:
    raw, right = socket.socketpair()
    receiver = SocketChannel(right, 3, EDGES)
    raw.sendall(head(kind=Kind.END, edge=2) + bad)
    assert [frame.edge for frame in receiver.receive()] == [2]
    with pytest.raises(WireFault, match=f"worker 3 .*{told}"):
        receiver.receive()
    receiver.close()
    raw.close()


@settings(max_examples=150)
@given(data=st.data())
def test_a_mutated_stream_is_frames_or_a_fault(data: st.DataObject) -> None:
    batch = pa.record_batch({"s": ["a", None, "ccc"], "l": [[1], [], [2, 3]]})
    image = write_image(batch).to_pybytes()
    stream = bytearray((head(len(image), rows=3) + image + head(kind=Kind.CREDIT, value=5)) * 2)
    for _ in range(data.draw(st.integers(1, 5))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    raw, right = socket.socketpair()
    receiver = SocketChannel(right, 0, EDGES)
    raw.sendall(stream)
    raw.close()
    try:
        for _ in range(10):
            for frame in receiver.receive():
                if frame.kind == Kind.DATA:
                    unpack_batch(frame, batch.schema).validate(full=False)
    except (WireFault, PeerGone):
        pass
    else:
        pytest.fail("the end of the stream was not told")
    receiver.close()


def test_rows_must_be_those_of_the_head() -> None:
    image = write_image(numbers(3))
    with pytest.raises(WireFault, match=r"edge 5 .* 3 rows under a header of 4"):
        unpack_batch(BufferFrame(Kind.DATA, 5, 4, 0, image.size, image), NUMBERS)
    with pytest.raises(WireFault, match=r"edge 5 .* other types"):
        unpack_batch(BufferFrame(Kind.DATA, 5, 3, 0, image.size, image), pa.schema([("i", pa.string())]))


def test_the_end_comes_after_the_last_frame(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    sender.send_mark(Kind.END, 1)
    sender.say_goodbye()
    assert [frame.kind for frame in receiver.receive()] == [Kind.END]
    with pytest.raises(PeerGone, match="worker 0 closed"):
        receiver.receive()
    assert receiver.send_batch(0, numbers(3), 0) > 0  # our own direction is still open
    assert [frame.rows for frame in sender.receive()] == [3]


def test_sending_to_the_dead_is_peer_gone(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    receiver.close()
    with pytest.raises(PeerGone, match="worker 1 closed"):
        sender.send_batch(0, numbers(10), 0)
    with pytest.raises(PeerGone):
        sender.send_mark(Kind.CREDIT, 0, 1)


def test_what_waits_is_refused_once_the_peer_has_died(pair: tuple[SocketChannel, SocketChannel]) -> None:
    sender, receiver = pair
    while not sender.wants_write:
        sender.send_batch(0, numbers(50_000), 0)
    receiver.close()
    with pytest.raises(PeerGone):
        sender.flush()
