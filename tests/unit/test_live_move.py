"""A live move as the driver decides it: events in, words and the epoch out; and what cannot move alone."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import penstock as ps
from penstock.deploy.attempt.live import MOVES_MAX, TASKS_MAX, why_not_live
from penstock.deploy.attempt.moving import BeginEpoch, LiveMove, Phase, Step, Tell
from penstock.errors import InternalError
from penstock.run.dataflow import Dataflow
from penstock.run.engine.moves import CAME, DROPPED, ENDED, PREPARED, REFUSED, asked_move

BEFORE = {"a/0": 0, "b/0": 0, "b/1": 1}
PART = {"worker": 0, "path": "p"}


def move(workers: int = 3) -> LiveMove:
    return LiveMove(7, {"b/0": 2}, BEFORE, workers)


def words(steps: Sequence[Step]) -> list[str]:
    found = []
    for step in steps:
        asked = asked_move(step.command) if isinstance(step, Tell) else ("epoch", {})
        assert asked is not None
        found.append(asked[0])
    return found


def prepared(one: LiveMove, workers: int = 3) -> None:
    one.held(5)
    for worker in range(workers):
        steps = one.said(worker, 7, PREPARED)
    assert steps == [BeginEpoch()]


def test_a_move_is_over_when_its_tasks_are_at_work_and_its_epoch_is_committed() -> None:
    one = move()
    (told,) = one.held(5)
    assert isinstance(told, Tell)
    assert asked_move(told.command) == ("prepare", {"number": 7, "epoch": 5, "to": {"b/0": 2}})
    assert [one.said(worker, 7, PREPARED) for worker in (2, 0)] == [[], []]
    assert one.awaited == [1]
    assert one.said(1, 7, PREPARED) == [BeginEpoch()]
    assert one.kept(1, 5, {}) == []  # nothing leaves this one
    (told,) = one.kept(0, 5, PART)
    assert isinstance(told, Tell)
    assert asked_move(told.command) == ("come", {"parts": [PART]})
    assert one.said(2, 7, CAME) == []
    assert words(one.committed(5)) == ["over"]
    assert one.phase is Phase.OVER


@pytest.mark.parametrize("seed", range(50))
def test_in_whatever_order_the_last_words_come_it_is_over_once(seed: int) -> None:
    one = LiveMove(7, {"a/0": 1, "b/1": 2}, BEFORE, 3)
    prepared(one)
    events = [lambda: one.kept(0, 5, PART), lambda: one.kept(1, 5, PART), lambda: one.kept(2, 5, PART)]
    random.Random(seed).shuffle(events)
    assert [words(event()) for event in events].count(["come"]) == 1
    assert one.phase is Phase.LANDING
    events = [lambda: one.said(1, 7, CAME), lambda: one.said(2, 7, CAME), lambda: one.committed(5)]
    random.Random(seed).shuffle(events)
    assert [words(event()) for event in events] == [[], [], ["over"]]


@pytest.mark.parametrize("phase", [REFUSED, ENDED])
def test_a_move_that_one_refuses_is_dropped_and_over_when_all_have_forgotten_it(phase: str) -> None:
    one = move()
    one.held(5)
    one.said(0, 7, PREPARED)
    (told,) = one.said(1, 7, phase, "no room")
    assert isinstance(told, Tell)
    assert asked_move(told.command) == ("drop", {"number": 7})
    assert one.said(2, 7, PREPARED) == []  # it has heard later
    for worker in range(3):
        assert one.phase is Phase.DROPPING
        assert one.said(worker, 7, DROPPED) == []
    assert (one.phase, one.why, one.is_late) == (Phase.REFUSED, "no room", phase == ENDED)


def test_the_end_of_a_worker_is_its_part() -> None:
    one = move()
    prepared(one)
    assert words(one.kept(0, None, PART)) == ["come"]


def test_words_of_other_moves_and_epochs_are_nothing_and_strange_ones_are_told() -> None:
    one = move()
    assert one.said(0, 6, PREPARED) == one.committed(4) == one.kept(0, 4, PART) == []
    prepared(one)
    assert one.committed(4) == one.kept(0, 4, PART) == []
    with pytest.raises(InternalError, match="worker 0 says 'came' of move 7, which is switching"):
        one.said(0, 7, CAME)


def test_a_move_that_waits_for_an_epoch_can_be_given_up_without_a_word() -> None:
    one = move()
    assert one.give_up("too long") == []
    assert one.held(5) == []
    assert one.phase is Phase.REFUSED


# -- what is not covered -----------------------------------------------------------------------------------------------


def plain(*, tasks: int = 2) -> Dataflow:
    top = ps.Topology("plain")
    rows = ps.io.generator(lambda task, tasks: [], "k bigint")
    top.source("a", rows).key_by("k").count(name="b", tasks=tasks).sink("out", ps.io.discard())
    return top.build()


def test_what_cannot_move_alone_is_named() -> None:
    assert why_not_live(plain(), BEFORE, {**BEFORE, "b/0": 1}, 0) is None
    assert why_not_live(plain(), BEFORE, {**BEFORE, "b/2": 1}, 0) == "operators would have other numbers of tasks"
    assert "2,000 moves" in str(why_not_live(plain(), BEFORE, {**BEFORE, "b/0": 1}, MOVES_MAX))
    many = {f"b/{i}": 0 for i in range(TASKS_MAX + 1)}
    assert "1,001 tasks move at once" in str(why_not_live(plain(), many, dict.fromkeys(many, 1), 0))


def test_sources_that_keep_pace_do_not_move_alone() -> None:
    top = ps.Topology("paced")
    rows = ps.io.generator(lambda task, tasks: [], "at timestamp")
    top.source("a", rows, tasks=2).event_time("at").sink("out", ps.io.discard())
    before = {"a/0": 0, "a/1": 0}
    assert why_not_live(top.build(), before, {"a/0": 1, "a/1": 0}, 0) == "source 'a' keeps pace with others"
