"""Keyed aggregation against its plain form and against pyarrow's group_by."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kernels_strategies import RARE, SIMPLE, columns, shown

from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import OPS, Aggregate, PlainAggregate, result_field
from penstock.run.columns.kernels import KeyedAggregate
from penstock.run.columns.unwritten import written


def possible(schema: pa.Schema) -> list[Aggregate]:
    """Every aggregate that the schema allows."""
    found = [Aggregate("count", None, "rows")]
    for op in OPS:
        for name in schema.names:
            aggregate = Aggregate(op, name, f"{op} {name}")
            try:
                result_field(aggregate, schema)
            except InvalidInput:
                continue
            if not (
                op == "sum" and schema.field(name).type.bit_width == 64 and pa.types.is_integer(schema.field(name).type)
            ):
                found.append(aggregate)  # sums of 64-bit integers overflow; they have a test of their own
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], list[str], list[Aggregate]]:
    """Batches of one schema, with keys and aggregates."""
    kinds = draw(st.lists(st.sampled_from(SIMPLE) | st.sampled_from(RARE), min_size=1, max_size=4))
    names = [f"c{i}" for i in range(len(kinds))]
    batches = []
    for rows in draw(st.lists(st.integers(0, 12), min_size=1, max_size=3)):
        arrays = [draw(columns(rows, [kind])) for kind in kinds]
        batches.append(pa.RecordBatch.from_arrays(arrays, names=names))
    keys = draw(st.lists(st.sampled_from(names), unique=True))
    aggregates = draw(st.lists(st.sampled_from(possible(batches[0].schema)), unique=True, max_size=5))
    return batches, keys, aggregates


def close(a: pa.RecordBatch, b: pa.RecordBatch) -> bool:
    """Equal, but for the last digits of averages of floats."""
    assert a.schema.equals(b.schema)
    a.validate(full=True)
    for ours, theirs, field in zip(a.columns, b.columns, a.schema, strict=True):
        if not field.name.startswith("avg") or pa.types.is_decimal(field.type):
            assert str(ours.to_pylist()) == str(theirs.to_pylist()), field.name
            continue
        for x, y in zip(ours.to_pylist(), theirs.to_pylist(), strict=True):
            assert (x is None) == (y is None)
            assert x is None or math.isnan(x) == math.isnan(y)
            assert x is None or math.isnan(x) or math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-300)
    return True


@given(streams(), st.data())
def test_every_answer_equals_the_plain_form(
    stream: tuple[list[pa.RecordBatch], list[str], list[Aggregate]], data: st.DataObject
) -> None:
    batches, keys, aggregates = stream
    ours = KeyedAggregate(batches[0].schema, keys, aggregates)
    plain = PlainAggregate(batches[0].schema, keys, aggregates)
    assert ours.output_schema.equals(plain.output_schema)
    for batch in batches:
        if data.draw(st.booleans()):
            assert close(ours.update_each(batch), plain.update_each(batch))
        else:
            ours.update(batch)
            plain.update(batch)
        if data.draw(st.booleans()):
            assert close(ours.changed(), plain.changed())
        if data.draw(st.booleans()):
            moved = KeyedAggregate(batches[0].schema, keys, aggregates)
            moved.put_state(bytes(written(ours.take_state())))
            ours = moved
    assert len(ours) == len(plain)
    assert close(ours.rows(), plain.rows())
    assert close(ours.changed(), plain.changed())
    assert ours.changed().num_rows == 0


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(-9, 9)), max_size=30))
def test_answers_equal_those_of_group_by(rows: list[tuple[str | None, int | None]]) -> None:
    table = pa.table(
        {"k": pa.array([k for k, _ in rows], pa.string()), "v": pa.array([v for _, v in rows], pa.int64())}
    )
    ops = {"count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "mean"}
    aggregate = KeyedAggregate(table.schema, ["k"], [Aggregate(op, "v", op) for op in ops])  # type: ignore[arg-type]
    for batch in table.to_batches(max_chunksize=4):
        aggregate.update(batch)
    expected = table.group_by("k").aggregate([("v", op) for op in ops.values()])
    found = aggregate.rows().to_pylist()
    wanted = [{"k": r["k"], **{op: r[f"v_{name}"] for op, name in ops.items()}} for r in expected.to_pylist()]
    assert sorted(found, key=str) == sorted(wanted, key=str)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=20), st.sampled_from([pa.int64(), pa.string(), pa.float64()])
)
def test_tables_grow_without_losing_keys(starts: list[int], kind: pa.DataType) -> None:
    expected: dict[object, int] = {}
    schema = pa.schema({"k": kind})
    aggregate = KeyedAggregate(schema, ["k"], [Aggregate("count", None, "n")])
    for start in starts:
        keys = pa.array(range(start, start + 200)).cast(kind)
        for key in keys.to_pylist():
            expected[key] = expected.get(key, 0) + 1
        aggregate.update(pa.record_batch([keys], schema=schema))
    rows = aggregate.rows()
    assert dict(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True)) == expected
    assert rows.column(0).to_pylist() == list(expected)


PAIRED = [(kind, values) for kind, values in SIMPLE if not pa.types.is_temporal(kind)]


@given(st.data(), st.sampled_from(PAIRED), st.sampled_from(PAIRED))
def test_min_by_and_max_by_equal_the_plain_form(data: st.DataObject, value: tuple, by: tuple) -> None:
    pair = pa.struct([pa.field("value", value[0]), pa.field("by", by[0])])
    schema = pa.schema({"k": pa.int8(), "pair": pair})
    aggregates = [Aggregate("min_by", "pair", "least"), Aggregate("max_by", "pair", "most")]
    ours, plain = KeyedAggregate(schema, ["k"], aggregates), PlainAggregate(schema, ["k"], aggregates)
    assert ours.native
    for rows in data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=3)):
        parts = [data.draw(columns(rows, [kind])) for kind in (value, by)]
        keys = pa.array(data.draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)), pa.int8())
        pairs = pa.StructArray.from_arrays(parts, fields=list(pair))
        batch = pa.RecordBatch.from_arrays([keys, pairs], schema=schema)
        batch = batch.slice(data.draw(st.integers(0, rows)))
        if data.draw(st.booleans()):
            assert close(ours.update_each(batch), plain.update_each(batch))
        else:
            ours.update(batch)
            plain.update(batch)
        if data.draw(st.booleans()):
            again = KeyedAggregate(schema, ["k"], aggregates)
            again.put_state(bytes(written(ours.take_state())))
            ours = again
    assert close(ours.rows(), plain.rows())


def test_the_native_form_is_used_where_it_should_be() -> None:
    for kind, _ in SIMPLE:
        schema = pa.schema({"k": kind})
        ops = [op for op in OPS if op not in {"sum", "avg", "min_by", "max_by"}]
        assert KeyedAggregate(schema, ["k"], [Aggregate(op, "k", op) for op in ops]).native, kind
    coded = pa.schema({"k": pa.dictionary(pa.int8(), pa.string())})
    assert KeyedAggregate(coded, ["k"], [Aggregate("count", None, "n")]).native
    nested = pa.schema({"k": pa.list_(pa.int8())})
    assert not KeyedAggregate(nested, ["k"], [Aggregate("count", None, "n")]).native


def test_types_are_those_of_spark_sql() -> None:
    schema = pa.schema(
        {"i": pa.int8(), "f": pa.float32(), "d": pa.decimal128(12, 3), "w": pa.decimal128(38, 3), "s": pa.string()}
    )
    aggregates = [
        Aggregate("count", None, "rows"),
        Aggregate("sum", "i", "si"),
        Aggregate("sum", "f", "sf"),
        Aggregate("sum", "d", "sd"),
        Aggregate("sum", "w", "sw"),
        Aggregate("avg", "d", "ad"),
        Aggregate("max", "f", "mf"),
        Aggregate("first", "s", "fs"),
    ]
    expected = pa.schema(
        [
            pa.field("s", pa.string()),
            pa.field("rows", pa.int64(), nullable=False),
            pa.field("si", pa.int64()),
            pa.field("sf", pa.float64()),
            pa.field("sd", pa.decimal128(22, 3)),
            pa.field("sw", pa.decimal128(38, 3)),
            pa.field("ad", pa.decimal128(16, 7)),
            pa.field("mf", pa.float32()),
            pa.field("fs", pa.string()),
        ]
    )
    assert KeyedAggregate(schema, ["s"], aggregates).output_schema.equals(expected)


@pytest.mark.parametrize("plain", [False, True])
def test_a_sum_that_leaves_its_type_is_an_error(plain: bool) -> None:
    wide = pa.decimal128(38, 0)
    for values in (pa.array([2**63 - 1, 1]), pa.array([Decimal(10**38 - 1), Decimal(1)], wide)):
        batch = pa.record_batch([values], names=["v"])
        form = PlainAggregate if plain else KeyedAggregate
        aggregate = form(batch.schema, [], [Aggregate("count", None, "n"), Aggregate("sum", "v", "total")])
        with pytest.raises(InvalidInput, match=r"'total'.*does not fit"):  # noqa: PT012 - either may notice
            aggregate.update(batch)
            aggregate.rows()


def half_up(number: Fraction, digits: int) -> Fraction:
    """Rounded to so many digits behind the point, halves away from zero."""
    whole = math.floor(abs(number) * 10**digits + Fraction(1, 2))
    return Fraction(whole if number >= 0 else -whole, 10**digits)


@given(st.data())
def test_averages_of_decimals_are_rounded_as_spark_rounds_them(data: st.DataObject) -> None:
    """Divided to 39 digits behind the point, then to the type's own; the definition in fractions, without a limit."""
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision) | st.sampled_from([min(precision, s) for s in (33, 34, 35, 38)]))
    units = data.draw(st.lists(st.integers(1 - 10**precision, 10**precision - 1) | st.integers(-9, 9), min_size=1))
    assume(all(abs(total) < 10**38 for total in accumulate(units)))  # a sum that leaves its type has its own test
    values = [Decimal((int(unit < 0), tuple(map(int, str(abs(unit)))), -scale)) for unit in units]
    batch = pa.record_batch([pa.array(values, pa.decimal128(precision, scale))], names=["v"])
    kind = pa.decimal128(min(38, precision + 4), min(38, scale + 4))
    exact = half_up(half_up(Fraction(sum(units), 10**scale) / len(units), 39), kind.scale)
    for form in (KeyedAggregate, PlainAggregate):
        aggregate = form(batch.schema, [], [Aggregate("avg", "v", "mean")])
        assert aggregate.output_schema.field("mean").type == kind
        if abs(exact) * 10**kind.scale >= 10**kind.precision:
            with pytest.raises(InvalidInput, match=r"the avg of column 'v' does not fit"):  # noqa: PT012 - either may notice
                aggregate.update(batch)
                aggregate.rows()
        else:
            aggregate.update(batch)
            assert Fraction(aggregate.rows().column(0)[0].as_py()) == exact


