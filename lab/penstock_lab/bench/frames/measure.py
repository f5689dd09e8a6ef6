"""`penstock bench frames`: the cost of handing a DataFrame in and getting one back, beside Spark's own.

Our runs and Spark's take turns in one session over the same Parquet files, so that a busy machine slows both; figures
are medians. Passing rows through is compared with a `mapInArrow` that reads the same batches and keeps nothing,
collecting with `toArrow`, windows with the same question in SQL. Start is the time from the call of `start` to its
return.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.deploy import local_session
from penstock.deploy.driver.stage import map_in_arrow
from penstock.errors import InternalError
from penstock.flow import io
from penstock.flow.windows import tumbling
from penstock.jobs import Topology
from penstock_lab.bench.contract import Bench, Progress, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MASTER, WORKERS, FILES = "local[4]", 2, 8
REPEATS, QUICK_REPEATS = 5, 3
PASS_ROWS, COLLECT_ROWS, WINDOW_ROWS = 5_000_000, 10_000_000, 2_000_000
START_ROWS = (100_000, 1_000_000, 10_000_000)
QUICK_SHARE = 10
ROOM = {"spark.driver.memory": "4g", "spark.driver.maxResultSize": "0"}  # toArrow of all rows lost the JVM without
AIM_PASS, AIM_COLLECT = 1.3, 2.0
COLUMNS = (
    "id",
    "id % 1000 as k",
    "cast(id as double) as v",
    "concat('name', id % 10000) as s",
    "timestamp_micros(1700000000000000 + id * 1000) as ts",
)


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` takes a tenth of the rows."""
    share, repeats = (QUICK_SHARE, QUICK_REPEATS) if quick else (1, REPEATS)
    spark = local_session(MASTER, config=ROOM)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:

        def frame(rows: int) -> DataFrame:
            path = f"{folder}/{rows}"
            progress(f"writing {rows:,} rows")
            spark.range(0, rows, 1, FILES).selectExpr(*COLUMNS).write.mode("overwrite").parquet(path)
            return spark.read.parquet(path)

        passing, collecting, windows = (frame(rows // share) for rows in (PASS_ROWS, COLLECT_ROWS, WINDOW_ROWS))
        return {
            "pass_through": [pass_through(spark, passing, repeats, progress)],
            "collect": [collect(spark, collecting, repeats, progress)],
            "windows": [windowed(spark, windows, repeats, progress)],
            "start": [start(spark, frame(rows // share), repeats, progress) for rows in START_ROWS],
        }


def pass_through(spark: SparkSession, frame: DataFrame, repeats: int, progress: Progress) -> Row:
    """Rows in and nowhere."""

    def spark_way() -> int:
        return sum(int(row.n) for row in map_in_arrow(frame.coalesce(WORKERS), counted, "n bigint").collect())

    def our_way() -> int:
        top = Topology("pass")
        top.source("rows", io.dataframe(frame)).sink("out", io.discard())
        job = top.start(spark, workers=WORKERS, scheduler="even")
        job.wait()
        return sum(figures["tuples_out"] for figures in job.totals().values())

    progress("passing rows through")
    ours, theirs = in_turns(our_way, spark_way, repeats)
    return {
        "rows": frame.count(),
        "penstock_s": ours,
        "map_in_arrow_s": theirs,
        "ratio": ours / theirs,
        "aim": AIM_PASS,
    }


def collect(spark: SparkSession, frame: DataFrame, repeats: int, progress: Progress) -> Row:
    """Rows in and back, and a count of what came back."""
    counts: list[float] = []

    def our_way() -> int:
        top = Topology("collect")
        top.source("rows", io.dataframe(frame)).sink("out", io.collect())
        job = top.start(spark, workers=WORKERS, scheduler="even")
        found = job.result
        began = time.perf_counter()
        rows = int(found.count())
        counts.append(time.perf_counter() - began)
        return rows

    progress("collecting rows")
    ours, theirs = in_turns(our_way, lambda: frame.toArrow().num_rows, repeats)
    count = statistics.median(counts)
    row: Row = {
        "rows": frame.count(),
        "penstock_s": ours - count,
        "to_arrow_s": theirs,
        "ratio": (ours - count) / theirs,
    }
    return row | {"aim": AIM_COLLECT, "count_s": count}


def windowed(spark: SparkSession, frame: DataFrame, repeats: int, progress: Progress) -> Row:
    """Counts by key and window of event time at lateness 0, where no row may be missing."""

    def spark_way() -> int:
        from pyspark.sql import functions as f

        found = frame.groupBy("k", f.window("ts", "1 minute")).count().agg({"count": "sum"}).collect()
        return int(found[0][0])

    def our_way() -> int:
        top = Topology("windows")
        timed = top.source("rows", io.dataframe(frame)).event_time("ts", lateness="0 seconds")
        timed.key_by("k").count(window=tumbling("1 minute"), tasks=WORKERS).sink("out", io.collect())
        job = top.start(spark, workers=WORKERS, scheduler="even")
        return int(job.result.agg({"count": "sum"}).collect()[0][0])

    progress("counting in windows")
    ours, theirs = in_turns(our_way, spark_way, repeats)
    return {"rows": frame.count(), "penstock_s": ours, "spark_sql_s": theirs, "ratio": ours / theirs}


def start(spark: SparkSession, frame: DataFrame, repeats: int, progress: Progress) -> Row:
    """How long `start` takes, as rows come and in order of time; the job is cancelled then."""
    row: Row = {"rows": frame.count()}
    for name, timed in (("start_s", False), ("start_with_event_time_s", True)):
        progress(f"starting over {row['rows']:,} rows")
        took: list[float] = []
        for _ in range(repeats):
            top = Topology("start")
            rows = top.source("rows", io.dataframe(frame))
            (rows.event_time("ts") if timed else rows).sink("out", io.discard())
            began = time.perf_counter()
            with top.start(spark, workers=WORKERS, scheduler="even"):
                took.append(time.perf_counter() - began)
        row[name] = statistics.median(took)
    return row


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the peer does with its rows."""
    yield pa.RecordBatch.from_pydict({"n": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())})


def in_turns(ours: Callable[[], int], theirs: Callable[[], int], repeats: int) -> tuple[float, float]:
    """Median seconds of both, after one run of each that does not count; both must count the same rows."""
    took: dict[Callable[[], int], list[float]] = {ours: [], theirs: []}
    for turn in range(repeats + 1):
        told = []
        for way in (ours, theirs):
            began = time.perf_counter()
            told.append(way())
            if turn:
                took[way].append(time.perf_counter() - began)
        if told[0] != told[1]:
            msg = f"Penstock told {told[0]} rows and Spark {told[1]}"
            raise InternalError(msg)
    return statistics.median(took[ours]), statistics.median(took[theirs])


BENCH = Bench(
    "what DataFrames cost on their way in and out",
    main,
    {
        "pass_through": "Rows through a job, beside mapInArrow with as many partitions",
        "collect": "Rows into a job and back, beside toArrow",
        "windows": "Counts by key and minute over a DataFrame, beside SQL",
        "start": "Seconds until start returns",
    },
)
