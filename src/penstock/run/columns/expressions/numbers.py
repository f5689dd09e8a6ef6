"""Arithmetic with Spark's results: overflow and division by zero are faults, decimals are rounded half up.

Decimals are computed in the type that holds every digit, 128 bits where that is wide enough and 256 elsewhere, and then
brought to the type that Spark gives the result.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.expressions.registry import Fault, Function, Values, as_array, kernel, length_of

HALF_UP = "half_towards_infinity"


def wide(value: Values, precision: int, scale: int) -> Values:
    """A decimal in 256 bits."""
    return value.cast(pa.decimal256(precision, scale))


def fitted(values: Values, kind: pa.DataType) -> pa.Array:
    """Decimals in a type, rounded half up; a value that does not fit it is a fault."""
    if values.type == kind:
        return values
    if values.type.scale > kind.scale:
        values = pc.round(values, kind.scale, HALF_UP)
    return values.cast(kind)


def _arithmetic(checked: Function, plain: Function) -> Function:
    def compute(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
        if pa.types.is_decimal(kind):
            return _decimal(plain, kind, a, b)
        return plain(a, b) if pa.types.is_floating(kind) else checked(a, b)

    return compute


def _decimal(compute: Function, kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    if compute is pc.multiply:
        precision = a.type.precision + b.type.precision + 1
    else:
        whole = max(a.type.precision - a.type.scale, b.type.precision - b.type.scale)
        precision = whole + max(a.type.scale, b.type.scale) + 1
    if precision > 38:
        a, b = (wide(value, value.type.precision, value.type.scale) for value in (a, b))
    return fitted(compute(a, b), kind)


kernel("add", fails=True)(_arithmetic(pc.add_checked, pc.add))
kernel("subtract", fails=True)(_arithmetic(pc.subtract_checked, pc.subtract))
kernel("multiply", fails=True)(_arithmetic(pc.multiply_checked, pc.multiply))


@kernel("divide", fails=True)
def divide(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """Doubles or decimals."""
    _require_divisors(a, b)
    if not pa.types.is_decimal(kind):
        return pc.divide(a, b)
    # Divide to one digit more than the result keeps; `fitted` then rounds that digit away.
    scale = max(kind.scale + 1 + b.type.scale, a.type.scale)
    left = wide(a, a.type.precision + scale - a.type.scale, scale)
    return fitted(pc.divide(left, wide(b, b.type.precision, b.type.scale)), kind)


def _require_divisors(a: Values, b: Values) -> None:
    zero = pc.equal(b, pa.scalar(0, pa.int32()).cast(b.type) if not pa.types.is_decimal(b.type) else _zero(b.type))
    bad = pc.and_kleene(zero, pc.is_valid(a))
    if pc.any(as_array(bad, length_of(a, b))).as_py():
        msg = "division by zero"
        raise Fault(msg)


def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.decimal256(76, 0)).cast(kind)


@kernel("int_divide", fails=True)
def int_divide(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`div`: the whole part of the quotient of whole numbers."""
    _require_divisors(a, b)
    return pc.divide_checked(a, _without_zero(b))


@kernel("remainder", fails=True)
def remainder(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`%`: the remainder, with the sign of the dividend."""
    _require_divisors(a, b)
    if pa.types.is_decimal(kind):
        a, b = (wide(value, value.type.precision, value.type.scale) for value in (a, b))
        return fitted(pc.remainder(a, _without_zero(b)), kind)
    return pc.remainder(a, b if pa.types.is_floating(kind) else _without_zero(b))


def _without_zero(b: Values) -> Values:
    """Divisors with null for zero. Zeros that are left stand beside a null dividend, so the result is null anyway."""
    zero = _zero(b.type) if pa.types.is_decimal(b.type) else pa.scalar(0, b.type)
    return pc.if_else(pc.equal(b, zero), pa.scalar(None, b.type), b)


@kernel("negate", fails=True)
def negate(kind: pa.DataType, a: Values) -> pa.Array:
    """`-a`."""
    return pc.negate_checked(a) if pa.types.is_integer(kind) else pc.negate(a)


@kernel("abs", fails=True)
def absolute(kind: pa.DataType, a: Values) -> pa.Array:
    """The value without its sign."""
    return pc.abs_checked(a) if pa.types.is_integer(kind) else pc.abs(a)


@kernel("round", fails=True)
def rounded(kind: pa.DataType, a: Values, digits: int) -> pa.Array:
    """Decimals and whole numbers, half up."""
    if pa.types.is_decimal(a.type):
        # Rounding may carry into a new first digit (9.9 to 10), so one more digit is allowed before the point.
        a = wide(a, a.type.precision + 1, a.type.scale)
        return fitted(pc.round(a, digits, HALF_UP) if digits < a.type.scale else a, kind)
    return a if digits >= 0 else _rounded_whole(kind, a, digits)


def _rounded_whole(kind: pa.DataType, a: Values, digits: int) -> pa.Array:
    exact = pc.round(a.cast(pa.decimal256(22, 0)), digits, HALF_UP)
    return exact.cast(pa.int64()).cast(kind)


@kernel("floor", fails=True)
def floor(kind: pa.DataType, a: Values) -> pa.Array:
    """The whole number at or below, as bigint or decimal."""
    return _whole(kind, a, pc.floor)


@kernel("ceil", fails=True)
def ceil(kind: pa.DataType, a: Values) -> pa.Array:
    """The whole number at or above, as bigint or decimal."""
    return _whole(kind, a, pc.ceil)


def _whole(kind: pa.DataType, a: Values, rounding: Function) -> pa.Array:
    if pa.types.is_decimal(kind):
        return rounding(wide(a, a.type.precision + 1, a.type.scale)).cast(kind)
    whole = rounding(a)
    return pc.if_else(pc.is_nan(whole), pa.scalar(0, whole.type), whole).cast(kind)  # Spark's floor(NaN) is 0


@kernel("sqrt")
def square_root(kind: pa.DataType, a: Values) -> pa.Array:
    """Of a double; NaN below zero."""
    return pc.sqrt(a)


@kernel("sign")
def sign(kind: pa.DataType, a: Values) -> pa.Array:
    """-1, 0 or 1, as a double; a zero keeps its sign."""
    return pc.if_else(pc.equal(a, 0.0), a, pc.sign(a))


@kernel("bit_and")
def bit_and(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`a & b`."""
    return pc.bit_wise_and(a, b)


@kernel("bit_or")
def bit_or(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`a | b`."""
    return pc.bit_wise_or(a, b)


@kernel("bit_xor")
def bit_xor(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`a ^ b`."""
    return pc.bit_wise_xor(a, b)


@kernel("bit_not")
def bit_not(kind: pa.DataType, a: Values) -> pa.Array:
    """`~a`."""
    return pc.bit_wise_not(a)
