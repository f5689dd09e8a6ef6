"""The ring's Python face: spans, records, parts, batches, limits, and who may use it."""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._core import (
    ImageCodec,
    NoSharedMemory,
    RingConsumer,
    RingFault,
    RingGone,
    RingProducer,
    RingRefused,
    RingSegment,
    ring_next_frame,
    ring_send_batch,
)
from penstock.errors import PenstockError

CAPACITY = 64 * 1024


def ends(capacity: int = CAPACITY, **limits: int) -> tuple[RingProducer, RingConsumer]:
    segment = RingSegment(capacity, slots=16)
    theirs = RingSegment.attach(segment.fileno(), segment.wake_fileno())
    return RingProducer(theirs, 7), RingConsumer(segment, **limits)


def in_child(work: object) -> int:
    """Run this in a forked process; the status it ended with."""
    child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def test_a_message_says_where_it_comes_from_and_goes() -> None:
    producer, consumer = ends()
    assert producer.send(3, b"hello", b" world")
    record = consumer.next(0)
    assert record is not None
    assert (record.target, record.producer, record.sequence, record.epoch) == (3, 7, 0, 1)
    assert (bytes(record), len(record), record.in_place) == (b"hello world", 11, True)
    assert record.address % 64 == 0
    assert consumer.next(0) is None


def test_records_are_read_only_and_spans_are_not() -> None:
    producer, consumer = ends()
    span = producer.reserve(1, 8)
    assert span is not None
    with memoryview(span) as view:
        view[:] = b"12345678"
        with pytest.raises(RingRefused, match="view"):
            span.publish()
    span.publish()
    record = consumer.next(0)
    assert bytes(record or b"") == b"12345678"
    assert memoryview(record).readonly  # type: ignore[arg-type]
    with pytest.raises(RingRefused, match="published or abandoned"):
        span.publish()


def test_an_abandoned_span_is_stepped_over() -> None:
    producer, consumer = ends()
    with producer.reserve(1, 100) or pytest.fail("no space"):
        pass
    producer.send(1, b"next")
    assert bytes(consumer.next(0) or b"") == b"next"
    assert consumer.statistics()["abandoned"] == 1


def test_the_window_slides_over_an_unfinished_record_of_another_producer() -> None:
    segment = RingSegment(CAPACITY)
    slow, quick, consumer = RingProducer(segment, 1), RingProducer(segment, 2), RingConsumer(segment)
    span = slow.reserve(0, 10)
    assert span is not None
    for number in range(5):
        quick.send(0, bytes([number]))
    assert [bytes(record) for record in consumer.drain()] == [bytes([number]) for number in range(5)]
    slow.send(0, b"later")  # order within one producer holds: it waits for the first
    assert consumer.drain() == []
    span.publish()
    assert [len(record) for record in consumer.drain()] == [10, 5]


def test_the_window_has_an_end() -> None:
    segment = RingSegment(CAPACITY)
    slow, quick, consumer = RingProducer(segment, 1), RingProducer(segment, 2), RingConsumer(segment, window=4)
    span = slow.reserve(0, 10)
    assert span is not None
    for number in range(10):
        quick.send(0, bytes([number]))
    assert len(consumer.drain()) == 3  # with the unfinished one, four
    span.publish()
    assert len(consumer.drain()) == 8


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(0, 3 * CAPACITY), max_size=12), keep=st.integers(0, 3))
def test_any_sizes_come_through_whole_whatever_is_held(sizes: list[int], keep: int) -> None:
    producer, consumer = ends()
    messages = [bytes([i + 1]) * size for i, size in enumerate(sizes)]

    def produce() -> None:
        for message in messages:
            assert producer.send(0, message, timeout=20)

    thread = threading.Thread(target=produce)
    thread.start()
    held, seen = [], []
    for message in messages:
        record = consumer.next(20)
        assert record is not None
        assert bytes(record) == message
        seen.append(len(record))
        held = [*held, record][-keep:] if keep else []
    thread.join()
    assert seen == sizes


def test_records_held_for_ever_leave_the_ring_with_their_addresses() -> None:
    producer, consumer = ends(pin_ns=0)
    held = []
    for number in range(200):  # 200 x 4,000 bytes through a ring of 64 KB
        while not producer.send(number, bytes([number]) * 4000, timeout=0):
            producer.notify_space()
            consumer.next(0.001)
        record = consumer.next(0)
        assert record is not None
        held.append((record.address, record))
    assert consumer.statistics()["evictions"] > 0
    for number, (address, record) in enumerate(held):
        assert record.address == address
        assert bytes(record) == bytes([number]) * 4000


