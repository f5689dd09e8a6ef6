"""One wait for all descriptors of a worker: what is readable, signals, more than one call gives, and no epoll."""

from __future__ import annotations

import errno
import os
import select
import signal
import threading
from collections.abc import Iterator

import pytest

from penstock._core import epoll_wait_ns

SECOND_NS = 1_000_000_000


@pytest.fixture
def epoll() -> Iterator[select.epoll]:
    with select.epoll() as made:
        yield made


def test_readable_descriptors_come_with_their_events_and_others_do_not(epoll: select.epoll) -> None:
    ready, quiet = os.eventfd(1), os.eventfd(0)
    try:
        epoll.register(ready, select.EPOLLIN)
        epoll.register(quiet, select.EPOLLIN)
        assert epoll_wait_ns(epoll.fileno(), 0) == [(ready, select.EPOLLIN)]
        assert epoll_wait_ns(epoll.fileno(), 60 * SECOND_NS) == [(ready, select.EPOLLIN)]
        epoll.unregister(ready)
        assert epoll_wait_ns(epoll.fileno(), 1) == []
    finally:
        os.close(ready)
        os.close(quiet)


def test_more_than_one_call_gives_come_with_the_next_ones(epoll: select.epoll) -> None:
    descriptors = {os.eventfd(1) for _ in range(200)}
    try:
        for descriptor in descriptors:
            epoll.register(descriptor, select.EPOLLIN)
        found: set[int] = set()
        for _ in range(len(descriptors)):
            found |= {descriptor for descriptor, _ in epoll_wait_ns(epoll.fileno(), 0)}
        assert found == descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def test_a_signal_ends_the_wait_and_what_its_handler_raises_is_raised(epoll: select.epoll) -> None:
    class Heard(Exception):
        pass

    def raises(number: int, frame: object) -> None:
        raise Heard

    before = signal.signal(signal.SIGUSR1, raises)
    sender = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        sender.start()
        with pytest.raises(Heard):
            epoll_wait_ns(epoll.fileno(), 60 * SECOND_NS)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("timeout_ns", [0, 1])
def test_what_is_no_epoll_is_an_error_of_the_system(timeout_ns: int) -> None:
    with pytest.raises(OSError, match="descriptor") as caught:
        epoll_wait_ns(-1, timeout_ns)
    assert caught.value.errno == errno.EBADF
