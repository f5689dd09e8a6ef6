"""Aggregates with expressions, distinct values and filters: the part of `flow/aggregates` that needs the parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import expressions as exp

from penstock.errors import InvalidInput
from penstock.flow.aggregates import FUNCTIONS, Parsed, operation_of
from penstock.flow.expressions.build import Refused, choose, true_literal
from penstock.flow.expressions.compiler import Compiler
from penstock.flow.expressions.parse import Tree, parse
from penstock.flow.expressions.projection import tried
from penstock.run.columns.aggregates import PAIRED, Op
from penstock.run.columns.expressions.compiled import Compiled
from penstock.run.columns.expressions.nodes import Column, Literal, Node
from penstock.run.columns.kernels import Aggregate
from penstock.run.operators.keyed.prepared import Argument


def parse_call(name: str, text: str, schema: pa.Schema) -> Parsed:
    """An aggregate, and the column that has to be computed for it, if any."""
    who = f"aggregate {name}={text!r}"
    tree = parse(text, who)
    where = None
    if isinstance(tree, exp.Filter):
        tree, where = tree.this, tree.expression.this
    if not isinstance(tree, exp.Anonymous):
        msg = f"{who} is no aggregate; write function(column), such as {name}='sum(fare)' or {name}='count(*)'"
        raise InvalidInput(msg)
    op = operation_of(name, text, str(tree.this), FUNCTIONS)
    try:
        return _parsed(name, text, op, tree.expressions, where, schema)
    except Refused as error:
        msg = f"{who}: {error}"
        raise InvalidInput(msg) from error


def _parsed(name: str, text: str, op: Op | str, given: Sequence[Tree], where: Tree | None, schema: pa.Schema) -> Parsed:
    compiler = Compiler(schema)
    distinct = len(given) == 1 and isinstance(given[0], exp.Distinct)
    trees = list(given[0].expressions) if distinct else list(given)
    wanted = 2 if op in PAIRED else 1
    if len(trees) != wanted:
        msg = f"{op} takes {wanted} argument{'s' * (wanted > 1)} and got {len(trees)}"
        raise Refused(msg)
    condition = None if where is None else compiler.node(where)
    if op == "count_if":
        given_condition = compiler.node(trees[0])
        op, nodes = "count", [_counted(true_literal(True), given_condition)]
    elif isinstance(trees[0], exp.Star):
        if op != "count" or distinct:
            msg = f"{op} needs a column; only count takes whole rows"
            raise Refused(msg)
        nodes = [true_literal(True)]
    else:
        nodes = [compiler.node(tree) for tree in trees]
    return _made(name, text, cast("Op", op), nodes, condition, distinct and op not in {"min", "max"}, schema)


def _made(
    name: str, text: str, op: Op, nodes: list[Node], condition: Node | None, distinct: bool, schema: pa.Schema
) -> Parsed:
    if condition is None and not distinct and len(nodes) == 1:
        if isinstance(nodes[0], Column):
            return Aggregate(op, nodes[0].name, name), None
        if op == "count" and isinstance(nodes[0], Literal) and nodes[0].value is not None:
            return Aggregate(op, None, name), None
    if condition is not None:
        nodes[-1] = _counted(nodes[-1], condition)
    if len(nodes) > 1 and (pt.is_nested(nodes[1].type) or pt.is_null(nodes[1].type)):
        msg = f"{op} chooses by {nodes[1].type}, which has no order"
        raise Refused(msg)
    column = f"{name}={text}"  # a name that no user's column has
    parts = tuple(Compiled(text, tried(node, text, schema, f"aggregate {name}")) for node in nodes)
    return Aggregate(op, column, name), Argument(column, parts, distinct)


def _counted(node: Node, condition: Node) -> Node:
    """The node on rows that count, null on others."""
    return choose([condition], [node, Literal(None, pa.null())], "FILTER")
