"""Windowed join: rows of two streams with equal keys in the same window, inner or outer.

Both sides are kept until the watermark closes the window, and are then joined once. An outer join cannot know earlier
that a row has no partner. Rejected for inner joins: a symmetric hash join that emits at once. It saves little, because
readers take a window's rows for complete at its end anyway. A key that holds a null matches nothing, as in SQL.
The join is Arrow's, over row numbers, so that rows may have columns of any type. It compares bits, so keys are made
plain first: 0.0 joins -0.0, and NaN joins NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.run.columns.aggregates import plain_key
from penstock.run.columns.unwritten import State
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, LATE, LATE_RIGHT, Outputs, Owns, Task
from penstock.run.operators.convert import joined, owned
from penstock.run.operators.keyed.open_windows import WindowRows, put_rows
from penstock.run.operators.keyed.windowed import assign, forwarded, with_bounds
from penstock.run.operators.late import SIDE, Lateness
from penstock.run.operators.times import Window

HOW = {"inner": "inner", "left": "left outer", "right": "right outer", "full": "full outer"}
_WATERMARK = "watermark"
_ROWS = ("left", "right")  # the state of each side


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two streams."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time_column: str

    @property
    def others(self) -> list[str]:
        """Columns that are no keys."""
        return [name for name in self.schema.names if name not in self.keys]


def joined_schema(left: Side, right: Side, how: str) -> pa.Schema:
    """Keys under the left names, then the other columns of both; a side that may be missing is nullable."""
    fields = [left.schema.field(name) for name in left.keys]
    fields = [field.with_nullable(field.nullable or how in {"right", "full"}) for field in fields]
    fields += [_outer(left.schema.field(name), how in {"right", "full"}) for name in left.others]
    fields += [_outer(right.schema.field(name), how in {"left", "full"}) for name in right.others]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            msg = f"join gives column {name!r} twice; rename it on one side before joining (select or map)"
            raise InvalidInput(msg)
    return pa.schema(fields)


def _outer(field: pa.Field, missing: bool) -> pa.Field:
    return field.with_nullable(True) if missing else field


class WindowJoin(Task):
    """Two sides, port 0 and port 1."""

    def __init__(
        self, left: Side, right: Side, window: Window, how: str, schema: pa.Schema, on_late: str = SIDE
    ) -> None:
        outputs = (LATE, LATE_RIGHT)
        self.lateness = [
            Lateness(side.time_column, on_late, output) for side, output in zip((left, right), outputs, strict=True)
        ]
        self.sides = (left, right)
        self.window = window
        self.how = how
        self.schema = schema  # with the window's bounds
        self.watermark_us = BEFORE_TIME_US
        self.open_windows: dict[int, tuple[list[pa.RecordBatch], list[pa.RecordBatch]]] = {}

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Keep rows in their windows."""
        members, late = assign(batch, self.sides[port].time_column, self.window, self.watermark_us)
        for start, rows in members:
            kept = owned(batch) if rows is batch else rows  # filtered rows are a copy already
            self.open_windows.setdefault(start, ([], []))[port].append(kept)
        self.lateness[port].take(self, late, self.watermark_us, out)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Join every window that ends at or before the watermark."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        for start in sorted(self.open_windows):
            if start + self.window.size_us <= watermark_us:
                rows = self._join(*self.open_windows.pop(start))
                for at in range(0, rows.num_rows, self.context.rows_max):
                    part = rows.slice(at, self.context.rows_max)
                    out.emit(with_bounds(part, start, self.window.size_us, self.schema))
        out.watermark(forwarded(self.window, watermark_us))

    def finish(self, out: Outputs) -> None:
        """The end of time closes what is left."""
        self.advance(END_OF_TIME_US, out)

    def _join(self, lefts: Sequence[pa.RecordBatch], rights: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        left, right = (joined(parts, side.schema) for parts, side in zip((lefts, rights), self.sides, strict=True))
        left_rows, right_rows = matches(left, self.sides[0].keys, right, self.sides[1].keys, self.how)
        columns = []
        for a, b in zip(self.sides[0].keys, self.sides[1].keys, strict=True):
            taken = left.column(a).take(left_rows)
            if self.how in {"right", "full"}:
                # A row without a left side takes its key from the right; a null key on the left stays null.
                taken = pc.if_else(left_rows.is_valid(), taken, right.column(b).take(right_rows))
            columns.append(taken)
        columns += [left.column(name).take(left_rows) for name in self.sides[0].others]
        columns += [right.column(name).take(right_rows) for name in self.sides[1].others]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(self.schema)[2:]))

    def take_state(self) -> dict[str, State]:
        """Both sides of all open windows, and the watermark."""
        state: dict[str, State] = {_WATERMARK: str(self.watermark_us).encode()}
        for port, side in enumerate(self.sides):
            rows = {start: sides[port] for start, sides in self.open_windows.items()}
            state[_ROWS[port]] = WindowRows(rows, side.schema)
        return state

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.watermark_us = int(state[_WATERMARK])
        self.open_windows = {}
        for port, name in enumerate(_ROWS):
            self._put(port, put_rows([state[name]]))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Rows of both sides whose key is ours."""
        self.watermark_us = min(int(state[_WATERMARK]) for state in states if state)
        self.open_windows = {}
        for port, (name, side) in enumerate(zip(_ROWS, self.sides, strict=True)):
            self._put(port, put_rows([state[name] for state in states if state], side.keys, owns))

    def _put(self, port: int, windows: Mapping[int, list[pa.RecordBatch]]) -> None:
        for start, rows in windows.items():
            self.open_windows.setdefault(start, ([], []))[port].extend(rows)


def matches(
    left: pa.RecordBatch, left_keys: Sequence[str], right: pa.RecordBatch, right_keys: Sequence[str], how: str
) -> tuple[pa.Array, pa.Array]:
    """Row numbers of both sides that go together, null where a side is missing, in the order of the left rows."""
    tables = []
    for batch, keys, row in ((left, left_keys, "l"), (right, right_keys, "r")):
        names = [f"k{i}" for i in range(len(keys))]
        columns = [*(plain_key(batch.column(key)) for key in keys), pa.array(range(batch.num_rows), pa.int64())]
        tables.append(pa.table(columns, names=[*names, row]))
    keys = tables[0].column_names[:-1]
    found = tables[0].join(tables[1], keys, join_type=HOW[how], use_threads=False).select(["l", "r"])
    found = found.sort_by([("l", "ascending"), ("r", "ascending")]).combine_chunks()
    return _only_chunk(found.column("l")), _only_chunk(found.column("r"))


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
