"""What is kept of trials, what is run again, and what RELIABILITY.md says of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock import cli
from penstock.errors import InvalidInput
from penstock_lab.torture import runner
from penstock_lab.torture.contract import BROKEN, HELD, VOID, Line, Row
from penstock_lab.torture.lines import LINES
from penstock_lab.torture.page import Run, page
from penstock_lab.torture.runner import PARTS, ROWS_FILE, Ledger, Scope, played, read_rows, require_known, version_of

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
    assert "killed-steady: 0 held of 4 trials" in kept.page([LINE])


def test_a_void_trial_is_replaced_by_the_next_seed_as_long_as_there_are_some(tmp_path: Path) -> None:
    kept, scope = ledger(tmp_path, "now", row(1), row(2, VOID), row(3, BROKEN), row(4)), Scope((LINE,))
    assert kept.lacks(LINE, scope) == [5]
    assert kept.short(scope) == {LINE.name: "2 of 4 trials held"}
    for seed in range(5, 9):
        kept.add(row(seed, VOID))
    assert kept.lacks(LINE, scope) == []
    kept.add(row(5))
    kept.add(row(3))
    assert kept.short(scope) == {}


def playing(verdicts: Sequence[str]) -> object:
    """Trials that end like this, one after another, and held at last."""
    left = list(verdicts)

    def play(scope: Scope, line: Line, seeds: Sequence[int], *rest: object) -> Iterator[Row]:
        return (row(seed, left.pop(0) if left else HELD) for seed in seeds)

    return play


def test_a_run_goes_on_until_as_many_trials_were_made_as_are_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "played", playing([VOID, HELD, VOID, HELD, VOID]))
    kept = Ledger(tmp_path, "now")
    assert runner.run(Scope((LINE,)), kept, lambda *told: None)
    assert [each.seed for each in kept.rows if each.verdict == VOID] == [1, 3, 5]
    assert [each.seed for each in kept.rows if each.verdict == HELD] == [2, 4, 6, 7]


def test_a_run_stops_at_its_limit_and_a_soak_that_does_not_fit_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "played", playing([]))
    soak = Line("soak", "much for long", "-", trials=1)
    assert Scope((soak,), minutes=20).limit_minutes == 90
    assert Scope((soak,), minutes=60).limit_minutes == 120
    monkeypatch.setattr(runner, "LIMIT_MINUTES", 29.0)
    kept = Ledger(tmp_path, "now")
    assert not runner.run(Scope((soak,)), kept, lambda *told: None)
    assert kept.rows == []
    assert list(played(Scope((LINE,)), LINE, [1, 2], tmp_path, latest=0.0)) == []  # and ends its processes


def test_the_version_is_of_what_is_tried_and_of_what_tries_it(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    assert version_of(tmp_path) == "unknown"
    git("init")
    found = set()
    for part in ("", *PARTS):
        for name in PARTS:
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "file").write_text(f"{part == name}")
        if part:
            assert version_of(tmp_path).endswith("-changed")
        git("add", ".")
        git("commit", "-m", "a change")
        found.add(version_of(tmp_path))
    assert len(found) == 1 + len(PARTS)
    assert not any(version.endswith("-changed") for version in found)


def tortured(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["penstock", "torture", "--only", LINE.name, *map(str, words)])
    return cli.run_command()


@pytest.mark.parametrize("version", ["0123-changed", "unknown"])
def test_no_page_is_written_of_code_that_no_commit_has(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "version_of", lambda root: version)
    page_file = tmp_path / "page.md"
    assert tortured(monkeypatch, "--out", tmp_path, "--page", page_file) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"penstock: {page_file} would name a commit, and ")
    assert not page_file.exists()


@pytest.mark.parametrize(("verdicts", "status"), [([], 0), ([VOID], 0), ([VOID, VOID], 1), ([BROKEN], 1)])
def test_fewer_trials_held_than_promised_are_a_failure(
    verdicts: list[str],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "played", playing(verdicts))
    assert tortured(monkeypatch, "--out", tmp_path, "--quick") == status
    told = capsys.readouterr().err
    assert "torture: 1 trials, at most 90 minutes" in told
    assert ("killed-steady: 0 of 1 trials held" in told) == bool(status)


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
    assert "killed-steady: 1 held of 4 trials" in text  # a void one tried nothing
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
