"""Rankings against sorted()."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from flow_kit import US, cut, cuts, drive
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.schema import parse_schema
from penstock.run.contract import LATE
from penstock.run.operators.keyed import top
from penstock.run.operators.keyed.top import Ranking, TopAll, TopWindows

SCHEMA = parse_schema("route string, count bigint")
WINDOWED = parse_schema("window_start timestamp, window_end timestamp, route string, count bigint")
rows = st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), st.integers(0, 9))), max_size=40)
moves = st.one_of(st.none(), st.integers(0, 10))


def batch_of(values: list) -> pa.RecordBatch:
    columns = [pa.array([v[i] for v in values], field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def best(values: list, count: int, descending: bool = True) -> list:
    def place(row: tuple) -> tuple:
        sign = -1 if descending else 1
        return (row[-1] is None, sign * (row[-1] or 0), *row[:-1])

    return sorted(values, key=place)[:count]


def newest(values: list) -> list:
    return list({row[:-1]: row for row in values}.values())


@given(values=rows, sizes=cuts, count=st.integers(1, 5), move_at=moves, descending=st.booleans())
def test_without_keys_every_row_counts(
    values: list, sizes: list, count: int, move_at: int | None, descending: bool
) -> None:
    build = partial(TopAll, Ranking(SCHEMA, count, "count", descending), "end")
    assert drive(build, cut(batch_of(values), sizes), move_at=move_at).rows() == best(values, count, descending)


def test_keys_of_many_values_each_are_told_apart_whatever_their_product() -> None:
    # 65,536 values in each of five keys: 2 ** 80 combinations, and the first key weighs 2 ** 64, which is nothing.
    names = ["a", "b", "c", "d", "e"]
    number = pa.array([*range(1 << 16), 0])
    first = pa.array([*range(1 << 16), 1])  # the last row is the first one but for its first key
    batch = pa.record_batch([first, *[number] * 4], names=names)
    ranking = Ranking(batch.schema, 1, "a", keys=tuple(names))
    assert len(set(ranking.identities(batch).tolist())) == batch.num_rows
    assert ranking.newest(batch).num_rows == batch.num_rows


@given(values=rows, sizes=cuts, count=st.integers(1, 5), move_at=moves)
def test_with_keys_the_newest_row_of_a_key_counts(values: list, sizes: list, count: int, move_at: int | None) -> None:
    build = partial(TopAll, Ranking(SCHEMA, count, "count", keys=("route",)), "end")
    assert drive(build, cut(batch_of(values), sizes), move_at=move_at).rows() == best(newest(values), count)


@given(values=rows, sizes=cuts, count=st.integers(1, 5), move_at=moves)
def test_changes_tell_the_ranking_when_it_has_changed(
    values: list, sizes: list, count: int, move_at: int | None
) -> None:
    """Rows rise and fall: the ranking after each run is that of everything seen so far."""
    ranking = Ranking(SCHEMA, count, "count", keys=("route",))
    pieces = cut(batch_of(values), sizes)
    out = drive(partial(TopAll, ranking, "changes"), pieces, move_at=move_at)
    expected, seen, last = [], 0, []
    for piece in pieces:
        seen += piece.num_rows
        now = best(newest(values[:seen]), count)
        if now != last:
            expected.append(now)
        last = now
    assert [list(zip(*(c.to_pylist() for c in b.columns), strict=True)) for b in out.batches.get("out", [])] == expected


def test_outdated_rows_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "COMPACT_ROWS_MIN", 10)
    task = TopAll(Ranking(SCHEMA, 1, "count", keys=("route",)), "end")
    for i in range(100):
        task.process(batch_of([("a", i), ("b", -i)]), 0, None)
    assert sum(batch.num_rows for batch in task.log) < 20


windowed_rows = st.lists(
    st.tuples(st.sampled_from([0, 10, 20]), st.sampled_from("abcd"), st.integers(0, 9)), max_size=40
)


def windowed_batch(values: list) -> pa.RecordBatch:
    columns = [
        pa.array([v[0] for v in values], pa.int64()).cast(US),
        pa.array([v[0] + 10 for v in values], pa.int64()).cast(US),
        pa.array([v[1] for v in values], pa.string()),
        pa.array([v[2] for v in values], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=WINDOWED)


@given(values=windowed_rows, sizes=cuts, count=st.integers(1, 3), move_at=moves, keyed=st.booleans())
def test_each_window_has_its_own_ranking(
    values: list, sizes: list, count: int, move_at: int | None, keyed: bool
) -> None:
    ranking = Ranking(WINDOWED, count, "count", keys=("route",) if keyed else (), window_column="window_start")
    out = drive(partial(TopWindows, ranking), cut(windowed_batch(values), sizes), move_at=move_at)
    expected = []
    for start in (0, 10, 20):
        inside = [(start, start + 10, route, n) for s, route, n in values if s == start]
        expected += best(newest(inside) if keyed else inside, count)
    assert out.rows() == expected


def test_a_window_is_ranked_when_the_watermark_has_passed_its_start() -> None:
    ranking = Ranking(WINDOWED, 1, "count", keys=("route",), window_column="window_start")
    first = windowed_batch([(0, "a", 1), (0, "b", 2)])
    steps = [first, 0, windowed_batch([(0, "c", 3)]), 10, windowed_batch([(0, "d", 9), (10, "e", 1)])]
    out = drive(partial(TopWindows, ranking), steps, end=False)
    assert out.rows() == [(0, 10, "c", 3)]
    assert out.rows(LATE) == [(0, 10, "d", 9)]


def test_numbers_that_are_none_rank_as_in_spark() -> None:
    """NaN is larger than every number, null comes last; an unusual column breaks ties without a complaint."""
    schema = parse_schema("x double, tags array<string>, nothing void")
    columns = [pa.array([1.0, None, float("nan"), 2.0]), pa.array([["b"], ["a"], None, []]), pa.nulls(4)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    for descending, expected in ((True, ["nan", "2.0", "1.0", "None"]), (False, ["1.0", "2.0", "nan", "None"])):
        out = drive(partial(TopAll, Ranking(schema, 9, "x", descending), "end"), [batch])
        assert [str(row[0]) for row in out.rows()] == expected


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from("ab"), st.booleans()), max_size=12))
def test_rows_that_are_equal_are_told_apart_by_the_columns_that_follow(values: list) -> None:
    group, by, text, flag = (list(column) for column in zip(*values, strict=True)) if values else ([], [], [], [])
    types = [pa.int64(), pa.string(), pa.bool_()]
    arrays = [pa.array(column, kind) for column, kind in zip((by, text, flag), types, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=["by", "text", "flag"])
    found = top.ordering(rows, "by", True, ("flag",), np.array(group, dtype=np.int64))
    ranked = sorted((g, -b, f, t) for g, b, t, f in values)
    assert [(group[i], -by[i], flag[i], text[i]) for i in found.tolist()] == ranked


def test_columns_that_decide_nothing_are_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[int] = []

    def counting(column: pa.Array, descending: bool) -> object:
        ranked.append(len(column))
        return value_ranks(column, descending)

    value_ranks = top.value_ranks
    monkeypatch.setattr(top, "value_ranks", counting)
    rows = pa.RecordBatch.from_pydict({"by": [3, 1, 2, 1], "a": ["x", "y", "z", "w"], "b": ["", "", "", ""]})
    assert top.ordering(rows, "by", False, ()).tolist() == [3, 1, 2, 0]
    assert ranked == [4, 2]  # all rows by the ranked column, two by the next, none by the last
