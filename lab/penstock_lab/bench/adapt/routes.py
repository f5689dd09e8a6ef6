"""Routes goes from `even` to better plans while it runs: what was foretold, what came, and what each scheduler makes.

Trips come at a steady rate, so that bytes of two times can be compared. A round measures under `even`, has `t3` plan
anew, goes over, and measures twice more: right behind, and once again. It is `t3` because that looks at bytes alone:
what `replan` asks of `best` is throughput, for which bytes need not fall. Of the schedulers each is asked by a job that
adapts, with the goal of fewer bytes between nodes and a short interval.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import penstock as ps
from penstock.apps.paced_trips import PacedTrips
from penstock.apps.trips import Trips
from penstock.deploy import Job, Replan, foretold_bytes
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InternalError, InvalidInput
from penstock.model.profile import Profile
from penstock_lab.bench.contract import Progress, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_SECOND = 6_000.0
METRIC_S = 0.5
SETTLING_S = 3.0  # behind a start or a move, which is not measured
PATIENCE_S = 120.0  # until something has been measured
LOOK_S = 0.2
INTERVAL_S = 2.5  # of jobs that adapt
HORIZON_INTERVALS, REST_INTERVALS = 10, 2
TASKS_MAX = 1_000
FEWER_BYTES = "t3"  # a scheduler that has no other goal


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long is measured, in seconds."""

    window_s: float = 8.0
    adapting_s: float = 30.0


class _Routes:
    """A running job."""

    def __init__(self, spark: SparkSession, folder: str, adapt: ps.AdaptSettings | None = None) -> None:
        trips = Trips(per_second=5.0, batch_rows=50)
        pace = PacedTrips(trips, ROWS_PER_SECOND, str(Path(folder, "closed")))
        self.job: Job = pace.topology().start(
            spark,
            scheduler="even",
            node="executor",
            interval_s=METRIC_S,
            checkpoint=Path(folder, "kept"),
            checkpoint_interval_s=1.0,
            adapt=adapt,
        )

    def wait(self, seconds: float) -> None:
        """So long, in which the job must not end."""
        if self.job.wait(seconds):
            msg = f"routes has ended: {self.job.error or self.job.status}"
            raise InternalError(msg)

    def measured(self, window_s: float) -> Profile:
        """The last so many seconds, all of which are behind the last move."""
        self.wait(SETTLING_S)

        def there() -> bool:
            try:
                self.job.profile(window_s)
            except InvalidInput:
                return False
            return True

        if not wait_until(there, PATIENCE_S, 0.2):
            msg = f"routes has measured nothing within {PATIENCE_S:.0f} s; is the machine very busy?"
            raise InternalError(msg)
        self.wait(window_s + METRIC_S)
        return self.job.profile(window_s)

    def node_of(self) -> dict[str, str]:
        """The node of each task, as it is now."""
        nodes = {place.index: place.node for place in self.job.places}
        return {task: nodes[worker] for task, worker in self.job.worker_of.items()}


def between_nodes(profile: Profile, node_of: Mapping[str, str]) -> float:
    """Bytes per second between tasks on different nodes."""
    return sum(edge.rate for edge in profile.edges if node_of[edge.source] != node_of[edge.target])


def replanned(spark: SparkSession, rounds: int, lengths: Lengths, progress: Progress) -> list[Row]:
    """One row for each round from `even` to a plan with fewer bytes between nodes."""
    rows: list[Row] = []
    for number in range(rounds):
        progress(f"routes, round {number + 1} of {rounds}: from even to {FEWER_BYTES}")
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            routes = _Routes(spark, folder)
            with routes.job as job:
                before = routes.measured(lengths.window_s)
                now, p50 = between_nodes(before, routes.node_of()), job.latency_us(0.5, lengths.window_s)
                found = job.replan(FEWER_BYTES, window=lengths.window_s, apply=True)
                after = routes.measured(lengths.window_s)
                again = routes.measured(lengths.window_s)
                rows.append(
                    {
                        "even_kb_s": now / 1e3,
                        "saved": 1 - between_nodes(after, routes.node_of()) / now if now else None,
                        **_agreement(found, now, after, again, routes.node_of()),
                        "moved": len(found.moves),
                        "stood_ms": None if found.crossing is None else 1e3 * found.crossing.seconds,
                        "even_p50_ms": p50 / 1e3,
                        "then_p50_ms": job.latency_us(0.5, lengths.window_s) / 1e3,
                    }
                )
    return rows


def _agreement(found: Replan, now: float, after: Profile, again: Profile, node_of: Mapping[str, str]) -> Row:
    """What the plan foretold at the throughput that there was then, beside what was measured twice."""
    figures: Row = {}
    for name, profile in (("", after), ("next_", again)):
        foretold = foretold_bytes(found.plan, profile.rows_per_second or 0.0)
        if foretold is None:
            msg = "a plan that was made from a profile foretells nothing; please report this"
            raise InternalError(msg)
        measured = between_nodes(profile, node_of)
        figures |= {
            f"{name}foretold_kb_s": foretold / 1e3,
            f"{name}measured_kb_s": measured / 1e3,
            f"{name}off": off(foretold, measured, now),
        }
    return figures


def off(foretold: float, measured: float, whole: float) -> float:
    """How far a figure is from what was foretold, as a share of that, or of a twentieth of what was there if more."""
    return abs(measured - foretold) / max(foretold, 0.05 * whole, 1.0)


def adapted(spark: SparkSession, schedulers: Sequence[str], lengths: Lengths, progress: Progress) -> list[Row]:
    """One row for each scheduler."""
    rows: list[Row] = []
    for number, name in enumerate(schedulers, start=1):
        progress(f"scheduler {number} of {len(schedulers)}: {name}")
        settings = ps.AdaptSettings(
            goals=ps.AdaptGoals("bytes"),
            interval_s=INTERVAL_S,
            horizon_s=HORIZON_INTERVALS * INTERVAL_S,
            rest_s=REST_INTERVALS * INTERVAL_S,
            moves_max=TASKS_MAX,
            scheduler=name,
        )
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            routes = _Routes(spark, folder, settings)
            with routes.job as job:
                rows.append({"scheduler": name, **_watched(routes, job, lengths)})
    return rows


def _watched(routes: _Routes, job: Job, lengths: Lengths) -> Row:
    """Watch a job that adapts for so long."""
    ends, first_places, even = time.monotonic() + lengths.adapting_s, dict(job.worker_of), None
    first_nodes = routes.node_of()
    while time.monotonic() < ends:
        with contextlib.suppress(InvalidInput):  # nothing is measured yet
            profile = job.profile(INTERVAL_S)
            if job.worker_of == first_places:
                even = between_nodes(profile, first_nodes)
        routes.wait(LOOK_S)
    last = between_nodes(routes.measured(INTERVAL_S), routes.node_of())
    taken = [decision for decision in job.decisions if decision.taken]
    foretold = taken[-1].figures["bytes_then"] if taken else None
    began_s = (job.worked or (time.time(), 0.0))[0] + time.monotonic() - time.time()
    return {
        "even_kb_s": None if even is None else even / 1e3,
        "kb_s": last / 1e3,
        "saved": None if not even else 1 - last / even,
        "foretold_kb_s": None if foretold is None else foretold / 1e3,
        "replans": len(taken),
        "tasks_moved": job.moves,
        "settled_s": taken[-1].now_s - began_s if taken else None,
        "p50_ms": job.latency_us(0.5, INTERVAL_S) / 1e3,
        "last_words": job.decisions[-1].words if job.decisions else "",
    }