def test_arrow_reads_a_record_in_place_after_everything_else_is_gone() -> None:
    producer, consumer = ends()
    producer.send(0, bytes(range(64)))
    record = consumer.next(0)
    assert record is not None
    address = record.address
    buffer = pa.py_buffer(record)
    del record, producer, consumer
    gc.collect()
    assert buffer.address == address
    assert buffer.to_pybytes() == bytes(range(64))


def test_space_is_free_again_when_the_last_reference_goes() -> None:
    producer, consumer = ends()
    producer.send(0, bytes(1000))
    record = consumer.next(0)
    view = memoryview(record)[10:20]  # type: ignore[arg-type]
    del record
    assert consumer.statistics()["pinned_bytes"] == 1024
    view.release()
    del view
    assert consumer.statistics()["pinned_bytes"] == 0


@given(messages=st.lists(st.binary(max_size=100), max_size=30))
def test_a_batch_keeps_its_messages(messages: list[bytes]) -> None:
    producer, consumer = ends()
    assert producer.send_batch(5, messages, timeout=0)
    record = consumer.next(0)
    assert record is not None
    assert record.is_batch
    assert [bytes(message) for message in record.messages()] == messages


def test_a_full_ring_refuses_and_meters_the_wait() -> None:
    producer, consumer = ends()
    sent = 0
    while producer.send(0, bytes(4000), timeout=0):
        sent += 1
    assert sent == 16  # as many as there are slots; 16 x 63 of 1,024 units
    assert producer.statistics()["blocked_ns"] > 0
    assert [len(record) for record in consumer.drain()] == [4000] * sent
    assert producer.send(0, bytes(4000), timeout=0)


def test_a_parked_consumer_is_woken_through_the_eventfd() -> None:
    producer, consumer = ends()
    assert consumer.arm()
    assert not select.select([consumer.fileno()], [], [], 0)[0]
    producer.send(0, b"x")
    assert select.select([consumer.fileno()], [], [], 20)[0]
    consumer.disarm()
    assert not select.select([consumer.fileno()], [], [], 0)[0]
    assert not consumer.arm()  # there is something already
    assert len(consumer.drain()) == 1
    assert producer.statistics()["wakes"] == 1
    producer.send(0, b"y")  # nobody is parked, so nobody is woken
    assert producer.statistics()["wakes"] == 1


def test_who_sleeps_beside_an_empty_ring_goes_back_to_its_start() -> None:
    producer, consumer = ends()
    quarter = CAPACITY // 4
    producer.send(0, bytes(quarter))
    first = consumer.next(0)
    assert first is not None
    start = first.address
    assert consumer.arm()
    assert consumer.statistics()["restarts"] == 0  # what is held stays where it is
    del first
    assert consumer.statistics()["restarts"] == 1  # let go of after asking to be woken
    for _ in range(3):
        consumer.disarm()
        producer.send(0, bytes(quarter))
        again = consumer.next(0)
        assert again is not None
        assert again.address == start
        del again  # before asking to be woken
        assert consumer.arm()
    assert consumer.statistics()["restarts"] == 4
    for _ in range(4):  # and all of the ring is there to be filled
        assert producer.send(0, bytes(quarter), timeout=0)
    assert not producer.send(0, b"x", timeout=0)
    assert len(consumer.drain()) == 4


def test_a_short_way_from_the_start_is_not_worth_going_back() -> None:
    producer, consumer = ends()
    for _ in range(3):
        producer.send(0, bytes(1024))
        assert consumer.next(0) is not None
        assert consumer.arm()
        consumer.disarm()
    assert consumer.statistics()["restarts"] == 0


def test_a_batch_goes_in_one_step_unless_it_is_too_long_or_finds_no_space() -> None:
    producer, consumer = ends()
    batch = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
    codec = ImageCodec(batch.schema.__arrow_c_schema__(), batch.schema)
    size = codec.prepare(batch).size
    assert ring_send_batch(producer, 2, codec, batch, 5) == size
    frame = ring_next_frame(consumer, 3)
    assert frame is not None
    assert (frame.edge, frame.rows, frame.value, frame.size, frame.producer) == (2, 1000, 5, size, 7)
    assert frame.open(codec).equals(batch)
    assert ring_next_frame(consumer, 3, 0) is None
    sent = 0
    while ring_send_batch(producer, 2, codec, batch, 5):
        sent += 1
    assert sent >= CAPACITY // size - 2
    assert ring_send_batch(producer, 2, codec, pa.concat_batches([batch] * 3), 5, None) == 0  # for no length of waiting


def test_the_end_is_told_in_its_place() -> None:
    producer, consumer = ends()
    producer.send(0, b"last")
    producer.send_end()
    assert [record.is_end for record in consumer.drain()] == [False, True]


