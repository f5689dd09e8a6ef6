"""Event time: watermarks made where the rows are made.

The promise is Spark's: rows may be up to `lateness` behind the newest seen by the same task. It is chained to the
task that produces the stream, not a task of its own: watermarks then cost no hop, and no task that happens to get no
rows (behind a local-or-shuffle, say) can hold event time back for everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.run.contract import (
    BEFORE_TIME_US,
    END_OF_TIME_US,
    MAIN,
    Build,
    Outputs,
    Polled,
    SourceTask,
    Task,
    TaskContext,
)
from penstock.run.operators.times import column_times

_STATE = "event_time"


class _Watching:
    """Outputs that pass rows on and remember the newest event time; the inner task's own watermarks stop here."""

    def __init__(self, column: str, lateness_us: int) -> None:
        self.column = column
        self.lateness_us = lateness_us
        self.newest_us = BEFORE_TIME_US
        self.told_us = BEFORE_TIME_US
        self.out: Outputs

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        self.out.emit(batch, output)
        if output == MAIN and batch.num_rows:
            times, valid = column_times(batch, self.column)
            if valid.any():
                self.newest_us = max(self.newest_us, int(np.max(times[valid])))

    def watermark(self, time_us: int) -> None:
        if time_us >= END_OF_TIME_US:
            self.told_us = time_us
            self.out.watermark(time_us)

    def arrived(self) -> None:
        self.out.arrived()

    def tell(self) -> None:
        """Pass the watermark on when it has moved."""
        if self.newest_us - self.lateness_us > self.told_us:
            self.told_us = self.newest_us - self.lateness_us
            self.out.watermark(self.told_us)


class EventTime(Task):
    """A task whose main output carries watermarks of one of its columns."""

    def __init__(self, inner: Task, column: str, lateness_us: int) -> None:
        self.inner = inner
        self.watching = _Watching(column, lateness_us)

    def open(self, context: TaskContext) -> None:
        """Open the inner task."""
        super().open(context)
        self.inner.open(context)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows through the inner task."""
        self.watching.out = out
        self.inner.process(batch, port, self.watching)
        self.watching.tell()

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """The inner task may release rows; its watermark counts only at the end of time."""
        self.watching.out = out
        self.inner.advance(watermark_us, self.watching)
        self.watching.tell()

    def wake_at(self) -> int | None:
        """As the inner task."""
        return self.inner.wake_at()

    def wake(self, now_us: int, out: Outputs) -> None:
        """As the inner task."""
        self.watching.out = out
        self.inner.wake(now_us, self.watching)
        self.watching.tell()

    def finish(self, out: Outputs) -> None:
        """As the inner task."""
        self.watching.out = out
        self.inner.finish(self.watching)

    def close(self) -> None:
        """As the inner task."""
        self.inner.close()

    def take_state(self) -> dict[str, bytes]:
        """The inner task's state and the newest time."""
        return {**self.inner.take_state(), _STATE: str(self.watching.newest_us).encode()}

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Continue; the watermark is told again with the next rows."""
        self.watching.newest_us = int(state[_STATE])
        self.inner.put_state({name: data for name, data in state.items() if name != _STATE})


class SourceEventTime(EventTime, SourceTask):
    """The same around a source."""

    inner: SourceTask

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """Ask the inner source."""
        self.watching.out = out
        polled = self.inner.poll(now_us, self.watching)
        self.watching.tell()
        return polled

    def stop(self) -> None:
        """Drain the inner source."""
        super().stop()
        self.inner.stop()


def with_event_time(build: Build, column: str, lateness_us: int) -> Task:
    """The factory's task with event time; a factory itself once the arguments are bound."""
    inner = build()
    kind = SourceEventTime if isinstance(inner, SourceTask) else EventTime
    return kind(inner, column, lateness_us)
