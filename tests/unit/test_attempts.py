"""Attempts at a job without Spark: whom they take, when they end, and what users tell a job that recovers."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import penstock as ps
from penstock.deploy.attempt import attempt as attempt_room
from penstock.deploy.attempt import series
from penstock.deploy.attempt.attempt import Attempt, Bind, Surroundings
from penstock.deploy.attempt.crossing import Change, Crossing, Wish
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.driver.binding import Bound
from penstock.deploy.driver.rendezvous import Roll
from penstock.deploy.line.messages import Hello
from penstock.deploy.line.network import Network
from penstock.errors import InvalidInput, JobFailed, NotEnoughSlots, UnfitSession
from penstock.run.build import own_build

HELLO = Hello(
    0, 1, "here:1", "here", 1, 2, 3, "b", "i", platform.python_version(), pa.__version__, 1e6, build=own_build()
)
PYTHON = "0.1"


class Action:
    """Spark's side, as far as it is asked: it ends when it is cancelled."""

    def __init__(self, *_: object, **__: object) -> None:
        self.launched, self.ended, self.reads = True, False, False
        self.error: Exception | None = None
        self.reason: str | None = None

    def wait(self, _: float | None) -> bool:
        return self.ended

    def cancel(self, _: float) -> None:
        self.ended, self.reason = True, "[SPARK_JOB_CANCELLED] Job 0 cancelled"
        self.error = RuntimeError(self.reason)


def around() -> Surroundings:
    top = ps.Topology("small")
    top.source("numbers", ps.io.rate(10, rows=1)).sink("out", ps.io.collect())
    known: dict[str, object] = {
        "bind": "127.0.0.1",
        "host": "127.0.0.1",
        "network": Network(),
        "dataflow": top.build(),
        "frames": {},
        "spooled": {},
        "input": lambda: None,
        "silence_s": 0.01,
        "workers": 1,
        "placing": None,
        "epochs": None,
    }
    told = SimpleNamespace(spark=None, job="j1", files=None, take=None, kept=None, notes=None, awaited=lambda: None)
    found: Any = SimpleNamespace(**vars(told), order=SimpleNamespace(**known))
    return cast("Surroundings", found)


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    monkeypatch.setattr(attempt_room, "Action", Action)
    monkeypatch.setattr(attempt_room, "jvm_ending", lambda *_: None)
    found = Attempt(around(), 2, 1)
    yield found
    found.close()


def meet(attempt: Attempt, hello: Hello, *, goes_on: bool) -> None:
    attempt.roll.hello(hello)

    def bind(*_: object) -> Bound:
        msg = "it came as far as that"
        raise InvalidInput(msg)

    attempt.meet(bind, lambda: None, (lambda: 1) if goes_on else None)


@pytest.mark.parametrize(("goes_on", "kind"), [(False, UnfitSession), (True, JobFailed)])
def test_what_may_pass_ends_a_job_at_its_start_alone(attempt: Attempt, goes_on: bool, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="has 1 MB free for 1 workers"):
        meet(attempt, dataclasses.replace(HELLO, memory_mb=1.0), goes_on=goes_on)


@pytest.mark.parametrize("goes_on", [False, True])
def test_other_software_ends_a_job_at_any_attempt(attempt: Attempt, goes_on: bool) -> None:
    with pytest.raises(UnfitSession, match=f"but {PYTHON} on executors.* has 1 MB free"):
        meet(attempt, dataclasses.replace(HELLO, python=PYTHON, memory_mb=1.0), goes_on=goes_on)


def test_whoever_fits_is_given_a_plan(attempt: Attempt) -> None:
    with pytest.raises(InvalidInput, match="it came as far as that"):
        meet(attempt, HELLO, goes_on=True)


def test_a_worker_that_stands_behind_its_goodbye_does_not_hold_the_job_up(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_room, "OBEY_SECONDS", 0.0)
    attempt.roll.hello(HELLO)
    attempt.hellos = (HELLO,)
    attempt.roll.done(0, "finished")
    attempt.ending()
    attempt.end()
    assert attempt.action.ended
    assert attempt.judged(cancel_asked=False) is None


# -- what users tell ---------------------------------------------------------------------------------------------------


class NeverMet:
    """An attempt whose workers do not come."""

    def __init__(self, _: object, number: int, workers: int) -> None:
        self.number, self.workers_asked, self.roll = number, workers, Roll()

    def start(self) -> None: ...

    def meet(self, *_: object) -> None: ...

    def judged(self, *, cancel_asked: bool) -> None: ...


def test_what_users_tell_a_job_that_recovers_reaches_its_next_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "Attempt", NeverMet)
    epochs: Any = SimpleNamespace(attempt=1)
    attempts = Attempts(around(), epochs, lambda *_: None, lambda *_: None, lambda: 1)  # type: ignore[arg-type, return-value]
    attempts.scale("one", 2)
    attempts.now.roll.cancel()  # it has failed
    attempts.scale("one", 3)
    attempts.scale("other", 4)
    assert attempts.now.roll.commands(0, 0, 0, 0.0)["commands"] == ["scale 2 one", "cancel"]
    attempts.stop()
    with pytest.raises(JobFailed, match="ended before its workers were there"):
        attempts._begin_again(epochs, attempts._bound_again)
    assert attempts.now.roll.commands(0, 0, 0, 0.0)["commands"] == ["scale 3 one", "scale 4 other", "stop"]
    attempts.cancel()
    with pytest.raises(InvalidInput, match="the job was cancelled or has failed"):
        attempts.scale("one", 5)


