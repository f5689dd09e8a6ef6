"""Sources: a generator function, files, a steady rate, and batches that Spark hands in.

Each is asked (`poll`) and answers with at most about one batch, so the worker stays in charge. A source's state is its
position. A generator skips what it has emitted before, or is told how much that was, if its function asks for `start`;
both need input that comes in the same order again. A rate's tasks hold *lanes* (next value, step, end), which other
tasks can share out anew.
"""

from __future__ import annotations

import inspect
import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple

import pyarrow as pa

from penstock._core import rate_batch
from penstock.errors import InvalidInput
from penstock.model.task_id import operator_of
from penstock.run.contract import BATCH_BYTES_MAX, ENDED, MORE, Outputs, Owns, Polled, SourceTask, TaskContext
from penstock.run.engine.faults import StateRefused
from penstock.run.operators.convert import conform, row_bytes, rows_to_batch

PAUSE_US = 1_000  # how long a source without rows waits before it is asked again
GATHER_NS = 2_000_000  # rows are gathered for a batch no longer than this: a slow generator's rows go out as they come
LOOK_ROWS = 64  # at most so many rows between two looks at the clock
SKIPPED_AT_ONCE = 4096  # items that were taken before
LOOKS_MIN = 8  # looks before a batch is as large as it may be
TICK_US = 150  # a steady source gives the rows of so long a time together: one row alone costs as much as ten
SETTING_INPUTS = "inputs"  # operator name -> iterator of batches (None: nothing yet), for DataFrame sources
START = "start"  # the parameter of a function that can begin behind its first items
TAKEN, LANES, BEGAN = "taken", "lanes", "began"  # names of states
NO_END = 1 << 62  # in place of the number of values

_ENDED = object()  # in place of an item: there is no other

