"""The kernels once more in plain Python over pyarrow: slow, short, and what the native ones are compared with."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput, RowError
from penstock.run.aggregates import column_type, plain_column, python_values
from penstock.run.kernels import Row, RowFault

SPREAD_ROWS_MIN = 512

_MASK = (1 << 64) - 1
_K0, _K1, _K2, _K3 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1
_NULL = 0x510E527FADE682D1


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _MASK) ^ (product >> 64)


def _word(value: int) -> int:
    return _fold((value & _MASK) ^ _K0, _K1)


def _combine(state: int, value: int) -> int:
    return _fold(state ^ value, _K2)


def _bytes(data: bytes) -> int:
    size = len(data)
    state = _K3 ^ size
    if size > 16:
        for at in range(0, size - 16, 16):
            a, b = struct.unpack_from("<QQ", data, at)
            state = _fold(a ^ _K1, b ^ state)
        a, b = struct.unpack_from("<QQ", data, size - 16)
    elif size >= 8:
        (a,), (b,) = struct.unpack_from("<Q", data), struct.unpack_from("<Q", data, size - 8)
    else:
        a, b = int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little")
    return _fold(a ^ _K0, b ^ state) ^ _fold(state ^ _K1, b ^ _K2)


def _float(value: float) -> int:
    if math.isnan(value):
        return _word(0x7FF8000000000000)
    bits: int = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
    return _word(bits)


def _words(value: int, count: int) -> int:
    state = _word(value)
    for i in range(1, count):
        state = _combine(state, (value >> (64 * i)) & _MASK)
    return state


def _value_hashes(array: pa.Array) -> list[int]:
    """One hash for each value of a column."""
    array = plain_column(array)
    kind = array.type
    types = pa.types
    if types.is_null(kind):
        return [_NULL] * len(array)
    if types.is_struct(kind):
        states = [_K1] * len(array)
        for child in array.flatten():
            states = [_combine(s, v) for s, v in zip(states, _value_hashes(child), strict=True)]
        return [s if valid else _NULL for s, valid in zip(states, array.is_valid().to_pylist(), strict=True)]
    if types.is_nested(kind):
        return [_list_hash(scalar.values) if scalar.is_valid else _NULL for scalar in array]
    hash_one: Callable[[Any], int] = _word
    if types.is_decimal(kind):
        scale, words = kind.scale, max(2, kind.bit_width // 64)
        return [_NULL if v is None else _words(int(v.scaleb(scale)), words) for v in array.to_pylist()]
    if types.is_floating(kind):
        hash_one = _float
    elif types.is_string(kind) or types.is_large_string(kind):
        array, hash_one = array.cast(pa.large_binary()), _bytes
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        hash_one = _bytes
    return [_NULL if value is None else hash_one(value) for value in python_values(array)]


def _list_hash(values: pa.Array) -> int:
    state = _word(len(values))
    for value in _value_hashes(values):
        state = _combine(state, value)
    return state


def hash_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash for each row that is the same in every process, on every machine and in every run."""
    states = [_K3] * batch.num_rows
    for name in columns:
        column_type(batch.schema, name, "hash")
        states = [_combine(s, v) for s, v in zip(states, _value_hashes(batch.column(name)), strict=True)]
    return np.array(states, np.uint64)


def partition(batch: pa.RecordBatch, columns: Sequence[str], parts: int) -> list[pa.RecordBatch | None]:
    """Rows by the hash of some columns; order within a part is that of the batch, an empty part is None."""
    _require_parts(parts)
    if parts == 1:
        return [batch]
    targets = np.array([(int(h) * parts) >> 64 for h in hash_rows(batch, columns)], np.int64)
    order = np.argsort(targets, kind="stable")
    ends = np.searchsorted(targets[order], np.arange(parts), side="right").tolist()
    return _slices(_taken(batch, order.tolist()), ends)


def _slices(batch: pa.RecordBatch, ends: Sequence[int]) -> list[pa.RecordBatch | None]:
    found: list[pa.RecordBatch | None] = []
    start = 0
    for end in ends:
        found.append(batch.slice(start, end - start) if end > start else None)
        start = end
    return found


