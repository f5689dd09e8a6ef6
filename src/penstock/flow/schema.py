"""Schemas as Spark DDL strings ("word string, count bigint") or PySpark's types, read without a JVM.

    >>> parse_schema("word string not null, tags array<string>").names
    ['word', 'tags']

A topology is checked when it is built, often before any Spark session exists, so PySpark's own parser (which asks the
JVM) will not do. The grammar is Spark's: `name type [NOT NULL] [COMMENT 'text']`, a colon allowed after the name,
backticks around odd names, and the types that have an Arrow counterpart. Timestamps are microseconds in UTC, as in
Spark. `timestamp` means the type with a zone; `spark.sql.timestampType` is not asked, for there may be no session.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.spark_types import NESTING_MAX, Schema, is_spark_type, spark_fields

COLUMNS_MAX = 2000

_SIMPLE: dict[str, pa.DataType] = {
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[^\W\d]\w*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)|(?P<text>'[^']*')|(?P<mark>[<>(),:]))"
)


def parse_schema(given: Schema) -> pa.Schema:
    """An Arrow schema from a DDL string or a PySpark type; an Arrow schema passes through."""
    if isinstance(given, pa.Schema):
        return given
    if isinstance(given, str) and given.strip():
        fields = _Parser(given).fields(end="")
    elif is_spark_type(given):
        fields = spark_fields(given, _parse_type)
    else:
        msg = f"schema is {given!r}; give a DDL string such as 'word string, count bigint', or a StructType"
        raise InvalidInput(msg)
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            msg = f"schema {given!r} names column {name!r} twice"
            raise InvalidInput(msg)
    return pa.schema(fields)


def _parse_type(ddl: str) -> pa.DataType:
    """The Arrow type of a DDL name such as 'decimal(10,2)'."""
    (field,) = _Parser(f"value {ddl}").fields(end="")
    return field.type


def to_ddl(schema: pa.Schema) -> str:
    """The DDL string of an Arrow schema, which Spark and `parse_schema` both read."""
    return ", ".join(
        f"{quoted_name(field.name)} {type_name(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in schema
    )


def quoted_name(name: str) -> str:
    """A name that may hold anything, as SQL writes it."""
    return f"`{name.replace('`', '``')}`"


def type_name(kind: pa.DataType) -> str:
    """Spark's name of an Arrow type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        inner = ", ".join(f"{quoted_name(field.name)}: {type_name(field.type)}" for field in kind)
        return f"struct<{inner}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return "string" if pa.types.is_large_string(kind) else "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for name, simple in _SIMPLE.items():
        if simple == kind:
            return name
    msg = f"Arrow type {kind} has no Spark counterpart; use one of {', '.join(_SIMPLE)}, decimal, array, map, struct"
    raise InvalidInput(msg)


class _Parser:
    """Recursive descent over the tokens of one DDL string."""

    def __init__(self, ddl: str) -> None:
        self.ddl = ddl
        self.tokens: list[tuple[str, str]] = []
        at = 0
        end = len(ddl.rstrip())
        while at < end:
            match = _TOKEN.match(ddl, at)
            if match is None:
                msg = f"unexpected {ddl[at:].strip()[:10]!r} at position {at}"
                raise self._error(msg)
            kind = str(match.lastgroup)
            self.tokens.append((kind, match.group(kind).replace("``", "`")))
            at = match.end()
        self.at = 0
        self.depth = 0

    def fields(self, end: str) -> list[pa.Field]:
        """Comma-separated fields up to the closing mark."""
        found = [self._field()]
        while self._accept(","):
            found.append(self._field())
            if len(found) > COLUMNS_MAX:
                msg = f"has more than {COLUMNS_MAX} columns"
                raise self._error(msg)
        if end:
            self._expect(end)
        elif self.at < len(self.tokens):
            msg = f"unexpected {self.tokens[self.at][1]!r}"
            raise self._error(msg)
        return found

    def _field(self) -> pa.Field:
        kind, name = self._next("a column name")
        if kind not in {"word", "quoted"}:
            msg = f"expected a column name but found {name!r}"
            raise self._error(msg)
        self._accept(":")
        data_type = self._type()
        nullable = not (self._accept("not") and self._accept("null"))
        if self._accept("comment"):
            self._next("a comment")
        return pa.field(name, data_type, nullable)

    def _type(self) -> pa.DataType:
        _, word = self._next("a type")
        name = word.lower()
        self.depth += 1
        if self.depth > NESTING_MAX:
            msg = f"nests types more than {NESTING_MAX} deep"
            raise self._error(msg)
        try:
            return (
                self._nested(name)
                if name in {"array", "map", "struct", "decimal", "dec", "numeric"}
                else self._simple(name)
            )
        finally:
            self.depth -= 1

    def _simple(self, name: str) -> pa.DataType:
        if name in {"varchar", "char"}:
            self._numbers()
            return pa.string()
        if name not in _SIMPLE:
            msg = f"unknown type {name!r}; known: {', '.join(_SIMPLE)}, decimal, array, map, struct"
            raise self._error(msg)
        return _SIMPLE[name]

    def _nested(self, name: str) -> pa.DataType:
        if name == "array":
            self._expect("<")
            item = self._type()
            self._expect(">")
            return pa.list_(item)
        if name == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            item = self._type()
            self._expect(">")
            return pa.map_(key, item)
        if name == "struct":
            self._expect("<")
            return pa.struct(self.fields(end=">"))
        numbers = self._numbers() or [10, 0]
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            msg = f"decimal({precision}, {scale}) is out of range; precision is 1 to 38 and scale at most precision"
            raise self._error(msg)
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        found: list[int] = []
        if self._accept("("):
            while not self._accept(")"):
                _, text = self._next("a number")
                if not text.isdigit():
                    msg = f"expected a number but found {text!r}"
                    raise self._error(msg)
                found.append(int(text))
                self._accept(",")
        return found

    def _next(self, wanted: str) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            msg = f"ends where {wanted} should follow"
            raise self._error(msg)
        self.at += 1
        return self.tokens[self.at - 1]

    def _accept(self, text: str) -> bool:
        if (
            self.at < len(self.tokens)
            and self.tokens[self.at][0] != "quoted"
            and self.tokens[self.at][1].lower() == text
        ):
            self.at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            found = self.tokens[self.at][1] if self.at < len(self.tokens) else "the end"
            msg = f"expected {text!r} but found {found!r}"
            raise self._error(msg)

    def _error(self, what: str) -> InvalidInput:
        return InvalidInput(f"schema {self.ddl!r}: {what}")


def require_columns(schema: pa.Schema, columns: Sequence[str], who: str) -> None:
    """Raise InvalidInput when a column is not there, naming those that are."""
    for column in columns:
        if column not in schema.names:
            msg = f"{who} names column {column!r} but the stream has {', '.join(schema.names)}"
            raise InvalidInput(msg)
