"""Spark SQL is the definition: the same expressions over the same rows, by Spark and by Arrow, in one query."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from expression_cases import TABLE, cases
from pyspark.sql import SparkSession

from penstock.flow.aggregates import aggregate_fold
from penstock.flow.expressions import compile_expression
from penstock.flow.io import _frame_schema

# Hundreds of columns at once: interpreted, for compiling them takes longer than computing them, and each for itself,
# for what two columns share would be computed where neither asks for it.
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
}


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def ours(text: str, batch: pa.RecordBatch) -> tuple[pa.Field, list[str]]:
    made = compile_expression(text, batch.schema, "test")
    return pa.field("", made.type, made.nullable), [repr(value) for value in made.evaluate(batch).to_pylist()]


AGGREGATES = [
    "count(*)",
    "count(1)",
    "sum(m * 2)",
    "count(distinct m)",
    "count(distinct d)",
    "count(distinct p)",
    "sum(distinct m)",
    "avg(distinct m)",
    "count_if(m > 0)",
    "count_if(b)",
    "count(x) filter (where z > 1)",
    "sum(m) filter (where z > 1 and x <> '')",
    "count(distinct upper(x)) filter (where m is not null)",
    "min_by(x, z)",
    "max_by(x, z)",
    "max_by(m, d)",
    "min_by(ts, dt)",
    "max_by(p, k)",
    "min_by(b, p) filter (where m > -5)",
    "max(upper(k))",
    "min(p * 2)",
    "max(if(isnan(d), null, d))",
]


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_aggregates_give_what_spark_gives(spark: SparkSession) -> None:
    named = {f"v{i}": text for i, text in enumerate(AGGREGATES)}
    (batch,) = TABLE.combine_chunks().to_batches()
    wanted = ", ".join(f"{text} as {name}" for name, text in named.items())
    with settings(spark):
        spark.createDataFrame(TABLE).coalesce(1).createOrReplaceTempView("edges")
        for keys in (["c"], []):
            grouped = "group by c" if keys else ""
            asked = spark.sql(f"select {', '.join([*keys, wanted])} from edges {grouped}")
            fold = aggregate_fold(batch.schema, keys, named)
            folded = fold()
            folded.update(batch)
            assert fold.output_schema.equals(_frame_schema(asked))
            told = sorted(map(repr, asked.toArrow().to_pylist()))
            assert sorted(map(repr, folded.rows().to_pylist())) == told


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_expressions_give_what_spark_gives(spark: SparkSession) -> None:
    (batch,) = TABLE.combine_chunks().to_batches()
    texts = cases()
    with settings(spark):
        asked = spark.createDataFrame(TABLE).coalesce(1).selectExpr(*[f"{t} as c{i}" for i, t in enumerate(texts)])
        schema, table = _frame_schema(asked), asked.toArrow()
    wrong = []
    for i, text in enumerate(texts):
        field, values = ours(text, batch)
        told = [repr(value) for value in table.column(i).to_pylist()]
        wanted = schema.field(i)
        if field.type != wanted.type or field.nullable != wanted.nullable:
            wrong.append(f"{text}: {field.type} {field.nullable}, Spark {wanted.type} {wanted.nullable}")
        if values != told:
            wrong.append(f"{text}: {values}, Spark {told}")
    assert not wrong, "\n".join(wrong)
