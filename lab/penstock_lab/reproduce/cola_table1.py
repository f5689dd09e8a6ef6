"""Table 1 of COLA (paper 004, section 4): cut and largest worker of NONE, FINT and COLA on 4 to 7 hosts.

The published profiles are not public, so the graphs are synthetic (`apps/vwap.py`), of the published sizes. Each row's
costs are scaled by one factor, so that all streams together cost as much as NONE's published cut; no other number is
taken from the paper. Hosts have capacity 1.0 and workers threads enough, as PEs have. COLA is the basic variant, which
the paper's experiments measured; `best` is ours. Claims of the paper are checked on our table and on the printed one,
so that a reader sees how firm they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.apps.vwap import STREAMS_IN_ALL, vwap
from penstock.errors import UserError
from penstock.model.cluster import Cluster
from penstock.model.topology import OperatorGraph
from penstock.observe.charts import Labels, Panel, Series, draw_small_multiples
from penstock_lab.reproduce.item import Report, prepare_folder
from penstock_lab.reproduce.measure import Progress
from penstock_lab.reproduce.statements import Statement, Verdict, judged
from penstock_lab.reproduce.table_page import write_table_page, write_table_rows
from penstock_lab.reproduce.words import far_less, meaning, notably_less

HOSTS = (4, 5, 6, 7)
JOBS = {"VWAP1": 200, "VWAP2": 217}
ROWS = tuple((job, hosts) for job in JOBS for hosts in HOSTS)
METHODS = {"NONE": "none", "FINT": "fint", "COLA": "cola-basic", "best (ours)": "best"}
OFTEN = 0.5  # "often": in at least half of the rows
Key = tuple[str, int, str]  # job, hosts, method


@dataclass(frozen=True)
class Entry:
    """Cut and largest worker in fractions of a host; None where there is no plan, and why."""

    cut: float | None
    largest: float | None
    failure: str = ""


Table = Mapping[Key, Entry]
Measure = Callable[[OperatorGraph, Cluster, str], Entry]


def published() -> dict[Key, Entry]:
    """The table as printed: for each job and number of blades, cut and largest PE of the three methods."""
    printed = {
        ("VWAP1", 4): (0.3792, 0.3218, 0.0661, 0.5353, 0.0332, 0.4990),
        ("VWAP1", 5): (0.3703, 0.2980, 0.0441, 0.5476, 0.0587, 0.4676),
        ("VWAP1", 6): (0.7236, 0.8169, 0.2698, 0.8169, 0.1998, 0.7560),
        ("VWAP1", 7): (0.6833, 0.6697, 0.2492, 0.6697, 0.1860, 0.6666),
        ("VWAP2", 4): (0.3544, 0.3677, 0.0618, 0.4185, 0.0618, 0.4185),
        ("VWAP2", 5): (0.5740, 0.6030, 0.2577, 0.6030, 0.1530, 0.5547),
        ("VWAP2", 6): (0.5571, 0.5764, 0.3367, 0.5764, 0.1552, 0.5294),
        ("VWAP2", 7): (0.5888, 0.5813, 0.2600, 0.5813, 0.1587, 0.5813),
    }
    return {
        (job, hosts, method): Entry(row[2 * i], row[2 * i + 1])
        for (job, hosts), row in printed.items()
        for i, method in enumerate(("NONE", "FINT", "COLA"))
    }


@dataclass(frozen=True)
class TableItem:
    """The table as an item of `penstock reproduce`."""

    name: str = "cola-table1"
    title: str = "Cut of NONE, FINT and COLA on synthetic VWAP graphs"
    paper: str = "COLA paper (Middleware 2009), section 4, Table 1"

    def run(self, out_dir: Path, progress: Progress, *, measure: Measure | None = None) -> Report:
        """Fuse every row by every method, judge, draw and write."""
        prepare_folder(out_dir)
        ours = measured(measure or fused, progress)
        verdicts = tuple(judgements(ours))
        report = Report(
            self.name,
            self.title,
            write_table_rows(ours, published(), out_dir / f"{self.name}.csv"),
            _draw(ours, self, out_dir / f"{self.name}.png"),
            out_dir / f"{self.name}.md",
            verdicts,
        )
        write_table_page(self, report, ours, published())
        return report


def measured(measure: Measure, progress: Progress) -> Table:
    """Our table."""
    wanted = [(job, hosts, method) for job, hosts in ROWS for method in METHODS]
    entries: dict[Key, Entry] = {}
    for done, (job, hosts, method) in enumerate(wanted):
        progress(done, len(wanted), f"{job} on {hosts} hosts, {method}")
        cluster = Cluster.uniform([(hosts, 1.0)], worker_capacity=None)  # PEs have threads
        entries[job, hosts, method] = measure(scaled_job(job, hosts), cluster, METHODS[method])
    return entries


def scaled_job(job: str, hosts: int) -> OperatorGraph:
    """The job with streams that together cost as much as NONE's published cut on this number of hosts."""
    graph = vwap(JOBS[job])
    factor = (published()[job, hosts, "NONE"].cut or 0.0) / STREAMS_IN_ALL
    operators = tuple(replace(o, load=tuple(factor * load for load in o.loads())) for o in graph.operators)
    streams = tuple(replace(s, rate=factor * s.rate) for s in graph.streams if isinstance(s.rate, float))
    return OperatorGraph(graph.name, operators, streams)