def test_sums_of_decimals_keep_every_digit_in_either_form() -> None:
    most = Decimal(10**37 + 1)
    batch = pa.record_batch([pa.array([most] * 3, pa.decimal128(38, 0))], names=["v"])
    for form in (KeyedAggregate, PlainAggregate):
        aggregate = form(batch.schema, [], [Aggregate("sum", "v", "total")])
        aggregate.update(batch)
        assert aggregate.rows().to_pydict() == {"total": [Decimal(3 * 10**37 + 3)]}


def test_keys_meet_where_values_are_equal() -> None:
    floats = pa.record_batch({"k": pa.array([0.0, -0.0, math.nan, -math.nan, None, None])})
    aggregate = KeyedAggregate(floats.schema, ["k"], [Aggregate("count", None, "n")])
    aggregate.update(floats)
    assert str(aggregate.rows().to_pydict()) == "{'k': [0.0, nan, None], 'n': [2, 2, 2]}"


def test_clear_forgets_and_the_aggregate_can_be_used_again() -> None:
    batch = pa.record_batch({"k": ["a", "b"], "v": [1, 2]})
    aggregate = KeyedAggregate(batch.schema, ["k"], [Aggregate("sum", "v", "s"), Aggregate("last", "k", "l")])
    for _ in range(2):
        aggregate.update(batch)
        assert aggregate.rows().to_pydict() == {"k": ["a", "b"], "s": [1, 2], "l": ["a", "b"]}
        aggregate.clear()
        assert len(aggregate) == 0
        assert aggregate.changed().num_rows == 0


