"""What Spark reads of a folder in which a job's sink publishes: whole epochs, each once, at every moment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.checkpoint import shown_log
from penstock.checkpoint.contract import Manifest, Part
from penstock.checkpoint.publication import ParquetPublication
from penstock.checkpoint.shown_log import INTERVAL, NAME
from penstock.run.contract import Staged
from penstock.run.operators.sinks.folder import STAGING
from penstock.run.operators.sinks.staged import PartName

SINK, STORE = "out", "5ee5a5705e0fa70b"
TASKS = (0, 1)


def staged(folder: Path, epoch: int, rows: int = 3, attempt: int = 1) -> Manifest:
    """An epoch of two tasks, whose files wait to be shown; their rows say which epoch they belong to."""
    waiting = folder / STAGING
    waiting.mkdir(parents=True, exist_ok=True)
    files = []
    for task in TASKS:
        path = waiting / str(PartName(task, SINK, STORE, attempt, epoch, "parquet"))
        pq.write_table(pa.table({"epoch": [epoch] * rows}), path)
        files.append(Staged(SINK, str(path), rows, path.stat().st_size))
    part = Part(0, "parts/x", 1, "x", ("op/0",), (), tuple(files))
    return Manifest(epoch, attempt, "counts", {"op": 1}, (part,))


def read(spark: SparkSession, folder: Path) -> dict[int, int]:
    """Rows of each epoch, as anybody reads them."""
    return {row["epoch"]: row["count"] for row in spark.read.parquet(str(folder)).groupBy("epoch").count().collect()}


def whole(epochs: Sequence[int], rows: int = 6) -> dict[int, int]:
    return dict.fromkeys(epochs, rows)


def test_spark_reads_a_log_whose_batches_that_repeat_all_come_at_growing_distances(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_log, "GROWS_AT", 2)
    publication = ParquetPublication(str(tmp_path), SINK, STORE)
    publication.resume(None)
    for epoch in range(1, 8 * INTERVAL):
        publication.publish(staged(tmp_path, epoch, rows=1))
        if epoch % INTERVAL in {0, 1, INTERVAL - 1}:
            assert read(spark, tmp_path) == whole(range(1, epoch + 1), rows=2)
    wholes = [path.name for path in (tmp_path / NAME).glob("*.compact")]
    assert sorted(wholes) == ["39.compact", "79.compact"]


def test_spark_reads_every_epoch_that_was_published_and_no_other(spark: SparkSession, tmp_path: Path) -> None:
    publication = ParquetPublication(str(tmp_path), SINK, STORE)
    publication.resume(None)
    epochs = range(1, 2 * INTERVAL + 3)  # twice a batch of the log that repeats all
    for epoch in epochs:
        manifest = staged(tmp_path, epoch)
        publication.publish(manifest)
        if epoch in {1, INTERVAL - 1, INTERVAL, INTERVAL + 1, epochs[-1]}:
            assert read(spark, tmp_path) == whole(range(1, epoch + 1))
    staged(tmp_path, epochs[-1] + 1)  # nobody has committed it
    assert read(spark, tmp_path) == whole(epochs)
    again = ParquetPublication(str(tmp_path), SINK, STORE)
    again.resume(staged(tmp_path, INTERVAL))  # the later epochs were lost
    assert read(spark, tmp_path) == whole(range(1, INTERVAL + 1))
    again.finish()
    assert not (tmp_path / NAME).exists()
    assert read(spark, tmp_path) == whole(range(1, INTERVAL + 1))
