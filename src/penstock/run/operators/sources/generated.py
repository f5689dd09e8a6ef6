"""Sources: a generator function, files, a steady rate, and batches that Spark hands in.

Each is asked (`poll`) and answers with at most about one batch, so the worker stays in charge. A source's state is its
position; what it has emitted before is skipped when it continues, which needs input that comes in the same order again.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock._core import rate_batch
from penstock.errors import InvalidInput
from penstock.run.contract import BATCH_BYTES_MAX, ENDED, MORE, Outputs, Polled, SourceTask, TaskContext
from penstock.run.operators.convert import conform, row_bytes, rows_to_batch

PAUSE_US = 1_000  # how long a source without rows waits before it is asked again
GATHER_NS = 2_000_000  # rows are gathered for a batch no longer than this: a slow generator's rows go out as they come
LOOK_ROWS = 64  # at most so many rows between two looks at the clock
LOOKS_MIN = 8  # looks before a batch is as large as it may be
TICK_US = 150  # a steady source gives the rows of so long a time together: one row alone costs as much as ten
SETTING_INPUTS = "inputs"  # operator name -> iterator of batches (None: nothing yet), for DataFrame sources

_ENDED = object()  # in place of an item: there is no other

GeneratorFunction = Callable[[int, int], Iterable[Any]]


class PositionedSource(SourceTask):
    """A source over one iterator of rows, batches, or None for "nothing yet"."""

    schema: pa.Schema

    @abstractmethod
    def items(self) -> Iterator[object]:
        """The iterator, from the beginning."""

    def open(self, context: TaskContext) -> None:
        """Nothing is read before the first poll."""
        super().open(context)
        self.stopped = False
        self.taken = 0
        self._skip = 0
        self._iterator: Iterator[object] | None = None

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """One batch, or the rows up to the next pause, or what a slow function gives in a moment."""
        if self.stopped:
            return ENDED
        iterator = self._started()
        if self.taken < self._skip and not self._skips(iterator):
            return Polled(wait_until_us=now_us + PAUSE_US)
        rows: list[object] = []
        began_ns, look_at, step, room = time.monotonic_ns(), 1, 1, BATCH_BYTES_MAX
        while len(rows) < self.context.rows_max:
            if len(rows) >= look_at:  # after 1, 2, 4, ... rows: the clock costs as much as a quick row
                size = row_bytes(rows[-1])
                room -= size * step
                if time.monotonic_ns() - began_ns > GATHER_NS or room <= 0:
                    break
                # Rows are alike, mostly: one of some is measured, and the longer it is the sooner the next.
                step = min(look_at, LOOK_ROWS, room // LOOKS_MIN // (size + 1) + 1)
                look_at += step
            item = next(iterator, _ENDED)
            if item is _ENDED:
                self._emit(rows, out)
                return ENDED
            self.taken += item is not None
            if isinstance(item, pa.RecordBatch):
                self._emit(rows, out)
                out.emit(conform(item, self.schema, f"source {self.context.operator!r}"))
                return MORE
            if item is None:
                self._emit(rows, out)
                return MORE if rows else Polled(wait_until_us=now_us + PAUSE_US)
            rows.append(item)
        self._emit(rows, out)
        return MORE

    def _started(self) -> Iterator[object]:
        if self._iterator is None:
            self._iterator = iter(self.items())
        return self._iterator

    def _skips(self, iterator: Iterator[object]) -> bool:
        """Pass over what was taken before; False where there is nothing yet, and more to pass over."""
        while self.taken < self._skip:
            item = next(iterator, _ENDED)
            if item is None:
                return False
            if item is _ENDED:
                msg = f"source {self.context.id!r} cannot continue at item {self._skip}: it has fewer now"
                raise InvalidInput(msg)
            self.taken += 1
        return True

    def _emit(self, rows: list[object], out: Outputs) -> None:
        if rows:
            out.emit(rows_to_batch(rows, self.schema))

    def take_state(self) -> dict[str, bytes]:
        """How many items have been taken; pauses do not count: they depend on the time, and come otherwise again."""
        return {"taken": str(max(self.taken, self._skip)).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Skip what was taken before."""
        self._skip, self.taken = int(state["taken"]), 0
        self._iterator = None


class GeneratorSource(PositionedSource):
    """Rows or batches of a user's `f(task_index, tasks)`."""

    def __init__(self, function: GeneratorFunction, schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema

    def items(self) -> Iterator[object]:
        """The user's own iterator."""
        return iter(self.function(self.context.index, self.context.tasks))


class HandedSource(PositionedSource):
    """Batches that the deployment hands in through `settings["inputs"][operator]`, as for a Spark DataFrame."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def items(self) -> Iterator[object]:
        """The iterator of this operator, or nothing where this worker was handed none."""
        inputs = self.context.settings.get(SETTING_INPUTS)
        handed = inputs.get(self.context.operator) if isinstance(inputs, Mapping) else None
        return iter(()) if handed is None else iter(handed)


class RateSource(SourceTask):
    """Rows (timestamp, value) at a steady rate, as Spark's rate source; tasks share the values by turns."""

    def __init__(self, rows_per_second: float, rows: int | None, start_us: int | None, schema: pa.Schema) -> None:
        self.rows_per_second = rows_per_second
        self.rows = rows
        self.start_us = start_us
        self.schema = schema
        self.sent = 0  # rows of this task

    def open(self, context: TaskContext) -> None:
        """The clock starts with the first poll."""
        super().open(context)
        self.stopped = False
        self._began_us: int | None = None
        self._polled_us = 0
        self._step = context.tasks  # from one value of this task to the next
        self._us_per_value = 1_000_000 / self.rows_per_second
        rows = (1 << 62) if self.rows is None else self.rows
        self._limit = max(0, -(-(rows - context.index) // context.tasks))  # rows of this task in all

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """All rows that are due by now, up to one batch."""
        began_us = self._began_us
        if began_us is None:
            began_us = self._began_us = now_us
        if self.stopped or self.sent >= self._limit:
            return ENDED
        values = int((now_us - began_us) * self.rows_per_second / 1_000_000)  # 0 to this are due
        due = (values - self.context.index) // self._step + 1
        given = min(due, self._limit, self.sent + self.context.rows_max)
        if given > self.sent:
            self._polled_us = now_us
            out.emit(self._batch(given - self.sent, began_us))
            self.sent = given
            if given >= self._limit:
                return ENDED
            if given < due:
                return MORE  # than one batch
        due_us = began_us + int(self._value() * self._us_per_value)
        return Polled(wait_until_us=max(now_us + 1, self._polled_us + TICK_US, due_us))

    def due_us(self) -> int | None:
        """When the schedule has the next row; None before the clock has started."""
        return None if self._began_us is None else self._began_us + int(self._value() * self._us_per_value)

    def _value(self) -> int:
        """Of the next row."""
        return self.sent * self._step + self.context.index

    def _batch(self, rows: int, began_us: int) -> pa.RecordBatch:
        base_us = began_us if self.start_us is None else self.start_us
        return rate_batch(self._value(), self._step, rows, base_us, self._us_per_value, self.schema)

    def take_state(self) -> dict[str, bytes]:
        """Rows sent, and when the first was due."""
        return {
            "sent": str(self.sent).encode(),
            "began": b"" if self._began_us is None else str(self._began_us).encode(),
        }

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue on the same schedule: rows that fell due in the meantime come at once."""
        self.sent = int(state["sent"])
        self._began_us = int(state["began"]) if state["began"] else None
