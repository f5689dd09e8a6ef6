"""Casts as in Spark's ANSI mode: a value that does not fit is a fault; casts to whole numbers cut fractions off.

Text is read in its common forms. Rarer forms that Spark reads too ("1d", "2024-1-1") are faults here. Decimals of up to
15 digits become doubles by one exact division, longer ones by way of their digits
(`test_decimals_become_the_nearest_doubles`). Rejected: Arrow's own cast, which multiplies by an inexact power of ten,
so its last bit is sometimes wrong.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.expressions.numbers import fitted, wide
from penstock.run.columns.expressions.registry import Fault, Values, kernel

EXACT_DIGITS = 15  # whole numbers below 10^15 are exact in a double
SECOND_US = 1_000_000
WHOLE_TEXT = r"^[+-]?[0-9]+$"
REAL_TEXT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$|^(?i:nan|[+-]?inf|[+-]?infinity)$"
DATE_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
TIME_TEXT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
TRUE_TEXTS = ("t", "true", "y", "yes", "1")
SPACES = "".join(map(chr, range(33)))  # what Spark strips from text before it reads a value


@kernel("convert")
def convert(kind: pa.DataType, a: Values) -> pa.Array:
    """Casts in which nothing can go wrong."""
    return a.cast(kind, safe=False)


@kernel("narrow", fails=True)
def narrow(kind: pa.DataType, a: Values) -> pa.Array:
    """Whole numbers to a smaller type."""
    return a.cast(kind)


def to_decimal(kind: pa.DataType, a: Values) -> pa.Array:
    """Whole numbers and decimals to a decimal."""
    if pa.types.is_decimal(a.type):
        room = kind.precision - kind.scale >= a.type.precision - a.type.scale and kind.scale >= a.type.scale
        return a.cast(kind) if room else fitted(wide(a, a.type.precision + 1, a.type.scale), kind)
    return a.cast(pa.decimal256(20 + kind.scale, kind.scale)).cast(kind)


kernel("to_decimal", fails=True)(to_decimal)
kernel("widen_decimal")(to_decimal)


@kernel("real_to_whole", fails=True)
def real_to_whole(kind: pa.DataType, a: Values) -> pa.Array:
    """Doubles to whole numbers, without their fraction."""
    return pc.trunc(a).cast(kind)


@kernel("decimal_to_whole", fails=True)
def decimal_to_whole(kind: pa.DataType, a: Values) -> pa.Array:
    """Decimals to whole numbers, without their fraction."""
    return pc.trunc(wide(a, a.type.precision + 1, a.type.scale)).cast(kind)


@kernel("decimal_to_real")
def decimal_to_real(kind: pa.DataType, a: Values) -> pa.Array:
    """Decimals to the nearest double."""
    kept = a if isinstance(a, pa.Array) else pa.repeat(a, 1)
    if kept.type.precision > EXACT_DIGITS or pa.types.is_decimal256(kept.type):
        found = kept.cast(pa.string()).cast(pa.float64())
    else:
        words = np.frombuffer(kept.buffers()[1], dtype=np.int64)[::2][kept.offset : kept.offset + len(kept)]
        missing = kept.is_null().to_numpy(zero_copy_only=False)
        found = pa.array(words / 10.0**kept.type.scale, mask=missing)
    return found.cast(kind, safe=False) if isinstance(a, pa.Array) else found[0].cast(kind)


@kernel("to_boolean")
def to_boolean(kind: pa.DataType, a: Values) -> pa.Array:
    """Whether a number is other than zero."""
    return pc.not_equal(a, pa.scalar(0, pa.int8()).cast(a.type))


def _stripped(a: Values, form: str, what: str) -> Values:
    text = pc.utf8_trim(a, SPACES)
    good = pc.match_substring_regex(text, form)
    if pc.any(pc.invert(good)).as_py():
        msg = f"{pc.filter(text, pc.invert(good))[0].as_py()!r} is no {what}"
        raise Fault(msg)
    return text


@kernel("text_to_whole", fails=True)
def text_to_whole(kind: pa.DataType, a: Values) -> pa.Array:
    """Digits, with a sign or without."""
    text = _stripped(a, WHOLE_TEXT, f"whole number for {kind}")
    return pc.utf8_ltrim(text, "+").cast(kind)


@kernel("text_to_real", fails=True)
def text_to_real(kind: pa.DataType, a: Values) -> pa.Array:
    """Digits with a point and an exponent."""
    return pc.utf8_ltrim(_stripped(a, REAL_TEXT, f"number for {kind}"), "+").cast(kind)


@kernel("text_to_decimal", fails=True)
def text_to_decimal(kind: pa.DataType, a: Values) -> pa.Array:
    """Digits with a point and an exponent, rounded half up."""
    text = pc.utf8_ltrim(_stripped(a, REAL_TEXT, f"number for {kind}"), "+")
    return fitted(text.cast(pa.decimal256(76, 38)), kind)


@kernel("text_to_boolean", fails=True)
def text_to_boolean(kind: pa.DataType, a: Values) -> pa.Array:
    """The words that Spark knows."""
    text = pc.ascii_lower(_stripped(a, r"^(?i:t|true|y|yes|1|f|false|n|no|0)$", "boolean"))
    found = pc.is_in(text, value_set=pa.array(TRUE_TEXTS))
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), found)


@kernel("text_to_date", fails=True)
def text_to_date(kind: pa.DataType, a: Values) -> pa.Array:
    """yyyy-MM-dd."""
    return _stripped(a, DATE_TEXT, "date such as 2024-01-31").cast(kind)


@kernel("text_to_time", fails=True)
def text_to_time(kind: pa.DataType, a: Values) -> pa.Array:
    """yyyy-MM-dd HH:mm:ss.ffffff, in UTC; the end may be missing."""
    text = _stripped(a, TIME_TEXT, "time such as 2024-01-31 12:00:00")
    found = text.cast(pa.timestamp("us"))
    return found.cast(kind)


@kernel("time_to_text")
def time_to_text(kind: pa.DataType, a: Values) -> pa.Array:
    """A time in UTC as Spark shows it: without zeros at the end of its fraction."""
    text = pc.strftime(a.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    return pc.replace_substring_regex(text, r"\.?0{1,6}$", "")


@kernel("time_to_date")
def time_to_date(kind: pa.DataType, a: Values) -> pa.Array:
    """The day in UTC."""
    return a.cast(pa.timestamp("us")).cast(kind, safe=False)


@kernel("time_to_seconds")
def time_to_seconds(kind: pa.DataType, a: Values, unit_us: int = SECOND_US) -> pa.Array:
    """Whole units since 1970, rounded down."""
    us = a.cast(pa.int64())
    whole = pc.divide(us, pa.scalar(unit_us, pa.int64()))
    below = pc.greater(pc.multiply(whole, pa.scalar(unit_us, pa.int64())), us)
    return pc.subtract(whole, below.cast(pa.int64()))


@kernel("time_to_seconds_towards_zero")
def time_to_seconds_towards_zero(kind: pa.DataType, a: Values) -> pa.Array:
    """Whole seconds since 1970 as `unix_timestamp` counts them: rounded towards 1970, so up for times before it."""
    return pc.divide(a.cast(pa.int64()), pa.scalar(SECOND_US, pa.int64()))


@kernel("seconds_to_time", fails=True)
def seconds_to_time(kind: pa.DataType, a: Values, unit_us: int = SECOND_US) -> pa.Array:
    """The time that is this many units after 1970."""
    us = pc.multiply_checked(a.cast(pa.int64()), pa.scalar(unit_us, pa.int64()))
    return us.cast(kind)
