"""The oracle: whether two tables hold the same rows, whatever made them and in whatever order.

    >>> import pyarrow as pa
    >>> same_rows(pa.table({"n": [1, 2]}), pa.table({"n": [2, 1]}))
    True

The answers of a topology and of Spark SQL are compared as bags: order does not count, duplicates do. Tables are Spark
DataFrames or Arrow tables. Differences without meaning are ignored: widths of integers and floats, sizes of text and
binary types, the zone in which a moment is told, and -0.0; NaN equals NaN. An integer differs from a float and a
decimal (`test_the_oracle_sees_every_difference`). Rejected: `pyspark.testing.assertDataFrameEqual`, which wants pandas,
compares with a tolerance, and shows whole tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

SHOWN_MAX = 10


class Frame(Protocol):
    """What a Spark DataFrame offers."""

    def toArrow(self) -> pa.Table:
        """All rows."""


def same_rows(found: Frame | pa.Table, expected: Frame | pa.Table) -> bool:
    """Whether both have the same columns and the same rows, order aside."""
    return not row_differences(found, expected)


def row_differences(found: Frame | pa.Table, expected: Frame | pa.Table) -> list[str]:
    """The differences of two tables, one line each, at most ten of either kind; empty when they are the same."""
    ours, theirs = (table if isinstance(table, pa.Table) else table.toArrow() for table in (found, expected))
    if ours.column_names != theirs.column_names:
        return [f"columns are {ours.column_names}, expected {theirs.column_names}"]
    have, want = bag_of(ours), bag_of(theirs)
    return [*_lines("unexpected", have - want), *_lines("missing", want - have)]


def bag_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """How often each row occurs, as values that compare by meaning."""
    columns = [list(_values(column)) for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # A moment counts by its microseconds, in any zone; Python's datetime would need to know the zone.
        zoned = kind.tz is not None
        micros = column.cast(pa.timestamp("us", "UTC" if zoned else None)).cast(pa.int64())
        return (None if value is None else ("moment" if zoned else "local time", value) for value in micros.to_pylist())
    return map(_meaning, column.to_pylist())


def _meaning(value: Any) -> Any:  # noqa: ANN401 - any Arrow value
    """A hashable stand-in that equals another exactly when the values mean the same."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value + 0.0)
    if isinstance(value, dict):
        return ("struct", *((name, _meaning(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *map(_meaning, value))
    return value if value is None or isinstance(value, str) else (type(value).__name__, value)


def _lines(kind: str, rows: Counter[tuple[Any, ...]]) -> Sequence[str]:
    shown = [f"{kind} {times} times: {row}" for row, times in rows.most_common(SHOWN_MAX)]
    left = len(rows) - len(shown)
    return [*shown, f"... and {left} more {kind}"] if left else shown
