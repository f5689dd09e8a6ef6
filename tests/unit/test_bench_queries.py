"""The benchmark of queries: what its rows say, whether aims are met, what it refuses, and that nobody is left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.cli import run_command
from penstock.errors import InvalidInput
from penstock_lab.bench.contract import Bench, Scope
from penstock_lab.bench.process_tree import below, tree_cpu_seconds
from penstock_lab.bench.queries import measure as queries
from penstock_lab.bench.queries.answers import told, told_stream
from penstock_lab.bench.queries.rows import Found, Key, form_rows, notes, query_row, verdict
from penstock_lab.bench.queries.spark import NO_STREAMING, PYTHON, STREAMING
from penstock_lab.bench.queries.tables import by_form, by_query
from penstock_lab.commands.bench import find, measure_of
from penstock_lab.nexmark.queries import QUERIES

COUNTS = {"person": 20, "auction": 60, "bid": 920}


def found(seconds: dict[Key, list[float]], **more: dict[Key, str]) -> Found:
    return Found(seconds, {key: [2.0 * times[0]] for key, times in seconds.items()}, more.get("answers", {}), {}, {})


def test_a_row_counts_the_tables_that_are_read_and_takes_medians() -> None:
    times: dict[Key, list[float]] = {
        ("q8", "files", "window"): [9.0, 1.0, 2.0],
        ("q8", "DataFrame", "window"): [4.0],
        ("q8", "streaming", "SQL"): [40.0],
        ("q8", "batch", "SQL"): [4.0],
    }
    row = query_row("q8", found(times), COUNTS)
    # 20 persons and 60 auctions in 2 s, the median: 40 a second; in 40 s: 2 a second.
    assert (row["events"], row["files_events_per_s"], row["streaming_events_per_s"]) == (80, 40.0, 2.0)
    # CPU is twice the first time: 80 s of theirs, 18 s of ours.
    assert (row["ratio"], row["frame_ratio"], row["cpu_ratio"]) == (20.0, 10.0, 80 / 18)
    assert (row["aim"], row["verdict"]) == (10.0, "ahead")


@pytest.mark.parametrize(
    ("ratio", "aim", "expected"),
    [
        (1.0, 1.0, "ahead"),
        (0.9, 1.0, "behind"),
        (9.0, 10.0, "below 10x"),
        (0.9, 10.0, "behind"),
        (None, 1.0, "no peer"),
    ],
)
def test_verdicts(ratio: float | None, aim: float, expected: str) -> None:
    assert verdict(ratio, aim) == expected
    assert verdict(ratio, aim, said=False) == "not said"


def test_a_form_stands_beside_the_functions_of_its_kind() -> None:
    times: dict[Key, list[float]] = {
        ("q1", "files", "row"): [2.0],
        ("q1", "DataFrame", "row"): [8.0],
        ("q1", "UDF", "row"): [4.0],
        ("q1", "files", "batch"): [1.0],
        ("q1", "mapInArrow", "batch"): [2.0],
        ("q1", "mapInPandas", "batch"): [5.0],
    }
    rows = {row["form"]: row for row in form_rows("q1", found(times), COUNTS)}
    assert (rows["row"]["ratio"], rows["row"]["frame_ratio"]) == (2.0, 0.5)
    assert rows["batch"]["ratio"] == 2.0  # to the faster of the two
    assert rows["expressions"]["ratio"] is None
    assert form_rows("q5", found({}), COUNTS) == []  # one form, and no function in Python


def test_tables_fit_a_hundred_columns() -> None:
    times: dict[Key, list[float]] = {
        (name, engine, form): [0.0001]
        for name, query in QUERIES.items()
        for engine in ("files", "DataFrame", "streaming", "batch", "UDF", "mapInArrow", "mapInPandas")
        for form in (*query.forms, "SQL")
    }
    whole = found(times)
    queries_shown = by_query([query_row(name, whole, COUNTS) for name in QUERIES])
    forms_shown = by_form([row for name in QUERIES for row in form_rows(name, whole, COUNTS)])
    for shown in (queries_shown, forms_shown):
        widths = [max(len(str(row[name])) for row in (*shown, {name: name})) for name in shown[0]]
        assert sum(widths) + 2 * len(widths) <= 100


def test_every_query_has_a_stream_beside_it_or_says_why_not() -> None:
    assert STREAMING.keys() | NO_STREAMING.keys() == QUERIES.keys()
    assert not STREAMING.keys() & NO_STREAMING.keys()
    for name, forms in PYTHON.items():
        assert {beside for beside, _ in forms.values()} <= QUERIES[name].forms.keys()


def test_notes_name_what_differs_and_what_is_missing() -> None:
    told_of = found({}, answers={("q1", "files", "row"): "3 rows, expected 4", ("q1", "UDF", "row"): "same"})
    said = notes(["q1", "q4", "q6"], told_of, 1000, 2)
    assert "q1 files row: 3 rows, expected 4" in said
    assert not any(line.startswith("q1 UDF") for line in said)
    assert any(line.startswith("q4 has no Structured Streaming:") for line in said)
    assert any(line.startswith("q10 is not supported:") for line in said)


def test_answers_may_lack_rows_of_a_stream_but_have_no_others() -> None:
    three, two, other = (pa.table({"n": values}) for values in ([1, 2, 3], [1, 2], [1, 2, 4]))
    assert told(three, three) == told_stream(three, three) == "same"
    assert told(two, three).startswith("2 rows, expected 3; missing 1 times")
    assert told_stream(two, three) == "same, but 1 of 3 rows never came"
    assert told_stream(other, three).startswith("3 rows, expected 3; unexpected 1 times")


@pytest.mark.parametrize(
    ("scope", "error"),
    [
        (Scope(queries=("q99",)), "q99"),
        (Scope(queries=("q10",)), "q10.* is not supported: it writes files by day and minute"),
        (Scope(events=3), "--events is 3"),
        (Scope(workers=0), "--workers is 0"),
    ],
)
def test_scopes_that_cannot_be_are_refused_before_anything_starts(scope: Scope, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        queries.main(True, lambda message: None, scope)


def test_other_benchmarks_refuse_a_scope() -> None:
    with pytest.raises(InvalidInput, match="'place' has no --events; leave it out"):
        measure_of("place", find("place"), Scope(events=5))
    assert measure_of("place", find("place"), Scope()) is find("place").measure


def test_the_command_hands_its_scope_over(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[bool, Scope]] = []

    def measure(quick: bool, progress: Callable[[str], None], scope: Scope) -> dict[str, list[dict[str, object]]]:
        asked.append((quick, scope))
        return {"queries_notes": [{"note": "done"}]}

    monkeypatch.setattr(queries, "BENCH", Bench("", measure, {}, measure_scope=measure))
    command = ["penstock", "bench", "queries", "--quick", "--events", "500", "--queries", "q1, q5", "--workers", "3"]
    monkeypatch.setattr(sys, "argv", command)
    assert run_command() == 0
    assert asked == [(True, Scope(500, ("q1", "q5"), 3))]
    assert "done" in capsys.readouterr().out


def test_cpu_time_is_that_of_a_process_and_all_below_it(tmp_path: Path) -> None:
    assert below(1, {1: 0, 2: 1, 3: 2, 4: 0, 5: 4}) == {1, 2, 3}
    tick = os.sysconf("SC_CLK_TCK")
    # 1 + 2 + 3 + 4 ticks of this process, ten times that of its child, and a stranger's.
    for pid, parent, times in ((os.getpid(), 1, "1 2 3 4"), (7, os.getpid(), "10 20 30 40"), (8, 1, "5 5 5 5")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a) name) S {parent} 0 0 0 0 0 0 0 0 0 {times} 0 0")
    assert tree_cpu_seconds(tmp_path) is None  # no Linux
    (tmp_path / "self").symlink_to(tmp_path / str(os.getpid()))
    assert tree_cpu_seconds(tmp_path) == 110 / tick
