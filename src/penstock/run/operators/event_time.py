"""Event time: watermarks made where the rows are made, chained to the task that makes them.

The promise is Spark's: rows are at most `lateness` behind the newest row of the same source task. Three kinds of task:

- A source goes by the rows it emits. A source that knows its next rows' times tells exact watermarks itself.
- A stateless task has a newest time for each input edge, and its time is that of the slowest edge. Each edge must carry
  the rows of one source task in their order; `flow/lineage.py` refuses event time elsewhere.
- A stateful task goes by the newest time it has emitted, but stays behind the event time of its input
  (`test_event_time_behind_state_is_never_ahead_of_its_input`).

Rejected: a separate task for watermarks. It costs a hop, and without rows of its own it would hold all readers back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.run.columns.unwritten import State
from penstock.run.contract import (
    BEFORE_TIME_US,
    END_OF_TIME_US,
    IDLE_US,
    MAIN,
    Build,
    Outputs,
    Owns,
    Polled,
    SourceTask,
    Task,
    TaskContext,
)
from penstock.run.dataflow import TimeSpec
from penstock.run.operators.times import column_times

_STATE, _TOLD = "event_time", "event_time_told"


class _Watching:
    """Outputs that pass rows on and remember the newest event time; the inner task's own watermarks stop here."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.newest_us = BEFORE_TIME_US
        self.out: Outputs

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        self.out.emit(batch, output)
        if output == MAIN and batch.num_rows:
            times, valid = column_times(batch, self.column)
            if valid.any():
                self.newest_us = max(self.newest_us, int(np.max(times[valid])))

    def watermark(self, time_us: int) -> None:
        if time_us == END_OF_TIME_US:
            self.newest_us = BEFORE_TIME_US  # what waited for the time of its input must not be told behind the end
            self.out.watermark(time_us)

    def arrived(self, rows: int) -> None:
        self.out.arrived(rows)


class _Timed(Task):
    """A task around another, which does the work."""

    def __init__(self, inner: Task, time: TimeSpec) -> None:
        self.inner = inner
        self.lateness_us = time.lateness_us
        self.input_us = BEFORE_TIME_US if time.behind_input else END_OF_TIME_US
        self.watching = _Watching(time.column)

    def open(self, context: TaskContext) -> None:
        """Open the inner task."""
        super().open(context)
        self.inner.open(context)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows through the inner task."""
        self.watching.out = out
        self.inner.process(batch, port, self.watching)

    def wake_at(self) -> int | None:
        """As the inner task."""
        return self.inner.wake_at()

    def wake(self, now_us: int, out: Outputs) -> None:
        """As the inner task."""
        self.watching.out = out
        self.inner.wake(now_us, self.watching)

    def finish(self, out: Outputs) -> None:
        """As the inner task."""
        self.watching.out = out
        self.inner.finish(self.watching)

    def close(self) -> None:
        """As the inner task."""
        self.inner.close()

    def take_state(self) -> Mapping[str, State]:
        """The inner task's state and the newest time."""
        return {**self.inner.take_state(), _STATE: str(self.watching.newest_us).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue."""
        self.watching.newest_us = int(state[_STATE])
        self.inner.put_state(_inner(state))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """The newest time that all tasks have reached: what a task says of time binds it."""
        self.watching.newest_us = min((int(state[_STATE]) for state in states if state), default=BEFORE_TIME_US)
        self.inner.put_states([_inner(state) for state in states], owns)


class EventTime(_Timed):
    """A task whose watermark is the newest time that it has emitted, less the lateness."""

    told_us = BEFORE_TIME_US
    is_idle = False

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows through the inner task, then the watermark."""
        super().process(batch, port, out)
        self.tell(out)

    def idle(self, out: Outputs) -> None:
        """Tell readers that event time need not wait for this task."""
        self.is_idle = True
        out.watermark(IDLE_US)

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Let the inner task release rows; of its own watermarks the end of time alone is passed on."""
        if self.is_idle:
            self.is_idle = False
            out.watermark(self.told_us)
        self.input_us = max(self.input_us, watermark_us)
        self.watching.out = out
        self.inner.advance(watermark_us, self.watching)
        self.tell(out)

    def wake(self, now_us: int, out: Outputs) -> None:
        """Let the inner task release rows, then send the watermark."""
        super().wake(now_us, out)
        self.tell(out)

    def take_state(self) -> Mapping[str, State]:
        """Also what readers have been told: what is told when the task wakes, and whether it sleeps."""
        return {**super().take_state(), _TOLD: json.dumps([self.told_us, self.is_idle]).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue; the engine tells readers again."""
        super().put_state(state)
        self.told_us, self.is_idle = json.loads(bytes(state[_TOLD]))

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """The least that any of them has told, as the engine tells it; nobody sleeps."""
        super().put_states(states, owns)
        self.told_us = min((json.loads(bytes(state[_TOLD]))[0] for state in states if state), default=BEFORE_TIME_US)

    def tell(self, out: Outputs) -> None:
        """Send the watermark if it has moved."""
        newest_us = min(self.watching.newest_us, self.input_us)
        if self.lateness_us is not None and newest_us - self.lateness_us > self.told_us:
            self.told_us = newest_us - self.lateness_us
            out.watermark(self.told_us)


class EventTimeByInput(_Timed):
    """A task that tells, after each batch, the event time of the edge that brought it; the machine takes the least."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows through the inner task; the newest time starts afresh, for one edge's rows say nothing of another's."""
        self.watching.newest_us = BEFORE_TIME_US
        super().process(batch, port, out)

    def observed_us(self) -> int | None:
        """The newest time of what was just emitted, less the lateness."""
        newest_us = self.watching.newest_us
        return None if self.lateness_us is None or newest_us == BEFORE_TIME_US else newest_us - self.lateness_us

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Pass the slowest edge's time on; the inner task has no state that depends on it."""
        out.watermark(watermark_us)


class SourceEventTime(EventTime, SourceTask):
    """The same around a source."""

    inner: SourceTask
    _tells_itself = False

    def open(self, context: TaskContext) -> None:
        """Open the inner source, which may know by then what is still to come and tell time exactly."""
        super().open(context)
        self._tells_itself = self.inner.tells_time(self.watching.column)

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """Ask the inner source."""
        if self._tells_itself:
            return self.inner.poll(now_us, out)
        self.watching.out = out
        polled = self.inner.poll(now_us, self.watching)
        self.tell(out)
        return polled

    def due_us(self) -> int | None:
        """As the inner source."""
        return self.inner.due_us()

    def stop(self) -> None:
        """Drain the inner source."""
        super().stop()
        self.inner.stop()


def _inner(state: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in state.items() if name not in {_STATE, _TOLD}}


def with_event_time(build: Build, time: TimeSpec) -> Task:
    """The factory's task with event time; bind both arguments, and this is the factory."""
    inner = build()
    if isinstance(inner, SourceTask):
        return inner if inner.tells_time(time.column) else SourceEventTime(inner, time)
    return EventTimeByInput(inner, time) if time.by_input else EventTime(inner, time)
