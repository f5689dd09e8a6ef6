"""Keyed aggregates and reduce against dicts, whatever the batches and wherever the state moves."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from flow_kit import Recorder, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RowError
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Aggregate, Row
from penstock.run.operators.keyed.unwindowed import AggregateFold, KeyedFold, ReduceFold, ReduceFunction

SCHEMA = parse_schema("word string, place bigint, number bigint")
AGGREGATES = [
    Aggregate("count", None, "rows"),
    Aggregate("count", "number", "numbers"),
    Aggregate("sum", "number", "total"),
    Aggregate("min", "number", "least"),
    Aggregate("max", "number", "most"),
    Aggregate("last", "number", "newest"),
]
rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from("abc")),
        st.integers(0, 1),
        st.one_of(st.none(), st.integers(-50, 50)),
    ),
    max_size=50,
)
moves = st.one_of(st.none(), st.integers(0, 10))


def batch_of(values: list) -> pa.RecordBatch:
    columns = [pa.array([v[i] for v in values], field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def aggregated(numbers: list) -> tuple:
    known = [number for number in numbers if number is not None]
    if not known:
        return (len(numbers), 0, None, None, None, None)
    return (len(numbers), len(known), sum(known), min(known), max(known), known[-1])


def by_key(values: list) -> dict[tuple, list]:
    found: dict[tuple, list] = {}
    for word, place, number in values:
        found.setdefault((word, place), []).append(number)
    return found


def build(emit: str) -> partial:
    return partial(KeyedFold, AggregateFold(SCHEMA, ["word", "place"], AGGREGATES), emit)


@given(values=rows, sizes=cuts, move_at=moves, rows_max=st.integers(1, 5))
def test_end_gives_one_row_for_each_key(values: list, sizes: list, move_at: int | None, rows_max: int) -> None:
    out = drive(build("end"), cut(batch_of(values), sizes), move_at=move_at, rows_max=rows_max)
    assert sorted(out.rows(), key=repr) == sorted(
        ((*key, *aggregated(numbers)) for key, numbers in by_key(values).items()), key=repr
    )
    assert all(batch.num_rows <= rows_max for batch in out.batches.get("out", []))


@given(values=rows, sizes=cuts, move_at=moves)
def test_changes_tell_each_touched_key_once_for_each_run(values: list, sizes: list, move_at: int | None) -> None:
    pieces = cut(batch_of(values), sizes)
    out = drive(build("changes"), pieces, move_at=move_at)
    expected, seen = [], 0
    for piece in pieces:
        fresh = values[seen : seen + piece.num_rows]
        seen += piece.num_rows
        now = by_key(values[:seen])
        expected += [(*key, *aggregated(now[key])) for key in by_key(fresh)]
    assert sorted(out.rows(), key=repr) == sorted(expected, key=repr)


@given(values=rows, sizes=cuts, move_at=moves)
def test_each_tells_the_running_value_after_every_row(values: list, sizes: list, move_at: int | None) -> None:
    out = drive(build("each"), cut(batch_of(values), sizes), move_at=move_at)
    expected = [
        (word, place, *aggregated(by_key(values[: i + 1])[word, place])) for i, (word, place, _) in enumerate(values)
    ]
    assert out.rows() == expected


def longest(so_far: Row, row: Row) -> Row:
    return row if (row.number or 0) > (so_far.number or 0) else so_far


@given(values=rows, sizes=cuts, move_at=moves, emit=st.sampled_from(["end", "changes", "each"]))
def test_reduce_folds_in_order(values: list, sizes: list, move_at: int | None, emit: str) -> None:
    out = drive(
        partial(KeyedFold, ReduceFold(SCHEMA, ["word"], longest), emit), cut(batch_of(values), sizes), move_at=move_at
    )
    best: dict = {}
    running = []
    for row in values:
        if row[0] not in best or (row[2] or 0) > (best[row[0]][2] or 0):
            best[row[0]] = row
        running.append(best[row[0]])
    if emit == "end":
        assert sorted(out.rows(), key=repr) == sorted(best.values(), key=repr)
    elif emit == "each":
        assert out.rows() == running
    else:
        assert {row[0]: row for row in out.rows()} == best


def test_reduce_takes_dicts_and_tuples() -> None:
    for function in (
        lambda a, b: {"number": a.number + b.number, "word": a.word, "place": a.place},
        lambda a, b: (a.word, a.place, a.number + b.number),
    ):
        out = drive(
            partial(KeyedFold, ReduceFold(SCHEMA, ["word"], function), "end"), [batch_of([("a", 0, 1), ("a", 1, 2)])]
        )
        assert out.rows() == [("a", 0, 3)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: ("z", 0, 1), "changed the key"),
        (lambda a, b: 1 / 0, "ZeroDivisionError"),
        (lambda a, b: {"word": "a"}, "place"),
    ],
)
def test_reduce_names_the_row_that_fails(function: ReduceFunction, message: str) -> None:
    task = opened(partial(KeyedFold, ReduceFold(SCHEMA, ["word"], function), "end"))
    with pytest.raises(RowError, match=rf"row 1, .*number=2.*{message}"):
        task.process(batch_of([("a", 0, 1), ("a", 1, 2)]), 0, Recorder())
