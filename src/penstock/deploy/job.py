"""Job: a topology that runs on Spark, from its start to what became of it.

The caller's thread does what can fail before the first row: preflight, launch, rendezvous, binding. Then a supervisor
thread waits for the end, lets Spark kill what does not obey within a few seconds, and concludes. All threads are
daemons and live jobs are cancelled at exit, so a script that ends or is interrupted leaves nothing behind.
"""

from __future__ import annotations

import atexit
import contextlib
import platform
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.deploy.barrier_job import Action
from penstock.deploy.binding import Placing, Replan, bind, replan, sized, tasks_per_worker
from penstock.deploy.messages import KEY_BYTES, Hello, encode_deployment
from penstock.deploy.metric_log import MetricLog
from penstock.deploy.outcome import Reports, judge
from penstock.deploy.preflight import hello_faults
from penstock.deploy.region_scale import region_to_scale
from penstock.deploy.rendezvous import ControlServer
from penstock.deploy.results import Results
from penstock.deploy.worker_main import WorkerCall
from penstock.errors import InvalidInput, JobCancelled, JobFailed, PenstockError, UnfitSession
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.optimise.place import find_scheduler
from penstock.run.dataflow import Dataflow
from penstock.run.layout import RunSettings
from penstock.run.links import WorkerPlace
from penstock.run.worker import Deployment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.deploy.exporter import Exporter

RENDEZVOUS_SECONDS = 60.0  # a warm session needs 0.2 s, a busy machine's first Python workers many
OBEY_SECONDS = 4.0  # how long workers may take to end when told to, before Spark kills them
KILL_SECONDS = 30.0
LEAVE_SECONDS = 2.0


@dataclass(frozen=True)
class JobOrder:
    """What to run and how; made by `submit`."""

    dataflow: Dataflow
    workers: int
    placing: Placing
    settings: RunSettings
    host: str  # as executors reach the driver
    bind: str  # as the driver listens: the same, unless something stands between
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    metrics: str | None = None
    notes: tuple[str, ...] = ()
    prometheus: tuple[str, int] | None = None  # host and port of the page; port 0 lets the kernel pick


