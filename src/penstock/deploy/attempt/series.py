"""Attempts: the attempts at one job, one after the other; what users tell the job is told to each of them.

Without checkpoints there is one. With them a failure is followed by another attempt from the last committed epoch, as
`recovery.py` and `checkpoint/policy.py` decide. What is left of the failed one is buried beside the next, whose Spark
action is submitted at once: most of a recovery's time is Spark's own start of it. A job that is to follow another plan
makes another attempt too, to which its processes go over (`crossing.py`). What fails on the way is a failure like any
other, and the job goes on under the plan that it had.
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
from penstock.deploy.attempt.attempt import JVM_SECONDS, LEAVE_SECONDS, Attempt, Bind, Surroundings, named_workers
from penstock.deploy.attempt.crossing import Crossing, Wish
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.attempt.one_by_one import OneByOne
from penstock.deploy.attempt.recovery import NOTES_MAX, Recovery, cause_of, placing_again, shortly
from penstock.deploy.driver.binding import Bound, Placing
from penstock.deploy.driver.facts import jvm_ending, lost_jvm
from penstock.deploy.driver.rendezvous import OVER_SECONDS
from penstock.deploy.line.messages import Hello
from penstock.deploy.scaling.planned import fitting_placing
from penstock.errors import InvalidInput, JobFailed, NotEnoughSlots, PenstockError
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.run.dataflow import Dataflow, as_placed
from penstock.run.engine.worker import Checkpoint
from penstock.run.region.membership import scale_command

log = logging.getLogger(__name__)

Binding = Callable[[Placing, Dataflow, Sequence[Hello]], Bound]


class Attempts(OneByOne):
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
        self.trouble = ""  # of the failure before that: a sentence for who asks meanwhile
        self.moves = 0  # of tasks
        self.crossings = deque[Crossing](maxlen=NOTES_MAX)  # the last times that the job went over to another plan
        self.cancel_asked, self.begun = threading.Event(), threading.Event()
        self._failures = Failures(Policy())
        self._plan: Plan | None = None
        self._workers = around.order.workers  # that the job is to have
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

    def go_over(self, plan: Plan, profile: Profile | None, before: Plan | None = None) -> Crossing:
        """Follow another plan from an epoch that is committed now; returns when the workers are at work under it.

        `profile` is what the plan's figures are made from; `before` the plan that the job followed when this was made.

        InvalidInput where the job does not run, goes over already, or follows another plan than `before` by now.
        JobFailed where it could not go over: then it goes on under the plan that it had.
        """
        epochs = self.require_checkpoints("its tasks cannot move")
        if self._plan is not None and plan.assignment == self._plan.assignment:  # all would stand for nothing
            msg = f"nothing moves: topology {self._name!r} has each of these tasks where it is to be already"
            raise InvalidInput(msg)
        with self._claimed():
            if before is not None and self._plan is not None and before.assignment != self._plan.assignment:
                msg = f"tasks of topology {self._name!r} have moved since this plan was made; ask again"
                raise InvalidInput(msg)
            wish = Wish(plan, profile)
            return self._moved_live(epochs, wish) or self._followed(epochs, wish)

    @property
    def notes(self) -> tuple[str, ...]:
        """What became of attempts, a sentence each."""
        now = (self.trouble,) if self.is_recovering and self.trouble else ()
        return (*(each.note for each in tuple(self.recovered)), *now, *(each.note for each in tuple(self.crossings)))

    # -- the course of things ------------------------------------------------------------------------------------------

    def meet_first(self) -> bool:
        """Send the first attempt's workers to work; False where it has ended before that."""
        attempt = self.now
        bound = attempt.meet(partial(self._bind, self._around.order.placing), self._told)
        return bound is not None and self._send_to_work(attempt, bound)

    def supervise(self) -> PenstockError | None:
        """Until the last attempt has ended; the error for which no other was made, if any."""
        try:
            self._supervise()
        finally:
            self.is_recovering = False
            self._close_wishes()
        self.now.end()
        latest = time.monotonic() + LEAVE_SECONDS
        for attempt in self._buried:
            attempt.await_burial(max(0.0, latest - time.monotonic()))
        return self._gave_up

    _gave_up: PenstockError | None = None

    def _supervise(self) -> None:
        wish = self._await_end()
        while (epochs := self._epochs) is not None:
            error = self._failure(epochs, self.now) if wish is None else self._gone_over(epochs, wish)
            if (error is None and wish is None) or (error is not None and not self._goes_on(epochs, error)):
                break
            if epochs.is_over:
                break
            wish = self._await_end()

    def _await_end(self) -> Wish | None:
        """Until the attempt ends, or for the wish that is answered: who is interrupted may withdraw his at any time."""
        found: list[Wish] = []

        def are_wanted() -> bool:
            found[:] = [] if (wish := self._due) is None else [wish]
            return bool(found)

        self.now.ending(are_wanted)
        return found[0] if found and self.now.is_at_work else None

    @property
    def _due(self) -> Wish | None:
        """The wish for which it is time."""
        wish = self._wish
        return wish if wish is not None and wish.is_due and not wish.is_answered else None

    def _close_wishes(self) -> None:
        """Nobody looks for wishes any more: who waits for one is told."""
        with self._words:
            self._is_closed = True
            if (wish := self._due) is not None:
                wish.refuse(self._too_late)

    @property
    def _too_late(self) -> InvalidInput:
        return InvalidInput(f"topology {self._name!r} has ended before it could go over to another plan")

    def _gone_over(self, epochs: DriverEpochs, wish: Wish) -> PenstockError | None:
        """Follow the wish's plan; the failure from which the job has to go on, if there is one."""
        began, followed, before = time.monotonic(), self._plan, self.now
        if self._stop_asked:
            wish.refuse(InvalidInput(f"topology {self._name!r} is stopping: its tasks stay where they are"))
            return None
        if wish.change is not None and wish.change.of is not before:
            wish.refuse(InvalidInput(f"topology {self._name!r} has recovered meanwhile; ask again"))
            return None
        followed_by = self._workers
        try:
            attempt = self._standing(epochs, wish, before)
            if not wish.is_answered and (refusal := self._cross(epochs, wish, attempt)) is not None:
                wish.refuse(refusal)
        except Exception as error:
            failed, self._workers = self._typed(error), followed_by
            wish.refuse(JobFailed(f"topology {self._name!r} did not go over to another plan: {failed}"))
            return failed
        if not wish.is_answered and self._plan is not None and followed is not None:
            self.now.await_work()
            took, now = time.monotonic() - began, self.now
            workers, kept = (before.workers_asked, now.workers_asked), attempt is not None
            then, after = (each.deployment.worker_of if each.deployment else {} for each in (before, now))
            stays = None if wish.change is None else wish.change.stays
            crossing = Crossing.between(
                then, after, stays, workers, now.number, now.begun_from, took, kept=kept, stood=wish.why_all
            )
            self.crossings.append(crossing)
            self.moves += len(crossing.moved)
            wish.grant(self.crossings[-1])
        return None

    def _standing(self, epochs: DriverEpochs, wish: Wish, before: Attempt) -> Attempt | None:
        """The attempt to which all workers have been told to go; None where others are needed, or the wish is answered.

        What fails before anybody has been told anything is no failure of the job's.
        """
        change = wish.change
        if not before.are_all_at_work:
            if change is not None and (there := self._slots()) < change.workers:  # before the others are ended
                msg = (
                    f"topology {self._name!r} keeps the workers that it has: one has ended because it had no tasks, so "
                    f"{change.workers} would be started anew, and Spark has {there} slots for them; ask for "
                    "fewer, or end other jobs"
                )
                wish.refuse(NotEnoughSlots(msg))
            return None
        try:
            if change is None:
                attempt = Attempt(self._around, epochs.attempt + 1, before.workers_asked, before)
            else:
                attempt = change.joined or Attempt(
                    self._around, epochs.attempt + 1, change.workers, before, change.stays
                )
            attempt.require_newcomers()
        except Exception as error:  # no port, no descriptor
            wish.refuse(JobFailed(f"topology {self._name!r} stays as it is, and could not go over: {error}"))
            return None
        stand = False
        try:
            stand = attempt.take_over(before)
        finally:
            if not stand:
                attempt.give_back(before)
        if stand:
            return attempt
        if before.has_finished:
            wish.refuse(self._too_late)
        elif before.roll.ending or before.action.ended:
            before.hear_echoes()
            if (failed := before.judged(cancel_asked=self.cancel_asked.is_set())) is not None:
                raise failed
        elif not before.roll.has_parted:
            late = named_workers(before.roll.late)
            msg = f"topology {self._name!r}: {late} did not stand still within {OVER_SECONDS:g} s"
            raise JobFailed(msg)
        return None  # one had nothing more to do, and has gone

    def _cross(self, epochs: DriverEpochs, wish: Wish, attempt: Attempt | None) -> PenstockError | None:
        """Send the next attempt to work under another plan; why it follows the one before all the same, if it does."""
        before = self.now
        try:
            if attempt is None:
                self._bury(before)
            epochs.end()
            if epochs.stuck is not None:
                raise epochs.stuck
            if not epochs.is_over:
                epochs.again()
            elif attempt is not None:
                attempt.send_home()
        except BaseException:
            if attempt is not None:
                attempt.give_back(before)
            raise
        if epochs.is_over:
            if attempt is not None:
                attempt.give_back(before)
            return self._too_late
        refusals: list[PenstockError] = []
        change, followed = wish.change, wish.plan or self._plan
        tasks = () if followed is None else followed.assignment
        held = self._workers
        if change is not None:
            self._workers = change.workers
            if attempt is not None:
                change.joined = None  # it is the job's own attempt from here on

        def bound(dataflow: Dataflow, hellos: Sequence[Hello]) -> Bound:
            try:
                return self._bound_as_wished(
                    wish, dataflow, as_placed(dataflow, tasks), hellos, are_new=attempt is None
                )
            except PenstockError as error:
                refusals.append(error)
                self._workers = held  # a recovery asks for these again
                return self._bound_again(dataflow, hellos)

        try:
            self._begin_again(epochs, bound, attempt, None if change is None else change.workers)
        finally:
            if attempt is not None:  # not before: its workers have to hear where to go
                before.leave()
        return refusals[0] if refusals else None

    def _bound_as_wished(
        self, wish: Wish, given: Dataflow, dataflow: Dataflow, hellos: Sequence[Hello], *, are_new: bool
    ) -> Bound:
        """The wish's plan; in new processes, which are wherever Spark starts them, else its groups of tasks."""
        wanted = self._wanted(wish, given, dataflow)
        try:
            return self._bind(wanted, dataflow, hellos)
        except PenstockError:
            if not are_new or wish.plan is None:
                raise
            for placing in placing_again(wanted, wish.plan, hellos)[1:-1]:
                with contextlib.suppress(PenstockError):
                    return self._bind(placing, dataflow, hellos)
            raise

    def _typed(self, error: Exception) -> PenstockError:
        """What a failure is to the job: also one of Spark's or py4j's own, or of this process."""
        if isinstance(error, PenstockError):
            return error
        ending = self._jvm_ending(error)
        why = f"it could not go on: {error}" if ending is None else f"{ending}, and its workers with it"
        return JobFailed(f"topology {self._name!r}: {why}")

    def _jvm_ending(self, error: Exception) -> str | None:
        return jvm_ending(self._around.spark, JVM_SECONDS if lost_jvm(error) else 0.0)

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
        """Whether another attempt has taken the place of the one that has failed.

        In a process that ends there is none: Spark is ended under it, and its executors take no more work.
        """
        noticed, reason = time.monotonic(), shortly(error, self._name)
        self.is_recovering = True
        while threading.main_thread().is_alive() and (cause := cause_of(error, self.now.roll.faults)) is not None:
            decided = self._failures.failed(time.monotonic_ns() // 1000, cause, epochs.last_epoch)
            if isinstance(decided, GiveUp):
                error.add_note(decided.reason)
                log.warning("job %r is given up: %s", self._name, decided.reason)
                break
            log.warning("job %r: attempt %d failed: %s", self._name, self.now.number, shortly(error, self._name))
            self.trouble = f"the job is recovering: {decided.reason}"
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
                self._begin_again(epochs, self._bound_again)
            except PenstockError as again:
                error = again
                continue
            except Exception as strange:  # Spark's or py4j's own
                error = self._typed(strange)
                if self._jvm_ending(strange) is not None:
                    break
                continue
            took, wanted = time.monotonic() - noticed, self._workers
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

    def _begin_again(
        self, epochs: DriverEpochs, bind: Bind, over: Attempt | None = None, exactly: int | None = None
    ) -> None:
        """The next attempt, until its workers are at work; raises what it has failed with before.

        `over` is one to which processes have gone over; None: Spark is asked for others, for as many as were wished for
        (`exactly`), else for as many as there are slots for.
        """
        workers = exactly or max(1, min(self._workers, self._slots())) if over is None else over.workers_asked
        attempt = self._asked_of_spark(epochs.attempt, workers) if over is None else over
        attempt.number = epochs.attempt
        with self._words:
            self.now = attempt
            for command in (*self._scales.values(), *(["stop"] if self._stop_asked else [])):
                attempt.roll.command(command)
        if self.cancel_asked.is_set():
            attempt.roll.cancel()
        if over is None:
            attempt.start()
        bound = attempt.meet(bind, self._told, self._slots)
        if bound is None:
            raise attempt.judged(cancel_asked=self.cancel_asked.is_set()) or JobFailed(
                f"topology {self._name!r}: attempt {attempt.number} ended before its workers were there"
            )
        self._send_to_work(attempt, bound)

    def _asked_of_spark(self, number: int, workers: int) -> Attempt:
        """A later attempt in new processes; the port of the one before may be free a moment later."""
        try:
            return Attempt(self._around, number, workers)
        except InvalidInput as error:
            msg = f"topology {self._name!r}: attempt {number} could not begin: {error}"
            raise JobFailed(msg) from error

    def _bound_again(self, dataflow: Dataflow, hellos: Sequence[Hello]) -> Bound:
        """The plan that was followed, or its groups of tasks, where enough workers came; else a quick one."""
        order, given = self._around.order, dataflow
        dataflow = given if self._plan is None else as_placed(given, self._plan.assignment)
        *ways, last = placing_again(fitting_placing(order.placing, given, dataflow), self._plan, hellos)
        for placing in ways:
            with contextlib.suppress(PenstockError):
                return self._bind(placing, dataflow, hellos)
        try:
            return self._bind(last, dataflow, hellos)
        except PenstockError as error:
            if len(hellos) >= self._workers:
                raise
            msg = (  # of another class: an executor that comes back makes it possible again
                f"topology {self._name!r} cannot go on with {len(hellos)} workers, where it was given "
                f"{self._workers}: {error}"
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
