"""Jobs whose operators get more or fewer tasks while they run: what they answer, who stays, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import PATIENCE_S, answer, await_epoch, await_recoveries, counts, kill, numbers, rows_of

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.model.task_id import operator_of


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


def tasks_of(job: Job, operator: str) -> int:
    return Counter(map(operator_of, job.worker_of))[operator]


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_a_keyed_count_has_more_and_fewer_tasks_and_nothing_is_lost_or_comes_twice(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, sink: str
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    processes = [hello.pid for hello in job.workers]
    await_epoch(job, 2)
    for tasks in (4, 3, 1, 5):
        before = dict(job.worker_of)
        crossing = job.scale("count", tasks)
        assert crossing is not None
        assert tasks_of(job, "count") == tasks
        assert crossing.scaled == {"count": (Counter(map(operator_of, before))["count"], tasks)}
        stayed = before.keys() & job.worker_of.keys()
        assert {task: job.worker_of[task] for task in stayed} == {task: before[task] for task in stayed}
        assert crossing.moved == ()
        await_epoch(job, job.epoch + 2)
    assert [hello.pid for hello in job.workers] == processes
    assert "'count' has 5 tasks instead of 1, 0 tasks moved" in crossing.note
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 0
    footprint.assert_gone()


def test_workers_join_and_leave_and_their_slots_are_free_again(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate), tasks=4).start(
        spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05
    )
    first = [hello.pid for hello in job.workers]
    await_epoch(job, 2)
    joined = job.add_workers()
    assert joined.workers == (2, 3)
    assert joined.has_kept_processes
    assert [hello.pid for hello in job.workers][:2] == first
    assert {*job.worker_of.values()} == {0, 1, 2}
    await_epoch(job, job.epoch + 2)
    job.scale("count", 5)
    left = job.remove_workers(2)
    assert left.workers == (3, 1)
    assert left.has_kept_processes
    assert len(job.workers) == 1
    slots = 8 if spark.sparkContext.master == "local[8]" else 4
    meeting = tmp_path / "meeting"
    assert spark.sparkContext.parallelize(range(slots - 1), slots - 1).map(Meets(meeting, slots - 1)).count()
    await_epoch(job, job.epoch + 2)
    job.add_workers(2)
    await_epoch(job, job.epoch + 1)
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 0
    footprint.assert_gone()


class Meets:
    """Waits until so many tasks of Spark's are there at once, which takes as many slots."""

    def __init__(self, folder: Path, tasks: int) -> None:
        self.folder, self.tasks = folder, tasks

    def __call__(self, task: int) -> bool:
        self.folder.mkdir(exist_ok=True)
        (self.folder / str(task)).touch()
        return wait_until(lambda: len(list(self.folder.iterdir())) == self.tasks, PATIENCE_S)
