"""Every figure of the balancing paper leaves its files, at a scale of seconds, and says that it is simulated."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from penstock_lab.bench.balance import measure as balance
from penstock_lab.reproduce import ITEMS, reproduce
from penstock_lab.reproduce.balance_item import BalanceItem, Finding, Scale

SMALL = Scale(depth_s=16.0, run_s=4.0, replicas_max=2)
NAMES = [name for name in ITEMS if name.startswith("balance-")]


def quiet(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total
    assert text


def test_items_are_the_figures_of_the_paper() -> None:
    assert [f"balance-fig{n}" for n in (5, 8, 9, 10, 11, 12, 13)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_item_writes_csv_picture_and_page(name: str, tmp_path: Path) -> None:
    item = ITEMS[name]
    assert isinstance(item, BalanceItem)
    report = item.run(tmp_path, quiet, scale=SMALL)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.csv", f"{name}.md", f"{name}.png"]
    with report.csv.open(newline="") as file:
        assert len(list(csv.DictReader(file))) > 1
    assert report.picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = report.page.read_text()
    assert "**Simulated** under virtual time" in page
    assert report.verdicts
    for statement, verdict in report.verdicts:
        assert f"| {statement.section} | {statement.text} | {verdict.evidence} | **{verdict.word}** |" in page


def test_several_get_an_index(tmp_path: Path) -> None:
    reports = reproduce(["balance-fig5", "balance-fig8"], tmp_path, quiet, scale=SMALL)
    assert [report.item for report in reports] == ["balance-fig5", "balance-fig8"]
    assert "balance-fig8" in (tmp_path / "index.md").read_text()


def test_a_finding_is_judged_by_what_was_found() -> None:
    statement, verdict = Finding("6.1", "it settles", held=False, evidence="it does not").judged()
    assert (statement.text, verdict.word, verdict.evidence) == ("it settles", "differs", "it does not")


def test_bench_says_who_meets_what() -> None:
    rows = balance.constant((2,), 10.0, lambda message: None)
    assert [row["replicas"] for row in rows] == [2]
    assert float(str(rows[0]["round-robin"])) > 4  # ten times slower gates half of the rows
    row = balance.alike(range(1), lambda message: None)[-1]
    assert row["policy"] == "knee"
    assert row["meets"] is True
