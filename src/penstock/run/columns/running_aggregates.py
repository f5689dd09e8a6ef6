"""Running aggregates by key: native where types allow it, plain Python elsewhere, with the same answers from both.

The plain form takes over for nested keys, for min, max, first or last of 16-bit floats, intervals and nested values,
for decimals other than 128 bits, and for sums of unsigned 64-bit integers. Columns with dictionaries, run-end encodings
or views are made plain by pyarrow before they are taken in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import (
    OPS,
    PAIRED,
    TOUCHED,
    Aggregate,
    PlainAggregate,
    decoded,
    merged_states,
    output_schema,
    overflow,
    read_state,
    result_field,
    write_state,
)
from penstock.run.columns.native_schema import layout_of, plain_batch
from penstock.run.columns.unwritten import ArrowRows
from penstock.run.contract import Owns


class KeyedAggregate:
    """Running aggregates by key over batches of one schema.

    Keys come out in the order in which they came in; null is a key like any other. Not for use by two threads at once.
    After an error in `update` or `update_each` the values are partly updated: continue from an earlier state instead.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.schema = schema
        self.keys = tuple(keys)
        self.aggregates = tuple(aggregates)
        self.output_schema = output_schema(schema, self.keys, self.aggregates)
        used = dict.fromkeys([*self.keys, *(a.column for a in self.aggregates if a.column is not None)])
        self._plain_columns = tuple(used)
        self._encoded = any(decoded(schema.field(name).type) != schema.field(name).type for name in used)
        self._inner: _Native | PlainAggregate = self._choose()

    def _choose(self) -> _Native | PlainAggregate:
        schema = self.schema
        if self._encoded:
            schema = pa.schema([pa.field(name, decoded(schema.field(name).type)) for name in self._plain_columns])
        native = _Native.of(schema, self.keys, self.aggregates, self.output_schema)
        return PlainAggregate(schema, self.keys, self.aggregates) if native is None else native

    @property
    def native(self) -> bool:
        """Whether the native form is at work."""
        return isinstance(self._inner, _Native)

    def __len__(self) -> int:
        return len(self._inner)

    def clear(self) -> None:
        """Forget every key."""
        self._inner.clear()

    def update(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch in."""
        self._inner.update(self._input(batch))

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows in, and give each row's key with the running values after that row."""
        return self._inner.update_each(self._input(batch))

    def _input(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.schema.equals(self.schema):
            msg = f"keyed aggregate expects columns {_shown(self.schema)} but got {_shown(batch.schema)}"
            raise InvalidInput(msg)
        return plain_batch(batch, self._plain_columns) if self._encoded else batch

    def changed(self) -> pa.RecordBatch:
        """The keys touched since the last call, in the order in which they were touched first."""
        return self._inner.changed()

    def rows(self) -> pa.RecordBatch:
        """All keys, in the order in which they came."""
        return self._inner.rows()

    def take_state(self) -> ArrowRows:
        """The whole state, copied; the aggregate itself stays unchanged."""
        return self._inner.take_state()

    def put_state(self, state: bytes) -> None:
        """Continue from what `take_state` gave; what was known before is forgotten."""
        self._inner.put(self._inner.read(state))

    def put_states(self, states: Sequence[bytes], owns: Owns) -> None:
        """Continue from the keys that are ours, of several states."""
        keys = [f"key {i}" for i in range(len(self.keys))]
        batches = [self._inner.read(state) for state in states]
        self._inner.put(merged_states([batch.filter(pa.array(owns(batch, keys))) for batch in batches]))


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


class _Native:
    """The native form, over a schema without encodings."""

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate],
        output: pa.Schema,
        inner: _core.NativeAggregate,
    ) -> None:
        self._output = output
        self._aggregates = tuple(aggregates)
        self._inner = inner
        self._state_schema = _state_schema(schema, output, len(keys), self._aggregates)

    @classmethod
    def of(
        cls, schema: pa.Schema, keys: Sequence[str], aggregates: Sequence[Aggregate], output: pa.Schema
    ) -> _Native | None:
        """The native form, or None where a type has none."""
        layout = layout_of(schema).layout
        indices = [schema.get_field_index(key) for key in keys]
        specifications = [_specification(schema, aggregate) for aggregate in aggregates]
        if not _core.NativeAggregate.supports(layout, indices, specifications):
            return None
        return cls(schema, keys, aggregates, output, _core.NativeAggregate(layout, indices, specifications))

    def __len__(self) -> int:
        return len(self._inner)

    def clear(self) -> None:
        self._inner.clear()

    def update(self, batch: pa.RecordBatch) -> None:
        with self._fitting():
            self._inner.update(batch)

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        with self._fitting():
            return self._inner.update_each(batch, self._output)

    def changed(self) -> pa.RecordBatch:
        with self._fitting():
            return self._inner.changed(self._output)

    def rows(self) -> pa.RecordBatch:
        with self._fitting():
            return self._inner.rows(self._output)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Turns an overflow in the core into an error that names the aggregate."""
        try:
            yield
        except OverflowError as error:
            if not str(error).isdigit():
                msg = f"keyed aggregate: {error}"
                raise InvalidInput(msg) from error
            aggregate = self._aggregates[int(str(error))]
            raise overflow(aggregate, self._output.field(aggregate.name).type) from error

    def take_state(self) -> ArrowRows:
        return write_state(self._inner.state(self._state_schema), self._aggregates)

    def read(self, state: bytes) -> pa.RecordBatch:
        return read_state(state, self._state_schema, self._aggregates)

    def put(self, batch: pa.RecordBatch) -> None:
        if not self._inner.put_state(layout_of(self._state_schema).layout, batch):
            msg = f"keyed aggregate state of {batch.num_rows} keys names a key twice or miscounts changes"
            raise InvalidInput(msg)


def _specification(schema: pa.Schema, aggregate: Aggregate) -> tuple[int, int, int, int]:
    """Operation, column, digits of a decimal result, and the column's scale, as numbers."""
    if aggregate.column is None:
        return OPS.index(aggregate.op), -1, 0, 0
    kind = schema.field(aggregate.column).type
    column = schema.get_field_index(aggregate.column)
    if not pa.types.is_decimal(kind) or aggregate.op == "count":
        return OPS.index(aggregate.op), column, 0, 0
    return OPS.index(aggregate.op), column, result_field(aggregate, schema).type.precision, kind.scale


def _state_schema(schema: pa.Schema, output: pa.Schema, keys: int, aggregates: Sequence[Aggregate]) -> pa.Schema:
    """Keys, then value and count of every aggregate, then when the key was touched."""
    fields = [pa.field(f"key {i}", field.type) for i, field in enumerate(list(output)[:keys])]
    for i, aggregate in enumerate(aggregates):
        kind = output.field(aggregate.name).type
        if aggregate.op == "count":
            kind = pa.null()
        elif aggregate.op in PAIRED:
            kind = schema.field(aggregate.column).type
        elif aggregate.op in {"sum", "avg"} and pa.types.is_decimal(schema.field(aggregate.column).type):
            kind = pa.decimal128(38, schema.field(aggregate.column).type.scale)
        fields += [pa.field(f"value {i}", kind), pa.field(f"count {i}", pa.int64())]
    return pa.schema([*fields, pa.field(TOUCHED, pa.int64())])
