"""DDL strings: what Spark writes is read, what is read is written again, and faults are named."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

import penstock as ps
from penstock.errors import InvalidInput
from penstock.flow.schema import parse_schema, require_columns, to_ddl, type_name

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "SMALLINT": pa.int16(),
    "int": pa.int32(),
    "Integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar(10)": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "decimal(38, 4)": pa.decimal128(38, 4),
    "dec(5)": pa.decimal128(5, 0),
    "array<int>": pa.list_(pa.int32()),
    "map<string, array<bigint>>": pa.map_(pa.string(), pa.list_(pa.int64())),
    "struct<a: int, `b c`: struct<d string>>": pa.struct(
        [pa.field("a", pa.int32()), pa.field("b c", pa.struct([pa.field("d", pa.string())]))]
    ),
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    schema = parse_schema(f"x {text}")
    assert schema == pa.schema([pa.field("x", TYPES[text])])


def test_columns_may_be_quoted_commented_and_not_null() -> None:
    schema = parse_schema("`odd ``name` int NOT NULL COMMENT 'why, not', plain: string, array array<int>")
    assert schema.names == ["odd `name", "plain", "array"]
    assert [field.nullable for field in schema] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"schema is ''"),
        ("a", r"ends where a type should follow"),
        ("a int,", r"ends where a column name should follow"),
        ("a int b int", r"unexpected 'b'"),
        ("a int, a string", r"names column 'a' twice"),
        ("a whole", r"unknown type 'whole'; known: boolean"),
        ("a array<int", r"expected '>' but found 'the end'"),
        ("a array int", r"expected '<' but found 'int'"),
        ("a decimal(50)", r"decimal\(50, 0\) is out of range"),
        ("a decimal(2, 3)", r"decimal\(2, 3\) is out of range"),
        ("3 int", r"expected a column name but found '3'"),
        ("a int; drop", r"unexpected '; drop' at position 5"),
        ("a " + "array<" * 40 + "int" + ">" * 40, r"nests types more than 32 deep"),
        (", ".join(f"c{i} int" for i in range(2001)), r"has more than 2000 columns"),
    ],
)
def test_faults_are_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_schema(text)


# -- PySpark's types -------------------------------------------------------------------------------------------------

SPARK = types.StructType(
    [
        types.StructField("odd `name", types.LongType(), nullable=False),
        types.StructField("price", types.DecimalType(24, 8)),
        types.StructField("short", types.VarcharType(3)),
        types.StructField("at", types.TimestampType()),
        types.StructField("local", types.TimestampNTZType()),
        types.StructField("days", types.ArrayType(types.DateType(), containsNull=False)),
        types.StructField("by", types.MapType(types.StringType(), types.BinaryType())),
        types.StructField("inner", types.StructType([types.StructField("a b", types.ByteType(), nullable=False)])),
    ]
)


def test_pyspark_types_are_schemas() -> None:
    assert parse_schema(SPARK) == parse_schema(
        "`odd ``name` bigint not null, price decimal(24,8), short string, at timestamp, local timestamp_ntz, "
        "days array<date>, by map<string, binary>, inner struct<`a b`: tinyint>"
    )
    assert parse_schema(types.LongType()) == parse_schema("value bigint")


def test_every_door_takes_them() -> None:
    class Total(ps.Stateful):
        schema = SPARK

        def on_row(self, *given: object) -> None:
            raise NotImplementedError

    stream = ps.Topology("typed").source("rows", ps.io.generator(lambda *_: (), SPARK))
    found = [
        stream,
        stream.map(lambda row: row, SPARK),
        stream.flat_map(lambda row: [row], SPARK),
        stream.map_batches(lambda batch: batch, SPARK),
        stream.key_by("price").process(Total),
    ]
    assert {to_ddl(one.schema) for one in found} == {to_ddl(parse_schema(SPARK))}
    assert ps.io.dataframe(None, SPARK).schema == stream.schema


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (types.LongType, r"the class LongType; give an object of it, such as LongType\(\)"),
        (types.StructType(), r"has no columns"),
        (types.StructType([types.StructField("v", types.VariantType())]), r"unknown type 'variant'"),
        (types.StructType([types.StructField("i", types.DayTimeIntervalType())]), r"unknown type 'interval'"),
        (types.StructType([types.StructField("a", types.LongType())] * 2), r"names column 'a' twice"),
        (17, r"schema is 17; give a DDL string such as .* or a StructType"),
    ],
)
def test_types_without_a_counterpart_are_named(given: Any, message: str) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidInput, match=message):
        parse_schema(given)


def test_pyspark_types_nest_up_to_a_limit() -> None:
    kind: types.DataType = types.LongType()
    for _ in range(40):
        kind = types.ArrayType(kind)
    with pytest.raises(InvalidInput, match="nests types more than 32 deep"):
        parse_schema(kind)


# -- there and back --------------------------------------------------------------------------------------------------

simple = st.sampled_from([kind for text, kind in TYPES.items() if "<" not in text])
names = st.text(min_size=1, max_size=8).filter(lambda name: name.isprintable())
odd_names = st.sampled_from(["x", "y z", "`"])
kinds = st.recursive(
    simple,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(simple, inner).map(lambda pair: pa.map_(*pair)),
        st.lists(
            st.tuples(st.sampled_from(["x", "y z", "`"]), inner), min_size=1, max_size=3, unique_by=lambda f: f[0]
        ).map(lambda fields: pa.struct([pa.field(name, kind) for name, kind in fields])),
    ),
    max_leaves=5,
)


@given(fields=st.lists(st.tuples(names, kinds, st.booleans()), min_size=1, max_size=5, unique_by=lambda f: f[0]))
def test_what_is_written_is_read(fields: list) -> None:
    schema = pa.schema([pa.field(*field) for field in fields])
    assert parse_schema(to_ddl(schema)) == schema


@given(text=st.text("ab ,<>()`'int strugy:0123", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        assert parse_schema(text).names


def test_arrow_types_that_spark_writes_otherwise() -> None:
    assert type_name(pa.dictionary(pa.int32(), pa.string())) == "string"
    assert type_name(pa.large_string()) == "string"
    assert type_name(pa.timestamp("ns", tz="UTC")) == "timestamp"
    with pytest.raises(InvalidInput, match=r"duration.* has no Spark counterpart"):
        type_name(pa.duration("us"))


def test_missing_columns_are_named_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match="who names column 'z' but the stream has a, b"):
        require_columns(parse_schema("a int, b int"), ["a", "z"], "who")
