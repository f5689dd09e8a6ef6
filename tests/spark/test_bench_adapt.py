"""The benchmark of moves in a tiny form: its jobs run, move and are restarted, and what it counts adds up."""

from __future__ import annotations

import math

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession

from penstock_lab.bench.adapt import often, pauses, routes

two_executors = pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True)


def told(what: str) -> None:
    """Nobody looks at the progress of a test."""


@two_executors
@pytest.mark.parametrize("state", ["native", "python"])
def test_a_stream_goes_on_behind_moves_and_a_restart(spark: SparkSession, footprint: Footprint, state: str) -> None:
    case = pauses.Case(state, 1, 2, 1)
    found = pauses.watch(spark, case, told)
    row = pauses.pause_row(case, found)
    assert (row["moves"], row["restarts"], row["failed"]) == (2, 1, 0)
    for name in ("pause_p50_ms", "pause_p99_ms", "at_rest_p50_ms", "restart_p50_ms"):
        assert isinstance(row[name], float)
        assert 0 < row[name] < math.inf
    others = pauses.others_row(case, found)
    assert others["at_rest_rows_per_s"]
    assert others["at_rest_p99_ms"]
    footprint.assert_gone()


@two_executors
def test_routes_is_replanned_and_a_scheduler_adapts(spark: SparkSession, footprint: Footprint) -> None:
    lengths = routes.Lengths(window_s=2.0, adapting_s=4.0)
    (row,) = routes.replanned(spark, 1, lengths, told)
    assert row["moved"]
    assert row["even_kb_s"]
    assert row["measured_kb_s"] is not None
    (adapted,) = routes.adapted(spark, ["ols"], lengths, told)
    assert adapted["scheduler"] == "ols"
    assert (adapted["tasks_moved"] == 0) == (adapted["settled_s"] is None)
    footprint.assert_gone()


@two_executors
def test_no_row_is_lost_while_tasks_move_often(spark: SparkSession, footprint: Footprint) -> None:
    row = often.run(spark, minutes=0.1, per_minute=100.0, progress=told)
    assert row["moves"]
    assert row["rows"]
    assert row["rows_wrong"] == 0
    assert (row["failed"], row["recoveries"]) == (0, 0)
    footprint.assert_gone()
