"""Links that meet in one thread or two, for tests: turns with an end, and the other side of a handshake."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.run.transport.handshake import Handshake
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.socket import listen

TURNS_MAX = 2_000


class Turns:
    """So many turns; a failure instead of one more."""

    def __iter__(self) -> Iterator[int]:
        yield from range(TURNS_MAX)
        pytest.fail(f"nothing came of {TURNS_MAX} turns")


def prove(connection: socket.socket, me: int, key: bytes, *, first: bool) -> int:
    """The other side of a handshake, over a connection that blocks; the number of the worker that proved itself."""
    handshake = Handshake(me, key, first=first)
    connection.sendall(handshake.opening)
    while handshake.peer is None:
        words = connection.recv(handshake.wanted)
        assert words, "the other end closed the connection"
        connection.sendall(handshake.receive(words))
    return handshake.peer


class Mesh:
    """Workers each of which sends to every other; the edge from i to j has the number i * count + j."""

    def __init__(self, count: int, transport: Transport | None = None, members: range | None = None) -> None:
        self.count, self.key = count, os.urandom(32)
        self.listeners = [listen("127.0.0.1") for _ in range(count)]
        self.places = [
            WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], "here") for w, s in enumerate(self.listeners)
        ]
        self.links = [self.links_of(w, members or range(count), transport) for w in range(count)]

    def links_of(self, worker: int, members: range, transport: Transport | None) -> Links:
        """A worker's links to the members."""
        others = [w for w in members if w != worker]
        sends = {self.edge(worker, w): w for w in others}
        return Links(worker, self.count**2, sends, {self.edge(w, worker): w for w in others}, transport)

    def edge(self, source: int, target: int) -> int:
        """The number of an edge."""
        return source * self.count + target

    def open(self, *workers: int) -> None:
        """Let these workers meet, each in a thread of its own; of several that fail, the first one named tells why."""
        failed: dict[int, BaseException] = {}

        def meet(worker: int) -> None:
            try:
                self.links[worker].open(self.listeners[worker], self.places, self.key)
            except BaseException as error:
                failed[worker] = error

        threads = [threading.Thread(target=meet, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in workers:
            if worker in failed:
                raise failed[worker]

    def close(self) -> None:
        """Give everything up."""
        for links, listener in zip(self.links, self.listeners, strict=True):
            links.close()
            listener.close()


@contextlib.contextmanager
def mesh(count: int, transport: Transport | None = None, members: range | None = None) -> Iterator[Mesh]:
    """Workers that are closed at the end."""
    made = Mesh(count, transport, members)
    try:
        yield made
    finally:
        made.close()
