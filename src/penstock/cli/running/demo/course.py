"""The course of the demonstration: a job under `even` is watched, gets a better plan by itself, and is watched again.

Nothing depends on how fast the machine is: trips come until the job has moved and has been seen at work behind that,
and each wait has a limit. The job moves because it adapts, by the code and with the prudence that every job has; only
its interval is short. On a machine that is very busy no short measurement is sure enough for that, so after a while the
demonstration asks for a plan of the last seconds and has the job follow it, and says so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.adapt.contract import AdaptGoals, AdaptSettings, Decision
from penstock.apps import routes
from penstock.apps.paced_trips import PacedTrips
from penstock.apps.trips import Trips
from penstock.cli.running.demo.answer import require_same
from penstock.cli.running.demo.glimpse import Glimpse, Stream
from penstock.cli.running.demo.screen import Screen
from penstock.cli.running.demo.tables import figures_table, graph_table
from penstock.cli.show import counted
from penstock.errors import InvalidInput, JobFailed
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.deploy import Job

ROWS_PER_SECOND = 10_000.0
SCHEDULER = "best"
WINDOW_S = 2.5  # of what is shown, and from one look of the job at itself to the next
METRIC_S = 0.5
LOOK_S = 0.25  # from one glimpse to the next
BEHIND_S = 4.0  # that the job is watched behind its move, at least
PATIENCE_S = 120.0  # until the job moves, and until it has been seen behind that; a busy machine takes longer
HORIZON_INTERVALS, REST_INTERVALS = 10, 8
SILENCE_S = 30.0  # after which a worker counts as dead: it may be slow, and nothing is to be recovered here
TASKS_MAX = 1_000  # that may move at once: all
UNSURE_S = 30.0  # after which a plan is asked for where none has been sure enough
ASKED_LOOKS = 4  # windows of which it is made


@dataclass(frozen=True, slots=True)
class Course:
    """How the demonstration goes; only tests have it shorter."""

    rows_per_second: float = ROWS_PER_SECOND
    window_s: float = WINDOW_S
    behind_s: float = BEHIND_S
    scheduler: str = SCHEDULER
    workers: int | None = None

    def adaptation(self) -> AdaptSettings:
        """Looks every window; moves as many tasks as pays, and then rests for longer than it is watched."""
        return AdaptSettings(
            goals=AdaptGoals(BYTES),
            interval_s=self.window_s,
            horizon_s=HORIZON_INTERVALS * self.window_s,
            rest_s=REST_INTERVALS * self.window_s,
            moves_max=TASKS_MAX,
            scheduler=self.scheduler,
        )


@dataclass(frozen=True, slots=True)
class Plans:
    """Both plans with what they were costed for: the measurements before the move."""

    graph: OperatorGraph
    cluster: Cluster
    profile: Profile
    before: Plan
    after: Plan


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the demonstration has shown."""

    operators: tuple[str, ...]
    plans: Plans | None  # None: a recovery has put the job on other workers
    before: Glimpse
    after: Glimpse
    decisions: tuple[Decision, ...]
    moved_after_s: float  # from the job's start
    notes: tuple[str, ...]  # of the job, about its move
    trips: int
    rows: int  # of the answer, which is Spark SQL's
    foretold: float | None  # bytes per second between nodes; None where somebody else has moved the job

    def document(self) -> dict[str, object]:
        """For programs."""
        return {
            "penstock": 1,
            "app": "routes",
            "before": self.before.document(),
            "after": self.after.document(),
            "foretold": {"between_nodes": self.foretold},
            "moved": self.before.moved_to(self.after),
            "moved_after_seconds": round(self.moved_after_s, 3),
            "decisions": [{"taken": decision.taken, "words": decision.words} for decision in self.decisions],
            "notes": list(self.notes),
            "answer": {"trips": self.trips, "rows": self.rows, "is_spark_sqls": True},
        }


