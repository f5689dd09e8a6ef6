"""Whether every engine gives the answer that Spark SQL gives in one batch.

Small answers are compared row by row, by `same_rows`. A stream's answer may lack rows of windows that its watermark did
not close, which the benchmark tells; it may not have other rows
(`test_answers_may_lack_rows_of_a_stream_but_have_no_others`). Whole answers are compared by numbers of rows and sums of
hashes, computed by Spark over the files of our job.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import penstock as ps
from penstock.errors import PenstockError
from penstock_lab.bench.queries.spark import PYTHON, STREAMING, Spark
from penstock_lab.nexmark.queries import QUERIES
from penstock_lab.same_rows import row_differences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SAME = "same"
TOLD_MAX = 200  # characters of a difference


class Answers:
    """Answers of every engine over the tables of one folder."""

    def __init__(self, spark: Spark, workers: int) -> None:
        self.spark = spark
        self.workers = workers

    def compare(self, name: str, missing: dict[str, str]) -> dict[tuple[str, str, str], str]:
        """For each engine and form of one query: "same", or how its answer differs."""
        spark, query = self.spark, QUERIES[name]
        expected = spark.compared(name, spark.batch(name)).toArrow()
        found: dict[tuple[str, str, str], str] = {}
        for form in query.forms:
            for engine in ("files", "DataFrame"):
                found[name, engine, form] = self._ours(name, form, engine, expected)
        if name in STREAMING:
            kept = spark.stream(name, "memory")
            streamed = spark.compared(name, spark.session.table(kept))
            found[name, "streaming", "SQL"] = told_stream(streamed.toArrow(), expected)
            spark.session.catalog.dropTempView(kept)
        for engine, (form, function) in PYTHON.get(name, {}).items():
            if engine not in missing:
                answer = spark.compared(name, function(spark.frame("bid")))
                found[name, engine, form] = told(answer.toArrow(), expected)
        return found

    def _ours(self, name: str, form: str, engine: str, expected: pa.Table) -> str:
        try:
            topology = QUERIES[name].topology(form, partial(self._source, engine), ps.io.collect(), self.workers)
            answer = topology.run(self.spark.session, workers=self.workers)
        except PenstockError as error:
            return f"failed: {str(error)[:TOLD_MAX]}"
        return told(self.spark.compared(name, answer).toArrow(), expected)

    def _source(self, engine: str, table: str) -> ps.io.Source:
        if engine == "files":
            return ps.io.files(self.spark.paths[table], tasks=self.workers)
        return ps.io.dataframe(self.spark.frame(table))

    def digests(self, name: str, folder: Path) -> str:
        """Our answer over all files beside Spark's, by number of rows and sum of hashes."""
        form = next(iter(QUERIES[name].forms))
        sink = ps.io.parquet(folder)
        topology = QUERIES[name].topology(form, partial(self._source, "files"), sink, self.workers)
        try:
            topology.run(self.spark.session, workers=self.workers)
        except PenstockError as error:
            return f"failed: {str(error)[:TOLD_MAX]}"
        ours = self.spark.compared(name, self.spark.session.read.parquet(str(folder)))
        mine = digest(ours)
        theirs = digest(self.spark.compared(name, self.spark.batch(name)))
        return SAME if mine == theirs else f"{mine[0]:,} rows, expected {theirs[0]:,}, hashes differ"


def digest(answer: DataFrame) -> tuple[int, object]:
    """Rows and the sum of their hashes, whatever their order; numbers as text, for engines differ in widths."""
    columns = [f"cast(`{column}` as string)" for column in answer.columns]
    hashed = f"sum(cast(xxhash64({', '.join(columns)}) as decimal(38,0)))"
    rows, total = answer.selectExpr("count(*)", hashed).head() or (0, None)
    return int(rows), total


def told(found: pa.Table, expected: pa.Table) -> str:
    """The same, or the first difference."""
    differences = row_differences(found, expected)
    return (
        f"{found.num_rows:,} rows, expected {expected.num_rows:,}; {differences[0][:TOLD_MAX]}" if differences else SAME
    )


def told_stream(found: pa.Table, expected: pa.Table) -> str:
    """`SAME`, with the number of missing rows if there are any; else the first difference."""
    differences = row_differences(found, expected)
    if differences and all(line.startswith(("missing", "... and")) for line in differences):
        return f"{SAME}, but {expected.num_rows - found.num_rows:,} of {expected.num_rows:,} rows never came"
    return told(found, expected)
