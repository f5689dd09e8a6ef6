"""Links between workers of one machine: fallback that both ends agree on, calls that get lost, and newcomers."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from links_kit import Mesh, Turns, mesh

from penstock._core import NoSharedMemory
from penstock.errors import InternalError
from penstock.run.transport import introduction
from penstock.run.transport import links as links_room
from penstock.run.transport.growth import Traffic
from penstock.run.transport.inbox import Inbox
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.ring import RingChannel
from penstock.run.transport.socket import listen
from penstock.run.transport.wire import Frame, Kind, unpack_batch

BATCH = pa.record_batch({"i": list(range(10))})
LOOKS_MAX = 1_000


@contextlib.contextmanager
def two_workers() -> Iterator[tuple[Links, Links]]:
    """Worker 0 sends to worker 1 along edge 0."""
    ends = Links(0, 1, {0: 1}, {}), Links(1, 1, {}, {0: 0})
    listeners = [listen("127.0.0.1") for _ in ends]
    places = [WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], "here") for w, s in enumerate(listeners)]
    key = os.urandom(32)
    with contextlib.ExitStack() as stack:
        for links, listener in zip(ends, listeners, strict=True):
            stack.callback(links.close)
            stack.callback(listener.close)
        called = threading.Thread(target=ends[1].open, args=(listeners[1], places, key))
        called.start()
        ends[0].open(listeners[0], places, key)
        called.join()
        yield ends


def heard(links: Links) -> list[Frame]:
    """The first frames that come."""
    for _ in range(LOOKS_MAX):
        if frames := links.wait(0.01)[0]:
            return frames
    return pytest.fail("nothing came")


def transports(*ends: Links) -> set[str]:
    return {transport for links in ends for transport, _ in links.statistics().values()}


def test_a_call_that_never_came_delays_what_was_sent_but_does_not_lose_it() -> None:
    with two_workers() as (sender, receiver):
        assert transports(sender, receiver) == {"ring"}
        sender.send_batch(0, BATCH, 0)
        assert receiver._inbox is not None
        os.eventfd_read(receiver._inbox.wake_fileno())  # as if the sender had stopped before it wrote it
        (frame,) = heard(receiver)
        assert unpack_batch(frame, BATCH.schema).equals(BATCH)


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_other_events_and_other_work_do_not_hide_a_call_that_never_came(seconds: float) -> None:
    with two_workers() as (sender, receiver):
        driver = os.eventfd(1)
        try:
            receiver.watch(driver)  # readable whenever the receiver waits
            sender.send_batch(0, BATCH, 0)
            assert receiver._inbox is not None
            os.eventfd_read(receiver._inbox.wake_fileno())
            frames: list[Frame] = []
            deadline = time.monotonic() + 30
            while not frames and time.monotonic() < deadline:
                frames, called = receiver.wait(seconds)
                assert called
            assert [unpack_batch(frame, BATCH.schema) for frame in frames] == [BATCH]
        finally:
            os.close(driver)


def test_connections_send_at_once_before_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    delayed: list[int] = []

    def watched(connection: socket.socket, words: bytes) -> None:
        if connection.family == socket.AF_INET:
            delayed.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        say(connection, words)

    say = introduction.say
    monkeypatch.setattr(introduction, "say", watched)
    with two_workers():
        assert len(delayed) == 5  # an opening and a proof from each, and a welcome
        assert all(delayed)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_inbox_that_one_end_cannot_take_is_used_by_neither(monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    connect = Inbox.connect

    def one_end_fails(inbox: Inbox, connection: socket.socket, peer: int) -> RingChannel:
        channel = connect(inbox, connection, peer)  # the other end has our inbox by now
        if inbox.worker == failing:
            channel.close()
            msg = "no more descriptors"
            raise NoSharedMemory(msg)
        return channel

    monkeypatch.setattr(Inbox, "connect", one_end_fails)
    with two_workers() as (sender, receiver):
        assert transports(sender, receiver) == {"socket"}
        assert "no more descriptors" in (sender, receiver)[failing].notes[0]
        assert "cannot share memory" in (sender, receiver)[1 - failing].notes[0]
        sender.send_batch(0, BATCH, 0)
        sender.send_mark(Kind.END, 0)
        frames = heard(receiver)
        assert unpack_batch(frames[0], BATCH.schema).equals(BATCH)


# -- newcomers -------------------------------------------------------------------------------------------------------

TRANSPORTS = pytest.mark.parametrize("kind", ["socket", "ring"])


def turn(*ends: Links) -> list[Frame]:
    """One turn of each; what came."""
    return [frame for links in ends for frame in links.wait(0.01)[0]]


def met(made: Mesh, *pairs: tuple[int, int]) -> None:
    for _ in Turns():
        turn(*made.links)
        if all(made.links[one].has_met(other) for one, other in pairs):
            return


def speak(made: Mesh, source: int, target: int) -> None:
    """A batch and a credit back, along a pair of edges."""
    there, back = made.edge(source, target), made.edge(target, source)
    made.links[source].send_batch(there, BATCH, 7)
    (frame,) = heard(made.links[target])
    assert (frame.edge, frame.value) == (there, 7)
    assert unpack_batch(frame, BATCH.schema).equals(BATCH)
    made.links[target].send_mark(Kind.CREDIT, back, 9)
    assert [frame.value for frame in heard(made.links[source])] == [9]


def add(made: Mesh, me: int, newcomer: int) -> None:
    made.links[me].add_peer(made.places[newcomer], [made.edge(me, newcomer)], [made.edge(newcomer, me)])


@TRANSPORTS
@pytest.mark.parametrize("newcomer", [0, 1, 2])
def test_a_worker_joins_two_that_run(kind: str, newcomer: int) -> None:
    old = [w for w in range(3) if w != newcomer]
    with mesh(3, Transport(kind)) as made:
        for worker in old:
            others = [w for w in old if w != worker]
            sends = {made.edge(worker, w): w for w in others}
            made.links[worker] = Links(worker, 9, sends, {made.edge(w, worker): w for w in others}, Transport(kind))
        made.open(*old)
        speak(made, *old)
        joins = threading.Thread(target=made.open, args=(newcomer,))
        joins.start()
        for worker in old:
            add(made, worker, newcomer)
        for _ in Turns():
            turn(*(made.links[worker] for worker in old))
            if all(made.links[worker].has_met(newcomer) for worker in old) and not joins.is_alive():
                break
        joins.join()
        assert transports(*made.links) == {kind}
        for worker in old:
            speak(made, worker, newcomer)
            speak(made, newcomer, worker)
        speak(made, *old)


def test_a_newcomer_gets_a_ring_from_an_inbox_that_has_grown() -> None:
    with mesh(3, Transport("ring"), range(2)) as made:
        made.open(0, 1)
        grower = made.links[0]._inbox
        assert grower is not None
        for times in (2, 4):
            grower._grow(times << 20, Traffic())
            for _ in Turns():
                turn(made.links[0], made.links[1])
                if grower._before is None:
                    break
        made.links[2] = Links(2, 9, {}, {}, Transport("ring"))
        made.open(2)
        add(made, 0, 2)
        add(made, 2, 0)
        met(made, (0, 2), (2, 0))
        assert transports(made.links[2]) == {"ring"}
        speak(made, 2, 0)
        speak(made, 0, 1)


def part(made: Mesh) -> None:
    """Both workers end their edges, so that the first takes the other's leaving for a goodbye."""
    for links, edge in zip(made.links, (made.edge(0, 1), made.edge(1, 0)), strict=True):
        links.send_mark(Kind.END, edge)
    for _ in Turns():
        turn(*made.links)
        if not any(links._ends_due.total() for links in made.links):
            return


