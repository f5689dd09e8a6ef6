"""Functions of text, lists and patterns, and how each becomes a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from sqlglot import expressions as exp

from penstock.flow.expressions.build import BOOL, Refused, call, cast
from penstock.flow.expressions.functions import ARGUMENTS_MAX, FORMS, function, require
from penstock.flow.expressions.parse import Tree
from penstock.flow.expressions.patterns import Unlike, like, translated
from penstock.run.columns.expressions.nodes import Call, Node

if TYPE_CHECKING:
    from penstock.flow.expressions.compiler import Compiler

TEXT = pa.string()
PIECES = pa.list_(pa.field("item", TEXT))


def text(compiler: Compiler, tree: Tree | None, name: str) -> Node:
    """An argument that is text."""
    node = compiler.node(tree)
    require(pt.is_string(node.type) or pt.is_null(node.type), name, node)
    return cast(node, TEXT)


def constant_text(compiler: Compiler, tree: Tree | None, what: str) -> str:
    """An argument that is known when the expression is written."""
    return str(compiler.constant(tree, TEXT, what))


def constant_count(compiler: Compiler, tree: Tree | None, what: str) -> int:
    """A whole number that is known when the expression is written."""
    return int(str(compiler.constant(tree, pa.int32(), what)))


def _plain(name: str, *spark_names: str, kind: pa.DataType = TEXT) -> None:
    function(*spark_names)(lambda compiler, trees: call(name, kind, text(compiler, trees[0], spark_names[0])))


_plain("upper", "upper", "ucase")
_plain("lower", "lower", "lcase")
_plain("reverse", "reverse")


@function("length", "len", "char_length", "character_length")
def length_(compiler: Compiler, trees: list[Tree]) -> Node:
    """Characters of text, bytes of binary."""
    node = compiler.node(trees[0])
    require(pt.is_string(node.type) or pt.is_binary(node.type), "length", node)
    return call("length", pa.int32(), node)


@function("concat", least=1, most=ARGUMENTS_MAX)
def concat_(compiler: Compiler, trees: list[Tree]) -> Node:
    """concat(a, b, ...): null where one is."""
    return call("concat", TEXT, *[cast(compiler.node(tree), TEXT) for tree in trees])


@function("concat_ws", least=2, most=ARGUMENTS_MAX)
def concat_ws_(compiler: Compiler, trees: list[Tree]) -> Node:
    """concat_ws(separator, a, b, ...): nulls left out."""
    separator = constant_text(compiler, trees[0], "the separator of concat_ws")
    texts = tuple(cast(compiler.node(tree), TEXT) for tree in trees[1:])
    return Call("concat_ws", texts, TEXT, False, (separator,))


def _substring(compiler: Compiler, tree: Tree) -> Node:
    """substring(a, from, length): from 1, and negative from the end."""
    node = text(compiler, tree.this, "substring")
    start = constant_count(compiler, tree.args.get("start"), "the start of substring")
    size = tree.args.get("length")
    count = None if size is None else max(0, constant_count(compiler, size, "the length of substring"))
    begin = start - 1 if start > 0 else start
    stop = None if count is None else begin + count
    if begin < 0 and stop is not None and stop >= 0:
        stop = None  # to the end
    if count == 0:
        begin, stop = 0, 0
    return call("slice", TEXT, node, settings=(begin, stop))


@function("left", least=2)
def left_(compiler: Compiler, trees: list[Tree]) -> Node:
    """left(a, n)."""
    count = max(0, constant_count(compiler, trees[1], "the length of left"))
    return call("slice", TEXT, text(compiler, trees[0], "left"), settings=(0, count))


@function("right", least=2)
def right_(compiler: Compiler, trees: list[Tree]) -> Node:
    """right(a, n)."""
    count = max(0, constant_count(compiler, trees[1], "the length of right"))
    return call("slice", TEXT, text(compiler, trees[0], "right"), settings=(-count, None) if count else (0, 0))


def _trim(compiler: Compiler, tree: Tree) -> Node:
    """trim(a) and trim(BOTH 'x' FROM a)."""
    side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or "").upper(), "trim")
    given = tree.args.get("expression")
    characters = " " if given is None else constant_text(compiler, given, "what trim takes off")
    return call(side, TEXT, text(compiler, tree.this, "trim"), settings=(characters,))


def _side(name: str, *spark_names: str) -> None:
    @function(*spark_names, least=1)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        return call(name, TEXT, text(compiler, trees[0], name), settings=(" ",))


_side("ltrim", "ltrim")
_side("rtrim", "rtrim")
_side("trim", "btrim")


@function("replace", least=2, most=3)
def replace_(compiler: Compiler, trees: list[Tree]) -> Node:
    """replace(a, search, by)."""
    node = text(compiler, trees[0], "replace")
    search = constant_text(compiler, trees[1], "what replace looks for")
    by = constant_text(compiler, trees[2], "what replace puts in") if len(trees) > 2 else ""
    return call("replace", TEXT, node, settings=(search, by)) if search else node


def _part(kernel: str, *spark_names: str) -> None:
    @function(*spark_names, least=2)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        part = constant_text(compiler, trees[1], f"what {spark_names[0]} looks for")
        return call(kernel, BOOL, text(compiler, trees[0], spark_names[0]), settings=(part,))


_part("contains", "contains")
_part("starts_with", "startswith")
_part("ends_with", "endswith")


@function("repeat", least=2)
def repeat_(compiler: Compiler, trees: list[Tree]) -> Node:
    """repeat(a, times)."""
    times = max(0, constant_count(compiler, trees[1], "the times of repeat"))
    return call("repeat", TEXT, text(compiler, trees[0], "repeat"), settings=(times,))


def _pad(name: str, left_side: bool) -> None:
    @function(name, least=2, most=3)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        width = max(0, constant_count(compiler, trees[1], f"the width of {name}"))
        by = constant_text(compiler, trees[2], f"the filling of {name}") if len(trees) > 2 else " "
        if len(by) != 1:
            msg = f"{name} with a filling of {len(by)} characters has no exact counterpart; use map or map_batches"
            raise Refused(msg)
        return call("pad", TEXT, text(compiler, trees[0], name), settings=(width, by, left_side))


_pad("lpad", True)
_pad("rpad", False)


# -- lists -------------------------------------------------------------------------------------------------------------


@function("split", least=2)
def split_(compiler: Compiler, trees: list[Tree]) -> Node:
    """split(a, separator): in Spark the separator is a pattern, so only plain text without pattern marks is taken."""
    separator = constant_text(compiler, trees[1], "the separator of split")
    plain = separator[1:] if separator.startswith("\\") and not separator[1:].isalnum() else separator
    if (
        not plain
        or (plain == separator and set(plain) & set(".$|()[{^?*+\\"))
        or (plain != separator and len(plain) > 1)
    ):
        msg = f"split by the pattern {separator!r} has no exact counterpart; use map or map_batches"
        raise Refused(msg)
    return call("split", PIECES, text(compiler, trees[0], "split"), settings=(plain,))


@function("split_part", least=3)
def split_part_(compiler: Compiler, trees: list[Tree]) -> Node:
    """split_part(a, separator, n): the n-th piece, from the end where n is negative, empty where there is none."""
    separator = constant_text(compiler, trees[1], "the separator of split_part")
    number = constant_count(compiler, trees[2], "the number of split_part")
    if not number or not separator:
        msg = f"split_part by {separator!r} asks for piece {number}; pieces are counted from 1, or from the end from -1"
        raise Refused(msg)
    pieces = call("split", PIECES, text(compiler, trees[0], "split_part"), settings=(separator,))
    return Call("element_or", (pieces,), TEXT, True, (number - (number > 0), ""))


@function("size", "cardinality", "array_size")
def size_(compiler: Compiler, trees: list[Tree]) -> Node:
    """Elements of a list."""
    node = compiler.node(trees[0])
    require(pt.is_list(node.type), "size", node)
    return call("size", pa.int32(), node)


@function("get", least=2)
def get_(compiler: Compiler, trees: list[Tree]) -> Node:
    """get(list, i), counted from 0: null where there is none."""
    return _element(compiler, "get", trees[0], constant_count(compiler, trees[1], "the index of get"), safe=True)


@function("element_at", least=2)
def element_at_(compiler: Compiler, trees: list[Tree]) -> Node:
    """element_at(list, i), counted from 1; there must be one."""
    index = constant_count(compiler, trees[1], "the index of element_at")
    if index < 1:
        msg = f"element_at({index}) has no exact counterpart; count from 1, or use map or map_batches"
        raise Refused(msg)
    return _element(compiler, "element_at", trees[0], index - 1, safe=False)


def _bracket(compiler: Compiler, tree: Tree) -> Node:
    """list[i], counted from 0; there must be one. struct['name'] as well."""
    inner = compiler.node(tree.this)
    if len(tree.expressions) == 1 and pt.is_struct(inner.type):
        return compiler.field(inner, constant_text(compiler, tree.expressions[0], "the name of a field"))
    index = constant_count(compiler, tree.expressions[0], "an index in brackets")
    if index < 0 or len(tree.expressions) != 1:
        msg = f"[{index}] asks before the first element, which is [0]"
        raise Refused(msg)
    return _element(compiler, "[...]", tree.this, index, safe=False)


def _element(compiler: Compiler, name: str, tree: Tree, index: int, *, safe: bool) -> Node:
    node = compiler.node(tree)
    require(pt.is_list(node.type), name, node)
    kind = node.type.value_type
    if safe:
        index = index if index >= 0 else 2**31 - 1
        return Call("element_or", (node,), kind, True, (index, None))
    return Call("element", (node,), kind, True, (index,))


# -- patterns ----------------------------------------------------------------------------------------------------------


def _like(compiler: Compiler, tree: Tree, escape: str = "\\") -> Node:
    """LIKE and ILIKE."""
    node = text(compiler, tree.this, "LIKE")
    given = tree.expression
    if isinstance(given, exp.Literal | exp.Paren | exp.Cast | exp.Anonymous | exp.Column | exp.Null):
        pattern = constant_text(compiler, given, "the pattern of LIKE")
    else:
        msg = f"LIKE {given.sql()[:40]} has no exact counterpart; use or between several"
        raise Refused(msg)
    if isinstance(tree, exp.ILike):
        node, pattern = call("lower", TEXT, node), pattern.lower()
    try:
        return call("matches", BOOL, node, settings=(like(pattern, escape),))
    except Unlike as error:
        raise Refused(str(error)) from error


def _escaped(compiler: Compiler, tree: Tree) -> Node:
    """LIKE ... ESCAPE."""
    escape = constant_text(compiler, tree.expression, "the escape of LIKE")
    found = _like(compiler, tree.this, escape)
    return compiler.inverted(found) if tree.this.args.get("negate") else found


def _matched(compiler: Compiler, value: Tree, pattern: Tree, name: str) -> Node:
    node = text(compiler, value, name)
    given = constant_text(compiler, pattern, f"the pattern of {name}")
    try:
        return call("matches", BOOL, node, settings=(translated(given).found(),))
    except Unlike as error:
        raise _refused(given, error, name) from error


def _refused(pattern: str, why: object, name: str = "regexp_replace") -> Refused:
    return Refused(f"{name} with the pattern {pattern!r}: {why}; use map or map_batches")


@function("regexp_like", "regexp", "rlike", least=2)
def regexp_like_(compiler: Compiler, trees: list[Tree]) -> Node:
    """Whether a pattern is found."""
    return _matched(compiler, trees[0], trees[1], "rlike")


@function("regexp_extract", least=2, most=3)
def regexp_extract_(compiler: Compiler, trees: list[Tree]) -> Node:
    """regexp_extract(a, pattern, group): the first match, or empty."""
    node = text(compiler, trees[0], "regexp_extract")
    pattern = constant_text(compiler, trees[1], "the pattern of regexp_extract")
    group = constant_count(compiler, trees[2], "the group of regexp_extract") if len(trees) > 2 else 1
    try:
        return call("extract", TEXT, node, settings=(translated(pattern, group).found(),))
    except Unlike as error:
        raise _refused(pattern, error, "regexp_extract") from error


@function("regexp_replace", least=3)
def regexp_replace_(compiler: Compiler, trees: list[Tree]) -> Node:
    """regexp_replace(a, pattern, by); patterns with empty matches are refused, for Java and RE2 replace them unlike."""
    node = text(compiler, trees[0], "regexp_replace")
    pattern = constant_text(compiler, trees[1], "the pattern of regexp_replace")
    by = constant_text(compiler, trees[2], "what regexp_replace puts in")
    try:
        found = translated(pattern)
    except Unlike as error:
        raise _refused(pattern, error) from error
    if found.at_end or "$" in by or "\\" in by or _matches_nothing(found.body):
        why = "an end, a group in the replacement and an empty match mean something else in Java"
        raise _refused(pattern, why)
    return call("replace_pattern", TEXT, node, settings=(found.body, by))


def _matches_nothing(body: str) -> bool:
    try:
        return bool(pc.match_substring_regex(pa.array([""]), body)[0].as_py())
    except pa.ArrowInvalid as error:
        raise _refused(body, error) from error


FORMS[exp.Substring] = _substring
FORMS[exp.Trim] = _trim
FORMS[exp.Bracket] = _bracket
FORMS[exp.Like] = _like
FORMS[exp.ILike] = _like
FORMS[exp.Escape] = _escaped
FORMS[exp.RegexpLike] = lambda compiler, tree: _matched(compiler, tree.this, tree.expression, "rlike")
FORMS[exp.DPipe] = lambda compiler, tree: concat_(compiler, [tree.this, tree.expression])
FORMS[exp.Dot] = lambda compiler, tree: compiler.field(compiler.node(tree.this), tree.expression.name)
