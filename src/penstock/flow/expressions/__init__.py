"""Spark SQL expressions as users write them: read by sqlglot, typed as Spark does, compiled to kernels over columns.

    >>> import pyarrow as pa
    >>> price = compile_expression("price * 0.908", pa.schema([("price", pa.int64())]), "select")
    >>> price.type
    Decimal128Type(decimal128(24, 3))

An expression that Arrow's functions cannot compute exactly as Spark does is refused, by name, when the topology is
written. The parser is imported with the first expression; workers and topologies without expressions do without it
(`test_the_compiled_form_travels_and_needs_no_parser`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns.expressions.compiled import Compiled


@dataclass(frozen=True, slots=True)
class Projected:
    """One column of a select: its field, and the column that it is or the expression that makes it."""

    field: pa.Field
    source: str | Compiled


def is_column(text: object, schema: pa.Schema) -> bool:
    """Whether a text is exactly the name of a column; a column's name need not be SQL."""
    return isinstance(text, str) and text in schema.names


def compile_expression(text: str, schema: pa.Schema, who: str) -> Compiled:
    """One expression without a name."""
    from penstock.flow.expressions import projection

    return projection.compile_expression(text, schema, who)


def compile_condition(text: str, schema: pa.Schema, who: str) -> Compiled:
    """An expression that is true, false or null."""
    from penstock.flow.expressions import projection

    return projection.compile_condition(text, schema, who)


def compile_projection(texts: Sequence[str], schema: pa.Schema, who: str) -> list[Projected]:
    """The columns of a select: names, `*`, and expressions with a name (`price * 2 as twice`)."""
    if all(is_column(text, schema) for text in texts):
        found = [Projected(schema.field(text), text) for text in texts]
    else:
        from penstock.flow.expressions import projection

        found = projection.projected(texts, schema, who)
    names = [column.field.name for column in found]
    if not names or len(set(names)) < len(names):
        msg = f"{who} names {', '.join(names) or 'no columns'}; name each column once, and at least one"
        raise InvalidInput(msg)
    return found
