"""Python values and Arrow columns of Spark's types, nested in each other at will: in = out, by every door."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_strategies import TEXTS, shown, whole

from penstock.errors import RowError
from penstock.run.columns.kernels import EmittedRows, Row, RowFault, filter_rows, map_rows
from penstock.run.columns.unwritten import ArrowRows
from penstock.run.operators.convert import from_bytes, rows_to_batch

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]
WIDE = Context(prec=60)
LONG = Context(prec=10_000, Emin=-(10**7), Emax=10**7)
YEARS = st.sampled_from([datetime.min, datetime.max, datetime(1969, 12, 31, 23, 59, 59, 999_999)])
TIMES = st.datetimes() | YEARS


def decimal(precision: int, scale: int) -> Typed:
    most = 10**precision - 1
    units = st.integers(-most, most) | st.sampled_from([0, 1, -1, most, -most])
    return pa.decimal128(precision, scale), units.map(lambda n: Decimal(n).scaleb(-scale, WIDE))


FLAT: list[Typed] = [
    (pa.bool_(), st.booleans()),
    *((getattr(pa, f"int{bits}")(), whole(bits, True)) for bits in (8, 16, 32, 64)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), TEXTS),
    (pa.binary(), st.binary(max_size=9)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", tz="UTC"), TIMES.map(lambda time: time.replace(tzinfo=UTC))),
    (pa.timestamp("us"), TIMES),
    (pa.null(), st.none()),
    *(decimal(*digits) for digits in ((1, 0), (5, 2), (18, 18), (38, 0), (38, 18), (38, 38))),
]


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def lists(one: Typed) -> Typed:
        return pa.list_(one[0]), st.lists(st.none() | one[1], max_size=3)

    def structs(parts: list[Typed]) -> Typed:
        kind = pa.struct([pa.field(f"f {i}", part[0]) for i, part in enumerate(parts)])
        return kind, st.fixed_dictionaries({f"f {i}": st.none() | part[1] for i, part in enumerate(parts)})

    def maps(one: Typed) -> Typed:
        return pa.map_(pa.string(), one[0]), st.lists(st.tuples(TEXTS, st.none() | one[1]), max_size=3)

    return inner.map(lists) | st.lists(inner, min_size=1, max_size=3).map(structs) | inner.map(maps)


any_type = st.recursive(st.sampled_from(FLAT), nested, max_leaves=5)


@st.composite
def typed_batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A few columns of any type, as a slice of a longer batch."""
    rows = draw(st.integers(0, 6))
    kinds = draw(st.lists(any_type, min_size=1, max_size=3))
    columns = [
        pa.array(draw(st.lists(st.none() | values, min_size=rows + 2, max_size=rows + 2)), kind).slice(1, rows)
        for kind, values in kinds
    ]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])


@given(typed_batches())
def test_rows_hold_what_pyarrow_holds(batch: pa.RecordBatch) -> None:
    found: list[dict[str, Any]] = []
    filter_rows(lambda row: found.append(row.asDict()), batch)
    assert str(found) == str(batch.to_pylist())


@given(typed_batches())
def test_every_door_gives_what_it_got(batch: pa.RecordBatch) -> None:
    rows: list[Row] = []
    filter_rows(rows.append, batch)
    whole_batch = shown(batch)
    assert shown(map_rows(lambda row: row, batch, batch.schema)) == whole_batch
    assert shown(map_rows(lambda row: row.asDict(), batch, batch.schema)) == whole_batch
    assert shown(rows_to_batch(rows, batch.schema)) == whole_batch
    (again,) = from_bytes(ArrowRows([batch], batch.schema).written())
    assert shown(again) == whole_batch


# -- decimals --------------------------------------------------------------------------------------------------------

SHAPES = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
NUMBERS = (
    st.decimals(allow_nan=True, allow_infinity=True)
    | st.decimals(places=2, allow_nan=False, allow_infinity=False, min_value=-99, max_value=99)
    | st.integers(-(10**40), 10**40)
    | st.builds(lambda n, e: Decimal(n).scaleb(e, WIDE), st.integers(-999, 999), st.integers(-45, 45))
)


@given(SHAPES, NUMBERS)
def test_a_decimal_goes_in_exactly_or_not_at_all(shape: tuple[int, int], value: Decimal | int) -> None:
    kind = pa.decimal128(*shape)
    exact = Decimal(value)
    fits = exact.is_finite() and exact == exact.quantize(Decimal(1).scaleb(-shape[1], WIDE), context=LONG)
    fits = fits and abs(exact) < Decimal(10) ** (shape[0] - shape[1])
    batch = pa.record_batch({"n": [0]})
    if fits:
        found = map_rows(lambda _: value, batch, pa.schema({"d": kind})).column(0)[0].as_py()
        assert (found, found.as_tuple().exponent) == (exact, -shape[1])
    else:
        with pytest.raises(RowError, match=r"column 'd' is declared decimal128"):
            map_rows(lambda _: value, batch, pa.schema({"d": kind}))


@pytest.mark.parametrize("value", [True, 1.5, "1.5", np.float64(1), [1], Decimal("sNaN")])
def test_what_is_no_decimal_is_refused(value: object) -> None:
    with pytest.raises(RowError, match=r"column 'd' is declared decimal128\(9, 2\) but got"):
        map_rows(lambda _: (value,), pa.record_batch({"n": [0]}), pa.schema({"d": pa.decimal128(9, 2)}))


