"""Measurements behind the published figures of both Otago papers: every layout, cluster and size with every scheduler.

Eight figures share this code: an item names its layouts and runs, and gets rows. Costs come from certified plans. Times
are the median of `repeats` runs in one process, so the first run's imports and caches do not count. A scheduler that
finds no plan gives a row that says so (`test_scheduler_without_a_plan_is_reported`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.apps.layouts import LAYOUTS, published_clusters
from penstock.errors import UserError
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Options

Progress = Callable[[int, int, str], None]
REPEATS = 3


class Place(Protocol):
    """The signature of `penstock.optimise.door.place`; tests hand in their own."""

    def __call__(self, graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        """A certified plan, or a UserError."""


@dataclass(frozen=True)
class Run:
    """A scheduler with its options, under the label that figures and pages use."""

    label: str
    scheduler: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, order=True)
class Case:
    """One instance of section 5."""

    layout: str
    cluster: str
    tasks: int

    def __str__(self) -> str:
        return f"{self.layout}/{self.cluster}/{self.tasks}"


@dataclass(frozen=True)
class Row:
    """What one run gave on one case; `cost` is None where it found no plan, and `failure` says why."""

    case: Case
    run: str
    cost: float | None
    seconds: float | None
    lower_bound: float | None = None
    proved_optimal: bool = False
    nodes_used: int | None = None
    costs_agree: bool = True  # over the repeats
    notes: tuple[str, ...] = ()
    failure: str = ""


@dataclass
class Measurements:
    """Rows by case and run; kept across items, because a cost figure and its time figure need the same runs."""

    place: Place
    repeats: int = REPEATS
    rows: dict[tuple[Case, str], Row] = field(default_factory=dict)

    def take(self, wanted: Sequence[tuple[Case, Run]], progress: Progress) -> None:
        """Measure the wanted pairs that are not known yet; progress counts all wanted pairs."""
        clusters = published_clusters()
        for done, (case, run) in enumerate(wanted):
            progress(done, len(wanted), f"{run.label} on {case}")
            if (case, run.label) not in self.rows:
                graph, cluster = LAYOUTS[case.layout](case.tasks), clusters[case.cluster]
                self.rows[case, run.label] = self._measure(case, run, graph, cluster)
        progress(len(wanted), len(wanted), "measured")

    def _measure(self, case: Case, run: Run, graph: OperatorGraph, cluster: Cluster) -> Row:
        try:
            plans = [self.place(graph, cluster, run.scheduler, options=run.options) for _ in range(self.repeats)]
        except UserError as error:
            return Row(case, run.label, None, None, failure=str(error))
        last = plans[-1]
        return Row(
            case,
            run.label,
            last.cost,
            statistics.median(plan.seconds for plan in plans),
            last.lower_bound,
            last.proved_optimal,
            last.nodes_used,
            len({plan.cost for plan in plans}) == 1,
            last.notes,
        )


def cases_of(layouts: Iterable[str], sizes: Iterable[int]) -> list[Case]:
    """Every case of the layouts on both clusters of Table 3."""
    return [Case(layout, cluster, n) for layout in layouts for cluster in published_clusters() for n in sizes]
