"""Expressions without a JVM: what they give by hand, which row has no result, and what is asked of which row.

That Spark gives the same over hundreds of expressions is in tests/spark/test_expressions.py.
"""

from __future__ import annotations

import copy
import doctest
import subprocess
import sys
from decimal import Decimal as D

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, RowError
from penstock.flow import expressions, keyed, transforms
from penstock.flow.expressions import compile_condition, compile_expression, compile_projection
from penstock.flow.expressions.patterns import Unlike, like, translated
from penstock.flow.expressions.types import bounded, common_type, decimal_result

BATCH = pa.record_batch(
    {
        "i": pa.array([7, 0, None, -3], pa.int32()),
        "l": pa.array([2**63 - 1, 0, None, 5], pa.int64()),
        "p": pa.array([D("1.25"), D("0.00"), None, D("-2.50")], pa.decimal128(10, 2)),
        "d": pa.array([1.5, float("nan"), None, -0.0]),
        "x": pa.array(["Straße", "", None, "a,b"]),
        "ts": pa.array([0, 1_700_000_000_123_456, None, -1], pa.timestamp("us", tz="UTC")),
        "ar": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int32())),
    }
)


def value(text: str, batch: pa.RecordBatch = BATCH) -> list[object]:
    return compile_expression(text, batch.schema, "test").evaluate(batch).to_pylist()


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("i + 1", pa.int32(), [8, 1, None, -2]),
        ("i * 0.908", pa.decimal128(14, 3), [D("6.356"), D("0.000"), None, D("-2.724")]),
        ("p * 2", pa.decimal128(12, 2), [D("2.50"), D("0.00"), None, D("-5.00")]),
        ("i / 2", pa.float64(), [3.5, 0.0, None, -1.5]),
        ("i % 2", pa.int32(), [1, 0, None, -1]),
        ("p > 1 and i > 0", pa.bool_(), [True, False, None, False]),
        ("i is null or i > 0", pa.bool_(), [True, False, True, False]),
        ("i in (7, null)", pa.bool_(), [True, None, None, None]),
        ("d > 1", pa.bool_(), [True, True, None, False]),  # NaN is above all numbers
        ("x like '%,_'", pa.bool_(), [False, False, None, True]),
        ("upper(x)", pa.string(), ["STRASSE", "", None, "A,B"]),
        ("split_part(x, ',', 2)", pa.string(), ["", "", None, "b"]),
        ("hour(ts)", pa.int32(), [0, 22, None, 23]),
        ("case when i > 0 then 'up' when i = 0 then 'flat' end", pa.string(), ["up", "flat", None, None]),
        ("coalesce(i, l, -1)", pa.int64(), [7, 0, -1, -3]),
        ("get(ar, 1)", pa.int32(), [2, None, None, None]),
    ],
)
def test_values_and_types_are_those_of_spark(text: str, kind: pa.DataType, expected: list[object]) -> None:
    made = compile_expression(text, BATCH.schema, "test")
    assert made.type == kind
    assert made.evaluate(BATCH).to_pylist() == expected


@pytest.mark.parametrize(
    ("text", "row", "why"),
    [
        ("10 / i", 1, "division by zero"),
        ("10 div i", 1, "division by zero"),
        ("i % i", 1, "division by zero"),
        ("l + 1", 0, "overflow"),
        ("cast(i + 300 as tinyint)", 0, "not in range"),
        ("cast(x as int)", 0, "'Straße' is no whole number"),
        ("cast(d as int)", 1, "nan"),
        ("floor(d * 1e300D)", 0, "truncated"),
        ("ar[0]", 1, "out of bounds"),
        ("cast(p * 100 as decimal(3,2))", 0, "does not fit in precision 3"),
    ],
)
def test_the_row_without_a_result_is_named(text: str, row: int, why: str) -> None:
    with pytest.raises(RowError, match=why) as caught:
        value(text)
    assert caught.value.row == row
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if(i = 0, 0, 10 div i)", [1, 0, None, -3]),
        ("case when i <> 0 then 10 div i else -1 end", [1, -1, -1, -3]),
        ("i <> 0 and 10 div i > 0", [True, False, None, False]),
        ("i = 0 or 10 div i > 0", [True, True, None, False]),
        ("coalesce(i, 10 div i, 5)", [7, 0, 5, -3]),
        ("nullif(i, 0) is null or 10 div nullif(i, 0) = 1", [True, True, True, False]),
    ],
)
def test_a_branch_is_asked_only_for_rows_that_take_it(text: str, expected: list[object]) -> None:
    assert value(text) == expected


def test_a_fault_in_one_row_of_many_is_found() -> None:
    batch = pa.record_batch({"i": pa.array(range(-600, 900), pa.int64())})
    with pytest.raises(RowError, match=r"row 600, .*'i': 0") as caught:
        value("1 div i", batch)
    assert caught.value.row == 600


