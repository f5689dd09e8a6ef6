"""What open windows keep, as one state of a task, however many windows are open.

A row can open a window of its own: files in no order keep thousands open. A checkpoint has an entry for each state of a
task, so windows are joined here: the rows of all of them are one Arrow stream, and folds lie one behind the other, in
either case behind a line that says what is whose. Rejected: a state for each window, which failed every epoch of a task
with more of them than a checkpoint has room for (`test_thousands_of_open_windows_are_a_few_states`).
At a marker nothing is copied but lists; the rest is done where states are written (`run/columns/unwritten.py`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns.unwritten import ArrowRows, Joined, Sliced, State, Written, written
from penstock.run.contract import Owns
from penstock.run.operators.convert import owned
from penstock.run.operators.times import Int64Array

WINDOWS_MAX = 1_000_000  # open in one task
ROWS_A_BATCH = 16_384  # rows of small batches are joined up to about this many: each batch has a head of its own


class WindowRows:
    """The rows of each window."""

    def __init__(self, windows: Mapping[int, Sequence[pa.RecordBatch]], schema: pa.Schema) -> None:
        _require_room(len(windows))
        self._windows = [(start, tuple(batches)) for start, batches in windows.items() if batches]
        self._schema = schema

    def written(self) -> Written:
        """A line with start and rows of each window, and the rows in the same order."""
        lengths = [(start, sum(batch.num_rows for batch in batches)) for start, batches in self._windows]
        rows = ArrowRows(list(self._gathered()), self._schema)
        return Joined([_line(lengths), rows.written()]).written()

    def _gathered(self) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for _, batches in self._windows:
            for batch in batches:
                waiting.append(batch)
                rows += batch.num_rows
                if rows >= ROWS_A_BATCH:
                    yield from self._joined(waiting)
                    waiting, rows = [], 0
        yield from self._joined(waiting)

    def _joined(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """One batch, or several where text would be too long for one."""
        table = pa.Table.from_batches(batches, self._schema)
        found: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return found


def put_rows(
    states: Iterable[bytes], columns: Sequence[str] = (), owns: Owns | None = None
) -> dict[int, list[pa.RecordBatch]]:
    """What `WindowRows` wrote, of one task or of several: all rows, or those whose key is ours."""
    found: dict[int, list[pa.RecordBatch]] = {}
    for state in states:
        lengths, rows = _parts(state)
        pairs = np.array(lengths, dtype=np.int64).reshape(-1, 2)
        starts = np.repeat(pairs[:, 0], pairs[:, 1])  # of each row
        at = 0
        with pa.ipc.open_stream(rows) as reader:
            for batch in reader:
                mine, of_rows = batch, starts[at : at + batch.num_rows]
                at += batch.num_rows
                if owns is not None:
                    ours = owns(batch, columns)
                    mine, of_rows = batch.filter(pa.array(ours)), of_rows[ours]
                for start, part in _runs(mine, of_rows):
                    found.setdefault(start, []).append(part)
        if at != len(starts):
            msg = f"the rows of open windows are {at:,}, and their lengths are of {len(starts):,}"
            raise InvalidInput(msg)
    return found


def _runs(batch: pa.RecordBatch, starts: Int64Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each window; copies, because a slice would keep the whole state in memory."""
    if not len(starts):
        return
    begins = np.concatenate(([0], np.flatnonzero(starts[1:] != starts[:-1]) + 1)).tolist()
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        yield int(starts[begin]), owned(batch.slice(begin, end - begin))


class _Folds:
    """The states of folds one behind the other."""

    def __init__(self, states: Mapping[int, State]) -> None:
        self._states = dict(states)

    def written(self) -> Written:
        """A line with start and size of each, and all of them."""
        parts = [(start, pa.py_buffer(written(state))) for start, state in self._states.items()]
        return Joined([_line([(start, part.size) for start, part in parts]), *(part for _, part in parts)]).written()


class _SlicedFolds(_Folds):
    """The same where the worker's loop has to write them."""

    def __init__(self, states: Mapping[int, State]) -> None:
        super().__init__(states)
        self._left = deque(state for state in states.values() if isinstance(state, Sliced))

    def slice(self) -> bool:
        """A slice of the first that is not written yet."""
        while self._left:
            if self._left[0].slice():
                return True
            self._left.popleft()
        return False


def fold_states(states: Mapping[int, State]) -> State:
    """The states of folds by start of their windows, as one."""
    _require_room(len(states))
    return (_SlicedFolds if any(isinstance(state, Sliced) for state in states.values()) else _Folds)(states)


def folds_of(state: bytes) -> dict[int, bytes]:
    """What `fold_states` put together."""
    sizes, rest = _parts(state)
    if sum(size for _, size in sizes) != len(rest):
        msg = f"the folds of open windows are {len(rest):,} bytes, and their sizes are of another number"
        raise InvalidInput(msg)
    ends = list(accumulate(size for _, size in sizes))
    return {start: bytes(rest[end - size : end]) for (start, size), end in zip(sizes, ends, strict=True)}


def _line(pairs: Sequence[tuple[int, int]]) -> bytes:
    return json.dumps(pairs, separators=(",", ":")).encode() + b"\n"


def _parts(state: bytes) -> tuple[list[tuple[int, int]], memoryview]:
    end = state.find(b"\n")
    try:
        pairs = [(int(start), int(size)) for start, size in json.loads(state[: max(end, 0)])]
        if any(size < 0 for _, size in pairs):
            raise ValueError(pairs)
    except (ValueError, TypeError) as error:
        msg = f"a state of {len(state):,} bytes does not begin with the windows that it is of"
        raise InvalidInput(msg) from error
    return pairs, memoryview(state)[end + 1 :]


def _require_room(windows: int) -> None:
    if windows > WINDOWS_MAX:
        msg = (
            f"{windows:,} windows are open in one task, and a checkpoint has room for {WINDOWS_MAX:,} of them: windows "
            "close when event time passes their end; read rows more in order of time or allow less lateness, make "
            "windows longer, or give the operator more tasks"
        )
        raise InvalidInput(msg)
