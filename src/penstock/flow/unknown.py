"""Errors for operators that a stream does not have.

A bare AttributeError names an internal class; users need to know what to write instead. The error is an AttributeError
too, because `hasattr`, `copy` and notebooks ask objects for missing names and expect one.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from penstock.errors import NoSuchOperator

KEYED = ("aggregate", "count", "process", "reduce", "top_per_key")  # what rows with keys can do
# PySpark's names, and what does the same here.
PYSPARK = {
    "groupBy": "key_by('column')",
    "groupby": "key_by('column')",
    "agg": "aggregate(total='sum(column)')",
    "withColumn": "with_column('name', 'expression')",
    "withColumns": "with_column('name', 'expression'), once for each",
    "withColumnRenamed": "rename({'old': 'new'})",
    "withColumnsRenamed": "rename({'old': 'new'})",
    "selectExpr": "select('expression as name')",
    "toDF": "rename({'old': 'new'})",
    "unionAll": "union(other)",
    "unionByName": "select(...) in one order, then union(other)",
    "withWatermark": "event_time('column', lateness='10 seconds')",
    "repartition": "tasks=... of the next operator, with shuffle() or fields('column') before it",
    "coalesce": "tasks=... of the next operator",
    "limit": "top(count, by='column')",
    "head": "top(count, by='column')",
    "take": "top(count, by='column')",
    "orderBy": "top(count, by='column'), or orderBy on the DataFrame that run returns",
    "sort": "top(count, by='column'), or sort on the DataFrame that run returns",
    "distinct": "key_by(all columns).count()",
    "dropDuplicates": "key_by('column').reduce(lambda first, row: first)",
    "mapInArrow": "map_batches(function)",
    "mapInPandas": "map_batches(lambda batch: ...), with batch.to_pandas() inside",
    "mapPartitions": "map_batches(function)",
    "flatMap": "flat_map(function, 'column type')",
    "explode": "flat_map(function, 'column type'), or split for text",
    "foreach": "sink('name', ps.io.callback(function, rows=True))",
    "foreachBatch": "sink('name', ps.io.callback(function))",
    "writeStream": "sink('name', ps.io.parquet(path))",
    "write": "sink('name', ps.io.parquet(path))",
    "collect": "sink('name', ps.io.collect()), then top.run(spark)",
    "show": "sink('name', ps.io.collect()), then top.run(spark).show()",
    "toPandas": "sink('name', ps.io.collect()), then top.run(spark).toPandas()",
    "crossJoin": "join(other, on=..., window=...)",
    "window": "window=ps.tumbling('10 seconds') of an aggregate",
    "applyInPandasWithState": "key_by('column').process(MyStateful)",
    "transformWithState": "key_by('column').process(MyStateful)",
    "sum": "aggregate(total='sum(column)')",
    "avg": "aggregate(mean='avg(column)')",
    "min": "aggregate(least='min(column)')",
    "max": "aggregate(most='max(column)')",
}


def no_operator(who: str, name: str, known: Iterable[str]) -> NoSuchOperator:
    """The error for an unknown name, with a similar name, or else all known names."""
    names = sorted(known)
    if name in PYSPARK:
        return NoSuchOperator(f"{who} has no operator {name!r}; here it is {PYSPARK[name]}")
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return NoSuchOperator(f"{who} has no operator {name!r}; {hint}")


def without_keys(operator: str, name: str) -> NoSuchOperator:
    """The error for a keyed operator on rows without keys."""
    return NoSuchOperator(f"{name} of {operator!r} needs keys; write key_by('column').{name}(...)")


def public_names(kind: type) -> list[str]:
    """The operators of a class of streams, for users."""
    inner = {"read", "regrouped", "side", "then", "event_column"}  # for other streams
    return [
        name for name in dir(kind) if not name.startswith("_") and name not in inner and callable(getattr(kind, name))
    ]


def is_field_or_private(kind: type, name: str) -> bool:
    """Names for which Python's own error is right: private ones, and fields of an object that is still being made."""
    return name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ())
