"""`run_topology` and `start_topology`: from a topology, a Spark session and options to a DataFrame or a Job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.attempt.publications import checkpoint_notes
from penstock.deploy.attempt.spool import require_spoolable, spooled
from penstock.deploy.driver.binding import Placing, tasks_per_worker, workers_needed
from penstock.deploy.driver.facts import bind_address, driver_host, gather_facts, is_authenticated, require_classic
from penstock.deploy.driver.folders import clear, overwritten
from penstock.deploy.driver.job import Job
from penstock.deploy.driver.options import JobOptions, JobOrder
from penstock.deploy.driver.preflight import decide_workers
from penstock.deploy.line.messages import TICKET_PROPERTY
from penstock.deploy.metrics.metric_log import make_folders
from penstock.deploy.session.closed import OPEN_NOTE, open_notes, setting_notes
from penstock.deploy.session.interpreter import require_interpreter
from penstock.deploy.session.live_jobs import workers_at_work
from penstock.deploy.session.py4j_log import leave_out, leave_out_lost_accumulators
from penstock.errors import InvalidInput
from penstock.flow.io import require_batch
from penstock.flow.pruning import needed_columns
from penstock.flow.schema import quoted_name
from penstock.run.contract import ERRORS
from penstock.run.dataflow import Dataflow
from penstock.run.operators.summed import SummedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
START_SECONDS_MAX = 60.0  # after which the time of a job counts, whether workers have said anything or not
TASKS_PER_WORKER = 5  # the papers' T
_told_open: set[str] = set()  # sessions of which it was said that they are open

Frames = Mapping[str, "DataFrame"]


class Buildable(Protocol):
    """What a topology under construction offers."""

    frames: dict[str, DataFrame]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the topology's user should know before it is run."""

    def build(self) -> Dataflow:
        """The frozen dataflow."""


def run_topology(topology: Buildable | Dataflow, spark: SparkSession, options: JobOptions) -> DataFrame:
    """Run bounded input to its end: what `Job.result` is. Ctrl-C cancels the job.

    Late rows that no stream reads are told in a warning at the end (logger "penstock"), because there is no job to ask
    afterwards. An open session is told too, once.
    """
    dataflow, _ = _parts(topology)
    if not dataflow.bounded:
        endless = [operator.name for operator in dataflow.operators if not operator.bounded]
        msg = f"topology {dataflow.name!r} never ends, because source {endless[0]!r} does not; use start instead of run"
        raise InvalidInput(msg)
    with start_topology(topology, spark, options) as job:
        result = job.result
        _tell(job, spark)
        return result


def follow(job: Job, seconds: float | None, look: Callable[[], None] = lambda: None) -> None:
    """Look until the job has ended, or drain it when its time, counted from its workers' start, is over."""
    latest = time.time() + START_SECONDS_MAX
    while not job.wait(LOOK_SECONDS):
        look()
        began = latest if job.worked is None else min(latest, job.worked[0])
        if seconds is not None and time.time() >= began + seconds:
            job.stop()
            return


def _tell(job: Job, spark: SparkSession) -> None:
    """Warn users without a job to ask: of rows that went nowhere, and once of a session that is open to strangers."""
    notes = [*job.losses]
    if OPEN_NOTE in job.notes and (session := str(spark.sparkContext.applicationId)) not in _told_open:
        _told_open.add(session)
        notes.append(OPEN_NOTE)
    for note in notes:
        log.warning("job %r: %s", job.name, note)


def start_topology(topology: Buildable | Dataflow, spark: SparkSession, options: JobOptions) -> Job:
    """Start a job and return it once its workers have been sent to work; see `penstock.jobs.Topology.start`."""
    options.require_sound()
    require_classic(spark)
    built, given = _parts(topology)
    dataflow = options.constrained(built)
    options.require_fitting(dataflow)
    frames = _frames(dataflow, {**given, **(options.frames or {})})
    plan = options.plan
    wanted = workers_needed(plan) if plan is not None else options.workers
    # A reader of a DataFrame has as many tasks as there are workers; before it is known how many, as many as wanted.
    tasks = sum(max(1, wanted or 1) if o.one_per_worker else o.tasks for o in dataflow.operators)
    facts = gather_facts(spark, min(wanted or 1, tasks), workers_at_work)
    count, notes = decide_workers(
        facts,
        dataflow.name,
        tasks,
        wanted=wanted,
        # Fusion finds out how many workers are worth having, of as many as there could be; the others end at once.
        tasks_per_worker=options.tasks_per_worker or (TASKS_PER_WORKER if options.fuse is None else 1),
        take_last_slot=options.take_last_slot,
        regions=dataflow.regions(),
    )
    if plan is not None and len(facts.executors) != 1:
        # Spark decides where workers land. Spare workers let the plan's shape fit; the plan's unused ones end at once.
        count = max(count, facts.slots - facts.busy - (0 if options.take_last_slot else 1))
    usual = TASKS_PER_WORKER if options.workers is None else tasks_per_worker(tasks, count)
    placing = options.placing(options.tasks_per_worker or usual)
    context = spark.sparkContext
    notes += _unread(dataflow) + open_notes(is_authenticated(context))
    notes += setting_notes(bind_address(context), context.getConf().get("spark.redaction.regex"), TICKET_PROPERTY)
    notes += () if isinstance(topology, Dataflow) else topology.notes
    require_interpreter(spark.sparkContext)
    epochs = _opened(dataflow, frames, options)
    notes += () if epochs is None else checkpoint_notes(dataflow)
    leave_out()
    leave_out_lost_accumulators(context)
    job = Job(spark, _order(spark, dataflow, frames, count, placing, notes, options, epochs))
    job.begin()
    return job


