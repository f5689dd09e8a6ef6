"""Table 1 of COLA: the printed numbers, scaled synthetic jobs, verdicts that follow the numbers, the files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph
from penstock_lab.reproduce import find_item
from penstock_lab.reproduce.cola_table1 import METHODS, ROWS, Entry, TableItem, fused, judgements, published, scaled_job

FAST = {"none": 0.5, "fint": 0.2, "cola-basic": 0.1, "best": 0.05}


def quiet(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total
    assert text


def stand_in(graph: OperatorGraph, cluster: Cluster, method: str) -> Entry:
    """Half a host as the largest worker, and no plan by FINT on seven hosts."""
    if method == "fint" and len(cluster.nodes) == 7:
        return Entry(None, None, "FINT does not fit")
    return Entry(FAST[method], 0.5)


def test_printed_table_agrees_with_what_the_paper_says_of_it() -> None:
    """FINT cuts less than COLA in one row only, VWAP1 on 5 blades, and as much in VWAP2 on 4."""
    table = published()
    assert len(table) == 24
    wins = [row for row in ROWS if (table[*row, "FINT"].cut or 0) < (table[*row, "COLA"].cut or 0)]
    assert wins == [("VWAP1", 5)]
    assert [verdict.word for _, verdict in judgements(table)] == ["holds"] * 3


@pytest.mark.parametrize("row", ROWS)
def test_streams_cost_what_none_cuts(row: tuple[str, int]) -> None:
    tasks = TaskGraph.expand(scaled_job(*row).validated())
    assert tasks.rate.sum() == pytest.approx(published()[*row, "NONE"].cut)
    assert tasks.load.sum() < row[1]


def test_none_is_measured_as_printed() -> None:
    entry = fused(scaled_job("VWAP1", 4), Cluster.uniform([(4, 1.0)], worker_capacity=None), "none")
    assert entry.cut == pytest.approx(0.3792)
    assert entry.largest is not None
    assert 0 < entry.largest < 1


def test_a_method_without_a_plan_says_why() -> None:
    entry = fused(scaled_job("VWAP1", 4), Cluster.uniform([(1, 0.5)]), "fint")
    assert entry.cut is None
    assert "0.5" in entry.failure


def test_verdicts_follow_the_numbers() -> None:
    worse = {(*row, method): Entry(0.3 if method == "COLA" else 0.2, 0.9) for row in ROWS for method in METHODS}
    assert [verdict.word for _, verdict in judgements(worse)] == ["differs"] * 3


def test_item_writes_csv_picture_and_page(tmp_path: Path) -> None:
    item = find_item("cola-table1")
    assert isinstance(item, TableItem)
    assert find_item("cola-table1") is item
    report = item.run(tmp_path, quiet, measure=stand_in)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"cola-table1.{kind}" for kind in ("csv", "md", "png")]
    with report.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(ROWS) * len(METHODS)
    assert {row["failure"] for row in rows} == {"", "FINT does not fit"}
    page = report.page.read_text()
    assert "synthetic" in page
    assert "FINT does not fit" in page
    assert "0.1000 / 0.5000 (0.0332 / 0.4990)" in page
    assert report.count("holds") + report.count("differs") == 3
