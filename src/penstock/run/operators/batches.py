"""Whole batches at a time: a user's batch function, and built-in splitting of text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.contract import Outputs, Task
from penstock.run.operators.convert import conform, shown

BatchFunction = Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | Iterable[pa.RecordBatch] | None]


class MapBatches(Task):
    """A function from a batch to a batch, a table, several batches, or None for nothing."""

    def __init__(self, function: BatchFunction, schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Call the function; what it gives must have the declared schema."""
        who = f"the batch function of {self.context.operator!r}"
        for made in _batches(self.function(batch), who):
            if made.num_rows:
                out.emit(conform(made, self.schema, who))


def _batches(result: object, who: str) -> Iterable[pa.RecordBatch]:
    if result is None:
        return ()
    if isinstance(result, pa.RecordBatch):
        return (result,)
    if isinstance(result, pa.Table):
        return list(result.to_batches())
    if isinstance(result, Iterable) and not isinstance(result, str | bytes | dict):
        found = list(result)
        if all(isinstance(item, pa.RecordBatch) for item in found):
            return found
    msg = f"{who} returned {shown(result)}; return a pyarrow.RecordBatch, a pyarrow.Table, a list of batches or None"
    raise InvalidInput(msg)


class Split(Task):
    """One row for each non-empty piece of a text column, in the core."""

    def __init__(self, column: str, into: str, separator: str, keep: Sequence[str]) -> None:
        self.column = column
        self.into = into
        self.separator = separator
        self.keep = tuple(keep)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Split."""
        pieces = kernels.split_words(batch, self.column, self.into, self.separator, self.keep)
        if pieces.num_rows:
            out.emit(pieces)
