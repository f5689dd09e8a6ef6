"""Comparison and logic: three values (true, false, null), and Spark's order, in which NaN is above all numbers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.expressions.registry import Function, Values, as_array, kernel, length_of


def _comparison(compare: Function, *, nan_left: bool, nan_right: bool, nan_both: bool) -> Function:
    """A comparison, and what it says where the left side, the right or both are NaN."""

    def compute(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
        if pa.types.is_decimal(a.type) and a.type != b.type:
            a, b = (value.cast(pa.decimal256(76, max(a.type.scale, b.type.scale))) for value in (a, b))
        found = compare(a, b)
        if not pa.types.is_floating(a.type):
            return found
        left, right = pc.is_nan(a), pc.is_nan(b)
        if not (_any(left) or _any(right)):
            return found
        found = pc.if_else(left, pc.if_else(right, nan_both, nan_left), pc.if_else(right, nan_right, found))
        return pc.if_else(pc.and_(pc.is_valid(a), pc.is_valid(b)), found, pa.scalar(None, pa.bool_()))

    return compute


def _any(values: Values) -> bool:
    return bool(pc.any(as_array(values, 1)).as_py())


equal = _comparison(pc.equal, nan_left=False, nan_right=False, nan_both=True)
less = _comparison(pc.less, nan_left=False, nan_right=True, nan_both=False)
kernel("equal")(equal)
kernel("not_equal")(_comparison(pc.not_equal, nan_left=True, nan_right=True, nan_both=False))
kernel("less")(less)
kernel("less_equal")(_comparison(pc.less_equal, nan_left=False, nan_right=True, nan_both=True))
kernel("greater")(_comparison(pc.greater, nan_left=True, nan_right=False, nan_both=False))
kernel("greater_equal")(_comparison(pc.greater_equal, nan_left=True, nan_right=False, nan_both=True))


@kernel("same")
def same(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`<=>`: equal, and null equals null."""
    both_null = pc.and_(pc.is_null(a), pc.is_null(b))
    return pc.or_(pc.fill_null(equal(kind, a, b), False), both_null)


@kernel("and")
def both(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`AND`: false where either is false, else null where either is null."""
    return pc.and_kleene(a, b)


@kernel("or")
def either(kind: pa.DataType, a: Values, b: Values) -> pa.Array:
    """`OR`: true where either is true, else null where either is null."""
    return pc.or_kleene(a, b)


@kernel("not")
def negation(kind: pa.DataType, a: Values) -> pa.Array:
    """`NOT`; null stays null."""
    return pc.invert(a)


@kernel("is_null")
def is_null(kind: pa.DataType, a: Values) -> pa.Array:
    """True or false for every row; NaN is not null."""
    return pc.is_null(a)


@kernel("is_valid")
def is_valid(kind: pa.DataType, a: Values) -> pa.Array:
    """True or false for every row."""
    return pc.is_valid(a)


@kernel("is_nan")
def is_nan(kind: pa.DataType, a: Values) -> pa.Array:
    """False for null, as in Spark."""
    return pc.fill_null(pc.is_nan(a), False)


@kernel("is_in")
def is_in(kind: pa.DataType, a: Values, known: tuple[object, ...], with_null: bool) -> pa.Array:
    """Whether a value is one of some constants; where null is among these, the answer is null instead of false."""
    found = pc.is_in(a, value_set=pa.array(known, a.type))
    unknown = pc.is_null(a)
    if with_null:
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


@kernel("coalesce")
def coalesce(kind: pa.DataType, *values: Values) -> pa.Array:
    """The first value that is no null."""
    return pc.coalesce(*values)


@kernel("greatest")
def greatest(kind: pa.DataType, *values: Values) -> pa.Array:
    """The largest value, nulls aside."""
    return _extreme(values, lambda best, value: less(pa.bool_(), best, value))


@kernel("least")
def least(kind: pa.DataType, *values: Values) -> pa.Array:
    """The smallest value, nulls aside."""
    return _extreme(values, lambda best, value: less(pa.bool_(), value, best))


def _extreme(values: tuple[Values, ...], better: Function) -> pa.Array:
    length = length_of(*values)
    best = as_array(values[0], length)
    for value in values[1:]:
        replace = pc.or_kleene(pc.is_null(best), pc.fill_null(better(best, value), False))
        best = pc.if_else(replace, value, best)
    return best
