"""Attempts: the attempts at one job, one after the other; what users tell the job is told to each of them.

Without checkpoints there is one. With them a failure is followed by another attempt from the last committed epoch, as
`recovery.py` and `checkpoint/policy.py` decide. What is left of the failed one is buried beside the next, whose Spark
action is submitted at once: most of a recovery's time is Spark's own start of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from penstock.checkpoint.policy import Failures, GiveUp, Policy
from penstock.deploy.attempt.attempt import JVM_SECONDS, LEAVE_SECONDS, Attempt, Surroundings
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.attempt.recovery import NOTES_MAX, Recovery, cause_of, placing_again, shortly
from penstock.deploy.driver.binding import Bound, Placing
from penstock.deploy.driver.facts import jvm_ending, lost_jvm
from penstock.deploy.line.messages import Hello
from penstock.errors import JobFailed, PenstockError
from penstock.model.plan import Plan
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Checkpoint
from penstock.run.region.membership import scale_command

log = logging.getLogger(__name__)

Binding = Callable[[Placing, Dataflow, Sequence[Hello]], Bound]


class Attempts:
    """The attempt that is under way, and how it came to that."""

    def __init__(
        self,
        around: Surroundings,
        epochs: DriverEpochs | None,
        bind: Binding,
        at_work: Callable[[tuple[Hello, ...], Bound], None],
        slots: Callable[[], int],
    ) -> None:
        """`at_work` is told of the workers of each attempt that have met; `slots` are those that the job could have."""
        self._around, self._epochs, self._bind, self._at_work, self._slots = around, epochs, bind, at_work, slots
        self.recoveries, self.recovered = 0, deque[Recovery](maxlen=NOTES_MAX)  # how many, and the last of them
        self.is_recovering = False  # from the notice of a failure until workers are at work again
        self.cancel_asked, self.begun = threading.Event(), threading.Event()
        self._failures = Failures(Policy())
        self._plan: Plan | None = None
        self._stop_asked = False
        self._scales: dict[str, str] = {}  # by region: the last command
        self._buried: list[Attempt] = []  # of which something may be left
        self._turn = threading.Lock()  # an attempt is sent to work or given up, not both at once
        self._words = threading.Lock()  # what users tell reaches the attempt that is there, and those that follow
        self.now = Attempt(around, 1 if epochs is None else epochs.attempt, around.order.workers)

    # -- what users tell the job ---------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Have sources end."""
        with self._words:
            self._stop_asked = True
            self.now.roll.command("stop")

    def cancel(self) -> None:
        """Have workers end at once."""
        self.cancel_asked.set()
        self.now.roll.cancel()

    def scale(self, region: str, replicas: int) -> None:
        """Set how many replicas of a region take part; while the job recovers that waits for the next attempt."""
        with self._words:
            goes_on = self._epochs is not None and not self.cancel_asked.is_set()
            if not (goes_on and self.now.roll.ending):
                self.now.roll.scale(region, replicas)
            self._scales[region] = scale_command(region, replicas)

    # -- the course of things ------------------------------------------------------------------------------------------

    def meet_first(self) -> bool:
        """Send the first attempt's workers to work; False where it has ended before that."""
        attempt = self.now
        bound = attempt.meet(partial(self._bind, self._around.order.placing), self._told)
        return bound is not None and self._send_to_work(attempt, bound)

    def supervise(self) -> PenstockError | None:
        """Until the last attempt has ended; the error for which no other was made, if any."""
        self.now.ending()
        while self._epochs is not None:
            error = self._failure(self._epochs, self.now)
            if error is None or not self._goes_on(self._epochs, error):
                break
            self.now.ending()
        self.is_recovering = False
        self.now.end()
        latest = time.monotonic() + LEAVE_SECONDS
        for attempt in self._buried:
            attempt.await_burial(max(0.0, latest - time.monotonic()))
        return self._gave_up

    _gave_up: PenstockError | None = None

    def judged(self) -> PenstockError | None:
        """What became of the last attempt."""
        return self.now.judged(cancel_asked=self.cancel_asked.is_set())

    def _failure(self, epochs: DriverEpochs, attempt: Attempt) -> PenstockError | None:
        """What an attempt that ends has failed with, where another may do better."""
        if self.cancel_asked.is_set() or attempt.is_final or (attempt.is_unfit and not self.begun.is_set()):
            return None
        if attempt.has_finished:
            epochs.end()  # its last epoch may still fail
        if epochs.error is None:
            attempt.hear_echoes()
        return epochs.stuck or epochs.error or attempt.judged(cancel_asked=False)

    def _goes_on(self, epochs: DriverEpochs, error: PenstockError) -> bool:
        """Whether another attempt has taken the place of the one that has failed."""
        noticed, reason = time.monotonic(), shortly(error, self._name)
        self.is_recovering = True
        while (cause := cause_of(error, self.now.roll.faults)) is not None:
            decided = self._failures.failed(time.monotonic_ns() // 1000, cause, epochs.last_epoch)
            if isinstance(decided, GiveUp):
                error.add_note(decided.reason)
                log.warning("job %r is given up: %s", self._name, decided.reason)
                break
            log.warning("job %r: attempt %d failed: %s", self._name, self.now.number, shortly(error, self._name))
            self._bury(self.now)
            epochs.end()
            if epochs.stuck is not None:
                error = epochs.stuck
                break
            if self.cancel_asked.wait(decided.after_s):
                return False
            try:
                if not epochs.is_over:
                    epochs.again()
                if epochs.is_over:  # nothing is left to do but to show it
                    epochs.finish()
                    return False
                self._begin_again(epochs)
            except PenstockError as again:
                error = again
                continue
            except Exception as strange:  # Spark's or py4j's own
                ending = jvm_ending(self._around.spark, JVM_SECONDS if lost_jvm(strange) else 0.0)
                why = f"it could not go on: {strange}" if ending is None else f"{ending}, and its workers with it"
                error = JobFailed(f"topology {self._name!r}: {why}")
                if ending is not None:
                    break
                continue
            took, wanted = time.monotonic() - noticed, self._around.order.workers
            self._went_on(Recovery(self.now.number, epochs.last_epoch, reason, took, self.now.workers_asked, wanted))
            return True
        self._gave_up = error
        return False

    def _bury(self, attempt: Attempt) -> None:
        with self._turn:
            attempt.bury()
        self._buried = [a for a in self._buried if a is not attempt and not a.await_burial(0)] + [attempt]

    def _went_on(self, recovery: Recovery) -> None:
        self.is_recovering = False
        self.recoveries += 1
        self.recovered.append(recovery)
        log.warning("job %r: %s", self._name, recovery.outcome)

    def _begin_again(self, epochs: DriverEpochs) -> None:
        """The next attempt, until its workers are at work; raises what it has failed with before."""
        workers = max(1, min(self._around.order.workers, self._slots()))
        attempt = Attempt(self._around, epochs.attempt, workers)
        with self._words:
            self.now = attempt
            for command in (*self._scales.values(), *(["stop"] if self._stop_asked else [])):
                attempt.roll.command(command)
        if self.cancel_asked.is_set():
            attempt.roll.cancel()
        attempt.start()
        bound = attempt.meet(self._bound_again, self._told, self._slots)
        if bound is None:
            raise attempt.judged(cancel_asked=self.cancel_asked.is_set()) or JobFailed(
                f"topology {self._name!r}: attempt {attempt.number} ended before its workers were there"
            )
        self._send_to_work(attempt, bound)

    def _bound_again(self, dataflow: Dataflow, hellos: Sequence[Hello]) -> Bound:
        """The plan that was followed, where the workers that came can follow it; else a quick one."""
        *ways, last = placing_again(self._around.order.placing, self._plan)
        for placing in ways:
            with contextlib.suppress(PenstockError):
                return self._bind(placing, dataflow, hellos)
        try:
            return self._bind(last, dataflow, hellos)
        except PenstockError as error:
            if len(hellos) >= self._around.order.workers:
                raise
            msg = (  # of another class: an executor that comes back makes it possible again
                f"topology {self._name!r} cannot go on with {len(hellos)} workers, where it was given "
                f"{self._around.order.workers}: {error}"
            )
            raise JobFailed(msg) from error

    def _told(self) -> Checkpoint | None:
        return None if self._epochs is None else self._epochs.checkpoint()

    def _send_to_work(self, attempt: Attempt, bound: Bound) -> bool:
        """Let an attempt's workers begin; False where it has been given up meanwhile."""
        with self._turn:
            if attempt.is_buried:  # a worker died while the plan was made
                return False
            self._plan = bound.certified.plan
            self._at_work(attempt.hellos, bound)
            if self._epochs is not None:
                self._epochs.begin(attempt.roll, bound.deployment.worker_of, len(attempt.hellos))
            attempt.publish(bound.deployment)
        self.begun.set()
        return True

    @property
    def _name(self) -> str:
        return self._around.order.dataflow.name
