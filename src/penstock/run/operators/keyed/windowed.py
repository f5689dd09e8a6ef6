"""Keyed aggregates in windows, on event time and on processing time.

Each open window has a fold of its own. An event-time window closes when the watermark reaches its end. A row without a
time, or of a window that has closed, goes to the late output; its windows that are still open count it all the same.
Results come window by window. Their event time is `window_start`, and the watermark passed on is the start of the
earliest open window (`test_watermarks_passed_on_keep_their_promise`). A task has no clock. So on processing time, rows
wait until the machine wakes the task and tells the time, which then counts as the rows' time.

Rejected: one fold with the window's start as another key, which would visit every key to drop a window. Rejected: panes
shared by sliding windows; they must be merged, and the results of a user's reduce function cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.run.columns.unwritten import ArrowRows, State
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, MAIN, Outputs, Owns, Task
from penstock.run.operators.convert import from_bytes, joined, own_rows
from penstock.run.operators.keyed.open_windows import fold_states, folds_of
from penstock.run.operators.keyed.unwindowed import Fold, Folding
from penstock.run.operators.late import SIDE, Lateness
from penstock.run.operators.times import BoolArray, Window, column_times

WINDOW_START = "window_start"
WINDOW_END = "window_end"
_WATERMARK = "watermark"
_PENDING = "pending"
_WINDOWS = "windows"


def windowed_schema(schema: pa.Schema, bound: pa.DataType) -> pa.Schema:
    """The bounds first, then the columns of the fold."""
    bounds = [pa.field(name, bound, nullable=False) for name in (WINDOW_START, WINDOW_END)]
    return pa.schema([*bounds, *schema])


def with_bounds(rows: pa.RecordBatch, start_us: int, size_us: int, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of one window with its bounds before them."""
    bound = schema.field(0).type
    times = [pa.array(np.full(rows.num_rows, at, dtype=np.int64)).cast(bound) for at in (start_us, start_us + size_us)]
    return pa.RecordBatch.from_arrays([*times, *rows.columns], schema=schema)


Assigned = tuple[list[tuple[int, pa.RecordBatch]], pa.RecordBatch | None]  # rows by start of window, and late rows


def assign(batch: pa.RecordBatch, column: str, window: Window, watermark_us: int) -> Assigned:
    """The batch's rows by start of each open window they belong to, and the rows that miss a window."""
    times, valid = column_times(batch, column)
    lasts = np.unique(window.last_starts(times[valid])).tolist()
    starts = {last - k * window.slide_us for last in lasts for k in range(window.copies)}
    found: list[tuple[int, pa.RecordBatch]] = []
    late: BoolArray = ~valid | (times < window.late_before(watermark_us))
    for start in sorted(starts):
        if start + window.size_us > watermark_us:
            members = valid & (times >= start) & (times < start + window.size_us)
            if members.all():
                found.append((start, batch))
            elif members.any():
                found.append((start, batch.filter(pa.array(members))))
    return found, batch.filter(pa.array(late)) if late.any() else None


def assign_slices(batch: pa.RecordBatch, column: str, window: Window, watermark_us: int) -> Assigned | None:
    """As `assign`, but as slices of the batch; None where its rows are not in order of time.

    Rows of one source are in order. A slice keeps the whole batch in memory, so callers must not keep slices.
    """
    times, valid = column_times(batch, column)
    if not len(times) or not valid.all() or (times[1:] < times[:-1]).any():
        return None
    first = window.first_open(max(watermark_us, int(times[0])))
    if (int(times[-1]) - first) // window.slide_us > len(times) + window.copies:
        return None  # most windows between the first row and the last would be empty
    starts = np.arange(first, int(times[-1]) + 1, window.slide_us)
    begins, ends = np.searchsorted(times, starts), np.searchsorted(times, starts + window.size_us)
    parts = zip(starts.tolist(), begins.tolist(), ends.tolist(), strict=True)
    found = [(start, batch.slice(begin, end - begin)) for start, begin, end in parts if begin < end]
    late = int(np.searchsorted(times, window.late_before(watermark_us)))
    return found, batch.slice(0, late) if late else None


class EventWindows(Task):
    """A fold per event-time window."""

    def __init__(self, fold: Fold, window: Window, column: str, schema: pa.Schema, on_late: str = SIDE) -> None:
        self.lateness = Lateness(column, on_late)
        self.fold = fold
        self.window = window
        self.column = column
        self.schema = schema
        self.watermark_us = BEFORE_TIME_US
        self.open_windows: dict[int, Folding] = {}

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Fold rows into their windows; late ones go to their own output."""
        given = batch, self.column, self.window, self.watermark_us
        members, late = assign_slices(*given) or assign(*given)
        for start, rows in members:
            if start not in self.open_windows:
                self.open_windows[start] = self.fold()
            self.open_windows[start].update(rows)
        self.lateness.take(self, late, self.watermark_us, out)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Close every window that ends at or before the watermark."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        for start in sorted(self.open_windows):
            if start + self.window.size_us <= watermark_us:
                emit_rows(self, self.open_windows.pop(start).rows(), start, out)
        out.watermark(forwarded(self.window, watermark_us))

    def finish(self, out: Outputs) -> None:
        """The end of time closes what is left."""
        self.advance(END_OF_TIME_US, out)

    def take_state(self) -> dict[str, State]:
        """All open windows, and the watermark."""
        return {_WATERMARK: str(self.watermark_us).encode(), _WINDOWS: _state_of(self.open_windows)}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.watermark_us = int(state[_WATERMARK])
        self.open_windows = _folds(state, self.fold)

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Continue with the keys that are ours."""
        self.watermark_us = min(int(state[_WATERMARK]) for state in states if state)
        self.open_windows = _own_folds(states, self.fold, owns)


