"""Messages of the control line, taken from where they belong: changed, moved, played again, in both directions."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line.door import Door
from penstock.deploy.line.sealed import (
    GREETING,
    OPENING_BYTES,
    WORDS,
    Claim,
    Line,
    LineBroken,
    greeting,
    is_proved,
    open_line,
    read_exactly,
)
from penstock.run.transport.socket import listen

KEY = bytes(range(32))
Ends = tuple[Line, Line]  # the driver's and the worker's
Opened = Callable[[bytes, int, str], Ends]


class Driver:
    """A door for one key that keeps the lines which it has let in."""

    def __init__(self, key: bytes) -> None:
        listener = listen("127.0.0.1")
        self.address: tuple[str, int] = listener.getsockname()
        self.lines: list[Line] = []
        self._is_over = threading.Event()
        self._door = Door(listener, lambda claim: key if is_proved(claim, key) else None, self._serve, lines_max=1)

    def _serve(self, _: Claim, line: Line) -> None:
        self.lines.append(line)
        self._is_over.wait(20)

    def close(self) -> None:
        self._is_over.set()
        self._door.close(10)


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Lines opened as they are between two processes."""
    with contextlib.ExitStack() as stack:

        def made(key: bytes, worker: int, lane: str) -> Ends:
            driver = stack.enter_context(contextlib.closing(Driver(key)))
            line = stack.enter_context(contextlib.closing(open_line(driver.address, key, worker, lane, 10)))
            assert wait_until(lambda: bool(driver.lines), 10)
            return driver.lines[0], line

        yield made


def sealed_by(sender: Line, words: bytes) -> bytes:
    """A message as it would go over the wire of this line."""
    head = sender._out.head(WORDS, len(words))
    return head + words + sender._out.body(head, words)


def two_words(target: Line) -> list[bytes]:
    return [bytes(target.receive({WORDS: 100}, 10)[1]) for _ in range(2)]


OTHER_LINES = {
    "the same worker's, opened anew": (KEY, 0, "talk"),
    "another lane's": (KEY, 0, "poll"),
    "another worker's": (KEY, 1, "talk"),
    "another attempt's": (bytes(32), 0, "talk"),
}


@pytest.mark.parametrize("other", OTHER_LINES.values(), ids=OTHER_LINES)
@pytest.mark.parametrize("to_driver", [True, False], ids=["to the driver", "to a worker"])
def test_a_message_of_another_line_is_none(opened: Opened, other: tuple[bytes, int, str], to_driver: bool) -> None:
    """The very bytes that would be taken on the line that they were sealed for."""
    driver, worker = opened(KEY, 0, "talk")
    other_driver, other_worker = opened(*other)
    sender, target, genuine = (other_worker, driver, worker) if to_driver else (other_driver, worker, driver)
    genuine.connection.sendall(sealed_by(sender, b'{"call":"done"}'))
    with pytest.raises(LineBroken, match="does not carry the seal of this line"):
        target.receive({WORDS: 100}, 10)


@pytest.mark.parametrize("to_driver", [True, False], ids=["to the driver", "to a worker"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one, two: one[:30] + bytes([one[30] ^ 1]) + one[31:], "kind 1 and 16 bytes does not carry the seal"),
        (lambda one, two: two + one, "head does not carry the seal"),
        (lambda one, two: one + one, "head does not carry the seal"),
        (lambda one, two: two, "head does not carry the seal"),
        (lambda one, two: two[:21] + one[21:], "head does not carry the seal"),
        (lambda one, two: one[:21] + two[21:], "kind 1 and 16 bytes does not carry the seal"),
    ],
    ids=["changed", "swapped", "doubled", "left out", "another's body", "another's head"],
)
def test_what_somebody_on_the_way_does_to_words_is_found_out_in_both_directions(
    opened: Opened, change: Callable[[bytes, bytes], bytes], told: str, to_driver: bool
) -> None:
    driver, worker = opened(KEY, 0, "talk")
    sender, target = (worker, driver) if to_driver else (driver, worker)
    one, two = (sealed_by(sender, words) for words in (b'{"call":"first"}', b'{"call":"later"}'))
    sender.connection.sendall(change(one, two))
    with pytest.raises(LineBroken, match=told):
        two_words(target)


def test_messages_that_nobody_touched_are_taken_in_both_directions(opened: Opened) -> None:
    for sender, target in (ends := opened(KEY, 0, "talk"), ends[::-1]):
        sender.connection.sendall(sealed_by(sender, b"one") + sealed_by(sender, b"two"))
        assert two_words(target) == [b"one", b"two"]


def test_a_driver_that_was_recorded_is_not_believed_by_the_next_caller() -> None:
    """Its greeting and its proof, played again: the worker's own nonce is new each time."""
    recorded: list[bytes] = []
    driver = Driver(KEY)
    with socket.create_server(("127.0.0.1", 0)) as middle:
        relay = threading.Thread(target=_relay_driver, args=(middle, driver.address, recorded))
        relay.start()
        open_line(middle.getsockname(), KEY, 0, "talk", 10).close()
        relay.join()
    driver.close()
    with socket.create_server(("127.0.0.1", 0)) as forged:
        play = threading.Thread(target=_play_driver, args=(forged, recorded))
        play.start()
        with pytest.raises(LineBroken, match="is not this job's driver: it does not hold the job's key"):
            open_line(forged.getsockname(), KEY, 0, "talk", 10)
        play.join()


def _relay_driver(middle: socket.socket, address: tuple[str, int], recorded: list[bytes]) -> None:
    worker, _ = middle.accept()
    with worker, socket.create_connection(address) as driver:
        recorded.append(bytes(read_exactly(driver, GREETING.size)))
        worker.sendall(recorded[0])
        driver.sendall(read_exactly(worker, OPENING_BYTES))
        recorded.append(bytes(read_exactly(driver, 32)))
        worker.sendall(recorded[1])


def _play_driver(forged: socket.socket, recorded: list[bytes]) -> None:
    worker, _ = forged.accept()
    with worker:
        worker.sendall(recorded[0])
        read_exactly(worker, OPENING_BYTES)
        worker.sendall(recorded[1])


def test_a_driver_without_the_key_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as forged:
        play = threading.Thread(target=_play_driver, args=(forged, [greeting(), os.urandom(32)]))
        play.start()
        with pytest.raises(LineBroken, match="is not this job's driver"):
            open_line(forged.getsockname(), KEY, 0, "talk", 10)
        play.join()
