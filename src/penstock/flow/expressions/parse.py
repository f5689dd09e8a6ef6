"""From text to sqlglot's tree, with errors that show the place.

Functions stay calls by name. By default sqlglot turns many functions into forms made for translation between dialects,
and these lose details that Spark's rules need.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, ClassVar

import sqlglot
from sqlglot import expressions as exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from penstock.errors import InvalidInput

TEXT_MAX = 10_000
_NUMERAL = "numeral"
_KEPT = ("CAST", "TRY_CAST", "TRIM", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR")


Tree = Any  # sqlglot's types do not say which arguments a node has


class _Names(Spark):
    """Spark's dialect with functions as plain calls."""

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        """Casts are strict, as in ANSI mode."""

        STRICT_CAST = True
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: Spark.Parser.FUNCTION_PARSERS[name] for name in _KEPT}


def parse(text: object, who: str) -> Tree:
    """The tree of one expression."""
    if not isinstance(text, str) or not text.strip():
        msg = f"{who} got {text!r}; give an expression in Spark SQL as text, such as 'price * 2 as double_price'"
        raise InvalidInput(msg)
    if len(text) > TEXT_MAX:
        msg = f"{who} got an expression of {len(text)} characters; the limit is {TEXT_MAX}"
        raise InvalidInput(msg)
    try:
        tree = sqlglot.parse_one(text, read=_Names)
    except RecursionError:
        msg = f"{who}: {text[:60]!r}... nests too deep; split it over several with_column"
        raise InvalidInput(msg) from None
    except SqlglotError as error:
        msg = f"{who}: {text!r} is no Spark SQL expression: {_place(error, text)}"
        raise InvalidInput(msg) from error
    if "::" not in text:  # the parser makes the same cast of 3L and of 3::bigint, but another of cast(3 as bigint)
        for numeral in tree.find_all(exp.Cast):
            numeral.meta[_NUMERAL] = isinstance(numeral.this, exp.Literal) and "safe" not in numeral.args
    return tree


def is_numeral(tree: Tree) -> bool:
    """Whether a cast is how a number with a letter was read, such as 3L or 1.5D."""
    return isinstance(tree, exp.Cast) and bool(tree.meta.get(_NUMERAL))


def _place(error: SqlglotError, text: str) -> str:
    found = (getattr(error, "errors", None) or [{}])[0]
    if not found.get("highlight"):
        return str(error).splitlines()[0]
    description = str(found["description"])
    if description.startswith("Required keyword"):
        description = "an operand is missing"
    column = text.find(found["highlight"], max(0, len(found.get("start_context") or "") - 1))
    at = "" if column < 0 else f" at position {column + 1}"
    return f"{description}, found {found['highlight']!r}{at}"


def unknown_column(name: str, known: list[str], at: int | None) -> str:
    """The error text for a column that does not exist."""
    near = get_close_matches(name, known, n=3)
    place = "" if at is None else f" at position {at + 1}"
    hint = f"did you mean {' or '.join(near)}?" if near else f"the columns are {', '.join(known) or 'none'}"
    return f"there is no column {name!r}{place}; {hint}"
