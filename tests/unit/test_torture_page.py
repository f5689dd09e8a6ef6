"""What is kept of trials, what is run again, and what RELIABILITY.md says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock_lab.torture.contract import BROKEN, HELD, VOID, Line, Row
from penstock_lab.torture.lines import LINES
from penstock_lab.torture.page import Run, page
from penstock_lab.torture.runner import ROWS_FILE, Ledger, Scope, played, read_rows, require_known

LINE = Line("killed-steady", "worker killed -9 at work", "complete", trials=4)
CLEAN = {"rows": 100, "lost": 0, "repeated": 0, "disordered": 0, "strange": 0, "miscounted": 0}


def row(seed: int, verdict: str = HELD, **more: object) -> Row:
    return Row(LINE.name, seed, verdict, dict(CLEAN), {"to_work_s": seed / 10}, **more)  # type: ignore[arg-type]


def ledger(folder: Path, version: str, *rows: Row) -> Ledger:
    kept = Ledger(folder, version)
    for each in rows:
        kept.add(each)
    return kept


def test_what_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    ledger(tmp_path, "now", row(1), row(3))
    with (tmp_path / ROWS_FILE).open("a") as file:
        file.write('{"line": "killed-steady", "seed": 4, "verd')  # its writer died
    assert Ledger(tmp_path, "now").lacks(LINE, Scope((LINE,))) == [2, 4]
    assert Ledger(tmp_path, "now").lacks(LINE, Scope((LINE,), seed=3)) == [3]  # asked for by itself


def test_rows_of_other_code_do_not_count(tmp_path: Path) -> None:
    ledger(tmp_path, "before", row(1), row(2))
    kept = Ledger(tmp_path, "now")
    assert kept.lacks(LINE, Scope((LINE,), is_quick=True)) == [1]
    assert "killed-steady: 0 of 4 trials" in kept.page([LINE])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"line": "x", "seed": "1"}', '{"line": "x", "seed": 1, "odd": 2}'])
def test_what_is_no_row_is_passed_over(tmp_path: Path, text: str) -> None:
    file = tmp_path / ROWS_FILE
    file.write_text(text + "\n")
    assert list(read_rows(file)) == []


def run(*rows: Row) -> Run:
    for each in rows:
        each.version = "v"
    return Run("a machine", "0123", "v", "2026-01-01", "idle", rows)


def test_the_page_tells_what_held_and_what_did_not() -> None:
    lost = row(2, BROKEN, error="the checker found faults")
    lost.counts["lost"] = 7
    text = page(run(row(1), lost, row(3, VOID, error="epoch 2 did not come")), [LINE], {})
    assert "| 1-3 | 1 | 1 | 1 | 7 / 0 / 0 of 300 rows | at work again 0.20 s, at most 0.30 |" in text
    assert "- killed-steady, seed 2: broken: the checker found faults" in text
    assert "- killed-steady, seed 3: void: epoch 2 did not come" in text
    assert "killed-steady: 2 of 4 trials" in text  # a void one tried nothing
    assert "| workers at work again | 2 | 0.20 s | 0.20 s | 0.20 s |" in text


def test_the_page_tells_what_the_machine_lacks() -> None:
    assert "- killed-steady (worker killed -9 at work): no disk." in page(run(), [LINE], {"killed-steady": "no disk"})


def test_a_process_that_ends_costs_one_trial_and_no_more(tmp_path: Path) -> None:
    unknown = Line("no-such-line", "a process that cannot begin", "-", master=None)
    rows = list(played(Scope((unknown,)), unknown, [1, 2], tmp_path))
    assert [(each.seed, each.verdict) for each in rows] == [(1, BROKEN), (2, BROKEN)]
    assert all("no-such-line" in each.error for each in rows)


def test_a_process_that_is_silent_is_ended(tmp_path: Path) -> None:
    silent = Line("mutated-frames", "frames", "-", master=None)
    rows = list(played(Impatient((silent,)), silent, [1], tmp_path))
    assert [each.verdict for each in rows] == [BROKEN]
    assert "no end within" in rows[0].error


class Impatient(Scope):
    """Has no patience at all."""

    def limit_s(self, line: Line) -> float:
        return -1e6


def test_lines_are_found_by_name() -> None:
    assert require_known([], LINES) == LINES
    assert [line.name for line in require_known(["soak", "overload"], LINES)] == ["overload", "soak"]
    with pytest.raises(InvalidInput, match="unknown line 'soke'; known: killed-starting"):
        require_known(["soke"], LINES)
    assert len({line.name for line in LINES}) == len(LINES)
