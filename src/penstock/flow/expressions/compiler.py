"""From sqlglot's tree to typed nodes: names, literals, operators and the forms with a syntax of their own.

Functions that are called by name are in `functions`. A form that the compiler does not know is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

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
    coalesce,
    compare,
    logical,
    never_null,
    shared,
    true_literal,
    written_cast,
)
from penstock.flow.expressions.parse import Tree, is_numeral, unknown_column
from penstock.flow.expressions.types import is_whole, spark_type
from penstock.flow.schema import parse_schema, type_name
from penstock.run.columns.expressions.nodes import Column, Literal, Node

_COMPARED = {
    exp.EQ: ("equal", "="),
    exp.NEQ: ("not_equal", "<>"),
    exp.LT: ("less", "<"),
    exp.LTE: ("less_equal", "<="),
    exp.GT: ("greater", ">"),
    exp.GTE: ("greater_equal", ">="),
    exp.NullSafeEQ: ("same", "<=>"),
}
_COMPUTED = {
    exp.Add: ("add", "+"),
    exp.Sub: ("subtract", "-"),
    exp.Mul: ("multiply", "*"),
    exp.Div: ("divide", "/"),
    exp.IntDiv: ("int_divide", "div"),
    exp.Mod: ("remainder", "%"),
}
_BITS = {exp.BitwiseAnd: "bit_and", exp.BitwiseOr: "bit_or", exp.BitwiseXor: "bit_xor"}
_REAL = (exp.DType.DOUBLE, exp.DType.FLOAT)
_WHOLE_MAX = {pa.int32(): 2**31, pa.int64(): 2**63}


_PREDICATES = (*_COMPARED, exp.Like, exp.ILike, exp.RegexpLike, exp.In, exp.Between, exp.Is)


def require_brackets(tree: Tree) -> None:
    """Refuse expressions that Spark and the parser read differently: Spark binds & before ^ before |.

    Spark also binds comparisons from the left; the parser does neither.
    """
    for family in (tuple(_BITS), _PREDICATES):
        if isinstance(tree, family):
            for side in (tree.this, tree.args.get("expression")):
                if isinstance(side, family) and type(side) is not type(tree):
                    msg = f"{tree.sql(dialect='spark')!r} may be read in two ways; put brackets around its inner part"
                    raise Refused(msg)


@dataclass(frozen=True)
class Compiler:
    """Compiles over the columns of one schema."""

    schema: pa.Schema

    def node(self, tree: Tree | None) -> Node:
        """The typed node of a tree."""
        if tree is None:
            msg = "an operand is missing"
            raise Refused(msg)
        kind = type(tree)
        require_brackets(tree)
        if kind in _COMPARED:
            kernel, sign = _COMPARED[kind]
            return compare(kernel, self.node(tree.this), self.node(tree.expression), sign)
        if kind in _COMPUTED:
            return self._computed(*_COMPUTED[kind], tree)
        if kind in _BITS:
            a, b = shared((self.node(tree.this), self.node(tree.expression)), "bits")
            self._require(is_whole(a.type), "bits of", a)
            return call(_BITS[kind], a.type, a, b)
        if kind in {exp.And, exp.Or}:
            name = "and" if kind is exp.And else "or"
            return logical(name, self.node(tree.this), self.node(tree.expression))
        if kind in _FORMS:
            found = _FORMS[kind](self, tree)
        else:
            from penstock.flow.expressions.functions import compile_function

            found = compile_function(self, tree)
        return self.inverted(found) if tree.args.get("negate") else found

    def _computed(self, kernel: str, sign: str, tree: Tree) -> Node:
        from penstock.flow.expressions.moments import shifted

        moved = shifted(self, tree) if sign in {"+", "-"} else None
        return arithmetic(kernel, self.node(tree.this), self.node(tree.expression), sign) if moved is None else moved

    def constant(self, tree: Tree | None, kind: pa.DataType, what: str) -> object:
        """The value of an argument that must be known when the expression is written."""
        node = cast(self.node(tree), kind)
        if not isinstance(node, Literal) or node.value is None:
            msg = f"{what} must be a constant {type_name(kind)}; use map or map_batches for one that varies by row"
            raise Refused(msg)
        return node.value

    def _require(self, holds: bool, what: str, node: Node) -> None:
        if not holds:
            msg = f"{what} {type_name(node.type)} has no exact counterpart; use map or map_batches"
            raise Refused(msg)

    # -- names and literals ------------------------------------------------------------------------------------------

    def column(self, tree: Tree) -> Node:
        """A column, or a field of a struct."""
        parts = [part for part in (tree.args.get(key) for key in ("catalog", "db", "table", "this")) if part]
        if any(isinstance(part, exp.Star) for part in parts):
            msg = "'*' stands for all columns only by itself, in select('*', ...)"
            raise Refused(msg)
        names = [part.name for part in parts]
        found: Node = self._named(names[0], parts[0].meta.get("start"))
        for name in names[1:]:
            found = self.field(found, name)
        return found

    def _named(self, name: str, at: int | None) -> Node:
        known = self.schema.names
        matching = [name] if name in known else [other for other in known if other.lower() == name.lower()]
        if len(matching) != 1:
            raise Refused(unknown_column(name, known, at) if not matching else f"{name!r} may be any of {matching}")
        field = self.schema.field(matching[0])
        return Column(matching[0], spark_type(field.type), field.nullable)

    def field(self, of: Node, name: str) -> Node:
        """A field of a struct."""
        if not pt.is_struct(of.type):
            msg = f"{name!r} is asked of {type_name(of.type)}, which has no fields"
            raise Refused(msg)
        names = [of.type.field(i).name for i in range(of.type.num_fields)]
        matching = [known for known in names if known == name] or [k for k in names if k.lower() == name.lower()]
        if len(matching) != 1:
            raise Refused(unknown_column(name, names, None))
        field = of.type.field(names.index(matching[0]))
        made = call("field", field.type, of, settings=(matching[0],))
        return cast_spark(as_nullable(made, of.nullable or field.nullable))

    def literal(self, tree: Tree, sign: int = 1) -> Node:
        """Text or a number: whole, decimal where it has a point, double where it has an exponent."""
        if tree.is_string:
            return Literal(tree.this, pa.string())
        text = tree.this
        if not set(text) - set("0123456789"):
            value = sign * int(text)
            for kind, most in _WHOLE_MAX.items():
                if -most <= value < most:
                    return Literal(value, kind)
        if "e" in text.lower():
            return Literal(sign * float(text), pa.float64())
        number = Decimal(text)
        scale = max(0, -int(number.as_tuple().exponent))
        precision = max(len(number.as_tuple().digits), scale)
        if precision > 38:
            msg = f"the number {text} has {precision} digits; a decimal has at most 38"
            raise Refused(msg)
        return Literal(sign * number, pa.decimal128(precision, scale))

    def negated(self, tree: Tree) -> Node:
        """`-a`; before a number, the sign is part of the number."""
        if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return self.literal(tree.this, -1)
        if is_numeral(tree.this) and tree.this.to.this not in _REAL:
            return cast(self.literal(tree.this.this, -1), _type_of(tree.this.to))
        node = self.node(tree.this)
        self._require(is_whole(node.type) or pt.is_floating(node.type) or pt.is_decimal(node.type), "'-' of", node)
        return call("negate", node.type, node)

    # -- forms -------------------------------------------------------------------------------------------------------

    def cast_form(self, tree: Tree) -> Node:
        """CAST(a AS type) and a::type; also timestamp'...' and date'...'."""
        if isinstance(tree, exp.TryCast):
            msg = "try_cast has no exact counterpart; use cast, map or map_batches"
            raise Refused(msg)
        if isinstance(tree.this, exp.Literal) and tree.this.is_number and tree.to.this in _REAL:
            number = Literal(float(tree.this.this), pa.float64())  # 1.5D
            return cast(number, _type_of(tree.to))
        return (cast if is_numeral(tree) else written_cast)(self.node(tree.this), _type_of(tree.to))

    def is_form(self, tree: Tree) -> Node:
        """IS NULL, IS TRUE and IS FALSE."""
        node = self.node(tree.this)
        if isinstance(tree.expression, exp.Null):
            return never_null("is_null", BOOL, node)
        if isinstance(tree.expression, exp.Boolean):
            return never_null("same", BOOL, cast(node, BOOL), true_literal(tree.expression.this))
        msg = f"IS {tree.expression.sql()} has no exact counterpart; use map or map_batches"
        raise Refused(msg)

    def not_form(self, tree: Tree) -> Node:
        """NOT."""
        if isinstance(tree.this, exp.Is) and isinstance(tree.this.expression, exp.Null):
            return never_null("is_valid", BOOL, self.node(tree.this.this))
        return self.inverted(self.node(tree.this))

    def inverted(self, node: Node) -> Node:
        """NOT of a node."""
        return call("not", BOOL, cast(node, BOOL)) if pt.is_null(node.type) else self._inverted(node)

    def _inverted(self, node: Node) -> Node:
        self._require(pt.is_boolean(node.type), "NOT of", node)
        return call("not", BOOL, node)

    def in_form(self, tree: Tree) -> Node:
        """IN over a list; constants are looked up, others compared one by one."""
        if not tree.expressions:
            msg = "IN needs a list of values; use join for other streams"
            raise Refused(msg)
        value, *known = shared([self.node(part) for part in (tree.this, *tree.expressions)], "IN")
        constants = [node for node in known if isinstance(node, Literal)]
        quick = not (pt.is_floating(value.type) or pt.is_nested(value.type) or pt.is_null(value.type))
        if len(constants) == len(known) and quick:
            values = tuple(node.value for node in constants if node.value is not None)
            with_null = len(values) < len(known)
            made = call("is_in", BOOL, value, settings=(values, with_null))
            return as_nullable(made, made.nullable or with_null)
        found = compare("equal", value, known[0], "IN")
        for node in known[1:]:
            found = logical("or", found, compare("equal", value, node, "IN"))
        return found

    def between(self, tree: Tree) -> Node:
        """BETWEEN, both ends included."""
        value, low, high = (self.node(tree.args[key]) for key in ("this", "low", "high"))
        return logical("and", compare("greater_equal", value, low, ">="), compare("less_equal", value, high, "<="))

    def case(self, tree: Tree) -> Node:
        """CASE with conditions, or with a value that is compared."""
        conditions = [self.node(branch.this) for branch in tree.args["ifs"]]
        if tree.this is not None:
            value = self.node(tree.this)
            conditions = [compare("equal", value, condition, "=") for condition in conditions]
        values = [self.node(branch.args["true"]) for branch in tree.args["ifs"]]
        default = tree.args.get("default")
        values.append(Literal(None, pa.null()) if default is None else self.node(default))
        return choose(conditions, values, "CASE")

    def if_form(self, tree: Tree) -> Node:
        """if(condition, a, b)."""
        parts = [self.node(tree.args.get(key)) for key in ("true", "false")]
        return choose([self.node(tree.this)], parts, "if")

    def coalesced(self, trees: list[Tree], what: str) -> Node:
        """The first that is no null."""
        return coalesce([self.node(tree) for tree in trees], what)


def cast_spark(node: Node) -> Node:
    """A node in the Spark type of its column."""
    kind = spark_type(node.type)
    return node if kind == node.type else call("convert", kind, node)


def _type_of(tree: Tree) -> pa.DataType:
    names = {"TIMESTAMPTZ": "timestamp", "TIMESTAMPLTZ": "timestamp", "TIMESTAMPNTZ": "timestamp_ntz", "TEXT": "string"}
    given = tree.this.value if hasattr(tree.this, "value") else str(tree.this)
    inner = ", ".join(part.sql() for part in tree.expressions)
    text = names.get(given, given).lower() + (f"({inner})" if inner else "")
    return parse_schema(f"value {text}").field(0).type


_Form = Callable[[Compiler, Tree], Node]
_FORMS: dict[type, _Form] = {
    exp.Column: Compiler.column,
    exp.Literal: Compiler.literal,
    exp.RawString: lambda compiler, tree: Literal(tree.this, pa.string()),
    exp.Boolean: lambda compiler, tree: true_literal(tree.this),
    exp.Null: lambda compiler, tree: Literal(None, pa.null()),
    exp.Paren: lambda compiler, tree: compiler.node(tree.this),
    exp.Neg: Compiler.negated,
    exp.Cast: Compiler.cast_form,
    exp.TryCast: Compiler.cast_form,
    exp.Is: Compiler.is_form,
    exp.Not: Compiler.not_form,
    exp.In: Compiler.in_form,
    exp.Between: Compiler.between,
    exp.Case: Compiler.case,
    exp.If: Compiler.if_form,
    exp.BitwiseNot: lambda compiler, tree: call("bit_not", (node := compiler.node(tree.this)).type, node),
}
