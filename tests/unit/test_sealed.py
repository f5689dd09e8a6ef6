"""Sealed lines and the door before them, attacked as a stranger would: on loopback, with little and for a moment."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line import door
from penstock.deploy.line.door import Door
from penstock.deploy.line.messages import decode_rows, encode_rows
from penstock.deploy.line.sealed import (
    GREETING,
    OPENING_BYTES,
    RESULTS,
    WORDS,
    Claim,
    Line,
    LineBroken,
    Sealer,
    accept_claim,
    greeting,
    is_proved,
    open_line,
    read_claim,
    read_exactly,
    veiled,
)
from penstock.run.transport.socket import listen

KEY = bytes(range(32))


class Echo:
    """A door whose lines say back what they hear."""

    def __init__(self) -> None:
        listener = listen("127.0.0.1")
        self.address = listener.getsockname()
        self.heard: list[bytes] = []
        self.door = Door(listener, lambda claim: KEY if is_proved(claim, KEY) else None, self._serve, lines_max=2)

    def _serve(self, claim: Claim, line: Line) -> None:
        while True:
            _, body = line.receive({WORDS: 1000}, 10)
            self.heard.append(bytes(body))
            line.send(WORDS, body)

    def call(self, key: bytes = KEY) -> Line:
        return open_line(self.address, key, 0, "talk", 10)

    def knock(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.door.close(10)
    assert [t.name for t in threading.enumerate() if t.name.startswith("penstock-control")] == []


def said(line: Line, words: bytes) -> bytes:
    line.send(WORDS, words)
    return bytes(line.receive({WORDS: 1000})[1])


def is_shut(connection: socket.socket) -> bool:
    """Whether the other end has closed, after whatever it said before."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    connection.close()
    return True


def test_who_holds_the_key_is_heard(echo: Echo) -> None:
    line = echo.call()
    assert said(line, b"one") == b"one"
    assert said(line, b"") == b""
    line.close()


def test_who_holds_another_key_is_not(echo: Echo) -> None:
    with pytest.raises(LineBroken):
        echo.call(bytes(32))
    assert echo.heard == []


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".ljust(200), bytes(OPENING_BYTES), os.urandom(OPENING_BYTES), b"\xff" * 300],
    ids=["http", "zeros", "noise", "ones"],
)
def test_garbage_is_shut_out(echo: Echo, garbage: bytes) -> None:
    connection = echo.knock()
    connection.sendall(garbage)
    assert is_shut(connection)
    line = echo.call()
    assert said(line, b"still here") == b"still here"
    line.close()


def test_an_opening_that_was_recorded_opens_no_second_line(echo: Echo) -> None:
    recorded: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as middle:
        relay = threading.Thread(target=_relay_opening, args=(middle, echo.address, recorded))
        relay.start()
        line = open_line(middle.getsockname(), KEY, 0, "talk", 10)
        relay.join()
    line.close()
    replay = echo.knock()
    read_exactly(replay, GREETING.size)  # another nonce than the one that was signed
    replay.sendall(recorded[0])
    assert is_shut(replay)


def _relay_opening(middle: socket.socket, address: tuple[str, int], recorded: list[bytes]) -> None:
    """Stand between a worker and its driver for as long as the opening takes."""
    worker, _ = middle.accept()
    with worker, socket.create_connection(address) as driver:
        worker.sendall(read_exactly(driver, GREETING.size))
        recorded.append(bytes(read_exactly(worker, OPENING_BYTES)))
        driver.sendall(recorded[0])
        worker.sendall(read_exactly(driver, 32))


def test_a_body_of_300_megabytes_is_never_read(echo: Echo) -> None:
    before = peak_kb()
    for opening in (bytes(1 << 16), b""):  # with noise instead of an opening, and with a line of its own
        connection = echo.knock() if opening else echo.call().connection
        connection.settimeout(10)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            pour(connection, opening or struct.pack("<BI", WORDS, 300 << 20).ljust(1 << 20))
        connection.close()
    assert peak_kb() - before < 20_000


def pour(connection: socket.socket, piece: bytes) -> None:
    for _ in range(300):
        connection.sendall(piece)


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_idle_connections_never_keep_a_worker_out(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "STRANGERS_MAX", 16)
    idle = [echo.knock() for _ in range(3 * door.STRANGERS_MAX)]
    line = echo.call()
    assert said(line, b"through") == b"through"
    assert echo.door.strangers <= door.STRANGERS_MAX
    for connection in idle[: door.STRANGERS_MAX]:
        assert is_shut(connection)
    line.close()
    for connection in idle:
        connection.close()


def test_more_connections_than_descriptors_are_survived(echo: Echo) -> None:
    held = len(list(Path("/proc/self/fd").iterdir()))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    idle: list[socket.socket] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 60, limits[1]))
        with pytest.raises(OSError, match="Too many open files"):
            idle.extend(echo.knock() for _ in range(100))
        while len(idle) > 2:  # the callers share the limit with the door: it is given room for one of its own
            idle.pop().close()
        line = echo.call()
        assert said(line, b"through") == b"through"
        line.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for connection in idle:
            connection.close()


def test_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "PROVE_SECONDS", 0.0)
    impatient = Echo()
    assert is_shut(impatient.knock())
    impatient.door.close(10)


def test_there_are_never_more_lines_than_workers_have(echo: Echo) -> None:
    lines = [echo.call(), echo.call()]
    with pytest.raises(LineBroken):
        echo.call()
    for line in lines:
        line.close()
    assert wait_until(lambda: not echo.door._lines, 10)
    echo.call().close()


