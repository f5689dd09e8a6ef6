"""The best n rows of each key, the same whatever order the rows came in.

Rows are kept in a log; when the log has grown by half, one sort over numbers finds the best n rows of each key, and the
others are dropped. So the cost of a row does not depend on the number of keys. Rejected: a heap for each key, a
microsecond and more for every row in Python; and a ranking after every batch, which sorts the kept rows again and
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.run.columns.unwritten import ArrowRows, State
from penstock.run.contract import Owns
from penstock.run.operators.convert import empty, from_bytes, joined, own_rows, owned
from penstock.run.operators.keyed.top import COMPACT_ROWS_MIN, Ranking, ordering, value_codes, value_ranks
from penstock.run.operators.times import Int64Array

COMPACT_BYTES_MIN = 4 << 20


@dataclass(frozen=True, slots=True)
class KeyedRanking(Ranking):
    """A ranking for each value of some columns; every row counts."""

    per: tuple[str, ...] = ()

    @property
    def shared_by(self) -> tuple[str, ...]:
        """The columns by which rows are shared out among tasks."""
        return self.per

    def contenders(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that may be among the best: at most n for each key, and more where several are equal at the last place.

        Equal rows are told apart by all their columns. That is slow, so it is left to the end unless they are many.
        """
        kept = self._contenders_of(rows, self._numbers(rows))
        return rows if len(kept) == rows.num_rows else rows.take(pa.array(kept))

    def best(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The best rows of each key, keys in the order in which they came, best first."""
        rows = self.contenders(rows)
        if not rows.num_rows:
            return rows
        numbers = self._numbers(rows)
        order = ordering(rows, self.by, self.descending, (), numbers)
        return rows.take(pa.array(order[_place_in_group(numbers[order]) < self.count]))

    def _numbers(self, rows: pa.RecordBatch) -> Int64Array:
        """A number for each row that rows of equal keys share, in order of appearance."""
        found = value_codes(rows.column(self.per[0]))
        for key in self.per[1:]:
            other = value_codes(rows.column(key))
            pairs = found * (int(other.max(initial=0)) + 1) + other  # both are below the number of rows
            _, first, found = np.unique(pairs, return_index=True, return_inverse=True)
            found = np.argsort(np.argsort(first))[found]
        return found

    def _contenders_of(self, rows: pa.RecordBatch, numbers: Int64Array) -> Int64Array:
        """Rows that may be among the best of their key judging by the ranked column, in the order they have."""
        place = value_ranks(rows.column(self.by), self.descending)
        order = np.argsort(numbers * (int(place.max(initial=0)) + 1) + place)  # both are at most the number of rows
        within = _place_in_group(numbers[order])
        last = np.full(int(numbers.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        at = within == self.count - 1
        last[numbers[order][at]] = place[order][at]
        kept: Int64Array = np.flatnonzero(place <= last[numbers])
        return kept


def _place_in_group(numbers: Int64Array) -> Int64Array:
    """0, 1, 2, ... within each run of equal numbers."""
    begins = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1]))) if len(numbers) else numbers
    lengths = np.diff(np.concatenate((begins, [len(numbers)])))
    found: Int64Array = np.arange(len(numbers)) - np.repeat(begins, lengths)
    return found


class TopFold:
    """A factory of `TopPerKey`, as data that travels."""

    def __init__(self, schema: pa.Schema, keys: Sequence[str], count: int, by: str, descending: bool) -> None:
        self.output_schema, self.keys = schema, tuple(keys)
        self.ranking = KeyedRanking(schema, count, by, descending, per=tuple(keys))

    def __call__(self) -> TopPerKey:
        """A fresh one."""
        return TopPerKey(self.ranking)


class TopPerKey:
    """Rows as they come, thinned out now and then."""

    def __init__(self, ranking: KeyedRanking) -> None:
        self.ranking = ranking
        self.output_schema = ranking.schema
        self.log: list[pa.RecordBatch] = []
        self._log_rows = 0
        self._compact_at = COMPACT_ROWS_MIN
        self._log_bytes, self._compact_bytes = 0, COMPACT_BYTES_MIN

    def update(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        self.log.append(owned(batch))  # a kept slice would hold on to its ring or its larger batch
        self._log_rows += batch.num_rows
        self._log_bytes += self.log[-1].nbytes
        if self._log_rows >= self._compact_at or self._log_bytes >= self._compact_bytes:
            self._compact()

    def _compact(self) -> None:
        before = self._log_rows
        rows = self.ranking.contenders(joined(self.log, self.ranking.schema))
        if 2 * rows.num_rows > before:  # most rows are among the best of their keys, or equal at the last place
            rows = self.ranking.best(rows)
        self._keep(rows)

    def _keep(self, rows: pa.RecordBatch) -> None:
        self.log = [rows]
        self._log_rows = rows.num_rows
        self._compact_at = 2 * self._log_rows + COMPACT_ROWS_MIN
        self._log_bytes = rows.nbytes
        self._compact_bytes = 2 * self._log_bytes + COMPACT_BYTES_MIN

    def rows(self) -> pa.RecordBatch:
        """The best rows of all keys."""
        self._keep(self.ranking.best(joined(self.log, self.ranking.schema)))
        return self.log[0]

    def update_each(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rankings have no running value; `flow` offers none."""
        raise NotImplementedError

    def changed(self) -> pa.RecordBatch:
        """Rankings by key do not tell changes; `flow` does not offer it."""
        raise NotImplementedError

    def take_state(self) -> State:
        """All rows that are kept: to find the best among them would take longer than to write the rest."""
        return ArrowRows(self.log, self.ranking.schema)

    def put_state(self, state: bytes) -> None:
        """Continue."""
        self._put(from_bytes(state))

    def put_states(self, states: Sequence[bytes], owns: Owns) -> None:
        """Continue with the keys that are ours."""
        self._put(own_rows(states, self.ranking.per, owns))

    def _put(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._keep(empty(self.ranking.schema))
        for batch in batches:
            self.update(batch)
