"""Kernels by name: what one call of an expression does to whole columns.

A kernel takes the type of its result and its arguments: Arrow arrays or scalars, at least one of them an array. A
kernel that may refuse a value (`fails`) gets just the rows whose value is asked for, as in Spark, where `if(x = 0, 0, 1
/ x)` is no division by zero (`test_a_branch_is_asked_only_for_rows_that_take_it`). Other kernels run over all rows,
which is quicker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Function = Callable[..., pa.Array]
Values = Any  # pa.Array or pa.Scalar: pyarrow's functions take either, but its types do not say so


class Fault(ValueError):
    """A value for which an expression has no result, as in Spark's ANSI mode."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function over columns, and whether it may refuse a value."""

    function: Function
    fails: bool


KERNELS: dict[str, Kernel] = {}


def kernel(name: str, *, fails: bool = False) -> Callable[[Function], Function]:
    """Register a function under a name."""

    def register(function: Function) -> Function:
        KERNELS[name] = Kernel(function, fails)
        return function

    return register


def length_of(*values: Values) -> int:
    """The number of rows of the arguments, one of which is an array."""
    return next(len(value) for value in values if isinstance(value, pa.Array))


def as_array(value: Values, length: int) -> pa.Array:
    """The value as a column; a scalar is repeated for every row."""
    return value if isinstance(value, pa.Array) else pa.repeat(value, length)
