"""An item of the balancing paper: simulated runs in, CSV, picture and page with verdicts out.

Everything here is simulated (`simulate/region.py`), and every page says so. The paper prints its curves without
numbers, so the statements of its text are checked.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_lab.bench.machine import machine_line
from penstock_lab.reproduce.item import Report, prepare_folder
from penstock_lab.reproduce.measure import Progress
from penstock_lab.reproduce.statements import Figures, Statement, Verdict, judged, not_run
from penstock_lab.simulate.experiments import RUN_S

PAPER = "Dynamic Load Balancing for Ordered Data-Parallel Regions (IBM)"
Cell = str | float | None
Row = dict[str, Cell]
ROWS_SHOWN_MAX = 60  # on the page; the CSV has all rows


@dataclass(frozen=True, slots=True)
class Scale:
    """How large the experiments are; tests use small ones."""

    depth_s: float = 500.0  # in-depth runs (figures 5, 8, 11, 12)
    run_s: float = RUN_S  # what the oracle takes in figures 9, 10, 11 and 13
    replicas_max: int = 64


FULL = Scale()


@dataclass(frozen=True)
class Finding:
    """A published statement with what we found; `held` is None where its sizes were left out."""

    section: str
    text: str
    held: bool | None
    evidence: str

    def judged(self) -> tuple[Statement, Verdict]:
        """The statement and verdict for the report; the check has been done already."""
        verdict = not_run(self.evidence) if self.held is None else judged(self.held, self.evidence)

        def done(_: Figures) -> Verdict:
            return verdict

        return Statement(self.section, self.text, done), verdict


@dataclass(frozen=True)
class Outcome:
    """What an item's runs gave."""

    rows: list[Row]
    draw: Callable[[Path], Path]
    findings: list[Finding]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class BalanceItem:
    """One published figure."""

    name: str
    title: str
    section: str
    make: Callable[[Callable[[str], None], Scale], Outcome]
    steps: int  # how often `make` reports progress

    def run(self, out_dir: Path, progress: Progress, *, scale: Scale = FULL) -> Report:
        """Simulate, draw and write."""
        prepare_folder(out_dir)
        seen = 0

        def step(text: str) -> None:
            nonlocal seen
            progress(min(seen, self.steps), self.steps, text)
            seen += 1

        outcome = self.make(step, scale)
        progress(self.steps, self.steps, "simulated")
        report = Report(
            self.name,
            self.title,
            _write_rows(outcome.rows, out_dir / f"{self.name}.csv"),
            outcome.draw(out_dir / f"{self.name}.png"),
            out_dir / f"{self.name}.md",
            tuple(finding.judged() for finding in outcome.findings),
        )
        _write_page(self, report, outcome)
        return report


def _write_rows(rows: Sequence[Row], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return path


def _plain(value: Cell) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.6g}"


def _write_page(item: BalanceItem, report: Report, outcome: Outcome) -> None:
    shown = outcome.rows[:ROWS_SHOWN_MAX]
    names = list(shown[0])
    more = f" The first {len(shown)} of {len(outcome.rows)} rows." if len(outcome.rows) > len(shown) else ""
    lines = [
        f"# {item.name}: {item.title}",
        "",
        f"**Simulated** under virtual time. Source: {PAPER}, section {item.section}. Machine: {machine_line()}.",
        "",
        f"![{item.title}]({report.picture.name})",
        "",
        "## Published, and ours",
        "",
        "| section | published | ours, simulated | verdict |",
        "|---|---|---|---|",
        *(f"| {s.section} | {s.text} | {v.evidence} | **{v.word}** |" for s, v in report.verdicts),
        "",
        *(["## Remarks", "", *(f"- {remark}" for remark in outcome.remarks), ""] if outcome.remarks else []),
        "## Figures",
        "",
        f"All rows: [{report.csv.name}]({report.csv.name}).{more}",
        "",
        "| " + " | ".join(names) + " |",
        "|" + "--:|" * len(names),
        *("| " + " | ".join(_plain(row[name]) for name in names) + " |" for row in shown),
    ]
    report.page.write_text("\n".join(lines) + "\n", encoding="utf-8")
