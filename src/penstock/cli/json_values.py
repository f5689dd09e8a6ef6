"""Result rows as JSON has them: numbers, booleans, null and text; lists and objects for what is nested.

What JSON has no word for becomes text that loses nothing: decimals as they are written, instants in UTC and dates as in
ISO 8601, binary values in base64, and the numbers that are none ("NaN", "Infinity", "-Infinity") as Spark writes them.
"""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """One object for each row, by column."""
    return [json_value(row) for row in table.to_pylist(maps_as_pydicts="lossy")]


def json_value(value: Any) -> Any:  # noqa: ANN401 - whatever a column can hold
    """The value that JSON can carry."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _odd_number(value)
        case Decimal():
            return f"{value:f}"
        case date():  # a datetime is one too
            return _moment(value).isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dict():
            return {_key(key): json_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def _moment(value: date) -> date:
    """An instant in UTC; a date and a time of no zone as they are."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value


def _odd_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _key(key: object) -> str:
    """A map's key: JSON knows text alone."""
    found = json_value(key)
    return found if isinstance(found, str) else str(found)
