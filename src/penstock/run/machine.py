"""The worker's decisions: which task runs next, what it may send, when a stream has ended. Pure; nothing here waits.

Events go in through methods (`received`, `credit`, `emitted`, ...), one instruction at a time comes out of `next`.
Payloads are opaque, edges and tasks are numbers, time is given. The thin loop in `worker.py` carries instructions out;
the simulator carries them out under virtual time.

Flow control is per edge, by credit: an edge holds at most its window of bytes that the receiving task has not taken
yet, and a task runs only when every one of its outputs is below its window. What a run emits may overdraw a window by
that one run. Credits return when the receiver takes the data, whatever its own outputs do, and the topology has no
cycles, so the last task always can run: no deadlock, although workers send to each other in circles. Rejected: one
queue per worker pair, which a single blocked task clogs for all.

Order: the ready task nearest to the sinks runs first, which keeps queues short and latency low; of two that are equally
near, the one that has been ready for longer. Alone, that would starve the sources of a worker that others feed without
end, so one turn in FAIR_EVERY goes to whoever has been ready for longest, if STARVED_AFTER others became ready since.
Rejected: such turns for who has waited less, which took 8 % more CPU in batches of 1,000 words; ageing by time, under
which an overloaded worker has only old tasks, and the order is gone when it matters. A run takes everything that
waits, up to `rows_max`, so batches grow under load by themselves; watermarks and ends take effect after the data that
came before them on the same edge, and watermarks before the next run: a task that is behind always has data waiting.
So has one that asked to be woken: a wake that is due and a run take turns.
Where nothing waits for the target of an edge and it may send, a batch need not be queued at all (`passes`): the loop
calls the next task at once, and a chain of operators costs calls, not queues. A batch that arrives alone goes the same
way, though a task nearer to the sinks may be ready: one batch is soon done.

Small batches cost as much as large ones, so they are held for others to join them: on an edge between two tasks of this
worker in the target's inbox, on one that leaves the worker before it is sent (`Send`). With `linger_us` that is for so
long, whatever the load. Without it batches go on at once, until the worker has had no moment of rest for a while:
then small ones wait up to BUSY_LINGER_US, and no longer than there is other work; who is behind anyway loses nothing.
Watermarks wait with the data before them; an end waits for nothing.

Parallel regions (docs/decisions/0016-balance.md) need three exceptions, each a flag of the layout: a replica takes one
slice at a time, the credit of some edges returns when the loop says so, and a splitter waits for one output only.
"""

from __future__ import annotations

import heapq
from operator import itemgetter

from penstock.run.alarms import Alarms
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US
from penstock.run.instructions import (
    Advance,
    Done,
    Finish,
    Instruction,
    Poll,
    Run,
    Send,
    Wait,
    Wake,
    WorkerLayout,
)
from penstock.run.machine_state import HeldBatches, Statistics, TaskState

BUSY_AFTER_US = 2_000  # without rest for so long, a worker counts as busy
BUSY_LINGER_US = 1_000
BUSY_SMALL = 8  # while busy, batches below this fraction of rows_max are held
FAIR_EVERY = 16  # one instruction in so many may be for a task that starves, wherever it stands
STARVED_AFTER = 64  # tasks that became ready later

_MARK = object()  # payloads of inbox entries that are no data
_END = object()


