"""The best n rows, overall or in each window, the same whatever order the rows came in.

Rows are ranked by one column, then by their keys, then by all their columns, so every task breaks ties alike. Where
rows have keys, a newer row of a key replaces the older one, as rankings of rolling counts need. Several tasks rank
their own shares; one more `top` over their results gives the ranking of all rows.

What comes out when: on a windowed stream, the ranking of each window when the watermark has passed the window's start.
Otherwise the ranking comes at the end or, with `changes`, whenever it changes: the whole ranking, best first, in a
batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.run.columns.aggregates import key_of, plain_column, plain_key
from penstock.run.columns.unwritten import ArrowRows, State
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, LATE, Outputs, Owns, Task
from penstock.run.operators.convert import empty, from_bytes, joined, own_rows, owned
from penstock.run.operators.keyed.open_windows import WindowRows, put_rows
from penstock.run.operators.times import BoolArray, Int64Array, column_times

IDENTITIES_MAX = 1 << 62  # above the square of any batch's number of rows
_WATERMARK = "watermark"
_WINDOWS = "windows"
COMPACT_ROWS_MIN = 65_536  # a keyed ranking drops outdated rows when it may hold this many


@dataclass(frozen=True, slots=True)
class Ranking:
    """What is ranked, and how."""

    schema: pa.Schema
    count: int
    by: str
    descending: bool = True
    keys: tuple[str, ...] = ()  # identity of a row; without keys every row counts
    window_column: str | None = None  # the start of the window, on windowed streams

    @property
    def shared_by(self) -> tuple[str, ...]:
        """The columns by which rows are shared out among tasks."""
        return self.keys

    def best(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The best rows, best first; nulls and values that do not compare come last."""
        if rows.num_rows > 2 * self.count:
            rows = self._contenders(rows)
        if rows.num_rows == 0:
            return rows
        order = ordering(rows, self.by, self.descending, self.keys)
        return rows.take(pa.array(order[: self.count]))

    def _contenders(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that may be among the best judging by the ranked column; the rest need no further comparison."""
        place = value_ranks(rows.column(self.by), self.descending)
        last = np.partition(place, self.count - 1)[self.count - 1]
        return rows.filter(pa.array(place <= last))

    def identities(self, rows: pa.RecordBatch) -> Int64Array:
        """A number for each of these rows: the same for equal keys, different for different ones."""
        found: Int64Array = np.zeros(rows.num_rows, dtype=np.int64)
        below = 1  # every number so far is below this
        for key in self.keys:
            codes = value_codes(rows.column(key))
            values = int(codes.max(initial=0)) + 1
            if below * values > IDENTITIES_MAX:  # number anew from 0: then both are at most the number of rows
                found = np.unique(found, return_inverse=True)[1].astype(np.int64)
                below = rows.num_rows
            found = found * values + codes
            below *= values
        return found

    def newest(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The last row of each key, where rows have keys."""
        if not self.keys:
            return rows
        numbers = self.identities(rows)
        if len(self.keys) == 1 and int(numbers.max(initial=-1)) + 1 == rows.num_rows:
            return rows  # no key comes twice, as in a window of counts
        _, from_the_end = np.unique(numbers[::-1], return_index=True)
        last = np.sort(rows.num_rows - 1 - from_the_end)
        return rows if len(last) == rows.num_rows else rows.take(pa.array(last))


def ordering(
    rows: pa.RecordBatch, by: str, descending: bool, keys: Sequence[str], groups: Int64Array | None = None
) -> Int64Array:
    """Row numbers, best first: by group, by the ranked column, then ascending by keys and by all other columns.

    Each further column is ranked just for the rows that are still equal: ranking text is slow, and most rows differ
    early.
    """
    ranks = value_ranks(rows.column(by), descending)
    order: Int64Array = np.lexsort((ranks,) if groups is None else (ranks, groups))
    differs = _differs(ranks[order]) if groups is None else _differs(ranks[order]) | _differs(groups[order])
    for name in (*keys, *(name for name in rows.schema.names if name not in {by, *keys})):
        equal = np.flatnonzero(~differs | ~np.concatenate((differs[1:], [True])))
        if not len(equal):
            break
        ranks = value_ranks(rows.column(name).take(pa.array(order[equal])), False)
        within = np.lexsort((ranks, np.cumsum(differs)[equal]))
        order[equal] = order[equal][within]
        differs[equal] |= _differs(ranks[within])
    return order


def _differs(values: Int64Array) -> BoolArray:
    """Whether each value differs from the one before it; true for the first."""
    return np.concatenate((np.ones(min(len(values), 1), dtype=np.bool_), values[1:] != values[:-1]))


def value_ranks(column: pa.Array, descending: bool) -> Int64Array:
    """Dense ranks of the values of a column, nulls last, NaN above all numbers; nested values are ordered by text."""
    column = plain_column(column)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    if pa.types.is_nested(column.type):
        column = pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    order = "descending" if descending else "ascending"
    ranks: Int64Array = pc.rank(column, sort_keys=order, tiebreaker="dense").to_numpy().astype(np.int64)
    if descending and pa.types.is_floating(column.type):
        ranks[pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)] = 0
    return ranks


def value_codes(column: pa.Array) -> Int64Array:
    """A number for each distinct value of a key column, null among them."""
    column = plain_key(column)
    if pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        seen: dict[object, int] = {}
        return np.array([seen.setdefault(key_of(value), len(seen)) for value in column.to_pylist()], dtype=np.int64)
    codes: Int64Array = column.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
    return codes


