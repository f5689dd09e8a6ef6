"""Jobs that look at themselves and move, on real sessions; tests/unit/test_adapt_* ask what is decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import PATIENCE_S, answer, counts, numbers, rows_of

import penstock as ps
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InvalidInput

EAGER = ps.AdaptSettings(
    goals=ps.AdaptGoals("bytes"), interval_s=1.0, horizon_s=600.0, rest_s=2.0, scheduler="t3", sigmas=2.0
)


def test_a_job_moves_to_a_better_plan_by_itself_and_says_why(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate), tasks=3).start(
        spark,
        workers=3,
        node="executor",
        checkpoint=tmp_path / "kept",
        checkpoint_interval_s=0.2,
        interval_s=0.2,
        metrics=tmp_path / "metrics",
        adapt=EAGER,
    )
    assert job.plan is not None
    assert job.plan.scheduler == "even"
    seen = wait_until(lambda: len(job.decisions) >= 5, PATIENCE_S)
    assert seen, job.notes
    gate.touch()
    assert rows_of(job) == answer()
    rows = job.metrics("decisions").to_pylist()
    assert rows[-1]["words"] == job.decisions[-1].words
    assert {"price_now", "gain", "cost", "noise"} <= json.loads(rows[-1]["figures"]).keys()
    taken = [decision for decision in job.decisions if decision.taken]
    assert job.moves == sum(len(decision.moves) for decision in taken)
    nodes = {hello.address for hello in job.workers}
    if len(nodes) > 1:  # of one node no plan is better than another, by bytes
        assert taken
        assert taken[0].figures["bytes_then"] < taken[0].figures["bytes_now"]
        assert any("went over to another plan" in note for note in job.notes)
    assert list((tmp_path / "metrics" / "decisions").glob("*.parquet"))
    footprint.assert_gone()


def test_what_adapting_needs_is_said_before_spark_is_asked(spark: SparkSession, tmp_path: Path) -> None:
    top = counts(numbers())
    with pytest.raises(InvalidInput, match="tasks move at epochs; give checkpoint=FOLDER"):
        top.start(spark, adapt="best")
    with pytest.raises(InvalidInput, match="unknown scheduler 'bets'"):
        top.start(spark, adapt="bets", checkpoint=tmp_path)
    with pytest.raises(InvalidInput, match="interval_s is 0"):
        ps.AdaptSettings(interval_s=0.0)
