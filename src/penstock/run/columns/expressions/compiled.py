"""A whole expression, ready to run: its text, its tree, and how a row without a result is found.

A fault comes from a kernel that saw many rows. The row at fault is found by halving the batch. That happens once, when
the job fails anyway, so good rows pay nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import RowError
from penstock.run.columns.expressions import casts, logic, numbers, texts, times  # noqa: F401 - they register their kernels
from penstock.run.columns.expressions.nodes import Node
from penstock.run.columns.expressions.registry import Fault
from penstock.run.operators.convert import shown

FAULTS = (Fault, pa.ArrowInvalid, pa.ArrowNotImplementedError)


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression over batches of one schema."""

    text: str
    node: Node

    @property
    def type(self) -> pa.DataType:
        """The type of the results."""
        return self.node.type

    @property
    def nullable(self) -> bool:
        """Whether results can be null."""
        return self.node.nullable

    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(self.node.columns())

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """The column of results."""
        try:
            return self.node.column(batch)
        except FAULTS as error:
            fault, first, values = self._on_row(batch, error)
        # Users see a RowError's cause (`run/engine/user_errors.py`), so the cause names the expression too.
        raise RowError(first, values, str(fault)) from fault

    def _on_row(self, batch: pa.RecordBatch, error: Exception) -> tuple[Fault, int, str]:
        """The fault to raise, the number of the first row that fails, and its values that the expression reads."""
        rows = batch.select(list(self.columns())) if self.columns() else batch
        first, count = 0, batch.num_rows
        while count > 1:
            half = count // 2
            found = self._fault(rows.slice(first, half))
            first, count = (first, half) if found else (first + half, count - half)
            error = found or error
        error = self._fault(rows.slice(first, 1)) or error
        values = shown(rows.slice(first, 1).to_pylist()[0]) if rows.num_columns else "any row"
        return Fault(f"expression {self.text!r} has no result: {error}"), first, values

    def _fault(self, batch: pa.RecordBatch) -> Exception | None:
        try:
            self.node.column(batch)
        except FAULTS as error:
            return error
        return None
