"""Spark's rules for the types of results, in ANSI mode: which type two values share, and how wide a decimal becomes."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.run.columns.aggregates import decoded

TIMESTAMP = pa.timestamp("us", tz="UTC")
PRECISION_MAX = 38
SCALE_KEPT = 6  # digits after the point that a too wide result keeps
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
_PLAIN = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column takes part in expressions."""
    kind = decoded(kind)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us") if kind.tz is None else TIMESTAMP
    return _PLAIN.get(kind, kind)


def is_number(kind: pa.DataType) -> bool:
    """Whether a type is one of numbers."""
    return kind in _WHOLE or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_whole(kind: pa.DataType) -> bool:
    """Tinyint to bigint."""
    return kind in _WHOLE


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """The decimal that holds every value of a whole type."""
    return kind if pa.types.is_decimal(kind) else pa.decimal128(_DIGITS[kind], 0)


def bounded(precision: int, scale: int) -> pa.DataType:
    """A decimal type within 38 digits, where digits after the point give way, but not the last six."""
    if precision <= PRECISION_MAX:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(PRECISION_MAX, max(PRECISION_MAX - whole, min(scale, SCALE_KEPT)))


def decimal_result(operation: str, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The type of a sum, product, quotient or remainder of decimals."""
    whole_a, whole_b = a.precision - a.scale, b.precision - b.scale
    scale = max(a.scale, b.scale)
    if operation in {"add", "subtract"}:
        return bounded(max(whole_a, whole_b) + scale + 1, scale)
    if operation == "multiply":
        return bounded(a.precision + b.precision + 1, a.scale + b.scale)
    if operation == "divide":
        scale = max(SCALE_KEPT, a.scale + b.precision + 1)
        return bounded(whole_a + b.scale + scale, scale)
    return bounded(min(whole_a, whole_b) + scale, scale)


def common_type(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    """The common type of all of these, or None."""
    found = kinds[0]
    for kind in kinds[1:]:
        shared = _common(found, kind)
        if shared is None:
            return None
        found = shared
    return found


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if is_number(a) and is_number(b):
        return _common_number(a, b)
    if {a, b} == {pa.date32(), TIMESTAMP}:
        return TIMESTAMP
    return None


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if is_whole(a) and is_whole(b):
        return max(a, b, key=_WHOLE.index)
    if pa.types.is_floating(a) or pa.types.is_floating(b):
        return pa.float64()  # also of a float and a whole number, which a float could not hold
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    return bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