def test_a_job_without_checkpoints_that_has_failed_is_not_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "Attempt", NeverMet)
    attempts = Attempts(around(), None, lambda *_: None, lambda *_: None, lambda: 1)  # type: ignore[arg-type, return-value]
    attempts.now.roll.cancel()
    with pytest.raises(InvalidInput, match="the job was cancelled or has failed"):
        attempts.scale("one", 3)


# -- other workers -----------------------------------------------------------------------------------------------------


def resized(monkeypatch: pytest.MonkeyPatch, slots: int) -> Attempts:
    """A job with one worker, in a session with so many slots for it."""
    monkeypatch.setattr(series, "Attempt", NeverMet)
    known: Any = SimpleNamespace(attempt=1, end=lambda: None, again=lambda: None, stuck=None, is_over=False)
    return Attempts(around(), known, lambda *_: None, lambda *_: None, lambda: slots)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("slots", [2, 3])
def test_workers_that_spark_has_no_slots_for_are_refused_before_the_others_are_ended(
    monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    attempts, ended = resized(monkeypatch, slots), cast("Any", SimpleNamespace(are_all_at_work=False))
    wish = Wish(None, None, Change(ended, (0, 1), 3))
    assert attempts._epochs is not None
    assert attempts._standing(attempts._epochs, wish, ended) is None
    assert wish.is_answered == (slots < 3)
    if slots < 3:
        with pytest.raises(NotEnoughSlots, match="so 3 would be started anew, and Spark has 2 slots"):
            wish.outcome()


def test_as_many_workers_as_were_wished_for_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few slots there are by then: the attempt fails then, and the job goes on as it was."""
    attempts = resized(monkeypatch, 2)
    with pytest.raises(JobFailed, match="ended before its workers were there"):
        attempts._begin_again(cast("Any", attempts._epochs), attempts._bound_again, None, 3)
    assert attempts.now.workers_asked == 3
    with pytest.raises(JobFailed, match="ended before its workers were there"):
        attempts._begin_again(cast("Any", attempts._epochs), attempts._bound_again)
    assert attempts.now.workers_asked == 1


def test_a_job_whose_other_workers_were_refused_asks_for_those_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = resized(monkeypatch, 3)

    def no_plan(*_: object) -> Bound:
        msg = "no plan has work for 3 workers"
        raise InvalidInput(msg)

    def begin_again(_: object, bind: Bind, *__: object) -> None:
        bind(around().order.dataflow, [HELLO])

    monkeypatch.setattr(attempts, "_bind", no_plan)
    monkeypatch.setattr(attempts, "_wanted", lambda *_: None)
    monkeypatch.setattr(attempts, "_begin_again", begin_again)
    monkeypatch.setattr(attempts, "_bury", lambda _: None)
    monkeypatch.setattr(attempts, "_bound_again", lambda *_: None)
    wish = Wish(None, None, Change(attempts.now, (0,), 3))
    refused = attempts._cross(cast("Any", attempts._epochs), wish, None)
    assert str(refused) == "no plan has work for 3 workers"
    assert attempts._workers == 1


# -- what has moved ----------------------------------------------------------------------------------------------------

BEFORE = {"a/0": 1, "b/0": 2, "b/1": 1, "c/0": 0}


def crossed(after: dict[str, int], stays: tuple[int, ...] | None, workers: tuple[int, int]) -> Crossing:
    return Crossing.between(BEFORE, after, stays, workers, 2, 1, 0.1, kept=True, stood="they are others")


def test_tasks_whose_worker_has_another_number_have_not_moved() -> None:
    """Worker 0 leaves, and 1 and 2 are called 0 and 1."""
    found = crossed({"a/0": 0, "b/0": 1, "b/1": 0, "c/0": 1}, (1, 2), (3, 2))
    assert found.moved == ("c/0",)
    assert "2 workers instead of 3, 1 task moved" in found.note


def test_tasks_whose_worker_has_the_number_of_one_that_left_have_moved() -> None:
    assert crossed({"a/0": 1, "b/0": 1, "b/1": 0, "c/0": 0}, (1, 2), (3, 2)).moved == ("a/0", "c/0")


def test_where_all_workers_stay_a_task_has_moved_if_its_worker_is_another() -> None:
    found = crossed({**BEFORE, "b/1": 0, "b/2": 0}, None, (3, 3))
    assert (found.moved, found.scaled) == (("b/1",), {"b": (2, 3)})
    assert crossed({**BEFORE, "c/0": 3}, (0, 1, 2), (3, 4)).moved == ("c/0",)