def _taken(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    values = [column.to_pylist() for column in batch.columns]
    columns = [pa.array([v[i] for i in rows], f.type) for v, f in zip(values, batch.schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _require_parts(parts: int) -> None:
    if parts < 1:
        msg = f"rows cannot be spread over {parts} parts; give 1 or more"
        raise InvalidInput(msg)


def spread(batch: pa.RecordBatch, parts: int, first: int) -> list[pa.RecordBatch | None]:
    """Contiguous slices, one for each part beginning at part `first`; a small batch goes there whole."""
    _require_parts(parts)
    if not 0 <= first < parts:
        msg = f"first part {first} is not one of the {parts} parts; give 0 to {parts - 1}"
        raise InvalidInput(msg)
    rows = batch.num_rows
    found: list[pa.RecordBatch | None] = [None] * parts
    if rows:
        used = max(1, min(parts, rows // SPREAD_ROWS_MIN))
        for i in range(used):
            start, end = rows * i // used, rows * (i + 1) // used
            found[(first + i) % parts] = batch if used == 1 else batch.slice(start, end - start)
    return found


def split_words(
    batch: pa.RecordBatch, column: str, into: str, separator: str = " ", keep: Sequence[str] = ()
) -> pa.RecordBatch:
    """One row for each non-empty piece of a text column, the kept columns repeated beside it."""
    kind = column_type(batch.schema, column, "split")
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        msg = f"split needs text in column {column!r} but its type is {kind}"
        raise InvalidInput(msg)
    if not separator:
        msg = "split needs a separator of at least one character, but it is empty"
        raise InvalidInput(msg)
    texts = plain_column(batch.column(column)).to_pylist()
    pieces = [(row, piece) for row, text in enumerate(texts) if text for piece in text.split(separator) if piece]
    rows = [row for row, _ in pieces]
    for name in keep:
        column_type(batch.schema, name, "split keeps and")
    columns = [pa.array([piece for _, piece in pieces], kind), *_taken(batch.select(list(keep)), rows).columns]
    fields = [pa.field(into, kind, nullable=False), *(batch.schema.field(name) for name in keep)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


# -- rows ------------------------------------------------------------------------------------------------------------


OnError = Callable[[RowFault], None]


def map_rows(
    function: Callable[[Row], Any], batch: pa.RecordBatch, schema: pa.Schema, on_error: OnError | None = None
) -> pa.RecordBatch:
    """One output row for each input row."""
    return _build(batch, schema, on_error, lambda row: (function(row),))


def flat_map_rows(
    function: Callable[[Row], Iterable[Any] | None],
    batch: pa.RecordBatch,
    schema: pa.Schema,
    on_error: OnError | None = None,
) -> pa.RecordBatch:
    """Any number of output rows for each input row."""
    return _build(batch, schema, on_error, lambda row: _several(function(row)))


def filter_rows(
    function: Callable[[Row], object], batch: pa.RecordBatch, on_error: OnError | None = None
) -> pa.RecordBatch:
    """The rows for which the function says something true."""
    kept = []
    for i, row in enumerate(_rows(batch)):
        try:
            if function(row):
                kept.append(i)
        except Exception as error:
            _fault(RowFault(i, error, row), on_error)
    return batch if len(kept) == batch.num_rows else _taken(batch, kept)


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    for values in batch.to_pylist():
        yield Row(**values)


def _several(result: Iterable[Any] | None) -> list[Any]:
    if isinstance(result, str | bytes | dict | Row):
        msg = f"a flat_map function returned {result!r}; return a list of rows, or yield them"
        raise TypeError(msg)
    return [] if result is None else list(result)


def _build(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    on_error: OnError | None,
    results: Callable[[Row], Sequence[Any]],
) -> pa.RecordBatch:
    columns: list[list[Any]] = [[] for _ in schema]
    for i, row in enumerate(_rows(batch)):
        try:
            shaped = [_shaped(value, schema) for value in results(row)]
        except Exception as error:
            _fault(RowFault(i, error, row), on_error)
            continue
        for values in shaped:
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _shaped(value: Any, schema: pa.Schema) -> list[Any]:  # noqa: ANN401 - what a user's function returned
    values: list[Any]
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        if set(value) != set(schema.names):
            msg = (
                f"the function returned columns {', '.join(map(str, value))} but declared are {', '.join(schema.names)}"
            )
            raise TypeError(msg)
        values = [value[name] for name in schema.names]
    elif isinstance(value, tuple) or (isinstance(value, list) and not pa.types.is_list(schema.field(0).type)):
        values = list(value)
    else:
        values = [value]
    if len(values) != len(schema):
        msg = f"the function returned {value!r} but declared are the columns {', '.join(schema.names)}"
        raise TypeError(msg)
    for item, field in zip(values, schema, strict=True):
        _check(item, field)
    return values


def _check(value: Any, field: pa.Field) -> None:  # noqa: ANN401 - what a user's function returned
    if value is None and field.nullable:
        return
    try:
        if value is None or (isinstance(value, bool) and not pa.types.is_boolean(field.type)):
            raise TypeError
        pa.scalar(value, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        declared = f"{field.type}{'' if field.nullable else ' not null'}"
        msg = f"column {field.name!r} is declared {declared} but got {value!r} of type {type(value).__name__}"
        raise TypeError(msg) from error


def _fault(fault: RowFault, on_error: OnError | None) -> None:
    if on_error is None:
        raise RowError(fault.row, repr(fault.values), fault.error) from fault.error
    on_error(fault)
