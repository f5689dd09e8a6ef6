"""Aggregates whose arguments are computed: expressions, distinct values, filters, pairs; with keys and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from flow_kit import WholeFlow, cuts, drive, rows_of
from flow_kit import cut as cut_up
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.flow.aggregates import aggregate_fold, columns_read
from penstock.run.columns.distinct import DistinctRows
from penstock.run.operators.keyed.unwindowed import KeyedFold

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
COLUMNS = {
    "rows": "count(*)",
    "twice": "sum(n * 2)",
    "kinds": "count(distinct n)",
    "all_kinds": "sum(distinct n)",
    "many": "count_if(n > 1)",
    "big": "sum(n) filter (where x > 0)",
    "some": "count(*) filter (where n is null)",
    "first_x": "min_by(x, n)",
    "last_x": "max_by(x, n) filter (where x > 0)",
}
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 4), st.none() | st.sampled_from([-1.0, 0.5, 2.0])
    ),
    max_size=25,
)


def batch_of(values: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True)) or [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def total(values: Iterable[int]) -> int | None:
    given = list(values)
    return sum(given) if given else None


def chosen(pairs: list[tuple[Any, Any]], better: Callable[[Any, Any], bool]) -> object:
    """Of equal ones the last."""
    best: tuple[Any, Any] | None = None
    for pair in pairs:
        if pair[1] is not None and (best is None or not better(best[1], pair[1])):
            best = pair
    return None if best is None else best[0]


def expected(values: list[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    """By hand."""
    found = {}
    for key in dict.fromkeys(k for k, _, _ in values):
        own = [(n, x) for k, n, x in values if k == key]
        there = [n for n, _ in own if n is not None]
        up = [(n, x) for n, x in own if x is not None and x > 0]
        found[key] = (
            len(own),
            total(2 * n for n in there),
            len(set(there)),
            total(set(there)),
            sum(n > 1 for n in there),
            total(n for n, _ in up if n is not None),
            sum(n is None for n, _ in own),
            chosen([(x, n) for n, x in own], lambda a, b: a < b),
            chosen([(x, n) for n, x in up], lambda a, b: a > b),
        )
    return found


@given(rows, cuts, st.none() | st.integers(0, 3), st.sampled_from(["end", "changes", "each"]))
def test_every_aggregate_is_what_it_is_by_hand(values: list, sizes: list[int], move_at: int | None, emit: str) -> None:
    fold = aggregate_fold(SCHEMA, ["k"], COLUMNS)
    out = drive(partial(KeyedFold, fold, emit), cut_up(batch_of(values), sizes), move_at=move_at)
    assert {row[0]: row[1:] for row in out.rows()} == expected(values)  # of changes the last one counts


@given(rows, cuts)
def test_running_values_are_those_of_the_rows_so_far(values: list, sizes: list[int]) -> None:
    fold = aggregate_fold(SCHEMA, ["k"], COLUMNS)
    out = drive(partial(KeyedFold, fold, "each"), cut_up(batch_of(values), sizes))
    assert out.rows() == [(k, *expected(values[: i + 1])[k]) for i, (k, _, _) in enumerate(values)]


def test_plain_aggregates_are_not_prepared() -> None:
    fold = aggregate_fold(SCHEMA, ["k"], {"a": "sum(n)", "b": "count(1)", "c": "min(`x`)", "d": "Mean(x)"})
    assert type(fold).__name__ == "AggregateFold"
    assert columns_read(SCHEMA, ["k"], {"a": "count(*) filter (where x > 0)"}) == ("k", "x")


def test_types_are_those_of_spark() -> None:
    fold = aggregate_fold(SCHEMA, ["k"], COLUMNS)
    kinds = {field.name: (field.type, field.nullable) for field in fold.output_schema}
    assert kinds["kinds"] == kinds["many"] == (pa.int64(), False)
    assert kinds["first_x"] == (pa.float64(), True)
    assert kinds["all_kinds"] == (pa.int64(), True)


@given(st.lists(st.lists(st.integers(0, 3), max_size=2) | st.none(), max_size=12), cuts)
def test_distinct_rows_of_any_type(values: list, sizes: list[int]) -> None:
    for kind, given_values in ((pa.list_(pa.int8()), values), (pa.string(), [str(value) for value in values])):
        schema = pa.schema([("v", kind)])
        seen = DistinctRows(schema)
        firsts: list[object] = []
        for batch in cut_up(pa.RecordBatch.from_arrays([pa.array(given_values, kind)], schema=schema), sizes):
            firsts += seen.first_seen(batch).to_pylist()
        texts = [repr(value) for value in given_values]
        assert firsts == [text not in texts[:i] for i, text in enumerate(texts)]
        assert len(seen) == seen.rows().num_rows == len(set(texts))
        assert [repr(value) for (value,) in rows_of(seen.rows())] == list(dict.fromkeys(texts))


def flow(values: list, write: Callable[[ps.DataStream], ps.DataStream]) -> list[tuple[Any, ...]]:
    top = ps.Topology("t")
    stream = top.source("s", ps.io.generator(lambda task, tasks: [batch_of(values)] if values else [], SCHEMA), tasks=2)
    write(stream).sink("out", ps.io.collect())
    return WholeFlow(top.build()).run().rows()


@given(rows)
def test_without_keys_one_row_tells_of_all_rows(values: list) -> None:
    doubled = values + values  # two source tasks
    (row,) = flow(values, lambda s: s.aggregate(n="count(*)", kinds="count(distinct n)", t="sum(n)"))
    there = [n for _, n, _ in doubled if n is not None]
    assert row == (len(doubled), len(set(there)), total(there))
    assert flow(values, lambda s: s.count()) == [(len(doubled),)]


@pytest.mark.parametrize("text", ["sum(distinct n)", "max_by(k, n)", "count_if(x > 0)"])
def test_aggregates_in_windows(text: str) -> None:
    schema = "k string, n bigint, x double, t timestamp"
    given_rows = [("a", 1, 1.0, 1_000_000), ("a", 1, -1.0, 2_000_000), ("b", 5, 1.0, 12_000_000)]
    top = ps.Topology("t")
    batch = pa.record_batch(
        [
            *(pa.array(column) for column in list(zip(*given_rows, strict=True))[:3]),
            pa.array([row[3] for row in given_rows], pa.timestamp("us", tz="UTC")),
        ],
        names=["k", "n", "x", "t"],
    )
    stream = top.source("s", ps.io.generator(lambda task, tasks: [batch], schema)).event_time("t")
    stream.aggregate(v=text, window=ps.tumbling("10 seconds")).sink("out", ps.io.collect())
    found = {"sum(distinct n)": [1, 5], "max_by(k, n)": ["a", "b"], "count_if(x > 0)": [1, 1]}[text]
    assert [row[-1] for row in WholeFlow(top.build()).run().rows()] == found
