"""JSON by GET from one http(s) server, with limits: requests, bytes, time; nothing is followed elsewhere.

Rejected: urllib's opener, which follows redirects, reads proxies from the environment and opens file: and ftp: as well.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from penstock.errors import InvalidInput
from penstock.model.documents import parse_json

REQUESTS_MAX = 5_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
BYTES_MAX = 256 * 1024 * 1024  # of all answers together
SILENCE_SECONDS = 10.0
SECONDS_MAX = 120.0  # for all requests together


def is_address(source: str) -> bool:
    """Whether a source is meant as an address; anything with `://` is, so that a wrong scheme is told as one."""
    return "://" in source


def split_address(source: str) -> SplitResult:
    """An http or https address, taken apart."""
    try:
        parts = urlsplit(source)
        port = parts.port
    except ValueError as error:
        msg = f"{source!r} is not an address: {error}"
        raise InvalidInput(msg) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        msg = f"{source!r} is not an address that can be asked; give http://HOST:PORT/... or https://..., or files"
        raise InvalidInput(msg)
    if parts.username is not None or parts.password is not None:
        msg = (
            f"the address of {parts.hostname} holds a name or password; save the answers to files with a client instead"
        )
        raise InvalidInput(msg)
    return parts


@dataclass
class Web:
    """One server; every `get` counts against the same limits."""

    address: SplitResult
    seconds: float = SECONDS_MAX
    _asked: int = 0
    _bytes: int = 0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def get(self, path: str) -> object:
        """The JSON answer to GET of a path on the server."""
        self._asked += 1
        where = f"{self.address.scheme}://{self.address.netloc}{path}"
        if self._asked > REQUESTS_MAX:
            msg = f"{self.address.netloc} would be asked more than {REQUESTS_MAX} times; the topology is too large"
            raise InvalidInput(msg)
        self._require_time()
        secure = self.address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(str(self.address.hostname), self.address.port, timeout=SILENCE_SECONDS)
        try:
            connection.connect()
            with self._watched(connection.sock):
                connection.request("GET", path, headers={"Accept": "application/json"})
                with connection.getresponse() as answer:
                    data = self._body(answer, where)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._require_time()
            reason = " ".join(str(error).split()) or type(error).__name__
            msg = f"cannot get {where}: {reason}"
            raise InvalidInput(msg) from None
        finally:
            connection.close()
        self._require_time()  # a connection that was shut down can look like the end of an answer
        return parse_json(data, where)

    @contextmanager
    def _watched(self, connected: socket.socket) -> Iterator[None]:
        """Shut the connection down when the time is over: a server that sends byte by byte is never silent."""

        def shut() -> None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

        watch = threading.Timer(max(0.0, self._until - time.monotonic()), shut)
        watch.daemon = True
        watch.start()
        try:
            yield
        finally:
            watch.cancel()

    def _require_time(self) -> None:
        if time.monotonic() >= self._until:
            msg = (
                f"{self.address.netloc} needs more than {self.seconds:g} s to answer; save its answers to files instead"
            )
            raise InvalidInput(msg)

    def _body(self, answer: http.client.HTTPResponse, where: str) -> bytes:
        if answer.status != 200:
            to = answer.getheader("Location")
            more = f" to {to[:200]!r}, which is not followed; give that address" if to else ""
            msg = f"{where} answered with status {answer.status}{more}"
            raise InvalidInput(msg)
        limit = min(ANSWER_BYTES_MAX, BYTES_MAX - self._bytes)
        data = answer.read(limit + 1)
        self._bytes += len(data)
        if len(data) > limit:
            msg = (
                f"{where} answers with more than {limit} bytes, what is left of the limit; give one topology's answers"
            )
            raise InvalidInput(msg)
        if answer.length:  # what the head promised and the body did not hold
            msg = f"the answer of {where} ends {answer.length} bytes too early; ask again"
            raise InvalidInput(msg)
        return data
