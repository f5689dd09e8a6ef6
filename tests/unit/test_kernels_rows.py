"""Rows and the row loop: what functions see, what they may return, and what happens when they fail."""

from __future__ import annotations

import copy
import datetime
import gc
import pickle
import sys
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import IntEnum
from typing import Any

import kernels_reference as reference
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_strategies import RARE, SIMPLE, UTC, batches, columns, shown

from penstock.errors import InvalidInput, RowError
from penstock.run.columns.kernels import (
    Aggregate,
    KeyedAggregate,
    Row,
    RowFault,
    filter_rows,
    flat_map_rows,
    map_rows,
    partition,
    split_words,
)
from penstock.run.columns.unwritten import written

BATCH = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "zz"]})


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    found: list[Row] = []
    filter_rows(found.append, batch)
    return found


# -- what a row is ---------------------------------------------------------------------------------------------------


@given(batches(columns_max=3))
def test_rows_show_what_pyarrow_shows(batch: pa.RecordBatch) -> None:
    expected = [Row(**values) for values in batch.to_pylist()]
    found = rows_of(batch)
    # pyarrow gives UTC as a zoneinfo, rows as datetime.timezone.utc; the times are equal.
    assert repr(found) == repr(expected).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
    assert [repr(row) for row in map(list, found)] == [repr([row[i] for i in range(len(row))]) for row in found]


def test_a_row_reads_like_pyspark() -> None:
    row = rows_of(BATCH)[0]
    assert (row["a"], row.a, row[0], row[-1], row[0:2]) == (1, 1, 1, "x", (1, "x"))
    assert (len(row), list(row), row.keys(), row.asDict()) == (2, [1, "x"], ("a", "b"), {"a": 1, "b": "x"})
    assert repr(row) == "Row(a=1, b='x')"
    assert "a" in row
    assert "z" not in row
    assert dict(row) == {"a": 1, "b": "x"}
    first, second = row
    assert (first, second) == (1, "x")


def test_rows_compare_by_names_and_values() -> None:
    row = rows_of(BATCH)[0]
    assert row == Row(a=1, b="x")
    assert row == (1, "x")
    assert row != Row(a=1, c="x")
    assert row != Row(a=2, b="x")
    assert row != [1, "x"]
    assert len({row, Row(a=1, b="x")}) == 1
    assert pickle.loads(pickle.dumps(row)) == row  # noqa: S301 - our own bytes
    assert copy.deepcopy(row) == row


@pytest.mark.parametrize("row", [rows_of(BATCH)[0], Row(a=1, b="x")], ids=["of a batch", "made"])
def test_missing_columns_are_named_with_those_that_exist(row: Row) -> None:
    with pytest.raises(AttributeError, match="no column 'c'; its columns are a, b"):
        row.c  # noqa: B018 - the access is the test
    with pytest.raises(KeyError, match="no column 'c'; its columns are a, b"):
        row["c"]
    with pytest.raises(IndexError, match="no column 2; its 2 columns are a, b"):
        row[2]
    with pytest.raises(AttributeError, match="immutable"):
        row.a = 2
    with pytest.raises(TypeError):
        row["a"] = 2  # type: ignore[index]
    assert getattr(row, "c", None) is None
    assert not hasattr(row, "__array__")


def test_columns_come_before_methods_of_the_same_name() -> None:
    row = rows_of(pa.record_batch({"keys": [1], "__class__": [2]}))[0]
    assert row.keys == 1
    assert row["__class__"] == 2
    assert type(row) is Row


def test_a_row_keeps_its_batch_alive() -> None:
    batch = pa.record_batch({"t": ["kept " * 100], "l": [[1, 2]]})
    (row,) = rows_of(batch)
    del batch
    gc.collect()
    assert row.t == "kept " * 100
    assert row.l == [1, 2]


def test_rows_are_made_by_name_only() -> None:
    with pytest.raises(TypeError, match="by name"):
        Row(1)  # type: ignore[call-arg]
    assert repr(Row()) == "Row()"


def test_text_that_is_not_utf8_is_a_fault_of_its_row() -> None:
    broken = pa.array([b"ok", b"\xff"]).view(pa.string())
    faults: list[RowFault] = []
    found = map_rows(
        lambda row: row.t, pa.record_batch([broken], names=["t"]), pa.schema({"t": pa.string()}), faults.append
    )
    assert found.to_pydict() == {"t": ["ok"]}
    assert isinstance(faults[0].error, UnicodeDecodeError)