def test_closing_ends_every_line(echo: Echo) -> None:
    line = echo.call()
    echo.door.close(10)
    with pytest.raises((LineBroken, ConnectionResetError)):
        line.receive({WORDS: 10})
    line.close()


# -- seals -------------------------------------------------------------------------------------------------------------


def pair() -> tuple[Line, Line]:
    ours, theirs = socket.socketpair()
    return Line(ours, KEY, at_driver=True), Line(theirs, KEY, at_driver=False)


def carried(change: Callable[[bytes], bytes], kind: int = WORDS) -> bytes:
    """What the driver hears when somebody on the way changes the bytes of two messages."""
    driver, worker = pair()
    on_the_way = socket.socketpair()
    try:
        worker.connection.close()
        worker.connection = on_the_way[0]
        worker.send(kind, b"first")
        worker.send(kind, b"second")
        worker.connection.close()
        wire = b""
        while piece := on_the_way[1].recv(4096):
            wire += piece
        ours, theirs = socket.socketpair()
        driver.connection.close()
        driver.connection = ours
        with theirs:
            theirs.sendall(change(wire))
            theirs.shutdown(socket.SHUT_WR)
            return b" ".join(bytes(driver.receive({kind: 100})[1]) for _ in range(2))
    finally:
        for end in (*on_the_way, driver.connection):
            end.close()


def test_messages_arrive_as_they_were_sent() -> None:
    assert carried(bytes) == b"first second"


@given(st.integers(0, 116), st.integers(1, 255), st.sampled_from([WORDS, RESULTS]))
def test_a_changed_byte_is_found_out(position: int, mask: int, kind: int) -> None:
    def change(wire: bytes) -> bytes:
        assert len(wire) == 117  # 2 x (5 + 16 + 32), and 11 letters
        return wire[:position] + bytes([wire[position] ^ mask]) + wire[position + 1 :]

    with pytest.raises(LineBroken):
        carried(change, kind)


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1,)], ids=["swapped", "doubled", "left out"])
def test_messages_cannot_change_places(order: tuple[int, ...]) -> None:
    with pytest.raises(LineBroken):
        carried(lambda wire: b"".join((wire[:58], wire[58:])[i] for i in order))


@pytest.mark.parametrize(("kind", "found_out"), [(WORDS, True), (RESULTS, False)])
def test_on_loopback_words_are_sealed_and_of_rows_only_the_head(kind: int, found_out: bool) -> None:
    """Nobody but root can write into such a connection, and rows are many; across machines everything is sealed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    driver, worker = Line(ours, KEY, at_driver=True), Line(theirs, KEY, at_driver=False)
    head = worker._out.head(kind, 3)
    worker.connection.sendall(head + b"abc" + worker._out.body(head))
    if found_out:
        with pytest.raises(LineBroken, match="does not carry the seal of this line"):
            driver.receive({kind: 3})
    else:
        assert driver.receive({kind: 3}) == (kind, b"abc")
    driver.close()
    worker.close()


def test_directions_have_keys_of_their_own() -> None:
    driver, worker = pair()
    driver.send(WORDS, b"cancel")
    echoed = worker.connection.recv(1000)
    worker.connection.sendall(echoed)  # the driver's own words come back to it
    with pytest.raises(LineBroken, match="head does not carry the seal"):
        driver.receive({WORDS: 100})
    driver.close()
    worker.close()


def test_a_kind_that_is_not_expected_is_refused_by_its_head() -> None:
    driver, worker = pair()
    worker.connection.sendall(worker._out.head(RESULTS, 10))
    with pytest.raises(LineBroken, match=r"kind 2 and 10 bytes; the limits are \{1: 100\}"):
        driver.receive({WORDS: 100})
    driver.close()
    worker.close()


@given(st.binary(min_size=OPENING_BYTES, max_size=OPENING_BYTES))
def test_no_other_opening_is_a_proof(opening: bytes) -> None:
    claim = read_claim(greeting(), opening)
    assert claim is None or not is_proved(claim, KEY)


def test_a_claim_for_another_worker_is_no_proof() -> None:
    greeted = greeting()
    claim = Claim(0, "talk", greeted + b"worker 0", b"")
    proved = claim._replace(proof=accept_claim(claim, KEY)[0])
    assert not is_proved(proved, KEY)  # the driver's own proof is none of a worker


def test_a_sealer_counts() -> None:
    sealer = Sealer(KEY)
    heads = []
    for _ in range(2):
        heads.append(sealer.head(WORDS, 3))
        sealer.body(heads[-1], b"abc")
    assert heads[0] != heads[1]


def test_a_veil_comes_off_again() -> None:
    assert veiled(veiled(KEY, bytes(range(1, 33))), bytes(range(1, 33))) == KEY


# -- rows --------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=20), st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=20))
def test_rows_arrive_with_their_name(name: str, words: list[str | None]) -> None:
    batch = pa.RecordBatch.from_pydict({"w": pa.array(words, pa.string()), "n": pa.array(range(len(words)))})
    assert decode_rows(bytearray(b"".join(map(bytes, encode_rows(name, batch))))) == (name, [batch])


@pytest.mark.parametrize("data", [b"", b"\x05", b"\xff\xff" + bytes(100), bytes(64), b"\0\0" + bytes(14) + b"noise"])
def test_what_is_no_rows_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="holds no readable rows"):
        decode_rows(bytearray(data))
