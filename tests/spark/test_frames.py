"""DataFrames in and out: their order, what Spark is asked to do for it, when a job begins, and where results lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.deploy.driver.frames import FrameInput, handed
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.results import dataframes as results
from penstock.errors import JobFailed
from penstock.flow.windows import tumbling
from penstock_lab.same_rows import row_differences

one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
two_executors = pytest.mark.parametrize("spark", ["local-cluster[2,2,1024]"], indirect=True)

# Four rows a second for ten minutes, every 50th without a time; keys repeat, and some times are twenty rows wide.
ROWS = (
    "select id, id % 3 as k, if(id % 50 = 7, null, timestamp_seconds(1700000000 + {second})) as ts from range({rows})"
)


def events(spark: SparkSession, *, shuffled: bool, rows: int = 2400, second: str = "id div 4") -> DataFrame:
    frame = spark.sql(ROWS.format(rows=rows, second=second))
    # More partitions than keys to part by: some are empty.
    return frame.repartition(7, "k") if shuffled else frame.coalesce(4).sort("ts")


def as_rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@one_session
@pytest.mark.parametrize(("workers", "shuffled"), [(1, True), (3, False), (4, True)])
def test_no_row_of_a_frame_is_late(spark: SparkSession, workers: int, shuffled: bool) -> None:
    frame = events(spark, shuffled=shuffled)
    top = ps.Topology("windows")
    timed = top.source("rows", ps.io.dataframe(frame)).event_time("ts", lateness="0 seconds")
    counts = timed.key_by("k").count(window=tumbling("7 seconds"), tasks=2)
    counts.sink("counts", ps.io.collect())
    counts.late.sink("late", ps.io.collect())
    found = top.run(spark, workers=workers, scheduler="even", rows_max=64)
    frame.createOrReplaceTempView("events")
    expected = spark.sql(
        "select w.start, w.end, k, count(*) from "
        "(select window(ts, '7 seconds') as w, k from events where ts is not null) group by w, k"
    )
    assert sorted(as_rows(found["counts"])) == sorted(as_rows(expected))
    assert found["late"].count() == frame.where("ts is null").count()


@one_session
def test_two_frames_advance_together(spark: SparkSession) -> None:
    """One has times without a zone and is ten times as fast; windows of both still close in step."""
    left = events(spark, shuffled=True, rows=1500).selectExpr("id as a", "k", "ts")
    right = events(spark, shuffled=True, rows=150, second="id * 3").selectExpr(
        "id as b", "k", "cast(ts as timestamp_ntz) as at"
    )
    top = ps.Topology("join")
    lefts = top.source("left", ps.io.dataframe(left)).event_time("ts", lateness="0 seconds")
    rights = top.source("right", ps.io.dataframe(right)).event_time("at", lateness="0 seconds")
    late = [stream.key_by("k").count(window=tumbling("1 minute")).late for stream in (lefts, rights)]
    for name, stream in zip(("left_late", "right_late"), late, strict=True):
        stream.sink(name, ps.io.collect())
    found = top.run(spark, workers=3, scheduler="even", rows_max=16)
    for name, frame in (("left_late", left.where("ts is null")), ("right_late", right.where("at is null"))):
        assert sorted(row[0] for row in as_rows(found[name])) == sorted(row[0] for row in as_rows(frame))


@one_session
def test_frames_are_shuffled_only_for_their_order(spark: SparkSession) -> None:
    four = spark.range(0, 100, 1, 4).selectExpr("id", "timestamp_seconds(id) as ts")
    plain, timed = FrameInput(four), FrameInput(four, "ts")
    for inputs, workers, partitions in (([plain], 3, 3), ([plain], 6, 4), ([plain, plain], 3, 3), ([timed], 1, 1)):
        given = handed(inputs, workers)
        assert "Exchange" not in plan_of(given)
        assert given.rdd.getNumPartitions() == partitions
    for inputs in ([timed], [timed, plain]):
        assert "Sort" in plan_of(handed(inputs, 3))
        assert plan_of(handed(inputs, 3)).count("Exchange hashpartitioning") == 1
    assert handed([FrameInput(four, columns=("id",))], 3).columns == ["id"]


def gated(spark: SparkSession, gate: Path) -> DataFrame:
    """A frame whose rows come when a file appears."""
    name = str(gate)

    def rows(_: Iterator[int]) -> Iterator[tuple[int]]:
        assert wait_until(Path(name).exists, seconds=60)
        yield (1,)

    return spark.createDataFrame(spark.sparkContext.parallelize(range(2), 2).mapPartitions(rows), "n bigint")


@one_session
def test_start_does_not_wait_for_the_scan(spark: SparkSession, tmp_path: Path, footprint: Footprint) -> None:
    top = ps.Topology("scan")
    top.source("rows", ps.io.dataframe(gated(spark, tmp_path / "gate"))).sink("out", ps.io.collect())
    with top.start(spark, workers=3, scheduler="even") as job:
        assert job.status == "running"
        (tmp_path / "gate").touch()
        assert as_rows(job.result) == [(1,), (1,)]
    footprint.assert_gone()


@one_session
def test_start_does_not_wait_for_a_shuffle_either(spark: SparkSession, tmp_path: Path, footprint: Footprint) -> None:
    frame = gated(spark, tmp_path / "gate").selectExpr("timestamp_seconds(n) as ts")
    top = ps.Topology("shuffle")
    top.source("rows", ps.io.dataframe(frame)).event_time("ts").sink("out", ps.io.collect())
    with top.start(spark, workers=2, scheduler="even") as job:
        assert (job.status, job.plan) == ("starting", None)
        (tmp_path / "gate").touch()
        assert job.result.count() == 2
        assert job.plan is not None
    never = gated(spark, tmp_path / "never").selectExpr("timestamp_seconds(n) as ts")
    cancelled = top.start(spark, workers=2, scheduler="even", frames={"rows": never})
    cancelled.cancel()
    assert cancelled.status == "cancelled"
    footprint.assert_gone()


def test_what_failed_in_spark_is_told(spark: SparkSession, footprint: Footprint) -> None:
    """Also where Spark starts the failed task again, whose second failure says nothing."""
    top = ps.Topology("ansi")
    top.source("rows", ps.io.dataframe(spark.range(0, 100, 1, 2).selectExpr("100 div (id - 7) as n"))).sink(
        "out", ps.io.collect()
    )
    with pytest.raises(JobFailed, match="DIVIDE_BY_ZERO"):
        top.run(spark, workers=2, scheduler="even")
    footprint.assert_gone()


@two_executors
def test_a_relative_path_is_the_drivers(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spark.range(10).write.parquet(str(tmp_path / "given"))
    top = ps.Topology("relative")
    top.source("rows", ps.io.files("given")).sink("out", ps.io.parquet("written"))
    monkeypatch.chdir("/")
    found = top.run(spark, workers=2, scheduler="even")
    assert sorted(as_rows(found)) == [(n,) for n in range(10)]
    assert [path.suffix for path in (tmp_path / "written").iterdir()] == [".parquet"]


@one_session
def test_large_results_are_read_where_they_lie(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "SMALL_BYTES", 0)
    frame = spark.range(0, 3000, 1, 3).selectExpr(
        "id as `a`", "cast(id as string) as `a b,;`", "cast(id as decimal(20,3)) as d",
        "timestamp_ntz'0001-01-01 00:00:00' as early", "array(struct(id as x, map('k', id) as m)) as deep",
        "if(id % 2 = 0, null, timestamp_micros(id)) as at",
    )  # fmt: skip
    top = ps.Topology("in_place")
    top.source("rows", ps.io.dataframe(frame)).sink("out", ps.io.collect())
    found = top.run(spark, workers=2, scheduler="even")
    assert found.dtypes == frame.dtypes
    assert "FileScan parquet" in plan_of(found)
    assert not row_differences(found.toArrow(), frame.toArrow())
    firsts = [row.a for row in found.select("a").collect()]
    assert all(firsts.index(n) < firsts.index(n + 1) for n in range(999))  # of one partition, as they came
