"""The benchmark of moves: its gaps and percentiles by hand, its verdicts, and its rows, the same each time."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import JobFailed
from penstock.optimise.place import REGISTRY
from penstock_lab.bench.adapt import aims, gaps, jobs, measure, often, pauses, routes
from penstock_lab.bench.adapt.gaps import Arrival, Window
from penstock_lab.commands.bench import find


def came(*at_and_last: tuple[float, int], late_s: float = 0.0) -> list[Arrival]:
    return [Arrival(at, last, 10, late_s) for at, last in at_and_last]


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_rows_that_come_again_are_nothing_new() -> None:
    """The job goes back to 9 after 29: its rows up to 29 come twice, and what is new begins with 39."""
    all_of_them = came((1.0, 9), (1.1, 19), (1.2, 29), (2.0, 19), (2.1, 29), (2.2, 39), (2.3, 49))
    new = gaps.new_ones(all_of_them)
    assert [arrival.last for arrival in new] == [9, 19, 29, 39, 49]
    assert gaps.largest_gap_s(new, Window(1.15, 2.25)) == pytest.approx(1.0)


def test_a_gap_counts_if_some_of_it_is_in_the_window() -> None:
    found = came((1.0, 1), (1.1, 2), (3.0, 3), (3.1, 4), (9.0, 5))
    assert gaps.largest_gap_s(found, Window(1.05, 1.2)) == pytest.approx(1.9)
    assert gaps.largest_gap_s(found, Window(2.0, 3.05)) == pytest.approx(1.9)
    assert gaps.largest_gap_s(found, Window(0.0, 1.05)) == pytest.approx(0.1)
    assert gaps.largest_gap_s(found, Window(8.0, 10.0)) == math.inf  # nothing follows
    assert gaps.largest_gap_s([], Window(0.0, 1.0)) == math.inf


@given(st.lists(st.integers(0, 1_000), min_size=2, unique=True), st.integers(0, 900), st.integers(1, 100))
def test_the_largest_gap_is_that_of_all_pairs_that_meet_the_window(times: list[int], begin: int, length: int) -> None:
    ordered, window = sorted(times), Window(begin, begin + length)
    found = gaps.largest_gap_s([Arrival(at, n, 1, 0.0) for n, at in enumerate(ordered)], window)
    if ordered[-1] <= window.end_s:
        return
    pairs = list(itertools.pairwise(ordered))
    meeting = [b - a for a, b in pairs if b >= window.begin_s and a < window.end_s]
    assert found == (max(meeting) if meeting else math.inf)


def test_rates_are_of_new_numbers_and_latency_of_the_oldest_rows() -> None:
    """Numbers 19 to 59 come within 1 s and 1 s: 40 rows in 2 s."""
    found = came((0.5, 19), (1.5, 39), (2.5, 59), (3.5, 99))
    assert gaps.rows_per_second(found, [Window(1.0, 2.0), Window(2.0, 3.0)]) == 20.0
    assert gaps.rows_per_second(found, []) is None
    slow = [*came((1.1, 1), late_s=0.01), *came((1.2, 2), late_s=0.5), *came((5.0, 3), late_s=9.0)]
    assert gaps.late_ms(slow, [Window(1.0, 2.0)], 0.5) == pytest.approx(10.0)
    assert gaps.late_ms(slow, [Window(1.0, 2.0)], 0.99) == pytest.approx(500.0)
    assert gaps.late_ms(slow, [Window(2.0, 3.0)], 0.99) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[float], fraction: float) -> None:
    found = gaps.percentile(values, fraction)
    assert found in values
    assert sum(value <= found for value in values) >= fraction * len(values) - 1e-6
    assert sum(value < found for value in values) < fraction * len(values) + 1e-6
    assert gaps.percentile([], fraction) is None


def test_growth_leaves_the_first_fifth_out() -> None:
    assert gaps.growth([900.0, 900.0, 100.0, 100.0, 1.0, 1.0, 2.0, 2.0, 110.0, 110.0]) == pytest.approx(0.1)
    assert gaps.growth([1.0, 2.0]) is None


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_each_aim_is_met_missed_or_not_measured() -> None:
    assert [aims.verdict("a", ours, 2.0)["verdict"] for ours in (2.0, 2.1, None, math.inf)] == [
        "met",
        "missed",
        "not measured",
        "missed",
    ]
    assert aims.verdict("a", 3, 2.0, at_least=True) == {"aim": "a", "ours": 3, "limit": ">= 2", "verdict": "met"}


def test_every_section_has_its_aims() -> None:
    case, found = pauses.Case("native", 10, 1), pauses.Watched()
    found.came = {name: came((1.0, 9), (1.1, 19), (1.3, 29), (1.4, 39)) for name in (jobs.STATE, *jobs.OTHERS)}
    found.around, found.asked, found.quiet = [Window(1.15, 1.2)], [Window(1.15, 1.35)], [Window(1.0, 1.35)]
    pause, others = pauses.pause_row(case, found), pauses.others_row(case, found)
    assert pause["pause_p50_ms"] == pytest.approx(200.0)
    assert pause["at_rest_p50_ms"] == pytest.approx(200.0)
    assert pause["restart_p50_ms"] is None
    assert others["rows_per_s"] == pytest.approx(2 * 10 / 0.2)
    sections = {
        "adapt_pause": [pause],
        "adapt_others": [others],
        "adapt_routes": [
            {"moved": 3, "saved": 0.4, "off": 0.05, "next_off": 0.2},
            {"moved": 3, "saved": 0.0, "off": 0.0, "next_off": 0.0},
            {"moved": 0, "saved": 0.0, "off": 0.0, "next_off": 0.0},
        ],
        "adapt_often": [
            {
                "moves_a_minute": 99.0,
                "rows_wrong": 0,
                "failed": 0,
                "recoveries": 4,
                "driver_growth": None,
                "workers_growth": 0.01,
            }
        ],
    }
    verdicts = {str(row["aim"]): row["verdict"] for row in measure.verdicts(sections)}
    assert verdicts["pause p50 ms, 10 MB"] == "missed"
    assert verdicts["pause p99 ms, 10 MB"] == "met"
    assert verdicts["bytes between nodes off the foretold, round 1"] == "met"
    assert verdicts["the next profile off the foretold, round 1"] == "missed"
    saved = [verdicts[f"bytes between nodes saved, round {number}"] for number in (1, 2, 3)]
    assert saved == ["met", "missed", "not measured"]
    assert verdicts["bytes between nodes off the foretold, round 3"] == "not measured"
    assert verdicts["moves a minute"] == "missed"
    assert (verdicts["moves that failed"], verdicts["recoveries"]) == ("met", "missed")
    assert verdicts["rows lost or there twice"] == "met"
    assert verdicts["growth of memory, driver"] == "not measured"


def test_the_pause_of_a_move_that_failed_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        msg = "it took over 60 s"
        raise JobFailed(msg)

    run, found = pauses._Run(None, pauses.Case("native", 0, 1), str(tmp_path)), pauses.Watched()  # type: ignore[arg-type]
    places = {"state/0": 1, "other-a/0": 1, "other-b/0": 2}
    monkeypatch.setattr(run, "job", SimpleNamespace(worker_of=places, move=fails), raising=False)
    for waits in ("_wait", "_await_schedule"):
        monkeypatch.setattr(run, waits, lambda _: None)
    run.move(found)
    assert found.failures == ["it took over 60 s"]
    assert (len(found.around), len(found.asked), found.stood_s) == (1, 1, [])
    begin = found.around[0].begin_s
    found.came = {
        name: came((begin - 1.0, 9), (begin + 60.0, 19), (begin + 61.0, 29)) for name in (jobs.STATE, "a", "b")
    }
    row = pauses.pause_row(pauses.Case("native", 0, 1), found)
    assert (row["failed"], row["pause_p99_ms"]) == (1, pytest.approx(61_000.0))
    assert aims.of_pauses([row])[1]["verdict"] == "missed"


def test_python_state_and_others_at_full_speed_have_lines_without_aims() -> None:
    assert aims.of_pauses([{"state": "python", "mb": 10}]) == []
    (only,) = aims.of_others([{"others": "at full speed", "mb": 0, "state": "native", "fall": 0.01}])
    assert only["verdict"] == "met"


def test_what_was_foretold_as_nothing_is_compared_with_what_there_was() -> None:
    assert routes.off(100.0, 105.0, 500.0) == pytest.approx(0.05)
    assert routes.off(0.0, 1.0, 1_000.0) == pytest.approx(0.02)


def test_all_schedulers_are_asked_and_all_tables_have_titles() -> None:
    assert find("adapt") is measure.BENCH
    assert len(REGISTRY.own) == 12
    assert set(measure.QUICK_SCHEDULERS) < set(REGISTRY.own)
    (row,) = measure.BENCH.shapes["adapt_others"]([{"others": "paced", "fall": 0.034}])
    assert row == {"others": "paced", "fall %": "3.4"}
    (row,) = measure.BENCH.shapes["adapt_schedulers"]([{"scheduler": "t3", "saved": 0.5, "last_words": "it rests"}])
    assert row == {"scheduler": "t3", "saved %": "50.0"}


# -- rows --------------------------------------------------------------------------------------------------------------


def given_by(source: jobs.Numbered, start: int, batches: int) -> list[pa.RecordBatch]:
    return list(itertools.islice((batch for batch in source(0, 1, start) if batch is not None), batches))


@pytest.mark.parametrize("rate", [1_000_000.0, None])
def test_a_source_that_is_asked_again_gives_the_same_rows(tmp_path: Path, rate: float | None) -> None:
    source = jobs.Numbered(str(tmp_path), "numbers", 10_000, rate)
    whole = given_by(source, 0, 8)
    assert given_by(source, 2, 6) == whole[2:]
    assert given_by(source, 5, 3) == whole[5:]
    filling, numbered = whole[:3], whole[3:]
    assert [n for batch in filling for n in batch.column("k").to_pylist()] == list(range(10_000))
    assert {n for batch in filling for n in batch.column("v").to_pylist()} == {-1}
    numbers = [n for batch in numbered for n in batch.column("v").to_pylist()]
    assert numbers == list(range(len(numbers)))
    Path(tmp_path, jobs.END).touch()
    assert given_by(source, 3, 1) == []


def test_notes_of_several_processes_are_read_together_and_half_lines_are_not(tmp_path: Path) -> None:
    noted = jobs.Noted(str(tmp_path), "state")
    noted(pa.record_batch([pa.array([1, 2]), pa.array([-1, -1]), pa.array([0, 0])], schema=jobs.SCHEMA))
    noted(pa.record_batch([pa.array([1, 2]), pa.array([4, 5]), pa.array([0, 0])], schema=jobs.SCHEMA))
    Path(tmp_path, "came-state-1").write_text("2000000 9 10 500000\n3000000 19 10 500000\n40000")
    found = jobs.arrivals(tmp_path, "state")
    assert [(a.last, a.rows) for a in found] == [(9, 10), (19, 10), (5, 2)]
    assert found[0] == Arrival(2.0, 9, 10, 0.5)
    assert next(a.last for a in jobs.arrivals(tmp_path, "state", last_bytes=30)) == 19


@pytest.mark.parametrize("kind", ["native", "python"])
def test_the_watched_job_can_be_built_and_only_its_state_may_move(tmp_path: Path, kind: str) -> None:
    flow = jobs.watched(str(tmp_path), kind, 1, 1_000.0, others_paced=True).build()
    assert len(flow.operators) == 9
    assert all(operator.tasks == 1 for operator in flow.operators)


def test_both_answers_are_compared_with_arithmetic() -> None:
    numbers = np.arange(1_000)
    keys = numbers * jobs.SPREAD % often.KEYS
    counts = {key: (int((keys == key).sum()), int(numbers[keys == key].sum())) for key in range(often.KEYS)}
    rows = len(numbers)
    assert often.compared(numbers, counts, rows) == 0
    assert often.compared(np.append(numbers, 7), counts, rows) == 1
    assert often.compared(np.append(numbers, rows), counts, rows) == 1
    assert often.compared(np.delete(numbers, 7), counts, rows) == 1
    assert often.compared(numbers, {**counts, 3: (counts[3][0] + 1, counts[3][1])}, rows) == 1
    assert often.compared(numbers, {**counts, 3: (counts[3][0], counts[3][1] - 5)}, rows) == 1


def test_the_last_rows_are_missed_where_they_are_lost_both_ways() -> None:
    given, came_here = 1_000, np.arange(800)
    keys = came_here * jobs.SPREAD % often.KEYS
    counts = {key: (int((keys == key).sum()), int(came_here[keys == key].sum())) for key in range(often.KEYS)}
    assert often.compared(came_here, counts, given) == 2 * 200
    assert often.compared(came_here[:0], {}, given) == 2 * given


def test_how_many_rows_a_source_gives_is_said_when_it_closes_however_often_it_is_asked(tmp_path: Path) -> None:
    source = jobs.Numbered(str(tmp_path), "numbers", often.KEYS, often.ROWS_PER_SECOND)
    first = given_by(source, 0, 3)
    rows = source.close()
    for start in (0, 3):
        batches = [batch for batch in source(0, 1, start) if batch is not None]
        numbers = [n for batch in batches for n in batch.column("v").to_pylist()]
        assert numbers == list(range(start * first[0].num_rows, rows))
    assert list(source(0, 1, rows // first[0].num_rows)) == []


def test_a_move_leaves_no_worker_empty() -> None:
    places = {"a": 0, "b": 1, "c": 1, "d": 2}
    chance = np.random.default_rng(1)
    for _ in range(50):
        task, target = often.choice(chance, places, 3)
        assert task in {"b", "c"}
        assert target in {0, 2}
