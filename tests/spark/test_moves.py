"""Jobs that go over to another plan while they run: what they answer, who stays, and what fails on the way."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import ROWS, answer, await_epoch, await_recoveries, counts, kill, numbers, rows_of

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.attempt import one_by_one
from penstock.deploy.attempt.attempt import Attempt
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.driver import rendezvous
from penstock.errors import InvalidInput, JobFailed
from penstock.flow import io


@pytest.fixture(autouse=True)
def all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where tasks cannot move while the others go on; tests/spark/test_live_moves.py has where they can."""
    monkeypatch.setattr(one_by_one, "why_not_live", lambda *_: "the test has it so")


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


def pids(job: Job) -> list[int]:
    return [hello.pid for hello in job.workers]


def together(job: Job) -> set[frozenset[str]]:
    """Which tasks share a worker."""
    return {frozenset(task for task, at in job.worker_of.items() if at == worker) for worker in job.worker_of.values()}


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_tasks_move_while_the_job_runs_and_nothing_is_lost_or_comes_twice(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, sink: str
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    processes, source = pids(job), job.worker_of["numbers/0"]
    await_epoch(job, 2)
    first = job.move("count", 1 - source)
    assert dict(job.worker_of) == {"numbers/0": source, "count/0": 1 - source, "count/1": 1 - source}
    assert len(first.moved) == 1
    await_epoch(job, job.epoch + 2)
    second = job.move(["count/0", "numbers"], 1 - source)
    assert job.worker_of["count/0"] == job.worker_of["numbers/0"] == 1 - source
    assert (second.attempt, job.attempt) == (3, 3)
    assert first.has_kept_processes
    assert second.has_kept_processes
    assert pids(job) == processes
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 0
    assert sum("the job went over to another plan at epoch" in note for note in job.notes) == 2
    footprint.assert_gone()


def test_a_job_whose_worker_has_nothing_to_do_goes_over_in_new_processes(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate))
    job = top.start(spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 1)
    assert job.move(list(job.worker_of), 0).has_kept_processes
    await_epoch(job, job.epoch + 1)  # worker 1 has gone: it had nothing to do
    back = job.move("count/1", 1)  # also where Spark starts the new processes on other executors
    assert not back.has_kept_processes
    assert len({*job.worker_of.values()}) == 2
    gate.touch()
    assert rows_of(job) == answer()
    footprint.assert_gone()


def test_a_region_that_moves_keeps_its_order(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    top = ps.Topology("region")
    region = top.source("numbers", numbers(gate)).parallel(2)
    region.map(lambda row: (row.n, row.k), "n bigint, k bigint").merge().sink("out", io.collect())
    job = top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    target = next(worker for worker in range(3) if worker != job.worker_of["numbers/0"])
    job.move("numbers", target)
    await_epoch(job, job.epoch + 1)
    gate.touch()
    assert [row.n for row in job.result.collect()] == list(range(ROWS))


def test_a_new_plan_from_what_was_measured_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    kept = tmp_path / "kept"
    top = counts(numbers(gate), tasks=4)
    job = top.start(spark, workers=2, scheduler="even", checkpoint=kept, checkpoint_interval_s=0.05, interval_s=0.1)
    await_epoch(job, 8)
    found = job.replan("ffd", apply=True)
    assert job.plan is not None
    assert found.moves
    assert {task: job.plan.assignment[task] for task in found.moves} == {
        task: found.plan.assignment[task] for task in found.moves
    }
    gate.touch()
    assert rows_of(job) == answer()


def test_a_job_goes_on_under_its_plan_where_a_worker_dies_while_all_stand_still(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, take_over = tmp_path / "gate", Attempt.take_over

    def killing(attempt: Attempt, before: Attempt) -> bool:
        os.kill(before.hellos[0].pid, signal.SIGKILL)
        return take_over(attempt, before)

    monkeypatch.setattr(Attempt, "take_over", killing)
    job = counts(numbers(gate)).start(
        spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05
    )
    before = together(job)
    await_epoch(job, 2)
    with pytest.raises(JobFailed, match=r"did not go over to another plan: .* worker 0 .* died without a word"):
        job.move("count", 1 - job.worker_of["numbers/0"])
    await_recoveries(job, 1)
    assert together(job) == before  # on whatever executors Spark has started the new processes
    monkeypatch.undo()
    await_epoch(job, job.epoch + 1)
    job.move("count", 1 - job.worker_of["numbers/0"])
    moved = together(job)
    assert moved != before
    kill(job, 1)
    await_recoveries(job, 2)
    assert together(job) == moved  # the plan that it follows now
    gate.touch()
    assert rows_of(job) == answer()
    footprint.assert_gone()


def test_moves_that_cannot_be_are_refused_before_anything_stands_still(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate))
    top.require(ps.separate_workers("count/0", "count/1"))
    job = top.start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    with pytest.raises(InvalidInput, match="unknown task or operator 'counts'"):
        job.move("counts", 0)
    with pytest.raises(InvalidInput, match="worker is 2; the job has workers 0 to 1"):
        job.move("count", 2)
    with pytest.raises(InvalidInput, match="the plan cannot be followed here"):
        job.move("count", 0)
    with pytest.raises(InvalidInput, match="nothing moves"):
        job.move("numbers", job.worker_of["numbers/0"])
    for strange in ([], 5):
        with pytest.raises(InvalidInput, match="give the name of a task or an operator"):
            job.move(strange, 0)  # type: ignore[arg-type] # that is the point
    assert job.attempt == 1
    gate.touch()
    assert rows_of(job) == answer()
    with pytest.raises(InvalidInput, match="cannot move any more: it is finished"):
        job.move("numbers", 0)
    plain = counts(numbers(tmp_path / "never"), name="plain").start(spark, workers=2)
    with pytest.raises(InvalidInput, match="has no checkpoints, so its tasks cannot move"):
        plain.move("numbers", 0)
    plain.cancel()


class Seen:
    """Keeps values in itself, where no epoch sees them."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()

    def __call__(self, number: int) -> bool:
        is_new = number not in self.numbers
        self.numbers.add(number)
        return is_new


def test_what_users_objects_keep_does_not_come_over(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, seen, commit = tmp_path / "gate", Seen(), DriverEpochs.commit
    top = ps.Topology("seen")
    source = top.source("numbers", numbers(gate))
    found = source.flat_map(lambda row: [(row.n, row.k)] if seen(row.n) else [], "n bigint, k bigint", name="seen")
    found.sink("out", io.collect())
    job = top.start(spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.2)
    await_epoch(job, 1)

    def late(epochs: DriverEpochs, none: str, timeout: float) -> object:
        committed = commit(epochs, none, timeout)
        time.sleep(0.5)  # rows behind the epoch, which are worked on again
        return committed

    monkeypatch.setattr(DriverEpochs, "commit", late)
    at = job.worker_of["numbers/0"]
    for number in range(2):
        job.move("numbers", (at + number + 1) % 2)
    gate.touch()
    assert len(job.result.collect()) == ROWS
    assert job.recoveries == 0


def test_a_port_that_is_missing_refuses_a_move_and_nothing_else(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate)).start(
        spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05
    )
    await_epoch(job, 1)

    def refused(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as no_port:
        no_port.setattr(rendezvous, "_listener", refused)
        with pytest.raises(JobFailed, match=r"stays as it is, and could not go over: .*Too many open files"):
            job.move("count", 1 - job.worker_of["numbers/0"])
    assert (job.attempt, job.recoveries) == (1, 0)
    gate.touch()
    assert rows_of(job) == answer()
