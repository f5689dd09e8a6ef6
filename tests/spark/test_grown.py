"""A topology that grows while parts of it are over: what is refused, and what its user is told to do instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recovery_kit import await_epoch

import penstock as ps
from penstock.flow import io

FEW, MORE = 5, 100


def few(task: int, tasks: int) -> Iterator[tuple[int]]:
    return ((n,) for n in range(FEW))


def more(task: int, tasks: int) -> Iterator[tuple[int]]:
    return ((n,) for n in range(FEW, FEW + MORE))


def test_rows_of_a_new_source_are_not_lost_behind_an_operator_that_had_finished(
    spark: SparkSession, tmp_path: Path
) -> None:
    def topology(name: str, *, has_more: bool) -> ps.Topology:
        top = ps.Topology("grown")
        rows = top.source("few", io.generator(few, "n bigint"))
        if has_more:
            rows = rows.union(top.source("more", io.generator(more, "n bigint")), name="all")
        rows.map(lambda row: (row.n,), "n bigint", name=name).sink("out", io.parquet(tmp_path / "out"))
        top.source("ticks", io.rate(100)).sink("ticks out", io.discard())
        return top

    options = {"workers": 1, "checkpoint": tmp_path / "kept", "checkpoint_interval_s": 0.05}
    job = topology("m", has_more=False).start(spark, **options)
    await_epoch(job, 3)
    job.cancel()
    attempts = sorted((tmp_path / "kept" / "attempts").iterdir())
    said = "operator 'm' had finished when the checkpoint was made, and reads operator 'all' now, which is new"
    with pytest.raises(ps.InvalidInput, match=said):
        topology("m", has_more=True).start(spark, **options)
    assert sorted((tmp_path / "kept" / "attempts").iterdir()) == attempts
    job = topology("anew", has_more=True).start(spark, **options)
    await_epoch(job, job.epoch + 3)
    rows = job.stop()
    assert sorted(row.n for row in rows.collect()) == list(range(FEW + MORE))
