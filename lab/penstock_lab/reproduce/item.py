"""An item: one published figure, declared as layouts, runs and statements; its `run` measures, draws and writes.

Each item leaves three files: NAME.csv (every measured row), NAME.png (ours, with what the paper prints) and NAME.md
(the published statements, our numbers and a verdict on each).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.apps.layouts import PUBLISHED_SIZES
from penstock.errors import InvalidInput
from penstock.observe.charts import Labels, Panel, Published, Series, draw_small_multiples
from penstock.optimise.contract import Options
from penstock_lab.reproduce.measure import REPEATS, Case, Measurements, Place, Progress, Row, Run, cases_of
from penstock_lab.reproduce.page import write_page, write_rows
from penstock_lab.reproduce.statements import OPTIMUM, Figures, Statement, Verdict

CLUSTER_TITLES = {"homogeneous": "10 nodes of 4", "heterogeneous": "3 nodes of 6, 3 of 4, 4 of 2"}
OPTIMUM_RUN = Run(OPTIMUM, "exact", Options(theta=60.0))
BEST_RUN = Run("best (ours)", "best")


@dataclass(frozen=True)
class Report:
    """What an item wrote and found."""

    item: str
    title: str
    csv: Path
    picture: Path
    page: Path
    verdicts: tuple[tuple[Statement, Verdict], ...]

    def count(self, word: str) -> int:
        """How many statements got that verdict."""
        return sum(1 for _, verdict in self.verdicts if verdict.word == word)


@dataclass(frozen=True)
class PublishedTime:
    """A resolution time that a paper prints."""

    case: Case
    seconds: float


@dataclass(frozen=True)
class PublishedMiss:
    """A cost above the optimum that a paper prints."""

    case: Case
    cost: float
    optimum: float


@dataclass(frozen=True)
class Item:
    """One published figure."""

    name: str
    title: str
    paper: str
    quantity: Literal["cost", "seconds"]
    layouts: tuple[str, ...]
    runs: tuple[Run, ...]
    statements: tuple[Statement, ...]
    beside: tuple[str, ...] = ()  # layouts whose optimum a statement compares with, not drawn
    times: tuple[PublishedTime, ...] = ()
    misses: tuple[PublishedMiss, ...] = ()
    limit: tuple[float, str] | None = None
    remarks: tuple[str, ...] = ()
    findings: Callable[[Figures], tuple[str, ...]] = lambda figures: ()  # remarks that depend on what was measured

    def run(
        self,
        out_dir: Path,
        progress: Progress,
        *,
        place: Place | None = None,
        sizes: Sequence[int] = PUBLISHED_SIZES,
        repeats: int = REPEATS,
        measurements: Measurements | None = None,
    ) -> Report:
        """Measure, draw and write; `measurements` of an earlier item are used and added to."""
        prepare_folder(out_dir)
        measurements = measurements or Measurements(place or door(), repeats)
        wanted = [(case, run) for case in cases_of(self.layouts, sizes) for run in self.runs]
        wanted += [(case, OPTIMUM_RUN) for case in cases_of(self.beside, sizes)]
        measurements.take(wanted, progress)
        rows = {(case, run.label): measurements.rows[case, run.label] for case, run in wanted}
        figures = Figures(rows)
        verdicts = tuple((statement, statement.check(figures)) for statement in self.statements)
        report = Report(
            self.name,
            self.title,
            write_rows(list(rows.values()), out_dir / f"{self.name}.csv"),
            self._draw(figures, out_dir / f"{self.name}.png"),
            out_dir / f"{self.name}.md",
            verdicts,
        )
        write_page(self, report, figures, measurements.repeats)
        return report

    def _draw(self, figures: Figures, path: Path) -> Path:
        by_cost = self.quantity == "cost"
        labels = Labels(
            title=self.title,
            subtitle=f"{self.paper}, reproduced; both clusters of its Table 3",
            x="tasks",
            y="traffic between nodes" if by_cost else "resolution time in seconds",
            log_y=not by_cost,
            level=self.limit,
        )
        clusters = list(CLUSTER_TITLES)
        if len(self.layouts) == 1:
            grid = [[self._panel(figures, self.layouts[0], cluster) for cluster in clusters]]
            if by_cost:  # lines that miss the optimum by one part in a hundred look equal, so the miss has its own row
                grid.append([self._excess_panel(figures, self.layouts[0], cluster) for cluster in clusters])
            return draw_small_multiples(grid, path, labels)
        grid = [[self._panel(figures, layout, cluster) for layout in self.layouts] for cluster in clusters]
        return draw_small_multiples(grid, path, labels, share_y="col" if by_cost else "all")

    def _panel(self, figures: Figures, layout: str, cluster: str) -> Panel:
        series = []
        for run in self.runs:
            rows = figures.of(run.label, layout, cluster)
            series.append(Series(run.label, tuple(row.case.tasks for row in rows), tuple(map(self._value, rows))))
        stars = [
            Published(time.case.tasks, time.seconds, f"CPLEX {time.seconds:,.0f} s")
            for time in self.times
            if (time.case.layout, time.case.cluster) == (layout, cluster) and self.quantity == "seconds"
        ]
        return Panel(f"{layout}, {CLUSTER_TITLES[cluster]}", tuple(series), tuple(stars))

    def _excess_panel(self, figures: Figures, layout: str, cluster: str) -> Panel:
        """How far above the optimum each run is, in per cent of the optimum."""
        series = []
        for run in self.runs:
            rows = [row for row in figures.of(run.label, layout, cluster) if figures.at(OPTIMUM, row.case) is not None]
            excess = tuple(_per_cent_above(row.cost, figures.rows[row.case, OPTIMUM].cost) for row in rows)
            series.append(Series(run.label, tuple(row.case.tasks for row in rows), excess))
        stars = [
            Published(miss.case.tasks, 100 * (miss.cost / miss.optimum - 1), f"{miss.cost:g} against {miss.optimum:g}")
            for miss in self.misses
            if (miss.case.layout, miss.case.cluster) == (layout, cluster)
        ]
        return Panel("above the optimum", tuple(series), tuple(stars), y="per cent above the optimum")

    def _value(self, row: Row) -> float | None:
        return row.cost if self.quantity == "cost" else row.seconds


def _per_cent_above(cost: float | None, optimum: float | None) -> float | None:
    return None if cost is None or not optimum else 100 * (cost / optimum - 1)


def prepare_folder(path: Path) -> None:
    """Make the folder before the long work, or say why it cannot take files."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"folder {str(path)!r} cannot be made ({error.strerror}); choose another with --out"
        raise InvalidInput(msg) from error
    if not os.access(path, os.W_OK):
        msg = f"folder {str(path)!r} is not writable; choose another with --out"
        raise InvalidInput(msg)


def door() -> Place:
    """The real door, imported when it is used."""
    from penstock.optimise.door import place

    return place
