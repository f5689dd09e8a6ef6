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
from penstock.deploy.attempt.attempt import Attempt, Surroundings
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.driver.binding import Bound
from penstock.deploy.driver.rendezvous import Roll
from penstock.deploy.line.messages import Hello
from penstock.deploy.line.network import Network
from penstock.errors import InvalidInput, JobFailed, UnfitSession
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
