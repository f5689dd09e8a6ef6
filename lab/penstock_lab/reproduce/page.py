"""The files of a reproduced figure: its rows as CSV, its page and the index as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock_lab.bench.machine import machine_line
from penstock_lab.reproduce.measure import Row
from penstock_lab.reproduce.statements import OPTIMUM, Figures
from penstock_lab.reproduce.time_statements import spoken

if TYPE_CHECKING:
    from penstock_lab.reproduce.item import Item, Report

COLUMNS = (
    "layout",
    "cluster",
    "tasks",
    "run",
    "cost",
    "seconds",
    "lower_bound",
    "proved_optimal",
    "nodes_used",
    "costs_agree",
    "notes",
    "failure",
)


def write_rows(rows: Sequence[Row], path: Path) -> Path:
    """Every row, one line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(
            (
                row.case.layout,
                row.case.cluster,
                row.case.tasks,
                row.run,
                _plain(row.cost),
                _plain(row.seconds),
                _plain(row.lower_bound),
                str(row.proved_optimal).lower(),
                _plain(row.nodes_used),
                str(row.costs_agree).lower(),
                "; ".join(row.notes),
                row.failure,
            )
            for row in rows
        )
    return path


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def write_page(item: Item, report: Report, figures: Figures, repeats: int) -> None:
    """The published statements beside our figures."""
    rows = list(figures.rows.values())
    lines = [
        f"# {item.name}: {item.title}",
        "",
        f"Source: {item.paper}. Machine: {machine_line()}. Times are medians of {repeats} runs in one process.",
        "",
        f"![{item.title}]({report.picture.name})",
        "",
        "## Published, and ours",
        "",
        "| section | published | ours | verdict |",
        "|---|---|---|---|",
        *(f"| {s.section} | {_cell(s.text)} | {_cell(v.evidence)} | **{v.word}** |" for s, v in report.verdicts),
        "",
        *_remarks(item, figures),
        "## All figures",
        "",
        *_table(item, rows),
        "",
        f"Every row, with bounds and notes: [{report.csv.name}]({report.csv.name}).",
    ]
    report.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _remarks(item: Item, figures: Figures) -> list[str]:
    rows = list(figures.rows.values())
    optimum = [row for row in rows if row.run == OPTIMUM]
    proved = sum(row.proved_optimal for row in optimum)
    found = [f"The optimum is proved in {proved} of {len(optimum)} cases."] if optimum else []
    for run in dict.fromkeys(row.run for row in rows):
        failed = [row for row in rows if row.run == run and row.failure]
        if failed:
            found.append(f"{run} gave no plan in {len(failed)} cases, first {failed[0].case}: {failed[0].failure}")
        noted = [row for row in rows if row.run == run and row.notes]
        if noted:
            found.append(f"{run} left a note in {len(noted)} cases, first {noted[0].case}: {noted[0].notes[0]}")
    texts = (*item.remarks, *item.findings(figures), *found)
    return ["## Remarks", "", *(f"- {_cell(text)}" for text in texts), ""]


def _table(item: Item, rows: Sequence[Row]) -> list[str]:
    labels = [run.label for run in item.runs]
    by_case: dict[tuple[str, str, int], dict[str, str]] = {}
    for row in rows:
        if row.case.layout in item.layouts:
            key = (row.case.layout, row.case.cluster, row.case.tasks)
            by_case.setdefault(key, {})[row.run] = _figure(item, row)
    head = ["| layout | cluster | tasks | " + " | ".join(labels) + " |", "|---|---|--:|" + "--:|" * len(labels)]
    return head + [
        f"| {layout} | {cluster} | {tasks} | " + " | ".join(found.get(label, "") for label in labels) + " |"
        for (layout, cluster, tasks), found in by_case.items()
    ]


def _figure(item: Item, row: Row) -> str:
    value = row.cost if item.quantity == "cost" else row.seconds
    if value is None:
        return "no plan"
    return f"{value:g}" if item.quantity == "cost" else spoken(value)


def write_index(reports: Sequence[Report], path: Path) -> Path:
    """One line per item, with its verdicts."""
    lines = [
        "# Published figures, reproduced",
        "",
        f"Machine: {machine_line()}.",
        "",
        "| item | shows | holds | differs | not run |",
        "|---|---|--:|--:|--:|",
        *(
            f"| [{r.item}]({r.page.name}) | {_cell(r.title)} | {r.count('holds')} | {r.count('differs')} "
            f"| {r.count('not run')} |"
            for r in reports
        ),
        "",
        "## What differs",
        "",
        *(
            f"- [{r.item}]({r.page.name}), section {s.section}: {s.text}. Ours: {v.evidence}."
            for r in reports
            for s, v in r.verdicts
            if v.word == "differs"
        ),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
