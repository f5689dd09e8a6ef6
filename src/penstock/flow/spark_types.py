"""PySpark's type objects (`StructType`, `LongType()`, ...) as Arrow types, recognised without importing pyspark.

A type is recognised by its attributes (`fields`, `elementType`, `keyType`, `simpleString`), so topologies can be built
where pyspark is not installed (`test_rooms_import_only_what_the_map_allows`). Types without parts are read from their
DDL name.

Columns keep NOT NULL. Parts of nested values may all be null: Spark itself forgets their NOT NULL when it writes and
reads files, and a function that builds `pa.array([[1]])` need not declare it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import InvalidInput

NESTING_MAX = 32
LONE_COLUMN = "value"  # as Spark calls the column of a DataFrame that was made with a lone type

ParseType = Callable[[str], pa.DataType]  # the Arrow type of a DDL name


class SparkType(Protocol):
    """What every `pyspark.sql.types.DataType` offers."""

    def simpleString(self) -> str:
        """The type as DDL."""


Schema = str | pa.Schema | SparkType  # what users may give as a schema


def is_spark_type(given: object) -> bool:
    """Whether this looks like a type of PySpark's, or like the class of one."""
    return hasattr(given, "fields") or hasattr(given, "simpleString")


def spark_fields(given: object, parse: ParseType) -> list[pa.Field]:
    """The columns of a StructType; any other type is one column called `value`."""
    if isinstance(given, type):
        msg = f"schema is the class {given.__name__}; give an object of it, such as {given.__name__}()"
        raise InvalidInput(msg)
    fields = getattr(given, "fields", None)
    if fields is None:
        return [pa.field(LONE_COLUMN, _arrow_type(given, parse, 0))]
    if not fields:
        msg = f"schema is {given!r}, which has no columns; give at least one"
        raise InvalidInput(msg)
    return [pa.field(f.name, _arrow_type(f.dataType, parse, 0), f.nullable) for f in fields]


def _arrow_type(kind: Any, parse: ParseType, depth: int) -> pa.DataType:  # noqa: ANN401 - pyspark is not known here
    if depth > NESTING_MAX:
        msg = f"schema nests types more than {NESTING_MAX} deep"
        raise InvalidInput(msg)
    if hasattr(kind, "fields"):
        return pa.struct(_parts(kind.fields, parse, depth + 1))
    if hasattr(kind, "elementType"):
        return pa.list_(_arrow_type(kind.elementType, parse, depth + 1))
    if hasattr(kind, "keyType"):
        return pa.map_(_arrow_type(kind.keyType, parse, depth + 1), _arrow_type(kind.valueType, parse, depth + 1))
    return parse(kind.simpleString())


def _parts(fields: Iterable[Any], parse: ParseType, depth: int) -> list[pa.Field]:
    return [pa.field(field.name, _arrow_type(field.dataType, parse, depth)) for field in fields]