def _opened(dataflow: Dataflow, frames: Frames, options: JobOptions) -> DriverEpochs | None:
    """The job's epochs, if it has a folder for them: taken over when nothing that is known by now refuses the job.

    What sinks overwrite goes then as well.
    """
    order, replaced = options.checkpoint_order, list[Path]()
    epochs = None if order is None else DriverEpochs(order, dataflow)
    if epochs is None or epochs.is_new:  # a job that goes on finds its own files
        sinks = [(name, sink) for name, (sink, _) in dataflow.sinks().items()]
        replaced = overwritten(sinks, partial(files_read, dataflow, frames))
    if options.metrics_folder is not None:
        make_folders(options.metrics_folder)
    if epochs is None:
        clear(replaced)
        return None
    epochs.look()
    if not epochs.is_over:
        require_spoolable(frames, epochs.store)
    epochs.open(partial(clear, replaced))
    return epochs


def _order(
    spark: SparkSession,
    dataflow: Dataflow,
    frames: Frames,
    workers: int,
    placing: Placing,
    notes: tuple[str, ...],
    options: JobOptions,
    epochs: DriverEpochs | None,
) -> JobOrder:
    """What the job is told, with the paths that every worker must see."""
    folder, port = options.metrics_folder, options.prometheus_port
    sources = [(operator.name, operator.source.files) for operator in dataflow.operators]
    written: Mapping[str, tuple[SummedFile, ...]] = {}
    if epochs is not None:  # rows that Spark hands in cannot come again
        written = {} if epochs.is_over else spooled(dataflow, frames, epochs.store, epochs.attempt, workers)
        frames = {}
    return JobOrder(
        dataflow,
        workers,
        placing,
        options.run_settings(),
        driver_host(spark.sparkContext),
        bind_address(spark.sparkContext),
        frames,
        None if folder is None else str(folder),
        notes,
        None if port is None else (options.prometheus_host, port),
        reads=tuple((name, files[0]) for name, files in sources if files),
        writes=tuple((name, sink.folder) for name, (sink, _) in dataflow.sinks().items() if sink.folder is not None),
        epochs=epochs,
        spooled=written,
        network=options.network,
        silence_s=options.silence_s,
        adapt=options.adaptation,
    )


def files_read(dataflow: Dataflow, frames: Frames) -> list[str]:
    """Every file that the job's sources and DataFrames read."""
    found = [file for operator in dataflow.operators for file in operator.source.files]
    return found + [unquote(urlsplit(uri).path) for frame in frames.values() for uri in frame.inputFiles()]


def _unread(dataflow: Dataflow) -> tuple[str, ...]:
    """Notes about rows that go to no sink."""
    read = {(r.operator, r.output) for o in dataflow.operators for r in o.inputs}
    read |= {(o.name, sink.output) for o in dataflow.operators for sink in o.sinks}
    return tuple(
        f"rows that operator {o.name!r} quarantines are dropped: nobody reads its .errors"
        for o in dataflow.operators
        if ERRORS in o.outputs and (o.name, ERRORS) not in read
    )


def _parts(topology: Buildable | Dataflow) -> tuple[Dataflow, Frames]:
    if isinstance(topology, Dataflow):
        return topology, {}
    return topology.build(), topology.frames


def _frames(dataflow: Dataflow, frames: Frames) -> dict[str, DataFrame]:
    """The DataFrames of all sources that read one, without the columns that the topology does not use."""
    readers = [operator.name for operator in dataflow.operators if operator.one_per_worker]
    if set(readers) != set(frames):
        msg = f"topology {dataflow.name!r} has DataFrame sources {readers} but got DataFrames for {sorted(frames)}"
        raise InvalidInput(msg)
    needed = needed_columns(dataflow)
    for name, frame in frames.items():
        if not isinstance(getattr(frame, "columns", None), list):
            msg = f"frames has {frame!r} for source {name!r}; give a DataFrame"
            raise InvalidInput(msg)
        require_batch(frame)
        if lacking := [column for column in needed[name] if column not in frame.columns]:
            msg = f"the DataFrame of source {name!r} lacks column {lacking[0]!r}; it has {', '.join(frame.columns)}"
            raise InvalidInput(msg)
    return {name: _only(frame, needed[name]) for name, frame in frames.items()}


def _only(frame: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    return frame if list(columns) == list(frame.columns) else frame.select(*map(quoted_name, columns))
