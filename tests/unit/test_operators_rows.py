"""Row and batch operators against plain Python."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pytest
from flow_kit import Recorder, cut, cuts, drive, opened
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, RowError
from penstock.flow.schema import parse_schema
from penstock.run.columns.kernels import Row
from penstock.run.contract import ERRORS
from penstock.run.operators.batches import MapBatches, Split
from penstock.run.operators.expressions import Project
from penstock.run.operators.rows import FilterRows, FlatMapRows, MapRows, errors_schema
from penstock.run.operators.union import Union

SCHEMA = parse_schema("name string, number bigint")
rows = st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=4)), st.integers(-9, 9)), max_size=40)


def batch_of(values: list) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([v[0] for v in values], pa.string()), pa.array([v[1] for v in values], pa.int64())], schema=SCHEMA
    )


def double(row: Row) -> dict:
    return {"double": row.number * 2, "name": row["name"]}


def repeat(row: Row) -> list:
    return [(row.name,)] * max(0, row.number)


def inverse(row: Row) -> tuple:
    return (10 // row.number,)


@given(values=rows, sizes=cuts)
def test_map_gives_one_row_for_each(values: list, sizes: list[int]) -> None:
    build = partial(MapRows, double, parse_schema("name string, double bigint"))
    assert drive(build, cut(batch_of(values), sizes)).rows() == [(name, number * 2) for name, number in values]


@given(values=rows, sizes=cuts)
def test_filter_keeps_rows_as_they_are(values: list, sizes: list[int]) -> None:
    out = drive(partial(FilterRows, lambda row: row.number > 0), cut(batch_of(values), sizes))
    assert out.rows() == [row for row in values if row[1] > 0]


@given(values=rows, sizes=cuts)
def test_flat_map_gives_any_number_of_rows(values: list, sizes: list[int]) -> None:
    out = drive(partial(FlatMapRows, repeat, parse_schema("name string")), cut(batch_of(values), sizes))
    assert out.rows() == [(name,) for name, number in values for _ in range(number)]


def test_a_failing_function_fails_with_its_row() -> None:
    task = opened(partial(MapRows, inverse, parse_schema("n bigint")))
    with pytest.raises(RowError, match=r"row 1, .*number=0.*ZeroDivisionError") as raised:
        task.process(batch_of([("a", 2), ("b", 0)]), 0, Recorder())
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@given(values=rows, sizes=cuts)
def test_quarantine_parts_rows_from_errors_and_loses_none(values: list, sizes: list[int]) -> None:
    build = partial(MapRows, inverse, parse_schema("n bigint"), quarantine=True)
    out = drive(build, cut(batch_of(values), sizes))
    assert out.rows() == [(10 // number,) for _, number in values if number]
    bad = [row for row in values if row[1] == 0]
    assert [row[:2] for row in out.rows(ERRORS)] == bad
    assert all("ZeroDivisionError" in row[2] for row in out.rows(ERRORS))
    assert all(batch.schema == errors_schema(SCHEMA) for batch in out.batches.get(ERRORS, []))


def test_the_error_column_gives_way_to_one_that_is_there() -> None:
    assert errors_schema(parse_schema("error string")).names == ["error", "_error"]


@given(values=rows, sizes=cuts)
def test_union_passes_everything(values: list, sizes: list[int]) -> None:
    steps = [(piece, i % 2) for i, piece in enumerate(cut(batch_of(values), sizes))]
    assert drive(Union, steps).rows() == values


@given(values=rows, sizes=cuts)
def test_select_reorders(values: list, sizes: list[int]) -> None:
    batch = batch_of(values)
    schema = pa.schema([batch.schema.field("number"), batch.schema.field("name")])
    out = drive(partial(Project, ["number", "name"], schema), cut(batch, sizes))
    assert out.rows() == [(number, name) for name, number in values]


@given(texts=st.lists(st.one_of(st.none(), st.text("ab ,", max_size=9)), max_size=20), sizes=cuts)
def test_split_is_python_split(texts: list, sizes: list[int]) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(texts, pa.string()), pa.array(range(len(texts)), pa.int64())], names=["line", "n"]
    )
    out = drive(partial(Split, "line", "word", " ", ["n"]), cut(batch, sizes))
    assert out.rows() == [(word, n) for n, text in enumerate(texts) if text for word in text.split(" ") if word]


@pytest.mark.parametrize("form", ["batch", "table", "list", "none", "cast"])
def test_batch_functions_may_return_several_forms(form: str) -> None:
    batch = batch_of([("a", 1), ("b", 2)])
    made = {
        "batch": batch,
        "table": pa.Table.from_batches([batch]),
        "list": [batch.slice(0, 1), batch.slice(1)],
        "none": None,
        "cast": batch.set_column(1, "number", batch.column(1).cast(pa.int32())),
    }[form]
    out = drive(partial(MapBatches, lambda given: made, SCHEMA), [batch])
    assert out.rows() == ([] if form == "none" else [("a", 1), ("b", 2)])
    assert all(given.schema == SCHEMA for given in out.batches.get("out", []))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (7, r"batch function of 'op' returned 7"),
        ({"a": 1}, r"returned \{'a': 1\}"),
        (pa.record_batch({"x": [1]}), r"gave columns x but its schema is name, number"),
        (pa.record_batch({"name": ["a"], "number": ["z"]}), r"column 'number' as string but its schema says int64"),
    ],
)
def test_batch_functions_are_held_to_their_schema(made: object, message: str) -> None:
    task = opened(partial(MapBatches, lambda batch: made, SCHEMA))
    with pytest.raises(InvalidInput, match=message):
        task.process(batch_of([("a", 1)]), 0, Recorder())
