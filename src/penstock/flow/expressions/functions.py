"""Functions that are called by name: numbers and choices here, text in `text_functions`, times in `moments`.

A table from Spark's names to builders of nodes. A name that is missing is refused, with similar names: an answer that
is nearly Spark's would be worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import expressions as exp

from penstock.flow.expressions.build import (
    BOOL,
    Refused,
    arithmetic,
    as_nullable,
    call,
    cast,
    choose,
    compare,
    never_null,
    written_cast,
)
from penstock.flow.expressions.build import shared as in_one_type
from penstock.flow.expressions.parse import Tree
from penstock.flow.expressions.types import bounded, is_number, is_whole
from penstock.flow.schema import parse_schema, type_name
from penstock.run.columns.expressions.nodes import Call, Literal, Node

if TYPE_CHECKING:
    from penstock.flow.expressions.compiler import Compiler

Builder = Callable[["Compiler", list[Tree]], Node]
FUNCTIONS: dict[str, tuple[Builder, int, int]] = {}  # builder, least and greatest number of arguments
ARGUMENTS_MAX = 1000
FORMS: dict[type, Callable[[Compiler, Tree], Node]] = {}  # calls with a syntax of their own


def function(*names: str, least: int = 1, most: int | None = None) -> Callable[[Builder], Builder]:
    """Register a builder under Spark's names."""

    def register(builder: Builder) -> Builder:
        for name in names:
            FUNCTIONS[name] = builder, least, least if most is None else most
        return builder

    return register


def compile_function(compiler: Compiler, tree: Tree) -> Node:
    """The node of a call, or an error that names it."""
    if type(tree) in FORMS:
        return FORMS[type(tree)](compiler, tree)
    if not isinstance(tree, exp.Anonymous):
        msg = f"{tree.key} ({tree.sql()[:40]}) has no exact counterpart; use map or map_batches"
        raise Refused(msg)
    name = str(tree.this).lower()
    if name not in FUNCTIONS:
        near = get_close_matches(name, FUNCTIONS, n=1)
        hint = f"did you mean {near[0]}? Else " if near else ""
        msg = f"the function {name} is not known here; {hint}use map or map_batches"
        raise Refused(msg)
    builder, least, most = FUNCTIONS[name]
    if not least <= len(tree.expressions) <= most:
        wanted = str(least) if least == most else f"{least} to {most}" if most < ARGUMENTS_MAX else f"{least} or more"
        msg = f"{name} takes {wanted} arguments and got {len(tree.expressions)}"
        raise Refused(msg)
    return builder(compiler, tree.expressions)


def require(holds: bool, name: str, node: Node) -> None:
    """Refuse a type for which a function has no exact counterpart."""
    if not holds:
        msg = f"{name} of {type_name(node.type)} has no exact counterpart; write a cast, or use map or map_batches"
        raise Refused(msg)


# -- choices -----------------------------------------------------------------------------------------------------------


@function("coalesce", least=1, most=ARGUMENTS_MAX)
def coalesce_(compiler: Compiler, trees: list[Tree]) -> Node:
    """coalesce(a, b, ...)."""
    return compiler.coalesced(trees, "coalesce")


@function("nvl", "ifnull", least=2)
def nvl_(compiler: Compiler, trees: list[Tree]) -> Node:
    """nvl(a, b)."""
    return compiler.coalesced(trees, "nvl")


@function("nvl2", least=3)
def nvl2_(compiler: Compiler, trees: list[Tree]) -> Node:
    """nvl2(a, if there, if null)."""
    a, there, missing = map(compiler.node, trees)
    return choose([never_null("is_valid", BOOL, a)], [there, missing], "nvl2")


@function("nullif", least=2)
def nullif_(compiler: Compiler, trees: list[Tree]) -> Node:
    """nullif(a, b): null where they are equal."""
    a, b = map(compiler.node, trees)
    return choose([compare("equal", a, b, "=")], [Literal(None, pa.null()), a], "nullif")


@function("isnull")
def isnull_(compiler: Compiler, trees: list[Tree]) -> Node:
    """isnull(a)."""
    return never_null("is_null", BOOL, compiler.node(trees[0]))


@function("isnotnull")
def isnotnull_(compiler: Compiler, trees: list[Tree]) -> Node:
    """isnotnull(a)."""
    return never_null("is_valid", BOOL, compiler.node(trees[0]))