def test_a_dead_producer_is_told_once_and_its_place_is_given_again() -> None:
    segment = RingSegment(CAPACITY, producers=1)
    consumer = RingConsumer(segment)

    def die() -> None:
        producer = RingProducer(segment, 9)
        producer.send(0, b"published")
        span = producer.reserve(0, 10)
        assert span is not None
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == signal.SIGKILL
    with pytest.raises(RingRefused, match="producers"):
        RingProducer(segment, 10)
    assert [bytes(record) for record in consumer.drain()] == [b"published"]
    assert consumer.departed() == [9]
    assert consumer.departed() == []
    assert consumer.statistics()["skipped"] == 1
    RingProducer(segment, 10).send(0, b"goes on")
    assert bytes(consumer.next(0) or b"") == b"goes on"


def test_what_a_dead_producer_left_in_every_slot_is_read_before_it_is_told() -> None:
    segment = RingSegment(CAPACITY, slots=8)
    consumer = RingConsumer(segment)

    def die() -> None:
        producer = RingProducer(segment, 9)
        for number in range(8):
            assert producer.send(0, bytes([number]), timeout=0)
        assert not producer.send(0, b"no slot", timeout=0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == signal.SIGKILL
    assert consumer.departed() == []  # dead, but not all is read
    assert [bytes(record) for record in consumer.drain()] == [bytes([number]) for number in range(8)]
    assert consumer.departed() == [9]


def test_who_lives_is_not_taken_for_dead_where_there_are_no_descriptors() -> None:
    producer, consumer = ends()
    span = producer.reserve(0, 5)
    assert span is not None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert consumer.drain() == []  # looks whether the producer lives, without a pidfd
        producer.check_peer()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with memoryview(span) as space:
        space[:] = b"whole"
    span.publish()
    assert [bytes(record) for record in consumer.drain()] == [b"whole"]
    assert consumer.statistics()["skipped"] == 0


def test_a_dead_producer_is_found_where_there_are_no_descriptors() -> None:
    segment = RingSegment(CAPACITY)
    consumer = RingConsumer(segment)

    def die() -> None:
        span = RingProducer(segment, 9).reserve(0, 10)
        assert span is not None
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == signal.SIGKILL
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert consumer.drain() == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert consumer.statistics()["skipped"] == 1


def test_a_dead_consumer_ends_its_producers_wait() -> None:
    segment = RingSegment(CAPACITY)

    def die() -> None:
        consumer = RingConsumer(segment)
        assert consumer.next(0) is None
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == signal.SIGKILL
    producer = RingProducer(segment, 1)
    while producer.send(0, bytes(4000), timeout=0):
        pass
    with pytest.raises(RingGone, match="died"):
        producer.send(0, bytes(4000))


def test_a_closed_consumer_ends_its_producers_wait() -> None:
    producer, consumer = ends()
    consumer.close()
    with pytest.raises(RingGone, match="closed"):
        producer.send(0, b"")


def test_a_replaced_producer_is_refused() -> None:
    producer, consumer = ends()
    span = producer.reserve(0, 5)
    assert span is not None
    consumer.revoke(7)
    span.publish()  # what it had begun before it was stopped
    with pytest.raises(RingRefused, match="replaced"):
        producer.send(0, b"after")
    assert consumer.drain() == []
    assert consumer.statistics()["refused"] == 1


def test_another_epoch_is_refused() -> None:
    segment = RingSegment(CAPACITY, epoch=5)
    with pytest.raises(RingRefused, match="epoch 5 is offered; this process is of epoch 4"):
        RingSegment.attach(segment.fileno(), segment.wake_fileno(), 4)


def test_a_ring_has_one_consumer() -> None:
    segment = RingSegment(CAPACITY)
    consumer = RingConsumer(segment)
    with pytest.raises(RingRefused, match="consumer already"):
        RingConsumer(segment)

    def second() -> None:
        with pytest.raises(RingRefused, match="consumer already"):
            RingConsumer(segment)

    assert in_child(second) == 0
    RingProducer(segment, 1).check_peer()  # who was refused has left nothing that says the first one is dead
    consumer.close()


def test_records_let_go_after_the_end_call_nobody() -> None:
    producer, consumer = ends()
    called = os.eventfd(0, os.EFD_NONBLOCK)
    consumer.wake_for_space(7, called)
    producer.send(0, bytes(CAPACITY // 4))
    held = consumer.drain()
    producer.notify_space()
    consumer.close()
    assert os.eventfd_read(called) == 1  # closing calls
    del held  # frees a quarter, of which nobody needs to hear: the number may be another file's by now
    with pytest.raises(BlockingIOError):
        os.eventfd_read(called)
    os.close(called)


def test_a_forked_child_that_arms_its_parents_ring_takes_nothing_of_it() -> None:
    segment = RingSegment(256 * 1024)
    consumer, producer = RingConsumer(segment), RingProducer(segment, 7)
    producer.send(0, bytes(64 * 1024))
    assert consumer.next(0) is not None  # let go at once: the ring is empty, far from its start

    def child() -> None:
        consumer.arm()

    assert in_child(child) == 0
    producer.send(0, b"hello")
    record = consumer.next(1)
    assert record is not None
    assert bytes(record) == b"hello"


def test_a_forked_child_must_make_its_own() -> None:
    producer, consumer = ends()
    span = producer.reserve(0, 5)
    assert span is not None

    def misuse() -> None:
        with pytest.raises(RingRefused, match="fork"):
            producer.send(0, b"x")
        with pytest.raises(RingRefused, match="fork"):
            consumer.next(0)
        span.abandon()  # as it also is when the child forgets it; the parent's is as it was

    assert in_child(misuse) == 0
    assert consumer.next(0) is None
    assert consumer.statistics()["abandoned"] == 0
    with memoryview(span) as space:
        space[:] = b"still"
    span.publish()
    assert bytes(consumer.next(0) or b"") == b"still"
    producer.send(0, b"unharmed")
    assert bytes(consumer.next(0) or b"") == b"unharmed"


def test_the_memory_is_private_sealed_and_nameless() -> None:
    segment = RingSegment(CAPACITY)
    assert os.fstat(segment.fileno()).st_mode & 0o777 == 0o600
    assert "memfd" in os.readlink(f"/proc/self/fd/{segment.fileno()}")
    for size in (0, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fileno(), size)


def test_what_is_no_ring_is_refused() -> None:
    one, other = socket.socketpair()
    with one, other, pytest.raises(RingRefused, match="sealed"):
        RingSegment.attach(one.fileno(), -1)
    with pytest.raises(RingRefused, match="not open"):
        RingSegment.attach(99_999, -1)


@pytest.mark.parametrize(("at", "error"), [(0, RingFault), (8, RingRefused), (16, RingFault), (32, RingFault)])
def test_a_damaged_header_is_a_typed_error(at: int, error: type[PenstockError]) -> None:
    segment = RingSegment(CAPACITY)
    os.pwrite(segment.fileno(), b"\x7f\x7f", at)
    with pytest.raises(error):
        RingSegment.attach(segment.fileno(), segment.wake_fileno())


def test_a_damaged_payload_is_found_where_it_is_asked_for() -> None:
    segment = RingSegment(CAPACITY)
    producer, consumer = RingProducer(segment, 1, checksum=True), RingConsumer(segment)
    producer.send(0, bytes(100))
    os.pwrite(segment.fileno(), b"\x01", os.fstat(segment.fileno()).st_size - CAPACITY + 50)
    with pytest.raises(RingFault, match="payload"):
        consumer.next(0)


def test_limits_are_named() -> None:
    with pytest.raises(RingRefused, match="limit is"):
        RingSegment(1 << 40)
    with pytest.raises(RingRefused, match="limit is"):
        RingSegment(CAPACITY, producers=10_000)
    producer, consumer = ends(message_max=100_000)
    with pytest.raises(RingRefused, match="send it in parts"):
        producer.reserve(0, CAPACITY)
    producer.send_part(0, bytes(1000), 200_000, first=True, last=False)
    with pytest.raises(RingFault, match="limit is 100000"):
        consumer.next(0)


def test_errors_are_ours_and_pythons() -> None:
    assert issubclass(RingGone, PenstockError)
    assert issubclass(RingGone, ConnectionError)
    assert issubclass(NoSharedMemory, OSError)


WITHOUT_MEMORY = """
import resource
from penstock._core import RingConsumer, RingProducer, RingSegment
segment = RingSegment(4 << 20)
consumer, producer = RingConsumer(segment, pin_ns=0), RingProducer(segment, 1)
message = bytes(range(256)) * 1024
while producer.send(0, message, timeout=0.0):
    pass
held = consumer.drain()
assert producer.reserve(0, len(message), 0.0) is None
producer.notify_space()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
assert consumer.arm(), "a consumer that cannot help its producers does not sleep"
assert consumer.statistics()["evictions"] == 0
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for _ in range(100):
    consumer.next(0.05)
    if consumer.statistics()["evictions"]:
        break
assert consumer.statistics()["evictions"] == 1
assert producer.send(0, message, timeout=0.0)
assert all(bytes(record) == message for record in held)
"""


def test_held_records_that_cannot_move_out_do_not_keep_their_consumer_awake() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
