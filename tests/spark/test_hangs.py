"""Workers that are stopped and workers whose function does not return, on real sessions: who is named, what follows."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import Row, SparkSession
from recovery_kit import PATIENCE_S, answer, await_epoch, await_recoveries, counts, numbers, rows_of

import penstock as ps
from penstock.checkpoint.contract import Part
from penstock.checkpoint.store import Store
from penstock.deploy import Job
from penstock.deploy.attempt import silence, slow_epochs
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import JobFailed
from penstock.flow import io

SHORT_S = 2.0  # the least that can be asked for


def stop(job: Job, worker: int) -> int:
    """Stop a worker's process; its number."""
    pid = job.workers[worker].pid
    os.kill(pid, signal.SIGSTOP)
    return pid


def await_note(job: Job, *words: str) -> str:
    """The first note with all of these words."""

    def found() -> list[str]:
        return [note for note in job.notes if all(word in note for word in words)]

    assert wait_until(lambda: bool(found()), PATIENCE_S), job.notes
    return found()[0]


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("wakes", [True, False], ids=["woken", "left"])
def test_a_stopped_worker_is_named_and_replaced_and_what_it_does_on_waking_counts_for_nothing(
    spark: SparkSession, footprint: Footprint, caplog: pytest.LogCaptureFixture, tmp_path: Path, wakes: bool
) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate)).start(
        spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05, silence_s=SHORT_S
    )
    await_epoch(job, 2)
    pid = stop(job, 1)
    await_recoveries(job, 1)
    (told,) = [line for line in caplog.messages if "has been silent since" in line]
    assert f"worker 1 (pid {pid}, node " in told
    assert any(f"which runs {task}" in told for task in job.worker_of), told
    if wakes and not has_ended(pid):
        os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: has_ended(pid), PATIENCE_S)  # by itself, or because Spark has had enough
    epoch = job.epoch
    await_epoch(job, epoch + 1)
    gate.touch()
    assert rows_of(job) == answer()
    assert job.recoveries == 1
    assert await_note(job, "the job went on from epoch", f"pid {pid}", "has said nothing since")
    assert not [note for note in job.notes if "silent since" in note]
    footprint.assert_gone()


def test_a_job_without_checkpoints_ends_by_name_when_a_worker_is_stopped(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    job = counts(numbers(tmp_path / "gate")).start(spark, workers=3, silence_s=SHORT_S)
    pid = stop(job, 2)
    with pytest.raises(JobFailed, match=f"its process .pid {pid}., with tasks .* has said nothing since") as caught:
        job.wait(PATIENCE_S)
    assert caught.value.worker == 2
    assert "silence_s is 2" in str(caught.value)
    assert wait_until(lambda: has_ended(pid), PATIENCE_S)
    footprint.assert_gone()


def test_a_worker_that_is_stopped_for_less_than_the_limit_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate)).start(spark, workers=3, silence_s=PATIENCE_S)
    pid = stop(job, 0)
    await_note(job, "worker 0", "silent since")
    os.kill(pid, signal.SIGCONT)
    await_note(job, "worker 0", "was silent for")
    gate.touch()
    assert rows_of(job) == answer()
    assert not [note for note in job.notes if "silent since" in note]


def test_a_function_that_takes_long_is_named_and_its_worker_is_left_at_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(silence, "BUSY_SECONDS", 1.0)
    gate = tmp_path / "gate"

    def hold(index: int, tasks: int) -> Iterator[tuple[int]]:
        yield (1,)
        assert wait_until(gate.exists, PATIENCE_S)
        yield (2,)

    top = ps.Topology("holds")
    top.source("numbers", io.generator(hold, "n bigint")).sink("out", io.collect())
    job = top.start(spark, workers=1, silence_s=SHORT_S)
    await_note(job, "worker 0", "which runs ", "numbers/0", "in one call since", "may not return")
    busy = job.workers[0].pid
    await_note(job, "worker 0", "in one call")
    gate.touch()
    assert sorted(row.n for row in job.result.collect()) == [1, 2]
    assert (job.recoveries, job.workers[0].pid) == (0, busy)


def test_a_function_that_lets_no_other_thread_run_is_left_at_it_where_it_can_be_seen_to_compute(
    spark: SparkSession,
) -> None:
    def keep_all_to_itself(row: Row) -> tuple[int]:
        some, began = 10_000_000, time.monotonic()
        sum(itertools.repeat(1, some))
        return (sum(itertools.repeat(1, round(some * 2 * SHORT_S / (time.monotonic() - began)))),)  # one long call

    top = ps.Topology("computes")
    top.source("numbers", io.generator(lambda i, n: iter([(1,)]), "n bigint")).map(keep_all_to_itself, "n bigint").sink(
        "out", io.collect()
    )
    with top.start(spark, workers=1, silence_s=SHORT_S) as job:
        assert job.result.count() == 1
        assert not [note for note in job.notes if "silent" in note]


class Hangs:
    """Passes rows on; once a file is there, the store of its worker does not answer until another is."""

    def __init__(self, begins: Path, ends: Path) -> None:
        self.begins, self.ends, self.has_begun = begins, ends, False

    def __call__(self, row: Row) -> dict[str, int]:
        if self.begins.exists() and not self.has_begun:
            self.has_begun = True
            self.hang(Store.write_part)
        return {"value": row["value"]}

    def hang(self, write: Callable[..., Part]) -> None:
        """As a disk of a network does that has gone: no error, and no return."""

        def written(*words: object) -> Part:
            while not self.ends.exists():
                time.sleep(0.01)
            Store.write_part = write  # type: ignore[method-assign] # the process is used again
            return write(*words)

        Store.write_part = written  # type: ignore[assignment,method-assign]


def test_a_store_that_does_not_answer_one_worker_is_told_with_who_waits_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "STILL_SECONDS", 0.5)
    monkeypatch.setattr(slow_epochs, "SLOW_SECONDS", 0.5)
    begins, ends = tmp_path / "begins", tmp_path / "ends"
    top = ps.Topology("hung")
    top.source("ticks", io.rate(500)).map(Hangs(begins, ends), "value bigint", name="m").sink("out", io.discard())
    job = top.start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    begins.touch()
    await_note(job, "epoch ", "is not committed: it waits for worker ", "which runs ")
    still = await_note(job, "has stood still in keeping an epoch since", "is given 600 s without a step")
    assert f"pid {job.workers[job.worker_of['m/0']].pid}" in still
    epoch = job.epoch
    ends.touch()
    await_epoch(job, epoch + 1)
    await_note(job, "epoch ", " took ", "it waited for worker ")
    assert job.recoveries == 0
    job.cancel()
