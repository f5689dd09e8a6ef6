"""Aggregates as users write them, in Spark SQL: `sum(price * 2)`, `count(distinct bidder) filter (where price > 10)`.

A plain `function(column)` goes to the core as it is. Any other argument becomes a column that is computed first (see
`run/operators/keyed/prepared`). FILTER makes the argument null on rows that do not count, because aggregates skip
nulls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import OPS, Op
from penstock.run.columns.kernels import Aggregate
from penstock.run.operators.keyed.prepared import Argument, PreparedFold
from penstock.run.operators.keyed.unwindowed import AggregateFold

_SIMPLE = re.compile(r"\s*(\w+)\s*\(\s*(?:(\*)|`([^`]+)`|(\w+))?\s*\)\s*", re.ASCII)
_SAME = {"mean": "avg"}
FUNCTIONS = (*OPS, "count_if")
Parsed = tuple[Aggregate, Argument | None]


def aggregate_fold(schema: pa.Schema, keys: Sequence[str], columns: Mapping[str, str]) -> AggregateFold | PreparedFold:
    """The fold that computes these aggregates over rows of a schema."""
    parsed = [parse_aggregate(name, text, schema) for name, text in columns.items()]
    aggregates = [aggregate for aggregate, _ in parsed]
    arguments = [argument for _, argument in parsed if argument is not None]
    return PreparedFold(schema, keys, aggregates, arguments) if arguments else AggregateFold(schema, keys, aggregates)


def columns_read(schema: pa.Schema, keys: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that these aggregates and their keys are made of."""
    found = dict.fromkeys(keys)
    for name, text in columns.items():
        aggregate, argument = parse_aggregate(name, text, schema)
        if argument is not None:
            found |= dict.fromkeys(column for part in argument.parts for column in part.columns())
        elif aggregate.column is not None:
            found[aggregate.column] = None
    return tuple(found)


def parse_aggregate(name: str, text: str, schema: pa.Schema) -> Parsed:
    """An aggregate from "sum(fare)" or "count(*)", and the column that has to be computed for it, if any."""
    match = _SIMPLE.fullmatch(text) if isinstance(text, str) else None
    column = match and (match.group(3) or match.group(4))
    if match and match.group(1).lower() != "count_if" and (match.group(2) or column in schema.names or not column):
        return Aggregate(operation_of(name, text, match.group(1), OPS), column, name), None
    who = f"aggregate {name}={text!r}"
    if not isinstance(text, str) or "(" not in text:
        msg = f"{who}; write function(column), such as {name}='sum(fare)' or {name}='count(*)'"
        raise InvalidInput(msg)
    from penstock.flow.expressions.aggregate import parse_call

    return parse_call(name, text, schema)


def operation_of(name: str, text: str, given: str, known: Sequence[str]) -> Op:
    """The function's name, or an error with those there are."""
    op = _SAME.get(given.lower(), given.lower())
    if op not in known:
        error = InvalidInput.unknown_name(f"function in aggregate {name}={text!r}:", op, FUNCTIONS)
        raise error
    return cast("Op", op)