class TopAll(Task):
    """One ranking over the whole stream."""

    def __init__(self, ranking: Ranking, emit: str) -> None:
        self.ranking = ranking
        self.emit = emit
        self.best = empty(ranking.schema)  # kept up to date where `emit` is "changes"
        self.log: list[pa.RecordBatch] = []  # rows with keys may fall as well as rise, so all keys are kept
        self._log_rows = 0
        self._compact_at = COMPACT_ROWS_MIN

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Take rows in; emit the ranking if changes are asked for and it has changed."""
        rows = self.ranking.newest(batch)
        if self.ranking.keys:
            self._remember(owned(batch) if rows is batch else rows)  # filtered rows are a copy already
        if self.emit == "end" and self.ranking.keys:
            return
        before, self.best = self.best, self._ranked_with(rows)
        if self.emit == "changes" and not self.best.equals(before):
            out.emit(self.best)

    def _ranked_with(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The best of the old ranking and the new rows; of all rows where a ranked row may have fallen."""
        both = joined([self.best, rows], self.ranking.schema)
        if not self.ranking.keys:
            return self.ranking.best(both)
        order = ordering(both, self.ranking.by, self.ranking.descending, self.ranking.keys)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        keys = self.ranking.identities(both).tolist()
        old = {key: int(place[i]) for i, key in enumerate(keys[: self.best.num_rows])}
        news = enumerate(keys[self.best.num_rows :], self.best.num_rows)
        if any(place[i] > old.get(key, len(order)) for i, key in news):
            self._compact()
            return self.ranking.best(self.log[0])
        return self.ranking.best(self.ranking.newest(both))

    def _remember(self, rows: pa.RecordBatch) -> None:
        self.log.append(rows)
        self._log_rows += rows.num_rows
        if self._log_rows >= self._compact_at:
            self._compact()

    def _compact(self) -> None:
        self.log = [self.ranking.newest(joined(self.log, self.ranking.schema))]
        self._log_rows = self.log[0].num_rows
        self._compact_at = 2 * self._log_rows + COMPACT_ROWS_MIN

    def finish(self, out: Outputs) -> None:
        """The last ranking."""
        if self.emit == "end":
            if self.ranking.keys:
                self._compact()
                self.best = self.ranking.best(self.log[0])
            if self.best.num_rows:
                out.emit(self.best)

    def take_state(self) -> dict[str, State]:
        """The ranking, and all rows that can still come into it."""
        schema = self.ranking.schema
        return {"best": ArrowRows([self.best], schema), "log": ArrowRows(self.log, schema)}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self._put(from_bytes(state["best"]), from_bytes(state["log"]))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """The rows whose key is ours; rows without a key all go to one task."""
        by = self.ranking.shared_by
        best, log = (own_rows([state[name] for state in states if state], by, owns) for name in ("best", "log"))
        self._put(best, log)
        if self.emit == "changes" and self.ranking.keys and self.log:  # a row that is ours now may be among them
            self._compact()
            self.best = self.ranking.best(self.log[0])
        else:
            self.best = self.ranking.best(self.best)

    def _put(self, best: Sequence[pa.RecordBatch], log: Sequence[pa.RecordBatch]) -> None:
        self.best = joined(best, self.ranking.schema)
        self.log = []
        self._log_rows = 0
        for batch in log:
            self._remember(batch)


class TopWindows(Task):
    """A ranking for each window; `window_column` is the stream's event time."""

    def __init__(self, ranking: Ranking) -> None:
        if ranking.window_column is None:
            msg = "a ranking of windows needs the column of their start"
            raise ValueError(msg)
        self.ranking = ranking
        self.column: str = ranking.window_column
        self.watermark_us = BEFORE_TIME_US
        self.open_windows: dict[int, list[pa.RecordBatch]] = {}

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Keep rows by window."""
        times, valid = column_times(batch, self.column)
        fresh = valid & (times >= self.watermark_us)
        for start in np.unique(times[fresh]).tolist():
            members = fresh & (times == start)
            rows = owned(batch) if members.all() else batch.filter(pa.array(members))
            kept = [*self.open_windows.get(start, []), rows]
            if not self.ranking.keys:
                kept = [self.ranking.best(joined(kept, self.ranking.schema))]
            self.open_windows[start] = kept
        if not fresh.all():
            out.emit(batch.filter(pa.array(~fresh)), LATE)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Rows of windows that start before the watermark are complete."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        for start in sorted(self.open_windows):
            if start < watermark_us:
                rows = self.ranking.newest(joined(self.open_windows.pop(start), self.ranking.schema))
                out.emit(self.ranking.best(rows))
        out.watermark(watermark_us)

    def finish(self, out: Outputs) -> None:
        """The end of time closes what is left."""
        self.advance(END_OF_TIME_US, out)

    def take_state(self) -> dict[str, State]:
        """The rows of all open windows, and the watermark."""
        rows = WindowRows(self.open_windows, self.ranking.schema)
        return {_WATERMARK: json.dumps(self.watermark_us).encode(), _WINDOWS: rows}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.watermark_us = json.loads(state[_WATERMARK])
        self.open_windows = put_rows([state[_WINDOWS]])

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """The rows whose key is ours; rows without a key all go to one task."""
        self.watermark_us = min(json.loads(state[_WATERMARK]) for state in states if state)
        self.open_windows = put_rows([state[_WINDOWS] for state in states if state], self.ranking.shared_by, owns)