def fused(graph: OperatorGraph, cluster: Cluster, method: str) -> Entry:
    """The result of a fusion method; NONE is the graph before any fusion and is not checked as a plan."""
    from penstock.optimise.fuse.contract import FuseOptions, find_method
    from penstock.optimise.fuse.door import figures_of, prepared

    try:
        case = prepared(graph, cluster, options=FuseOptions(balance=0.0))  # the table is about the cut
        figures = figures_of(case, find_method(method).load()(case))
    except UserError as error:
        return Entry(None, None, str(error))
    # C counts a cut stream at both of its ends; the printed cut of NONE is the streams' cost once.
    return Entry(figures.communication / 2, figures.largest_worker)


def judgements(ours: Table) -> list[tuple[Statement, Verdict]]:
    """The paper's claims about the table, each on ours and on the printed one."""
    claims: tuple[tuple[str, Callable[[Table], tuple[bool, str]]], ...] = (
        ("the cut sizes for COLA are significantly lower than the cut sizes for FINT", _cut_is_lower),
        ("COLA often maintains a maximum PE size which is smaller than that of FINT", _largest_is_smaller),
        ("FINT and COLA cut far less than NONE", _both_below_none),
    )
    found = []
    for text, check in claims:
        held, evidence = check(ours)
        verdict = judged(held, f"{evidence}; printed: {check(published())[1]}")
        found.append((_statement(text, verdict), verdict))
    return found


def _statement(text: str, verdict: Verdict) -> Statement:
    """A statement in the form of the other items; its verdict is known already."""
    return Statement("4", text, lambda _: verdict)


def _pairs(table: Table, of: str, beside: str) -> list[tuple[str, Entry, Entry]]:
    """(row, entry of one method, entry of the other) where both have a plan."""
    found = [(f"{job} on {hosts}", table[job, hosts, of], table[job, hosts, beside]) for job, hosts in ROWS]
    return [(row, a, b) for row, a, b in found if a.cut is not None and b.cut is not None]


def _cut_is_lower(table: Table) -> tuple[bool, str]:
    pairs = [(row, a.cut or 0.0, b.cut or 0.0) for row, a, b in _pairs(table, "COLA", "FINT")]
    parts = [a / b if b > 0 else 1.0 for _, a, b in pairs]
    wins = [row for row, a, b in pairs if b < a * (1 - 1e-9)]
    won = f"FINT cuts less on {', '.join(wins)}" if wins else "FINT never cuts less"
    mean = statistics.mean(parts) if parts else 1.0
    evidence = (
        f"COLA's cut is {mean:.2f} of FINT's on average of {len(parts)} rows; {won}; {meaning('significantly lower')}"
    )
    return bool(parts) and notably_less(mean, 1.0), evidence


def _largest_is_smaller(table: Table) -> tuple[bool, str]:
    pairs = _pairs(table, "COLA", "FINT")
    smaller = sum((a.largest or 0.0) < (b.largest or 0.0) * (1 - 1e-9) for _, a, b in pairs)
    return smaller >= OFTEN * len(pairs) > 0, f"smaller in {smaller} of {len(pairs)} rows"


def _both_below_none(table: Table) -> tuple[bool, str]:
    parts = {
        method: [(a.cut or 0.0) / (b.cut or 1.0) for _, a, b in _pairs(table, method, "NONE")] or [1.0]
        for method in ("FINT", "COLA")
    }
    evidence = ", ".join(
        f"{method} at most {max(found):.2f} of NONE, {statistics.mean(found):.2f} on average"
        for method, found in parts.items()
    )
    held = all(max(found) < 1.0 and far_less(statistics.mean(found), 1.0) for found in parts.values())
    return held, f"{evidence}; {meaning('far less')}"


def _draw(ours: Table, item: TableItem, path: Path) -> Path:
    printed = published()

    def panel(title: str, table: Table, job: str) -> Panel:
        shown = [method for method in METHODS if (job, HOSTS[0], method) in table]
        lines = (Series(method, HOSTS, tuple(table[job, hosts, method].cut for hosts in HOSTS)) for method in shown)
        return Panel(f"{job}, {title}", tuple(lines))

    grid = [[panel("published", printed, job), panel("ours, synthetic graph", ours, job)] for job in JOBS]
    labels = Labels(item.title, f"{item.paper}; the published job's profile is not public", "hosts", "cut")
    return draw_small_multiples(grid, path, labels)
