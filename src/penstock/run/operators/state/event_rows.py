"""Rows and event time at a stateful operator: which rows are late, and rows kept until they can be given in order.

A row is late when it is older than the watermark or has no time. A row of the watermark's own time is not late: the
watermark W promises that no row older than W comes, and rows of the time W may still come.

`TimeOrdered` keeps sorted runs. A new run is merged into its neighbour while that is at most twice as long. So a row is
copied about log2(kept rows) times, and there are about log2(kept rows) runs. Neighbours are merged and sorts are
stable, so rows of one time stay in order of arrival (`test_rows_in_order_of_time`). Rejected: a heap, a Python object
per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.run.columns.native_schema import take_rows
from penstock.run.operators.convert import joined
from penstock.run.operators.times import Int64Array, column_times

ON_LATE_ROWS = ("side", "keep", "error")  # "keep": the operator gets late rows too


@dataclass(frozen=True, slots=True)
class RowTime:
    """How an operator stands to event time."""

    column: str
    zoned: bool = True  # a timestamp, not a timestamp_ntz
    on_late: str = "side"  # one of ON_LATE_ROWS
    ordered: bool = False  # rows are handed on in order of time


def split_late(
    batch: pa.RecordBatch, column: str, watermark_us: int
) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """Rows that are in time, and those that are late; None where there are none."""
    times, valid = column_times(batch, column)
    in_time = valid & (times >= watermark_us)
    if in_time.all():
        return batch, None
    if not in_time.any():
        return None, batch
    return batch.filter(pa.array(in_time)), batch.filter(pa.array(~in_time))


@dataclass(frozen=True, slots=True)
class _Run:
    """Rows in order of time. Its buffers hold `buffered` rows: a slice keeps all of them in memory."""

    rows: pa.RecordBatch
    times: Int64Array
    buffered: int

    def __len__(self) -> int:
        return len(self.times)


class TimeOrdered:
    """Rows that come in any order and are given back in order of time."""

    def __init__(self, column: str) -> None:
        self.column = column
        self._runs: list[_Run] = []  # in order of arrival

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep rows, all of which have a time."""
        self._runs.append(self._sorted(batch))
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            before = self._runs.pop()
            self._runs.append(self._sorted(joined([before.rows, last.rows], batch.schema)))

    def release(self, until_us: int) -> tuple[pa.RecordBatch, Int64Array] | None:
        """Rows up to a time, with their times, in order."""
        given: list[pa.RecordBatch] = []
        kept: list[_Run] = []
        for run in self._runs:
            count = int(np.searchsorted(run.times, until_us, "right"))
            if count:
                given.append(run.rows.slice(0, count))
            if count < len(run):
                kept.append(_rest(run, count))
        self._runs = kept
        if not given:
            return None
        run = self._sorted(joined(given, given[0].schema))
        return run.rows, run.times

    def batches(self) -> list[pa.RecordBatch]:
        """Everything that is kept, to be added again in this order."""
        return [run.rows for run in self._runs]

    def _sorted(self, batch: pa.RecordBatch) -> _Run:
        times, _ = column_times(batch, self.column)
        order = np.argsort(times, kind="stable")
        # Copy even rows that are in order: rows that wait must not keep the rest of their batch in memory.
        return _Run(take_rows(batch, pa.array(order)), times[order], len(order))


def _rest(run: _Run, start: int) -> _Run:
    rows, times = run.rows.slice(start), run.times[start:]
    if 2 * len(times) > run.buffered:
        return _Run(rows, times, run.buffered)
    return _Run(take_rows(rows, pa.array(np.arange(len(times)))), times.copy(), len(times))