def until_gone(links: Links, peer: int) -> None:
    for _ in Turns():
        turn(links)
        if peer in links._gone:
            return


@TRANSPORTS
@pytest.mark.parametrize("in_peace", [True, False])
def test_a_worker_that_has_gone_may_come_again(kind: str, in_peace: bool) -> None:
    with mesh(2, Transport(kind)) as made:
        made.open(0, 1)
        if in_peace:
            part(made)
        made.links[1].close()
        with contextlib.nullcontext() if in_peace else pytest.raises(PeerGone, match="worker 1 closed"):
            until_gone(made.links[0], 1)
        made.links[1] = Links(1, 4, {}, {}, Transport(kind))
        made.links[1].open(made.listeners[1], made.places, made.key)
        add(made, 0, 1)
        add(made, 1, 0)
        met(made, (0, 1), (1, 0))
        assert transports(*made.links) == {kind}
        speak(made, 0, 1)
        speak(made, 1, 0)


def test_two_that_die_in_the_same_turn_are_both_told() -> None:
    with mesh(3, Transport("ring")) as made:
        made.open(0, 1, 2)
        for dead in (1, 2):
            made.links[dead].close()
        told = set()
        for _ in range(2):
            with pytest.raises(PeerGone) as gone:
                until_gone(made.links[0], -1)
            told.add(gone.value.worker)
        assert told == {1, 2}


