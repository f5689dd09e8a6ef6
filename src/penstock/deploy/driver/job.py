"""Job: a topology that runs on Spark, from its start to what became of it.

The caller's thread does what can fail before the first row: preflight, launch, rendezvous, binding. Where Spark has to
run stages before the workers' own, a thread meets the workers while the caller goes on. A supervisor thread waits for
the end of each attempt (`deploy/attempt`). Without checkpoints that is the job's end; with them the job goes on from
the last committed epoch, where another attempt may do better. All threads are daemons and live jobs are cancelled at
exit, so a script that ends or is interrupted leaves nothing behind.
"""

from __future__ import annotations

import logging
import secrets
import shlex
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from penstock.adapt.contract import Decision
from penstock.checkpoint.contract import Report
from penstock.checkpoint.savepoint_names import require_savepoint_name
from penstock.deploy.adapting.adapter import DECISIONS_MAX, Adapter, adapting
from penstock.deploy.attempt.attempt import KILL_SECONDS, LEAVE_SECONDS, OBEY_SECONDS, Surroundings
from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.attempt.epochs import SAVEPOINT_SECONDS, DriverEpochs
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.attempt.watch import Notes
from penstock.deploy.desk.desk import Desk, opened
from penstock.deploy.driver.binding import Bound, Placing, Replan, bind, given, replan, tasks_per_worker
from penstock.deploy.driver.facts import slots_now
from penstock.deploy.driver.given_plan import moved_plan
from penstock.deploy.driver.job_view import JobView
from penstock.deploy.driver.options import JobOrder
from penstock.deploy.driver.rendezvous import wait_in_steps
from penstock.deploy.driver.slots import Slots, Use, compared_ms, uses
from penstock.deploy.driver.standstill import Standing, standing, standstill
from penstock.deploy.driver.time_notes import late_rows, lost_notes, time_notes
from penstock.deploy.line.messages import Hello
from penstock.deploy.line.power import work_ms
from penstock.deploy.metrics.measured import Measured
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.page import served
from penstock.deploy.metrics.recent import Window
from penstock.deploy.metrics.sums import require_measured
from penstock.deploy.results.dataframes import Results
from penstock.deploy.scaling.leaving import Leaving, leaving
from penstock.deploy.scaling.scalable import Scalable
from penstock.deploy.session import live_jobs
from penstock.errors import InternalError, InvalidInput, JobCancelled, JobFailed, PenstockError
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.task_id import operator_of
from penstock.optimise.place import find_scheduler
from penstock.run.dataflow import Dataflow, as_placed, sized
from penstock.run.engine.worker import Deployment
from penstock.run.transport.host import boot_id
from penstock.run.transport.links import WorkerPlace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.deploy.metrics.exporter import Exporter

log = logging.getLogger(__name__)
STOP_QUIET_SECONDS = 5.0  # how long a drain may take before the log tells what it waits for


