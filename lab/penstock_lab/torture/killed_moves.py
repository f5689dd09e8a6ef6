"""A process dies in one phase of a move: the worker that a task leaves, that to which it goes, another, or the driver.

A phase is known by a call of the driver's own, its kill point: what workers do meanwhile follows from it. A phase that
a move did not come by leaves its trial void. The job goes on under the plan that it had, or under the new one where it
was said to follow that, and each task is in one place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from penstock.deploy.attempt import moving, one_by_one
from penstock.deploy.attempt.attempt import Attempt
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.attempt.live import LiveMover
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InvalidInput, JobFailed
from penstock_lab.torture.moves import a_move
from penstock_lab.torture.trial import Broken, Trial, Unmet

LIVE_SECONDS = 0.01
RESTORING_SECONDS = 0.03  # at most, from the orders to a death
VICTIMS = ("the worker that it leaves", "the worker to which it goes", "another worker")


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a move, and the call by which it is known."""

    about: str
    where: type
    name: str  # of the method
    is_before: bool  # whether the death comes before the call, or behind it
    behind: tuple[type, str] | None = None  # the call has to come behind this one
    wait_s: float = 0.0  # at most, from the call to the death
    live: moving.Phase | None = None  # of a move while the others go on: how far it is by then; None: all go over

    def has_come(self, called: object) -> bool:
        """Whether a call is that of this phase, by the object that is called."""
        return not isinstance(called, LiveMover) or self.live is None or called._move.phase is self.live


PHASES: Mapping[str, Phase] = {
    "asked": Phase("asked for", DriverEpochs, "commit", is_before=True),
    "epoch": Phase(
        "its epoch under way", Roll, "begin_epoch", is_before=False, behind=(DriverEpochs, "commit"), wait_s=0.01
    ),
    "told": Phase("workers told to stand still", Roll, "over_to", is_before=False),
    "standing": Phase("the first worker stands still", Roll, "stands_still", is_before=True),
    "over": Phase("all go over to the next attempt", Attempt, "meet", is_before=True),
    "restoring": Phase("workers connect and restore", Attempt, "publish", is_before=False, wait_s=RESTORING_SECONDS),
    "at-work": Phase("all at work under the new plan", Attempt, "await_work", is_before=False),
    **{
        f"live-{each.name.lower()}": Phase(
            f"while the others go on, {each.value}", LiveMover, "_turn", is_before=True, wait_s=LIVE_SECONDS, live=each
        )
        for each in (moving.Phase.WAITING, moving.Phase.PREPARING, moving.Phase.SWITCHING, moving.Phase.LANDING)
    },
    "live-over": Phase(
        "while the others go on, just over", LiveMover, "outcome", is_before=False, live=moving.Phase.OVER
    ),
}


def as_it_has_to_be(phase: Phase) -> contextlib.AbstractContextManager[object]:
    """Have all workers stand still for a move, also where tasks could move while the others go on; or not."""
    if phase.live is not None:
        return contextlib.nullcontext()
    return mock.patch.object(one_by_one, "why_not_live", return_value="a trial has it so")


@contextlib.contextmanager
def striking(phase: Phase, strike: Callable[[], None]) -> Iterator[threading.Event]:
    """Strike once, when the phase comes; the event tells whether it has."""
    has_struck, is_armed, turn = threading.Event(), threading.Event(), threading.Lock()
    if phase.behind is None:
        is_armed.set()

    def strike_once() -> None:
        with turn:
            if not is_armed.is_set() or has_struck.is_set():
                return
            has_struck.set()
        strike()

    real: Callable[..., Any] = getattr(phase.where, phase.name)

    def struck(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # of any method
        if phase.is_before and phase.has_come(args[0]):
            strike_once()
        try:
            return real(*args, **kwargs)
        finally:
            if not phase.is_before and phase.has_come(args[0]):
                strike_once()

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(phase.where, phase.name, struck))
        if phase.behind is not None:
            where, name = phase.behind
            first: Callable[..., Any] = getattr(where, name)

            def arming(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # of any method
                is_armed.set()
                return first(*args, **kwargs)

            stack.enter_context(mock.patch.object(where, name, arming))
        yield has_struck


def worker(name: str, trial: Trial) -> None:
    """A worker dies in this phase; the seed says which."""
    phase, victim = PHASES[name], VICTIMS[trial.row.seed % len(VICTIMS)]
    trial.note(f"{victim} killed: {phase.about}")
    trial.begin()
    trial.at_work()
    job, attempt = trial.job, trial.job.attempt
    task, target = chosen(trial)
    source = job.worker_of[task]
    pids = trial.pids()
    other = next(w for w in range(len(pids)) if w not in {source, target})
    pid = pids[dict(zip(VICTIMS, (source, target, other), strict=True))[victim]]
    wait_s = trial.choose.uniform(0.0, phase.wait_s)

    def strike() -> None:
        time.sleep(wait_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    due = source
    with as_it_has_to_be(phase), striking(phase, strike) as has_struck:
        try:
            trial.note(f"{task} from worker {source} to worker {target}: {job.move(task, target).note}")
            due = target
        except (JobFailed, InvalidInput) as error:
            trial.note(f"{type(error).__name__}: {error}")
    if not has_struck.is_set():
        msg = f"the move did not come by {phase.where.__name__}.{phase.name}"
        raise Unmet(msg)
    trial.await_(lambda: job.attempt > attempt and job.recoveries > 0, "a recovery")
    if (there := job.worker_of[task]) != due:
        msg = f"{task} is at worker {there}, and was to be at {due}"
        raise Broken(msg)
    epoch = job.epoch
    trial.await_(lambda: job.epoch > epoch, "an epoch behind it")
    a_move(trial)
    trial.finish()


def chosen(trial: Trial) -> tuple[str, int]:
    """A task, and the worker to which it is to go."""
    job = trial.job
    task = trial.choose.choice(sorted(job.worker_of))
    return task, trial.choose.choice([w for w in range(len(job.workers)) if w != job.worker_of[task]])


def dies(trial: Trial, name: str) -> None:
    """This process, which is the driver, dies in a phase of a move; it comes back where the move did not come by it."""
    trial.at_work()
    task, target = chosen(trial)
    with (
        as_it_has_to_be(PHASES[name]),
        striking(PHASES[name], lambda: os.kill(os.getpid(), signal.SIGKILL)),
        contextlib.suppress(JobFailed, InvalidInput),
    ):
        trial.job.move(task, target)


TRIALS: Mapping[str, Callable[[Trial], None]] = {f"killed-move-{name}": partial(worker, name) for name in PHASES}
