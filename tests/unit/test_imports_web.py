"""Asking a server: the same answers as from files; a server that misbehaves is one typed error within the limits."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.errors import InvalidInput
from penstock.imports import import_flink, import_storm, web
from penstock.imports.collect import collect_flink
from penstock.imports.flink import read_flink
from penstock.imports.responses import read_answers
from penstock.imports.web import Web, split_address

IMPORTED = Path(__file__).parents[1] / "imported"
Answer = Callable[[BaseHTTPRequestHandler], None]


def say(handler: BaseHTTPRequestHandler, document: object, status: int = 200, **headers: str) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server on loopback that answers each GET so; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):  # the client may have had enough
                answer(self)

        def log_message(self, *_: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def flink_like(asked: list[str], cold: int = 0) -> Answer:
    """A server with Flink's recorded answers, whose first `cold` answers about metrics are empty, as Flink's are."""
    documents = read_answers(IMPORTED / "flink")
    job: Any = documents["job.json"]
    empty = [cold]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        path = urlsplit(handler.path).path
        vertex = path.removeprefix(f"/jobs/{job['jid']}/vertices/").removesuffix("/metrics")
        if path == "/jobs/overview":
            say(handler, documents["overview.json"])
        elif path == f"/jobs/{job['jid']}":
            say(handler, job)
        elif not path.endswith("/metrics"):
            say(handler, documents[f"vertex-{vertex}.json"])
        elif empty[0]:
            empty[0] -= 1
            say(handler, [])
        else:
            say(handler, documents[f"metrics-{vertex}.json"])

    return answer


def test_flink_is_asked_for_what_the_files_hold() -> None:
    asked: list[str] = []
    with server(flink_like(asked)) as address:
        found = import_flink(address)
        named = import_flink(f"{address}/jobs/{found_job()}")
    assert found == named
    saved = import_flink(IMPORTED / "flink")
    assert found.graph == saved.graph
    assert found.profile == saved.profile
    assert any("get=0.busyTimeMsPerSecond,0.numBytesOutPerSecond" in path for path in asked)


def found_job() -> str:
    job: Any = read_answers(IMPORTED / "flink")["job.json"]
    return str(job["jid"])


def test_a_flink_that_has_not_gathered_its_metrics_yet_is_asked_again() -> None:
    with server(flink_like([], cold=3)) as address:
        parts = split_address(address)
        found = read_flink(collect_flink(parts, Web(parts), pause=0))
    assert found.profile == import_flink(IMPORTED / "flink").profile


def test_storm_is_asked_for_every_component_in_one_window() -> None:
    documents = read_answers(IMPORTED / "storm")
    asked: list[str] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        last = urlsplit(handler.path).path.rpartition("/")[2]
        say(handler, documents["topology.json" if last.startswith("words-1") else f"{last}.json"])

    with server(answer) as address:
        found = import_storm(f"{address}/api/v1/topology/words-1-1700000000?window=600")
        with pytest.raises(InvalidInput, match="the address must name a topology"):
            import_storm(f"{address}/index.html")
    assert found == import_storm(IMPORTED / "storm")
    assert all(path.endswith("?window=600") for path in asked)
    assert {path.rpartition("/")[2] for path in asked[1:]} == {
        f"{name}?window=600" for name in ("words", "split", "count", "report", "visualization")
    }


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            lambda h: say(h, {}, 302, Location="http://elsewhere/"),
            "status 302 to 'http://elsewhere/', which is not followed",
        ),
        (lambda h: say(h, {"errors": ["no"]}, 404), "answered with status 404"),
        (lambda h: say(h, b"<html>"), "is not valid JSON"),
        (lambda h: say(h, b"\xff\xfe"), "is not UTF-8 text"),
        (lambda h: say(h, b"[" * 100_000), "is nested too deeply"),
        (lambda h: say(h, b"x" * 3000), "answers with more than 2000 bytes"),
        (lambda h: h.wfile.write(b"nonsense\r\n\r\n"), "cannot get"),
        (lambda h: h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "ends 98 bytes too early"),
        (lambda h: h.connection.close(), "cannot get"),
    ],
)
def test_a_server_that_misbehaves_is_one_error(monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str) -> None:
    monkeypatch.setattr(web, "ANSWER_BYTES_MAX", 2000 if "2000" in said else 10**6)
    with server(answer) as address, pytest.raises(InvalidInput) as error:
        import_flink(f"{address}/jobs/1")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_that_sends_byte_by_byte_is_left_when_the_time_is_over() -> None:
    ended = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:  # never silent, and never at its end
                handler.wfile.write(b" ")
        finally:
            ended.set()

    with server(answer) as address:
        with pytest.raises(InvalidInput, match=r"needs more than 0\.2 s"):
            Web(split_address(address), seconds=0.2).get("/jobs/1")
        assert ended.wait(30)


def test_requests_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "REQUESTS_MAX", 3)
    with server(flink_like([])) as address, pytest.raises(InvalidInput, match="would be asked more than 3 times"):
        import_flink(address)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://127.0.0.1/a", "is not an address that can be asked"),
        ("file:///etc/passwd", "is not an address that can be asked"),
        ("http:///jobs", "is not an address that can be asked"),
        ("http://127.0.0.1:99999/", "is not an address"),
        ("http://[::1/", "is not an address"),
        ("http://me:secret@127.0.0.1/", "holds a name or password"),
        ("http://127.0.0.1:1/jobs/a b", "cannot get"),
    ],
)
def test_addresses_that_are_not_asked(address: str, said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        import_flink(address)
    assert said in str(error.value)
    assert "secret" not in str(error.value)
