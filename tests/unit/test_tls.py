"""TLS between workers and to the driver: with sound certificates, with unsound ones, with somebody in the middle."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives import serialization
from links_kit import Mesh, prove

from certificates import FAR_OFF, LONG_AGO, NOW, credentials, folder, unsound
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.line.door import Door
from penstock.deploy.line.sealed import RESULTS, WORDS, Claim, Line, LineBroken, is_proved, open_line
from penstock.errors import InvalidInput
from penstock.run.transport.handshake import Handshake
from penstock.run.transport.host import WorkerPlace
from penstock.run.transport.links import Transport
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.socket import listen
from penstock.run.transport.tls.credentials import AUTHORITY, CERTIFICATE, KEY, Credentials, TlsRefused

JOB_KEY = bytes(range(32))
Wrap = Callable[[socket.socket, bool], socket.socket]  # a connection, and whether it is the caller's
SECRET = b"nobody else may read this row"


# -- what a folder must hold -------------------------------------------------------------------------------------------


def test_a_sound_folder_is_loaded(tmp_path: Path) -> None:
    loaded = Credentials.load(folder(tmp_path))
    assert loaded.server.minimum_version == loaded.client.minimum_version == ssl.TLSVersion.TLSv1_3
    JobOptions(tls=tmp_path).require_sound()


@pytest.mark.parametrize("name", [CERTIFICATE, KEY, AUTHORITY])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    folder(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InvalidInput, match=f"tls needs {tmp_path / name}, which cannot be read: No such file"):
        JobOptions(tls=tmp_path).require_sound()


@pytest.mark.parametrize("name", [CERTIFICATE, KEY, AUTHORITY])
@pytest.mark.parametrize("content", [b"", b"no certificate", os.urandom(2000)], ids=["empty", "words", "noise"])
def test_rubbish_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (Path(folder(tmp_path)) / name).write_bytes(content)
    with pytest.raises(InvalidInput, match="do not do") as caught:
        Credentials.load(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_file_without_end_is_not_read(tmp_path: Path) -> None:
    with (Path(folder(tmp_path)) / AUTHORITY).open("ab") as file:
        file.truncate(2 << 20)
    with pytest.raises(InvalidInput, match="has 2097152 bytes; the limit is 1048576"):
        Credentials.load(str(tmp_path))


def test_a_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    (Path(folder(tmp_path)) / KEY).chmod(0o644)
    with pytest.raises(InvalidInput, match=r"every user of this machine may use the key in .*; take that away: chmod"):
        Credentials.load(str(tmp_path))


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    path = Path(folder(tmp_path)) / KEY
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"password")
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(key.private_bytes(pem, pkcs8, locked))
    with pytest.raises(InvalidInput, match="do not do"):
        Credentials.load(str(tmp_path))


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    folder(tmp_path / "one")
    folder(tmp_path / "other")
    shutil.copy(tmp_path / "other" / KEY, tmp_path / "one" / KEY)
    with pytest.raises(InvalidInput, match=r"mismatch; key\.pem must belong to cert\.pem"):
        Credentials.load(str(tmp_path / "one"))


def test_a_certificate_that_others_would_refuse_is_refused_at_home(tmp_path: Path) -> None:
    for made, told in (
        (folder(tmp_path / "a", not_after=NOW), r"certificate has expired; renew cert\.pem"),
        (folder(tmp_path / "b", not_before=FAR_OFF, not_after=FAR_OFF), "not yet valid; set the clocks"),
        (folder(tmp_path / "c", issued_by="others"), r"all machines need a certificate of the authority in ca\.pem"),
    ):
        with pytest.raises(InvalidInput, match=told):
            Credentials.load(made)


# -- workers -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mesh(*sides: Credentials | None) -> Iterator[Mesh]:
    made = Mesh(len(sides))
    for worker, side in enumerate(sides):
        made.links[worker].close()
        made.links[worker] = made.links_of(worker, range(len(sides)), Transport("socket", credentials=side))
    try:
        yield made
    finally:
        made.close()


def row(words: bytes = SECRET) -> pa.RecordBatch:
    return pa.record_batch({"row": pa.array([words], pa.binary())})


class Middle:
    """A process between a caller and a called one: carries bytes both ways, and keeps what it has seen."""

    def __init__(self, target: tuple[str, int], wrap: Wrap | None = None) -> None:
        self._listener, self._target, self._wrap = listen("127.0.0.1"), target, wrap
        self.address: tuple[str, int] = self._listener.getsockname()
        self.seen = bytearray()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                called = socket.create_connection(self._target)
                ends = [caller, called]
                if self._wrap is not None:
                    ends = [self._wrap(caller, True), self._wrap(called, False)]
                self._open += ends
                for source, target in (ends, ends[::-1]):
                    thread = threading.Thread(target=self._carry, args=(source, target))
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            socket.socket.shutdown(target, socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(end, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        for end in self._open:
            end.close()


@contextlib.contextmanager
def between(made: Mesh, wrap: Wrap | None = None) -> Iterator[Middle]:
    """Somebody between worker 0, which calls, and worker 1."""
    place = made.places[1]
    middle = Middle((place.host, place.port), wrap)
    made.places[1] = WorkerPlace(1, place.node, place.host, middle.address[1], place.machine)
    try:
        yield middle
    finally:
        for links in made.links:
            links.close()
        middle.close()


@pytest.mark.parametrize(("side", "is_read"), [(None, True), (credentials(), False)], ids=["plain", "tls"])
def test_who_reads_the_network_reads_no_row_that_tls_carries(side: Credentials | None, is_read: bool) -> None:
    with mesh(side, side) as made, between(made) as middle:
        made.open(0, 1)
        made.links[0].send_batch(made.edge(0, 1), row(), 0)
        frames = []
        while not frames:
            frames, _ = made.links[1].wait(1.0)
        assert (SECRET in middle.seen) == is_read
        assert made.links[0].statistics()[1][0] == ("socket" if is_read else "tls")


def test_a_machine_in_the_middle_with_a_sound_certificate_is_found_out(tmp_path: Path) -> None:
    """It speaks TLS with both, as any machine of the authority's may, and hands on what they prove to each other."""
    own = Credentials.load(folder(tmp_path))

    def wrap(connection: socket.socket, is_caller: bool) -> socket.socket:
        made = (own.answer if is_caller else own.call)(connection)
        made.do_handshake()
        return made

    with mesh(credentials(), credentials()) as made, between(made, wrap):
        with pytest.raises(PeerGone, match="does not hold the job's key"):
            open_alone(made, 0)
        assert not made.links[1].has_met(0)


