"""The worker's decisions: which task runs next, what it may send, when a stream has ended. Pure; nothing here waits.

Events go in through methods (`received`, `credit`, `emitted`, ...), one instruction at a time comes out of `next`.
Payloads are opaque, edges and tasks are numbers, time is given. The thin loop in `worker.py` carries instructions out;
the simulator carries them out under virtual time.

Flow control is per edge, by credit: an edge holds at most its window of bytes that the receiving task has not taken
yet, and a task runs only when every one of its outputs is below its window. What a run emits may overdraw a window by
that one run. Credits return when the receiver takes the data, whatever its own outputs do, and the topology has no
cycles, so the last task always can run: no deadlock, although workers send to each other in circles. Rejected: one
queue per worker pair, which a single blocked task clogs for all.

Order: the ready task nearest to the sinks runs first, which keeps queues short and latency low. A run takes everything
that waits, up to `rows_max`, so batches grow under load by themselves; watermarks and ends take effect after the data
that came before them on the same edge.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field

from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US


@dataclass(frozen=True, slots=True)
class EdgeLayout:
    """One pair of tasks. An end that is not on this worker is None."""

    source: int | None
    target: int | None
    port: int = 0  # the target's input that the edge feeds
    window: int = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """One task of this worker."""

    name: str
    depth: int  # distance from the sources in operators
    is_source: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLayout:
    """The part of the job that one worker runs; tasks and edges are numbered within it."""

    tasks: tuple[TaskLayout, ...]
    edges: tuple[EdgeLayout, ...]
    rows_max: int = 4096


@dataclass(frozen=True, slots=True)
class Run:
    """Give a task the batches that wait for it, by input."""

    task: int
    inputs: tuple[tuple[int, tuple[object, ...]], ...]


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask a source for more."""

    task: int


@dataclass(frozen=True, slots=True)
class Advance:
    """Tell a task that event time has moved."""

    task: int
    watermark_us: int


@dataclass(frozen=True, slots=True)
class Wake:
    """A time that a task asked for has come."""

    task: int


