"""Jobs with checkpoints on real sessions: what they answer, and that they answer it after a worker was killed."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import (
    KEYS,
    PATIENCE_S,
    ROWS,
    answer,
    await_epoch,
    await_recoveries,
    counts,
    kill,
    numbers,
    rows_of,
)

import penstock as ps
from penstock.checkpoint.store import Store
from penstock.deploy.driver.facts import slots_now
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.results.dataframes import SMALL_BYTES
from penstock.errors import JobFailed
from penstock.flow import io


def table() -> pa.Table:
    """The numbered rows, a millisecond of event time from one to the next."""
    at = pa.array(range(ROWS), pa.int64())
    times = pa.array([number * 1000 for number in range(ROWS)], pa.timestamp("us", "UTC"))
    return pa.table({"n": at, "k": pa.array([number % KEYS for number in range(ROWS)], pa.int64()), "ts": times})


@pytest.mark.parametrize("kind", ["generator", "files", "dataframe", "rate"])
def test_a_job_with_checkpoints_answers_as_plain_python_does(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    if kind == "rate":
        top = ps.Topology("counts")
        stream = top.source("numbers", io.rate(1e6, rows=ROWS, tasks=2)).select("value as n", f"value % {KEYS} as k")
        stream.key_by("k").aggregate(rows="count(*)", total="sum(n)").sink("out", io.collect())
    elif kind == "generator":
        top = counts(numbers())
    else:
        frame = spark.createDataFrame(table()).repartition(3)
        if kind == "files":
            frame.write.parquet(str(tmp_path / "in"))
        top = counts(io.files(tmp_path / "in") if kind == "files" else io.dataframe(frame))
    with top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05) as job:
        assert rows_of(job) == answer()
        assert job.recoveries == 0
    with top.start(spark, workers=3, checkpoint=tmp_path / "kept") as again:  # its answer is there already
        assert not again.workers
        assert rows_of(again) == answer()


def test_windows_over_a_dataframe_answer_as_without_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    top = ps.Topology("windows")
    timed = top.source("numbers", io.dataframe(spark.createDataFrame(table()))).event_time("ts", "1 second")
    timed.key_by("k").aggregate(window=ps.tumbling("3 seconds"), rows="count(*)", total="sum(n)").sink(
        "out", io.collect()
    )
    plain = sorted(tuple(row) for row in top.run(spark, workers=3).collect())
    kept = top.run(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    assert sorted(tuple(row) for row in kept.collect()) == plain
    assert len(plain) == KEYS * 7  # twenty seconds


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_a_job_whose_worker_is_killed_goes_on_from_its_last_epoch(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, sink: str
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    kill(job, 0)
    await_recoveries(job, 1)
    await_epoch(job, 4)
    gate.touch()
    assert rows_of(job) == answer()
    assert (job.recoveries, job.attempt) == (1, 2)
    assert any("the job went on from epoch" in note and "worker 0" in note for note in job.notes), job.notes
    footprint.assert_gone()


@pytest.mark.parametrize("small_bytes", [SMALL_BYTES, 0], ids=["few rows", "many rows"])
def test_a_region_keeps_its_order_when_one_of_its_workers_is_killed(
    spark: SparkSession, tmp_path: Path, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.deploy.results.dataframes.SMALL_BYTES", small_bytes)
    gate = tmp_path / "gate"
    top = ps.Topology("region")
    region = top.source("numbers", numbers(gate)).parallel(2)
    region.map(lambda row: (row.n, row.k), "n bigint, k bigint").merge().sink("out", io.collect())
    job = top.start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    kill(job, 1)
    await_recoveries(job, 1)
    gate.touch()
    assert [row.n for row in job.result.collect()] == list(range(ROWS))


def test_a_row_that_fails_again_and_again_ends_the_job_with_its_name(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    top = ps.Topology("numbers")
    rows = top.source("numbers", numbers(tmp_path / "gate"))
    rows.map(lambda row: (1 // (row.n - 500),), "n bigint", name="divide").sink("out", io.collect())
    with pytest.raises(JobFailed, match="ZeroDivisionError") as caught:
        top.run(spark, workers=2, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    assert caught.value.operator == "divide"
    assert any("task 'divide/0' failed 3 times with the same error" in note for note in caught.value.__notes__)
    assert "n=500" in str(caught.value)
    footprint.assert_gone()


def test_a_job_whose_workers_cannot_begin_is_not_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    module = tmp_path / "only_on_the_driver.py"
    module.write_text("def same(row):\n    return (row.n,)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        same = importlib.import_module("only_on_the_driver").same
        top = ps.Topology("absent")
        top.source("numbers", numbers()).map(same, "n bigint").sink("out", io.collect())
        with pytest.raises(JobFailed, match="No module named 'only_on_the_driver' where the workers are") as caught:
            top.run(spark, workers=1, checkpoint=tmp_path / "kept")
    assert not getattr(caught.value, "__notes__", [])
    assert Store(str(tmp_path / "kept")).claim("absent") == 2  # there was one attempt


@pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True)
def test_a_job_that_loses_an_executor_goes_on_with_the_workers_for_which_there_is_room(
    spark: SparkSession, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    slots = slots_now(spark)
    job = counts(numbers(gate)).start(spark, workers=3, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    lost = int(job.workers[0].address.rpartition(":")[2])
    os.kill(lost, signal.SIGKILL)
    await_recoveries(job, 1)
    await_epoch(job, job.epoch + 1)
    left = {worker.address for worker in job.workers}
    gate.touch()
    assert rows_of(job) == answer()
    assert not [address for address in left if address.endswith(f":{lost}")]
    fewer = len(job.workers) < 3  # unless the executor's successor was quicker
    assert any("of its 3 workers" in note for note in job.notes) == fewer, job.notes
    assert wait_until(lambda: slots_now(spark) == slots, PATIENCE_S)  # for the tests that follow
