"""Rows that were damaged behind a job's back: it ends with the file's name, and gives no wrong rows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from recovery_kit import SLOW_S, await_epoch

import penstock as ps
from penstock.errors import CheckpointDamaged
from penstock.flow import io

ROWS = 20_000


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_collected_rows_that_were_damaged_are_not_given(
    spark: SparkSession, tmp_path: Path, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.deploy.results.dataframes.SMALL_BYTES", small_bytes)
    top = ps.Topology("words")
    numbers = io.generator(lambda task, tasks: ((n,) for n in range(ROWS)), "n bigint")
    top.source("numbers", numbers).sink("out", io.collect())
    assert top.run(spark, workers=1, checkpoint=tmp_path / "kept").count() == ROWS
    (path, *_) = sorted((tmp_path / "kept" / "results").glob("*/part-*"))
    flip(path)
    with pytest.raises(CheckpointDamaged, match="does not match its checksum") as caught:
        top.run(spark, workers=1, checkpoint=tmp_path / "kept")
    assert caught.value.path == str(path)


def test_a_spooled_dataframe_that_was_damaged_ends_the_job_with_the_file_s_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def slow(row: ps.Row) -> tuple[int]:
        if not gate.exists():
            time.sleep(SLOW_S)
        return (row.id,)

    def topology() -> ps.Topology:
        top = ps.Topology("words")
        rows = top.source("numbers", io.dataframe(spark.range(ROWS)))
        rows.map(slow, "n bigint").sink("out", io.collect())
        return top

    job = topology().start(spark, workers=1, rows_max=100, checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 1)
    job.cancel()
    files = sorted((tmp_path / "kept" / "input" / "numbers").rglob("*.parquet"))
    for file in files:
        flip(file)
    gate.touch()
    with pytest.raises(CheckpointDamaged, match="do not match their checksum; restore the file") as caught:
        topology().run(spark, workers=1, checkpoint=tmp_path / "kept")
    assert caught.value.path in map(str, files)