def run_course(spark: SparkSession, screen: Screen, course: Course | None = None) -> Outcome:
    """Start the job, watch it until it has moved and behind that, end it and check its answer."""
    from penstock.deploy import JobOptions, start_topology

    course = course or Course()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        trips = Trips(per_second=5.0, batch_rows=50)
        pace = PacedTrips(trips, course.rows_per_second, str(Path(folder, "closed")))
        options = JobOptions(
            scheduler="even",
            node="executor",
            workers=course.workers,
            interval_s=METRIC_S,
            checkpoint=Path(folder, "kept"),
            checkpoint_interval_s=1.0,
            silence_s=SILENCE_S,
            adapt=course.adaptation(),
        )
        asked = time.monotonic()
        with start_topology(pace.topology(), spark, options) as job:
            watch = _Watch(job, screen, course)
            before, after = watch.until_moved(), watch.behind()
            count = pace.close(time.monotonic() - asked)
            screen.say(f"The sources end at trip {count:,}; Spark SQL is asked for the same answer.")
            screen.show()
            found = next(iter(job.results.values()))
            rows = require_same(spark, found, pace.all(routes.TASKS["source"]))
        decisions, notes = tuple(job.decisions), watch.new_notes
        return Outcome(
            watch.operators,
            watch.plans(),
            before,
            after,
            decisions,
            watch.moved_after_s,
            notes,
            count,
            rows,
            watch.foretold,
        )