@function("isnan")
def isnan_(compiler: Compiler, trees: list[Tree]) -> Node:
    """isnan(a)."""
    node = compiler.node(trees[0])
    require(pt.is_floating(node.type), "isnan", node)
    return never_null("is_nan", BOOL, node)


@function("greatest", least=2, most=ARGUMENTS_MAX)
def greatest_(compiler: Compiler, trees: list[Tree]) -> Node:
    """greatest(a, b, ...), nulls aside."""
    return _extreme("greatest", compiler, trees)


@function("least", least=2, most=ARGUMENTS_MAX)
def least_(compiler: Compiler, trees: list[Tree]) -> Node:
    """least(a, b, ...), nulls aside."""
    return _extreme("least", compiler, trees)


def _extreme(name: str, compiler: Compiler, trees: list[Tree]) -> Node:
    nodes = in_one_type([compiler.node(tree) for tree in trees], name)
    require(not (pt.is_nested(nodes[0].type) or pt.is_null(nodes[0].type)), name, nodes[0])
    return Call(name, tuple(nodes), nodes[0].type, all(node.nullable for node in nodes))


# -- numbers -----------------------------------------------------------------------------------------------------------


@function("abs")
def absolute_(compiler: Compiler, trees: list[Tree]) -> Node:
    """abs(a)."""
    node = compiler.node(trees[0])
    require(is_number(node.type), "abs", node)
    return call("abs", node.type, node)


@function("negative")
def negative_(compiler: Compiler, trees: list[Tree]) -> Node:
    """negative(a)."""
    return compiler.negated(exp.Neg(this=trees[0]))


@function("mod", least=2)
def modulo_(compiler: Compiler, trees: list[Tree]) -> Node:
    """mod(a, b), as a % b."""
    return arithmetic("remainder", *map(compiler.node, trees), "%")  # type: ignore[call-arg, arg-type]


@function("sqrt")
def square_root_(compiler: Compiler, trees: list[Tree]) -> Node:
    """sqrt(a)."""
    return as_nullable(call("sqrt", pa.float64(), cast(compiler.node(trees[0]), pa.float64())))


@function("sign", "signum")
def sign_(compiler: Compiler, trees: list[Tree]) -> Node:
    """sign(a)."""
    return as_nullable(call("sign", pa.float64(), cast(compiler.node(trees[0]), pa.float64())))


@function("floor")
def floor_(compiler: Compiler, trees: list[Tree]) -> Node:
    """floor(a)."""
    return _whole("floor", compiler, trees)


@function("ceil", "ceiling")
def ceil_(compiler: Compiler, trees: list[Tree]) -> Node:
    """ceil(a)."""
    return _whole("ceil", compiler, trees)


def _whole(name: str, compiler: Compiler, trees: list[Tree]) -> Node:
    node = compiler.node(trees[0])
    require(is_number(node.type), name, node)
    if is_whole(node.type):
        return as_nullable(cast(node, pa.int64()))
    if pt.is_decimal(node.type):
        scale = node.type.scale
        digits = node.type.precision - scale + 1 if scale else node.type.precision
        return as_nullable(call(name, bounded(digits, 0), node))
    return as_nullable(call(name, pa.int64(), cast(node, pa.float64())))


@function("round", least=1, most=2)
def rounded_(compiler: Compiler, trees: list[Tree]) -> Node:
    """round(a, digits), half up; a double must be cast first, because it holds no exact tenths to round."""
    node = compiler.node(trees[0])
    digits = int(str(compiler.constant(trees[1], pa.int32(), "the digits of round"))) if len(trees) > 1 else 0
    require(is_whole(node.type) or pt.is_decimal(node.type), "round", node)
    if is_whole(node.type):
        return as_nullable(node if digits >= 0 else call("round", node.type, node, settings=(digits,)))
    precision, scale = node.type.precision, node.type.scale
    whole = precision - scale + 1
    if digits < 0:
        kind = bounded(max(whole, -digits + 1), 0)
    else:
        kind = bounded(whole + min(scale, digits), min(scale, digits))
    return as_nullable(call("round", kind, node, settings=(digits,)))


def _cast_function(kind: pa.DataType) -> Builder:
    return lambda compiler, trees: written_cast(compiler.node(trees[0]), kind)


for _name in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp"):
    function(_name)(_cast_function(parse_schema(f"value {_name}").field(0).type))

from penstock.flow.expressions import moments, text_functions  # noqa: E402, F401 - they register their functions
