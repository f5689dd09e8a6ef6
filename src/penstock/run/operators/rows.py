"""Row functions as tasks: map, filter, flat_map.

A function that raises ends the job; with `quarantine`, its row goes to the errors output instead: the input columns,
then one column with the exception's type and message. The loop over rows is in the core.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from penstock.run.columns import kernels
from penstock.run.columns.kernels import Row, RowFault
from penstock.run.contract import ERRORS, Outputs, Task

ERROR_COLUMN = "error"

MapFunction = Callable[[Row], Any]
FilterFunction = Callable[[Row], object]
OnError = Callable[[RowFault], None]
FlatMapFunction = Callable[[Row], Iterable[Any] | None]


def errors_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the errors output of a reader of `schema`."""
    name = ERROR_COLUMN
    while name in schema.names:
        name = f"_{name}"
    return schema.remove_metadata().append(pa.field(name, pa.string(), nullable=False))


class RowTask(Task):
    """The shared part of the three: where failing rows go."""

    def __init__(self, *, quarantine: bool = False) -> None:
        self.quarantine = quarantine

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Run the function over the rows."""
        faults: list[RowFault] = []
        result = self.run(batch, faults.append if self.quarantine else None)
        if result.num_rows:
            out.emit(result)
        if faults:
            failed = batch.take(pa.array([fault.row for fault in faults], pa.int64()))
            texts = pa.array([f"{type(fault.error).__name__}: {fault.error}" for fault in faults], pa.string())
            schema = errors_schema(batch.schema)
            out.emit(pa.RecordBatch.from_arrays([*failed.columns, texts], schema=schema), ERRORS)

    @abstractmethod
    def run(self, batch: pa.RecordBatch, on_error: OnError | None) -> pa.RecordBatch:
        """The operator's own loop."""


class MapRows(RowTask):
    """One row for each row."""

    def __init__(self, function: MapFunction, schema: pa.Schema, *, quarantine: bool = False) -> None:
        super().__init__(quarantine=quarantine)
        self.function = function
        self.schema = schema

    def run(self, batch: pa.RecordBatch, on_error: OnError | None) -> pa.RecordBatch:
        """Map."""
        return kernels.map_rows(self.function, batch, self.schema, on_error)


class FilterRows(RowTask):
    """The rows for which the function returns something true."""

    def __init__(self, function: FilterFunction, *, quarantine: bool = False) -> None:
        super().__init__(quarantine=quarantine)
        self.function = function

    def run(self, batch: pa.RecordBatch, on_error: OnError | None) -> pa.RecordBatch:
        """Filter."""
        return kernels.filter_rows(self.function, batch, on_error)


class FlatMapRows(RowTask):
    """Any number of rows for each row."""

    def __init__(self, function: FlatMapFunction, schema: pa.Schema, *, quarantine: bool = False) -> None:
        super().__init__(quarantine=quarantine)
        self.function = function
        self.schema = schema

    def run(self, batch: pa.RecordBatch, on_error: OnError | None) -> pa.RecordBatch:
        """Flat map."""
        return kernels.flat_map_rows(self.function, batch, self.schema, on_error)