class ProcessingWindows(Task):
    """A fold per window of the worker's own time."""

    def __init__(self, fold: Fold, window: Window, input_schema: pa.Schema, schema: pa.Schema) -> None:
        self.fold = fold
        self.window = window
        self.input_schema = input_schema
        self.schema = schema
        self.open_windows: dict[int, Folding] = {}
        self.pending: list[pa.RecordBatch] = []  # rows whose time is not known yet
        self.now_us: int | None = None

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Keep the rows until the time is known."""
        self.pending.append(batch)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Event time says nothing about this operator's windows."""

    def idle(self, out: Outputs) -> None:
        """Idle inputs change nothing either: the watermarks of these windows come from the clock."""

    def wake_at(self) -> int | None:
        """At once when rows wait for a time, else at the next window's end: readers wait for its watermark."""
        if self.pending or self.now_us is None:
            return 0
        return self.window.first_open(self.now_us) + self.window.size_us

    def wake(self, now_us: int, out: Outputs) -> None:
        """Fold what has arrived into the windows of now, and close those that are over."""
        # A clock that is set back must not reopen a window that has been closed.
        now_us = max(now_us, self.now_us or now_us)
        self.now_us = now_us
        self._fold_pending()
        for start in sorted(self.open_windows):
            if start + self.window.size_us <= now_us:
                emit_rows(self, self.open_windows.pop(start).rows(), start, out)
        out.watermark(self.window.first_open(now_us))

    def _fold_pending(self) -> None:
        if self.pending:
            rows = joined(self.pending, self.input_schema)
            for start in self.window.starts_of(self.now_us or 0):
                if start not in self.open_windows:
                    self.open_windows[start] = self.fold()
                self.open_windows[start].update(rows)
            self.pending = []

    def finish(self, out: Outputs) -> None:
        """Close the windows that are left, with their full bounds."""
        self._fold_pending()
        for start in sorted(self.open_windows):
            emit_rows(self, self.open_windows.pop(start).rows(), start, out)

    def take_state(self) -> dict[str, State]:
        """Open windows, pending rows and the time."""
        return {
            _WATERMARK: b"" if self.now_us is None else str(self.now_us).encode(),
            _PENDING: ArrowRows(self.pending, self.input_schema),
            _WINDOWS: _state_of(self.open_windows),
        }

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.now_us = int(state[_WATERMARK]) if state[_WATERMARK] else None
        self.pending = from_bytes(state[_PENDING])
        self.open_windows = _folds(state, self.fold)

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Continue with the keys that are ours."""
        self.now_us = max((int(state[_WATERMARK]) for state in states if state.get(_WATERMARK)), default=None)
        self.pending = own_rows([state[_PENDING] for state in states if state], self.fold.keys, owns)
        self.open_windows = _own_folds(states, self.fold, owns)


def emit_rows(task: EventWindows | ProcessingWindows, rows: pa.RecordBatch, start_us: int, out: Outputs) -> None:
    """The rows of one closed window, in batches of a decent size."""
    whole = with_bounds(rows, start_us, task.window.size_us, task.schema)
    for at in range(0, whole.num_rows, task.context.rows_max):
        out.emit(whole.slice(at, task.context.rows_max), MAIN)


def forwarded(window: Window, watermark_us: int) -> int:
    """The watermark to pass on, where results are as old as their window's start."""
    if watermark_us >= END_OF_TIME_US or watermark_us <= BEFORE_TIME_US:
        return watermark_us
    return window.first_open(watermark_us)


def _state_of(windows: Mapping[int, Folding]) -> State:
    return fold_states({start: fold.take_state() for start, fold in windows.items()})


def _folds(state: Mapping[str, bytes], fold: Fold) -> dict[int, Folding]:
    found: dict[int, Folding] = {}
    for start, data in folds_of(state[_WINDOWS]).items():
        found[start] = fold()
        found[start].put_state(data)
    return found


def _own_folds(states: Sequence[Mapping[str, bytes]], fold: Fold, owns: Owns) -> dict[int, Folding]:
    """A fold for each window in which keys are ours."""
    known = [folds_of(state[_WINDOWS]) for state in states if state]
    found: dict[int, Folding] = {}
    for start in dict.fromkeys(start for windows in known for start in windows):
        made = fold()
        made.put_states([windows[start] for windows in known if start in windows], owns)
        if made.rows().num_rows:
            found[start] = made
    return found
