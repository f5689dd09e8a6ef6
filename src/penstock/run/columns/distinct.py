"""Distinct values by key: which rows of a batch hold a combination of values for the first time.

An aggregate over distinct values is the plain aggregate over those rows. So DISTINCT works with every aggregate and
every mode of output, and costs one hash table of the core. Types that the core does not know go through a Python set.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.run.columns.aggregates import arrow_column, key_of, normalised, python_values
from penstock.run.columns.native_schema import layout_of

_FIRST = pa.schema([pa.field("first", pa.bool_(), nullable=False)])


class DistinctRows:
    """The combinations of values of some columns that have been seen."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        layout = layout_of(schema).layout
        self._native = _core.KeySet(layout) if _core.KeySet.supports(layout) else None
        self._plain: dict[Any, tuple[Any, ...]] = {}

    def __len__(self) -> int:
        return len(self._plain) if self._native is None else len(self._native)

    def first_seen(self, batch: pa.RecordBatch) -> pa.Array:
        """Whether each row holds a new combination; afterwards all of them count as seen."""
        if self._native is not None:
            return self._native.first_seen(batch, _FIRST).column(0)
        firsts: list[bool] = []
        for row in zip(*(python_values(column) for column in batch.columns), strict=True):
            values = tuple(map(normalised, row))
            key = tuple(map(key_of, values))
            firsts.append(key not in self._plain)
            self._plain.setdefault(key, values)
        return pa.array(firsts, pa.bool_())

    def rows(self) -> pa.RecordBatch:
        """Every combination, in the order in which they came."""
        if self._native is not None:
            return self._native.rows(self.schema)
        columns = list(zip(*self._plain.values(), strict=True)) or [()] * len(self.schema)
        arrays = [arrow_column(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
