"""A parallel region on three executors of Spark, one of whose workers is slow."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.deploy import read_metric_table
from penstock.deploy.driver.job import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InvalidInput, NotEnoughSlots
from penstock.flow import io
from penstock.jobs import Topology
from penstock.observe.balance_picture import draw_region, region_histories

ROWS, BATCH_ROWS = 20_000, 500
ROW_S, SLOWED = 0.0002, 50.0
WORKED = pa.schema([pa.field("n", pa.int64()), pa.field("process", pa.int64())])
PLACED = WORKED.append(pa.field("place", pa.int64()))

on_three_executors = pytest.mark.parametrize("spark", ["local-cluster[3,3,1024]"], indirect=True)


def numbers(task: int, tasks: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": range(at, at + BATCH_ROWS)}) for at in range(0, ROWS, BATCH_ROWS)]


class Waits:
    """The workload: rows cost time; the first process that gets any is slowed, if it finds where to say so."""

    def __init__(self, claim: Path | None) -> None:
        self.claim, self.row_s = claim, 0.0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self.row_s:
            try:
                if self.claim is None:
                    raise FileExistsError
                os.close(os.open(self.claim, os.O_CREAT | os.O_EXCL))
                self.claim.write_text(str(os.getpid()))
                self.row_s = ROW_S * SLOWED
            except FileExistsError:
                self.row_s = ROW_S
        time.sleep(self.row_s * batch.num_rows)
        return pa.record_batch([batch.column(0), pa.array([os.getpid()] * batch.num_rows)], schema=WORKED)


class Places:
    """Numbers rows as they come out of the region."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        start, self.next = self.next, self.next + batch.num_rows
        return pa.record_batch([*batch.columns, pa.array(range(start, self.next), pa.int64())], schema=PLACED)


@on_three_executors
def test_a_region_with_one_slow_worker_settles_and_keeps_order(spark: SparkSession, tmp_path: Path) -> None:
    top = Topology("slowed")
    source = top.source("numbers", io.generator(numbers, "n bigint"))
    region = source.parallel(3, sample_s=0.25, name="wait").map_batches(Waits(tmp_path / "slow"), WORKED, name="work")
    region.merge().map_batches(Places(), PLACED, name="place").sink("out", io.collect())
    job = top.start(spark, metrics=str(tmp_path / "metrics"))
    rows = job.result.collect()
    assert sorted(row.n for row in rows) == list(range(ROWS))
    assert all(row.n == row.place for row in rows)
    by_process = Counter(row.process for row in rows)
    slow = int((tmp_path / "slow").read_text())
    assert len(by_process) == 3, "replicas shared a worker"
    assert by_process[slow] < ROWS / 10, by_process  # even shares would be a third
    (history,) = region_histories(read_metric_table(tmp_path / "metrics", "balance"))
    assert history.weights.shape[1] == 3
    assert history.weights[-1].min() < 10  # per cent
    assert draw_region(history, tmp_path / "region.png").stat().st_size > 10_000


def counting(task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    for at in itertools.count(0, BATCH_ROWS):
        yield pa.record_batch({"n": range(at, at + BATCH_ROWS)})


def with_a_weight(job: Job) -> int:
    """How many replicas the latest decision gave rows to."""
    rows = job.metrics("balance").to_pylist()
    latest = max((row["time_us"] for row in rows), default=0)
    return sum(row["weight"] > 0 for row in rows if row["time_us"] == latest)


@on_three_executors
def test_replicas_join_and_leave_a_job_that_runs(spark: SparkSession) -> None:
    top = Topology("scaled")
    source = top.source("numbers", io.generator(counting, "n bigint", bounded=False))
    region = source.parallel(1, at_most=3, balance="round-robin", sample_s=0.1, name="scaled")
    worked = region.map_batches(Waits(None), WORKED, name="work").merge()
    worked.map_batches(Places(), PLACED, name="place").sink("out", io.collect())
    with top.start(spark, interval_s=0.1) as job:
        with pytest.raises(InvalidInput, match="it can have 1 to 3"):
            job.scale("work", 4)
        for name, replicas in (("work", 3), ("scaled", 1), ("scaled.split", 2)):
            job.scale(name, replicas)
            assert wait_until(lambda wanted=replicas: with_a_weight(job) == wanted, 60.0), job.metrics("balance")
        rows = job.stop().collect()
        with pytest.raises(InvalidInput, match="only while the job runs"):
            job.scale("scaled", 1)
    assert [row.n for row in sorted(rows, key=lambda row: row.place)] == list(range(len(rows)))
    assert len({row.process for row in rows}) == 3


@on_three_executors
def test_more_replicas_than_slots_are_refused(spark: SparkSession) -> None:
    top = Topology("wide")
    source = top.source("numbers", io.generator(numbers, "n bigint"))
    source.parallel(9).filter(lambda row: True).merge().sink("out", io.discard())
    with pytest.raises(NotEnoughSlots, match="has 9 replicas"):
        top.start(spark)