class Machine:
    """One worker's state. The only way to change it is through its event methods and `next`."""

    def __init__(self, layout: WorkerLayout) -> None:
        self.layout = layout
        self._edges = layout.edges
        self._outstanding = [0] * len(layout.edges)
        self._edge_watermark = [BEFORE_TIME_US] * len(layout.edges)
        self._tasks = [
            TaskState(
                task,
                [e for e, edge in enumerate(layout.edges) if edge.target == t],
                [e for e, edge in enumerate(layout.edges) if edge.source == t],
                0,
            )
            for t, task in enumerate(layout.tasks)
        ]
        self._ready: list[tuple[float, int, int]] = []  # -depth, turn, task
        self._turn = 0
        self._until_fair = FAIR_EVERY  # instructions
        self._targets = [edge.target for edge in layout.edges]
        self._lingers = layout.linger_us > 0
        self._patience_us = layout.linger_us  # how long small batches are held just now
        self._small = layout.rows_max if self._lingers else layout.rows_max // BUSY_SMALL  # and which are small
        self._rested_us: int | None = None
        self._held: dict[int, HeldBatches] = {}  # outbound edges, where batches linger
        self._lingering: set[int] = set()  # tasks with a `run_at_us`
        self._now_us = 0
        self._alarms = Alarms(self._tasks)
        self._unfinished = len(self._tasks)
        self.grants: dict[int, int] = {}  # inbound edge -> bytes to give back to its sender
        for t, task in enumerate(self._tasks):
            task.open_inputs = len(task.inputs)
            self._consider(t)

    # -- events ------------------------------------------------------------------------------------------------------

    def clock(self, now_us: int) -> None:
        """The time of the events that come next, where that is not the time of the last instruction: after a wait."""
        self._now_us = now_us

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
        self._draw(edge, size)
        if self._targets[edge] is not None:
            self._deliver(edge, payload, size, rows)

    def passes(self, edge: int, rows: int) -> bool:
        """Whether a batch for this edge may go straight to its target: it is here, nothing waits there, it may send."""
        target = self._targets[edge]
        if target is None or (self._patience_us and rows < self._small):
            return False
        task = self._tasks[target]
        told = task.watermark_us <= task.told_us  # a mark that came before goes first
        return not task.inbox and not task.blocked and task.wanted is None and told

    def passed_in(self, edge: int, size: int) -> None:
        """A batch from another worker has gone straight to its target, as `passes` allowed; its credit goes back."""
        self._return(edge, size)

    def holds(self, edge: int, rows: int = 0) -> bool:
        """Whether a batch (or, without rows, a mark) for an edge to another worker is to be held instead of sent."""
        return edge in self._held or 0 < rows < self._small * bool(self._patience_us)

    def hold(self, edge: int, payload: object, size: int, rows: int) -> None:
        """Keep a batch for another worker until `Send`; it counts as sent."""
        self._draw(edge, size)
        held = self._held.get(edge)
        if held is None:
            held = self._held[edge] = HeldBatches(self._now_us + self._patience_us)
        held.payloads.append(payload)
        held.rows += rows
        held.size += size
        if held.rows >= self.layout.rows_max:
            held.send_at_us = 0

    def sent(self, edge: int, counted: int, size: int) -> None:
        """What was held has been sent and takes so many bytes at the receiver, not what it was counted as here."""
        if size > counted:
            self._draw(edge, size - counted)
        elif size < counted:
            self._release(edge, counted - size)

    def returned(self, edge: int, size: int) -> None:
        """What came along an edge whose credit returns on release has been let go."""
        self._return(edge, size)

    def has_room(self, edge: int) -> bool:
        """Whether an output is below its window."""
        return self._outstanding[edge] < self._edges[edge].window

    def outstanding(self, edge: int) -> int:
        """Bytes of an output whose credit has not come back."""
        return self._outstanding[edge]

    def wants_edge(self, task: int, edge: int | None) -> None:
        """A selective task holds data for this output and nothing else; None: it holds nothing.

        It is woken when that output has room, and, so that it can tell whom it waits for, with every credit until then.
        """
        state = self._tasks[task]
        state.wanted, state.credited = edge, False
        if edge is None and state.inbox and state.run_at_us:
            self._alarms.ask(task, state.run_at_us)  # a time that did not count while it held data
        self._gate(task, state)

    def emitted_watermark(self, edge: int, time_us: int) -> None:
        """A task has passed a watermark on; on outbound edges the loop sends it, unless it is held here."""
        if self._edges[edge].target is not None:
            self._deliver(edge, _MARK, 0, time_us)
        elif edge in self._held:
            self._held[edge].watermark_us = time_us

    def polled(self, task: int, ended: bool, wait_until_us: int | None) -> None:
        """What a source said."""
        state = self._tasks[task]
        state.source_ended = ended
        state.poll_at_us = wait_until_us
        if wait_until_us is not None:
            self._alarms.ask(task, wait_until_us)
        self._consider(task)

    def wants_wake(self, task: int, at_us: int | None) -> None:
        """A task asks to be woken at a time, or no longer."""
        self._tasks[task].wake_at_us = at_us
        if at_us is not None:
            self._alarms.ask(task, at_us)

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
                elif edge in self._held:
                    self._held[edge].ended = True
                    self._held[edge].send_at_us = 0

    # -- decisions ---------------------------------------------------------------------------------------------------

    def next(self, now_us: int) -> Instruction:
        """What to do now."""
        self._now_us = now_us
        if not self._lingers:  # small batches are held only after a while without rest
            if self._rested_us is None or now_us < self._rested_us:
                self._rested_us = now_us
            self._patience_us = BUSY_LINGER_US if now_us - self._rested_us > BUSY_AFTER_US else 0
        instruction = self._next(now_us)
        while type(instruction) is Wait and not self._lingers and self._let_go():
            instruction = self._next(now_us)
        return instruction

    def _let_go(self) -> bool:
        """Rest has come: nothing is held any longer; whether anything was."""
        self._rested_us = None  # until it is asked again
        self._patience_us = 0
        late = [t for t in self._lingering if not self._tasks[t].blocked]  # who is blocked: at the next rest
        for t in late:
            self._run_soon(t)
            self._consider(t)
        for held in self._held.values():
            held.send_at_us = 0
        return bool(late or self._held)

    def _next(self, now_us: int) -> Instruction:
        if self._held:
            send = self._due_send(now_us)
            if send is not None:
                return send
        if not self._unfinished:
            return Done()
        if now_us >= self._alarms.first_us:
            for t in self._alarms.due(now_us):
                self._consider(t)
        ready, tasks = self._ready, self._tasks
        while ready:
            t = heapq.heappop(ready)[2] if self._until_fair > 1 else self._pop_starved()
            task = tasks[t]
            task.queued = False
            if task.finished or (task.blocked and not task.layout.selective):
                continue  # comes back with the credit
            instruction = self._instruction(t, task, now_us)
            if instruction is not None:
                self._until_fair = self._until_fair - 1 or FAIR_EVERY
                # A source comes back with `polled`; whoever has no inbox, mark or end left, with the next delivery.
                if (
                    task.inbox
                    or task.watermark_us > task.told_us
                    or not task.open_inputs
                    or task.wake_at_us is not None
                ):
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

    def _instruction(self, t: int, task: TaskState, now_us: int) -> Instruction | None:
        if task.wanted is not None:
            return self._selective_instruction(t, task, now_us)
        # A mark that has been taken goes before what waits behind it: under load something always waits.
        told = task.watermark_us <= task.told_us
        due = task.wake_at_us is not None and task.wake_at_us <= now_us
        if told and task.inbox and (not task.run_at_us or task.run_at_us <= now_us) and (task.woken or not due):
            task.woken = False
            inputs = self._take(t, task)
            if inputs:
                return Run(t, inputs)
        if task.watermark_us > task.told_us:
            task.told_us = task.watermark_us
            return Advance(t, task.watermark_us)
        if due:
            task.wake_at_us = None
            task.woken = True
            return Wake(t)
        if task.layout.is_source:
            if task.source_ended:
                return Finish(t)
            return Poll(t) if task.poll_at_us is None or task.poll_at_us <= now_us else None
        if task.open_inputs == 0 and not task.inbox:
            return Finish(t)
        return None

    def _selective_instruction(self, t: int, task: TaskState, now_us: int) -> Instruction | None:
        """A task that holds data takes no more, and neither marks nor the end may overtake it: it is only woken."""
        due = task.wake_at_us is not None and task.wake_at_us <= now_us
        if task.blocked and not task.credited and not due:
            return None
        task.credited = False
        if due:
            task.wake_at_us = None
        return Wake(t)

    def _take(self, t: int, task: TaskState) -> tuple[tuple[int, tuple[object, ...]], ...]:
        """Everything that waits, up to the row limit, by input; marks and ends on the way take effect afterwards."""
        room = self.layout.rows_max
        batches: dict[int, list[object]] = {}
        inbox = task.inbox
        marked = False
        while inbox:
            edge, payload, size, rows = inbox[0]
            if payload is _MARK:
                marked = True
                self._edge_watermark[edge] = max(self._edge_watermark[edge], rows)
            elif payload is _END:
                marked = True
                self._edge_watermark[edge] = END_OF_TIME_US
                task.open_inputs -= 1
            else:
                if batches and (rows > room or task.layout.slicewise):
                    break
                room -= rows
                batches.setdefault(self._edges[edge].port, []).append(payload)
                if not self._edges[edge].on_release:
                    self._return(edge, size)
            inbox.popleft()
        if task.run_at_us:  # what is left has waited long enough
            self._run_soon(t)
        if marked:
            task.watermark_us = max(task.watermark_us, min(self._edge_watermark[e] for e in task.inputs))
        return tuple([(port, tuple(payloads)) for port, payloads in batches.items()])

    def _return(self, edge: int, size: int) -> None:
        """Give the credit back: at once on a local edge, through the loop on an inbound one."""
        if self._edges[edge].source is None:
            self.grants[edge] = self.grants.get(edge, 0) + size
        else:
            self._release(edge, size)

    def _draw(self, edge: int, size: int) -> None:
        before = self._outstanding[edge]
        self._outstanding[edge] = before + size
        layout = self._edges[edge]
        if layout.source is not None and before < layout.window <= before + size:
            task = self._tasks[layout.source]
            if task.layout.selective:
                return
            task.blocked += 1
            if task.blocked == 1:
                task.blocked_since_us = self._now_us

    def _release(self, edge: int, size: int) -> None:
        before = self._outstanding[edge]
        window = self._edges[edge].window
        self._outstanding[edge] = before - size
        source = self._edges[edge].source
        if source is not None and self._tasks[source].layout.selective:
            self._credited(source)
        elif source is not None and before >= window > before - size:
            task = self._tasks[source]
            task.blocked -= 1
            if not task.blocked:
                task.blocked_us += self._now_us - task.blocked_since_us
                self._consider(source)

    def _credited(self, t: int) -> None:
        """Credit for an output of a selective task: it may go on, or wants to know at least."""
        task = self._tasks[t]
        if task.wanted is not None:
            task.credited = True
            self._gate(t, task)

    def _gate(self, t: int, task: TaskState) -> None:
        """Block a selective task while the output that it wants is full."""
        full = task.wanted is not None and not self.has_room(task.wanted)
        if full and not task.blocked:
            task.blocked_since_us = self._now_us
        elif task.blocked and not full:
            task.blocked_us += self._now_us - task.blocked_since_us
        task.blocked = int(full)
        if task.wanted is not None:
            self._consider(t)

    def _deliver(self, edge: int, payload: object, size: int, rows: int) -> None:
        target = self._targets[edge]
        if target is None:
            msg = f"edge {edge} does not end on this worker"
            raise ValueError(msg)
        task = self._tasks[target]
        if self._patience_us or task.run_at_us:
            self._linger(target, edge, payload, rows)
        task.inbox.append((edge, payload, size, rows))
        if not task.queued:
            self._consider(target)

    # -- linger ------------------------------------------------------------------------------------------------------

    def _linger(self, t: int, edge: int, payload: object, rows: int) -> None:
        """When a task is to run whose inbox this entry joins; what comes from another worker was held there."""
        task = self._tasks[t]
        if task.layout.slicewise:
            return  # slices cannot be joined, and a splitter would take a replica that holds them for a slow one
        was_empty = not task.inbox
        if payload is _END or (payload is _MARK and was_empty):
            self._run_soon(t)
        elif payload is not _MARK:
            task.inbox_rows = rows if was_empty else task.inbox_rows + rows
            if self._edges[edge].source is None or rows >= self._small or task.inbox_rows >= self.layout.rows_max:
                self._run_soon(t)
            elif was_empty:
                task.run_at_us = self._now_us + self._patience_us
                self._lingering.add(t)
                self._alarms.ask(t, task.run_at_us)

    def _run_soon(self, t: int) -> None:
        self._tasks[t].run_at_us = 0
        self._lingering.discard(t)

    def _due_send(self, now_us: int) -> Send | None:
        for edge, held in self._held.items():
            if held.send_at_us <= now_us:
                del self._held[edge]
                return Send(edge, tuple(held.payloads), held.size, held.watermark_us, held.ended)
        return None

    def _consider(self, t: int) -> None:
        """Queue a task that may have something to do; `next` finds out whether it has."""
        task = self._tasks[t]
        if not task.queued and not task.finished and (not task.blocked or task.layout.selective):
            task.queued = True
            self._turn += 1
            heapq.heappush(self._ready, (-task.layout.depth, self._turn, t))

    def _pop_starved(self) -> int:
        """Take the task that has been ready for longest out of the queue, if that is long, or else the next one."""
        oldest = min(self._ready, key=itemgetter(1))
        if self._turn - oldest[1] < STARVED_AFTER:
            return heapq.heappop(self._ready)[2]
        self._ready.remove(oldest)
        heapq.heapify(self._ready)
        return oldest[2]

    def _earliest(self) -> int | None:
        alarm_us = self._alarms.earliest()
        if not self._held:
            return alarm_us
        send_us = min(held.send_at_us for held in self._held.values())
        return send_us if alarm_us is None else min(send_us, alarm_us)
