"""Doors to the compiler: one expression, a condition, and the list of columns of a select.

A compiled expression is evaluated at once over zero rows, so that types that Arrow's functions do not take are refused
here and not by a worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import expressions as exp

from penstock.errors import InternalError, InvalidInput
from penstock.flow.expressions import Projected, is_column
from penstock.flow.expressions.build import BOOL, Refused, cast
from penstock.flow.expressions.compiler import Compiler
from penstock.flow.expressions.parse import Tree, parse
from penstock.flow.schema import type_name
from penstock.run.columns.expressions.compiled import FAULTS, Compiled
from penstock.run.columns.expressions.nodes import Column, Node
from penstock.run.operators.convert import empty


def compile_expression(text: str, schema: pa.Schema, who: str) -> Compiled:
    """One expression without a name."""
    tree = parse(text, who)
    if isinstance(tree, exp.Alias):
        msg = f"{who}: {text!r} names its result; leave 'as {tree.alias}' out"
        raise InvalidInput(msg)
    return compile_tree(tree, text, schema, who)


def compile_condition(text: str, schema: pa.Schema, who: str) -> Compiled:
    """An expression that is true, false or null."""
    found = compile_expression(text, schema, who)
    if pt.is_null(found.type):
        found = Compiled(text, cast(found.node, BOOL))
    if not pt.is_boolean(found.type):
        msg = f"{who}: {text!r} is {type_name(found.type)}; write a condition such as 'price > 100'"
        raise InvalidInput(msg)
    return found


def projected(texts: Sequence[str], schema: pa.Schema, who: str) -> list[Projected]:
    """The columns of a select: names, `*`, and expressions with a name (`price * 2 as twice`)."""
    found: list[Projected] = []
    for text in texts:
        if is_column(text, schema):
            found.append(Projected(schema.field(text), text))
            continue
        tree = parse(text, who)
        if isinstance(tree, exp.Star):
            found += [Projected(field, field.name) for field in schema]
        else:
            found.append(_projected(tree, text, schema, who))
    return found


def _projected(tree: Tree, text: str, schema: pa.Schema, who: str) -> Projected:
    inner, name = (tree.this, tree.alias) if isinstance(tree, exp.Alias) else (tree, "")
    made = compile_tree(inner, text, schema, who)
    name = name or (inner.name if isinstance(inner, exp.Column) else "")
    if not name:
        msg = f"{who}: {text!r} has no name; write '{text} as name'"
        raise InvalidInput(msg)
    if isinstance(made.node, Column):  # the column as it is, encodings included
        return Projected(schema.field(made.node.name).with_name(name), made.node.name)
    return Projected(pa.field(name, made.type, made.nullable), made)


def compile_tree(tree: Tree, text: str, schema: pa.Schema, who: str) -> Compiled:
    """A tree compiled over a schema and tried on zero rows."""
    try:
        node = Compiler(schema).node(tree)
    except Refused as error:
        msg = f"{who}: {text!r}: {error}"
        raise InvalidInput(msg) from error
    except RecursionError:
        msg = f"{who}: {text[:60]!r}... nests too deep; split it over several with_column"
        raise InvalidInput(msg) from None
    return Compiled(text, tried(node, text, schema, who))


def tried(node: Node, text: str, schema: pa.Schema, who: str) -> Node:
    """The node, tried on zero rows: refuse what Arrow cannot do; a result of the wrong type is our bug."""
    try:
        made = node.column(empty(schema))
    except (*FAULTS, pa.ArrowException, TypeError, ValueError) as error:
        if not node.columns():
            return node  # an expression of constants fails when a row asks for it, as in Spark
        msg = f"{who}: {text!r} has no exact counterpart ({error}); use map or map_batches"
        raise InvalidInput(msg) from error
    if made.type != node.type:
        msg = f"{who}: {text!r} should be {node.type} but is {made.type}"
        raise InternalError(msg)
    return node