# -- nested values in other forms ------------------------------------------------------------------------------------

POINT = pa.struct([pa.field("x", pa.int64()), pa.field("at", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize(
    ("kind", "given_value", "expected"),
    [
        (pa.list_(pa.int64()), (1, 2), [1, 2]),
        (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.list_(pa.float64()), [1, None, np.float32(0.5)], [1.0, None, 0.5]),
        (POINT, {"x": 1}, {"x": 1, "at": None}),
        (POINT, [("x", 1), ("at", None)], {"x": 1, "at": None}),
        (POINT, {"x": 1, "at": datetime(2024, 1, 1)}, {"x": 1, "at": datetime(2024, 1, 1, tzinfo=UTC)}),
        (pa.map_(pa.string(), pa.int64()), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], [("a", 1), ("b", None)]),
        (pa.list_(pa.timestamp("us")), [np.datetime64("2024-01-01T00:00:00", "us")], [datetime(2024, 1, 1)]),
    ],
)
def test_what_pyarrow_takes_is_taken(kind: pa.DataType, given_value: object, expected: object) -> None:
    found = map_rows(lambda _: (given_value,), pa.record_batch({"n": [0, 1]}), pa.schema({"v": kind}))
    assert found.column(0).to_pylist() == [expected, expected]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int64()), [1, "x"]),
        (pa.list_(pa.int64()), "text"),
        (POINT, {"x": "y"}),
        (POINT, 17),
        (pa.map_(pa.string(), pa.int64()), [("a",)]),
        (pa.map_(pa.string(), pa.int64()), [(None, 1)]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [1, None]),
    ],
)
def test_what_does_not_fit_names_the_column_and_leaves_nothing_behind(kind: pa.DataType, value: object) -> None:
    schema = pa.schema({"a": pa.list_(pa.int64()), "v": kind})
    good: object = None
    batch = pa.record_batch({"n": [0, 1, 2]})
    with pytest.raises(RowError, match=r"row 0.*column 'v' is declared"):
        map_rows(lambda _: ([1], value), batch, schema)
    faults: list[int] = []
    found = map_rows(
        lambda row: ([row.n], good if row.n != 1 else value),
        batch,
        schema,
        on_error=lambda fault: faults.append(fault.row),
    )
    assert faults == [1]
    found.validate(full=True)
    assert found.to_pylist() == [{"a": [0], "v": None}, {"a": [2], "v": None}]


def test_times_that_python_cannot_tell_say_what_to_do() -> None:
    beyond = pa.array([1 << 62]).view(pa.timestamp("us"))
    for column in (
        beyond,
        pa.StructArray.from_arrays([beyond], ["t"]),
        pa.array([-(10**6)], pa.int32()).view(pa.date32()),
    ):
        with pytest.raises(RowError, match=r"outside the years 1 to 9999.*use map_batches"):
            filter_rows(lambda row: row.v, pa.record_batch({"v": column}))


# -- zones -----------------------------------------------------------------------------------------------------------

MOMENTS = pa.schema([(name, pa.timestamp("us", tz="UTC")) for name in "ab"])
AT = pa.record_batch(
    {
        "at": pa.array([datetime(2024, 7, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC")),
        "told": pa.array([datetime(2024, 7, 1)], pa.timestamp("us")),
    }
)


def test_a_timestamp_is_aware_and_a_timestamp_ntz_naive() -> None:
    zones: list[object] = []
    filter_rows(lambda row: zones.append((row["at"].tzinfo, row["told"].tzinfo)), AT)
    assert zones == [(UTC, None)]


def test_naive_times_count_as_utc_and_others_as_what_they_are() -> None:
    east = datetime(2024, 7, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    found = map_rows(lambda _: (datetime(2024, 7, 1), east), AT, MOMENTS)
    assert found.to_pylist() == [{"a": datetime(2024, 7, 1, tzinfo=UTC), "b": datetime(2024, 7, 1, tzinfo=UTC)}]


def test_of_an_aware_time_a_timestamp_ntz_keeps_what_the_clock_shows_in_utc_at_every_door() -> None:
    east = datetime(2024, 7, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    kinds = {"t": pa.timestamp("us"), "l": pa.list_(pa.timestamp("us"))}
    schema, naive = pa.schema(kinds), datetime(2024, 7, 1)
    mapped = map_rows(lambda _: (east, [east]), AT, schema)
    emitted = EmittedRows(schema, lambda row, error: pytest.fail(str(error)))
    emitted.emit((east, [east]))
    for found in (mapped, emitted.take(), rows_to_batch([(east, [east])], schema)):
        assert found.to_pylist() == [{"t": naive, "l": [naive]}]


@pytest.mark.parametrize(
    "function", [lambda row: row["at"] > datetime(2024, 1, 1), lambda row: row["at"] - row["told"]]
)
def test_naive_and_aware_times_that_meet_say_what_to_do(function: Any) -> None:  # noqa: ANN401 - a lambda
    with pytest.raises(RowError, match=r"offset-aware datetimes\. a timestamp column gives .* tzinfo=timezone\.utc"):
        filter_rows(function, AT)
    faults: list[RowFault] = []
    filter_rows(function, AT, faults.append)
    assert "tzinfo=None" in faults[0].error.__notes__[0]
