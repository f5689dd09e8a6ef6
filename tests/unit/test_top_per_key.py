"""The best rows of each key, against sorting by hand."""

from __future__ import annotations

import math
import struct
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from flow_kit import WholeFlow, cuts, drive
from flow_kit import cut as cut_up
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import InvalidInput
from penstock.run.operators.keyed import top_per_key
from penstock.run.operators.keyed.top_per_key import TopFold
from penstock.run.operators.keyed.unwindowed import KeyedFold

SCHEMA = pa.schema([("k", pa.string()), ("j", pa.int8()), ("n", pa.int64()), ("x", pa.string())])
rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0, 1]),
        st.none() | st.integers(0, 4),
        st.sampled_from("pqr"),
    ),
    max_size=30,
)


def batch_of(values: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True)) or [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def best(values: list[tuple[Any, ...]], keys: list[int], count: int, descending: bool) -> list[tuple[Any, ...]]:
    """By hand: by the number, nulls last, then by all other columns."""

    def place(row: tuple[Any, ...]) -> tuple[Any, ...]:
        number = 0 if row[2] is None else (-row[2] if descending else row[2])
        return (row[2] is None, number, *((value is None, value or 0) for value in (row[0], row[1], row[3])))

    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in values:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=place)[:count]]


@given(rows, cuts, st.integers(1, 4), st.booleans(), st.sampled_from([[0], [0, 1]]), st.none() | st.integers(0, 3))
def test_the_best_rows_of_each_key(
    values: list, sizes: list[int], count: int, descending: bool, keys: list[int], move_at: int | None
) -> None:
    names = [SCHEMA.names[key] for key in keys]
    fold = TopFold(SCHEMA, names, count, "n", descending)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(top_per_key, "COMPACT_ROWS_MIN", 3)  # so that the log is thinned out on the way
        out = drive(partial(KeyedFold, fold, "end"), cut_up(batch_of(values), sizes), move_at=move_at)
    assert sorted(out.rows(), key=repr) == sorted(best(values, keys, count, descending), key=repr)


def test_keys_that_are_equal_in_spark_share_a_ranking_whatever_their_bits() -> None:
    other_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
    keys = pa.array([0.0, -0.0, math.nan, other_nan, None])
    batch = pa.RecordBatch.from_arrays([keys, pa.array([1, 2, 3, 4, 5])], names=["k", "n"])
    fold = TopFold(batch.schema, ["k"], 1, "n", True)()
    fold.update(batch)
    assert fold.rows().column("n").to_pylist() == [2, 4, 5]


def test_the_order_is_by_key_and_best_first() -> None:
    values = [("b", 0, 1, "p"), ("a", 0, 3, "p"), ("b", 0, 9, "q"), ("a", 0, 3, "o"), ("b", 0, None, "r")]
    top = ps.Topology("t")
    stream = top.source("s", ps.io.generator(lambda task, tasks: [batch_of(values)], SCHEMA))
    stream.key_by("k").top_per_key(2, by="n").sink("out", ps.io.collect())
    assert WholeFlow(top.build()).run().rows() == [
        ("b", 0, 9, "q"),
        ("b", 0, 1, "p"),
        ("a", 0, 3, "o"),
        ("a", 0, 3, "p"),
    ]


def timed(top: ps.Topology) -> ps.DataStream:
    times = pa.array([1_000_000, 2_000_000, 3_000_000, 11_000_000], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"k": ["a", "a", "b", "a"], "n": pa.array([5, 7, 1, 2]), "t": times})
    return top.source("s", ps.io.generator(lambda task, tasks: [batch], "k string, n bigint, t timestamp")).event_time(
        "t"
    )


def test_windows_have_rankings_of_their_own() -> None:
    top = ps.Topology("t")
    ranked = timed(top).key_by("k").top_per_key(1, by="n", window=ps.tumbling("10 seconds"))
    assert ranked.schema.names == ["window_start", "window_end", "k", "n", "t"]
    ranked.sink("out", ps.io.collect())
    found = [row[0:1] + row[2:4] for row in WholeFlow(top.build()).run().rows()]
    assert found == [(0, "a", 7), (0, "b", 1), (10_000_000, "a", 2)]


def test_results_of_windows_are_ranked_window_by_window() -> None:
    top = ps.Topology("t")
    counts = timed(top).key_by("k", "n").count(window=ps.tumbling("10 seconds"))
    counts.key_by("k").top_per_key(1, by="n").sink("out", ps.io.collect())
    found = [(row[0], row[2], row[3]) for row in WholeFlow(top.build()).run().rows()]
    assert found == [(0, "a", 7), (0, "b", 1), (10_000_000, "a", 2)]


def test_an_endless_stream_needs_windows() -> None:
    stream = ps.Topology("t").source("s", ps.io.rate(5))
    with pytest.raises(InvalidInput, match=r"top_per_key of 's' never ends, .*; give window=ps.tumbling\(size\)"):
        stream.key_by("value").top_per_key(1, by="timestamp")
