"""Keyed operators as plans over a schema: aggregates, reduce and rankings, with windows and without; and joins.

A plan builds its operator over any input schema that has the needed columns, so that the same plan serves when
`pruning` leaves columns out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.columns import Made
from penstock.run.contract import LATE, LATE_RIGHT, MAIN
from penstock.run.dataflow import Needed
from penstock.run.operators.keyed.join import Side, WindowJoin, joined_schema
from penstock.run.operators.keyed.unwindowed import KeyedFold
from penstock.run.operators.keyed.windowed import (
    WINDOW_END,
    WINDOW_START,
    EventWindows,
    ProcessingWindows,
    windowed_schema,
)
from penstock.run.operators.late import SIDE
from penstock.run.operators.times import TIMESTAMP, Window, window_type

MakeFold = Callable[[pa.Schema], Any]  # a `Fold` that knows its output_schema, over rows of a schema


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A fold over the whole stream, or over each window."""

    fold: MakeFold
    who: str
    emit: str = "end"
    window: Window | None = None
    time_column: str | None = None  # windows on event time
    on_late: str = SIDE
    whole: bool = False  # without keys: one result row, even for no input rows

    def __call__(self, schema: pa.Schema) -> Made:
        """The operator over rows of this schema."""
        fold = self.fold(schema)
        if self.window is None:
            return partial(KeyedFold, fold, self.emit, self.whole), {MAIN: fold.output_schema}
        inner = without_bounds(fold.output_schema, self.who)
        if self.time_column is None:
            made = windowed_schema(inner, TIMESTAMP)
            return partial(ProcessingWindows, fold, self.window, schema, made), {MAIN: made}
        made = windowed_schema(inner, window_type(schema.field(self.time_column).type))
        return partial(EventWindows, fold, self.window, self.time_column, made, self.on_late), {
            MAIN: made,
            LATE: schema,
        }


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A join of two streams in windows, and which columns of each it reads."""

    left: Side
    right: Side
    window: Window
    how: str
    who: str
    on_late: str = SIDE

    def over(self, left: pa.Schema, right: pa.Schema) -> Made:
        """The join over inputs of these schemas."""
        sides = replace(self.left, schema=left), replace(self.right, schema=right)
        inner = without_bounds(joined_schema(*sides, self.how), self.who)
        schema = windowed_schema(inner, window_type(left.field(self.left.time_column).type))
        outputs = {MAIN: schema, LATE: left, LATE_RIGHT: right}
        return partial(WindowJoin, *sides, self.window, self.how, schema, self.on_late), outputs

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """Keys and times of both sides, and the wanted ones of the other columns."""
        wanted = needed.get(MAIN, frozenset())
        return tuple(
            frozenset((*side.keys, side.time_column)) | wanted.intersection(side.others) | needed.get(late, frozenset())
            for side, late in ((self.left, LATE), (self.right, LATE_RIGHT))
        )

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> Made:
        """Over fewer columns."""
        return self.over(*inputs)


def ranking_words(count: int, by: str, ascending: bool, window_column: str | None = None) -> dict[str, str]:
    """Which rows are the best ones, for whoever compares."""
    each = "" if window_column is None else f", of each {window_column!r}"
    return {"ranking": f"the {'least' if ascending else 'greatest'} {count} by {by!r}{each}"}


def without_bounds(schema: pa.Schema, who: str) -> pa.Schema:
    """The schema, which must leave the names of the window's bounds free."""
    for name in (WINDOW_START, WINDOW_END):
        if name in schema.names:
            msg = f"{who} adds a column {name!r} but there is one already; rename it first"
            raise InvalidInput(msg)
    return schema