class Job:
    """A running topology. Use it as a context manager, or end it with `wait`, `stop` or `cancel`."""

    def __init__(self, spark: SparkSession, order: JobOrder) -> None:
        self.id = secrets.token_hex(6)
        self.name = order.dataflow.name
        self.notes = order.notes
        self.plan: Plan | None = None
        self.workers: tuple[Hello, ...] = ()
        self.started_at = time.time()
        self._spark, self._order = spark, order
        self._status = "starting"
        self._error: PenstockError | None = None
        self._ended = threading.Event()
        self._cancel_asked = False
        self._deployment: Deployment | None = None
        key = secrets.token_bytes(KEY_BYTES)
        self._log = MetricLog(self.id, order.metrics)
        self._exporter: Exporter | None = None
        self._results = Results(spark, order.dataflow)
        self._server = ControlServer(order.bind, key, order.workers, self._take)
        location = f"grpc://{order.host}:{self._server.port}"
        call = WorkerCall(self.id, order.dataflow, location, key, order.host == "127.0.0.1", tuple(order.frames))
        roll = self._server.roll
        self._action = Action(
            spark,
            call,
            order.workers,
            tuple(order.frames.values()),
            nobody_came=lambda: not roll.hellos,
            on_end=roll.awaken,
        )

    # -- for users ---------------------------------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """`starting`, `running`, `stopping`, `finished`, `failed` or `cancelled`."""
        return self._status

    @property
    def error(self) -> PenstockError | None:
        """Why the job failed or has no result."""
        return self._error

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when the time is over first. Raises what the job failed with."""
        if not self._ended.wait(timeout):
            return False
        if self._error is not None and not isinstance(self._error, JobCancelled):
            raise self._error
        return True

    def stop(self) -> Any:  # noqa: ANN401 # as `result`
        """Drain: sources end, everything flows out; the result."""
        if not self._ended.is_set():
            self._status = "stopping"
            self._server.roll.command("stop")
        self.wait()
        return self.result

    def scale(self, name: str, replicas: int) -> None:
        """Let so many replicas of a parallel region take part from its next sample on.

        `name` is the region's or that of an operator in it. Replicas are at least 1 and at most what `parallel(n,
        at_most=m)` was given; the last to join is the first to leave, when it has worked off what it has. Order and
        completeness hold throughout.
        """
        region = region_to_scale(self._order.dataflow, name, replicas)
        if self._ended.is_set() or self._status == "stopping":
            msg = f"job {self.name!r} is {self._status}; region {region!r} can be scaled only while the job runs"
            raise InvalidInput(msg)
        self._server.roll.scale(region, replicas)

    def cancel(self) -> None:
        """End now. Workers are asked first; Spark kills those that do not obey. Leaves no process, socket or file."""
        if not self._ended.is_set():
            self._cancel_asked = True
            self._server.roll.command("cancel")
            self._ended.wait(OBEY_SECONDS + KILL_SECONDS + 2 * LEAVE_SECONDS)
        self._results.discard()

    @property
    def result(self) -> Any:  # noqa: ANN401 # a DataFrame, a dict of DataFrames by sink, or None without such sinks
        """What the sinks received, once the job has finished."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results.frames()

    def metrics(self, table: str = "tasks") -> pa.Table:
        """The latest rows of the metric log: `tasks`, `edges`, `latency`, `links` or `balance`."""
        return self._log.latest(table)

    def profile(self) -> Profile:
        """What the job has measured so far: load of every task, traffic of every pair; for `replan` and `ps.place`.

        The first rows arrive one metric interval after the start; InvalidInput before.
        """
        measured = self._log.sums().profile()
        missing = sorted(set(self.worker_of) - set(measured.tasks))
        if missing or not measured.tasks:
            msg = (
                f"job {self.name!r} has measured nothing {f'of task {missing[0]!r} ' if missing else ''}yet; ask again "
                f"after its metric interval of {self._order.settings.interval_s:g} s"
            )
            raise InvalidInput(msg)
        return measured

    def replan(self, scheduler: str | None = None, *, seed: int | None = None, theta: float | None = None) -> Replan:
        """A new plan for the same workers from what the job has measured, beside the plan that it follows.

        Both are costed with the same measurements, so `.gain` is what a move would save. It only compares: the job goes
        on as it is, because tasks cannot move while it runs yet. To follow the new plan, start again with `plan=`.
        """
        if self.plan is None:
            msg = f"job {self.name!r} has no plan to compare with: it is {self._status}"
            raise InvalidInput(msg)
        given = self._order.placing
        find_scheduler(scheduler or given.scheduler)
        placing = Placing(
            scheduler or given.scheduler,
            None,
            self.profile(),
            given.node,
            given.seed if seed is None else seed,
            given.theta if theta is None else theta,
            given.tasks_per_worker if given.plan is None else tasks_per_worker(len(self.worker_of), len(self.workers)),
        )
        return replan(sized(self._order.dataflow, len(self.workers)), self.workers, self.plan, placing)

    def totals(self) -> dict[str, dict[str, int]]:
        """CPU microseconds, tuples and bytes of each task since the start."""
        return self._log.totals()

    def latency_us(self, fraction: float) -> int:
        """A percentile of the end-to-end latency of batches since the start."""
        return self._log.latency_us(fraction)

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

    def __repr__(self) -> str:
        return f"Job({self.name!r}, id={self.id!r}, status={self._status!r})"

    # -- from start to end -------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Launch, meet the workers and send them to work; whatever goes wrong or interrupts, nothing stays behind."""
        self._serve_page()
        _live.add(self)
        threading.Thread(target=self._supervise, name=f"penstock-{self.id}-supervisor", daemon=True).start()
        self._action.start()
        try:
            self._meet()
        except BaseException as error:
            if isinstance(error, PenstockError):
                self._error = error
            self.cancel()
            raise

    def _meet(self) -> None:
        roll = self._server.roll
        # A DataFrame's own stages run before the barrier stage begins, for as long as they take.
        patience = None if self._order.frames else RENDEZVOUS_SECONDS
        if not roll.wait_for_all(lambda: self._action.ended, patience):
            self._fail_to_meet(patience)
            return
        hellos = [roll.hellos[worker] for worker in sorted(roll.hellos)]
        if faults := hello_faults(hellos, platform.python_version(), pa.__version__):
            raise UnfitSession(faults)
        dataflow = sized(self._order.dataflow, len(hellos))
        self._deployment, self.plan = bind(dataflow, hellos, self._order.placing, self.id, self._order.settings)
        self.workers = tuple(hellos)
        self._status = "running"
        roll.publish(encode_deployment(self._deployment))

    def _fail_to_meet(self, patience: float | None) -> None:
        """Raise what the job ended with, or that its workers did not come in time."""
        roll = self._server.roll
        if roll.ending or self._action.ended:
            self.wait()
            if self._error is not None:
                raise self._error
        msg = (
            f"topology {self.name!r} waited {patience:g} s for {self._order.workers} workers but {len(roll.hellos)} "
            "came; other queries may hold the slots"
        )
        raise JobFailed(msg)

    def _serve_page(self) -> None:
        """Open the page for Prometheus, if one is wanted; a port that is taken ends the job before it begins."""
        if self._order.prometheus is None:
            return
        from penstock.deploy.exporter import Exporter  # a job without a page does not pay for an HTTP server's import

        host, port = self._order.prometheus
        try:
            self._exporter = Exporter(self.id, self._log.sums, port, host)
        except BaseException:
            self._server.end()
            self._results.discard()
            raise

    def _take(self, worker: int, kind: str, name: str, batch: pa.RecordBatch) -> None:
        if kind == "metrics":
            self._log.take(worker, name, batch)
        else:
            self._results.take(name, batch)

    def _supervise(self) -> None:
        try:
            roll = self._server.roll
            with roll.changed:
                roll.changed.wait_for(lambda: self._action.ended or roll.ending)
            if not self._action.wait(OBEY_SECONDS):
                self._action.cancel()
                self._action.wait(KILL_SECONDS)
            self._await_survivors()
        finally:
            self._conclude()

    def _await_survivors(self) -> None:
        """Spark ends an aborted stage before its workers are gone; they are told, and given a moment to go."""
        roll = self._server.roll
        if self._action.error is not None:
            roll.command("cancel")
            with roll.changed:
                roll.changed.wait_for(lambda: len(roll.statuses) + 1 >= len(roll.hellos), LEAVE_SECONDS)

    def _conclude(self) -> None:
        """Close everything and say what became of the job; whatever fails on the way, those who wait are told."""
        try:
            self._judge(self._close_books())
        finally:
            _live.discard(self)
            self._ended.set()

    def _close_books(self) -> JobFailed | None:
        """Take no more rows; why the metric log is not complete, if it is not."""
        self._server.end()
        if self._exporter is not None:
            self._exporter.close()
        try:
            self._log.close()
        except (OSError, pa.ArrowException) as error:  # a disk that is full, a folder that was removed
            return JobFailed(f"topology {self.name!r} ran, but its metric log could not be written: {error}")
        return None

    def _judge(self, unwritten: JobFailed | None) -> None:
        roll = self._server.roll
        error = self._action.error
        reports = Reports(
            self.name,
            dict(roll.hellos),
            dict(roll.statuses),
            list(roll.faults),
            self._deployment,
            None if error is None else str(error),
            self._cancel_asked,
        )
        self._error = self._error or judge(reports) or unwritten
        if self._error is not None:
            self._results.discard()
        self._status = {type(None): "finished", JobCancelled: "cancelled"}.get(type(self._error), "failed")


_live: weakref.WeakSet[Job] = weakref.WeakSet()


def workers_at_work() -> dict[str, int]:
    """How many workers the jobs of this process hold, by topology; a process has one Spark context."""
    held: Counter[str] = Counter()
    for job in list(_live):
        held[job.name] += job._order.workers if job._deployment is None else len(job._deployment.workers)
    return dict(held)


@atexit.register
def _cancel_live_jobs() -> None:
    for job in list(_live):
        with contextlib.suppress(Exception):
            job.cancel()
