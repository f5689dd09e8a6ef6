"""Agreeing on rings when the other worker dies in the middle: that is a lost peer, not memory that cannot be shared."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from links_kit import Turns, prove

from penstock._core import RingSegment
from penstock.run.transport.agreement import NO, YES, Agreement, Outcome
from penstock.run.transport.handshake import Handshake
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.loop import Loop
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.segment import listen_locally
from penstock.run.transport.sharing import Sharing
from penstock.run.transport.socket import listen

KEY = b"k" * 32

# -- the decision ----------------------------------------------------------------------------------------------------


@given(st.booleans(), st.booleans(), st.lists(st.booleans(), min_size=40, max_size=40))
def test_both_ends_come_to_the_same_and_say_one_word_each(one_can: bool, other_can: bool, order: list[bool]) -> None:
    ends, said = (Agreement(), Agreement()), ([b""], [b""])
    due = [[lambda: ends[0].conclude(shared=one_can)], [lambda: ends[1].conclude(shared=other_can)]]
    heard = [False, False]
    for first in order:
        me = int(first)
        if due[me]:
            said[me].append(due[me].pop()())
        elif (word := b"".join(said[1 - me])) and not heard[me]:
            heard[me] = True
            said[me].append(ends[me].hear(word))
    if ends[0].outcome and ends[1].outcome:
        assert ends[0].outcome == ends[1].outcome
        assert ends[0].outcome == (Outcome.RING if one_can and other_can else Outcome.SOCKET)
    assert all(len(b"".join(words)) <= 1 for words in said)


def test_a_no_is_answered_before_our_own_end_has_concluded() -> None:
    agreement = Agreement()
    assert agreement.hear(NO) == NO
    assert agreement.outcome == Outcome.SOCKET
    assert agreement.conclude(shared=True) == b""


def test_one_that_said_yes_and_broke_off_is_lost() -> None:
    agreement = Agreement()
    assert agreement.hear(YES) == b""
    assert agreement.conclude(shared=False, broken=True) == NO
    assert agreement.outcome == Outcome.LOST


# -- carried out -----------------------------------------------------------------------------------------------------


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox(RingSegment(1 << 16, producers=4), 0, 1)
    yield inbox
    inbox.close()


class Caller:
    """Worker 0, which has met worker 1 over TCP and calls it at its local address."""

    def __init__(self, inbox: Inbox, connection: socket.socket) -> None:
        self.loop, self.told = Loop(), list[str]()
        self.settled: list[RingChannel | None] = []
        self.sharing = Sharing(self.loop, inbox, 1, connection, self._settle, self._lose, self.told.append)

    def _settle(self, peer: int, connection: socket.socket, channel: RingChannel | None) -> None:
        assert peer == 1
        self.settled.append(channel)

    def _lose(self, departure: PeerGone) -> None:
        raise departure

    def run(self) -> None:
        """Call, and turn until it is settled."""
        self.sharing.call(KEY, Handshake(0, KEY, first=True, deadline=time.monotonic() + 60))
        for _ in Turns():
            if self.settled:
                return
            self.loop.turn(0.05)


@contextlib.contextmanager
def caller_of(inbox: Inbox, worker_1: Callable[[socket.socket, socket.socket], None]) -> Iterator[Caller]:
    """Worker 0 beside a worker 1 that does this with its TCP connection and its local door."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with listen_locally(KEY, 1) as door, ours, theirs:
        caller = Caller(inbox, ours)
        peer = threading.Thread(target=worker_1, args=(theirs, door))
        peer.start()
        try:
            yield caller
        finally:
            peer.join()
            caller.sharing.close()
            caller.loop.close()


def breaks_off_after(word: bytes) -> Callable[[socket.socket, socket.socket], None]:
    """A worker 1 that closes its local connection without an offer, after this word."""

    def worker_1(connection: socket.socket, door: socket.socket) -> None:
        local, _ = door.accept()
        with local, contextlib.suppress(ConnectionError):  # the caller may have heard the word first, and left
            assert prove(local, 1, KEY, first=False) == 0
            connection.sendall(word)
            local.recv(1)  # the offer has come; most of it stays unread, so closing resets

    return worker_1


