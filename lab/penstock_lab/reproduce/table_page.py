"""The files of a reproduced table: its entries as CSV and its page as Markdown, ours beside the printed ones."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from penstock_lab.bench.machine import machine_line

if TYPE_CHECKING:
    from penstock_lab.reproduce.cola_table1 import Entry, Table, TableItem
    from penstock_lab.reproduce.item import Report

COLUMNS = ("job", "hosts", "method", "cut", "largest_worker", "published_cut", "published_largest_worker", "failure")


def write_table_rows(ours: Table, printed: Table, path: Path) -> Path:
    """Every entry, one line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (job, hosts, method), entry in ours.items():
            beside = printed.get((job, hosts, method))
            figures = (entry.cut, entry.largest, beside and beside.cut, beside and beside.largest)
            cells = ("" if figure is None else f"{figure:.6g}" for figure in figures)
            writer.writerow((job, hosts, method, *cells, entry.failure))
    return path


def write_table_page(item: TableItem, report: Report, ours: Table, printed: Table) -> None:
    """The claims with verdicts, and the table: cut / largest worker, ours with the printed one in brackets."""
    methods = list(dict.fromkeys(method for _, _, method in ours))
    rows = list(dict.fromkeys((job, hosts) for job, hosts, _ in ours))
    failures = [
        f"- {job} on {hosts} hosts, {method}: {e.failure}" for (job, hosts, method), e in ours.items() if e.failure
    ]
    lines = [
        f"# {item.name}: {item.title}",
        "",
        f"Source: {item.paper}. Machine: {machine_line()}.",
        "",
        "**The graphs are synthetic**: of the published sizes, but drawn by us, since neither the job's graph nor its "
        "profile is public. Every row is scaled so that NONE's cut is the printed one; all else is computed. Absolute "
        "figures of the other methods cannot agree with the printed ones; how the methods stand to each other can.",
        "",
        f"![{item.title}]({report.picture.name})",
        "",
        "| section | published | ours | verdict |",
        "|---|---|---|---|",
        *(f"| {s.section} | {s.text} | {v.evidence} | **{v.word}** |" for s, v in report.verdicts),
        "",
        "## Cut / largest worker, ours (printed)",
        "",
        "| job | hosts | " + " | ".join(methods) + " |",
        "|---|--:|" + "--:|" * len(methods),
        *(
            f"| {job} | {hosts} | "
            + " | ".join(_cell(ours[job, hosts, m], printed.get((job, hosts, m))) for m in methods)
            + " |"
            for job, hosts in rows
        ),
        "",
        *(["## No plan", "", *failures, ""] if failures else []),
        f"Every entry: [{report.csv.name}]({report.csv.name}).",
    ]
    report.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(entry: Entry, printed: Entry | None) -> str:
    own = "no plan" if entry.cut is None else f"{entry.cut:.4f} / {entry.largest:.4f}"
    return own if printed is None else f"{own} ({printed.cut:.4f} / {printed.largest:.4f})"
