"""Tuning: profile iterations on real jobs of one Spark session; the thin shell around `profile_iterations`.

Every step is a job that makes its own plan for the slots that Spark gives it. It runs to its end, or for `seconds`, and
answers with its plan, its profile and its throughput: rows that sources read in a second of work. Steps that are
repeated run the same plan again: the median is kept, with the profile of the run nearest to it, and the spread told.
Steps that end in the plan of an earlier one are runs of that plan (`same_plans`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.deploy.driver.job import Job
from penstock.deploy.driver.options import JobOptions
from penstock.deploy.driver.submit import Buildable, follow, start_topology
from penstock.deploy.metrics.stages import bytes_between_nodes
from penstock.errors import InternalError, InvalidInput, JobFailed
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.optimise.fuse.contract import FuseOptions, find_method, require_read
from penstock.optimise.fuse.steps.profile_iterations import (
    CHOICES,
    GAMMAS,
    Iteration,
    Measured,
    Step,
    chosen,
    first_run,
    gammas_of,
    has_peaked,
    iterations,
)
from penstock.optimise.fuse.steps.same_plans import noise, pooled, spread_of
from penstock.run.dataflow import Dataflow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPEATS_MAX = 100

Topology = Buildable | Dataflow
Show = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Tuning:
    """How far tuning goes. `choice` says which iteration is kept, as in the fusion paper's Table 2."""

    methods: tuple[str, ...] = ("cola",)
    iterations: int = len(GAMMAS)
    repeats: int = 1
    seconds: float | None = None  # of each run; None: to the end of its input
    choice: str = "max"
    fuse_options: FuseOptions = field(default_factory=FuseOptions)

    def require_sound(self) -> None:
        """Refuse unknown methods and choices, and numbers out of range, before anything runs."""
        for method in self.methods:
            find_method(method)
            gammas_of(method, self.iterations)
            if self.methods.count(method) > 1:
                msg = f"method {method!r} is named twice; name each once, and --repeats runs each plan more often"
                raise InvalidInput(msg)
        if self.choice not in CHOICES:
            raise InvalidInput.unknown_name(kind="choice", name=self.choice, known=CHOICES)
        if not 1 <= self.repeats <= REPEATS_MAX:
            msg = f"repeats is {self.repeats}; it must be from 1 to {REPEATS_MAX}"
            raise InvalidInput(msg)
        if self.seconds is not None and not 0 < self.seconds < 1e9:
            msg = f"the duration of a run is {self.seconds:g}; it must be above 0 seconds"
            raise InvalidInput(msg)
        if faults := self.fuse_options.faults():
            raise InvalidInput(faults)
        require_read(self.fuse_options, self.methods)

    @property
    def steps_max(self) -> int:
        """Runs without repeats."""
        return 1 + len(self.methods) * (1 if self.choice == "first" else self.iterations)


@dataclass(frozen=True, slots=True)
class Tuned:
    """Every iteration in order, the run without fusion first, and the one that is kept."""

    done: tuple[Iteration, ...]
    kept: Iteration
    choices: dict[int, tuple[str, ...]]  # by position in `done`: what of 1st, 1st-local and max it is for its method

    @property
    def plan(self) -> Plan:
        """The plan of the kept iteration."""
        if self.kept.measured is None:
            msg = "an iteration without a plan was chosen; please report this"
            raise InternalError(msg)
        return self.kept.measured.plan

    @property
    def noise(self) -> float | None:
        """How far runs of one plan were apart at most, as a share of their median; None where each plan ran once."""
        return noise(self.done)


def tune_topology(
    topology: Topology,
    spark: SparkSession,
    options: JobOptions,
    tuning: Tuning,
    show: Show = lambda done, total, what: None,
) -> Tuned:
    """Run without fusion, then fuse and run again with what was measured, and keep the best plan."""
    tuning.require_sound()
    runs = 0

    def run(step: Step) -> Measured:
        nonlocal runs
        what = f"{step.method}, iteration {step.number}, gamma {step.gamma:g}"
        show(runs, tuning.steps_max, what)
        runs += 1
        return measured_step(topology, spark, options, tuning, step)

    first = first_run(run)
    by_method = {method: [first] for method in tuning.methods}
    for method, done in by_method.items():
        for iteration in iterations(first, run, method, gammas_of(method, tuning.iterations)):
            done.append(iteration)
            if tuning.choice == "first" or (tuning.choice == "first-local" and has_peaked(pooled(done))):
                break
    show(tuning.steps_max, tuning.steps_max, "")
    return told(by_method, tuning.choice)


def told(by_method: dict[str, list[Iteration]], choice: str) -> Tuned:
    """The iterations of all methods in one row, with what is chosen of each; of the methods' choices the fastest."""
    separate = list(dict.fromkeys(iteration for each in by_method.values() for iteration in each))
    done = pooled(separate)
    together = dict(zip(separate, done, strict=True))
    rows = [[together[iteration] for iteration in each] for each in by_method.values()]
    choices: dict[int, tuple[str, ...]] = {}
    for each in rows:
        for name, label in (("first", "1st"), ("first-local", "1st-local"), ("max", "max")):
            at = done.index(chosen(each, name))
            choices[at] = tuple(dict.fromkeys((*choices.get(at, ()), label)))
    kept = max((chosen(each, choice) for each in rows), key=lambda one: one.throughput or 0.0)
    return Tuned(tuple(done), kept, choices)


def measured_step(topology: Topology, spark: SparkSession, options: JobOptions, tuning: Tuning, step: Step) -> Measured:
    """The step's plan, run as often as asked."""
    fusing = find_method(step.method).heard(replace(tuning.fuse_options, gamma=step.gamma))
    asked = replace(options, fuse=step.method, fuse_options=fusing, profile=step.profile)
    runs = []
    for _ in range(tuning.repeats):
        with start_topology(topology, spark, asked) as job:
            follow(job, tuning.seconds)
            job.wait()
        runs.append(_run_of(job))
    return median_run(runs)


@dataclass(frozen=True, slots=True)
class OneRun:
    """What one job did."""

    plan: Plan
    profile: Profile
    throughput: float
    latency_ms: float
    bytes_between_nodes: float = 0.0  # per second, as measured


def median_run(runs: list[OneRun]) -> Measured:
    """The median of the throughputs with the run nearest to it, and how far they are apart."""
    throughputs = tuple(run.throughput for run in runs)
    middle = statistics.median(throughputs)
    nearest = min(runs, key=lambda run: abs(run.throughput - middle))
    return Measured(
        nearest.plan,
        nearest.profile,
        middle,
        spread_of(throughputs),
        nearest.latency_ms,
        throughputs,
        nearest.bytes_between_nodes,
    )


def _run_of(job: Job) -> OneRun:
    worked = job.worked
    if job.plan is None or worked is None:
        msg = f"topology {job.name!r} ended before it had measured anything; give its runs more rows or more seconds"
        raise JobFailed(msg)
    seconds = max(1e-6, worked[1] - worked[0])
    nodes = {worker.index: worker.node for worker in job.places}
    between = bytes_between_nodes(job.sums(), {task: nodes[worker] for task, worker in job.worker_of.items()})
    return OneRun(job.plan, job.profile(), job.rows_read / seconds, job.latency_us(0.5) / 1000, between)