@TRANSPORTS
def test_a_death_is_told_while_another_sends_without_end(kind: str) -> None:
    with mesh(3, Transport(kind)) as made:
        made.open(0, 1, 2)
        made.links[2].close()
        with pytest.raises(PeerGone, match="worker 2 closed"):
            hear_for_ever(made)


def hear_for_ever(made: Mesh) -> None:
    """Worker 1 sends a mark before each turn of worker 0."""
    for value in Turns():
        made.links[1].send_mark(Kind.WATERMARK, made.edge(1, 0), value)
        made.links[0].wait(0.01)


@TRANSPORTS
def test_an_end_of_an_unknown_edge_is_left_to_the_worker_to_refuse(kind: str) -> None:
    with mesh(2, Transport(kind)) as made:
        made.open(0, 1)
        made.links[1]._ports[0].send_mark(Kind.END, made.edge(1, 1))
        assert [frame.edge for frame in heard(made.links[0])] == [made.edge(1, 1)]


@TRANSPORTS
def test_two_that_meet_while_both_say_goodbye_part_from_each_other(kind: str) -> None:
    with mesh(3, Transport(kind)) as made:
        for worker in (0, 2):  # which have worker 1 in common
            made.links[worker] = made.links_of(worker, range(1, 2), Transport(kind))
        made.open(0, 1, 2)
        for worker, other in ((0, 2), (2, 0)):
            made.links[worker].add_peer(made.places[other])
        for source, target in ((0, 1), (1, 0), (1, 2), (2, 1)):
            made.links[source].send_mark(Kind.END, made.edge(source, target))
        partings = [threading.Thread(target=made.links[w].say_goodbye, daemon=True) for w in (0, 2)]
        for parting in partings:
            parting.start()
        for _ in Turns():
            made.links[1].wait(0.01)
            if made.links[0].has_met(2) and made.links[2].has_met(0):
                break
        made.links[1].say_goodbye()
        for parting in partings:
            parting.join(10.0)
        assert not any(parting.is_alive() for parting in partings)


@TRANSPORTS
def test_one_that_calls_before_it_is_expected_is_kept(kind: str) -> None:
    with mesh(3, Transport(kind)) as made:
        for worker in range(3):
            made.links[worker] = Links(worker, 9, {}, {}, Transport(kind))
            made.open(worker)
        add(made, 2, 0)  # so its door is open
        add(made, 1, 2)
        for _ in Turns():
            turn(*made.links)
            meetings = made.links[2]._meetings
            if meetings is not None and 1 in meetings._early:
                break
        add(made, 2, 1)
        add(made, 0, 2)
        met(made, (0, 2), (1, 2), (2, 0), (2, 1))
        speak(made, 1, 2)


def test_a_newcomer_that_never_comes_is_told_by_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with mesh(3, members=range(2)) as made:
        made.open(0, 1)
        monkeypatch.setattr(links_room, "CONNECT_SECONDS", 0.0)
        add(made, 0, 2)
        with pytest.raises(TimeoutError, match="worker 2 could not be reached at"):
            made.links[0].wait(0.0)
        made.links[0].wait(0.0)  # and only once
        speak(made, 0, 1)


def test_a_peer_that_is_there_cannot_be_added() -> None:
    with mesh(2) as made:
        with pytest.raises(InternalError, match="worker 0 cannot add worker 1"):
            add(made, 0, 1)
        made.open(0, 1)
        with pytest.raises(InternalError, match="worker 0 cannot add worker 1"):
            add(made, 0, 1)


@TRANSPORTS
def test_edges_come_and_go_between_two_that_have_met(kind: str) -> None:
    """A route of an edge is left without its end, and another one ends: then both part in peace."""
    with mesh(2, Transport(kind)) as made:
        made.open(0, 1)
        former, later = made.edge(0, 1), 3
        made.links[0].add_edges(made.places[1], [later], [])
        made.links[1].add_edges(made.places[0], [], [later])
        assert made.links[0].has_met(1)
        made.links[0].send_batch(later, BATCH, 7)
        assert [frame.edge for frame in heard(made.links[1])] == [later]
        made.links[0].leave_edges([former])
        made.links[1].leave_edges([former])
        made.links[0].send_mark(Kind.END, later)
        assert [frame.edge for frame in heard(made.links[1])] == [later]
        made.links[0].leave_edges([later])  # it has ended, and counts no more
        made.links[1].leave_edges([later])
        made.links[1].send_mark(Kind.END, made.edge(1, 0))
        assert heard(made.links[0])[0].kind == Kind.END
        assert not any(links._ends_due.total() or links._ends_owed.total() for links in made.links)
        made.links[1].close()
        until_gone(made.links[0], 1)


