"""`run_topology` and `start_topology`: from a topology and a Spark session to a DataFrame or a Job."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from penstock.deploy.binding import Placing, tasks_per_worker, workers_needed
from penstock.deploy.facts import bind_address, driver_host, gather_facts, require_classic
from penstock.deploy.folders import prepare_folders
from penstock.deploy.job import Job, JobOrder, workers_at_work
from penstock.deploy.preflight import WORKERS_MAX, decide_workers
from penstock.errors import InvalidInput
from penstock.flow.checks import require_count, require_kind, require_number
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.optimise.place import find_scheduler
from penstock.run.contract import ERRORS
from penstock.run.dataflow import Dataflow
from penstock.run.layout import RunSettings
from penstock.run.operators.files import FilesSource
from penstock.run.operators.sinks import Parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_WORKER = 5  # the papers' T
ROWS_MAX = 1 << 20  # of a batch
LINGER_MS_MAX = 60_000.0
INTERVAL_S_MIN, INTERVAL_S_MAX = 0.01, 3600.0
THETA_SECONDS = 0.3  # for schedulers that search: a job should start within a second


class Buildable(Protocol):
    """What `ps.Topology` offers."""

    frames: dict[str, object]

    def build(self) -> Dataflow:
        """The frozen dataflow."""


def run_topology(topology: Buildable | Dataflow, spark: SparkSession, **options: Any) -> Any:  # noqa: ANN401
    """Run bounded input to its end: a DataFrame, a dict of them when several sinks keep rows, or None when none does.

    Takes the options of `start_topology`. Ctrl-C cancels the job.
    """
    require_options(options)
    dataflow, _ = _parts(topology)
    if not dataflow.bounded:
        endless = [operator.name for operator in dataflow.operators if not operator.bounded]
        msg = f"topology {dataflow.name!r} never ends, because source {endless[0]!r} does not; use start instead of run"
        raise InvalidInput(msg)
    with start_topology(topology, spark, **options) as job:
        return job.result


def require_options(options: Mapping[str, object]) -> None:
    """Refuse names that `run` and `start` do not know; Python would name a function of ours."""
    known = [name for name, given in signature(start_topology).parameters.items() if given.kind == given.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            msg = f"run and start have no option {name!r}; {hint}"
            raise InvalidInput(msg)


def start_topology(
    topology: Buildable | Dataflow,
    spark: SparkSession,
    *,
    scheduler: str = "best",
    plan: Plan | None = None,
    profile: Profile | None = None,
    workers: int | None = None,
    take_last_slot: bool = False,
    node: str | None = None,
    seed: int = 0,
    theta: float | None = THETA_SECONDS,
    metrics: str | None = None,
    rows_max: int = 4096,
    linger_ms: float = 0.0,
    interval_s: float = 1.0,
    transport: str = "auto",
    frames: Mapping[str, DataFrame] | None = None,
    prometheus_port: int | None = None,
    prometheus_host: str = "127.0.0.1",
) -> Job:
    """Start a job and return it once its workers have been sent to work.

    `workers` is how many processes to run on; without it, one for every five tasks of an executor, as far as slots are
    free. `node` says what counts as one for placement, "executor" or "host". `metrics` is a folder for the metric log.
    Batches have up to `rows_max` rows; smaller ones wait `linger_ms` for others to join them, by default only while a
    worker is busy anyway.
    `transport` is how workers of one machine speak: "auto" uses shared memory where there is some and sockets
    otherwise, "ring" fails where there is none, "socket" never uses it; workers of two machines always use sockets.
    `prometheus_port` serves it to Prometheus at http://127.0.0.1:port/metrics while the job runs; 0 picks a port, which
    `job.prometheus_url` tells, and `prometheus_host` is another address to serve at.
    """
    _require_settings(rows_max, linger_ms, interval_s)
    _require_kinds(plan, profile, workers, metrics)
    if prometheus_port is not None:
        require_count(prometheus_port, 0, 65535, "prometheus_port")
    require_classic(spark)
    require_transport(transport)
    dataflow, given = _parts(topology)
    given = {**given, **(frames or {})}
    _require_frames(dataflow, given)
    find_scheduler(scheduler)
    wanted = workers_needed(plan) if plan is not None else workers
    # A reader of a DataFrame has as many tasks as there are workers; before it is known how many, as many as wanted.
    tasks = sum(max(1, wanted or 1) if o.one_per_worker else o.tasks for o in dataflow.operators)
    facts = gather_facts(spark, min(wanted or 1, tasks), workers_at_work)
    count, notes = decide_workers(
        facts,
        dataflow.name,
        tasks,
        wanted=wanted,
        tasks_per_worker=TASKS_PER_WORKER,
        take_last_slot=take_last_slot,
        regions=dataflow.regions(),
    )
    if plan is not None and len(facts.executors) != 1:
        # Spark decides where workers land; spare ones let the plan's shape fit, and those it does not need end at once.
        count = max(count, facts.slots - facts.busy - (0 if take_last_slot else 1))
    per_worker = TASKS_PER_WORKER if workers is None else tasks_per_worker(tasks, count)
    placing = Placing(scheduler, plan, profile, node, seed, theta, per_worker)
    if faults := placing.faults():
        raise InvalidInput(faults)
    settings = RunSettings(rows_max=rows_max, linger_ms=linger_ms, interval_s=interval_s, transport=transport)
    page = None if prometheus_port is None else (prometheus_host, prometheus_port)
    context = spark.sparkContext
    addresses = driver_host(context), bind_address(context)
    notes += _unread(dataflow)
    order = JobOrder(dataflow, count, placing, settings, *addresses, given, metrics, notes, page)
    prepare_folders(_parquet_sinks(dataflow), partial(_files_read, dataflow, given))
    job = Job(spark, order)
    job.begin()
    return job


def _require_kinds(plan: object, profile: object, workers: object, metrics: object) -> None:
    """Refuse what an option cannot be, before anything is asked of it."""
    require_kind(plan, Plan | None, "plan", "a penstock.Plan, such as penstock.read_plan('plan.json') returns")
    require_kind(profile, Profile | None, "profile", "a penstock.Profile, such as penstock.read_profile(...) returns")
    require_kind(metrics, str | PathLike | None, "metrics", "the path of a folder")
    if workers is not None:
        require_count(workers, 1, WORKERS_MAX, "workers")
    folder = None if metrics is None else Path(str(metrics))
    if folder is not None and folder.exists() and not folder.is_dir():
        msg = f"metrics is {str(folder)!r}, which is a file; give a folder for the metric log"
        raise InvalidInput(msg)


def require_transport(transport: str) -> None:
    """Raise InvalidInput for a transport that nobody knows."""
    RunSettings(transport=transport)


def _parquet_sinks(dataflow: Dataflow) -> list[tuple[str, Parquet]]:
    made = [(name, build()) for name, (build, _) in dataflow.sinks().items()]
    return [(name, sink) for name, sink in made if isinstance(sink, Parquet)]


def _files_read(dataflow: Dataflow, frames: Mapping[str, DataFrame]) -> list[str]:
    """Every file that the job's sources and DataFrames read."""
    found: list[str] = []
    for operator in dataflow.operators:
        task = operator.build() if operator.role == "source" else None
        while (inner := getattr(task, "inner", None)) is not None:  # event time and sinks are wrapped around a source
            task = inner
        found += task.files if isinstance(task, FilesSource) else ()
    return found + [unquote(urlsplit(uri).path) for frame in frames.values() for uri in frame.inputFiles()]


