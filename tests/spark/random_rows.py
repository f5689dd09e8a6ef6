"""Random rows and the ways they come in: files of three formats, DataFrames of any partitions.

Rows are awkward on purpose: keys that are null or have most of the rows, times that are null or the same, and any order
from none to perfect. Prices are quarters, so that sums are exact in any order.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession

from penstock.flow import io
from penstock.flow.schema import parse_schema, to_ddl

SCHEMA = parse_schema("n bigint, key string, number bigint, price decimal(10,2), time timestamp")
SECOND_US = 1_000_000
STARTS_US = (-600 * SECOND_US, 1_356_998_400 * SECOND_US)  # ten minutes before 1970, and the start of 2013
NEARLY_US = 5 * SECOND_US  # how far rows that are nearly in order are behind the newest
WAYS = ("parquet", "csv", "json", "frame", "read")  # `read` is a DataFrame that Spark reads from Parquet files
KEYS = ("a", "b", "c", "dd", "é'", "")


@dataclass(frozen=True)
class Rows:
    """Random rows of one source."""

    seed: int
    count: int
    order: str  # "in order", "nearly" or "shuffled"
    step_us: int  # between two rows; 0: all have the same time
    null_times: float
    skew: float  # the share of rows that have the first key
    empty_keys: bool = True

    def table(self, at_most: int | None = None) -> pa.Table:
        """The rows; the first so many of them."""
        rng = random.Random(self.seed)
        start = rng.choice(STARTS_US)
        steps = [i // 3 * 3 if rng.random() < 0.3 else i for i in range(self.count)]  # some times are the same
        times = [start + i * self.step_us for i in sorted(steps)]
        if self.order == "nearly":
            times = [time - rng.randint(0, 50) * (NEARLY_US // 50) for time in times]
        elif self.order == "shuffled":
            rng.shuffle(times)
        rows = [self._row(rng, n, time) for n, time in enumerate(times)]
        return pa.Table.from_pylist(rows[:at_most], schema=SCHEMA)

    def _row(self, rng: random.Random, n: int, time: int) -> dict[str, object]:
        keys = (None, *(key for key in KEYS if key or self.empty_keys))
        return {
            "n": n,
            "key": KEYS[0] if rng.random() < self.skew else rng.choice(keys),
            "number": None if rng.random() < 0.1 else rng.randint(-20, 20),
            "price": None if rng.random() < 0.1 else Decimal(25 * rng.randint(-9999, 9999)) / 100,
            "time": None if rng.random() < self.null_times else time,
        }


@dataclass(frozen=True)
class WayIn:
    """How rows come in: as which files or partitions, to how many tasks."""

    kind: str
    pieces: int
    dealt: str  # "slices": one piece after the other; "cards": a row to each in turn; "skewed": nearly all to one
    tasks: int
    group_rows: int  # of a row group of a Parquet file
    old_times: bool = False  # Parquet's INT96, as Spark writes times unless told otherwise

    @property
    def is_frame(self) -> bool:
        """Whether Spark hands the rows in."""
        return self.kind in {"frame", "read"}

    @property
    def keeps_order(self) -> bool:
        """Whether a task that reads as it comes has its rows in the order in which they were made."""
        return not self.is_frame and (self.dealt == "slices" or self.pieces <= self.tasks)

    def source(self, spark: SparkSession, rows: pa.Table, folder: Path) -> io.Source:
        """The rows as a source of a topology; `folder` is a new one."""
        if self.kind == "frame":
            return io.dataframe(self._frame(spark, rows))
        folder.mkdir()
        for number, piece in enumerate(self._pieces(rows)):
            self._write(piece, folder / f"{number}.{'parquet' if self.kind == 'read' else self.kind}")
        if self.kind == "read":
            return io.dataframe(spark.read.schema(to_ddl(SCHEMA)).parquet(str(folder)))
        return io.files(folder, self.kind, SCHEMA, self.tasks)

    def _pieces(self, rows: pa.Table) -> list[pa.Table]:
        count, pieces = rows.num_rows, self.pieces
        if self.dealt == "slices":
            size = -(-count // pieces)
            return [rows.slice(i * size, size) for i in range(pieces)]
        if self.dealt == "cards":
            return [rows.take(pa.array(range(i, count, pieces), pa.int64())) for i in range(pieces)]
        lone = [rows.slice(i, 1) for i in range(pieces // 2)]  # further pieces but the last have no rows
        return [*lone, *[rows.slice(count)] * (pieces - len(lone) - 1), rows.slice(len(lone))]

    def _write(self, rows: pa.Table, path: Path) -> None:
        if self.kind in {"parquet", "read"}:
            pq.write_table(
                rows, path, row_group_size=self.group_rows, use_deprecated_int96_timestamps=self.old_times or None
            )
        elif self.kind == "csv":
            csv.write_csv(rows, path)
        else:
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))

    def _frame(self, spark: SparkSession, rows: pa.Table) -> DataFrame:
        """Slices of one size, or as a hash deals them: some partitions are empty then, and some have nearly all."""
        frame = spark_frame(spark, rows)
        if self.dealt == "slices":
            return frame.coalesce(self.pieces)
        return frame.repartition(self.pieces, "n" if self.dealt == "cards" else "key")


def spark_frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows as a DataFrame; of none there is nothing to infer a schema from."""
    return spark.createDataFrame(rows) if rows.num_rows else spark.createDataFrame([], to_ddl(rows.schema))
