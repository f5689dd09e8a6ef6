"""How long the stream of a task stands still when it moves, what others notice, and what a stop and restart takes.

The same job, on three workers, has its task moved to and fro; before each move it is left alone for as long as the move
is watched. The pause is the longest time in which no new row came out around the move. A stop and restart is what one
does without moves: a savepoint, the end of the job, and the same job begun at that savepoint.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.deploy import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InternalError, PenstockError
from penstock_lab.bench.adapt import jobs
from penstock_lab.bench.adapt.gaps import (
    Arrival,
    Window,
    largest_gap_s,
    late_ms,
    new_ones,
    percentile,
    rows_per_second,
)
from penstock_lab.bench.contract import Progress, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_SECOND = 4_000.0
WATCHED_S = 2.0  # around a move at least, and as long without one
BEHIND_S = 0.5  # behind a move
ON_TIME_S = 0.5  # less is on schedule
PATIENCE_S = 180.0  # until state is filled and rows are on schedule
LAST_BYTES = 1_024  # of notes, in which the newest are
INTERVAL_S = 5.0  # between two epochs; a move has one of its own


@dataclass(frozen=True, slots=True)
class Case:
    """How much state moves, of which kind, how often, and what runs beside."""

    state: str  # native or python
    megabytes: int
    moves: int
    restarts: int = 0
    others: str = "paced"  # or at full speed


@dataclass(slots=True)
class Watched:
    """What one case showed."""

    quiet: list[Window] = field(default_factory=list)
    asked: list[Window] = field(default_factory=list)  # from asking for a move to its answer
    around: list[Window] = field(default_factory=list)
    stood_s: list[float] = field(default_factory=list)  # by the job's own word
    restarts: list[Window] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    came: dict[str, list[Arrival]] = field(default_factory=dict)  # new rows, by sink


def watch(spark: SparkSession, case: Case, progress: Progress) -> Watched:
    """Run the case's job, and move and restart it as often as the case says."""
    found = Watched()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        run = _Run(spark, case, folder)
        progress(f"{_named(case)}: filling")
        run.begin()
        try:
            for number in range(case.moves):
                progress(f"{_named(case)}: move {number + 1} of {case.moves}")
                run.move(found)
            for number in range(case.restarts):
                progress(f"{_named(case)}: restart {number + 1} of {case.restarts}")
                run.restart(found, f"restart-{number}")
            run.linger()
        finally:
            run.job.cancel()
        found.came = {name: new_ones(jobs.arrivals(folder, name)) for name in (jobs.STATE, *jobs.OTHERS)}
    return found


