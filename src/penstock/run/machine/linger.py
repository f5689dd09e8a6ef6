"""Linger: how long small batches wait for others to join them, before a task or before they are sent.

With `linger_us` every batch below `rows_max` waits for that time, on every edge. Without it, batches wait in a busy
worker alone. A worker counts as busy when it has not rested for BUSY_AFTER_US; joining batches then saves more than it
costs. Batches below a fraction of `rows_max` wait for at most BUSY_LINGER_US, or until the worker rests
(`test_a_busy_worker_holds_nothing_for_longer_than_its_limit`). Marks and ends go behind what waits
(`test_what_lingers_before_it_is_sent_goes_in_order_with_its_watermark_and_end`).
Measured and argued in docs/decisions/0013-engine-speed.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.run.contract import BATCH_BYTES_MAX, BEFORE_TIME_US, END_OF_TIME_US, IDLE_US
from penstock.run.machine.alarms import Alarms
from penstock.run.machine.instructions import Send, WorkerLayout
from penstock.run.machine.ready import ReadyQueue
from penstock.run.machine.state import END, MARK, HeldBatches, Moment, TaskState

BUSY_AFTER_US = 2_000  # after this time without rest a worker counts as busy
BUSY_LINGER_US = 1_000
BUSY_SMALL = 8  # while busy, batches below this fraction of rows_max are held


class Linger:
    """What is held on one worker, and until when."""

    def __init__(
        self, layout: WorkerLayout, tasks: Sequence[TaskState], ready: ReadyQueue, alarms: Alarms, moment: Moment
    ) -> None:
        self._edges, self._rows_max = layout.edges, layout.rows_max
        self._tasks, self._ready, self._alarms, self._moment = tasks, ready, alarms, moment
        self.when_busy = layout.linger_us == 0
        self._small = layout.rows_max // BUSY_SMALL if self.when_busy else layout.rows_max
        self._patience_us = layout.linger_us  # how long small batches are held just now
        self.below = 0 if self.when_busy else self._small  # batches of fewer rows are held just now
        self.look_at_us = BEFORE_TIME_US if self.when_busy else END_OF_TIME_US  # when `look` is wanted
        self._rested = True
        self.held: dict[int, HeldBatches] = {}  # outbound edges, where batches linger
        self._lingering: set[int] = set()  # tasks with a `run_at_us`

    # -- when ----------------------------------------------------------------------------------------------------------

    def look(self, now_us: int) -> None:
        """The first instruction since the last rest, or one so much later that the worker counts as busy."""
        if self._rested:
            self._rested = False
            self.look_at_us = now_us + BUSY_AFTER_US + 1
        else:
            self._patience_us, self.below = BUSY_LINGER_US, self._small
            self.look_at_us = END_OF_TIME_US

    def let_go(self) -> bool:
        """The worker rests, so no batch that it held because it was busy is held longer; whether there was one."""
        self._rested, self.look_at_us = True, BEFORE_TIME_US
        self._patience_us = self.below = 0
        late = [t for t in self._lingering if not self._tasks[t].blocked]  # blocked tasks: at the next rest
        for t in late:
            self.run_soon(t)
            self._ready.consider(t)
        for held in self.held.values():
            held.send_at_us = 0
        return bool(late or self.held)

    # -- before tasks --------------------------------------------------------------------------------------------------

    def joins(self, t: int, edge: int, payload: object, rows: int) -> None:
        """An entry joins a task's inbox: when the task is to run. What comes from another worker was held there."""
        task = self._tasks[t]
        if task.layout.slicewise:
            return  # slices cannot be joined, and a splitter would take a replica that holds them for a slow one
        was_empty = not task.inbox
        if payload is END or (payload is MARK and was_empty):
            self.run_soon(t)
        elif payload is not MARK:
            task.inbox_rows = rows if was_empty else task.inbox_rows + rows
            if self._edges[edge].source is None or rows >= self._small or task.inbox_rows >= self._rows_max:
                self.run_soon(t)
            elif was_empty:
                task.run_at_us = self._moment.us + self._patience_us
                self._lingering.add(t)
                self._alarms.ask(t, task.run_at_us)

    def run_soon(self, t: int) -> None:
        """What waits for a task has waited for long enough."""
        self._tasks[t].run_at_us = 0
        self._lingering.discard(t)

    def go_on(self, t: int) -> None:
        """A selective task holds no data any more: a time that did not count meanwhile counts again."""
        task = self._tasks[t]
        if task.inbox and task.run_at_us:
            self._alarms.ask(t, task.run_at_us)

    # -- before sending ------------------------------------------------------------------------------------------------

    def holds(self, edge: int, rows: int = 0) -> bool:
        """Whether a batch (or, without rows, a mark) for an edge to another worker is to be held instead of sent."""
        return edge in self.held or 0 < rows < self.below

    def hold(self, edge: int, payload: object, size: int, rows: int) -> None:
        """Keep a batch until `Send`."""
        held = self.held.get(edge)
        if held is None:
            held = self.held[edge] = HeldBatches(self._moment.us + self._patience_us)
        held.payloads.append(payload)
        held.rows += rows
        held.size += size
        if held.rows >= self._rows_max or held.size >= BATCH_BYTES_MAX:
            held.send_at_us = 0

    def mark(self, edge: int, time_us: int) -> None:
        """A watermark for an outbound edge goes behind what is held there, if anything is."""
        held = self.held.get(edge)
        if held is not None:
            held.idle = time_us == IDLE_US
            held.watermark_us = held.watermark_us if held.idle else time_us

    def end(self, edge: int) -> None:
        """The end of an outbound edge goes behind what is held there; no batch joins those any more."""
        held = self.held.get(edge)
        if held is not None:
            held.ended = True
            held.send_at_us = 0

    def due_send(self, now_us: int) -> Send | None:
        """The batches of one edge whose time to be sent has come."""
        for edge, held in self.held.items():
            if held.send_at_us <= now_us:
                return self.flush(edge)
        return None

    def flush(self, edge: int) -> Send | None:
        """What is held on an edge, to be sent before a marker: what comes later must not join it."""
        held = self.held.pop(edge, None)
        if held is None:
            return None
        return Send(edge, tuple(held.payloads), held.size, held.watermark_us, held.ended, held.idle)

    def earliest_send(self) -> int | None:
        """When the first of what is held is to be sent."""
        return min([held.send_at_us for held in self.held.values()], default=None)
