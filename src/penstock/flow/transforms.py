"""Operators that look at one row or one batch at a time, as methods of a stream.

Functions of the user see rows or batches; expressions in Spark SQL are compiled once and run over whole columns.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_callable, require_choice, usage
from penstock.flow.columns import Passes, Projects, Splits
from penstock.flow.expressions import Projected, compile_condition, compile_projection
from penstock.flow.groupings import Groupings
from penstock.flow.schema import parse_schema, quoted_name, require_columns
from penstock.flow.spark_types import Schema
from penstock.model.kinds import require_kind
from penstock.run.contract import ERRORS, MAIN, Build
from penstock.run.dataflow import ColumnUse
from penstock.run.operators.batches import BatchFunction, MapBatches, Split
from penstock.run.operators.expressions import Project, Where
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
    """map, flat_map, filter, map_batches, split, select, with_column, drop and where."""

    keys: tuple[str, ...]
    time_column: str | None
    windowed: bool

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
        columns: ColumnUse | None = None,
    ) -> DataStream:
        """The main output of a new operator that reads this stream."""

    # -- rows --------------------------------------------------------------------------------------------------------

    @usage("map(parse, 'word string')")
    def map(
        self,
        function: MapFunction,
        schema: Schema,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """One row for each row: `function(row)` gives a dict, tuple or row of the schema.

        A `timestamp` column gives aware datetimes in UTC and takes aware ones of any zone; a naive one that is returned
        for it counts as UTC. A `timestamp_ntz` column gives naive datetimes; of an aware one that is returned for it,
        what the clock shows in UTC is kept. A map is read as a list of pairs, a struct as a dict.
        """
        made = self._rows("map", MapRows, function, parse_schema(schema), name, tasks, on_error)
        return made.declared(load, memory_mb)

    @usage("flat_map(split, 'word string')")
    def flat_map(
        self,
        function: FlatMapFunction,
        schema: Schema,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """Any number of rows for each row: `function(row)` returns a list or yields."""
        made = self._rows("flat_map", FlatMapRows, function, parse_schema(schema), name, tasks, on_error)
        return made.declared(load, memory_mb)

    @usage("filter(lambda row: row.price > 100)")
    def filter(
        self,
        function: FilterFunction | str,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
        on_error: OnError = "fail",
    ) -> DataStream:
        """The rows for which `function(row)` is true, or a Spark SQL condition (see `where`)."""
        if isinstance(function, str):
            if on_error != "fail":
                msg = f"{self._who('filter')}: a condition as text has no on_error; leave it out, or give a function"
                raise InvalidInput(msg)
            return self.where(function, name=name, tasks=tasks, load=load, memory_mb=memory_mb)
        made = self._rows("filter", FilterRows, function, None, name, tasks, on_error)
        return made.declared(load, memory_mb)

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
        # A filter leaves rows as they are, so their keys stay.
        return self.then(kind, build, outputs, name=name, tasks=tasks, keys=self.keys if schema is None else ())

    # -- batches -----------------------------------------------------------------------------------------------------

    @usage("map_batches(function, 'word string')")
    def map_batches(
        self,
        function: BatchFunction,
        schema: Schema | None = None,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """`function(batch)` gives a `pyarrow.RecordBatch`, several, or None; without a schema it keeps this one."""
        require_callable(function, f"map_batches of {self.operator!r}")
        arrow = self.schema if schema is None else parse_schema(schema)
        build = partial(MapBatches, function, arrow)
        made = self.then("map_batches", build, {MAIN: arrow}, name=name, tasks=tasks)
        return made.declared(load, memory_mb)

    def split(
        self,
        column: str,
        into: str = "word",
        separator: str = " ",
        *,
        keep: Sequence[str] = (),
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
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
        use = Splits(column, into, separator, tuple(keep))
        made = self.then("split", build, {MAIN: pa.schema(fields)}, name=name, tasks=tasks, columns=use)
        return made.declared(load, memory_mb)

    # -- expressions -------------------------------------------------------------------------------------------------

    def select(
        self,
        *columns: str,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """Columns by name, `*` for all, and Spark SQL expressions with a name, in this order.

        >>> import penstock as ps
        >>> bids = ps.Topology("t").source("bids", ps.io.generator(lambda i, n: [], "auction bigint, price bigint"))
        >>> bids.select("auction", "price * 0.908 as price").schema.field("price").type
        Decimal128Type(decimal128(24, 3))

        Types, nulls, overflow and division by zero are as in Spark's ANSI mode; times are in UTC. What Arrow cannot do
        exactly as Spark is refused here, by name.
        """
        made = self._projected("select", compile_projection(columns, self.schema, self._who("select")), name, tasks)
        return made.declared(load, memory_mb)

    def with_column(
        self,
        column: str,
        expression: str,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """All columns and one more, or one of them computed anew: `with_column("total", "price * amount")`."""
        who = self._who("with_column")
        require_kind(column, str, who, "the name of a column, then an expression")
        made = compile_projection([f"{expression} as {quoted_name(column)}"], self.schema, who)[0]
        parts = [made if field.name == column else Projected(field, field.name) for field in self.schema]
        projected = self._projected("with_column", parts if made in parts else [*parts, made], name, tasks)
        return projected.declared(load, memory_mb)

    def drop(
        self,
        *columns: str,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """All columns but these."""
        who = self._who("drop")
        require_columns(self.schema, columns, who)
        parts = [Projected(field, field.name) for field in self.schema if field.name not in columns]
        if not columns or not parts:
            msg = f"{who} leaves {len(parts)} of {len(self.schema)} columns; name some of them, but not all"
            raise InvalidInput(msg)
        return self._projected("drop", parts, name, tasks).declared(load, memory_mb)

    def where(
        self,
        condition: str,
        *,
        name: str | None = None,
        tasks: int = 1,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """The rows for which a Spark SQL condition is true: `where("price > 100 and city like 'S%'")`."""
        who = self._who("where")
        if callable(condition):
            msg = f"{who} got a function; write filter(function), or a condition such as 'price > 100'"
            raise InvalidInput(msg)
        made = compile_condition(condition, self.schema, who)
        build = partial(Where, made)
        use = Passes(made.columns(), (MAIN,), partial(_where_over, build))
        kept = self.then("where", build, {MAIN: self.schema}, name=name, tasks=tasks, keys=self.keys, columns=use)
        return kept.declared(load, memory_mb)

    def _who(self, kind: str) -> str:
        return f"{kind} of {self.operator!r}"

    def _projected(self, kind: str, parts: Sequence[Projected], name: str | None, tasks: int) -> DataStream:
        """Event time and keys follow their columns under new names, unless a column is computed anew."""
        schema = pa.schema([part.field for part in parts])
        sources = {part.field.name: part.source for part in parts}
        kept = {part.source: part.field.name for part in reversed(parts) if isinstance(part.source, str)}
        keys = tuple(kept[key] for key in self.keys if key in kept)
        build = partial(Project, tuple(sources.values()), schema)
        made = self.then(
            kind,
            build,
            {MAIN: schema},
            name=name,
            tasks=tasks,
            keys=keys if len(keys) == len(self.keys) else (),
            columns=Projects(sources, schema),
        )
        time_column = None if self.time_column is None else kept.get(self.time_column)
        return replace(made, time_column=time_column, windowed=self.windowed and time_column is not None)


def _where_over(build: Build, schema: pa.Schema) -> tuple[Build, dict[str, pa.Schema]]:
    return build, {MAIN: schema}
