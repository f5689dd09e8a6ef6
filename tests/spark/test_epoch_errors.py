"""Jobs whose store or sink fails the driver, and workers that stop at the very end: nothing committed is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import PATIENCE_S, answer, await_epoch, await_recoveries, counts, numbers, rows_of

import penstock as ps
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.policy import Policy
from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.store import Store
from penstock.deploy.attempt import series
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import JobFailed, StoreUnusable
from penstock.flow import io

SHORT_S = 2.0  # the least that can be asked for


class Failing:
    """A sink's folder that cannot be written, at some of the epochs that are to be shown."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type[CollectPublication | ParquetPublication]) -> None:
        self.times = 0  # that it still fails
        self.last_alone = True
        publish = kind.publish

        def published(publication: CollectPublication | ParquetPublication, manifest: Manifest) -> None:
            if self.times and (manifest.is_last or not self.last_alone):
                self.times -= 1
                raise OSError(5, "Input/output error")
            publish(publication, manifest)

        patch.setattr(kind, "publish", published)


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_a_last_epoch_that_cannot_be_shown_at_first_is_shown_in_the_end(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sink: str
) -> None:
    failing = Failing(monkeypatch, CollectPublication if sink == "collect" else ParquetPublication)
    failing.times = 3
    top = counts(numbers(), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    assert rows_of(job) == answer()
    assert failing.times == 0
    assert job.recoveries == 0  # there was nothing left to do
    footprint.assert_gone()


def test_a_last_epoch_that_is_not_shown_waits_until_the_job_is_run_again(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(series, "Policy", lambda: Policy(failures_max=2))
    failing = Failing(monkeypatch, ParquetPublication)
    failing.times = 1_000
    top = counts(numbers(), io.parquet(tmp_path / "out"))
    with pytest.raises(JobFailed, match=r"sink 'out' cannot show the rows of epoch .* Input/output error") as caught:
        top.run(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    assert isinstance(caught.value.__cause__, OSError)
    footprint.assert_gone()
    failing.times = 0
    with top.start(spark, workers=3, checkpoint=tmp_path / "kept") as again:
        assert not again.workers
        assert rows_of(again) == answer()


def test_a_store_and_a_sink_that_fail_for_a_moment_cost_an_attempt_each(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, commit, broken = tmp_path / "gate", Store.commit, tmp_path / "broken"
    failing = Failing(monkeypatch, ParquetPublication)
    failing.last_alone = False

    def committed(store: Store, manifest: Manifest) -> None:
        if broken.exists():
            broken.unlink()
            msg = "cannot use the bucket for checkpoints: 503 slow down"
            raise StoreUnusable(msg)
        commit(store, manifest)

    monkeypatch.setattr(Store, "commit", committed)
    top = counts(numbers(gate), io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    broken.touch()
    await_recoveries(job, 1)
    await_epoch(job, job.epoch + 1)
    failing.times = 1
    await_recoveries(job, 2)
    gate.touch()
    assert rows_of(job) == answer()
    for words in ("503 slow down", "sink 'out' cannot show the rows of epoch"):
        assert any("the job went on from epoch" in note and words in note for note in job.notes), job.notes


def test_a_job_that_recovers_says_what_it_failed_with_and_when_it_tries_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, broken, claim, commit = tmp_path / "gate", tmp_path / "broken", Store.claim, Store.commit

    def require_room() -> None:
        if broken.exists():
            msg = "cannot use the folder for checkpoints: No space left on device"
            raise StoreUnusable(msg)

    def committed(store: Store, manifest: Manifest) -> None:
        require_room()
        commit(store, manifest)

    def claimed(store: Store, topology: str, after: int | None = None) -> int:
        require_room()
        return claim(store, topology, after)

    monkeypatch.setattr(Store, "commit", committed)
    monkeypatch.setattr(Store, "claim", claimed)
    job = counts(numbers(gate)).start(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    broken.touch()
    told = "the job is recovering: tried again in "
    assert wait_until(lambda: any(note.startswith(told) for note in job.notes), PATIENCE_S)
    (note,) = (note for note in job.notes if note.startswith(told))
    assert "of at most 10 since epoch" in note
    assert "No space left on device" in note
    broken.unlink()
    await_recoveries(job, 1)
    assert not any(note.startswith(told) for note in job.notes)
    gate.touch()
    assert rows_of(job) == answer()


@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint", "plain"])
def test_a_worker_that_is_stopped_behind_its_goodbye_does_not_hold_the_job_up(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, checkpoint: bool
) -> None:
    stopped = tmp_path / "stopped"

    def stops(index: int, tasks: int) -> Iterator[tuple[int]]:
        from penstock.deploy.worker.control import DriverLine

        done = DriverLine.done

        def last_words(line: DriverLine, status: str) -> None:
            done(line, status)
            stopped.touch()
            os.kill(os.getpid(), signal.SIGSTOP)

        DriverLine.done = last_words  # type: ignore[method-assign] # of this process, which is killed there
        yield (1,)

    top = ps.Topology("goodbye")
    top.source("numbers", io.generator(stops, "n bigint")).sink("out", io.collect())
    kept = tmp_path / "kept" if checkpoint else None
    job = top.start(spark, workers=1, checkpoint=kept, silence_s=SHORT_S)
    assert job.wait(PATIENCE_S)
    assert stopped.exists()
    assert [tuple(row) for row in job.result.collect()] == [(1,)]
    assert job.status == "finished"
    footprint.assert_gone()