def _unread(dataflow: Dataflow) -> tuple[str, ...]:
    """Notes about rows that nobody will see."""
    read = {(r.operator, r.output) for o in dataflow.operators for r in o.inputs}
    read |= {(o.name, sink.output) for o in dataflow.operators for sink in o.sinks}
    return tuple(
        f"rows that operator {o.name!r} quarantines are dropped: nobody reads its .errors"
        for o in dataflow.operators
        if ERRORS in o.outputs and (o.name, ERRORS) not in read
    )


def _require_settings(rows_max: object, linger_ms: object, interval_s: object) -> None:
    """Refuse what would make workers wait for ever or never rest."""
    require_count(rows_max, 1, ROWS_MAX, "rows_max")
    require_number(linger_ms, 0.0, LINGER_MS_MAX, "linger_ms")
    require_number(interval_s, INTERVAL_S_MIN, INTERVAL_S_MAX, "interval_s")


def _parts(topology: Buildable | Dataflow) -> tuple[Dataflow, Mapping[str, Any]]:
    if isinstance(topology, Dataflow):
        return topology, {}
    return topology.build(), topology.frames


def _require_frames(dataflow: Dataflow, frames: Mapping[str, object]) -> None:
    readers = [operator.name for operator in dataflow.operators if operator.one_per_worker]
    if set(readers) != set(frames):
        msg = f"topology {dataflow.name!r} has DataFrame sources {readers} but got DataFrames for {sorted(frames)}"
        raise InvalidInput(msg)
