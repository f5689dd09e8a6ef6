"""Tortured jobs in their short form: one seed of the lines that say most, and what the trials themselves promise."""

from __future__ import annotations

from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession

from penstock_lab.torture.contract import BROKEN, HELD
from penstock_lab.torture.lines import LINES
from penstock_lab.torture.play import TRIALS
from penstock_lab.torture.trial import Trial, judged

here = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
SEEDS = {
    "killed-starting": 1,
    "killed-checkpoint": 1,
    "killed-recovery": 1,
    "killed-rebalance": 1,
    "killed-closing": 1,
    "killed-move-standing": 2,
    "killed-move-restoring": 1,
    "part-flipped": 1,  # at a recovery
    "manifest-torn": 2,
    "descriptors": 1,
    "socket-cut": 1,
    "line-cut": 4,  # the lane of reports
}


def test_every_line_has_its_trial() -> None:
    assert sorted(TRIALS) == sorted(line.name for line in LINES)


@here
@pytest.mark.parametrize("line", SEEDS)
def test_a_tortured_job_is_complete(spark: SparkSession, footprint: Footprint, tmp_path: Path, line: str) -> None:
    trial = Trial(spark, line, SEEDS[line], tmp_path)
    with judged(trial):
        TRIALS[line](trial)
    assert trial.row.verdict == HELD, trial.row
    assert trial.row.counts["rows"] > 0
    if trial.sink == "parquet":  # files of collected rows stay for their DataFrame
        assert set(trial.job.results) == {"out"}  # asked for, so that nothing is kept for whoever might
        footprint.assert_gone()


def test_a_driver_that_is_killed_goes_on_when_its_program_is_started_again(tmp_path: Path) -> None:
    trial = Trial(None, "killed-driver", 1, tmp_path)
    with judged(trial):
        TRIALS["killed-driver"](trial)
    assert trial.row.verdict == HELD, trial.row


@here
def test_a_trial_whose_sink_lost_rows_is_broken(spark: SparkSession, tmp_path: Path) -> None:
    trial = Trial(spark, "planted", 1, tmp_path)
    trial.sink = "parquet"
    with judged(trial):
        trial.begin()
        trial.gates.set("go")
        trial.ended()
        next(trial.out.glob("*.parquet")).unlink()
        trial.check()
    assert trial.row.verdict == BROKEN
    assert trial.row.counts["lost"] > 0
