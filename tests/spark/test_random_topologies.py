"""Random topologies over random files and DataFrames, on one to six workers: the same rows as Spark SQL, none late.

A job answers several cases at once, for it costs more than they do. `PENSTOCK_CASES=1000` asks so many instead of a
hundred, `PENSTOCK_CASES=500-1000` some of them; `PENSTOCK_CASE=17` asks one by itself, as a failure says, which is made
as small as a few trials can.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from oracle_kit import placing, quick_questions
from pyspark.sql import SparkSession
from random_cases import Case, Given
from random_rows import WayIn
from random_streams import Questions
from random_topologies import add

from penstock.errors import PenstockError
from penstock_lab.same_rows import row_differences

ONE = os.environ.get("PENSTOCK_CASE")
FIRST, _, LAST = os.environ.get("PENSTOCK_CASES", "0-100").rpartition("-")
CASES = range(int(FIRST or 0), int(LAST)) if ONE is None else range(int(ONE), int(ONE) + 1)
PER_JOB = 8
TRIALS_MAX = 12
HANDED_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
SMALL_BATCHES_ROWS = 100  # of each source where batches have one row: more would take long and show nothing more


@dataclass(frozen=True)
class Setting:
    """How a job runs."""

    seed: int
    workers: int
    rows_max: int
    transport: str
    handed_rows: int = 10_000  # of a batch in which Spark hands rows in; its own default

    @classmethod
    def of(cls, job: int, workers_max: int = 6) -> Setting:
        """The setting of a job, by its number."""
        rng = random.Random(f"job {job}")
        rows_max, transport = rng.choice((1, 3, 64, 1000, 4096)), rng.choice(("ring", "ring", "socket"))
        return cls(job, rng.randint(1, workers_max), rows_max, transport, rng.choice((5, 50, 50, 10_000)))


@dataclass(frozen=True)
class Trial:
    """Some cases in one job."""

    cases: Sequence[Case]
    setting: Setting

    def faults(self, spark: SparkSession, folder: Path) -> dict[str, list[str]]:
        """What is wrong, by sink or operator; nothing, when all is well."""
        folder.mkdir()
        questions = Questions(spark, folder)
        for case in self.cases:
            at_most = min(case.at_most or SMALL_BATCHES_ROWS, SMALL_BATCHES_ROWS)
            add(questions, replace(case, at_most=at_most) if self.setting.rows_max == 1 else case)
        setting = self.setting
        spark.conf.set(HANDED_ROWS, setting.handed_rows)
        options = placing(questions.topology, setting.workers, setting.seed)
        options |= {"rows_max": setting.rows_max, "transport": setting.transport, "take_last_slot": True}
        try:
            with questions.topology.start(spark, **options) as job:
                result = job.result
        except PenstockError as error:
            return {"job": [f"{type(error).__name__}: {error}"]}
        found = result if isinstance(result, dict) else dict.fromkeys(questions.expected, result)
        asked = {name: row_differences(found[name], spark.sql(sql)) for name, sql in questions.expected.items()}
        faults = {name: lines for name, lines in asked.items() if lines}
        if dict(job.late_rows) != questions.late:
            faults["late rows"] = [f"counted {dict(job.late_rows)}, without a time are {questions.late}"]
        return faults


def smallest(trial: Trial, spark: SparkSession, folders: Iterator[Path]) -> tuple[Trial, dict[str, list[str]]]:
    """A trial that fails like the one given, as small as a few attempts make it; of one case, if one fails alone."""
    trials = 0
    found: dict[str, list[str]] = {}
    alone = [Trial([case], trial.setting) for case in trial.cases] if len(trial.cases) > 1 else [trial]
    for one in alone:
        if not found and (found := one.faults(spark, next(folders))):
            trial = one
    while found and trials < TRIALS_MAX:
        for smaller in _smaller(trial):
            trials += 1
            if less := smaller.faults(spark, next(folders)):
                trial, found = smaller, less
                break
        else:
            break
    return trial, found


def _smaller(trial: Trial) -> Iterator[Trial]:
    case, workers = trial.cases[0], trial.setting.workers
    counts = [case.given(which).rows.count for which in (0, 1)]
    rows = max(counts) if case.at_most is None else case.at_most
    if rows > 1:
        yield replace(trial, cases=[replace(case, at_most=rows // 2)])
    if workers > 1:
        yield replace(trial, setting=replace(trial.setting, workers=workers // 2))


def check(trial: Trial, spark: SparkSession, folder: Path) -> None:
    """Fail with the smallest trial that fails like this one, and how to have it again."""
    folders = (folder / f"trial{number}" for number in count())
    faults = trial.faults(spark, next(folders))
    if not faults:
        return
    small, fewer = smallest(trial, spark, folders)
    number = next((case.number for case in trial.cases if any(f"case {case.number} " in name for name in faults)), None)
    number = small.cases[0].number if fewer else number
    lines = [f"{name}: {line}" for name, lines in (fewer or faults).items() for line in lines]
    again = f"PENSTOCK_CASE={number} .venv/bin/pytest -q tests/spark/test_random_topologies.py"
    inputs = [small.cases[0].given(which) for which in (0, 1)]
    pytest.fail("\n".join([again, repr(small), small.cases[0].shape, *map(repr, inputs), *lines]))


@pytest.fixture(scope="module", autouse=True)
def quick_sql(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(HANDED_ROWS)
    with quick_questions(spark):
        yield
    spark.conf.set(HANDED_ROWS, before)


@pytest.mark.parametrize("job", sorted({number // PER_JOB for number in CASES}))
@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_random_topologies_answer_as_spark_sql(spark: SparkSession, job: int, tmp_path: Path) -> None:
    numbers = [number for number in CASES if number // PER_JOB == job]
    check(Trial([Case(number) for number in numbers], Setting.of(job)), spark, tmp_path)


class Hasty(Case):
    """A case whose lateness is less than its rows need."""

    def given(self, which: int) -> Given:
        """Rows in no order, which one task reads as they come."""
        given = super().given(which)
        rows = replace(given.rows, count=60, order="shuffled", step_us=10_000_000, null_times=0.0)
        return Given(rows, WayIn("parquet", 1, "slices", 1, 10), behind=True, lateness="0 seconds")


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_rows_that_are_late_are_found_and_told(spark: SparkSession, tmp_path: Path) -> None:
    """A check that cannot fail checks nothing."""
    trial = Trial([Hasty(0)], Setting(0, 1, 4, "ring"))
    assert trial.cases[0].shape == "windowed"
    with pytest.raises(
        pytest.fail.Exception, match=r"PENSTOCK_CASE=0 (.|\n)*at_most=\d(.|\n)*missing 1 times"
    ) as failure:
        check(trial, spark, tmp_path)
    assert "late rows: counted {'aggregate1': " in str(failure.value)


@pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True)
def test_random_topologies_on_a_cluster(spark: SparkSession, tmp_path: Path) -> None:
    check(Trial([Case(number) for number in range(1_000_000, 1_000_004)], Setting.of(1_000_000, 3)), spark, tmp_path)