class _Watch:
    """Looks at the job again and again, and shows what is seen."""

    def __init__(self, job: Job, screen: Screen, course: Course) -> None:
        self._job, self._screen, self._course = job, screen, course
        self._began = time.monotonic()
        self._first = self._plan()
        self._notes, self._told = job.notes, 0
        self._graph, self._slots = job.dataflow.graph(), job.slots_of_workers()
        self.operators = tuple(operator.name for operator in self._graph.operators)
        self._streams: Sequence[Stream] = [(stream.source, stream.target) for stream in self._graph.streams]
        self._before: Glimpse | None = None
        self._profile = Profile()  # from which the last glimpse before the move was made
        self.foretold: float | None = None
        self._has_asked = False  # for a plan, where looks are not sure of one
        self.moved_after_s = 0.0

    def until_moved(self) -> Glimpse:
        """Until tasks are elsewhere; answers the last that was seen before."""
        self._say_start()
        while self._plan().assignment == self._first.assignment:
            seen = self._glimpse()
            if seen is not None and seen[0].assignment == self._first.assignment:
                self._before, self._profile = seen
            self._tell_decisions()
            self._draw(None)
            if self._before is not None and not self._has_asked and self._age_s > UNSURE_S:
                self._ask()
            self._pause(f"has found no better plan within {PATIENCE_S:.0f} s{self._last_words()}")
        self.moved_after_s = self._age_s
        if self._before is None:
            msg = "the demo's job moved before anything was measured; please report this"
            raise JobFailed(msg)
        return self._before

    def behind(self) -> Glimpse:
        """Until the new plan has been seen at work alone, for as long as the course says; answers the last glimpse."""
        plan, since_s, after = self._plan(), self.moved_after_s, None
        while after is None or self._age_s < since_s + self._course.behind_s:
            if self._plan().assignment != plan.assignment:  # somebody else moves it as well
                plan, since_s, after = self._plan(), self._age_s, None
            seen = self._glimpse()
            # No interval of before is in the window then.
            if seen is not None and self._age_s >= since_s + self._course.window_s + 2 * METRIC_S:
                after = seen[0]
            self._tell_decisions()
            self._draw(None if seen is None else seen[0])
            self._pause("has measured nothing behind its move", since_s)
        return after

    def plans(self) -> Plans | None:
        """The plan that the job began with and the one that it follows now, on the workers that it began with."""
        from penstock.deploy import costed

        slots, now = self._slots, self._plan()
        known = {slots.slot(worker) for worker in range(len(slots.node_of))}
        if not known >= set(now.assignment.values()):
            return None
        before, after = (
            costed(self._graph, plan.assignment, slots, self._profile, plan).plan for plan in (self._first, now)
        )
        return Plans(self._graph, slots.cluster(), self._profile, before, after)

    @property
    def new_notes(self) -> tuple[str, ...]:
        """What the job has noted since its start."""
        return tuple(note for note in self._job.notes if note not in self._notes)

    @property
    def _age_s(self) -> float:
        return time.monotonic() - self._began

    def _plan(self) -> Plan:
        plan = self._job.plan
        if plan is None:  # it has been sent to work
            msg = "a job that runs has no plan; please report this"
            raise JobFailed(msg)
        return plan

    def _glimpse(self) -> tuple[Glimpse, Profile] | None:
        """The last seconds and what was measured; None where that is nothing yet, or the plan has changed meanwhile."""
        plan, job = self._plan(), self._job
        try:
            profile = job.profile(self._course.window_s)
        except InvalidInput:
            return None
        latency_us = (job.latency_us(0.5, self._course.window_s), job.latency_us(0.99, self._course.window_s))
        if job.plan is not plan:
            return None
        return Glimpse.of(plan.scheduler, plan.assignment, self._streams, profile, latency_us), profile

    def _pause(self, failing: str, since_s: float = 0.0) -> None:
        """A moment, in which the job must not end, and which must not be one too many."""
        if self._job.wait(LOOK_S):
            msg = f"the demo's job ended before it was told to: it is {self._job.status}; please report this"
            raise JobFailed(msg)
        if self._age_s > since_s + PATIENCE_S:
            msg = f"the demo's job {failing}; is the machine very busy? Run it again"
            raise JobFailed(msg)

    def _ask(self) -> None:
        """Have the job follow a plan of the last seconds, as a user may at any time; one who adapts may be faster."""
        course = self._course
        settings = {"goal": BYTES} if course.scheduler == SCHEDULER else None
        try:
            found = self._job.replan(
                course.scheduler, window=ASKED_LOOKS * course.window_s, settings=settings, apply=True
            )
        except InvalidInput:  # it goes over just now, or too little has been measured
            return
        self._has_asked = True
        if found.crossing is not None:
            self.foretold = found.plan.cost
            self._screen.say(
                f"{self._age_s:5.1f} s  the machine is too busy for looks to be sure of a plan; the one of the last "
                f"{ASKED_LOOKS * course.window_s:g} s is followed: {counted(len(found.moves), 'task')} moved"
            )

    def _say_start(self) -> None:
        slots = set(self._first.assignment.values())
        self._screen.say(
            f"{self._job.name}: {len(self._first.assignment)} tasks in {counted(len(slots), 'worker')} on "
            f"{counted(len({slot.node for slot in slots}), 'executor')} of this machine, placed by 'even', round "
            f"robin. {self._course.rows_per_second:,.0f} trips come a second. Every {self._course.window_s:g} s the "
            f"job looks at itself, and asks '{self._course.scheduler}' for a better plan."
        )

    def _last_words(self) -> str:
        return f" ({self._job.decisions[-1].words})" if self._job.decisions else ""

    def _tell_decisions(self) -> None:
        decisions = list(self._job.decisions)
        for decision in decisions[self._told :]:
            if decision.taken:
                self.foretold = decision.figures["bytes_then"]
            self._screen.say(f"{self._age_s:5.1f} s  {decision.words}")
        self._told = len(decisions)

    def _draw(self, now: Glimpse | None) -> None:
        if self._before is None:
            self._screen.show(f"{self._age_s:5.1f} s  measuring")
            return
        self._screen.show(
            graph_table(self.operators, self._streams, self._before, now),
            "",
            figures_table(self._before, now, self.foretold, "now"),
            f"{self._age_s:5.1f} s",
        )
