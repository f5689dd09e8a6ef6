"""Between rows of Python and Arrow batches, and between batches and bytes.

Rows are dicts, tuples or anything that reads like a tuple; a schema says what they must become. A value that does not
fit is refused with its column and type instead of becoming null (`test_rows_that_do_not_fit_are_refused`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import key_of
from penstock.run.columns.kernels import Row
from penstock.run.contract import Owns
from penstock.run.transport.wire import open_image, write_image

VALUE_SHOWN_MAX = 80
_COMPARES_ITSELF = frozenset({str, int, bool, bytes, type(None), datetime, date, timedelta, Decimal})


def rows_to_batch(rows: Sequence[object], schema: pa.Schema) -> pa.RecordBatch:
    """One batch from rows: dicts by column name, tuples by position, a lone value where there is one column."""
    columns = _plain_columns(rows, schema.names)
    if columns is None:
        shaped = [_values(row, schema, schema.names) for row in rows]
        columns = list(zip(*shaped, strict=True)) or [()] * len(schema)
    arrays = [_column(values, field) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_bytes(row: Any) -> int:  # noqa: ANN401 - any value
    """About how many bytes a row takes: exact for text and bytes, also inside lists and dicts; 8 for other values."""
    kind = type(row)
    if kind is str or kind is bytes or kind is bytearray:
        return len(row)
    if kind is dict:
        return sum(map(row_bytes, row.values()))
    return sum(map(row_bytes, row)) if kind is tuple or kind is list or kind is Row else 8


def _plain_columns(rows: Sequence[object], names: Sequence[str]) -> list[Sequence[object]] | None:
    """Columns of rows that are all tuples, all dicts or all lone text, without a step for each row; else None."""
    kinds = set(map(type, rows))
    if kinds == {tuple}:
        tuples: Any = rows
        return list(zip(*tuples, strict=True)) if set(map(len, tuples)) == {len(names)} else None
    if kinds == {dict}:
        dicts: Any = rows
        if set(map(len, dicts)) != {len(names)} or any(name not in row for row in dicts for name in names):
            return None
        return [[row[name] for row in dicts] for name in names]
    return [rows] if kinds == {str} and len(names) == 1 else None


def _values(row: object, schema: pa.Schema, names: Sequence[str]) -> Iterable[object]:
    if isinstance(row, Row):
        row = row.asDict()
    if isinstance(row, Mapping):
        if len(row) != len(names) or any(name not in row for name in names):
            msg = f"a row has columns {', '.join(map(str, row))} but declared are {', '.join(names)}"
            raise InvalidInput(msg)
        return [row[name] for name in names]
    if isinstance(row, tuple) or (isinstance(row, list) and not pa.types.is_list(schema.field(0).type)):
        if len(row) != len(names):
            msg = f"a row has {len(row)} values but the declared schema has {len(names)}: {', '.join(names)}"
            raise InvalidInput(msg)
        return row
    if len(names) == 1:
        return (row,)
    msg = f"a row is {shown(row)}; give a dict or a tuple with {', '.join(names)}"
    raise InvalidInput(msg)


def _column(values: Sequence[object], field: pa.Field) -> pa.Array:
    try:
        array = pa.array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        msg = f"column {field.name!r} is declared {field.type} but got {_misfit(values, field.type)}: {error}"
        raise InvalidInput(msg) from error
    if not field.nullable and array.null_count:
        msg = f"column {field.name!r} is declared NOT NULL but got a null"
        raise InvalidInput(msg)
    return array


def _misfit(values: Sequence[object], kind: pa.DataType) -> str:
    for value in values:
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return shown(value)
    return "values that do not fit together"


def identity(value: Any) -> Any:  # noqa: ANN401 - any value of a column
    """A hashable stand-in for a key: the value itself for most types, which compare in Python as in Arrow."""
    kind = type(value)
    if kind in _COMPARES_ITSELF:
        return value
    return tuple([identity(part) for part in value]) if kind is tuple else key_of(value)


def shown(value: object) -> str:
    """A short text of any value, for messages."""
    with contextlib.suppress(Exception):  # a user's __repr__ may raise; the message matters more
        text = repr(value)
        return text if len(text) <= VALUE_SHOWN_MAX else f"{text[: VALUE_SHOWN_MAX - 3]}..."
    return f"a {type(value).__name__}"


def conform(batch: pa.RecordBatch, schema: pa.Schema, who: str) -> pa.RecordBatch:
    """The batch with exactly this schema: columns by name, cast where nothing is lost."""
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing or batch.num_columns != len(schema):
        msg = f"{who} gave columns {', '.join(batch.schema.names)} but its schema is {', '.join(schema.names)}"
        raise InvalidInput(msg)
    arrays = []
    for field in schema:
        array = batch.column(batch.schema.get_field_index(field.name))
        try:
            arrays.append(array if array.type == field.type else array.cast(field.type))
        except pa.ArrowException as error:
            msg = f"{who} gave column {field.name!r} as {array.type} but its schema says {field.type}: {error}"
            raise InvalidInput(msg) from error
        if not field.nullable and arrays[-1].null_count:
            msg = f"{who} gave a null in column {field.name!r}, which its schema declares NOT NULL"
            raise InvalidInput(msg)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_bytes(data: bytes) -> list[pa.RecordBatch]:
    """The batches of an Arrow IPC stream."""
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


def own_rows(states: Iterable[bytes], columns: Sequence[str], owns: Owns) -> list[pa.RecordBatch]:
    """Of the batches of several streams, the rows whose key is ours; without columns all rows have one key."""
    batches = [batch for state in states for batch in from_bytes(state) if batch.num_rows]
    return [rows for batch in batches if (rows := batch.filter(pa.array(owns(batch, columns)))).num_rows]


def joined(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch from several of the same schema."""
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole[0] if whole else empty(schema)


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of the rows. A batch that is kept as it is would hold on to the batch it is a slice of, or to its ring."""
    return open_image(write_image(batch), batch.schema)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    arrays: list[Any] = [pa.array([], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
