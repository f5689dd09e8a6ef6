"""Links between two workers of one machine: fallback that both ends agree on, and calls that get lost."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock._core import NoSharedMemory
from penstock.run.channel import socket as socket_room
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.ring import RingChannel
from penstock.run.channel.socket import listen
from penstock.run.links import Links, WorkerPlace
from penstock.run.wire import Frame, Kind, unpack_batch

BATCH = pa.record_batch({"i": list(range(10))})
LOOKS_MAX = 1_000


@contextlib.contextmanager
def two_workers() -> Iterator[tuple[Links, Links]]:
    """Worker 0 sends to worker 1 along edge 0."""
    ends = Links(0, 1, {0: 1}, {}), Links(1, 1, {}, {0: 0})
    listeners = [listen("127.0.0.1") for _ in ends]
    places = [WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], "here") for w, s in enumerate(listeners)]
    key = os.urandom(32)
    with contextlib.ExitStack() as stack:
        for links, listener in zip(ends, listeners, strict=True):
            stack.callback(links.close)
            stack.callback(listener.close)
        called = threading.Thread(target=ends[1].open, args=(listeners[1], places, key))
        called.start()
        ends[0].open(listeners[0], places, key)
        called.join()
        yield ends


def heard(links: Links) -> list[Frame]:
    """The first frames that come."""
    for _ in range(LOOKS_MAX):
        if frames := links.wait(0.01)[0]:
            return frames
    return pytest.fail("nothing came")


def transports(*ends: Links) -> set[str]:
    return {transport for links in ends for transport, _ in links.statistics().values()}


def test_a_call_that_never_came_delays_what_was_sent_but_does_not_lose_it() -> None:
    with two_workers() as (sender, receiver):
        assert transports(sender, receiver) == {"ring"}
        sender.send_batch(0, BATCH, 0)
        assert receiver._inbox is not None
        os.eventfd_read(receiver._inbox.wake_fileno())  # as if the sender had stopped before it wrote it
        (frame,) = heard(receiver)
        assert unpack_batch(frame, BATCH.schema).equals(BATCH)


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_other_events_and_other_work_do_not_hide_a_call_that_never_came(seconds: float) -> None:
    with two_workers() as (sender, receiver):
        driver = os.eventfd(1)
        try:
            receiver.watch(driver)  # readable whenever the receiver waits
            sender.send_batch(0, BATCH, 0)
            assert receiver._inbox is not None
            os.eventfd_read(receiver._inbox.wake_fileno())
            frames: list[Frame] = []
            deadline = time.monotonic() + 30
            while not frames and time.monotonic() < deadline:
                frames, called = receiver.wait(seconds)
                assert called
            assert [unpack_batch(frame, BATCH.schema) for frame in frames] == [BATCH]
        finally:
            os.close(driver)


def test_connections_send_at_once_before_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed: list[int] = []

    def watched(connection: socket.socket, *words: object, **named: object) -> int:
        if connection.family == socket.AF_INET:
            delayed.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        return handshake(connection, *words, **named)  # type: ignore[arg-type]

    handshake = socket_room.handshake
    monkeypatch.setattr(socket_room, "handshake", watched)
    with two_workers():
        assert len(delayed) == 2
        assert all(delayed)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_inbox_that_one_end_cannot_take_is_used_by_neither(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    connect = Inbox.connect

    def one_end_fails(inbox: Inbox, connection: socket.socket, peer: int) -> RingChannel:
        channel = connect(inbox, connection, peer)  # the other end has our inbox by now
        if inbox.worker == failing:
            channel.close()
            msg = "no more descriptors"
            raise NoSharedMemory(msg)
        return channel

    monkeypatch.setattr(Inbox, "connect", one_end_fails)
    with two_workers() as (sender, receiver):
        assert transports(sender, receiver) == {"socket"}
        assert "no more descriptors" in (sender, receiver)[failing].notes[0]
        assert "cannot share memory" in (sender, receiver)[1 - failing].notes[0]
        sender.send_batch(0, BATCH, 0)
        sender.send_mark(Kind.END, 0)
        frames = heard(receiver)
        assert unpack_batch(frames[0], BATCH.schema).equals(BATCH)