# -- what a function may return --------------------------------------------------------------------------------------


@given(st.data())
def test_values_of_every_type_go_through_unchanged(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(SIMPLE + RARE))
    batch = pa.record_batch([data.draw(columns(data.draw(st.integers(0, 8)), [(kind, values)]))], names=["c"])
    shapes: list[Callable[[Row], Any]] = [
        lambda row: (row.c,),
        lambda row: {"c": row.c},
        lambda row: row,
        lambda row: Row(c=row.c),
    ]
    if not pa.types.is_nested(kind):
        shapes += [lambda row: row.c, lambda row: [row.c]]
    for shape in shapes:
        assert shown(map_rows(shape, batch, batch.schema)) == shown(batch)
    assert shown(flat_map_rows(lambda row: [row], batch, batch.schema)) == shown(batch)


@given(batches(simple_only=True), st.randoms(use_true_random=False))
def test_loops_give_the_rows_that_their_functions_ask_for(batch: pa.RecordBatch, random: Any) -> None:  # noqa: ANN401 - hypothesis' Random
    copies = [random.randrange(4) for _ in range(batch.num_rows)]
    keep = [random.random() < 0.5 for _ in range(batch.num_rows)]
    next_copies, next_kept = iter(copies), iter(keep)
    found = flat_map_rows(lambda row: [tuple(row)] * next(next_copies), batch, batch.schema)
    assert shown(found) == shown(reference.taken(batch, [i for i, count in enumerate(copies) for _ in range(count)]))
    found = filter_rows(lambda _: next(next_kept), batch)
    assert shown(found) == shown(reference.taken(batch, [i for i, kept in enumerate(keep) if kept]))


class Colour(IntEnum):
    RED = 1