def open_alone(made: Mesh, caller: int) -> None:
    """Let one worker meet another that hears it, and that gives up when the first has."""
    other = 1 - caller
    stop = os.eventfd(0)
    made.links[other].watch(stop)

    def leave() -> None:
        msg = "the test is over"
        raise InterruptedError(msg)

    def hear() -> None:
        with contextlib.suppress(InterruptedError, PeerGone):
            made.links[other].open(made.listeners[other], made.places, made.key, leave)

    thread = threading.Thread(target=hear)
    thread.start()
    try:
        made.links[caller].open(made.listeners[caller], made.places, made.key)
    finally:
        os.eventfd_write(stop, 1)
        thread.join()
        os.close(stop)


def of_others(tmp_path: Path) -> Credentials:
    return Credentials.load(folder(tmp_path, issued_by="others", trusts="others"))


def of_others_who_trust_ours(tmp_path: Path) -> Credentials:
    return unsound(folder(tmp_path, issued_by="others", trusts="ours"))


def expired(tmp_path: Path) -> Credentials:
    return unsound(folder(tmp_path, not_before=LONG_AGO, not_after=NOW))


@pytest.mark.parametrize("caller", [0, 1], ids=["at the caller", "at the called"])
@pytest.mark.parametrize(
    ("side", "told"),
    [
        (of_others, r"all machines need a certificate of the authority in ca\.pem"),
        (of_others_who_trust_ours, r"all machines need a certificate of the authority in ca\.pem"),
        (expired, r"expired; renew cert\.pem on the machine whose certificate it is"),
    ],
)
def test_a_worker_whose_certificate_is_not_accepted_is_told_why(
    tmp_path: Path, side: Callable[[Path], Credentials], told: str, caller: int
) -> None:
    sides = (side(tmp_path), credentials()) if caller == 0 else (credentials(), side(tmp_path))
    with mesh(*sides) as made:
        with pytest.raises(PeerGone, match=f"worker 1 was lost while both connected at .*: TLS failed: .*{told}"):
            open_alone(made, 0)
        assert not made.links[1].has_met(0)


def test_a_worker_that_calls_without_tls_is_not_let_in() -> None:
    """As one would whose first words somebody has replaced."""
    with mesh(credentials(), credentials()) as made:
        connection = socket.create_connection(made.listeners[1].getsockname())
        caller = threading.Thread(target=lambda: prove(connection, 0, made.key, first=True))
        caller.start()
        with pytest.raises(PeerGone, match="worker 0 called without TLS"):
            made.links[1].open(made.listeners[1], made.places, made.key)
        caller.join()
        connection.close()


def test_workers_that_may_share_memory_meet_without_tls() -> None:
    with contextlib.closing(Mesh(2, Transport("auto", credentials=credentials()))) as made:
        made.open(0, 1)
        assert [links.statistics()[1 - me][0] for me, links in enumerate(made.links)] == ["ring", "ring"]


def test_a_handshake_under_one_pair_of_certificates_is_none_under_another() -> None:
    one, other = Handshake(0, JOB_KEY, first=True), Handshake(1, JOB_KEY, first=False)
    one.bind(b"ours and the middle's")
    other.bind(b"the middle's and theirs")
    proof = other.receive(one.opening)
    one.receive(other.opening)
    with pytest.raises(PeerGone, match="does not hold the job's key"):
        one.receive(proof)


