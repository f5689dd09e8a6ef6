"""The door of the control line: a caller waits here, without a thread, until it has proved itself or its time is up.

A stranger is a caller without proof. It costs one descriptor and a few hundred bytes for at most `PROVE_SECONDS`. At
most `STRANGERS_MAX` wait: when another comes, the oldest has to go. A worker proves itself within a round trip, so it
gets in however many strangers knock, at worst at its next try (`test_idle_connections_never_keep_a_worker_out`).
Rejected: a thread for each caller, which silent connections would use up; and turning the newest away, with which the
first hundred strangers could shut the door.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.deploy.line.sealed import OPENING_BYTES, Claim, Line, accept_claim, greeting, prepare, read_claim
from penstock.run.transport.tls.credentials import Credentials

STRANGERS_MAX = 128
PROVE_SECONDS = 5.0
FULL_PAUSE_SECONDS = 0.05  # when this process has no descriptor left

KeyOf = Callable[[Claim], bytes | None]  # the key that a claim was proved with, if it was
Serve = Callable[[Claim, Line], None]  # in a thread of its own


@dataclass(slots=True)
class _Stranger:
    """A caller that has connected and has not proved itself yet."""

    connection: socket.socket
    leaves_at: float
    greeted: bytes = b""  # empty until TLS has been agreed on, where it is spoken
    binding: bytes = b""
    heard: bytearray = field(default_factory=bytearray)


class Door:
    """Listens on one address; hands each caller that has proved itself to `serve`."""

    def __init__(
        self,
        listener: socket.socket,
        key_of: KeyOf,
        serve: Serve,
        lines_max: int,
        credentials: Credentials | None = None,
    ) -> None:
        """With credentials callers must speak TLS, all of them."""
        self._credentials = credentials
        self._listener, self._key_of, self._serve = listener, key_of, serve
        self._lines_max = lines_max
        self._strangers: OrderedDict[int, _Stranger] = OrderedDict()  # by descriptor, oldest first
        self._lines: set[Line] = set()
        self._threads: list[threading.Thread] = []  # of lines; one that has ended leaves with the next that comes
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._closed = False
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="penstock-control", daemon=True)
        self._thread.start()

    @property
    def strangers(self) -> int:
        """How many callers wait without proof."""
        return len(self._strangers)

    def close(self, seconds: float) -> None:
        """Let no more callers in and end every line; the threads that serve lines have `seconds` to notice."""
        self._closed = True
        self._wake_writer.close()
        deadline = time.monotonic() + seconds
        self._thread.join(seconds)
        with self._lock:
            lines, threads = set(self._lines), list(self._threads)
        for line in lines:
            line.break_off()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        try:
            while not self._closed:
                ready = self._selector.select(self._patience())
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._greet()
                    elif key.fd in self._strangers:
                        self._hear(self._strangers[key.fd])
                self._send_away_late_ones()
        finally:
            for stranger in list(self._strangers.values()):
                self._drop(stranger)
            self._selector.close()
            self._listener.close()
            self._wake_reader.close()

    def _patience(self) -> float | None:
        oldest = next(iter(self._strangers.values()), None)
        return None if oldest is None else max(0.0, oldest.leaves_at - time.monotonic())

    def _send_away_late_ones(self) -> None:
        now = time.monotonic()
        while (oldest := next(iter(self._strangers.values()), None)) is not None and oldest.leaves_at <= now:
            self._drop(oldest)

    def _greet(self) -> None:
        """Take a caller in as a stranger; where there are too many, the oldest goes."""
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor left, or the caller has gone again
            self._drop_oldest()
            time.sleep(FULL_PAUSE_SECONDS)
            return
        if len(self._strangers) >= STRANGERS_MAX:
            self._drop_oldest()
        try:
            connection.setblocking(False)
            prepare(connection)
            if self._credentials is not None:
                connection = self._credentials.answer(connection)
        except OSError:
            connection.close()
            return
        stranger = _Stranger(connection, time.monotonic() + PROVE_SECONDS)
        self._strangers[connection.fileno()] = stranger
        self._selector.register(connection, selectors.EVENT_READ)
        if self._credentials is None:
            self._hear(stranger)

    def _hear(self, stranger: _Stranger) -> None:
        try:
            if not stranger.greeted:
                self._speak(stranger)
            data = stranger.connection.recv(OPENING_BYTES - len(stranger.heard))
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:  # also where TLS fails, or finds no room for the few bytes of its handshake
            data = b""
        stranger.heard += data
        if not data:
            self._drop(stranger)
        elif len(stranger.heard) == OPENING_BYTES:
            self._judge(stranger)

    def _speak(self, stranger: _Stranger) -> None:
        """Our first words, behind TLS where it is spoken; an empty buffer takes them at once."""
        if self._credentials is not None and isinstance(stranger.connection, ssl.SSLSocket):
            stranger.connection.do_handshake()
            stranger.binding = self._credentials.binding(stranger.connection)
        greeted = greeting()
        stranger.connection.send(greeted)
        stranger.greeted = greeted

    def _judge(self, stranger: _Stranger) -> None:
        claim = read_claim(stranger.greeted, bytes(stranger.heard), stranger.binding)
        key = None if claim is None else self._key_of(claim)
        if claim is None or key is None or len(self._lines) >= self._lines_max:
            self._drop(stranger)
            return
        self._forget(stranger)
        proof, line_key = accept_claim(claim, key)
        try:
            stranger.connection.send(proof)
            self._let_in(claim, Line(stranger.connection, line_key, at_driver=True))
        except OSError:  # the caller has gone again
            stranger.connection.close()

    def _let_in(self, claim: Claim, line: Line) -> None:
        thread = threading.Thread(
            target=self._host, args=(claim, line), name=f"penstock-control-{claim.worker}-{claim.lane}", daemon=True
        )
        with self._lock:
            self._lines.add(line)
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
            thread.start()

    def _host(self, claim: Claim, line: Line) -> None:
        try:
            with contextlib.suppress(OSError):  # the caller has gone; `serve` knows what that means
                self._serve(claim, line)
        finally:
            with self._lock:
                self._lines.remove(line)
            line.close()

    def _drop_oldest(self) -> None:
        if self._strangers:
            self._drop(next(iter(self._strangers.values())))

    def _drop(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        stranger.connection.close()

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.connection)
        del self._strangers[stranger.connection.fileno()]
