"""Arrow schemas as the native kernels know them, made once per schema.

Exporting and parsing a schema costs more than routing a hundred rows. Hashing a schema costs 4 us, comparing two costs
30 ns when they share their fields, as the batches of one stream do. So the last few schemas are kept in a list and
compared with the one at hand. The list is a pure cache: each entry follows from its key.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import column_type, decoded

RECENT_MAX = 64
Made = TypeVar("Made")


class Recent(Generic[Made]):
    """The last few things that were made for a schema and some further arguments."""

    def __init__(self, make: Callable[..., Made]) -> None:
        self._make = make
        self._entries: list[tuple[pa.Schema, tuple[object, ...], Made]] = []

    def __call__(self, schema: pa.Schema, *rest: object) -> Made:
        """What was made for this schema and these arguments, made now if need be."""
        for i, entry in enumerate(self._entries):
            if entry[1] == rest and entry[0].equals(schema):
                if i > 1:  # an entry in use moves to the front; two that take turns may both stay where they are
                    self._entries = [entry, *self._entries[:i], *self._entries[i + 1 :]]
                return entry[2]
        made = self._make(schema, *rest)
        self._entries = [(schema, rest, made), *self._entries[: RECENT_MAX - 1]]
        return made


@dataclass(frozen=True, slots=True)
class Known:
    """A schema that the native kernels can read batches of."""

    layout: _core.Layout
    names: tuple[str, ...]  # interned: rows look columns up by identity
    readable: bool  # no unions, views and run-end encodings anywhere

    def reads(self, column: int) -> bool:
        """Whether the native kernels read this column."""
        return self.layout.readable(column)


def _known(schema: pa.Schema) -> Known:
    layout = _core.Layout(schema.__arrow_c_schema__())
    names = tuple(sys.intern(name) for name in schema.names)
    return Known(layout, names, all(layout.readable(column) for column in range(len(names))))


layout_of: Recent[Known] = Recent(_known)


def position(schema: pa.Schema, name: str, who: str) -> int:
    """The index of a column, or an error that names those there are."""
    column_type(schema, name, who)
    return int(schema.get_field_index(name))


def plain_batch(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Some columns without dictionaries, run-end encodings and views, by pyarrow."""
    fields, arrays = [], []
    for name in columns:
        column = batch.column(name)
        kind = decoded(column.type)
        fields.append(pa.field(name, kind))
        arrays.append(column if kind == column.type else column.cast(kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def take_rows(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """Rows by index, for columns that the native kernels do not copy."""
    columns = [_take(column, rows) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _take(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Rows by index; pyarrow cannot take from views and run-end encodings, so these are cast to plain and back."""
    kind = column.type
    if pa.types.is_run_end_encoded(kind):
        return pc.run_end_encode(_take(column.cast(kind.value_type), rows), run_end_type=kind.run_end_type)
    plain = kind if pa.types.is_dictionary(kind) else decoded(kind)
    return column.take(rows) if plain == kind else column.cast(plain).take(rows).cast(kind)


def require_readable(schema: pa.Schema, who: str) -> Known:
    """The layout of a plain schema, or an error that names the column that cannot be read."""
    known = layout_of(schema)
    for index, field in enumerate(schema):
        if not known.reads(index):
            msg = f"{who} cannot take column {field.name!r} of type {field.type}; cast it to a plain type first"
            raise InvalidInput(msg)
    return known
