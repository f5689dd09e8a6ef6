"""Hash routing, keyed aggregation, word splitting and the row loop: what happens to every row of every batch.

    >>> batch = pa.record_batch({"line": ["a b", "c"]})
    >>> split_words(batch, "line", "word")["word"].to_pylist()
    ['a', 'b', 'c']

The door to the native kernels in `core/`, which read and write Arrow buffers in place. Types that they do not read
(unions, views, run-end encodings) go through pyarrow, slower and with the same answers. Why not pyarrow for everything:
docs/decisions/0010-data-kernels.md. The hash decides which task keeps a key's state, so it is the same in every process
and version (`test_hashes_never_change`); a row goes to part `(hash * parts) >> 64`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import Aggregate, decoded
from penstock.run.columns.native_schema import (
    Known,
    Recent,
    layout_of,
    plain_batch,
    position,
    require_readable,
    take_rows,
)
from penstock.run.columns.row_functions import (
    EmittedRows,
    Row,
    RowFault,
    filter_rows,
    flat_map_rows,
    map_rows,
    raise_fault,
)
from penstock.run.columns.running_aggregates import KeyedAggregate

__all__ = [
    "Aggregate",
    "EmittedRows",
    "KeyedAggregate",
    "Row",
    "RowFault",
    "filter_rows",
    "flat_map_rows",
    "hash_rows",
    "map_rows",
    "partition",
    "raise_fault",
    "split_words",
    "spread",
]

PARTS_MAX = 1 << 20
SPREAD_ROWS_MIN = 512  # per part: for fewer rows a part costs more than it saves


def hash_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash for each row that is the same in every process, on every machine and in every run."""
    known, indices, keys = _hashed(batch, columns)
    return np.frombuffer(_core.hash_rows(known.layout, keys, indices), np.uint64)


def partition(batch: pa.RecordBatch, columns: Sequence[str], parts: int) -> list[pa.RecordBatch | None]:
    """Rows by the hash of some columns; rows of a part keep the batch's order, and an empty part is None.

    All parts are slices of one reordered batch; where one part gets every row, it is the batch itself.
    """
    _require_parts(parts)
    if parts == 1:
        return [batch if batch.num_rows else None]
    known, indices, keys = _hashed(batch, columns)
    gather = keys is batch and known.readable
    found, ends = _core.partition(known.layout, keys, indices, parts, batch.schema, gather)
    if isinstance(found, bytes):
        found = take_rows(batch, pa.array(np.frombuffer(found, np.uint32)))
    elif found is keys:
        found = batch
    return _slices(found, ends)


def _hash_plan(schema: pa.Schema, columns: tuple[str, ...]) -> tuple[Known, list[int]] | None:
    """How to hash these columns of a batch in place, or None where pyarrow has to make them plain first."""
    indices = [position(schema, name, "hash") for name in columns]
    known = layout_of(schema)
    return (known, indices) if all(known.reads(index) for index in indices) else None


_hash_plans: Recent[tuple[Known, list[int]] | None] = Recent(_hash_plan)


def _hashed(batch: pa.RecordBatch, columns: Sequence[str]) -> tuple[Known, list[int], pa.RecordBatch]:
    """Layout, columns and batch to hash."""
    names = tuple(columns)
    plan = _hash_plans(batch.schema, names)
    if plan is not None:
        return (*plan, batch)
    plain = plain_batch(batch, names)
    return require_readable(plain.schema, "hash"), list(range(len(names))), plain


def _slices(batch: pa.RecordBatch, ends: Sequence[int]) -> list[pa.RecordBatch | None]:
    found: list[pa.RecordBatch | None] = []
    start, rows = 0, batch.num_rows
    for end in ends:
        if end == start:
            found.append(None)
        else:
            found.append(batch if end - start == rows else batch.slice(start, end - start))
        start = end
    return found


def _require_parts(parts: int) -> None:
    if not 1 <= parts <= PARTS_MAX:
        msg = f"rows cannot be spread over {parts} parts; give 1 to {PARTS_MAX}"
        raise InvalidInput(msg)


def spread(batch: pa.RecordBatch, parts: int, first: int) -> list[pa.RecordBatch | None]:
    """Contiguous slices, one for each part beginning at part `first`; a small batch goes to that part whole."""
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
    """One row for each non-empty piece of a text column, the kept columns repeated beside it; null gives no rows."""
    if not separator:
        msg = "split needs a separator of at least one character, but it is empty"
        raise InvalidInput(msg)
    known, text, kept, schema = _split_plans(batch.schema, column, into, tuple(keep))
    if text is None:
        return _split_plain(batch, column, schema, separator, tuple(keep))
    return _core.split_words(known.layout, batch, text, separator, kept, schema)


SplitPlan = tuple[Known, int | None, list[int], pa.Schema]


def _split_plan(schema: pa.Schema, column: str, into: str, keep: tuple[str, ...]) -> SplitPlan:
    """Layout, the text's index (None where pyarrow has to help), the kept columns' and the output's schema."""
    text = position(schema, column, "split")
    kind = decoded(schema.field(text).type)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        msg = f"split needs text in column {column!r} but its type is {kind}"
        raise InvalidInput(msg)
    kept = [position(schema, name, "split keeps and") for name in keep]
    if into in keep:
        msg = f"split gives column {into!r} twice; name the words otherwise or do not keep that column"
        raise InvalidInput(msg)
    output = pa.schema([pa.field(into, kind, nullable=False), *(schema.field(index) for index in kept)])
    known = layout_of(schema)
    native = schema.field(text).type == kind and all(known.reads(index) for index in kept)
    return known, text if native else None, kept, output


_split_plans: Recent[SplitPlan] = Recent(_split_plan)


def _split_plain(
    batch: pa.RecordBatch, column: str, schema: pa.Schema, separator: str, keep: tuple[str, ...]
) -> pa.RecordBatch:
    """The way for types that only pyarrow reads: split beside row numbers, then take the kept columns by these."""
    text = plain_batch(batch, (column,)).column(0)
    numbered = pa.record_batch([text, pa.array(np.arange(batch.num_rows))], names=["text", "row"])
    words = split_words(numbered, "text", "word", separator, ("row",))
    columns = [words.column(0), *take_rows(batch.select(keep), words.column(1)).columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
