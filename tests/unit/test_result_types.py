"""The schema of collected rows is the stream's, and reading it back gives the stream's again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.deploy.results.types import spark_schema
from penstock.errors import InvalidInput
from penstock.flow.schema import parse_schema, to_ddl

WIDE = (
    "a boolean not null, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(38,4), i string, "
    "j binary, k date, l timestamp, m timestamp_ntz, n array<timestamp_ntz>, o map<string, struct<`p q`: date>>, r void"
)


def test_there_and_back() -> None:
    schema = parse_schema(WIDE)
    assert to_ddl(parse_schema(spark_schema(schema))) == to_ddl(schema)


def test_encodings_and_widths_are_not_types() -> None:
    schema = pa.schema(
        [("d", pa.dictionary(pa.int32(), pa.string())), ("s", pa.large_string()), ("b", pa.large_binary())]
    )
    assert to_ddl(parse_schema(spark_schema(schema))) == "`d` string, `s` string, `b` binary"


def test_a_type_that_spark_does_not_have_is_named() -> None:
    with pytest.raises(InvalidInput, match="Arrow type uint64 has no Spark counterpart"):
        spark_schema(pa.schema([("u", pa.uint64())]))
