"""Decisions of splitters in the metric log, slice lengths, and the picture of a region."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.deploy.metrics.metric_log import MetricLog, read_metric_table
from penstock.errors import InvalidInput
from penstock.observe.balance_picture import draw_region, region_histories
from penstock.run.engine.meters import balance_rows
from penstock.run.region.lengths import GROWTH_MAX, SLICE_SECONDS, SliceLengths


def decisions(replicas: int, times: int, region: str = "r") -> list[tuple[object, ...]]:
    return [
        (1_000_000 * t, region, j, 1000 // replicas, 0.25 * (j == t % replicas), float(t), 10 * t, j)
        for t in range(1, times + 1)
        for j in range(replicas)
    ]


def test_decisions_come_back_from_the_log(tmp_path: Path) -> None:
    log = MetricLog("job", tmp_path)
    log.take(0, "balance", balance_rows(decisions(2, 3)))
    log.take(1, "balance", balance_rows(decisions(4, 2, "s")))
    assert log.latest("balance").num_rows == 6 + 8
    log.close()
    first, second = region_histories(read_metric_table(tmp_path, "balance"))
    assert (first.region, first.weights.tolist()) == ("r", [[50.0, 50.0]] * 3)
    assert first.time_s.tolist() == [0.0, 1.0, 2.0]
    assert second.rates.tolist() == [[0.0, 0.25, 0.0, 0.0], [0.0, 0.0, 0.25, 0.0]]


def test_a_folder_that_is_no_log_and_a_log_without_regions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no metric log"):
        read_metric_table(tmp_path, "balance")
    MetricLog("job", tmp_path).close()
    with pytest.raises(InvalidInput, match="no decisions"):
        region_histories(read_metric_table(tmp_path, "balance"))


@pytest.mark.parametrize("replicas", [1, 5, 40])
def test_a_region_of_any_width_is_drawn(tmp_path: Path, replicas: int) -> None:
    rows = balance_rows(decisions(replicas, 4)).to_pylist()
    (history,) = region_histories(rows)
    assert draw_region(history, tmp_path / "r.png").stat().st_size > 5_000


def test_the_verb_draws_one_picture_for_each_region(tmp_path: Path) -> None:
    import typer

    from penstock.cli import balance, topologies

    app = typer.Typer()
    balance.register(app)
    topologies.register(app)  # with one verb alone typer would take the verb's name for its argument
    log = MetricLog("job", tmp_path / "log")
    log.take(0, "balance", balance_rows(decisions(2, 3) + decisions(3, 3, "s")))
    log.close()
    answer = CliRunner().invoke(app, ["balance", str(tmp_path / "log"), "-o", str(tmp_path / "p.png")])
    assert answer.exit_code == 0, answer.output
    assert "region s, 3 replicas, 3 decisions" in answer.output
    assert {path.name for path in tmp_path.glob("*.png")} == {"p-1.png", "p-2.png"}


@given(st.integers(1, 20_000), st.integers(1, 4096))
def test_slices_grow_to_what_a_replica_works_off_and_no_faster(rate: int, rows_max: int) -> None:
    lengths = SliceLengths((0,), rows_max)
    lengths.observe(0, {0: 0})
    before, fitting = 1, max(1, min(rows_max, round(rate * SLICE_SECONDS)))
    for step in range(1, 60):
        now_us = step * 200_000
        lengths.observe(now_us, {0: rate * now_us // 1_000_000})
        assert 1 <= lengths.rows[0] <= min(rows_max, GROWTH_MAX * before)
        before = lengths.rows[0]
    assert abs(before - fitting) <= 1


def test_a_replica_that_gives_nothing_back_gets_short_slices() -> None:
    lengths = SliceLengths((0, 1), 4096)
    for step in range(20):
        lengths.observe(step * 100_000, {0: step * 1000, 1: min(step, 10) * 1000})
    assert lengths.rows == {0: 200, 1: 1}
