"""What the native kernels are compared with: the stable hash as its specification has it, and loops over rows."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.run.columns.aggregates import plain_column, python_values

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
        states = [_combine(s, v) for s, v in zip(states, _value_hashes(batch.column(name)), strict=True)]
    return np.array(states, np.uint64)


def partition(batch: pa.RecordBatch, columns: Sequence[str], parts: int) -> list[pa.RecordBatch | None]:
    """Rows by the hash of some columns; order within a part is that of the batch, an empty part is None."""
    rows_of: dict[int, list[int]] = {}
    for row, state in enumerate(hash_rows(batch, columns).tolist()):
        rows_of.setdefault((state * parts) >> 64, []).append(row)
    return [taken(batch, rows_of[part]) if part in rows_of else None for part in range(parts)]


def taken(batch: pa.RecordBatch, rows: Sequence[int]) -> pa.RecordBatch:
    """Some rows of a batch, some of them several times."""
    values = [column.to_pylist() for column in batch.columns]
    columns = [pa.array([v[i] for i in rows], f.type) for v, f in zip(values, batch.schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def split_words(
    batch: pa.RecordBatch, column: str, into: str, separator: str = " ", keep: Sequence[str] = ()
) -> pa.RecordBatch:
    """One row for each non-empty piece of a text column, the kept columns repeated beside it."""
    words: list[str] = []
    beside: list[int] = []
    for row, text in enumerate(batch.column(column).to_pylist()):
        for word in (text or "").split(separator):
            if word:
                words.append(word)
                beside.append(row)
    kept = taken(batch.select(list(keep)), beside)
    kind = plain_column(batch.column(column)).type
    fields = [pa.field(into, kind, nullable=False), *kept.schema]
    return pa.RecordBatch.from_arrays([pa.array(words, kind), *kept.columns], schema=pa.schema(fields))
