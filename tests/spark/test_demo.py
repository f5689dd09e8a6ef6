"""The demonstration in a short form: a real job moves while it runs, and its answer is Spark SQL's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from rich.console import RenderableType

from penstock.cli.running.demo import course
from penstock.cli.running.demo.course import Course, run_course
from penstock.observe.placement_picture import draw_placements


class Kept:
    """A screen that keeps what is said, and counts the moments."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.moments = 0

    def say(self, line: RenderableType) -> None:
        self.lines.append(str(line))

    def show(self, *parts: RenderableType) -> None:
        self.moments += 1


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True)
def test_the_job_moves_and_its_answer_is_spark_sqls(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_asked: bool
) -> None:
    """By itself, or because a plan is asked for where the machine is too busy for looks to be sure of one."""
    monkeypatch.chdir(tmp_path)
    if is_asked:
        monkeypatch.setattr(course, "UNSURE_S", 0.0)
    kept = Kept()
    outcome = run_course(spark, kept, Course(rows_per_second=2_000.0, window_s=2.0, behind_s=0.0, workers=3))
    assert outcome.before.scheduler == "even"
    assert outcome.after.scheduler == "best"
    assert outcome.before.moved_to(outcome.after)
    assert outcome.foretold is not None
    assert outcome.foretold < outcome.before.between_nodes
    assert outcome.rows > 0
    plans = outcome.plans
    assert plans is not None
    assert plans.after.cost < plans.before.cost
    picture = draw_placements(
        plans.graph, plans.cluster, [plans.before, plans.after], tmp_path / "p.png", plans.profile
    )
    picture.unlink()
    assert any("went over to another plan" in note for note in outcome.notes)
    assert any("task" in line and "move" in line for line in kept.lines)
    assert kept.moments > 1
    assert os.listdir(tmp_path) == []
    footprint.assert_gone()
