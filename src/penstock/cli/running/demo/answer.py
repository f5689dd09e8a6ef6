"""Whether the answer of a job that was moved is the one that Spark SQL has of the same trips."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.apps import routes
from penstock.errors import JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

VIEW = "penstock_demo_trips"


def require_same(spark: SparkSession, found: DataFrame, trips: pa.Table) -> int:
    """How many rows the answer has; JobFailed where it is not Spark SQL's over these trips."""
    rows = found.collect()
    spark.createDataFrame(trips).createOrReplaceTempView(VIEW)
    try:
        expected = spark.sql(routes.answer_sql(VIEW)).select(*found.columns).collect()
    finally:
        spark.catalog.dropTempView(VIEW)
    require_equal(rows, expected)
    return len(rows)


def require_equal(found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Refuse an answer that lacks rows of the expected one, or has others, or some of them twice."""
    ours, theirs = Counter(map(tuple, found)), Counter(map(tuple, expected))
    if ours != theirs:
        lacking, beyond = theirs - ours, ours - theirs
        first = next(iter({**lacking, **beyond}))
        msg = (
            f"the job's answer is not Spark SQL's: {lacking.total()} of {theirs.total()} rows are missing and "
            f"{beyond.total()} are not in it, such as {first}; please report this"
        )
        raise JobFailed(msg)