def test_frames_that_came_with_the_last_words_of_the_handshake_are_told() -> None:
    """TLS may have opened them with those words, and then no descriptor says that they are there."""
    with mesh(credentials(), credentials()) as made:
        made.open(0, 1)
        port = made.links[1]._ports[0]
        port._leave_loop()  # type: ignore[attr-defined]
        for _ in range(3):
            made.links[0].send_batch(made.edge(0, 1), row(), 0)
        tls = port._tls  # type: ignore[attr-defined]
        tls.setblocking(True)
        first = bytes(tls.recv(1))  # a record is opened as a whole
        tls.setblocking(False)
        assert tls.pending()
        port._hand_on(memoryview(first), [])  # type: ignore[attr-defined]
        port.register(made.links[1]._loop, made.links[1])
        assert made.links[1]._arrived


# -- the line to the driver --------------------------------------------------------------------------------------------


class Echo:
    """A door that asks for TLS, and whose lines say back what they hear."""

    def __init__(self, side: Credentials) -> None:
        listener = listen("127.0.0.1")
        self.address = listener.getsockname()
        self.heard: list[bytes] = []
        self.door = Door(
            listener, lambda claim: JOB_KEY if is_proved(claim, JOB_KEY) else None, self._serve, 2, credentials=side
        )

    def _serve(self, claim: Claim, line: Line) -> None:
        while True:
            kind, body = line.receive({WORDS: 1000, RESULTS: 1 << 20}, 10)
            self.heard.append(bytes(body))
            line.send(kind, body)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo(credentials())
    yield made
    made.door.close(10)
    assert [t.name for t in threading.enumerate() if t.name.startswith("penstock-control")] == []


def call(address: tuple[str, int], side: Credentials | None) -> Line:
    return open_line(address, JOB_KEY, 0, "talk", 10, side)


@pytest.mark.parametrize("kind", [WORDS, RESULTS])
def test_a_line_through_tls_says_nothing_to_those_who_listen(echo: Echo, kind: int) -> None:
    middle = Middle(echo.address)
    line = call(middle.address, credentials())
    line.send(kind, SECRET)
    assert line.receive({kind: 1000}) == (kind, SECRET)
    assert SECRET not in middle.seen
    assert b"talk" not in middle.seen  # nor who it was
    line.close()
    middle.close()


def test_long_rows_go_through_a_line_in_tls(echo: Echo) -> None:
    line = call(echo.address, credentials())
    rows = os.urandom(1 << 20)
    sender = threading.Thread(target=lambda: line.send(RESULTS, rows))
    sender.start()
    sender.join()
    assert line.receive({RESULTS: 1 << 20})[1] == rows
    line.close()


def test_a_driver_in_the_middle_with_a_sound_certificate_is_found_out(echo: Echo, tmp_path: Path) -> None:
    own = Credentials.load(folder(tmp_path))

    def wrap(connection: socket.socket, is_caller: bool) -> socket.socket:
        made = (own.answer if is_caller else own.call)(connection)
        made.do_handshake()
        return made

    middle = Middle(echo.address, wrap)
    with pytest.raises(LineBroken):
        call(middle.address, credentials())
    middle.close()
    assert echo.heard == []


@pytest.mark.parametrize("side", [of_others, of_others_who_trust_ours, expired])
def test_a_worker_whose_certificate_the_driver_does_not_accept_is_told_why(
    echo: Echo, side: Callable[[Path], Credentials], tmp_path: Path
) -> None:
    with pytest.raises(TlsRefused, match=r"TLS failed: .*(expired|authority in ca\.pem)"):
        call(echo.address, side(tmp_path))
    assert echo.heard == []


@pytest.mark.parametrize("side", [of_others, expired])
def test_a_driver_whose_certificate_is_not_accepted_is_found_out(
    side: Callable[[Path], Credentials], tmp_path: Path
) -> None:
    driver = Echo(side(tmp_path))
    with pytest.raises(TlsRefused, match=r"TLS failed: .*(expired|authority in ca\.pem)"):
        call(driver.address, credentials())
    driver.door.close(10)
    assert driver.heard == []


def test_without_tls_nobody_gets_past_a_door_that_asks_for_it(echo: Echo) -> None:
    with socket.create_connection(echo.address, timeout=10) as plain:
        plain.sendall(bytes(200))
        with contextlib.suppress(ConnectionResetError):
            while plain.recv(4096):  # an alert of TLS at most
                pass
    with contextlib.closing(call(echo.address, credentials())) as line:
        line.send(WORDS, b"still here")
        assert line.receive({WORDS: 100})[1] == b"still here"


def test_silent_callers_do_not_keep_a_worker_out(echo: Echo) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(echo.address))
        stack.enter_context(contextlib.closing(call(echo.address, credentials())))


def test_a_line_that_is_broken_off_stays_in_tls(echo: Echo) -> None:
    """Python's own shutdown makes a plain connection of it first, under the threads that still send."""
    line = call(echo.address, credentials())
    line.break_off()
    assert isinstance(line.connection, ssl.SSLSocket)
    assert line.connection.version() == "TLSv1.3"
    line.close()
