"""Operators that look at one row or one batch at a time, as methods of a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_callable, require_choice
from penstock.flow.groupings import Groupings
from penstock.flow.schema import parse_schema, require_columns
from penstock.run.contract import ERRORS, MAIN, Build
from penstock.run.operators.batches import BatchFunction, MapBatches, Select, Split
from penstock.run.operators.rows import (
    FilterFunction,
    FilterRows,
    FlatMapFunction,
    FlatMapRows,
    MapFunction,
    MapRows,
    errors_schema,
)

if TYPE_CHECKING:
    from penstock.flow.stream import DataStream

OnError = Literal["fail", "quarantine"]


class Transforms(Groupings):
    """map, flat_map, filter, map_batches, split and select."""

    keys: tuple[str, ...]

    @abstractmethod
    def then(
        self,
        kind: str,
        build: Build,
        outputs: dict[str, pa.Schema],
        *,
        name: str | None,
        tasks: int,
        keys: tuple[str, ...] = (),
    ) -> DataStream:
        """The main output of a new operator that reads this stream."""

    # -- rows --------------------------------------------------------------------------------------------------------

    def map(
        self,
        function: MapFunction,
        schema: str | pa.Schema,
        *,
        name: str | None = None,
        tasks: int = 1,
        on_error: OnError = "fail",
    ) -> DataStream:
        """One row for each row: `function(row)` gives a dict, tuple or row of the schema."""
        return self._rows("map", MapRows, function, parse_schema(schema), name, tasks, on_error)

    def flat_map(
        self,
        function: FlatMapFunction,
        schema: str | pa.Schema,
        *,
        name: str | None = None,
        tasks: int = 1,
        on_error: OnError = "fail",
    ) -> DataStream:
        """Any number of rows for each row: `function(row)` returns a list or yields."""
        return self._rows("flat_map", FlatMapRows, function, parse_schema(schema), name, tasks, on_error)

    def filter(
        self, function: FilterFunction, *, name: str | None = None, tasks: int = 1, on_error: OnError = "fail"
    ) -> DataStream:
        """The rows for which `function(row)` is true."""
        return self._rows("filter", FilterRows, function, None, name, tasks, on_error)

    def _rows(
        self,
        kind: str,
        task: Callable[..., Any],
        function: Callable[..., Any],
        schema: pa.Schema | None,
        name: str | None,
        tasks: int,
        on_error: OnError,
    ) -> DataStream:
        who = f"{kind} of {self.operator!r}"
        require_callable(function, who)
        require_choice(on_error, ("fail", "quarantine"), f"on_error of {who}")
        arguments = (function,) if schema is None else (function, schema)
        build = partial(task, *arguments, quarantine=on_error == "quarantine")
        outputs = {MAIN: self.schema if schema is None else schema}
        if on_error == "quarantine":
            outputs[ERRORS] = errors_schema(self.schema)
        # A filter leaves rows as they are, and with them what identifies them.
        return self.then(kind, build, outputs, name=name, tasks=tasks, keys=self.keys if schema is None else ())

    # -- batches -----------------------------------------------------------------------------------------------------

    def map_batches(
        self, function: BatchFunction, schema: str | pa.Schema | None = None, *, name: str | None = None, tasks: int = 1
    ) -> DataStream:
        """`function(batch)` gives a `pyarrow.RecordBatch`, several, or None; without a schema it keeps this one."""
        require_callable(function, f"map_batches of {self.operator!r}")
        arrow = self.schema if schema is None else parse_schema(schema)
        return self.then("map_batches", partial(MapBatches, function, arrow), {MAIN: arrow}, name=name, tasks=tasks)

    def split(
        self,
        column: str,
        into: str = "word",
        separator: str = " ",
        *,
        keep: Sequence[str] = (),
        name: str | None = None,
        tasks: int = 1,
    ) -> DataStream:
        """One row for each non-empty piece of a text column, with the columns to keep beside it; done in the core."""
        who = f"split of {self.operator!r}"
        require_columns(self.schema, (column, *keep), who)
        kind = self.schema.field(column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            msg = f"{who} needs text but column {column!r} is {kind}"
            raise InvalidInput(msg)
        if not separator or into in keep:
            msg = f"{who} has separator {separator!r} and puts pieces into {into!r}; neither may be empty or kept twice"
            raise InvalidInput(msg)
        fields = [pa.field(into, kind, nullable=False), *(self.schema.field(kept) for kept in keep)]
        build = partial(Split, column, into, separator, tuple(keep))
        return self.then("split", build, {MAIN: pa.schema(fields)}, name=name, tasks=tasks)

    def select(self, *columns: str, name: str | None = None, tasks: int = 1) -> DataStream:
        """Some of the columns, in this order."""
        who = f"select of {self.operator!r}"
        require_columns(self.schema, columns, who)
        if not columns or len(set(columns)) < len(columns):
            msg = f"{who} names {', '.join(columns) or 'no columns'}; name each column once, and at least one"
            raise InvalidInput(msg)
        schema = pa.schema([self.schema.field(column) for column in columns])
        keys = self.keys if set(self.keys) <= set(columns) else ()
        return self.then("select", partial(Select, columns), {MAIN: schema}, name=name, tasks=tasks, keys=keys)
