"""Turns: a thread that parks on a ring asks the scheduler for short ones, gives them back, and keeps its priority."""

from __future__ import annotations

import ctypes
import os
import struct
import threading

import pytest

from penstock._core import RingConsumer, RingProducer, RingSegment

SYS_SCHED_GETATTR = 315 if os.uname().machine == "x86_64" else 275
ATTRIBUTES = struct.Struct("<IIQiIQQQII")
SHORT_NS = 100_000


def own_turn() -> tuple[int, int]:
    """(turn in nanoseconds, nice) of the calling thread; turns are 0 before Linux 6.12."""
    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    assert ctypes.CDLL(None).syscall(SYS_SCHED_GETATTR, 0, found, ATTRIBUTES.size, 0) == 0
    fields = ATTRIBUTES.unpack(found.raw)
    return fields[5], fields[3]


def turns_of_a_consumer(found: list[tuple[int, int]]) -> None:
    """Before, after a wait in vain, after finding a message without waiting, and after another wait."""
    segment = RingSegment(1 << 16)
    consumer, producer = RingConsumer(segment), RingProducer(segment, 1)
    found.append(own_turn())
    assert consumer.next(timeout=0.001) is None
    found.append(own_turn())
    assert producer.send(0, b"x")
    assert consumer.next() is not None
    found.append(own_turn())
    assert consumer.next(timeout=0.001) is None
    found.append(own_turn())


def test_a_parked_consumer_takes_short_turns_and_gives_them_back() -> None:
    found: list[tuple[int, int]] = []
    thread = threading.Thread(target=turns_of_a_consumer, args=(found,))
    thread.start()
    thread.join()
    usual, nice = found[0]
    if not usual:
        pytest.skip("this kernel has no turns of a thread's own (Linux 6.12 and later have)")
    assert found == [(usual, nice), (SHORT_NS, nice), (usual, nice), (SHORT_NS, nice)]
    assert own_turn() == (usual, nice)  # other threads keep theirs
