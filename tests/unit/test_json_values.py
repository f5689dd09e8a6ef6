"""Result rows as JSON: types that JSON has stay what they are, the others become text that loses nothing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from penstock.cli.json_values import json_rows
from penstock.flow.schema import parse_schema


def test_every_type_of_a_schema_has_a_json_value() -> None:
    ddl = (
        "n bigint, x double, yes boolean, word string, none void, money decimal(6,2), raw binary, day date, "
        "at timestamp, local timestamp_ntz, tags array<int>, inside struct<a: int, b: boolean>, by map<int, double>"
    )
    at = datetime(2024, 2, 29, 12, 30, 0, 250_000)
    row = {
        "n": 7,
        "x": 0.5,
        "yes": True,
        "word": "penstock",
        "none": None,
        "money": Decimal("3.50"),
        "raw": b"\x00\xff",
        "day": date(2024, 2, 29),
        "at": at.replace(tzinfo=UTC),
        "local": at,
        "tags": [1, None],
        "inside": {"a": 1, "b": False},
        "by": [(3, 0.25)],
    }
    (found,) = json_rows(pa.Table.from_pylist([row], schema=parse_schema(ddl)))
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        **{name: row[name] for name in ("n", "x", "yes", "word", "none", "tags", "inside")},
        "money": "3.50",
        "raw": "AP8=",
        "day": "2024-02-29",
        "at": "2024-02-29T12:30:00.250000+00:00",
        "local": "2024-02-29T12:30:00.250000",
        "by": {"3": 0.25},
    }


def test_numbers_that_json_has_not_are_text_and_large_ones_are_exact() -> None:
    table = pa.table({"x": [float("nan"), float("inf"), float("-inf")], "n": [2**63 - 1, 0, -(2**63)]})
    found = json.loads(json.dumps(json_rows(table), allow_nan=False))
    assert [row["x"] for row in found] == ["NaN", "Infinity", "-Infinity"]
    assert [row["n"] for row in found] == [2**63 - 1, 0, -(2**63)]