class _Run:
    """The job of a case while it is watched."""

    job: Job

    def __init__(self, spark: SparkSession, case: Case, folder: str) -> None:
        self._spark, self._case, self._folder = spark, case, folder

    def begin(self, savepoint: str | None = None) -> None:
        """Start it, and wait until rows are on schedule."""
        case = self._case
        top = jobs.watched(
            self._folder, case.state, case.megabytes, ROWS_PER_SECOND, others_paced=case.others == "paced"
        )
        self.job = top.start(
            self._spark,
            workers=3,
            checkpoint=Path(self._folder, "kept"),
            checkpoint_interval_s=INTERVAL_S,
            from_savepoint=savepoint,
        )
        self._await_schedule(self._newest())

    def move(self, found: Watched) -> None:
        """Leave it alone, then move the task, and wait until all rows are on schedule again."""
        at_rest = time.time()
        self._wait(WATCHED_S)
        found.quiet.append(Window(at_rest, at_rest + WATCHED_S))
        places = self.job.worker_of
        target = next(
            worker for other in jobs.OTHERS if (worker := places[f"other-{other}/0"]) != places[f"{jobs.STATE}/0"]
        )
        before, asked = self._newest(), time.time()
        try:
            crossing = self.job.move(jobs.STATE, target)
        except PenstockError as error:
            found.failures.append(str(error))  # and what it took the stream counts all the same
        else:
            found.stood_s.append(crossing.seconds)
        answered = time.time()
        found.asked.append(Window(asked, answered))
        self._await_schedule(before)
        found.around.append(Window(asked, max(answered + BEHIND_S, asked + WATCHED_S)))
        self._wait(max(0.0, found.around[-1].end_s - time.time()))

    def restart(self, found: Watched, name: str) -> None:
        """Stop it at a savepoint and begin there again."""
        self._wait(WATCHED_S)
        before, asked = self._newest(), time.time()
        self.job.savepoint(name, timeout=PATIENCE_S)
        self.job.cancel()
        self.begin(name)
        self._await_schedule(before)
        found.restarts.append(Window(asked, time.time()))

    def linger(self) -> None:
        """Until rows have come behind the last window."""
        self._wait(BEHIND_S)
        self._await_schedule(self._newest())

    def _await_schedule(self, since: int) -> None:
        """Until new rows come that are on time."""

        def on_time() -> bool:
            self._require_running()
            newest = new_ones(jobs.arrivals(self._folder, jobs.STATE, LAST_BYTES))
            return bool(newest) and newest[-1].last > since and newest[-1].late_s < ON_TIME_S

        if not wait_until(on_time, PATIENCE_S, 0.2):
            msg = f"rows of {_named(self._case)} are not on schedule after {PATIENCE_S:.0f} s; is the machine busy?"
            raise InternalError(msg)

    def _newest(self) -> int:
        return max((arrival.last for arrival in jobs.arrivals(self._folder, jobs.STATE, LAST_BYTES)), default=-1)

    def _wait(self, seconds: float) -> None:
        if self.job.wait(seconds):
            self._require_running()

    def _require_running(self) -> None:
        if self.job.wait(0.0):
            msg = f"the job of {_named(self._case)} has ended: {self.job.error or self.job.status}"
            raise InternalError(msg)


def pause_row(case: Case, found: Watched) -> Row:
    """The pause of the stream that passes the moved task."""
    came = found.came[jobs.STATE]
    pauses = [1e3 * largest_gap_s(came, window) for window in found.around]
    quiet = [1e3 * largest_gap_s(came, window) for window in found.quiet]
    restarts = [1e3 * largest_gap_s(came, window) for window in found.restarts]
    return {
        "state": case.state,
        "mb": case.megabytes,
        "moves": len(pauses),
        "pause_p50_ms": percentile(pauses, 0.5),
        "pause_p99_ms": percentile(pauses, 0.99),
        "at_rest_p50_ms": percentile(quiet, 0.5),
        "at_rest_p99_ms": percentile(quiet, 0.99),
        "stood_p50_ms": percentile([1e3 * s for s in found.stood_s], 0.5),
        "answered_p50_ms": percentile([1e3 * (window.end_s - window.begin_s) for window in found.asked], 0.5),
        "failed": len(found.failures),
        "restart_p50_ms": percentile(restarts, 0.5),
        "restarts": len(restarts),
    }


def others_row(case: Case, found: Watched) -> Row:
    """What the two other streams noticed, together."""
    rates, at_rest = _both(found, found.asked), _both(found, found.quiet)
    latency = [late_ms(found.came[other], found.around, 0.99) for other in jobs.OTHERS]
    latency_at_rest = [late_ms(found.came[other], found.quiet, 0.99) for other in jobs.OTHERS]
    p99, p99_at_rest = (max((ms for ms in both if ms is not None), default=None) for both in (latency, latency_at_rest))
    is_paced = case.others == "paced"
    return {
        "others": case.others,
        "state": case.state,
        "mb": case.megabytes,
        "rows_per_s": rates,
        "at_rest_rows_per_s": at_rest,
        "fall": 1 - rates / at_rest if rates is not None and at_rest else None,
        "p99_ms": p99 if is_paced else None,  # rows at full speed are due when they come
        "at_rest_p99_ms": p99_at_rest if is_paced else None,
        "latency_ratio": p99 / p99_at_rest if is_paced and p99 is not None and p99_at_rest else None,
    }


def _both(found: Watched, windows: Sequence[Window]) -> float | None:
    rates = [rows_per_second(found.came[other], windows) for other in jobs.OTHERS]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _named(case: Case) -> str:
    return f"{case.megabytes} MB of {case.state} state, others {case.others}"
