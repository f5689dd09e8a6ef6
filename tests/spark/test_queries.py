"""Every Nexmark query, in every form, gives Spark SQL's answer: over files and over DataFrames, all in one job each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from oracle_kit import quick_questions
from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.flow.io import Source
from penstock_lab.nexmark.events import Events
from penstock_lab.nexmark.queries import QUERIES
from penstock_lab.nexmark.query import Query, Tables
from penstock_lab.nexmark.tables import write_tables
from penstock_lab.same_rows import row_differences

EVENTS = Events(3_000, per_second=75)  # forty seconds: windows open and close, and sessions end
TASKS = 2
one_session = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The events as files and as views; hours and days are those of UTC."""
    paths = write_tables(EVENTS, tmp_path_factory.mktemp("nexmark"), files=4)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for name, path in paths.items():
        spark.read.parquet(str(path)).createOrReplaceTempView(name)
    with quick_questions(spark):
        yield paths
    spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tables: dict[str, Path]) -> dict[str, pa.Table]:
    """Spark SQL's answers, of which none is empty: an empty one would compare nothing."""
    answers = {query.name: compared(spark, query, spark.sql(query.sql)).toArrow() for query in QUERIES.values()}
    assert [name for name, answer in answers.items() if not answer.num_rows] == []
    return answers


def compared(spark: SparkSession, query: Query, answer: DataFrame) -> DataFrame:
    """What of an answer counts."""
    answer.createOrReplaceTempView("answer")
    return spark.sql(query.compared)


def differing(
    spark: SparkSession, source_of: Callable[[str], Source], expected: dict[str, pa.Table]
) -> dict[str, list[str]]:
    """Queries that answer otherwise than Spark SQL, in any form; all of them are one job."""
    topology = ps.Topology("nexmark")
    forms = [(query, form, f"{query.name}-{form}") for query in QUERIES.values() for form in query.forms]
    for query, form, name in forms:
        query.forms[form](Tables(topology, source_of, TASKS, f"{name}-")).sink(name, ps.io.collect())
    found: dict[str, DataFrame] = topology.run(spark, workers=3)
    differences = {
        name: row_differences(compared(spark, query, found[name]), expected[query.name]) for query, _, name in forms
    }
    return {name: lines for name, lines in differences.items() if lines}


@one_session
def test_queries_over_files_answer_as_spark_sql(
    spark: SparkSession, tables: dict[str, Path], expected: dict[str, pa.Table]
) -> None:
    assert differing(spark, lambda table: ps.io.files(tables[table], tasks=TASKS), expected) == {}


@one_session
def test_queries_over_data_frames_answer_as_spark_sql(
    spark: SparkSession, tables: dict[str, Path], expected: dict[str, pa.Table]
) -> None:
    assert differing(spark, lambda table: ps.io.dataframe(spark.table(table)), expected) == {}