GeneratorFunction = Callable[Concatenate[int, int, ...], Iterable[Any]]


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
            if item is None:  # when nothing comes differs from time to time: it is no position
                self._emit(rows, out)
                return MORE if rows else Polled(wait_until_us=now_us + PAUSE_US)
            self.taken += 1
            if isinstance(item, pa.RecordBatch):
                self._emit(rows, out)
                out.emit(conform(item, self.schema, f"source {self.context.operator!r}"))
                return MORE
            rows.append(item)
        self._emit(rows, out)
        return MORE

    def _started(self) -> Iterator[object]:
        if self._iterator is None:
            self._iterator = self._continued()
            self.taken = self._skip
        return self._iterator

    def _continued(self) -> Iterator[object]:
        """The iterator behind what was taken before."""
        iterator = iter(self.items())
        return _behind(iterator, self._skip, self.context.id) if self._skip else iterator

    def _emit(self, rows: list[object], out: Outputs) -> None:
        if rows:
            out.emit(rows_to_batch(rows, self.schema))

    def take_state(self) -> dict[str, bytes]:
        """How many items have been taken."""
        return {TAKEN: str(max(self.taken, self._skip)).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Skip what was taken before."""
        self._skip = int(state[TAKEN])
        self._iterator = None


def _behind(items: Iterator[object], count: int, source: str) -> Iterator[object]:
    """What comes behind so many items, with a pause now and then: others of the worker wait for their turn."""
    left = count
    for item in items:
        if item is None:
            yield None
            continue
        left -= 1
        if left == 0:
            yield from items
            return
        if left % SKIPPED_AT_ONCE == 0:
            yield None
    msg = f"source {source!r} cannot continue at item {count}: it has fewer now"
    raise StateRefused(operator_of(source), InvalidInput(msg))  # the same function would be asked again


class GeneratorSource(PositionedSource):
    """Rows or batches of a user's `f(task_index, tasks)`."""

    def __init__(self, function: GeneratorFunction, schema: pa.Schema) -> None:
        self.function = function
        self.schema = schema

    def items(self) -> Iterator[object]:
        """The user's own iterator."""
        return iter(self.function(self.context.index, self.context.tasks))

    def _continued(self) -> Iterator[object]:
        """A function that asks for `start` finds the place itself: nothing has to be made again and thrown away."""
        if not asks_start(self.function):
            return super()._continued()
        return iter(self.function(self.context.index, self.context.tasks, start=self._skip))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """What a task yields follows from how many there are: nobody else can go on for it."""
        msg = (
            f"source {self.context.operator!r} is a generator that was read by {len(states)} tasks and has "
            f"{self.context.tasks} now; give it {len(states)} again, or begin in another checkpoint folder"
        )
        raise InvalidInput(msg)


def asks_start(function: Callable[..., object]) -> bool:
    """Whether a generator's function wants to be told how many of its items have been taken."""
    try:
        found = inspect.signature(function).parameters.get(START)
    except (TypeError, ValueError):  # some functions of C tell no signature
        return False
    return found is not None and found.kind is not found.POSITIONAL_ONLY and found.default is found.empty


class HandedSource(PositionedSource):
    """Batches that the deployment hands in through `settings["inputs"][operator]`, as for a Spark DataFrame."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def items(self) -> Iterator[object]:
        """The iterator of this operator, or nothing where this worker was handed none."""
        inputs = self.context.settings.get(SETTING_INPUTS)
        handed = inputs.get(self.context.operator) if isinstance(inputs, Mapping) else None
        return iter(()) if handed is None else iter(handed)


class Lane(NamedTuple):
    """Values that one task gives, one after the other."""

    next: int
    step: int
    end: int  # not reached
    is_open: bool  # what no task has come to begins in its lane of this kind, of which each task has one

    @property
    def left(self) -> int:
        """How many values."""
        return max(0, -(-(self.end - self.next) // self.step))

    def until(self, bound: int) -> int:
        """How many values are below a bound."""
        return min(self.left, max(0, -(-(bound - self.next) // self.step)))

    def after(self, count: int) -> Lane:
        """What is left behind so many values."""
        return self._replace(next=self.next + count * self.step)


class RateSource(SourceTask):
    """Rows (timestamp, value) at a steady rate, as Spark's rate source; tasks share the values by turns."""

    def __init__(self, rows_per_second: float, rows: int | None, start_us: int | None, schema: pa.Schema) -> None:
        self.rows_per_second = rows_per_second
        self.rows = rows
        self.start_us = start_us
        self.schema = schema

    def open(self, context: TaskContext) -> None:
        """The clock starts with the first poll."""
        super().open(context)
        self.stopped = False
        self._began_us: int | None = None
        self._polled_us = 0
        self._us_per_value = 1_000_000 / self.rows_per_second
        self._end = NO_END if self.rows is None else self.rows
        self._keep([Lane(context.index, context.tasks, self._end, True)])  # the step: all tasks have a turn

    def _keep(self, lanes: Iterable[Lane]) -> None:
        self._known = sorted(lane for lane in lanes if lane.left or lane.is_open)
        self._lanes = [lane for lane in self._known if lane.left]

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """All rows that are due by now, up to one batch."""
        began_us = self._began_us
        if began_us is None:
            began_us = self._began_us = now_us
        if self.stopped or not self._lanes:
            return ENDED
        bound = int((now_us - began_us) * self.rows_per_second / 1_000_000) + 1  # values below this are due
        upto = min(bound, self._room())
        if upto > self._lanes[0].next:
            self._polled_us = now_us
            self._give(upto, began_us, out)
            if not self._lanes:
                return ENDED
            if self._lanes[0].next < bound:
                return MORE  # than one batch
        due_us = began_us + int(self._lanes[0].next * self._us_per_value)
        return Polled(wait_until_us=max(now_us + 1, self._polled_us + TICK_US, due_us))

    def _room(self) -> int:
        """A bound below which there is a batch of values at most, and one value at least."""
        first, rows_max = self._lanes[0], self.context.rows_max
        if len(self._lanes) == 1:
            return first.next + rows_max * first.step
        dense = sum(1 / lane.step for lane in self._lanes)
        return first.next + max(1, int((rows_max - len(self._lanes)) / dense))

    def _give(self, bound: int, began_us: int, out: Outputs) -> None:
        """The values below a bound in their order."""
        counts = [lane.until(bound) for lane in self._known]
        batches = [self._batch(lane, n, began_us) for lane, n in zip(self._known, counts, strict=True) if n]
        # Several lanes are what other tasks had left when this one took over: a moment's values, mostly.
        whole = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).sort_by("value").combine_chunks()
        self._keep([lane.after(n) for lane, n in zip(self._known, counts, strict=True)])
        for batch in whole.to_batches() if isinstance(whole, pa.Table) else [whole]:
            out.emit(batch)

    def due_us(self) -> int | None:
        """When the schedule has the next row; None before the clock has started."""
        if self._began_us is None or not self._lanes:
            return None
        return self._began_us + int(self._lanes[0].next * self._us_per_value)

    def _batch(self, lane: Lane, rows: int, began_us: int) -> pa.RecordBatch:
        base_us = began_us if self.start_us is None else self.start_us
        return rate_batch(lane.next, lane.step, rows, base_us, self._us_per_value, self.schema)

    def take_state(self) -> dict[str, bytes]:
        """The values that are left, and when the first of all was due."""
        began = b"" if self._began_us is None else str(self._began_us).encode()
        return {LANES: json.dumps(self._known).encode(), BEGAN: began}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue on the same schedule: rows that fell due in the meantime come at once."""
        self._keep(_lanes_in(state))
        self._began_us = int(state[BEGAN]) if state[BEGAN] else None

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Values that no task has come to are shared by turns; those that some have left below that, lane by lane."""
        index, tasks = self.context.index, self.context.tasks
        found = [lane for state in states for lane in _lanes_in(state)]
        far = min(self._end, max(lane.next for lane in found if lane.is_open))
        near = sorted(lane._replace(end=min(lane.end, far), is_open=False) for lane in found)
        self._keep([*[lane for lane in near if lane.left][index::tasks], Lane(far + index, tasks, self._end, True)])
        self._began_us = min((int(state[BEGAN]) for state in states if state[BEGAN]), default=None)


def _lanes_in(state: Mapping[str, bytes]) -> list[Lane]:
    return [Lane(*lane) for lane in json.loads(bytes(state[LANES]))]