def test_results_outlive_the_aggregate_and_running_values_the_batch() -> None:
    batch = pa.record_batch({"k": ["a", "b", "a"]})
    aggregate = KeyedAggregate(batch.schema, ["k"], [Aggregate("count", None, "n")])
    each, rows = aggregate.update_each(batch), aggregate.rows()
    del batch, aggregate
    assert shown(each).endswith("[['a', 'b', 'a'], [1, 1, 2]]")
    assert rows.to_pydict() == {"k": ["a", "b"], "n": [2, 1]}


def test_states_that_do_not_fit_are_refused() -> None:
    batch = pa.record_batch({"k": ["a", "b"], "v": [1, 2]})
    counts = KeyedAggregate(batch.schema, ["k"], [Aggregate("count", None, "n")])
    sums = KeyedAggregate(batch.schema, ["k"], [Aggregate("sum", "v", "n")])
    counts.update(batch)
    state = bytes(written(counts.take_state()))
    with pytest.raises(InvalidInput, match=r"it is of other aggregates: n=count\(\*\) .*; here are n=sum\(v\)"):
        sums.put_state(state)
    for broken in (b"", b"nonsense", state[: len(state) // 2]):
        with pytest.raises(InvalidInput, match="state"):
            counts.put_state(broken)
    assert counts.rows().to_pydict() == {"k": ["a", "b"], "n": [1, 1]}


def test_faults_are_named_when_the_aggregate_is_made() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int64(), "l": pa.list_(pa.int8())})
    faults = {
        "'z'.*columns are k, v, l": (["z"], [Aggregate("count", None, "n")]),
        "'y'.*columns are": (["k"], [Aggregate("sum", "y", "n")]),
        "needs numbers but the type is string": (["k"], [Aggregate("sum", "k", "n")]),
        "no order for column 'l'": (["k"], [Aggregate("min", "l", "n")]),
        "needs a column": (["k"], [Aggregate("max", None, "n")]),
        "gives column 'k' twice": (["k"], [Aggregate("count", None, "k")]),
        "unknown aggregate 'median'": (["k"], [Aggregate("median", "v", "n")]),  # type: ignore[arg-type]
    }
    for message, (keys, aggregates) in faults.items():
        with pytest.raises(InvalidInput, match=message):
            KeyedAggregate(schema, keys, aggregates)
    aggregate = KeyedAggregate(schema, ["k"], [Aggregate("count", None, "n")])
    with pytest.raises(InvalidInput, match=r"expects columns k string.*got x int64"):
        aggregate.update(pa.record_batch({"x": [1]}))
