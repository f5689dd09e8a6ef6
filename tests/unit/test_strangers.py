"""Strangers at a worker's door while it starts: silent ones, loud ones and many; and whom an error blames."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest
from links_kit import Mesh, Turns, mesh

from penstock.run.transport import door as door_room
from penstock.run.transport import links as links_room
from penstock.run.transport import meetings as meetings_room
from penstock.run.transport.door import STRANGERS_MAX
from penstock.run.transport.handshake import Handshake
from penstock.run.transport.host import WorkerPlace
from penstock.run.transport.links import Links, Transport
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.segment import local_address

WORDS = ("silent", "one byte", "rubbish", "an opening")
RUBBISH = b"GET / HTTP/1.1\r\nHost: worker\r\nUser-Agent: a stranger\r\n\r\n"


def knock(stack: contextlib.ExitStack, made: Mesh, words: bytes = b"", times: int = 1) -> list[socket.socket]:
    """Strangers at every worker's door."""
    strangers = []
    for listener in made.listeners:
        for _ in range(times):
            stranger = stack.enter_context(socket.create_connection(listener.getsockname()))
            stranger.sendall(words)
            strangers.append(stranger)
    return strangers


def meet_and_speak(made: Mesh) -> None:
    """All meet, and a mark goes from each to each."""
    workers = range(made.count)
    made.open(*workers)
    for source in workers:
        for target in workers:
            if source != target:
                made.links[source].send_mark(links_room.Kind.WATERMARK, made.edge(source, target), source)
    for target in workers:
        heard: set[int] = set()
        for _ in Turns():
            heard |= {frame.value for frame in made.links[target].wait(0.05)[0]}
            if len(heard) == made.count - 1:
                break


@pytest.mark.parametrize("kind", ["socket", "ring"])
@pytest.mark.parametrize("words", [b"", b"p", RUBBISH, Handshake(0, b"", first=True).opening], ids=WORDS)
def test_strangers_do_not_keep_workers_from_meeting(kind: str, words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "HANDSHAKE_SECONDS", 3600.0)  # nobody has waited for one of them to be turned away
    with mesh(3, Transport(kind)) as made, contextlib.ExitStack() as stack:
        knock(stack, made, words, times=3)
        meet_and_speak(made)


def test_more_strangers_than_the_limit_do_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "HANDSHAKE_SECONDS", 3600.0)
    with mesh(2) as made, contextlib.ExitStack() as stack:
        knock(stack, made, times=2 * STRANGERS_MAX)
        before = len(os.listdir("/proc/self/fd"))
        meet_and_speak(made)
        assert len(os.listdir("/proc/self/fd")) - before < STRANGERS_MAX  # and those that are left have been let go


def test_strangers_at_the_local_address_do_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "HANDSHAKE_SECONDS", 3600.0)
    listen_locally = links_room.listen_locally
    with mesh(2, Transport("ring")) as made, contextlib.ExitStack() as stack:

        def crowded(key: bytes, worker: int) -> socket.socket:
            listener = listen_locally(key, worker)
            for words in (b"", RUBBISH):
                stranger = stack.enter_context(socket.socket(socket.AF_UNIX))
                stranger.connect(local_address(key, worker))
                stranger.sendall(words)
            return listener

        monkeypatch.setattr(links_room, "listen_locally", crowded)
        meet_and_speak(made)


def meeting(made: Mesh, me: int, key: bytes | None = None) -> Links:
    """A worker of two that has begun to meet the other and waits for nothing."""
    other = 1 - me
    links = made.links[me] = Links(me, 4, {}, {})
    links.open(made.listeners[me], made.places, key or made.key)
    links.add_peer(made.places[other], [made.edge(me, other)], [made.edge(other, me)])
    return links


def test_the_one_that_has_been_silent_for_longest_goes_first() -> None:
    with mesh(2) as made, contextlib.ExitStack() as stack:
        links = meeting(made, 1)
        door = made.listeners[1].getsockname()
        speaks = stack.enter_context(socket.create_connection(door))
        speaks.sendall(b"p")
        silent = [stack.enter_context(socket.create_connection(door)) for _ in range(STRANGERS_MAX + 2)]
        for _ in Turns():
            links.wait(0.05)
            if links._meetings is not None and links._meetings._door.turned_away == 2:
                break
        opening = len(Handshake(0, b"", first=True).opening)
        gone = [stranger for stranger in (speaks, *silent) if len(stranger.recv(2 * opening)) and not alive(stranger)]
        assert gone == silent[:2]


