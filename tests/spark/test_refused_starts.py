"""Starts that are refused: the job that runs in the folder goes on, and what was to be overwritten is still there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.checkpoint.input_files import LIST
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.flow import io


def topology(source: io.Source, out: Path) -> ps.Topology:
    top = ps.Topology("refused")
    top.source("numbers", source).sink("out", io.parquet(out, mode="overwrite"))
    return top


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_start_that_is_refused_overwrites_nothing(spark: SparkSession, tmp_path: Path, is_kept: bool) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept"
    out.mkdir()
    (out / "part-0.parquet").write_bytes(b"rows of yesterday")
    (tmp_path / "file").touch()
    top, options = topology(io.rate(10), out), {"checkpoint": kept} if is_kept else {}
    with pytest.raises(InvalidInput, match="metrics cannot be written"):
        top.start(spark, workers=1, metrics=tmp_path / "file" / "log", **options)
    if is_kept:
        Store(str(kept)).claim("another")
        with pytest.raises(InvalidInput, match="has checkpoints of topology 'another'"):
            top.start(spark, workers=1, **options)
    assert (out / "part-0.parquet").exists()


def test_what_is_overwritten_is_gone_before_a_new_job_shows_rows(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    spark.range(1000, 1100).write.parquet(str(out))
    top = topology(io.dataframe(spark.range(100)), out)
    assert top.run(spark, workers=1, checkpoint=tmp_path / "kept").count() == 100
    assert sorted(row.id for row in spark.read.parquet(str(out)).collect()) == list(range(100))


def test_a_list_of_rows_that_is_damaged_takes_no_job_over(spark: SparkSession, tmp_path: Path) -> None:
    store, place = Store(str(tmp_path / "kept")), tmp_path / "kept" / "input" / "numbers"
    attempt = store.claim("refused")
    place.mkdir(parents=True)
    (place / LIST).write_bytes(b"damaged")
    with pytest.raises(CheckpointDamaged, match=r"input/numbers/_checksums.json is damaged"):
        topology(io.dataframe(spark.range(100)), tmp_path / "out").start(spark, workers=1, checkpoint=tmp_path / "kept")
    store.require_current(attempt)
