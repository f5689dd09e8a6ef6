"""What tests of operators and flows share: recorded outputs, random cuts, moved state, and a whole flow in one call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.run.columns.unwritten import in_bytes
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, MAIN, SourceTask, Task, TaskContext
from penstock.run.dataflow import Dataflow
from penstock.run.engine.routing import Router

US = pa.timestamp("us", tz="UTC")


class Recorder:
    """Outputs that remember."""

    def __init__(self) -> None:
        self.batches: dict[str, list[pa.RecordBatch]] = {}
        self.watermarks: list[int] = []
        self.arrivals = 0

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        self.batches.setdefault(output, []).append(batch)

    def watermark(self, time_us: int) -> None:
        assert not self.watermarks or time_us >= self.watermarks[-1], "a watermark went backwards"
        self.watermarks.append(time_us)

    def arrived(self, rows: int) -> None:
        self.arrivals += 1

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
            state = in_bytes(task.take_state())
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


class WholeFlow:
    """Runs a dataflow to its end by plain calls: batches are handed on at once, time stands still.

    What `collect` sinks get is in `rows`, by sink.
    """

    def __init__(self, flow: Dataflow, *, rows_max: int = 4096, now_us: int = 0, **settings: object) -> None:
        self.flow, self.now_us = flow, now_us
        self.delivered: dict[str, list[pa.RecordBatch]] = {}
        settings = {"deliver": lambda name, batch: self.delivered.setdefault(name, []).append(batch), **settings}
        self.tasks: dict[tuple[str, int], Task] = {}
        self.edges: dict[tuple[str, int], list] = {}  # sender -> (output, router, reader, port)
        self.marks: dict[tuple[str, int], dict] = {}  # reader -> watermark by sender and port
        for spec in flow.operators:
            for index in range(spec.tasks):
                task = spec.build()
                task.open(TaskContext(spec.name, index, spec.tasks, rows_max=rows_max, settings=settings))
                self.tasks[spec.name, index] = task
                self.edges[spec.name, index] = []
                self.marks[spec.name, index] = {}
            for port, read in enumerate(spec.inputs):
                senders = flow.operator(read.operator).tasks
                for sender in range(senders):
                    router = Router(
                        read.grouping,
                        targets=range(spec.tasks),
                        local=[i % 2 == sender % 2 for i in range(spec.tasks)],
                        index=sender,
                        tasks=senders,
                    )
                    self.edges[read.operator, sender].append((read.output, router, spec.name, port))
                    for index in range(spec.tasks):
                        self.marks[spec.name, index][read.operator, read.output, sender, port] = BEFORE_TIME_US

    def run(self) -> WholeFlow:
        sources = [place for place, task in self.tasks.items() if isinstance(task, SourceTask)]
        while sources:
            for place in list(sources):
                polled = self.tasks[place].poll(self.now_us, _Handed(self, place))  # type: ignore[attr-defined]
                self.now_us = max(self.now_us, polled.wait_until_us or 0)
                if polled.ended:
                    sources.remove(place)
        for spec in self.flow.operators:
            for index in range(spec.tasks):
                out = _Handed(self, (spec.name, index))
                if spec.inputs:
                    self.tasks[spec.name, index].advance(END_OF_TIME_US, out)
                self.tasks[spec.name, index].finish(out)
                self.tasks[spec.name, index].close()
        return self

    def marked(self, reader: tuple[str, int], sender: tuple[str, str, int, int], time_us: int) -> None:
        """Time has moved on one edge; the reader is told when that moves the least of its edges."""
        marks = self.marks[reader]
        before = min(marks.values())
        marks[sender] = max(marks[sender], time_us)
        if min(marks.values()) > before:
            self.tasks[reader].advance(min(marks.values()), _Handed(self, reader))

    def rows(self, sink: str = "out") -> list[tuple[Any, ...]]:
        return [row for batch in self.delivered.get(sink, []) for row in rows_of(batch)]


class _Handed:
    """One task's outputs."""

    def __init__(self, whole: WholeFlow, place: tuple[str, int]) -> None:
        self.whole, self.place = whole, place

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        assert batch.schema.equals(self.whole.flow.operator(self.place[0]).outputs[output]), "not the declared schema"
        for name, router, reader, port in self.whole.edges[self.place]:
            if name == output:
                for index, part in router.route(batch):
                    task, out = self.whole.tasks[reader, index], _Handed(self.whole, (reader, index))
                    task.process(part, port, out)
                    if (observed_us := task.observed_us()) is not None:
                        sender = (self.place[0], name, self.place[1], port)
                        self.whole.marked((reader, index), sender, observed_us)
                    if task.wake_at() is not None and (task.wake_at() or 0) <= self.whole.now_us:
                        task.wake(self.whole.now_us, out)

    def watermark(self, time_us: int) -> None:
        for name, router, reader, port in self.whole.edges[self.place]:
            time = self.whole.flow.operator(reader).event_time
            for index in router.targets if name == MAIN and not (time and time.by_input) else ():
                self.whole.marked((reader, index), (self.place[0], name, self.place[1], port), time_us)

    def arrived(self, rows: int) -> None:
        """Nobody asks how long it took."""
