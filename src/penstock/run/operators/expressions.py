"""Select and where by compiled expressions: whole columns at a time; columns that stay as they are cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.run.columns.expressions.compiled import Compiled
from penstock.run.contract import Outputs, Task


class Project(Task):
    """One column for each part: a column of the input by its name, or an expression."""

    def __init__(self, parts: Sequence[str | Compiled], schema: pa.Schema) -> None:
        self.parts = tuple(parts)
        self.schema = schema

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Compute the columns."""
        columns = [batch.column(part) if isinstance(part, str) else part.evaluate(batch) for part in self.parts]
        out.emit(pa.RecordBatch.from_arrays(columns, schema=self.schema))


class Where(Task):
    """The rows for which a condition is true; null counts as false, as in SQL."""

    def __init__(self, condition: Compiled) -> None:
        self.condition = condition

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Keep the rows."""
        kept = self.condition.evaluate(batch)
        if kept.true_count == batch.num_rows:
            out.emit(batch)
        elif kept.true_count:
            out.emit(batch.filter(kept))
