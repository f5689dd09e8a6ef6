"""Epochs that take long: told from times and from who has not reported, once each, and to whom a note names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.checkpoint.coordinator import Awaited
from penstock.deploy.attempt import silence, slow_epochs
from penstock.deploy.attempt.silence import Beat
from penstock.deploy.attempt.slow_epochs import SLOW_SECONDS, EpochWatch, SlowEpoch
from penstock.deploy.attempt.watch import Notes, Watchman
from penstock.deploy.driver.rendezvous import Roll, wait_until
from penstock.deploy.line.messages import Hello
from penstock.run.engine.worker import Deployment
from penstock.run.transport.links import WorkerPlace

S = 1_000_000
PATIENCE_S = 10.0


def awaited(epoch: int, began_s: float, *workers: int) -> Awaited:
    return Awaited(epoch, round(began_s * S), workers)


def test_an_epoch_is_told_when_it_takes_long_and_again_when_it_waits_for_others_and_when_it_is_over() -> None:
    watch, late = EpochWatch(), round(SLOW_SECONDS * S)
    assert watch.look(late - 1, awaited(7, 0, 0, 1)) == []
    assert watch.look(late, awaited(7, 0, 0, 1)) == [SlowEpoch("slow", awaited(7, 0, 0, 1), SLOW_SECONDS)]
    assert watch.look(late + S, awaited(7, 0, 0, 1)) == []
    assert [(s.kind, s.awaited.workers) for s in watch.look(late + S, awaited(7, 0, 1))] == [("slow", (1,))]
    assert watch.look(late + 2 * S, None) == [SlowEpoch("over", awaited(7, 0, 1), SLOW_SECONDS + 2)]
    assert watch.look(late + 3 * S, awaited(8, SLOW_SECONDS + 2.5, 0, 1)) == []


def test_what_is_usual_is_told_once() -> None:
    watch, told = EpochWatch(), []
    for epoch in range(5):  # each takes 30 s, and the next begins at once
        for second in range(30):
            told += watch.look((30 * epoch + second) * S, awaited(epoch, 30 * epoch, 0))
    assert [(s.kind, s.awaited.epoch) for s in told] == [("slow", 0), ("over", 0)]
    assert [s.kind for s in watch.look(220 * S, awaited(5, 150, 0))] == ["slow"]


# -- the notes ---------------------------------------------------------------------------------------------------------


def hello(worker: int) -> Hello:
    return Hello(worker, 2, "x", "127.0.0.1", 1, 100 + worker, 3, "b", "i", "3.11", "26", 1000.0)


def watched(roll: Roll, notes: Notes, state: SimpleNamespace) -> Watchman:
    places = tuple(WorkerPlace(w, f"n{w}", "127.0.0.1", 1) for w in range(2))
    deployment = Deployment("j", places, {"a/0": 0, "b/0": 1})
    return Watchman(roll, [hello(0), hello(1)], deployment, 3600.0, notes, "j", lambda: state.awaited)


def noted(notes: Notes, *words: str) -> bool:
    return wait_until(lambda: any(all(word in note for word in words) for note in notes.all), PATIENCE_S)


def test_an_epoch_that_does_not_come_names_who_has_not_handed_it_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_epochs, "SLOW_SECONDS", 0.0)
    roll, notes = Roll(), Notes("j")
    state = SimpleNamespace(awaited=awaited(7, 0, 0, 1))
    watchman = watched(roll, notes, state)
    try:
        assert noted(notes, "epoch 7 began at ", "worker 0 (pid 100, node 'n0'), which runs a/0, worker 1 (pid 101,")
        state.awaited = awaited(7, 0, 1)
        assert noted(notes, "waits for worker 1 (pid 101, node 'n1'), which runs b/0; a task there has not come to")
        state.awaited = awaited(7, 0)
        assert noted(notes, "it waits for the driver, which writes its manifest and shows its rows; a write to the")
        assert len([note for note in notes.all if "epoch 7" in note]) == 1
        state.awaited = None
        assert noted(notes, "epoch 7 took ")
        assert not roll.ending  # by none of these
    finally:
        watchman.end()


def test_a_keeper_that_stands_still_is_told_and_in_the_end_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    roll, notes = Roll(), Notes("j")
    watchman = watched(roll, notes, SimpleNamespace(awaited=None))
    limit_s = silence.still_seconds(3600.0)
    try:
        roll.beats = {0: Beat(), 1: Beat(still_s=20.0)}
        assert noted(notes, "worker 1 (pid 101, node 'n1'), which runs b/0, has stood still in keeping an epoch since")
        roll.beats = {0: Beat(), 1: Beat(still_s=limit_s)}
        assert wait_until(lambda: roll.ending, PATIENCE_S)
        (fault,) = cast("list[Any]", roll.faults)
        assert (fault.kind, fault.worker, fault.node) == ("worker", 1, "n1")
        assert f"the limit is {limit_s:g} s, 60 times silence_s or 120 s" in fault.message
    finally:
        watchman.end()