def test_a_worker_that_agreed_and_broke_off_has_gone(inbox: Inbox) -> None:
    with caller_of(inbox, breaks_off_after(YES)) as caller:
        with pytest.raises(PeerGone, match="worker 1 agreed to share memory and has gone") as gone:
            caller.run()
        assert gone.value.worker == 1


def test_a_worker_that_broke_off_and_said_no_uses_sockets(inbox: Inbox) -> None:
    with caller_of(inbox, breaks_off_after(NO)) as caller:
        caller.run()
        assert caller.settled == [None]
        assert "worker 1 of this machine" in caller.told[0]


def test_a_worker_that_has_left_both_addresses_has_gone(inbox: Inbox) -> None:
    def leaves(connection: socket.socket, door: socket.socket) -> None:
        door.close()
        connection.close()

    with caller_of(inbox, leaves) as caller:
        with pytest.raises(PeerGone, match="worker 1 was lost while both connected") as gone:
            caller.run()
        assert gone.value.worker == 1


def test_a_worker_that_gave_up_the_local_handshake_and_lives_uses_sockets(inbox: Inbox) -> None:
    heard: list[bytes] = []

    def gives_up(connection: socket.socket, door: socket.socket) -> None:
        door.accept()[0].close()
        heard.append(connection.recv(1))
        connection.sendall(NO)

    with caller_of(inbox, gives_up) as caller:
        caller.run()
        assert caller.settled == [None]
    assert heard == [NO]
    assert "worker 1 of this machine cannot be reached at its local address" in caller.told[0]


def test_a_local_address_that_does_not_answer_in_time_costs_the_ring_alone(inbox: Inbox) -> None:
    def is_silent(connection: socket.socket, door: socket.socket) -> None:
        assert connection.recv(1) == NO
        connection.sendall(NO)

    with caller_of(inbox, is_silent) as caller:
        caller.sharing.call(KEY, Handshake(0, KEY, first=True, deadline=0.0))
        caller.sharing.expire(time.monotonic())
        for _ in Turns():
            if caller.settled:
                break
            caller.loop.turn(0.05)
        assert caller.settled == [None]
        assert "it has not answered in time" in caller.told[0]


class NoDescriptor(socket.socket):
    """A door at which no connection can be taken."""

    def accept(self) -> tuple[socket.socket, object]:
        raise OSError(errno.EMFILE, "too many open files")


def test_a_worker_without_a_descriptor_left_for_local_connections_uses_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def listen_in_vain(key: bytes, worker: int) -> socket.socket:
        door = listen_locally(key, worker)
        return NoDescriptor(door.family, door.type, 0, door.detach()) if worker == 1 else door

    monkeypatch.setattr("penstock.run.transport.links.listen_locally", listen_in_vain)
    ends = Links(0, 1, {0: 1}, {}), Links(1, 1, {}, {0: 0})
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(listen("127.0.0.1")) for _ in ends]
        places = [WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], "here") for w, s in enumerate(listeners)]
        for links in ends:
            stack.callback(links.close)
        called = threading.Thread(target=ends[1].open, args=(listeners[1], places, KEY))
        called.start()
        ends[0].open(listeners[0], places, KEY)
        called.join()
        assert {transport for links in ends for transport, _ in links.statistics().values()} == {"socket"}
        assert "worker 0 of this machine cannot be let in at the local address" in ends[1].notes[0]


@pytest.mark.parametrize("kind", ["ring", "auto"])
def test_links_say_who_was_lost_while_connecting(kind: str) -> None:
    with listen("127.0.0.1") as mine, listen("127.0.0.1") as theirs:
        ports = [door.getsockname()[1] for door in (mine, theirs)]
        places = [WorkerPlace(w, "n", "127.0.0.1", port, "here") for w, port in enumerate(ports)]

        def worker_1() -> None:  # lets worker 0 in, and dies at the first byte
            connection, _ = theirs.accept()
            theirs.close()
            connection.close()

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
