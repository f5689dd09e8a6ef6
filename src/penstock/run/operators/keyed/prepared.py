"""Aggregates whose arguments are computed first: expressions, FILTER, distinct values, and pairs for min_by and max_by.

Each argument that is more than a column becomes a computed column, null where a row does not count; the core's plain
keyed aggregate does the rest. So windows, changes, running values and state need no code of their own here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import Aggregate, column_type, output_schema, plain_column
from penstock.run.columns.distinct import DistinctRows
from penstock.run.columns.expressions.compiled import Compiled
from penstock.run.columns.kernels import KeyedAggregate
from penstock.run.columns.unwritten import ArrowRows, Several, State
from penstock.run.contract import Owns
from penstock.run.operators.convert import from_bytes, own_rows


@dataclass(frozen=True, slots=True)
class Argument:
    """A column that is computed for an aggregate: one expression, or two as a pair (value, what it is chosen by)."""

    name: str
    parts: tuple[Compiled, ...]
    distinct: bool = False  # of rows with the same key and value only the first counts

    @property
    def field(self) -> pa.Field:
        """The column as the aggregate sees it."""
        if len(self.parts) == 1:
            return pa.field(self.name, self.parts[0].type)
        value, by = self.parts
        return pa.field(self.name, pa.struct([pa.field("value", value.type), pa.field("by", by.type)]))

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """The values for a batch."""
        made = [part.evaluate(batch) for part in self.parts]
        return made[0] if len(made) == 1 else pa.StructArray.from_arrays(made, fields=list(self.field.type))


class PreparedFold:
    """A factory of `PreparedAggregate`, as data that travels."""

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate], arguments: Sequence[Argument]
    ) -> None:
        self.keys = tuple(keys)
        self.aggregates = tuple(aggregates)
        self.arguments = tuple(arguments)
        made = {argument.name: argument.field for argument in arguments}
        wanted = [a.column for a in aggregates if a.column is not None and a.column not in made]
        self.columns = tuple(dict.fromkeys([*self.keys, *wanted]))
        self.schema = pa.schema([*_plain_fields(schema, self.columns), *made.values()])
        self.output_schema = output_schema(self.schema, keys, aggregates)

    def __call__(self) -> PreparedAggregate:
        """A fresh one."""
        return PreparedAggregate(self)


def _plain_fields(schema: pa.Schema, columns: Sequence[str]) -> list[pa.Field]:
    return [pa.field(name, column_type(schema, name, "aggregate"), schema.field(name).nullable) for name in columns]


class PreparedAggregate:
    """A keyed aggregate behind the computation of its arguments."""

    def __init__(self, fold: PreparedFold) -> None:
        self.fold = fold
        self.output_schema = fold.output_schema
        self.inner = KeyedAggregate(fold.schema, fold.keys, fold.aggregates)
        self.seen = {
            argument.name: DistinctRows(pa.schema([*list(fold.schema)[: len(fold.keys)], argument.field]))
            for argument in fold.arguments
            if argument.distinct
        }

    def _prepared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        fold = self.fold
        columns = [plain_column(batch.column(name)) for name in fold.columns]
        keys = columns[: len(fold.keys)]
        for argument in fold.arguments:
            column = argument.column(batch)
            if argument.distinct:
                seen = self.seen[argument.name]
                rows = pa.RecordBatch.from_arrays([*keys, column], schema=seen.schema)
                column = pc.if_else(seen.first_seen(rows), column, pa.scalar(None, column.type))
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=fold.schema)

    def update(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        self.inner.update(self._prepared(batch))

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take rows in and give the value after each."""
        return self.inner.update_each(self._prepared(batch))

    def changed(self) -> pa.RecordBatch:
        """Keys touched since this was last asked."""
        return self.inner.changed()

    def rows(self) -> pa.RecordBatch:
        """All keys."""
        return self.inner.rows()

    def take_state(self) -> State:
        """The aggregate's state and the distinct values."""
        return Several([self.inner.take_state(), *(ArrowRows([s.rows()], s.schema) for s in self.seen.values())])

    def put_state(self, state: bytes) -> None:
        """Continue."""
        inner, *values = self._parts(state)
        self.inner.put_state(inner)
        self.seen = PreparedAggregate(self.fold).seen
        for seen, data in zip(self.seen.values(), values, strict=True):
            for batch in from_bytes(data):
                seen.first_seen(batch)

    def put_states(self, states: Sequence[bytes], owns: Owns) -> None:
        """Continue from the keys that are ours, of several states."""
        parts = [self._parts(state) for state in states]
        self.inner.put_states([inner for inner, *_ in parts], owns)
        self.seen = PreparedAggregate(self.fold).seen
        for i, seen in enumerate(self.seen.values(), 1):
            for batch in own_rows([part[i] for part in parts], self.fold.keys, owns):
                seen.first_seen(batch)

    def _parts(self, state: bytes) -> list[bytes]:
        """What `Several` put together."""
        head, _, rest = state.partition(b"\n")
        try:
            sizes = [int(size) for size in json.loads(head)]
        except (ValueError, TypeError) as error:  # that of an aggregate without arguments to compute
            msg = f"aggregate state of {len(state)} bytes does not begin with the sizes of its parts"
            raise InvalidInput(msg) from error
        if len(sizes) != 1 + len(self.seen) or sum(sizes) != len(rest):
            msg = f"aggregate state has parts of {sizes} bytes and {len(rest)} in all; it is another aggregate's"
            raise InvalidInput(msg)
        ends = list(accumulate(sizes))
        return [rest[end - size : end] for size, end in zip(sizes, ends, strict=True)]
