"""What operator tests share: recorded outputs, random cuts into batches, and a run that moves its state on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.run.contract import END_OF_TIME_US, MAIN, Task, TaskContext

US = pa.timestamp("us", tz="UTC")


class Recorder:
    """Outputs that remember."""

    def __init__(self) -> None:
        self.batches: dict[str, list[pa.RecordBatch]] = {}
        self.watermarks: list[int] = []

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        self.batches.setdefault(output, []).append(batch)

    def watermark(self, time_us: int) -> None:
        assert not self.watermarks or time_us >= self.watermarks[-1], "a watermark went backwards"
        self.watermarks.append(time_us)

    def rows(self, output: str = MAIN) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches.get(output, []) for row in rows_of(batch)]

    def bag(self, output: str = MAIN) -> Counter[tuple[Any, ...]]:
        return Counter(self.rows(output))


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Rows as tuples, timestamps as microseconds."""
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in batch.columns
    ]
    return list(zip(*columns, strict=True))


def opened(
    build: Callable[[], Task], *, rows_max: int = 4096, tasks: int = 1, index: int = 0, **settings: object
) -> Task:
    task = build()
    task.open(TaskContext("op", index, tasks, rows_max=rows_max, settings=settings))
    return task


def cut(batch: pa.RecordBatch, sizes: Sequence[int]) -> list[pa.RecordBatch]:
    """The batch in pieces of these sizes, by turns."""
    pieces, at, turn = [], 0, 0
    while at < batch.num_rows:
        size = max(1, sizes[turn % len(sizes)]) if sizes else batch.num_rows
        pieces.append(batch.slice(at, size))
        at, turn = at + size, turn + 1
    return pieces


cuts = st.lists(st.integers(1, 9), max_size=4)


def drive(
    build: Callable[[], Task],
    steps: Sequence[Any],
    *,
    move_at: int | None = None,
    rows_max: int = 4096,
    end: bool = True,
) -> Recorder:
    """Feed steps: a batch, (batch, port), or an int watermark; at step `move_at` a fresh task goes on."""
    out = Recorder()
    task = opened(build, rows_max=rows_max)
    for i, step in enumerate(steps):
        if i == move_at:
            state = task.take_state()
            assert all(isinstance(data, bytes) for data in state.values())
            task.close()
            task = opened(build, rows_max=rows_max)
            task.put_state(state)
        if isinstance(step, int):
            task.advance(step, out)
        else:
            batch, port = step if isinstance(step, tuple) else (step, 0)
            task.process(batch, port, out)
    if end:
        task.advance(END_OF_TIME_US, out)
        task.finish(out)
    task.close()
    return out