@dataclass(frozen=True, slots=True)
class Finish:
    """All inputs of a task have ended."""

    task: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can run until an event comes, or until this time."""

    until_us: int | None


@dataclass(frozen=True, slots=True)
class Done:
    """Every task has finished."""


Instruction = Run | Poll | Advance | Wake | Finish | Wait | Done


@dataclass(slots=True)
class _Task:
    layout: TaskLayout
    inputs: list[int]
    outputs: list[int]
    open_inputs: int
    inbox: deque[tuple[int, object, int, int]] = field(default_factory=deque)  # edge, payload, bytes, rows
    blocked: int = 0  # outputs at or above their window
    blocked_since_us: int = 0
    blocked_us: int = 0  # how long it has been unable to run for want of credit
    queued: bool = False  # in the ready heap
    watermark_us: int = BEFORE_TIME_US
    told_us: int = BEFORE_TIME_US
    wake_at_us: int | None = None
    poll_at_us: int | None = None  # sources: not before this time
    source_ended: bool = False
    finished: bool = False


_MARK = object()  # payloads of inbox entries that are no data
_END = object()


@dataclass(frozen=True, slots=True)
class Statistics:
    """How full the machine is; every queue is bounded and this shows it."""

    queued_batches: int
    queued_bytes: int
    unfinished_tasks: int
    blocked_tasks: int


class Machine:
    """One worker's state. The only way to change it is through its event methods and `next`."""

    def __init__(self, layout: WorkerLayout) -> None:
        self.layout = layout
        self._edges = layout.edges
        self._outstanding = [0] * len(layout.edges)
        self._edge_watermark = [BEFORE_TIME_US] * len(layout.edges)
        self._edge_ended = [False] * len(layout.edges)
        self._tasks = [
            _Task(
                task,
                [e for e, edge in enumerate(layout.edges) if edge.target == t],
                [e for e, edge in enumerate(layout.edges) if edge.source == t],
                0,
            )
            for t, task in enumerate(layout.tasks)
        ]
        self._ready: list[tuple[int, int]] = []
        self._now_us = 0
        self._alarm_us = END_OF_TIME_US  # no task asked to be woken before this
        self._unfinished = len(self._tasks)
        self.grants: dict[int, int] = {}  # inbound edge -> bytes to give back to its sender
        for t, task in enumerate(self._tasks):
            task.open_inputs = len(task.inputs)
            self._consider(t)

    # -- events ------------------------------------------------------------------------------------------------------

    def received(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A batch has come in on an edge that starts on another worker."""
        self._deliver(edge, payload, size, rows)

    def received_watermark(self, edge: int, time_us: int) -> None:
        """A watermark has come in on an edge that starts on another worker."""
        self._deliver(edge, _MARK, 0, time_us)

    def received_end(self, edge: int) -> None:
        """The sender of an edge has finished."""
        self._deliver(edge, _END, 0, 0)

    def credit(self, edge: int, size: int) -> None:
        """The receiver of an outbound edge has taken so many bytes."""
        self._release(edge, size)

    def emitted(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A task has produced a batch for one of its output edges; local ones are delivered here and now."""
        before = self._outstanding[edge]
        window = self._edges[edge].window
        self._outstanding[edge] = before + size
        source = self._edges[edge].source
        if source is not None and before < window <= before + size:
            task = self._tasks[source]
            task.blocked += 1
            if task.blocked == 1:
                task.blocked_since_us = self._now_us
        if self._edges[edge].target is not None:
            self._deliver(edge, payload, size, rows)

    def emitted_watermark(self, edge: int, time_us: int) -> None:
        """A task has passed a watermark on; on outbound edges the loop sends it."""
        if self._edges[edge].target is not None:
            self._deliver(edge, _MARK, 0, time_us)

    def polled(self, task: int, ended: bool, wait_until_us: int | None) -> None:
        """What a source said."""
        state = self._tasks[task]
        state.source_ended = ended
        state.poll_at_us = wait_until_us
        if wait_until_us is not None:
            self._alarm_us = min(self._alarm_us, wait_until_us)
        self._consider(task)

    def wants_wake(self, task: int, at_us: int | None) -> None:
        """A task asks to be woken at a time, or no longer."""
        self._tasks[task].wake_at_us = at_us
        if at_us is not None:
            self._alarm_us = min(self._alarm_us, at_us)

    def hurry(self, task: int) -> None:
        """A source that asked to be left alone for a while is asked now: it is to be stopped."""
        self._tasks[task].poll_at_us = None
        self._consider(task)

    def finished(self, task: int) -> None:
        """A task's `finish` has run and everything it emitted has been handed in: its outputs end."""
        state = self._tasks[task]
        if not state.finished:
            state.finished = True
            self._unfinished -= 1
            for edge in state.outputs:
                if self._edges[edge].target is not None:
                    self._deliver(edge, _END, 0, 0)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def next(self, now_us: int) -> Instruction:
        """What to do now."""
        self._now_us = now_us
        if not self._unfinished:
            return Done()
        self._wake_sleepers(now_us)
        while self._ready:
            _, t = heapq.heappop(self._ready)
            task = self._tasks[t]
            task.queued = False
            if task.finished or task.blocked:
                continue  # comes back with the credit
            instruction = self._instruction(t, task, now_us)
            if instruction is not None:
                self._consider(t)
                return instruction
        return Wait(self._earliest())

    def take_grants(self) -> list[tuple[int, int]]:
        """Inbound edges and the bytes that were taken from each since the last call."""
        taken = list(self.grants.items())
        self.grants.clear()
        return taken

    def statistics(self) -> Statistics:
        """How full the machine is."""
        return Statistics(
            queued_batches=sum(len(task.inbox) for task in self._tasks),
            queued_bytes=sum(entry[2] for task in self._tasks for entry in task.inbox),
            unfinished_tasks=self._unfinished,
            blocked_tasks=sum(1 for task in self._tasks if task.blocked and not task.finished),
        )

    def queue(self, task: int) -> tuple[int, int]:
        """Batches and bytes that wait for a task."""
        inbox = self._tasks[task].inbox
        return len(inbox), sum(entry[2] for entry in inbox)

    def blocked_us(self, task: int) -> int:
        """How long a task has been without credit since this was last asked."""
        state = self._tasks[task]
        if state.blocked:
            state.blocked_us += self._now_us - state.blocked_since_us
            state.blocked_since_us = self._now_us
        taken, state.blocked_us = state.blocked_us, 0
        return taken

    # -- inside ------------------------------------------------------------------------------------------------------

    def _instruction(self, t: int, task: _Task, now_us: int) -> Instruction | None:
        if task.inbox:
            inputs = self._take(task)
            if inputs:
                return Run(t, inputs)
        if task.watermark_us > task.told_us:
            task.told_us = task.watermark_us
            return Advance(t, task.watermark_us)
        if task.wake_at_us is not None and task.wake_at_us <= now_us:
            task.wake_at_us = None
            return Wake(t)
        if task.layout.is_source:
            if task.source_ended:
                return Finish(t)
            return Poll(t) if task.poll_at_us is None or task.poll_at_us <= now_us else None
        if task.open_inputs == 0 and not task.inbox:
            return Finish(t)
        return None

    def _take(self, task: _Task) -> tuple[tuple[int, tuple[object, ...]], ...]:
        """Everything that waits, up to the row limit, by input; marks and ends on the way take effect afterwards."""
        room = self.layout.rows_max
        batches: dict[int, list[object]] = {}
        inbox = task.inbox
        while inbox:
            edge, payload, size, rows = inbox[0]
            if payload is _MARK:
                self._edge_watermark[edge] = max(self._edge_watermark[edge], rows)
            elif payload is _END:
                self._edge_ended[edge] = True
                self._edge_watermark[edge] = END_OF_TIME_US
                task.open_inputs -= 1
            else:
                if batches and rows > room:
                    break
                room -= rows
                batches.setdefault(self._edges[edge].port, []).append(payload)
                self._return(edge, size)
            inbox.popleft()
        task.watermark_us = max(task.watermark_us, min((self._edge_watermark[e] for e in task.inputs), default=0))
        return tuple((port, tuple(payloads)) for port, payloads in batches.items())

    def _return(self, edge: int, size: int) -> None:
        """Give the credit back: at once on a local edge, through the loop on an inbound one."""
        if self._edges[edge].source is None:
            self.grants[edge] = self.grants.get(edge, 0) + size
        else:
            self._release(edge, size)

    def _release(self, edge: int, size: int) -> None:
        before = self._outstanding[edge]
        window = self._edges[edge].window
        self._outstanding[edge] = before - size
        source = self._edges[edge].source
        if source is not None and before >= window > before - size:
            task = self._tasks[source]
            task.blocked -= 1
            if not task.blocked:
                task.blocked_us += self._now_us - task.blocked_since_us
                self._consider(source)

    def _deliver(self, edge: int, payload: object, size: int, rows: int) -> None:
        target = self._edges[edge].target
        if target is None:
            msg = f"edge {edge} does not end on this worker"
            raise ValueError(msg)
        self._tasks[target].inbox.append((edge, payload, size, rows))
        self._consider(target)

    def _consider(self, t: int) -> None:
        """Queue a task that may have something to do; `next` finds out whether it has."""
        task = self._tasks[t]
        if not task.queued and not task.finished and not task.blocked:
            task.queued = True
            heapq.heappush(self._ready, (-task.layout.depth, t))

    def _wake_sleepers(self, now_us: int) -> None:
        if now_us < self._alarm_us:
            return
        self._alarm_us = END_OF_TIME_US
        for t, task in enumerate(self._tasks):
            due = (task.wake_at_us is not None and task.wake_at_us <= now_us) or (
                task.poll_at_us is not None and task.poll_at_us <= now_us
            )
            if due:
                self._consider(t)
            for at in (task.wake_at_us, task.poll_at_us):
                if at is not None and at > now_us and not task.finished:
                    self._alarm_us = min(self._alarm_us, at)

    def _earliest(self) -> int | None:
        times = [
            at
            for task in self._tasks
            if not task.finished and not task.blocked
            for at in (task.wake_at_us, task.poll_at_us)
            if at is not None
        ]
        return min(times, default=None)
