"""The tree of an expression: columns, literals, calls of kernels, and choices between rows.

Every node knows its type and whether it can be null, both as in Spark. `Choose` may evaluate a branch over a part of
the rows: where a branch can fail, it gets just the rows that take it, and the results are put back in order
(`test_a_branch_is_asked_only_for_rows_that_take_it`). Rejected: Arrow's own expressions (`pc.Expression`), which cannot
hold our functions, evaluate branches on all rows and have other types than Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.aggregates import plain_column
from penstock.run.columns.expressions.registry import KERNELS, Values, as_array


class Node(ABC):
    """A part of an expression."""

    type: pa.DataType
    nullable: bool

    @property
    @abstractmethod
    def children(self) -> tuple[Node, ...]:
        """The parts of this part."""

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> Values:
        """The column of results, or one scalar for all rows."""

    @property
    def fails(self) -> bool:
        """Whether some value may be refused."""
        return any(child.fails for child in self.children)

    def columns(self) -> dict[str, None]:
        """The columns of the batch that are read, in order."""
        found: dict[str, None] = {}
        for child in self.children:
            found |= child.columns()
        return found

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """The results as a column."""
        return as_array(self.evaluate(batch), batch.num_rows)


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A column of the batch."""

    name: str
    type: pa.DataType
    nullable: bool

    @property
    def children(self) -> tuple[Node, ...]:
        """None."""
        return ()

    def columns(self) -> dict[str, None]:
        """Itself."""
        return {self.name: None}

    def evaluate(self, batch: pa.RecordBatch) -> Values:
        """The column without encodings, which Spark does not know."""
        column = plain_column(batch.column(self.name))
        return column if column.type == self.type else column.cast(self.type, safe=False)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A value that is the same for all rows; times are microseconds."""

    value: object
    type: pa.DataType
    loose: bool = False  # Spark calls it nullable although it is not, as after some casts
    cast: bool = False  # written as a cast: beside a decimal it has the digits of its type, not its own

    @property
    def nullable(self) -> bool:  # type: ignore[override]
        """True for null, and for the literals that Spark declares nullable."""
        return self.loose or self.value is None

    @property
    def children(self) -> tuple[Node, ...]:
        """None."""
        return ()

    def evaluate(self, batch: pa.RecordBatch) -> Values:
        """The value."""
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A kernel over the results of other nodes; `settings` are known when the expression is written."""

    kernel: str
    arguments: tuple[Node, ...]
    type: pa.DataType
    nullable: bool
    settings: tuple[object, ...] = ()

    @property
    def children(self) -> tuple[Node, ...]:
        """The arguments."""
        return self.arguments

    @property
    def fails(self) -> bool:
        """Whether the kernel or an argument may refuse a value."""
        return KERNELS[self.kernel].fails or any(child.fails for child in self.arguments)

    def evaluate(self, batch: pa.RecordBatch) -> Values:
        """Call the kernel, over a single row where all arguments are scalars."""
        values = [argument.evaluate(batch) for argument in self.arguments]
        function = KERNELS[self.kernel].function
        if any(isinstance(value, pa.Array) for value in values):
            return function(self.type, *values, *self.settings)
        return function(self.type, *[pa.repeat(value, 1) for value in values], *self.settings)[0]


@dataclass(frozen=True, slots=True)
class Choose(Node):
    """The value of the first condition that is true, or else another: CASE WHEN, if, coalesce and the like."""

    conditions: tuple[Node, ...]
    values: tuple[Node, ...]  # one more than there are conditions: the last is for the remaining rows
    type: pa.DataType
    nullable: bool

    @property
    def children(self) -> tuple[Node, ...]:
        """Conditions and values."""
        return self.conditions + self.values

    def evaluate(self, batch: pa.RecordBatch) -> Values:
        """All branches over all rows where none can fail, else each over its own rows."""
        if any(child.fails for child in (*self.conditions[1:], *self.values)):
            return self._by_rows(batch)
        found = self.values[-1].evaluate(batch)
        for condition, value in zip(self.conditions[::-1], self.values[-2::-1], strict=True):
            chosen = pc.fill_null(condition.column(batch), False)
            found = pc.if_else(chosen, value.evaluate(batch), found)
        return found

    def _by_rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Branch by branch, over the rows that no branch has taken yet."""
        rows = batch.select(list(self.columns())) if self.columns() else batch
        left = np.arange(batch.num_rows)
        numbers, parts = [], []
        for condition, value in zip(self.conditions, self.values[:-1], strict=True):
            chosen = pc.fill_null(condition.column(rows), False).to_numpy(zero_copy_only=False)
            numbers.append(left[chosen])
            parts.append(value.column(rows.filter(pa.array(chosen))))
            left, rows = left[~chosen], rows.filter(pa.array(~chosen))
        numbers.append(left)
        parts.append(self.values[-1].column(rows))
        order = np.argsort(np.concatenate(numbers), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order))