def test_encoded_columns_count_as_what_they_stand_for() -> None:
    coded = pa.record_batch({"x": pa.array(["a", None, "b"]).dictionary_encode(), "n": pa.array([1, 2, 3], pa.uint8())})
    assert value("x || '!'", coded) == ["a!", None, "b!"]
    assert value("n - 2", coded) == [-1, 0, 1]
    large = pa.record_batch({"x": pa.array(["a"], pa.large_string()), "t": pa.array([5], pa.timestamp("ms", "UTC"))})
    assert value("concat(x, 'b')", large) == ["ab"]
    assert value("unix_micros(t)", large) == [5000]


def test_names_go_by_spelling_first_and_by_letters_then() -> None:
    batch = pa.record_batch({"Price": pa.array([1]), "price": pa.array([2]), "City": pa.array(["x"])})
    assert value("price", batch) == [2]
    assert value("CITY", batch) == ["x"]
    with pytest.raises(InvalidInput, match="'PRICE' may be any of"):
        value("PRICE", batch)
    odd = pa.record_batch({"a b": pa.array([1])})
    assert value("`a b` + 1", odd) == [2]


def test_a_projection_names_its_columns() -> None:
    made = compile_projection(
        ["*", "i + 1 as j", "x city", "I"], BATCH.schema.remove(0).insert(0, BATCH.schema[0]), "t"
    )
    assert [part.field.name for part in made] == [*BATCH.schema.names, "j", "city", "I"]
    assert made[-2].source == "x"  # a column as it stands is not computed
    with pytest.raises(InvalidInput, match="name each column once"):
        compile_projection(["i", "l as i"], BATCH.schema, "t")


def test_what_depends_on_the_zone_of_the_session_is_refused() -> None:
    schema = pa.schema([("n", pa.timestamp("us"))])
    with pytest.raises(InvalidInput, match="a cast of timestamp_ntz to timestamp has no exact counterpart"):
        compile_expression("date_trunc('hour', n)", schema, "test")  # a timestamp in Spark, whatever it is given


def test_a_condition_may_be_null() -> None:
    assert compile_condition("null", BATCH.schema, "t").evaluate(BATCH).to_pylist() == [None] * 4


def test_the_compiled_form_travels_and_needs_no_parser() -> None:
    made = compile_expression("if(i > 0, p * 2, null)", BATCH.schema, "t")
    assert copy.deepcopy(made) == made
    loaded = "import sys, penstock, penstock.deploy.worker.main; print('sqlglot' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_examples_in_docstrings_are_true() -> None:
    assert not any(doctest.testmod(module).failed for module in (expressions, keyed, transforms))


def test_the_types_of_decimals_are_those_of_spark() -> None:
    a, b = pa.decimal128(38, 10), pa.decimal128(10, 2)
    assert decimal_result("add", a, b) == pa.decimal128(38, 9)  # 28 + 10 + 1 digits are one too many
    assert decimal_result("multiply", a, b) == pa.decimal128(38, 6)  # 49 digits with 12 after the point: six stay
    assert decimal_result("divide", b, pa.decimal128(3, 1)) == pa.decimal128(15, 6)
    assert bounded(40, 30) == pa.decimal128(38, 28)
    assert common_type([pa.int64(), b]) == pa.decimal128(22, 2)
    assert common_type([pa.float32(), pa.int32()]) == pa.float64()
    assert common_type([pa.string(), pa.int32()]) is None


TEXTS = st.text("ab%_\\.\n*", max_size=6)


@given(text=TEXTS, pattern=st.text("ab%_", max_size=5))
def test_like_is_matching_by_hand(text: str, pattern: str) -> None:
    def matches(rest: str, wanted: str) -> bool:
        if not wanted:
            return not rest
        if wanted[0] == "%":
            return matches(rest, wanted[1:]) or (bool(rest) and matches(rest[1:], wanted))
        return bool(rest) and wanted[0] in {"_", rest[0]} and matches(rest[1:], wanted[1:])

    assert pc.match_substring_regex(pa.array([text]), like(pattern))[0].as_py() == matches(text, pattern)


@pytest.mark.parametrize(
    "pattern", ["(?=a)", r"\bx", "[a[b]]", "[a&&b]", "(?i)a", "a$b", r"\p{L}", r"\1", "a\\", "a|b$"]
)
def test_patterns_that_mean_something_else_in_java_are_refused(pattern: str) -> None:
    with pytest.raises(Unlike):
        translated(pattern)


@pytest.mark.parametrize("pattern", ["a%b\\", "a\\b"])
def test_an_escape_of_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(Unlike, match="stands before neither"):
        like(pattern)


@given(st.lists(st.decimals(-(10**8), 10**8, places=2) | st.none(), min_size=1, max_size=20))
def test_decimals_become_the_nearest_doubles(values: list[D | None]) -> None:
    column = pa.array(values, pa.decimal128(12, 2))
    batch = pa.record_batch({"p": pa.concat_arrays([column, column])}).slice(len(values) // 2)
    expected = [None if each is None else float(each) for each in (values + values)[len(values) // 2 :]]
    assert value("double(p)", batch) == expected
    assert value("double(cast(p as decimal(30, 2)))", batch) == expected
