"""Agreeing on rings when the other worker dies in the middle: that is a lost peer, not memory that cannot be shared."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock._core import RingSegment
from penstock.run.channel import agreement
from penstock.run.channel.inbox import Inbox
from penstock.run.channel.protocol import PeerGone
from penstock.run.channel.segment import accept_locally, listen_locally, local_address
from penstock.run.channel.socket import listen
from penstock.run.links import Links, Transport, WorkerPlace

KEY = b"k" * 32


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox(RingSegment(1 << 16, producers=4), 0, 1)
    yield inbox
    inbox.close()


def call(inbox: Inbox, last_word: bytes) -> list[str]:
    """Call a worker 1 that closes its local connection without an offer, after this word; what was told."""
    told: list[str] = []
    ours, theirs = socket.socketpair()
    with listen_locally(KEY, 1) as door, ours, theirs:

        def worker_1() -> None:
            theirs.sendall(agreement.RING)
            accepted = accept_locally(door, 1, KEY)
            assert accepted is not None
            theirs.sendall(last_word)
            accepted[0].recv(1)  # the offer has come; most of it stays unread, so closing resets
            accepted[0].close()

        peer = threading.Thread(target=worker_1)
        peer.start()
        try:
            assert agreement.call(ours, inbox, KEY, 1, told.append) is None
        finally:
            peer.join()
    return told


def test_a_worker_that_agreed_and_broke_off_has_gone(inbox: Inbox) -> None:
    with pytest.raises(PeerGone, match="worker 1 agreed to share memory and has gone") as gone:
        call(inbox, agreement.YES)
    assert gone.value.worker == 1


def test_a_worker_that_broke_off_and_said_no_uses_sockets(inbox: Inbox) -> None:
    assert call(inbox, agreement.NO) == ["worker 1 of this machine cannot share memory"]


def test_a_worker_that_has_left_its_local_address_has_gone(inbox: Inbox) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(agreement.RING)
        theirs.close()
        with pytest.raises(PeerGone, match="worker 1 has left its local address") as gone:
            agreement.call(ours, inbox, KEY, 1, lambda _: None)
    assert gone.value.worker == 1


def test_a_worker_that_gave_up_a_handshake_and_lives_uses_sockets(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "LEAVING_SECONDS", 0.05)
    told: list[str] = []
    ours, theirs = socket.socketpair()
    with ours, theirs, listen_locally(KEY, 1) as door:

        def worker_1() -> None:
            door.accept()[0].close()

        peer = threading.Thread(target=worker_1)
        peer.start()
        theirs.sendall(agreement.RING)
        assert agreement.call(ours, inbox, KEY, 1, told.append) is None
        peer.join()
        assert theirs.recv(1) == agreement.SOCKET
    assert "worker 1 of this machine cannot be reached at its local address" in told[0]


def test_a_worker_without_a_descriptor_left_uses_sockets(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(agreement, "accept_locally", no_descriptor)
    told: list[str] = []
    heard = threading.Event()

    def tell(text: str) -> None:
        told.append(text)
        heard.set()

    ours, theirs = socket.socketpair()
    with listen_locally(KEY, 0) as door, ours, theirs, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(local_address(KEY, 0))

        def worker_1() -> None:  # knocks, hears nothing there, and says so
            assert theirs.recv(1) == agreement.RING
            heard.wait(60)
            theirs.sendall(agreement.SOCKET)

        peer = threading.Thread(target=worker_1)
        peer.start()
        assert agreement.answer(ours, door, inbox, KEY, 1, tell) is None
        peer.join()
    assert "worker 1 of this machine cannot be let in at the local address" in told[0]


@pytest.mark.parametrize("kind", ["ring", "auto"])
def test_links_say_who_was_lost_while_connecting(kind: str) -> None:
    with listen("127.0.0.1") as mine, listen("127.0.0.1") as theirs:
        ports = [door.getsockname()[1] for door in (mine, theirs)]
        places = [WorkerPlace(w, "n", "127.0.0.1", port, "here") for w, port in enumerate(ports)]

        def worker_1() -> None:  # lets worker 0 in, and dies at the first byte
            theirs.accept()[0].close()

        peer = threading.Thread(target=worker_1)
        peer.start()
        links = Links(0, 1, {0: 1}, {}, Transport(kind))
        try:
            with pytest.raises(PeerGone, match="worker 1 was lost while both connected") as gone:
                links.open(mine, places, os.urandom(32))
            assert gone.value.worker == 1
        finally:
            peer.join()
            links.close()
