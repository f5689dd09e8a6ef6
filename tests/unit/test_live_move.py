"""A live move as the driver decides it: events in, words and the epoch out; and what cannot move alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock.deploy.attempt import live
from penstock.deploy.attempt.epoch_thread import Held
from penstock.deploy.attempt.live import MOVES_MAX, TASKS_MAX, Declined, LiveMover, why_not_live
from penstock.deploy.attempt.moving import BeginEpoch, LiveMove, Phase, Step, Tell
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InternalError, JobFailed
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


def prepared(one: LiveMove, workers: int = 3, number: int = 7) -> None:
    one.held(5)
    for worker in range(workers):
        steps = one.said(worker, number, PREPARED)
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


@pytest.mark.parametrize("is_held", [False, True])
def test_a_worker_that_says_goodbye_before_it_has_prepared_ends_the_move_at_once(is_held: bool) -> None:
    one = move()
    if is_held:
        one.held(5)
        one.said(0, 7, PREPARED)
    assert words(one.parted(1)) == (["drop"] if is_held else [])
    assert (one.is_late, one.why) == (True, "worker 1 has finished its work")
    if is_held:
        assert one.awaited == [0, 2]
        one.said(0, 7, DROPPED)
        assert one.said(2, 7, DROPPED) == []
    assert one.phase is Phase.REFUSED


def test_a_worker_that_says_goodbye_has_forgotten_the_move() -> None:
    one = move()
    one.held(5)
    one.said(1, 7, REFUSED, "no room")
    one.said(0, 7, DROPPED)
    one.said(1, 7, DROPPED)
    assert one.awaited == [2]
    assert one.parted(2) == []
    assert (one.phase, one.why, one.is_late) == (Phase.REFUSED, "no room", False)


def test_a_worker_that_has_prepared_may_go_unless_a_task_comes_to_it() -> None:
    one = move()
    one.held(5)
    assert [one.said(worker, 7, PREPARED) for worker in (1, 2)] == [[], []]
    assert one.parted(1) == []
    assert one.said(0, 7, PREPARED) == [BeginEpoch()]
    with pytest.raises(InternalError, match="worker 2 has said goodbye before tasks came to it in move 7"):
        one.parted(2)
    one.kept(0, 5, PART)
    one.said(2, 7, CAME)
    assert one.parted(2) == []
    assert one.awaited == []  # but the epoch
    assert words(one.committed(5)) == ["over"]


# -- the shell ---------------------------------------------------------------------------------------------------------


class Told(Roll):
    """Workers 0 and 1 answer, as `Moves` does."""

    def command(self, word: str) -> None:
        """Answered at once."""
        super().command(word)
        asked = asked_move(word)
        assert asked is not None
        for worker in (0, 1):
            self.moves(worker, {"number": 1, "phase": {"prepare": PREPARED, "drop": DROPPED}[asked[0]], "why": ""})


def mover_of(roll: Roll, followed: Callable[[Callable[[object], None]], None]) -> LiveMover:
    before = {"b/0": 0, "b/1": 1}
    attempt = SimpleNamespace(
        number=1, hellos=(0, 1, 2), deployment=SimpleNamespace(worker_of=before), roll=roll, is_at_work=True
    )
    epochs = SimpleNamespace(follow=followed, ends=lambda: False, leave=lambda worker_of: None, begin_one=lambda: None)
    return LiveMover(1, attempt, epochs, {"b/0": 1, "b/1": 1}, lambda found: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["before", "as it is told"])
def test_a_goodbye_that_crosses_the_word_lets_all_go_over_together(when: str) -> None:
    roll = Told(hellos=dict.fromkeys(range(3)))  # type: ignore[arg-type] # nobody asks who they are

    def followed(tell: Callable[[object], None]) -> None:
        if when == "before":
            roll.done(2, "finished")
        tell(Held(5))
        if when != "before":
            roll.done(2, "finished")

    mover = mover_of(roll, followed)
    mover.start()
    assert mover.outcome() == Declined("worker 2 has finished its work", True)
    assert (roll.ending, roll.faults) == (False, [])


def test_a_worker_that_does_not_answer_is_blamed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    roll = Told(hellos=dict.fromkeys(range(3)))  # type: ignore[arg-type] # likewise
    monkeypatch.setattr(live, "LIMIT_SECONDS", dict.fromkeys((Phase.PREPARING, Phase.DROPPING), 0.0))
    mover = mover_of(roll, lambda tell: tell(Held(5)))
    mover.start()
    with pytest.raises(JobFailed, match=r"workers? 2 took over 0 s to be past a move of tasks \(dropping\); see"):
        mover.outcome()
    assert [fault.worker for fault in roll.faults] == [2]


def test_an_epoch_whose_tasks_have_come_takes_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    mover = mover_of(Told(), lambda tell: None)
    mover._phase_s -= 1_000.0
    prepared(mover._move, number=1)
    mover._move.kept(0, 5, PART)
    with pytest.raises(JobFailed, match=r"workers? 1 took over 120 s to be past a move of tasks \(landing\)"):
        mover._looked()
    mover._move.said(1, 1, CAME)
    assert mover._looked() == ()


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