class Job(Measured, Scalable):
    """A running topology. Use it as a context manager, or end it with `wait`, `stop` or `cancel`."""

    def __init__(self, spark: SparkSession, order: JobOrder) -> None:
        self.id = secrets.token_hex(6)
        self.name = order.dataflow.name
        self.plan: Plan | None = None  # until the workers are there
        self.workers: tuple[Hello, ...] = ()
        self.started_at = time.time()
        self._spark, self._order = spark, order
        self._status = "starting"
        self._error: PenstockError | None = None
        self._ended = threading.Event()
        self._working_since = time.monotonic()
        self._deployment: Deployment | None = None
        self._bound_notes: tuple[str, ...] = ()
        self._loads: Mapping[str, float] = {}  # of tasks, as the plan was made for them
        self._work_ms = work_ms()  # here, before Spark is busy; workers do the same
        self._log = MetricLog(self.id, order.metrics, self.name)
        self._exporter: Exporter | None = None
        self._beside: list[Desk | Adapter | Leaving] = []  # what lives and ends with it
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)  # whether to move, of a job that adapts
        self._epochs: DriverEpochs | None = order.epochs
        self._results = Results(spark, order.dataflow, {} if order.epochs is None else order.epochs.collected)
        self._watched = Notes(self.name)
        awaited = (lambda: None) if order.epochs is None else order.epochs.awaited
        files = self._results.files
        around = Surroundings(spark, order, self.id, files, self._take, self._kept, self._watched, awaited)
        try:
            self._attempts = Attempts(around, self._epochs, self._bind, self._at_work, self._slots)
        except BaseException:  # Spark refuses the DataFrame
            self._results.discard()
            raise

    # -- for users ---------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """`starting`, `running`, `recovering`, `stopping`, `finished`, `failed` or `cancelled`.

        `recovering`: an attempt has failed, and the next one is not at work yet.
        """
        return "recovering" if self._status == "running" and self._attempts.is_recovering else self._status

    @property
    def error(self) -> PenstockError | None:
        """Why the job failed or has no result."""
        return self._error

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know, a sentence each: about the start, failures, and rows that were late so far."""
        return (
            *self._order.notes,
            *self._bound_notes,
            *(() if self._epochs is None else self._epochs.notes),
            *self._attempts.notes,
            *self._watched.all,
            *self._log.notes,
            *time_notes(self._order.dataflow, self._log.sums(), time.time_ns() // 1000),
        )

    @property
    def losses(self) -> tuple[str, ...]:
        """Of the notes, those about lost rows: late or failed ones that no stream reads, and the metric log's."""
        return (*self._log.notes, *lost_notes(self._order.dataflow, self._log.sums(), time.time_ns() // 1000))

    @property
    def late_rows(self) -> Mapping[str, int]:
        """Rows that came behind the watermark or had no time, by operator; operators without any are left out."""
        return dict(late_rows(self._log.sums()))

    @property
    def recoveries(self) -> int:
        """How many times the job has gone on from an epoch after a failure, in this process."""
        return self._attempts.recoveries

    @property
    def moves(self) -> int:
        """How many tasks have gone elsewhere while the job ran, each as often as it did, in this process."""
        return self._attempts.moves

    @property
    def attempt(self) -> int:
        """Which attempt at the job is under way: numbers grow as long as its checkpoint folder lives."""
        return self._attempts.now.number

    @property
    def epoch(self) -> int:
        """The last committed epoch; 0 before the first, and without checkpoints."""
        return 0 if self._epochs is None else self._epochs.last_epoch

    def savepoint(self, name: str, timeout: float = SAVEPOINT_SECONDS) -> int:
        """Commit an epoch that begins now and keep it under a name, until somebody removes it; answers its number.

        InvalidInput where none is there in time, or the job is recovering; it says which.
        """
        if self._epochs is None:
            msg = f"job {self.name!r} has no checkpoints, so it has no savepoints; start it with checkpoint=FOLDER"
            raise InvalidInput(msg)
        require_savepoint_name(name)
        if self._ended.is_set():
            keep = f"`penstock checkpoint save {shlex.quote(self._epochs.store.root)} {name}`"
            msg = f"job {self.name!r} is over, so it commits no epoch any more; {keep} keeps its last one"
            raise InvalidInput(msg)
        return self._epochs.savepoint(name, timeout).epoch

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when the time is over first. Raises `error`, unless the job was cancelled."""
        if not wait_in_steps(self._ended.wait, timeout):
            return False
        if self._error is not None and not isinstance(self._error, JobCancelled):
            raise self._error
        return True

    def stop(self) -> DataFrame:
        """Drain: sources end, everything flows out; then as `result`."""
        if not self._ended.is_set():
            self._status = "stopping"
            self._attempts.stop()
            if not wait_in_steps(self._ended.wait, STOP_QUIET_SECONDS):
                interval_s = self._order.settings.interval_s
                log.warning(standstill(self.name, STOP_QUIET_SECONDS, self._standing(), interval_s))
        self.wait()
        return self.result

    def cancel(self) -> None:
        """End now. Workers are asked first; Spark kills those that do not obey. Leaves no process, socket or file."""
        if not self._ended.is_set():
            self._attempts.cancel()
            self._ended.wait(OBEY_SECONDS + KILL_SECONDS + 2 * LEAVE_SECONDS)
        if self._status != "finished":  # the rows of a finished job are its answer, and stay
            self._results.discard()

    @property
    def result(self) -> DataFrame:
        """What the sink that keeps rows (`collect`, `parquet`) received, once the job has finished.

        Of a topology with several such sinks this is a dict of DataFrames by sink, and None without any: `results` has
        the same as a dict whose type says so.
        """
        found = self.results
        # Nothing in a topology's type says how many of its sinks keep rows; decision 33 on what was rejected.
        return next(iter(found.values())) if len(found) == 1 else cast("DataFrame", found or None)

    @property
    def results(self) -> dict[str, DataFrame]:
        """What every sink that keeps rows received, by the sink's name, once the job has finished."""
        if self.wait() and self._error is not None:
            raise self._error
        if self._is_found_over and self._epochs is not None:
            self._epochs.require_as_shown()
            self._is_found_over = False
        return self._results.frames()

    def profile(self, window: Window | None = None, *, busy: bool = False) -> Profile:
        """What the job has measured: load of every task, traffic of every pair; for `replan` and `ps.place`.

        Of all the time since the start, or since operators have as many tasks as they have, or of a window such as
        "60 s" of that: the intervals that ended within it. `busy` gives figures over the intervals in which a task or
        pair moved rows, for sources that come in bursts. InvalidInput in the first interval, before there are any.
        """
        measured = (self._log.measured() if window is None else self._log.recent(window)).profile(busy=busy)
        require_measured(measured, self.worker_of, self.name, self._order.settings.interval_s)
        return measured

    def replan(
        self,
        scheduler: str | None = None,
        *,
        seed: int | None = None,
        theta: float | None = None,
        window: Window | None = None,
        settings: Mapping[str, object] | None = None,
        apply: bool = False,
    ) -> Replan:
        """A new plan for the same workers from what the job has measured, beside the plan that it follows.

        A job that was fused is fused anew unless a scheduler is named. Both plans are costed with the same
        measurements, all of them or those of a window such as "60 s", so `.gain` is what a move would save. `settings`
        are the scheduler's, such as {"goal": "bytes"} of best. With `apply` the job goes over to the new plan (`move`
        says how); else it goes on as it is.
        """
        plan, wishes, others = self._plan_now(), self._order.placing, self._others()
        find_scheduler(scheduler or wishes.scheduler)
        per_worker = tasks_per_worker(len(self.worker_of), len(self.workers))
        placing = wishes.again(self.profile(window), per_worker, scheduler, seed, theta, settings)
        found = replan(self.dataflow, self.workers, plan, placing, self._compared_ms(self.workers), others)
        if apply and found.moves:
            return replace(found, crossing=self._go_over(found.plan, placing.profile, plan))
        return found

    def move(self, tasks: str | Sequence[str], worker: int) -> Crossing:
        """Move a task, all tasks of an operator, or several of these, to a worker, while the job runs.

        The others go on meanwhile. Where that cannot be (`Crossing.stood`), all workers stand still for some 0.1 s,
        longer with large state. Nothing is lost or comes twice at sinks that commit. InvalidInput without checkpoints.
        """
        plan = self._plan_now()
        return self._go_over(moved_plan(plan, tasks, worker, self.slots_of_workers()), None, plan)

    def _plan_now(self) -> Plan:
        if self.plan is None:
            msg = f"job {self.name!r} has no plan yet: it is {self._status}"
            raise InvalidInput(msg)
        return self.plan

    def _go_over(self, plan: Plan, profile: Profile | None, before: Plan | None) -> Crossing:
        """Follow a plan that can be followed here, and was made when the job followed `before`."""
        if self._ended.is_set() or self._status == "stopping":
            msg = f"tasks of job {self.name!r} cannot move any more: it is {self._status}"
            raise InvalidInput(msg)
        given(self.dataflow, self.slots_of_workers(), plan, profile)
        return self._attempts.go_over(plan, profile, before)

    @property
    def dataflow(self) -> Dataflow:
        """What runs, with as many tasks as each operator has by now."""
        return as_placed(sized(self._order.dataflow, len(self.workers)), self.worker_of)

    def slots_of_workers(self) -> Slots:
        """The workers as plans see them."""
        return self._slots_of(self.workers)

    def _slots_of(self, hellos: Sequence[Hello]) -> Slots:
        return Slots.of(hellos, self._order.placing.node, self._compared_ms(hellos), self._others())

    def _compared_ms(self, hellos: Sequence[Hello]) -> float | None:
        return compared_ms(hellos, self._work_ms, boot_id())

    @property
    def prometheus_url(self) -> str | None:
        """Where Prometheus can read this job's metrics while it runs; None unless `prometheus_port` was given."""
        return None if self._exporter is None else self._exporter.url

    @property
    def worker_of(self) -> Mapping[str, int]:
        """Which worker runs which task."""
        return {} if self._deployment is None else self._deployment.worker_of

    @property
    def places(self) -> Sequence[WorkerPlace]:
        """Where each worker runs, by its number."""
        return () if self._deployment is None else self._deployment.workers

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A job that still runs when its block ends is cancelled."""
        if not self._ended.is_set():
            self.cancel()

    @property
    def rows_read(self) -> int:
        """Rows that sources have read, as far as workers have reported."""
        sources = {operator.name for operator in self._order.dataflow.operators if operator.role == "source"}
        return sum(counts["tuples_out"] for task, counts in self.totals().items() if operator_of(task) in sources)

    def __repr__(self) -> str:
        return JobView.of(self, self._order.dataflow.bounded, self._results.kept).text()

    def _repr_html_(self) -> str:
        return JobView.of(self, self._order.dataflow.bounded, self._results.kept).html()

    def uses(self) -> tuple[Use, ...]:
        """What each worker takes of its node, as measured so far, for the plans of other jobs of the session."""
        return uses(self.workers, self.worker_of, self._log.measured().profile(), self._loads)

    def _others(self) -> list[Use]:
        return [use for job in live_jobs.besides(self) for use in job.uses()]

    def _standing(self) -> list[Standing]:
        """Workers that have not said goodbye, with their silence since the job began and what waits in their queues."""
        newest, since = self._log.sums().newest, self._working_since
        silent_s = {hello.worker: self._log.silent_s(hello.worker, since) for hello in self.workers}
        there = [hello for hello in self.workers if hello.worker not in self._attempts.now.roll.statuses]
        return standing(there, self.places, self.worker_of, newest, silent_s)

    # -- from start to end -------------------------------------------------------------------------------------------

    _is_found_over = False  # it had ended before it was started, and nobody has looked at its answer since

    def begin(self) -> None:
        """Launch, meet the workers and send them to work; whatever goes wrong or interrupts, nothing stays behind."""
        self._serve_page()
        live_jobs.entered(self)
        if self._epochs is not None and self._epochs.is_over:  # its answer is there already
            self._is_found_over = True
            self._conclude()
            return
        self._attempts.now.start()
        threading.Thread(target=self._supervise, name=f"penstock-{self.id}-supervisor", daemon=True).start()
        if self._attempts.now.action.waits_for_stages:  # as long as they take; the caller can ask how far the job is
            threading.Thread(target=self._meet_later, name=f"penstock-{self.id}-meeting", daemon=True).start()
            return
        try:
            self._meet()
        except BaseException as error:
            if isinstance(error, PenstockError):
                self._error = error
            self.cancel()
            raise

    def _meet_later(self) -> None:
        """Meet the workers while the caller goes on; what goes wrong is the job's error."""
        try:
            self._meet()
        except Exception as error:  # also a mistake of ours must not leave a job that starts for ever
            if not self._ended.is_set():
                strange = f"topology {self.name!r} could not be started: {error}"
                self._error = error if isinstance(error, PenstockError) else InternalError(strange)
            self.cancel()

    def _meet(self) -> None:
        """The first attempt's workers; where they end before they work, the supervisor knows what comes of it."""
        if not self._attempts.meet_first():
            wait_in_steps(lambda step: self._ended.wait(step) or self._attempts.begun.is_set(), None)
            if self._error is not None:
                raise self._error

    def _bind(self, placing: Placing, dataflow: Dataflow, hellos: Sequence[Hello]) -> Bound:
        settings, others = self._order.settings, self._others()
        return bind(dataflow, hellos, placing, self.id, settings, self._compared_ms(hellos), others)

    def _at_work(self, hellos: tuple[Hello, ...], bound: Bound) -> None:
        """The workers of an attempt have met and are about to begin."""
        if {*bound.deployment.worker_of} != {*self.worker_of} != set():
            self._log.begin_anew()
        self._log.let_go(len(hellos))
        self._loads = bound.loads
        self._deployment, self.plan, self._bound_notes = bound.deployment, bound.certified.plan, bound.notes
        self.workers = hellos
        if self._status == "starting":  # it may have been stopped meanwhile
            self._status = "running"
        self._working_since = time.monotonic()

    @property
    def workers_held(self) -> int:
        """Slots of Spark's that the job has, or has asked for."""
        return self._order.workers if self._deployment is None else len(self._deployment.workers)

    def _slots(self) -> int:
        """Slots that the job could have now, its own included."""
        return slots_now(self._spark) - sum(live_jobs.workers_at_work(self).values())

    def _serve_page(self) -> None:
        """Open the page for Prometheus, if one is wanted; a port that is taken ends the job before it begins."""
        try:
            self._exporter = served(self._order.prometheus, self.id, self._log.sums)
        except BaseException:
            self._attempts.now.close()
            self._results.discard()
            raise

    def _take(self, worker: int, kind: str, name: str, batch: pa.RecordBatch) -> None:
        if kind == "metrics":
            self._log.take(worker, name, batch)
        else:
            self._results.take(name, batch)

    def _kept(self, worker: int, report: Report) -> None:
        if self._epochs is None:
            msg = f"worker {worker} hands over an epoch of a job without checkpoints"
            raise ValueError(msg)
        self._epochs.kept(worker, report)

    def _supervise(self) -> None:
        try:
            known = self._log, self._attempts.crossings, self._epochs
            self._beside += [*opened(self), *adapting(self, self._order.adapt, self._go_over, *known)]
            self._beside += leaving(self, self._spark, goes_on=self._epochs is not None)
            gave_up = self._attempts.supervise()
            self._error = self._error or gave_up
        finally:
            self._conclude()

    def _conclude(self) -> None:
        """Close everything and say what became of the job; waiting threads are told, whatever fails on the way."""
        try:
            self._close_books()
            self._judge()
        except PenstockError as error:
            self._error = self._error or error
        except Exception as error:
            unclear = JobFailed(f"topology {self.name!r} could not be ended in order: {error}")
            unclear.__cause__ = error
            self._error = self._error or unclear
        finally:
            if self._error is not None:
                self._results.discard()
                self._results.withdraw(self.id)
            self._status = {type(None): "finished", JobCancelled: "cancelled"}.get(type(self._error), "failed")
            live_jobs.left(self)
            self._ended.set()

    def _close_books(self) -> None:
        """Take no more rows; a metric log that is not complete is no reason to throw the results away."""
        if self._epochs is not None:
            self._epochs.end()
        self._attempts.now.close()
        if self._exporter is not None:
            self._exporter.close()
        for each in self._beside:
            each.close()
        self._log.close()
        try:
            self._results.finish()
        except (OSError, pa.ArrowException) as error:
            self._attempts.now.roll.give_up(str(error))

    def _judge(self) -> None:
        epochs = self._epochs
        if epochs is not None and epochs.is_over and self._error is None:  # whatever came behind the last epoch
            epochs.finish()
            return
        if epochs is not None and not self._attempts.cancel_asked.is_set():
            self._error = self._error or epochs.stuck or epochs.error
        self._error = self._error or self._attempts.judged()
        if epochs is not None and self._error is None:
            lacking = f"its last epoch was not committed; run it again, and it goes on from epoch {epochs.last_epoch}"
            self._error = epochs.stuck or epochs.error or JobFailed(f"topology {self.name!r}: {lacking}")
