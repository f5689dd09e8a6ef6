"""Jobs that look at themselves and move, on real sessions; tests/unit/test_adapt_* ask what is decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from adapting_kit import shifting, slowed, working
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import PATIENCE_S, answer, counts, numbers, rows_of

import penstock as ps
from penstock.adapt.contract import Decision
from penstock.deploy import Job
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


@pytest.fixture(autouse=True)
def cancelled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that fails leaves no job behind for the next."""
    started: list[Job] = []
    begin = Job.begin

    def begun(job: Job) -> None:
        started.append(job)
        begin(job)

    monkeypatch.setattr(Job, "begin", begun)
    yield
    for job in started:
        job.cancel()


def looked(job: Job, since: int) -> list[Decision]:
    """Decisions behind so many."""
    return list(job.decisions)[since:]


def test_a_slowed_worker_is_named_and_relieved(spark: SparkSession, footprint: Footprint, tmp_path: Path) -> None:
    job = working(rows_per_s=20_000, us=8, tasks=6).start(
        spark,
        workers=3,
        node="executor",
        checkpoint=tmp_path / "kept",
        checkpoint_interval_s=0.5,
        interval_s=0.25,
        adapt=replace(EAGER, interval_s=2.0, rest_s=0.5),
    )
    assert wait_until(lambda: len(job.decisions) >= 3, PATIENCE_S), job.notes
    crowded = max(range(3), key=lambda worker: sum(task.startswith("work") for task in tasks_on(job, worker)))
    slot = job.slots_of_workers().slot(crowded)
    named = f"worker {slot.worker} of {slot.node!r} runs at"
    before = tasks_on(job, crowded)

    def relieved() -> Decision | None:
        taken = [d for d in looked(job, since) if d.taken and named in d.words]
        return next((d for d in taken if any(move.origin == slot for move in d.moves)), None)

    with slowed(job.workers[crowded].pid):
        since = len(job.decisions)
        assert wait_until(lambda: relieved() is not None, 2 * PATIENCE_S), [d.words for d in looked(job, since)]
        decision = relieved()
    assert decision is not None
    assert {move.task for move in decision.moves if move.origin == slot} <= before
    job.stop()  # within how many looks is simulated: tests/unit/test_adapt_simulated.py
    footprint.assert_gone()


def tasks_on(job: Job, worker: int) -> set[str]:
    return {task for task, at in job.worker_of.items() if at == worker}


def test_traffic_that_shifts_moves_once_and_what_is_between_nodes_falls(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    top = shifting(gate, rows_per_s=2_000, tasks=2)
    has_nodes = spark.sparkContext.master.startswith("local-cluster")
    if has_nodes:  # a pair on each
        top.require(ps.separate_nodes("feed/0", "feed/1"), ps.separate_nodes("sum/0", "sum/1"))
    job = top.start(
        spark,
        workers=3,
        node="executor",
        scheduler="even",
        checkpoint=tmp_path / "kept",
        checkpoint_interval_s=0.2,
        interval_s=0.25,
        metrics=tmp_path / "metrics",
        adapt=replace(EAGER, interval_s=2.0, rest_s=2.0, scheduler="best", theta=0.3),
    )

    def settled() -> bool:
        return len(job.decisions) > 3 and all(d.words.startswith("nothing moves:") for d in list(job.decisions)[-2:])

    assert wait_until(settled, PATIENCE_S), job.notes
    since = len(job.decisions)
    gate.touch()

    def has_answered() -> bool:
        found = looked(job, since)
        return len(found) >= 6 and (not has_nodes or any(d.taken for d in found[:-3]))

    assert wait_until(has_answered, PATIENCE_S), job.notes
    taken, measured = [d for d in looked(job, since) if d.taken], looked(job, since)[-1].figures["bytes_now"]
    job.stop()
    if not has_nodes:
        assert not taken
        return
    assert len(taken) == 1, [d.words for d in looked(job, since)]
    assert {move.task.partition("/")[0] for move in taken[0].moves} in ({"feed"}, {"sum"})
    assert len(taken[0].moves) == 2
    assert taken[0].figures["bytes_then"] < taken[0].figures["bytes_now"] / 4
    assert measured < taken[0].figures["bytes_now"] / 4  # by what was measured behind the move
    footprint.assert_gone()
