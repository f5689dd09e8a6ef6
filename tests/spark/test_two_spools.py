"""DataFrames that two drivers write down for one job: rows of one of them count, whatever the other still does."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.checkpoint.input_files import LIST
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.spool import spooled
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InvalidInput, StaleAttempt
from penstock.flow import io
from penstock.run.operators.summed import SummedFile

ROWS, TASKS, PATIENCE_S, LOOK_S = 400, 4, 60.0, 0.02
Files = tuple[SummedFile, ...]


def written(frame: DataFrame, store: Store, attempt: int, name: str = "numbers") -> Files:
    top = ps.Topology("spooled")
    top.source(name, io.dataframe(frame)).sink("out", io.collect())
    return spooled(top.build(), top.frames, store, attempt, TASKS)[name]


def values(files: Files) -> list[int]:
    assert [fault for file in files for fault in file.faults()] == []
    return sorted(row for file in files for row in pq.read_table(file.path)["id"].to_pylist())


def gated(spark: SparkSession, gates: Path, *parts: int) -> DataFrame:
    """Rows of which some parts wait for a file each."""

    def waits(part: int, rows: Iterable[int]) -> Iterator[tuple[int]]:
        while part in parts and not (gates / str(part)).exists():
            time.sleep(LOOK_S)
        return ((row,) for row in rows)

    gates.mkdir()
    rows = spark.sparkContext.parallelize(range(ROWS), TASKS).mapPartitionsWithIndex(waits)
    return spark.createDataFrame(rows, "id bigint")


class Started(threading.Thread):
    def __init__(self, do: Callable[[], Files]) -> None:
        super().__init__(daemon=True)
        self._do, self.files, self.error = do, None, None
        self.start()

    def run(self) -> None:
        try:
            self.files: Files | None = self._do()
        except StaleAttempt as error:
            self.error: StaleAttempt | None = error

    def ended(self) -> Started:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self


def test_rows_that_two_drivers_write_down_are_not_mixed(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's committer takes every finished task below the folder that it writes to, whoever has written it."""
    store, place = Store(str(tmp_path)), tmp_path / "input" / "numbers"

    def await_tasks(attempt: int, count: int) -> None:
        found = f"{attempt:08d}-*/_temporary/*/task_*"
        assert wait_until(lambda: len([*place.glob(found)]) == count, PATIENCE_S)

    first = store.claim("spooled")
    slow = Started(partial(written, gated(spark, tmp_path / "first", 2, 3), store, first))
    await_tasks(first, 2)
    second = store.claim("spooled")
    quick = Started(partial(written, gated(spark, tmp_path / "second", 3), Store(str(tmp_path)), second))
    await_tasks(second, 3)
    for gate in ("2", "3"):
        (tmp_path / "first" / gate).touch()
    assert "attempt 2 has taken over" in str(slow.ended().error)
    (tmp_path / "second" / "3").touch()
    files = quick.ended().files
    assert files is not None
    assert values(files) == list(range(ROWS))
    again = written(spark.range(1), Store(str(tmp_path)), store.claim("spooled"))
    assert again == files
    assert len([*place.iterdir()]) == 2  # the list, and the folder that it names
    assert len([path for path in place.iterdir() if re.fullmatch(r"00000002-[0-9a-f]{8}", path.name)]) == 1


def test_what_was_left_without_a_list_is_removed_and_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    store, place = Store(str(tmp_path)), tmp_path / "input" / "numbers"
    left = ("_temporary/0/task_1/part-1.parquet", "part-0.parquet", "00000001-00000000/part-0.parquet")
    for name in (*left, "00000009-00000000/of a later attempt"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"rows of a driver that was killed")
    store.claim("spooled")
    files = written(spark.range(ROWS), store, store.claim("spooled"))
    assert values(files) == list(range(ROWS))
    assert {path.name.partition("-")[0] for path in place.iterdir()} == {LIST, "00000002", "00000009"}


def test_a_source_whose_name_is_dots_has_a_folder_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """Spark emptied the whole checkpoint folder for `..`, which is `input/..`."""
    store = Store(str(tmp_path))
    attempt = store.claim("spooled")
    for name in (".", ".."):
        assert values(written(spark.range(ROWS), store, attempt, name)) == list(range(ROWS))
    assert sorted(path.name for path in (tmp_path / "input").iterdir()) == ["%2E", "%2E%2E"]
    assert store.topology() == "spooled"


def test_workers_read_rows_of_paths_alone(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="reads a DataFrame, whose rows would be written down in mock://"):
        written(spark.range(1), FarAway(str(tmp_path)), 1)


class FarAway(Store):
    def inputs(self) -> str:
        return "mock://bucket/input"
