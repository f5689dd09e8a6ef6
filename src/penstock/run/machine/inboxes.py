"""What waits for each task, and in which portions a task takes it.

An inbox is one queue for all inputs of a task, in the order of arrival: batches or slices, and the marks and ends that
came behind them. A run takes everything that waits, up to `rows_max` rows, so that small batches become one;
marks and ends on the way take effect behind it. A timed task takes the batches of one edge, a replica one slice.
Credit returns when the data is taken, or when the run is over that took it (`EdgeLayout.after_run`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.run.contract import BATCH_BYTES_MAX
from penstock.run.machine.credit import Credit
from penstock.run.machine.edge_times import EdgeTimes
from penstock.run.machine.instructions import WorkerLayout
from penstock.run.machine.linger import Linger
from penstock.run.machine.ready import ReadyQueue
from penstock.run.machine.state import END, MARK, InboxEntry, TaskState
from penstock.run.region.slices import Entry, Slices

Inputs = tuple[tuple[int, tuple[object, ...]], ...]  # by port


class Inboxes:
    """The inboxes of one machine's tasks."""

    def __init__(
        self,
        layout: WorkerLayout,
        targets: Sequence[int | None],
        tasks: Sequence[TaskState],
        ready: ReadyQueue,
        credit: Credit,
        linger: Linger,
        times: EdgeTimes,
    ) -> None:
        self._edges, self._rows_max, self._tasks = layout.edges, layout.rows_max, tasks
        self._ready, self._credit, self._linger, self._times = ready, credit, linger, times
        self._targets = targets
        self.slices = Slices(layout)
        self.in_run: list[tuple[int, int]] = []  # edges and bytes whose credit returns when the run is over

    def deliver(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A batch, a mark or an end has come to where its edge ends."""
        target = self._targets[edge]
        if target is None:
            msg = f"edge {edge} does not end on this worker"
            raise ValueError(msg)
        task = self._tasks[target]
        if self._linger.below or task.run_at_us:
            self._linger.joins(target, edge, payload, rows)
        task.inbox.append((edge, payload, size, rows))
        if not task.queued:
            self._ready.consider(target)

    def deliver_slice(self, entry: Entry) -> None:
        """A whole slice has come to where its edge ends; a merger has it when its turn comes."""
        target: int = self._targets[entry[0]]  # type: ignore[assignment] # it ends here
        for edge, payload, size, rows in self.slices.in_turn(target, entry):
            self.deliver(edge, payload, size, rows)

    def take(self, t: int, task: TaskState) -> tuple[Inputs, int]:
        """What a run of a task is given, by input, and the edge that brought the last of it."""
        room, room_bytes = self._rows_max, BATCH_BYTES_MAX
        last = -1
        batches: dict[int, list[object]] = {}
        inbox = task.inbox
        marked = False
        while inbox:
            edge, payload, size, rows = inbox[0]
            if payload is MARK:
                marked = True
                self._times.marked(edge, rows, task)
            elif payload is END:
                marked = True
                self._times.ended(edge)
                task.open_inputs -= 1
            else:
                full = rows > room or size > room_bytes or task.layout.slicewise
                if batches and (full or (task.layout.timed and edge != last)):
                    break
                room -= rows
                room_bytes -= size
                last = edge
                layout = self._edges[edge]
                if not task.layout.merges:
                    batches.setdefault(layout.port, []).append(payload)
                elif parts := payload.parts:  # type: ignore[attr-defined] # a slice
                    batches.setdefault(layout.port, []).extend(parts)
                if layout.after_run:
                    self.in_run.append((edge, size))
                else:
                    self._credit.give_back(edge, size)
            inbox.popleft()
        if task.run_at_us:  # what is left has waited long enough
            self._linger.run_soon(t)
        if marked:
            self._times.settle(task)
        return tuple([(port, tuple(payloads)) for port, payloads in batches.items()]), last

    def end_run(self) -> None:
        """The last instruction has been carried out: credit that was to wait for the end of its run returns."""
        for edge, size in self.in_run:
            self._credit.give_back(edge, size)
        self.in_run.clear()

    def waiting(self, t: int) -> list[InboxEntry]:
        """What waits for a task, in its inbox or for its turn to get there."""
        return [*self._tasks[t].inbox, *self.slices.held(t)]

    def untaken(self, edge: int) -> int:
        """Bytes that have come along an edge and wait, or are in a run that keeps their credit."""
        t: int = self._targets[edge]  # type: ignore[assignment] # it ends here
        waiting = sum(entry[2] for entry in self.waiting(t) if entry[0] == edge)
        return waiting + sum(size for e, size in self.in_run if e == edge)