def test_edges_to_a_worker_that_is_not_known_have_it_met() -> None:
    with mesh(3, members=range(2)) as made:
        made.open(0, 1)
        made.links[2] = Links(2, 9, {}, {}, Transport())
        made.open(2)
        made.links[0].add_edges(made.places[2], [made.edge(0, 2)], [made.edge(2, 0)])
        made.links[2].add_edges(made.places[0], [made.edge(2, 0)], [made.edge(0, 2)])
        met(made, (0, 2), (2, 0))
        speak(made, 2, 0)


def none_met(made: Mesh, kind: str) -> None:
    """Workers that run and know nobody."""
    for worker in range(made.count):
        made.links[worker] = Links(worker, 9, {}, {}, Transport(kind))
    made.open(*range(made.count))


@TRANSPORTS
@pytest.mark.parametrize("caller", [0, 2])
@pytest.mark.parametrize("turns", [0, 1, 3, 8, 40])
def test_who_was_to_be_met_for_edges_of_which_nothing_comes_is_forgotten_and_met_later(
    kind: str, caller: int, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One side has begun to meet and the other never does, or only afterwards: no wait tells of it."""
    with mesh(3, members=range(0)) as made:
        none_met(made, kind)
        other, edge = 2 - caller, made.edge(caller, 2 - caller)
        monkeypatch.setattr(links_room, "CONNECT_SECONDS", 0.5)
        made.links[caller].add_edges(made.places[other], [edge], [])
        for _ in range(turns):
            turn(*made.links)
        made.links[caller].leave_edges([edge])
        for worker in (other, caller):
            made.links[worker].forget_new_peers()
        assert not made.links[caller]._meetings.pending  # type: ignore[union-attr] # it is open
        monkeypatch.setattr(links_room, "CONNECT_SECONDS", 30.0)
        for one, another in ((caller, other), (other, caller)):
            made.links[one].add_edges(made.places[another], [made.edge(one, another)], [made.edge(another, one)])
        met(made, (caller, other), (other, caller))
        for worker in (caller, other):
            made.links[worker].keep_new_peers()
        speak(made, caller, other)


@TRANSPORTS
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 40])
def test_two_that_are_meeting_forget_each_other_one_after_the_other(kind: str, first: int, turns: int) -> None:
    """Who hears later sees the other one go meanwhile, which is no death."""
    with mesh(3, members=range(0)) as made:
        none_met(made, kind)
        second = 2 - first

        def begin() -> None:
            for one, another in ((first, second), (second, first)):
                made.links[one].add_edges(made.places[another], [made.edge(one, another)], [made.edge(another, one)])

        begin()
        for _ in range(turns):
            turn(*made.links)
        for worker in (first, second):
            made.links[worker].leave_edges([made.edge(first, second), made.edge(second, first)])
            made.links[worker].forget_new_peers()
            for _ in range(6):
                turn(*made.links)
        begin()
        met(made, (first, second), (second, first))
        speak(made, first, second)


def test_a_new_peer_that_goes_before_its_edges_are_in_use_is_told_when_they_are() -> None:
    with mesh(3, members=range(0)) as made:
        none_met(made, "socket")
        made.links[0].add_edges(made.places[2], [made.edge(0, 2)], [])
        made.links[2].add_edges(made.places[0], [], [made.edge(0, 2)])
        met(made, (0, 2), (2, 0))
        made.links[2].close()
        until_gone(made.links[0], 2)
        assert not made.links[0].has_met(2)
        made.links[0].keep_new_peers()
        with pytest.raises(PeerGone, match="worker 2 closed its connection before its streams had ended"):
            made.links[0].wait(0.0)


def test_a_new_peer_that_cannot_be_met_is_told_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    with mesh(3, members=range(0)) as made:
        none_met(made, "socket")
        monkeypatch.setattr(links_room, "CONNECT_SECONDS", 0.0)
        made.links[0].add_edges(made.places[2], [made.edge(0, 2)], [])
        made.links[0].wait(0.0)
        with pytest.raises(TimeoutError, match="worker 2 could not be reached at"):
            made.links[0].has_met(2)