def alive(stranger: socket.socket) -> bool:
    """Whether the connection stays open, after the opening that everybody is sent."""
    stranger.setblocking(False)
    try:
        return stranger.recv(1) != b""
    except BlockingIOError:
        return True


def turn_away(caller: Links, called: Links, made: Mesh) -> None:
    """A stranger who speaks takes the place of the one who is expected, whose call breaks."""
    assert called._meetings is not None
    assert caller._meetings is not None
    for _ in Turns():
        caller.wait(0.0)
        if called._meetings._door._knocking:
            break
        called.wait(0.0)
    with socket.create_connection(made.listeners[1].getsockname()) as stranger:
        stranger.sendall(Handshake(0, b"", first=True).opening)
        for _ in Turns():
            called.wait(0.0)
            if called._meetings._door.turned_away:
                break
        for _ in Turns():
            caller.wait(0.01)
            if caller._meetings._broken[1]:
                break


def test_a_peer_that_was_turned_away_in_a_crowd_calls_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "STRANGERS_MAX", 0)
    with mesh(2) as made:
        caller, called = meeting(made, 0), meeting(made, 1)
        turn_away(caller, called, made)
        turn_until_met(caller, called)
        assert called._meetings is not None
        assert called._meetings._door.turned_away


def test_it_does_not_call_again_while_the_crowd_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "STRANGERS_MAX", 0)
    monkeypatch.setattr(meetings_room, "CALL_PAUSE_SECONDS", 3600.0)
    with mesh(2) as made:
        caller, called = meeting(made, 0), meeting(made, 1)
        turn_away(caller, called, made)
        for _ in range(3):
            caller.wait(0.0)
        assert caller._meetings is not None
        assert caller._meetings._calls == {}
        assert caller._meetings.pending


def test_a_strangers_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_room, "HANDSHAKE_SECONDS", 0.0)
    with mesh(2) as made, contextlib.ExitStack() as stack:
        links = meeting(made, 1)
        stranger = stack.enter_context(socket.create_connection(made.listeners[1].getsockname()))
        for _ in Turns():
            links.wait(0.05)
            if links._meetings is not None and links._meetings._door.turned_away:
                break
        stranger.recv(1000)
        assert not alive(stranger)


# -- blame -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_room, "CONNECT_SECONDS", 0.01)
    monkeypatch.setattr(links_room, "EXPIRE_SECONDS", 0.01)


@pytest.mark.usefixtures("no_patience")
def test_a_worker_that_never_calls_is_named_and_strangers_are_counted() -> None:
    with mesh(2) as made, contextlib.ExitStack() as stack:
        stranger = stack.enter_context(socket.create_connection(made.listeners[1].getsockname()))
        stranger.sendall(RUBBISH)
        with pytest.raises(PeerGone, match=r"worker 1 waited 0.01 s in vain for workers \[0\] to connect") as gone:
            made.open(1)
        assert gone.value.worker == 0


@pytest.mark.usefixtures("no_patience")
def test_a_worker_that_is_late_is_not_said_to_be_dead() -> None:
    with mesh(2) as made, pytest.raises(TimeoutError, match=r"worker 1 did not answer at 127.0.0.1:.* constructor"):
        made.open(0)


def test_a_worker_that_has_gone_is_lost() -> None:
    with mesh(2) as made:
        made.listeners[1].close()
        with pytest.raises(
            PeerGone, match=r"worker 1 was lost while both connected at 127.0.0.1:\d+: .*refused"
        ) as gone:
            made.open(0)
        assert gone.value.worker == 1


def test_another_worker_at_the_address_is_named() -> None:
    with mesh(3, members=range(2)) as made:
        places = [made.places[0], WorkerPlace(1, "n", "127.0.0.1", made.places[2].port, "here"), made.places[2]]
        made.links[2] = made.links_of(2, range(1), None)
        made.places = places
        with pytest.raises(PeerGone, match=r"the process at 127.0.0.1:\d+ is worker 2, not worker 1") as gone:
            made.open(0, 2)
        assert gone.value.worker == 1


def test_one_without_the_key_is_not_taken_for_a_worker() -> None:
    with mesh(2) as made:
        impostor, worker = meeting(made, 0, b"another key"), meeting(made, 1)
        with pytest.raises(PeerGone, match="worker 1 was lost while both connected"):
            turn_until_met(impostor, worker)
        for _ in range(3):
            worker.wait(0.0)
        assert not worker.has_met(0)
        assert worker._meetings is not None
        assert worker._meetings._door.turned_away == 1


def turn_until_met(*ends: Links) -> None:
    for _ in Turns():
        for links in ends:
            links.wait(0.01)
        if all(links.statistics() for links in ends):
            return
