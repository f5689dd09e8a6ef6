"""Reproduction: every item writes its files, verdicts follow the numbers, and failures are told instead of hidden.

The schedulers are stand-ins handed in as `place`, so these tests are about the pages and not about the algorithms.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.certificate import make_plan
from penstock.optimise.contract import Options, Placement, Problem
from penstock_lab.bench.machine import machine_line
from penstock_lab.reproduce import ITEMS, Item, find_item, reproduce
from penstock_lab.reproduce import statements as cost
from penstock_lab.reproduce import time_statements as time
from penstock_lab.reproduce.measure import Case, Row
from penstock_lab.reproduce.page import COLUMNS
from penstock_lab.reproduce.statements import OPTIMUM, Figures

SIZES = (10, 12)
PLACEMENT = [name for name, item in ITEMS.items() if isinstance(item, Item)]  # the others have test files of their own


def in_order(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
    """Fills node after node in task order; good on linear, poor elsewhere, and never anything but feasible."""
    problem = Problem(TaskGraph.expand(graph), cluster)
    node = np.repeat(np.arange(problem.node_count, dtype=np.int32), problem.slots)[: problem.task_count]
    placement = Placement(node, np.zeros_like(node), proved_optimal=scheduler == "exact")
    return make_plan(problem, scheduler, options.seed, 0.001 * problem.task_count, placement, np.zeros_like(node), ())


def quiet(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total
    assert text


def test_items_are_the_figures_of_both_papers() -> None:
    assert ["t3-fig5", "t3-fig6", *(f"ischeduler-fig{n}" for n in range(4, 10))] == PLACEMENT


def test_unknown_item_lists_the_known_ones() -> None:
    with pytest.raises(
        InvalidInput, match=r"unknown item 't3-fig7'; known: t3-fig5, .*ischeduler-fig9, turbostream-fig8"
    ):
        find_item("t3-fig7")


@pytest.mark.parametrize("name", PLACEMENT)
def test_item_writes_csv_picture_and_page(name: str, tmp_path: Path) -> None:
    item = ITEMS[name]
    report = item.run(tmp_path, quiet, place=in_order, sizes=SIZES)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.csv", f"{name}.md", f"{name}.png"]
    with report.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    drawn = 2 * len(SIZES) * len(item.layouts) * len(item.runs)
    assert len(rows) == drawn + 2 * len(SIZES) * len(item.beside)
    assert {row["run"] for row in rows} == {run.label for run in item.runs}
    assert report.picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = report.page.read_text()
    assert machine_line() in page
    assert f"({name}.png)" in page
    for statement, verdict in report.verdicts:
        assert f"| {statement.section} | {statement.text} | {verdict.evidence} | **{verdict.word}** |" in page


def test_several_items_share_measurements_and_get_an_index(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def counting(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        calls.append((graph.name, scheduler))
        return in_order(graph, cluster, scheduler, options=options)

    seen: list[float] = []
    reports = reproduce(
        ["t3-fig5", "t3-fig6"],
        tmp_path,
        lambda done, total, _text: seen.append(done / total),
        place=counting,
        sizes=SIZES,
        repeats=3,
    )
    assert len(calls) == 3 * 2 * len(SIZES) * 3 * 3  # layouts, clusters, sizes, runs, repeats: once, not twice
    assert seen == sorted(seen)
    assert seen[0] == 0
    assert seen[-1] == 1
    index = (tmp_path / "index.md").read_text()
    for report in reports:
        assert f"[{report.item}]({report.item}.md)" in index


def test_one_item_gets_no_index(tmp_path: Path) -> None:
    reproduce(["ischeduler-fig4"], tmp_path, quiet, place=in_order, sizes=SIZES, repeats=1)
    assert not (tmp_path / "index.md").exists()


def test_folder_that_cannot_be_made_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def never(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        pytest.fail("measured although the folder cannot be written")

    with pytest.raises(InvalidInput, match=r"folder '.*file/out' cannot be made"):
        reproduce(["t3-fig5"], tmp_path / "file" / "out", quiet, place=never, sizes=SIZES)


def test_statement_that_fails_says_differs_on_the_page(tmp_path: Path) -> None:
    def worse_t3(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        if scheduler != "t3":
            return in_order(graph, cluster, scheduler, options=options)
        problem = Problem(TaskGraph.expand(graph), cluster)
        node = (np.arange(problem.task_count) % problem.node_count).astype(np.int32)
        return make_plan(problem, "t3", 0, 0.1, Placement(node), np.zeros_like(node), ())

    report = ITEMS["t3-fig5"].run(tmp_path, quiet, place=worse_t3, sizes=SIZES)
    first = report.verdicts[0][1]
    assert first.word == "differs"
    assert first.evidence.startswith("equal in 0 of 4 cases; heterogeneous/10 ")
    assert "**differs**" in report.page.read_text()


def test_scheduler_without_a_plan_is_reported(tmp_path: Path) -> None:
    def failing_t3(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        if scheduler == "t3":
            msg = "t3 found nothing"
            raise NoPlanFound(msg)
        return in_order(graph, cluster, scheduler, options=options)

    report = ITEMS["t3-fig5"].run(tmp_path, quiet, place=failing_t3, sizes=SIZES)
    assert report.verdicts[0][1].word == "differs"
    page = report.page.read_text()
    assert "T3 gave no plan in 12 cases" in page
    assert "t3 found nothing" in page


def test_published_case_outside_the_sizes_is_not_run(tmp_path: Path) -> None:
    report = ITEMS["ischeduler-fig5"].run(tmp_path, quiet, place=in_order, sizes=SIZES)
    assert report.verdicts[0][1].word == "not run"
    assert report.count("not run") >= 1


def test_page_says_where_nothing_was_fused(tmp_path: Path) -> None:
    def solved_whole(graph: OperatorGraph, cluster: Cluster, scheduler: str, *, options: Options) -> Plan:
        plan = in_order(graph, cluster, scheduler, options=options)
        whole = scheduler == "ischeduler" and "phi" not in options.settings and graph.task_count == 10
        return replace(plan, lower_bound=plan.cost) if whole else plan

    page = ITEMS["ischeduler-fig6"].run(tmp_path, quiet, place=solved_whole, sizes=SIZES).page.read_text()
    assert "I-Scheduler: nothing was fused in 2 of 4 cases (up to 10 tasks)" in page
    assert "I-Scheduler, phi 20: nothing was fused in 0 of 4 cases; it fell back to its heuristic in 0." in page


def figures(*rows: Row) -> Figures:
    return Figures({(row.case, row.run): row for row in rows})


def row(
    run: str,
    cost: float | None,
    seconds: float = 0.1,
    size: int = 30,
    *,
    cluster: str = "heterogeneous",
    layout: str = "diamond",
    agree: bool = True,
) -> Row:
    return Row(Case(layout, cluster, size), run, cost, seconds, costs_agree=agree)


DIAMOND_30 = Case("diamond", "heterogeneous", 30)


@pytest.mark.parametrize(
    ("check", "given", "word"),
    [
        (cost.equals_optimum("T3", "diamond"), [row(OPTIMUM, 146), row("T3", 146)], "holds"),
        (cost.equals_optimum("T3", "diamond"), [row(OPTIMUM, 146), row("T3", 148)], "differs"),
        (cost.equals_optimum("T3", "diamond"), [row(OPTIMUM, 146), row("T3", None)], "differs"),
        (cost.equals_optimum("T3", "diamond"), [], "not run"),
        (
            cost.equals_optimum("T3", "diamond", ("heterogeneous", 30)),
            [row(OPTIMUM, 146), row("T3", 148), row(OPTIMUM, 9, size=10), row("T3", 9, size=10)],
            "holds",
        ),
        (cost.above_optimum_somewhere("T3", "diamond"), [row(OPTIMUM, 146), row("T3", 148)], "holds"),
        (cost.above_optimum_somewhere("T3", "diamond"), [row(OPTIMUM, 146), row("T3", 146)], "differs"),
        (cost.near_optimum("T3", "diamond"), [row(OPTIMUM, 100), row("T3", 110)], "holds"),
        (cost.near_optimum("T3", "diamond"), [row(OPTIMUM, 100), row("T3", 111)], "differs"),
        (cost.near_optimum("T3", "diamond"), [row(OPTIMUM, 100), row("T3", None)], "differs"),
        (cost.near_optimum("T3", "diamond"), [row(OPTIMUM, 0), row("T3", 0)], "holds"),
        (cost.near_optimum("T3", "diamond"), [row(OPTIMUM, 0), row("T3", 1)], "differs"),
        (cost.cost_at("T3", DIAMOND_30, 148.0), [row("T3", 148)], "holds"),
        (cost.cost_at("T3", DIAMOND_30, 148.0), [row("T3", 146)], "differs"),
        (cost.cost_at("T3", DIAMOND_30, 148.0), [row("T3", 148, size=28)], "not run"),
        (cost.heterogeneous_is_cheaper("diamond"), [row(OPTIMUM, 4), row(OPTIMUM, 5, cluster="homogeneous")], "holds"),
        (
            cost.heterogeneous_is_cheaper("diamond"),  # lower, but not notably
            [row(OPTIMUM, 5), row(OPTIMUM, 6, cluster="homogeneous")],
            "differs",
        ),
        (
            cost.heterogeneous_is_cheaper("diamond"),
            [row(OPTIMUM, 7), row(OPTIMUM, 6, cluster="homogeneous")],
            "differs",
        ),
        (cost.heterogeneous_is_cheaper("diamond"), [row(OPTIMUM, 7)], "not run"),
        (cost.dearer_than_linear("diamond"), [row(OPTIMUM, 7), row(OPTIMUM, 6, layout="linear")], "holds"),
        (cost.dearer_than_linear("diamond"), [row(OPTIMUM, 6), row(OPTIMUM, 6, layout="linear")], "differs"),
        (cost.dearer_than_linear("diamond", True), [row(OPTIMUM, 7), row(OPTIMUM, 6, layout="linear")], "differs"),
        (cost.dearer_than_linear("diamond", True), [row(OPTIMUM, 9), row(OPTIMUM, 6, layout="linear")], "holds"),
        (cost.dearer_than_linear("diamond"), [row(OPTIMUM, 6), row(OPTIMUM, 0, layout="linear")], "holds"),
        (cost.costs_repeat("T3", "diamond"), [row("T3", 5)], "holds"),
        (cost.costs_repeat("T3", "diamond"), [row("T3", 5, agree=False)], "differs"),
        (time.below("T3", "diamond", 1.0), [row("T3", 5, 0.99)], "holds"),
        (time.below("T3", "diamond", 1.0), [row("T3", 5, 0.5), row("T3", 5, 1.0, size=28)], "differs"),
        (time.grows(OPTIMUM, "diamond"), [row(OPTIMUM, 5, 0.1, 10), row(OPTIMUM, 5, 1.1, 32)], "holds"),
        (time.grows(OPTIMUM, "diamond"), [row(OPTIMUM, 5, 0.1, 10), row(OPTIMUM, 5, 0.2, 32)], "differs"),
        (time.grows(OPTIMUM, "diamond"), [row(OPTIMUM, 5, 0.1, 10)], "not run"),
        (time.rises_beyond(OPTIMUM, ("diamond",), 20), [row(OPTIMUM, 5, 0.1, 10), row(OPTIMUM, 5, 0.2, 32)], "holds"),
        (time.rises_beyond(OPTIMUM, ("diamond",), 20), [row(OPTIMUM, 5, 0.3, 10), row(OPTIMUM, 5, 0.2, 32)], "differs"),
        (time.seconds_at(OPTIMUM, DIAMOND_30, 393.0), [row(OPTIMUM, 146, 400.0)], "holds"),
        (time.seconds_at(OPTIMUM, DIAMOND_30, 393.0), [row(OPTIMUM, 146, 0.2)], "differs"),
        (time.seconds_at(OPTIMUM, DIAMOND_30, 393.0), [row(OPTIMUM, 146, 600.0)], "differs"),
        (time.quicker_than_optimum("T3", ("diamond",)), [row(OPTIMUM, 5, 0.2), row("T3", 5, 0.1)], "holds"),
        (time.quicker_than_optimum("T3", ("diamond",)), [row(OPTIMUM, 5, 0.1), row("T3", 5, 0.2)], "differs"),
        (time.quickest_at("T3", DIAMOND_30), [row("T3", 5, 0.1), row("T3", 5, 0.2, 28)], "holds"),
        (time.quickest_at("T3", DIAMOND_30), [row("T3", 5, 0.3), row("T3", 5, 0.2, 28)], "differs"),
    ],
)
def test_verdict_follows_the_numbers(check: cost.Check, given: list[Row], word: str) -> None:
    verdict = check(figures(*given))
    assert verdict.word == word
    assert verdict.evidence


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5e-5, "50 us"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (393.0, "393 s"), (1_114_257.0, "1,114,257 s")],
)
def test_times_read_naturally(seconds: float, text: str) -> None:
    assert time.spoken(seconds) == text
