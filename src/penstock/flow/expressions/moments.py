"""Functions of dates and times, all in UTC: parts, beginnings of units, and sums with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import expressions as exp

from penstock.flow.expressions.build import Refused, call, cast
from penstock.flow.expressions.functions import FORMS, function, require
from penstock.flow.expressions.parse import Tree
from penstock.flow.expressions.types import TIMESTAMP, is_whole
from penstock.run.columns.expressions.nodes import Node

if TYPE_CHECKING:
    from penstock.flow.expressions.compiler import Compiler

DATE = pa.date32()
DAY_US = 86_400_000_000
UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": DAY_US,
    "week": 7 * DAY_US,
}
# Spark's names of units, and Arrow's.
_TRUNCATED = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DATE_PARTS = ("year", "quarter", "month", "day", "dayofyear", "dayofweek", "weekday", "weekofyear")
_TIME_PARTS = ("hour", "minute", "second")


def moment(compiler: Compiler, tree: Tree | None, name: str) -> Node:
    """An argument that is a date or a time."""
    node = compiler.node(tree)
    require(pt.is_timestamp(node.type) or pt.is_date(node.type), name, node)
    return node


def _part(part: str, *spark_names: str) -> None:
    @function(*spark_names)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        node = moment(compiler, trees[0], part)
        if part in _TIME_PARTS and pt.is_date(node.type):
            node = cast(node, TIMESTAMP)
        return call("time_part", pa.int32(), node, settings=(part,))


for _name in (*_DATE_PARTS, *_TIME_PARTS):
    _part(_name, *((_name, "dayofmonth") if _name == "day" else (_name,)))


def _extract(compiler: Compiler, tree: Tree) -> Node:
    """extract(part FROM a)."""
    part = str(tree.this.name).lower()
    if part not in {*_DATE_PARTS, "hour", "minute"}:
        msg = f"extract({part}) has no exact counterpart; use map or map_batches"
        raise Refused(msg)
    return compiler.node(exp.Anonymous(this=part, expressions=[tree.expression]))


@function("date_trunc", least=2)
def date_trunc_(compiler: Compiler, trees: list[Tree]) -> Node:
    """date_trunc('hour', a)."""
    unit = str(compiler.constant(trees[0], pa.string(), "the unit of date_trunc")).lower()
    node = moment(compiler, trees[1], "date_trunc")
    if unit not in _TRUNCATED:
        msg = f"date_trunc knows no unit {unit!r}; known: {', '.join(_TRUNCATED)}"
        raise Refused(msg)
    node = node if node.type == TIMESTAMP else cast(node, TIMESTAMP)  # what Spark makes of any; the cast refuses ntz
    return _nullable_floor(node, _TRUNCATED[unit], node.type)


@function("trunc", least=2)
def trunc_(compiler: Compiler, trees: list[Tree]) -> Node:
    """trunc(date, 'month')."""
    unit = str(compiler.constant(trees[1], pa.string(), "the unit of trunc")).lower()
    node = cast(moment(compiler, trees[0], "trunc"), DATE)
    if _TRUNCATED.get(unit) not in {"year", "quarter", "month", "week"}:
        msg = f"trunc knows no unit {unit!r}; known: year, quarter, month, week"
        raise Refused(msg)
    return _nullable_floor(node, _TRUNCATED[unit], DATE)


def _nullable_floor(node: Node, unit: str, kind: pa.DataType) -> Node:
    from penstock.run.columns.expressions.nodes import Call

    return Call("time_floor", (node,), kind, True, (unit,))  # nullable, because Spark gives null for an unknown unit


def _count_since(name: str, unit_us: int) -> None:
    @function(name)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        node = compiler.node(trees[0])
        require(node.type == TIMESTAMP, name, node)
        return call("time_to_seconds", pa.int64(), node, settings=(unit_us,))


def _since(name: str, unit_us: int) -> None:
    @function(name)
    def build(compiler: Compiler, trees: list[Tree]) -> Node:
        node = compiler.node(trees[0])
        require(is_whole(node.type), name, node)
        return call("seconds_to_time", TIMESTAMP, node, settings=(unit_us,))


for _name, _us in (("seconds", 1_000_000), ("millis", 1_000), ("micros", 1)):
    _count_since(f"unix_{_name}", _us)
    _since(f"timestamp_{_name}", _us)


@function("unix_timestamp", "to_unix_timestamp")
def unix_timestamp_(compiler: Compiler, trees: list[Tree]) -> Node:
    """unix_timestamp(a): rounded towards 1970, where unix_seconds rounds down."""
    node = compiler.node(trees[0])
    require(node.type == TIMESTAMP, "unix_timestamp", node)
    return call("time_to_seconds_towards_zero", pa.int64(), node)


@function("to_date")
def to_date_(compiler: Compiler, trees: list[Tree]) -> Node:
    """to_date(a)."""
    return cast(compiler.node(trees[0]), DATE)


@function("to_timestamp")
def to_timestamp_(compiler: Compiler, trees: list[Tree]) -> Node:
    """to_timestamp(a)."""
    return cast(compiler.node(trees[0]), TIMESTAMP)


@function("date_add", "dateadd", least=2)
def date_add_(compiler: Compiler, trees: list[Tree]) -> Node:
    """date_add(a, days)."""
    days = compiler.node(trees[1])
    require(is_whole(days.type) and days.type != pa.int64(), "date_add", days)
    return call("date_shift", DATE, cast(moment(compiler, trees[0], "date_add"), DATE), cast(days, pa.int32()))


@function("date_sub", least=2)
def date_sub_(compiler: Compiler, trees: list[Tree]) -> Node:
    """date_sub(a, days)."""
    days = compiler.node(trees[1])
    require(is_whole(days.type) and days.type != pa.int64(), "date_sub", days)
    back = call("negate", pa.int32(), cast(days, pa.int32()))
    return call("date_shift", DATE, cast(moment(compiler, trees[0], "date_sub"), DATE), back)


@function("datediff", "date_diff", least=2)
def datediff_(compiler: Compiler, trees: list[Tree]) -> Node:
    """datediff(late, early), in days."""
    late, early = (cast(moment(compiler, tree, "datediff"), DATE) for tree in trees)
    return call("days_between", pa.int32(), late, early)


@function("date_format", least=2)
def date_format_(compiler: Compiler, trees: list[Tree]) -> Node:
    """date_format(a, 'yyyy-MM-dd HH:mm:ss'): these letters, with marks between them."""
    pattern = str(compiler.constant(trees[1], pa.string(), "the pattern of date_format"))
    made, at = "", 0
    while at < len(pattern):
        run = next((letters for letters in _LETTERS if pattern.startswith(letters, at)), pattern[at])
        longer = pattern[at + len(run) : at + len(run) + 1] == run[0]
        if (run not in _LETTERS and (run.isalpha() or run in "'[]%#{}")) or (run in _LETTERS and longer):
            msg = f"date_format by {pattern!r} has no exact counterpart; write {', '.join(_LETTERS)}, or use map"
            raise Refused(msg)
        made += _LETTERS.get(run, run)
        at += len(run)
    node = moment(compiler, trees[0], "date_format")
    return call("format", pa.string(), node, settings=(made,))


# -- intervals ---------------------------------------------------------------------------------------------------------


def shifted(compiler: Compiler, tree: Tree) -> Node | None:
    """`a + interval 5 minutes` and a date plus days; None where neither side is a time or an interval."""
    a, b = tree.this, tree.expression
    if isinstance(a, exp.Interval) and isinstance(tree, exp.Add):
        a, b = b, a
    back = -1 if isinstance(tree, exp.Sub) else 1
    if isinstance(b, exp.Interval):
        return _moved(moment(compiler, a, "an interval added to"), back * interval_us(b))
    node = compiler.node(a)
    if pt.is_date(node.type) and not isinstance(b, exp.Column | exp.Cast):
        days = compiler.node(b)
        if is_whole(days.type):
            return date_add_(compiler, [a, b]) if back > 0 else date_sub_(compiler, [a, b])
    return None


def _moved(node: Node, us: int) -> Node:
    if pt.is_timestamp(node.type):
        return call("time_shift", node.type, node, settings=(us,))
    if us % DAY_US:
        msg = "an interval shorter than a day added to a date: write a cast to timestamp"
        raise Refused(msg)
    from penstock.run.columns.expressions.nodes import Literal

    return call("date_shift", DATE, node, Literal(us // DAY_US, pa.int32()))


def interval_us(tree: Tree) -> int:
    """The length of an interval whose length is fixed."""
    unit = str(tree.args["unit"]).lower().removesuffix("s") if tree.args.get("unit") else ""
    number = str(tree.this.name if tree.this is not None else "")
    if unit not in UNITS_US or not number.lstrip("+-").isdigit():
        msg = f"{tree.sql()} has no exact counterpart; write a whole number of {', '.join(UNITS_US)}"
        raise Refused(msg)
    return int(number) * UNITS_US[unit]


FORMS[exp.Extract] = _extract