ACCEPTED = [
    (pa.int64(), np.int32(5), 5),
    (pa.int8(), Colour.RED, 1),
    (pa.uint64(), 2**64 - 1, 2**64 - 1),
    (pa.float64(), 3, 3.0),
    (pa.float64(), np.float32(1.5), 1.5),
    (pa.bool_(), np.bool_(True), True),
    (pa.binary(), bytearray(b"x"), b"x"),
    (pa.binary(), memoryview(b"xy"), b"xy"),
    (pa.string(), np.str_("é"), "é"),
    (
        pa.timestamp("us", tz="UTC"),
        datetime.datetime(2020, 1, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.datetime(2020, 1, 1, tzinfo=UTC),
    ),
    (pa.timestamp("us", tz="UTC"), datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
    (pa.date32(), datetime.date(1, 1, 1), datetime.date(1, 1, 1)),
    (pa.date32(), datetime.date(9999, 12, 31), datetime.date(9999, 12, 31)),
    (pa.timestamp("us"), datetime.datetime(1, 1, 1), datetime.datetime(1, 1, 1)),
    (pa.timestamp("us"), datetime.datetime.max, datetime.datetime.max),
    (pa.list_(pa.int8()), [1, 2], [1, 2]),
    (pa.struct({"p": pa.int8()}), {"p": 1}, {"p": 1}),
    (pa.map_(pa.string(), pa.int8()), {"p": 1}, [("p", 1)]),
    (pa.decimal128(5, 2), Decimal("1.5"), Decimal("1.50")),
]


@pytest.mark.parametrize(("kind", "value", "expected"), ACCEPTED, ids=lambda value: str(value).split(" at ")[0])
def test_bare_values_that_fit(kind: pa.DataType, value: object, expected: object) -> None:
    found = map_rows(lambda _: value, BATCH.slice(0, 1), pa.schema({"c": kind}))
    assert found.column(0).to_pylist() == [expected]
    assert rows_of(found)[0].c == expected


REFUSED = [
    (pa.int64(), "1"),
    (pa.int64(), 1.0),
    (pa.int64(), True),
    (pa.int64(), 2**63),
    (pa.int8(), 128),
    (pa.int8(), -129),
    (pa.uint8(), 256),
    (pa.uint32(), -1),
    (pa.uint64(), 2**64),
    (pa.float64(), "1"),
    (pa.float64(), True),
    (pa.float64(), 10**400),
    (pa.bool_(), 1),
    (pa.string(), b"x"),
    (pa.string(), 1),
    (pa.string(), "\ud800"),
    (pa.binary(), "x"),
    (pa.date32(), datetime.datetime(2020, 1, 1)),
    (pa.date32(), 1),
    (pa.timestamp("us"), datetime.date(2020, 1, 1)),
    (pa.decimal128(5, 2), "x"),
    (pa.list_(pa.int8()), [1, "x"]),
    (pa.null(), 1),
]


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=lambda value: str(value)[:20].replace("\ud800", "surrogate"))
def test_values_that_do_not_fit_name_column_value_and_type(kind: pa.DataType, value: object) -> None:
    with pytest.raises(RowError) as caught:
        map_rows(lambda row: (row.a, value), BATCH, pa.schema({"n": pa.int64(), "c": kind}))
    assert caught.value.row == 0
    assert isinstance(caught.value.__cause__, TypeError)
    message = str(caught.value.__cause__)
    assert message.startswith(f"column 'c' is declared {kind} but got {value!r:.200} of type ")
    assert message.endswith(type(value).__name__)


def test_none_goes_into_nullable_columns_only() -> None:
    schema = pa.schema([pa.field("c", pa.int64(), nullable=False)])
    with pytest.raises(RowError, match="column 'c' is declared int64 not null but got None"):
        map_rows(lambda _: None, BATCH, schema)
    assert map_rows(lambda _: None, BATCH, pa.schema({"c": pa.int64()})).column(0).null_count == 3


@pytest.mark.parametrize(
    "value",
    [
        (1,),
        (1, "x", 2),
        [1],
        {"a": 1},
        {"a": 1, "z": "x"},
        {"a": 1, "b": "x", "c": 2},
        Row(a=1, c=2),
        Row(a=1),
        7,
        "ab",
        None,
    ],
)
def test_a_wrong_shape_names_the_declared_columns(value: object) -> None:
    with pytest.raises(RowError, match=r"returned .* but the declared columns are a, b"):
        map_rows(lambda _: value, BATCH, BATCH.schema)


def test_dicts_and_rows_go_by_name() -> None:
    for value in ({"b": "y", "a": 9}, Row(b="y", a=9)):
        assert map_rows(lambda _, value=value: value, BATCH.slice(0, 1), BATCH.schema).to_pylist() == [
            {"a": 9, "b": "y"}
        ]


def test_flat_map_takes_any_iterable_but_text_dicts_and_rows() -> None:
    words = pa.schema({"w": pa.string()})
    assert flat_map_rows(lambda _: None, BATCH, words).num_rows == 0
    assert flat_map_rows(lambda row: (c for c in row.b or ""), BATCH, words).to_pydict() == {"w": ["x", "z", "z"]}
    for value in ("text", b"bytes", {"w": "x"}, Row(w="x")):
        with pytest.raises(RowError, match="return a list of rows, or yield them"):
            flat_map_rows(lambda _, value=value: value, BATCH, words)
    with pytest.raises(RowError, match="not iterable"):
        flat_map_rows(lambda _: 5, BATCH, words)


def test_a_schema_without_distinct_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="distinct columns"):
        map_rows(tuple, BATCH, pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(InvalidInput, match="distinct columns"):
        map_rows(tuple, BATCH, pa.schema([]))


# -- what happens when a function fails ------------------------------------------------------------------------------


def fails_on_two(row: Row) -> int:
    if row.a == 2:
        message = "two is too many"
        raise ValueError(message)
    return int(row.a)


def test_the_first_fault_is_raised_with_row_values_and_the_users_traceback() -> None:
    for run in (
        lambda: map_rows(fails_on_two, BATCH, pa.schema({"n": pa.int64()})),
        lambda: filter_rows(fails_on_two, BATCH),
        lambda: flat_map_rows(lambda row: [fails_on_two(row)], BATCH, pa.schema({"n": pa.int64()})),
    ):
        with pytest.raises(RowError) as caught:
            run()
        error = caught.value
        assert (error.row, error.values) == (1, "Row(a=2, b=None)")
        assert str(error) == "row 1, Row(a=2, b=None): ValueError: two is too many"
        assert any(frame.name == "fails_on_two" for frame in traceback.extract_tb(error.__cause__.__traceback__))
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own bytes


def test_faults_are_reported_and_their_rows_left_out() -> None:
    faults: list[RowFault] = []
    found = map_rows(fails_on_two, BATCH, pa.schema({"n": pa.int64()}), faults.append)
    assert found.to_pydict() == {"n": [1, 3]}
    assert [(fault.row, str(fault.error), fault.values) for fault in faults] == [
        (1, "two is too many", Row(a=2, b=None))
    ]
    assert filter_rows(fails_on_two, BATCH, faults.append).to_pydict() == {"a": [1, 3], "b": ["x", "zz"]}
    assert len(faults) == 2


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 3))
def test_a_row_that_fails_halfway_leaves_nothing_behind(sizes: list[int], bad: int) -> None:
    """Native columns, text and columns that pyarrow makes are all cut back."""
    schema = pa.schema({"n": pa.int64(), "t": pa.string(), "b": pa.bool_(), "l": pa.list_(pa.int64())})

    def several(row: Row) -> Iterator[tuple[Any, ...]]:
        for i in range(row.size):
            yield (i, "t" * i, i % 2 == 0, "wrong" if row.size > bad and i == bad else [i])

    faults: list[RowFault] = []
    found = flat_map_rows(several, pa.record_batch({"size": pa.array(sizes, pa.int64())}), schema, faults.append)
    expected = [(i, "t" * i, i % 2 == 0, [i]) for size in sizes if size <= bad for i in range(size)]
    assert [tuple(row.values()) for row in found.to_pylist()] == expected
    assert [fault.row for fault in faults] == [i for i, size in enumerate(sizes) if size > bad]
    found.validate(full=True)


