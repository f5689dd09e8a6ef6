"""Groupings as methods: how the next operator reads a stream. The last grouping counts; shuffle is the default."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import InvalidInput
from penstock.flow.checks import require_callable
from penstock.flow.schema import require_columns
from penstock.run.columns.kernels import Row
from penstock.run.dataflow import Grouping

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.flow.stream import DataStream


class Groupings(ABC):
    """The seven groupings, for streams."""

    schema: pa.Schema
    operator: str

    @abstractmethod
    def regrouped(self, grouping: Grouping) -> DataStream:
        """This stream, read another way."""

    def shuffle(self) -> DataStream:
        """Batches by turns, evenly."""
        return self.regrouped(Grouping("shuffle"))

    def local_or_shuffle(self) -> DataStream:
        """By turns among the tasks of the same worker, where there are any."""
        return self.regrouped(Grouping("local-or-shuffle"))

    def global_(self) -> DataStream:
        """Everything to the first task."""
        return self.regrouped(Grouping("global"))

    def broadcast(self) -> DataStream:
        """Everything to every task."""
        return self.regrouped(Grouping("all"))

    def fields(self, *columns: str) -> DataStream:
        """Rows with equal values in these columns to the same task."""
        return self.regrouped(Grouping("fields", self._columns("fields", columns)))

    def partial_key(self, *columns: str) -> DataStream:
        """Like fields, but each key has two tasks and goes to the less loaded one; a later operator merges the two."""
        return self.regrouped(Grouping("partial-key", self._columns("partial_key", columns)))

    def direct(self, choose: Callable[[Row], int]) -> DataStream:
        """Each row to the task whose index this function of the row gives."""
        require_callable(choose, f"direct of {self.operator!r}", "a function from a row to a task's index")
        return self.regrouped(Grouping("direct", choose=choose))

    def _columns(self, what: str, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not columns:
            msg = f"{what} of {self.operator!r} names no columns; name at least one of {', '.join(self.schema.names)}"
            raise InvalidInput(msg)
        require_columns(self.schema, columns, f"{what} of {self.operator!r}")
        return columns
