"""Jobs that go over to another plan while they run: again and again under load, and with a worker killed on the way.

A worker is killed at one step of a crossing, which the seed chooses: while the epoch is awaited from which the job goes
on, when workers are told to stand still, when all do, while they come to the next attempt, when they have their orders.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

from penstock.checkpoint.store import Store
from penstock.deploy.attempt.attempt import Attempt
from penstock.errors import InvalidInput, JobFailed
from penstock_lab.torture.trial import Broken, Trial

MOVES = 8
PAUSE_SECONDS = 0.3  # at most, between two moves


def moved(trial: Trial) -> None:
    """Tasks of a job that has rows to work on move to and fro."""
    trial.begin()
    trial.at_work()
    stood = []
    for _ in range(MOVES):
        stood.append(a_move(trial))
        trial.linger(PAUSE_SECONDS)
    trial.row.figures["stood_s"] = max(stood)
    if trial.job.recoveries:
        msg = f"a move without a fault cost {trial.job.recoveries} recoveries: {trial.job.notes}"
        raise Broken(msg)
    trial.finish()


def a_move(trial: Trial) -> float:
    """Move some task to another worker, one without tasks or not; for how long the job stood."""
    job = trial.job
    task = trial.choose.choice(sorted(job.worker_of))
    target = trial.choose.choice([worker for worker in range(len(job.workers)) if worker != job.worker_of[task]])
    crossing = job.move(task, target)
    trial.note(f"{task} to worker {target}: {crossing.note}")
    return crossing.seconds


def killed(trial: Trial) -> None:
    """A worker dies at one step of a move; the job goes on under the plan that it had, or under the new one."""
    step = trial.choose.choice(tuple(STEPS))
    trial.note(f"killed {step}")
    trial.begin()
    trial.at_work()
    attempt = trial.job.attempt
    with STEPS[step](trial):
        try:
            a_move(trial)
        except (JobFailed, InvalidInput) as error:
            trial.note(f"{type(error).__name__}: {error}")
    trial.await_(lambda: trial.job.attempt > attempt and trial.job.recoveries > 0, "a recovery")
    epoch = trial.job.epoch
    trial.await_(lambda: trial.job.epoch > epoch, "an epoch behind it")
    a_move(trial)
    trial.finish()


@contextlib.contextmanager
def killing_at(trial: Trial, where: type, name: str, *, before: bool) -> Iterator[None]:
    """Have a worker die when a method of the driver's is called next, or has just been."""
    real: Callable[..., Any] = getattr(where, name)
    left = [trial.choose.choice(trial.pids())]

    def strike() -> None:
        if left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(left.pop(), signal.SIGKILL)

    def struck(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # of any method
        if before:
            strike()
        try:
            return real(*args, **kwargs)
        finally:
            strike()

    with mock.patch.object(where, name, struck):
        yield


STEPS: Mapping[str, Callable[[Trial], contextlib.AbstractContextManager[None]]] = {
    "while an epoch is awaited": lambda trial: killing_at(trial, Store, "commit", before=True),
    "when workers are told to stand still": lambda trial: killing_at(trial, Attempt, "take_over", before=True),
    "when all stand still": lambda trial: killing_at(trial, Attempt, "take_over", before=False),
    "while they come to the next attempt": lambda trial: killing_at(trial, Attempt, "meet", before=True),
    "when they have their orders": lambda trial: killing_at(trial, Attempt, "publish", before=False),
}

TRIALS: Mapping[str, Callable[[Trial], None]] = {"moved": moved, "killed-move": killed}
