"""Python functions over rows: the function is called in a native loop, and its results go into typed columns at once.

A Row reads a value from the batch when the function asks for it, so columns that the function ignores cost nothing.
Spark's types and unsigned integers are converted natively, all others through pyarrow, at some microseconds a value.

Nothing is converted silently (`test_values_that_do_not_fit_name_column_value_and_type`): an int column takes no floats
and no booleans, a text column no bytes, a date column no timestamps, a decimal column nothing that it would have to
round. A float or decimal column takes ints, and None stands for null. A `timestamp` column gives aware datetimes in
UTC, a `timestamp_ntz` column naive ones; a naive datetime that is given for a `timestamp` counts as UTC.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock._core import Row
from penstock.errors import InvalidInput, RowError
from penstock.run.columns.native_schema import Recent, layout_of, take_rows
from penstock.run.engine.user_errors import defined_at

__all__ = ["EmittedRows", "Row", "RowFault", "filter_rows", "flat_map_rows", "map_rows", "raise_fault"]

SHOWN_MAX = 2000  # characters of a row in an error
ZONES_HINT = (
    "a timestamp column gives datetimes in UTC and a timestamp_ntz column naive ones: compare with "
    "datetime(..., tzinfo=timezone.utc), or take the zone off with row['column'].replace(tzinfo=None)"
)


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
    """The rows for which the function returns something true; the batch itself where these are all rows."""
    known = layout_of(batch.schema)
    fault = _fault_handler(function, on_error)
    kept = _core.kept_rows(known.layout, batch, known.names, function, fault, known.readable, batch.schema)
    if kept is None:
        return batch
    return take_rows(batch, pa.array(np.frombuffer(kept, np.uint32))) if isinstance(kept, bytes) else kept


class EmittedRows:
    """Rows that a function gives to `emit` one by one: what `map_rows` takes, into typed columns at once.

    `refuse(row, error)` is called with a row that does not fit and must raise; nothing of that row stays behind.
    """

    def __init__(self, schema: pa.Schema, refuse: Callable[[object, BaseException], None]) -> None:
        self._schema, self._output = schema, _outputs(schema)
        output = self._output
        self._rows = _core.EmittedRows(
            output.layout, output.names, output.declared, output.help, output.bare_lists, output.bare_dicts, refuse
        )
        self.emit = self._rows.emit

    def __len__(self) -> int:
        return self._rows.rows

    def take(self) -> pa.RecordBatch:
        """Everything that was emitted since the last time."""
        output = self._output
        built, lists = self._rows.take(self._schema if output.built is None else output.built)
        return built if output.built is None else _merged(built, lists, self._schema, output)


def _map(
    function: Callable[[Row], Any], batch: pa.RecordBatch, schema: pa.Schema, on_error: OnError | None, *, flat: bool
) -> pa.RecordBatch:
    known, output = layout_of(batch.schema), _outputs(schema)
    built, lists = _core.map_rows(
        known.layout,
        batch,
        known.names,
        function,
        _fault_handler(function, on_error),
        flat,
        output.layout,
        output.names,
        output.declared,
        output.help,
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
    native: tuple[bool, ...]  # which columns are built natively
    help: list[Callable[[object], object] | None]  # converts values that are not plain, by pyarrow
    built: pa.Schema | None  # the natively built columns; None where all are
    bare_lists: bool  # a list is the value of the one column, not a row
    bare_dicts: bool


def _output(schema: pa.Schema) -> _Output:
    names = tuple(sys.intern(name) for name in schema.names)
    if not names or len(set(names)) < len(names):
        msg = f"rows need distinct columns to go into, but the schema has {', '.join(names) or 'none'}"
        raise InvalidInput(msg)
    layout = layout_of(schema).layout
    native = tuple(_core.builds(layout, i) for i in range(len(names)))
    built = [field for field, builds in zip(schema, native, strict=True) if builds]
    only = schema.field(0).type if len(names) == 1 else pa.null()
    return _Output(
        layout,
        names,
        tuple(f"{field.type}{'' if field.nullable else ' not null'}" for field in schema),
        native,
        [
            None if builds and not pa.types.is_nested(field.type) else _help(field.type)
            for field, builds in zip(schema, native, strict=True)
        ],
        None if len(built) == len(names) else pa.schema(built),
        pa.types.is_list(only) or pa.types.is_large_list(only) or pa.types.is_fixed_size_list(only),
        pa.types.is_struct(only) or pa.types.is_map(only),
    )


_outputs: Recent[_Output] = Recent(_output)


def _help(kind: pa.DataType) -> Callable[[object], object]:
    """A value of this type in its plainest form (dicts, lists, pairs); raises where pyarrow cannot make one of it."""

    def plain(value: object) -> object:
        return pa.array([value], kind)[0].as_py()

    return plain


def _merged(built: pa.RecordBatch, lists: list[list[Any]], schema: pa.Schema, output: _Output) -> pa.RecordBatch:
    """Natively built columns and those that pyarrow makes, in the schema's order."""
    natives, others = iter(built.columns), iter(lists)
    columns = [
        next(natives) if native else pa.array(next(others), field.type)
        for field, native in zip(schema, output.native, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fault_handler(
    function: Callable[[Row], object], on_error: OnError | None
) -> Callable[[int, BaseException, Row], None]:
    """What the loop calls with a row that failed."""
    if on_error is None:
        return partial(raise_fault, function)

    def report(row: int, error: BaseException, values: Row) -> None:
        _explain(error)
        if not isinstance(error, Exception):  # KeyboardInterrupt and SystemExit end the job; they are no row's fault
            raise_fault(function, row, error, values)
        on_error(RowFault(row, error, values))

    return report


def raise_fault(function: Callable[..., object], row: int, error: BaseException, values: Row) -> None:
    """Raise the error of a row as RowError; KeyboardInterrupt and SystemExit are raised as they are."""
    shown = repr(values)
    shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
    _explain(error)
    if not isinstance(error, Exception):  # Ctrl-C must not look like a failure; a note says which row it met
        error.add_note(f"row {row}, {shown}")
        raise error
    raised = RowError(row, shown, error)
    raised.defined = defined_at(function)
    raise raised from error


def _explain(error: BaseException) -> None:
    """Add what to do where naive and aware datetimes met; functions written for PySpark expect naive ones."""
    if isinstance(error, TypeError) and "offset-naive and offset-aware" in str(error):
        error.add_note(ZONES_HINT)
