"""Python functions over rows: the function is called in a native loop, and its results go into typed columns at once.

A Row reads values from the batch when they are asked for, so columns that a function does not look at cost nothing.
Dates, timestamps in microseconds, text, bytes, numbers and booleans are boxed and unboxed natively; other types go
through pyarrow, value by value, at about a microsecond each.

A column takes only values of its own kind, without silent conversions: an int column no floats and no booleans, a text
column no bytes, a date column no timestamps; a float column takes ints, and None stands for null.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock._core import Row
from penstock.errors import InvalidInput, RowError
from penstock.run.layouts import Recent, layout_of, take_rows

__all__ = ["Row", "RowFault", "filter_rows", "flat_map_rows", "map_rows"]

SHOWN_MAX = 2000  # characters of a row in an error


@dataclass(frozen=True)
class RowFault:
    """Which input row made the function fail, and how."""

    row: int
    error: BaseException
    values: Row


OnError = Callable[[RowFault], None]


def map_rows(
    function: Callable[[Row], Any], batch: pa.RecordBatch, schema: pa.Schema, on_error: OnError | None = None
) -> pa.RecordBatch:
    """One output row for each input row: a dict, tuple, list or Row, or a bare value where there is one column.

    Without `on_error` the first row that fails raises RowError; with it, the row is reported and left out.
    """
    return _map(function, batch, schema, on_error, flat=False)


def flat_map_rows(
    function: Callable[[Row], Iterable[Any] | None],
    batch: pa.RecordBatch,
    schema: pa.Schema,
    on_error: OnError | None = None,
) -> pa.RecordBatch:
    """Any number of output rows for each input row: an iterable of what `map_rows` takes, or None for nothing.

    A row that fails halfway leaves nothing behind.
    """
    return _map(function, batch, schema, on_error, flat=True)


def filter_rows(
    function: Callable[[Row], object], batch: pa.RecordBatch, on_error: OnError | None = None
) -> pa.RecordBatch:
    """The rows for which the function says something true; the batch itself where that is all of them."""
    known = layout_of(batch.schema)
    fault = _fault_handler(on_error)
    kept = _core.kept_rows(known.layout, batch, known.names, function, fault, known.readable, batch.schema)
    if kept is None:
        return batch
    return take_rows(batch, pa.array(np.frombuffer(kept, np.uint32))) if isinstance(kept, bytes) else kept


def _map(
    function: Callable[[Row], Any], batch: pa.RecordBatch, schema: pa.Schema, on_error: OnError | None, *, flat: bool
) -> pa.RecordBatch:
    known, output = layout_of(batch.schema), _outputs(schema)
    built, lists = _core.map_rows(
        known.layout,
        batch,
        known.names,
        function,
        _fault_handler(on_error),
        flat,
        output.layout,
        output.names,
        output.declared,
        output.checks,
        output.bare_lists,
        output.bare_dicts,
        schema if output.built is None else output.built,
    )
    return built if output.built is None else _merged(built, lists, schema, output)


@dataclass(frozen=True, slots=True)
class _Output:
    """How the results of a function become columns."""

    layout: _core.Layout
    names: tuple[str, ...]
    declared: tuple[str, ...]  # the types, for errors
    checks: list[Callable[[object], object] | None]  # None: built natively
    built: pa.Schema | None  # the natively built columns, where these are not all
    bare_lists: bool  # a list is the value of the one column, not a row
    bare_dicts: bool


def _output(schema: pa.Schema) -> _Output:
    names = tuple(sys.intern(name) for name in schema.names)
    if not names or len(set(names)) < len(names):
        msg = f"rows need distinct columns to go into, but the schema has {', '.join(names) or 'none'}"
        raise InvalidInput(msg)
    layout = layout_of(schema).layout
    checks = [None if _core.builds(layout, i) else _check(field.type) for i, field in enumerate(schema)]
    built = [field for field, check in zip(schema, checks, strict=True) if check is None]
    only = schema.field(0).type if len(names) == 1 else pa.null()
    return _Output(
        layout,
        names,
        tuple(f"{field.type}{'' if field.nullable else ' not null'}" for field in schema),
        checks,
        None if len(built) == len(names) else pa.schema(built),
        pa.types.is_list(only) or pa.types.is_large_list(only) or pa.types.is_fixed_size_list(only),
        pa.types.is_struct(only) or pa.types.is_map(only),
    )


_outputs: Recent[_Output] = Recent(_output)


def _check(kind: pa.DataType) -> Callable[[object], object]:
    """Raises where pyarrow cannot make a value of this type."""

    def check(value: object) -> None:
        pa.array([value], kind)

    return check


def _merged(built: pa.RecordBatch, lists: list[list[Any]], schema: pa.Schema, output: _Output) -> pa.RecordBatch:
    """Natively built columns and those that pyarrow makes, in the schema's order."""
    native, others = iter(built.columns), iter(lists)
    columns = [
        next(native) if check is None else pa.array(next(others), field.type)
        for field, check in zip(schema, output.checks, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fault_handler(on_error: OnError | None) -> Callable[[int, BaseException, Row], None]:
    """What the loop calls with a row that failed."""
    if on_error is None:
        return _raise_fault

    def report(row: int, error: BaseException, values: Row) -> None:
        if not isinstance(error, Exception):  # a wish to end is not a row to set aside
            _raise_fault(row, error, values)
        on_error(RowFault(row, error, values))

    return report


def _raise_fault(row: int, error: BaseException, values: Row) -> None:
    shown = repr(values)
    shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
    if not isinstance(error, Exception):  # it stays what it is, lest Ctrl-C be taken for a failure, and says where
        error.add_note(f"row {row}, {shown}")
        raise error
    raise RowError(row, shown, error) from error
