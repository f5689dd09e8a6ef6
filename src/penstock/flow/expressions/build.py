"""Nodes of typed expressions: casts chosen by their two types, comparisons over a shared type, lazy and/or.

This file deals with types and nodes; `compiler` deals with syntax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidInput
from penstock.flow.expressions.types import TIMESTAMP, as_decimal, common_type, decimal_result, is_number, is_whole
from penstock.flow.schema import type_name
from penstock.run.columns.expressions.compiled import FAULTS
from penstock.run.columns.expressions.nodes import Call, Choose, Literal, Node

BOOL = pa.bool_()
_COUNTED = (pa.int16(), pa.int32(), pa.int64())  # whole types whose literals count with their own digits


class Refused(InvalidInput):
    """An expression that has no exact counterpart or does not fit its types; the compiler adds the text around it."""


def call(kernel: str, kind: pa.DataType, *arguments: Node, settings: tuple[object, ...] = ()) -> Call:
    """A kernel whose result is null where an argument is."""
    return Call(kernel, arguments, kind, any(argument.nullable for argument in arguments), settings)


def never_null(kernel: str, kind: pa.DataType, *arguments: Node) -> Call:
    """A kernel whose result is not null on any row."""
    return Call(kernel, arguments, kind, False)


def true_literal(value: bool) -> Literal:
    """A constant."""
    return Literal(value, BOOL)


def cast(node: Node, kind: pa.DataType) -> Node:
    """The node in another type; a literal becomes another literal."""
    if node.type == kind:
        return node
    if isinstance(node, Literal) and node.value is None:
        return Literal(None, kind)
    name = _cast_kernel(node.type, kind)
    if name is None:
        msg = f"a cast of {type_name(node.type)} to {type_name(kind)} has no exact counterpart; use map or map_batches"
        raise Refused(msg)
    loose = _is_loose(name, node.type, kind) and not (isinstance(node, Literal) and pt.is_string(node.type))
    made = Call(name, (node,), kind, node.nullable or loose)
    return _folded(made) if isinstance(node, Literal) else made


def written_cast(node: Node, kind: pa.DataType) -> Node:
    """A cast that the user wrote: to Spark it is no literal any more, even where it changes nothing."""
    made = cast(node, kind)
    return replace(made, cast=True) if isinstance(made, Literal) else made


def _is_loose(name: str, old: pa.DataType, new: pa.DataType) -> bool:
    """Whether Spark calls the results of a cast nullable, even where ANSI mode would fail instead."""
    narrowed = name in {"to_decimal", "decimal_to_whole", "real_to_whole"}
    return name.startswith("text_to_") or (narrowed and not (pt.is_decimal(old) and pt.is_decimal(new)))


def as_nullable(node: Node, nullable: bool = True) -> Node:
    """The node as Spark declares it."""
    if isinstance(node, Literal):
        return replace(node, loose=nullable)
    return replace(node, nullable=nullable)  # type: ignore[type-var]


def _folded(made: Call) -> Node:
    """A call over literals as a literal; a call that fails stays, and fails when a row asks for it."""
    try:
        found = made.evaluate(pa.record_batch([pa.nulls(1)], names=[""]))
    except FAULTS:
        return made
    if pt.is_timestamp(made.type) or pt.is_date(made.type):
        found = found.cast(pa.int32() if pt.is_date(made.type) else pa.int64())
    return Literal(found.as_py(), made.type, made.nullable)


def _cast_kernel(old: pa.DataType, new: pa.DataType) -> str | None:
    """The kernel that makes one type of another, or None."""
    if pt.is_null(old):
        return "convert"
    if pt.is_string(old):
        return _from_text(new)
    if pt.is_string(new):
        return _to_text(old)
    if pt.is_timestamp(old) or pt.is_date(old) or pt.is_timestamp(new):
        return _of_times(old, new)
    if pt.is_boolean(old):
        return "convert" if is_whole(new) or pt.is_floating(new) else None
    return _of_numbers(old, new) if is_number(old) else None


def _of_numbers(old: pa.DataType, new: pa.DataType) -> str | None:
    if pt.is_boolean(new):
        return "to_boolean" if is_whole(old) or pt.is_float64(old) else None
    if pt.is_decimal(new):
        return _to_decimal(old, new)
    if pt.is_decimal(old):
        return "decimal_to_whole" if is_whole(new) else "decimal_to_real" if pt.is_floating(new) else None
    if is_whole(new) and is_whole(old):
        return "convert" if new.bit_width >= old.bit_width else "narrow"
    return "real_to_whole" if is_whole(new) else "convert" if pt.is_floating(new) else None


def _to_decimal(old: pa.DataType, new: pa.DataType) -> str | None:
    if pt.is_floating(old):
        return None
    held = as_decimal(old)
    roomy = new.precision - new.scale >= held.precision - held.scale and new.scale >= held.scale
    return "widen_decimal" if roomy else "to_decimal"


def _from_text(new: pa.DataType) -> str | None:
    if is_whole(new):
        return "text_to_whole"
    if pt.is_decimal(new):
        return "text_to_decimal"
    if pt.is_timestamp(new):
        return "text_to_time"
    return {pa.float64(): "text_to_real", pa.bool_(): "text_to_boolean", pa.date32(): "text_to_date"}.get(new)


def _to_text(old: pa.DataType) -> str | None:
    if is_whole(old) or pt.is_boolean(old) or pt.is_date(old):
        return "convert"
    if pt.is_timestamp(old):
        return "time_to_text"
    return "convert" if pt.is_decimal(old) and old.scale <= 6 else None


def _of_times(old: pa.DataType, new: pa.DataType) -> str | None:
    if pt.is_timestamp(old):
        if pt.is_date(new):
            return "time_to_date"
        return "time_to_seconds" if new == pa.int64() and old == TIMESTAMP else None
    if pt.is_date(old):
        return "convert" if pt.is_timestamp(new) else None
    return "seconds_to_time" if new == TIMESTAMP and is_whole(old) else None


def shared(nodes: Sequence[Node], what: str) -> list[Node]:
    """The nodes cast to their common type; a text literal beside times is read as a time."""
    kinds = [node.type for node in nodes if not _is_text_literal(node)]
    times = [kind for kind in kinds if pt.is_timestamp(kind) or pt.is_date(kind)]
    kind = common_type(kinds if times and len(kinds) < len(nodes) else [node.type for node in nodes])
    if kind is None:
        given = ", ".join(dict.fromkeys(type_name(node.type) for node in nodes))
        msg = f"{what} of {given}: no type holds them all; write a cast"
        raise Refused(msg)
    return [cast(node, kind) for node in nodes]


def _is_text_literal(node: Node) -> bool:
    return isinstance(node, Literal) and pt.is_string(node.type)


def compare(kernel: str, a: Node, b: Node, sign: str) -> Node:
    """A comparison; decimals of any two types are compared digit by digit."""
    decimals = [pt.is_decimal(node.type) or is_whole(node.type) for node in (a, b)]
    if all(decimals) and (pt.is_decimal(a.type) or pt.is_decimal(b.type)):
        a, b = _decimal_sides(a, b)
    else:
        a, b = shared((a, b), f"'{sign}'")
    if pt.is_null(a.type):  # Arrow compares no two values without a type
        a = b = Literal(None, BOOL)
    if pt.is_map(a.type) or pt.is_nested(a.type):
        msg = f"'{sign}' of {type_name(a.type)} has no exact counterpart; use map or map_batches"
        raise Refused(msg)
    return never_null(kernel, BOOL, a, b) if kernel == "same" else call(kernel, BOOL, a, b)


def arithmetic(kernel: str, a: Node, b: Node, sign: str) -> Node:
    """`+`, `-`, `*`, `/`, `%` and div over numbers."""
    for node in (a, b):
        if not (is_number(node.type) or pt.is_null(node.type)):
            msg = f"'{sign}' needs numbers but got {type_name(a.type)} and {type_name(b.type)}; write a cast"
            raise Refused(msg)
    kind = common_type((a.type, b.type)) or pa.float64()  # any two numbers have a common type
    if kernel == "int_divide":
        if pt.is_decimal(kind) or pt.is_floating(kind):
            msg = f"div of {type_name(kind)} has no exact counterpart; use map or map_batches"
            raise Refused(msg)
        return Call(kernel, (cast(a, pa.int64()), cast(b, pa.int64())), pa.int64(), True)
    if pt.is_decimal(kind):
        a, b = _decimal_sides(a, b)
        made = call(kernel, decimal_result(kernel, a.type, b.type), a, b)
    else:
        kind = pa.float64() if kernel == "divide" or pt.is_null(kind) else kind
        made = call(kernel, kind, cast(a, kind), cast(b, kind))
    return as_nullable(made) if kernel in {"divide", "remainder"} else made


def _decimal_sides(a: Node, b: Node) -> tuple[Node, Node]:
    """Both as decimals; a whole literal becomes a decimal of its own digits, unless it is a tinyint or was cast."""
    return _decimal_side(a, b.type), _decimal_side(b, a.type)


def _decimal_side(node: Node, other: pa.DataType) -> Node:
    if isinstance(node, Literal) and not node.cast and node.type in _COUNTED and node.value is not None:
        digits = len(Decimal(str(node.value)).as_tuple().digits)
        return cast(node, pa.decimal128(digits, 0))
    return cast(node, other if pt.is_null(node.type) else as_decimal(node.type))


def logical(kernel: str, a: Node, b: Node) -> Node:
    """AND and OR; the right side is not asked where the left side decides and the right side may fail."""
    for node in (a, b):
        require_boolean(node, kernel.upper())
    a, b = cast(a, BOOL), cast(b, BOOL)
    found = call(kernel, BOOL, a, b)
    if not b.fails:
        return found
    decided = a if kernel == "or" else call("not", BOOL, a)
    return Choose((decided,), (true_literal(kernel == "or"), found), BOOL, found.nullable)


def require_boolean(node: Node, who: str) -> None:
    """Refuse what is neither true nor false."""
    if not (pt.is_boolean(node.type) or pt.is_null(node.type)):
        msg = f"{who} needs true or false but got {type_name(node.type)}"
        raise Refused(msg)


def choose(conditions: Sequence[Node], values: Sequence[Node], what: str) -> Node:
    """CASE WHEN and if; values meet in one type."""
    for condition in conditions:
        require_boolean(condition, f"the condition of {what}")
    values = shared(values, what)
    nullable = any(value.nullable for value in values)
    return Choose(tuple(cast(c, BOOL) for c in conditions), tuple(values), values[0].type, nullable)


def coalesce(nodes: Sequence[Node], what: str) -> Node:
    """The first that is not null; later ones are computed just for the rows where the earlier ones are null."""
    nodes = shared(nodes, what)
    nullable = all(node.nullable for node in nodes)
    if any(node.fails for node in nodes[1:]):
        conditions = tuple(never_null("is_valid", BOOL, node) for node in nodes[:-1])
        return Choose(conditions, tuple(nodes), nodes[0].type, nullable)
    return Call("coalesce", tuple(nodes), nodes[0].type, nullable)