def test_what_on_error_raises_ends_the_loop_and_interrupts_are_no_faults() -> None:
    def give_up(fault: RowFault) -> None:
        raise RuntimeError(str(fault.row))

    with pytest.raises(RuntimeError, match="1"):
        map_rows(fails_on_two, BATCH, pa.schema({"n": pa.int64()}), give_up)

    def interrupted(_: Row) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        map_rows(interrupted, BATCH, pa.schema({"n": pa.int64()}), give_up)


def test_truth_that_cannot_be_told_is_a_fault() -> None:
    with pytest.raises(RowError, match="ambiguous"):
        filter_rows(lambda _: np.array([1, 2]), BATCH)


def test_a_list_that_shrinks_while_it_is_read_is_refused() -> None:
    results: list[Any] = []

    class Shrinking:
        def __index__(self) -> int:
            del results[1:]
            return 1

    results[:] = [Shrinking(), 2]
    with pytest.raises(RowError, match="declared columns"):
        map_rows(lambda _: results, BATCH, pa.schema({"a": pa.int64(), "b": pa.int64()}))


# -- nothing is lost or kept -----------------------------------------------------------------------------------------


def everything(batch: pa.RecordBatch, aggregate: KeyedAggregate) -> None:
    partition(batch, ["w"], 3)
    split_words(batch, "w", "x", keep=["l"])
    aggregate.update(batch)
    aggregate.update_each(batch)
    aggregate.changed()
    aggregate.put_state(bytes(written(aggregate.take_state())))
    schema = pa.schema({"w": pa.string(), "l": pa.list_(pa.int64())})
    map_rows(lambda row: (row.w, row.l), batch, schema)
    flat_map_rows(lambda row: [row.asDict()], batch, batch.schema)
    filter_rows(lambda row: row.w != "a b", batch)
    map_rows(lambda row: row.nope, batch, schema, lambda _: None)
    map_rows(lambda _: (1, 2), batch, schema, lambda _: None)
    map_rows(lambda row: Row(w=row.w, z=1), batch, schema, lambda _: None)


def test_many_calls_leave_no_memory_behind() -> None:
    batch = pa.record_batch({"w": ["a b", "c" * 50, None] * 20, "l": [[1], None, [2, 3]] * 20})
    aggregate = KeyedAggregate(batch.schema, ["w"], [Aggregate("max", "w", "m")])
    counted = [batch, batch.schema, everything, Row]
    tracemalloc.start()
    for _ in range(40):  # fills free lists and caches
        everything(batch, aggregate)
    gc.collect()
    arrow, references = pa.total_allocated_bytes(), [sys.getrefcount(thing) for thing in counted]
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        everything(batch, aggregate)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert [sys.getrefcount(thing) for thing in counted] == references
    assert pa.total_allocated_bytes() == arrow
    assert grown < 50_000  # one object lost for every row would be 300,000 bytes; free lists still grow a little
