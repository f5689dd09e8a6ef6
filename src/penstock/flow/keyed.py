"""KeyedStream: what can be done once rows with equal keys belong together.

Aggregates are written as in Spark SQL: `aggregate(trips="count(*)", total="sum(fare)")`. Results have the bounds of
the window first (`window_start`, `window_end`), where there is one, then keys, then aggregates in the order given.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, cast

import pyarrow as pa

from penstock.errors import InvalidInput, NoSuchOperator
from penstock.flow.checks import choose_emit, require_callable, require_choice, require_kind
from penstock.flow.schema import parse_schema, to_ddl
from penstock.flow.stream import DataStream, Emit
from penstock.flow.unknown import is_field_or_private, no_operator, public_names
from penstock.run.aggregates import OPS, Op
from penstock.run.contract import LATE, MAIN, Build
from penstock.run.dataflow import Grouping, Input
from penstock.run.kernels import Aggregate
from penstock.run.operators.join import HOW, LATE_RIGHT, Side, WindowJoin, joined_schema
from penstock.run.operators.keyed import EMITS, AggregateFold, KeyedFold, ReduceFold, ReduceFunction
from penstock.run.operators.process import Process, Stateful
from penstock.run.operators.times import TIMESTAMP, Window, window_type
from penstock.run.operators.windowed import (
    WINDOW_END,
    WINDOW_START,
    EventWindows,
    ProcessingWindows,
    windowed_schema,
)

_EXPRESSION = re.compile(r"\s*(\w+)\s*\(\s*(?:(\*)|`([^`]+)`|(\w+))?\s*\)\s*", re.ASCII)
_SAME = {"mean": "avg"}


@dataclass(frozen=True, eq=False)
class KeyedStream:
    """A stream and the columns that key it."""

    stream: DataStream
    keys: tuple[str, ...]
    kind: str = "fields"

    if not TYPE_CHECKING:  # else a type checker would let every misspelt name pass

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(name) if is_field_or_private(type(self), name) else self._unknown(name)

    def _unknown(self, name: str) -> NoSuchOperator:
        known = public_names(KeyedStream)
        who = f"stream {self.stream.operator!r} keyed by {', '.join(map(repr, self.keys))}"
        if name in public_names(DataStream):
            hint = f"known: {', '.join(known)}; call {name} before key_by or on their result"
            return NoSuchOperator(f"{who} has no operator {name!r}; {hint}")
        return no_operator(who, name, known)

    def partial_key(self) -> KeyedStream:
        """Two tasks for each key, the less loaded one for each batch: each gives a part, which a second step merges."""
        return replace(self, kind="partial-key")

    def count(
        self, *, window: Window | None = None, emit: Emit | None = None, name: str | None = None, tasks: int = 1
    ) -> DataStream:
        """Rows per key, in a column `count`."""
        return self._aggregated("count", [Aggregate("count", None, "count")], window, emit, name, tasks)

    def aggregate(
        self,
        *,
        window: Window | None = None,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
        **columns: str,
    ) -> DataStream:
        """Aggregates per key: `total="sum(fare)"`; functions are count, sum, min, max, avg, first and last."""
        if not columns:
            msg = f"aggregate of {self.stream.operator!r} computes nothing; write for example total='sum(fare)'"
            raise InvalidInput(msg)
        wanted = [parse_aggregate(column, text) for column, text in columns.items()]
        return self._aggregated("aggregate", wanted, window, emit, name, tasks)

    def reduce(
        self,
        function: ReduceFunction,
        *,
        window: Window | None = None,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
    ) -> DataStream:
        """One row per key: `function(so_far, row)` gives a row of the same schema with the same keys."""
        require_callable(function, f"reduce of {self.stream.operator!r}", "a function of two rows")
        return self._folded("reduce", ReduceFold(self.stream.schema, self.keys, function), window, emit, name, tasks)

    def top(
        self,
        count: int,
        by: str = "count",
        *,
        ascending: bool = False,
        emit: Emit | None = None,
        name: str | None = None,
        tasks: int = 1,
    ) -> DataStream:
        """The best rows of each task's share of the keys, the newest row of a key counting; a second `top` merges."""
        keyed = replace(self.stream, keys=self.keys, grouping=self._grouping())
        return keyed.top(count, by, ascending=ascending, emit=emit, name=name, tasks=tasks)

    def process(
        self, operator: type[Stateful] | Callable[[], Stateful], *, name: str | None = None, tasks: int = 1
    ) -> DataStream:
        """A stateful operator: a subclass of `ps.Stateful`, or a function without arguments that makes one."""
        who = f"process of {self.stream.operator!r}"
        require_callable(operator, who, "a subclass of ps.Stateful itself, for every task makes an object of its own")
        if inspect.isabstract(operator):
            msg = f"{who}: {operator.__name__} has no on_row; define on_row(self, key, row, state, timers, emit)"
            raise InvalidInput(msg)
        sample = operator()
        require_kind(sample, Stateful, who, "a subclass of ps.Stateful, or a function that makes one")
        if not sample.schema:
            msg = f"{who}: {type(sample).__name__} has no schema; set schema = 'column type, ...' in the class"
            raise InvalidInput(msg)
        schema = parse_schema(sample.schema)
        build = partial(Process, operator, self.keys, schema)
        made = self._then("process", build, {MAIN: schema}, name, tasks)
        # What a user's operator emits, and when, need not follow the time of its input.
        return replace(made, time_column=None, windowed=False)

    def join(
        self, other: KeyedStream, *, window: Window, how: str = "inner", name: str | None = None, tasks: int = 1
    ) -> DataStream:
        """Rows of both streams with equal keys within the same event-time window; how: inner, left, right or full."""
        require_kind(other, KeyedStream, f"join of {self.stream.operator!r}", "a keyed stream: other.key_by(...)")
        who = f"join of {self.stream.operator!r} and {other.stream.operator!r}"
        if other.stream.topology is not self.stream.topology:
            msg = f"{who}: they are not streams of the same topology"
            raise InvalidInput(msg)
        require_choice(how, tuple(HOW), f"how of {who}")
        require_kind(window, Window, who, "window=ps.tumbling(size) or ps.sliding(size, slide)")
        if window.time == "processing":
            msg = f"{who} needs an event-time window; processing time would join whatever happens to arrive together"
            raise InvalidInput(msg)
        types = [[side.stream.schema.field(key).type for key in side.keys] for side in (self, other)]
        if types[0] != types[1]:
            msg = f"{who}: keys are {_typed(self)} and {_typed(other)}; they must have the same types in the same order"
            raise InvalidInput(msg)
        left, right = (Side(s.stream.schema, s.keys, s.event_column(who)) for s in (self, other))
        inner = _without(joined_schema(left, right, how), who)
        schema = windowed_schema(inner, window_type(left.schema.field(left.time_column).type))
        build = partial(WindowJoin, left, right, window, how, schema)
        outputs = {MAIN: schema, LATE: left.schema, LATE_RIGHT: right.schema}
        also = [(other.stream, replace(other.stream, grouping=None).read(other._grouping()))]
        made = self._then("join", build, outputs, name, tasks, also)
        return replace(made, time_column=WINDOW_START, windowed=True)

    def event_column(self, who: str) -> str:
        """The event-time column of the stream, which must have one."""
        if self.stream.time_column is None:
            operator = self.stream.operator
            missing = f"{operator!r} has no event time; call .event_time(column, lateness=...) before"
            if (column := self.stream.topology.event_time_of(operator)) is not None:
                missing = f"this is {operator!r} without event time; go on with what event_time({column!r}) returned"
            msg = f"{who}: {missing}"
            raise InvalidInput(msg)
        return self.stream.time_column

    # -- inside ------------------------------------------------------------------------------------------------------

    def _aggregated(
        self,
        kind: str,
        aggregates: list[Aggregate],
        window: Window | None,
        emit: Emit | None,
        name: str | None,
        tasks: int,
    ) -> DataStream:
        return self._folded(kind, AggregateFold(self.stream.schema, self.keys, aggregates), window, emit, name, tasks)

    def _folded(
        self,
        kind: str,
        fold: AggregateFold | ReduceFold,
        window: Window | None,
        emit: Emit | None,
        name: str | None,
        tasks: int,
    ) -> DataStream:
        who = f"{kind} of {self.stream.operator!r}"
        if window is None:
            chosen = choose_emit(emit, self.stream.bounded, who, EMITS)
            made = self._then(kind, partial(KeyedFold, fold, chosen), {MAIN: fold.output_schema}, name, tasks)
            return replace(made, keys=self.keys, time_column=None)
        require_kind(window, Window, who, "window=ps.tumbling(size) or ps.sliding(size, slide)")
        choose_emit(emit, True, f"{who} in windows", ("end",))
        inner = _without(fold.output_schema, who)
        on_event_time = window.time == "event" or (window.time is None and self.stream.time_column is not None)
        if on_event_time:
            column = self.event_column(f"{who} in event-time windows")
            schema = windowed_schema(inner, window_type(self.stream.schema.field(column).type))
            build: Build = partial(EventWindows, fold, window, column, schema)
            outputs = {MAIN: schema, LATE: self.stream.schema}
        else:
            schema = windowed_schema(inner, TIMESTAMP)
            build = partial(ProcessingWindows, fold, window, self.stream.schema, schema)
            outputs = {MAIN: schema}
        made = self._then(kind, build, outputs, name, tasks)
        return replace(made, keys=self.keys, time_column=WINDOW_START, windowed=True)

    def _then(
        self,
        kind: str,
        build: Build,
        outputs: dict[str, pa.Schema],
        name: str | None,
        tasks: int,
        also: Sequence[tuple[DataStream, Input]] = (),
    ) -> DataStream:
        stream = replace(self.stream, grouping=None)
        return stream.then(
            kind, build, outputs, name=name, tasks=tasks, stateful=True, grouping=self._grouping(), also=also
        )

    def _grouping(self) -> Grouping:
        return Grouping(self.kind, self.keys)


def parse_aggregate(name: str, text: str) -> Aggregate:
    """An aggregate from "sum(fare)" or "count(*)"."""
    match = _EXPRESSION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        msg = f"aggregate {name}={text!r}; write function(column), such as {name}='sum(fare)' or {name}='count(*)'"
        raise InvalidInput(msg)
    op = _SAME.get(match.group(1).lower(), match.group(1).lower())
    if op not in OPS:
        error = InvalidInput.unknown_name(f"function in aggregate {name}={text!r}:", op, OPS)
        raise error
    return Aggregate(cast("Op", op), match.group(3) or match.group(4), name)


def _without(schema: pa.Schema, who: str) -> pa.Schema:
    """The schema, which must leave the names of the window's bounds free."""
    for name in (WINDOW_START, WINDOW_END):
        if name in schema.names:
            msg = f"{who} adds a column {name!r} but there is one already; rename it first"
            raise InvalidInput(msg)
    return schema


def _typed(keyed: KeyedStream) -> str:
    return to_ddl(pa.schema([keyed.stream.schema.field(key) for key in keyed.keys]))
