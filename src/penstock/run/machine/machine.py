"""The worker's decisions: which task runs next, what it may send, when a stream has ended. Pure; nothing here waits.

Events go in through methods (`received`, `credit`, `emitted`, ...), one instruction at a time comes out of `next`.
Payloads are opaque, edges and tasks are numbers, time is given. `run/engine/worker.py` carries instructions out; the
simulation runs the same worker over links and a clock of its own (`tests/unit/test_simulated_workers.py`).

Parts: `credit` (windows, and what goes back), `linger` (what is held, until when), `ready` (which task is next),
`inboxes` (what waits for tasks), `edge_times` (event time), `alarms` (times that tasks asked for), `alignment`
(markers, and what waits behind them). Credits return whatever the receiver's own outputs do, and the topology has no
cycles, so the last task can run. Workers may therefore send in circles
(`test_two_workers_that_send_to_each_other_in_a_circle_do_not_deadlock`).
Rejected: one queue per worker pair, which a single blocked task clogs. Decision: docs/decisions/0032-machine.md.
"""

from __future__ import annotations

from collections import Counter

from penstock.run.contract import BEFORE_TIME_US
from penstock.run.machine.alarms import Alarms
from penstock.run.machine.alignment import Alignment
from penstock.run.machine.credit import Credit
from penstock.run.machine.edge_times import EdgeTimes, TaskTimes, has_news, take_news
from penstock.run.machine.inboxes import Inboxes
from penstock.run.machine.instructions import (
    Done,
    Finish,
    Instruction,
    Poll,
    Run,
    Send,
    SlicePayload,
    Snapshot,
    TaskLayout,
    Wait,
    Wake,
    WorkerLayout,
)
from penstock.run.machine.linger import Linger
from penstock.run.machine.moves import Moves, Routes
from penstock.run.machine.ready import ReadyQueue
from penstock.run.machine.state import END, MARK, Moment, Statistics, TaskState, direct_target, tasks_of


class Machine:
    """One worker's state, changed through its event methods and `next`."""

    def __init__(self, layout: WorkerLayout) -> None:
        edges = list(
            layout.edges
        )  # they may become more while the machine runs, and its parts look into the same lists
        layout = WorkerLayout(list(layout.tasks), edges, layout.rows_max, layout.linger_us)
        self.layout = layout
        self._edges = edges
        self._targets = [edge.target for edge in edges]
        self._straight = [direct_target(layout, edge) for edge in edges]
        self._direct = list(self._straight)  # of these, where nothing waits behind a marker
        self._moment = Moment()
        self._tasks = tasks_of(layout)
        self._times = EdgeTimes(len(layout.edges))
        self._ready = ReadyQueue(self._tasks)
        self._alarms = Alarms(self._tasks)
        self._credit = Credit(layout.edges, self._tasks, self._ready, self._moment)
        self._linger = Linger(layout, self._tasks, self._ready, self._alarms, self._moment)
        self._alignment = Alignment(layout, self._tasks)
        self._aside = self._alignment.aside  # looked at for nearly every event; mostly empty
        self._inboxes = Inboxes(
            layout, self._targets, self._tasks, self._ready, self._credit, self._linger, self._times
        )
        self.moves = Moves(
            layout,
            Routes(edges, self._targets, self._straight, self._direct),
            self._tasks,
            self._times,
            self._credit,
            self._alignment,
            self._ready,
        )
        self._deliver = self._inboxes.deliver  # called for nearly every event
        self._unfinished = len(self._tasks)
        for t in range(len(self._tasks)):
            self._ready.consider(t)

    # -- events ------------------------------------------------------------------------------------------------------

    def clock(self, now_us: int) -> None:
        """The time of the events that come next, where that is not the time of the last instruction: after a wait."""
        self._moment.us = now_us

    def received(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A batch has come in on an edge that starts on another worker; a slice's batch waits for the slice's mark."""
        if self._aside and edge in self._aside:
            wait = self._alignment.wait_part if self._edges[edge].slice_bytes_min else self._alignment.wait
            wait(edge, lambda: self.received(edge, payload, size, rows), size)
        elif self._edges[edge].slice_bytes_min:
            self._inboxes.slices.part(edge, payload, size, rows)
        else:
            self._deliver(edge, payload, size, rows)

    def received_slice(self, edge: int, sequence: int, parts: int) -> None:
        """A mark has come in: the batches before it are a slice."""
        if self._aside and edge in self._aside:
            self._alignment.wait_slice(edge, lambda: self.received_slice(edge, sequence, parts))
            return
        self._inboxes.deliver_slice(self._inboxes.slices.whole(edge, sequence, parts))

    def received_watermark(self, edge: int, time_us: int) -> None:
        """A watermark has come in on an edge that starts on another worker."""
        self._mark(edge, time_us)

    def received_end(self, edge: int) -> None:
        """The sender of an edge has finished."""
        self._end(edge)

    def received_epoch(self, edge: int, epoch: int) -> None:
        """A marker has come in; where it is the first one that this worker hears of, the epoch begins here."""
        self.begin_epoch(epoch)
        if epoch != self._alignment.epoch:
            msg = f"edge {edge} brought the marker of epoch {epoch} in epoch {self._alignment.epoch}"
            raise ValueError(msg)
        self._direct[edge] = None
        self._settle(self._alignment.met(edge))

    def begin_epoch(self, epoch: int) -> None:
        """The driver, or a marker, says that an epoch begins: every source of this worker is to be saved."""
        self.moves.require_at(epoch)
        for t in self._alignment.begin(epoch):
            self._ready.consider(t)

    def credit(self, edge: int, size: int) -> None:
        """The receiver of an outbound edge has taken bytes."""
        self._credit.release(edge, size)

    def emitted(self, edge: int, payload: object, size: int, rows: int) -> None:
        """A task has produced a batch for one of its output edges; local ones are delivered here and now."""
        self._credit.draw(edge, size)
        if self._targets[edge] is not None:
            if self._aside and edge in self._aside:
                self._alignment.wait(edge, lambda: self._deliver(edge, payload, size, rows), size)
            else:
                self._deliver(edge, payload, size, rows)

    def emitted_slice(self, edge: int, payload: SlicePayload, size: int, rows: int) -> int:
        """A task has produced a slice for one of its output edges; what its window counts it for."""
        counted = max(size, self._edges[edge].slice_bytes_min)
        self._credit.draw(edge, counted)
        if self._targets[edge] is not None:
            if self._aside and edge in self._aside:
                entry = (edge, payload, counted, rows)
                self._alignment.wait(edge, lambda: self._inboxes.deliver_slice(entry), counted)
            else:
                self._inboxes.deliver_slice((edge, payload, counted, rows))
        return counted

    def passes(self, edge: int, rows: int) -> bool:
        """Whether a batch for this edge may go straight to its target: it is here, nothing waits there, it may send."""
        target = self._direct[edge]
        if target is None or rows < self._linger.below:
            return False
        task = self._tasks[target]
        # Marks that came before go first.
        return not task.inbox and not task.blocked and task.wanted is None and not has_news(task)

    def observed(self, edge: int, time_us: int) -> int | None:
        """What a timed task has just been given says how far its edge has come; the task's time, where that moves it.

        The caller tells the task at once: its rows are out, and nothing may come between them and their time.
        """
        t: int = self._targets[edge]  # type: ignore[assignment] # it ends here
        task = self._tasks[t]
        self._times.observed(edge, time_us)
        self._times.settle(task)
        if task.watermark_us > task.told_us:
            task.told_us, task.told_idle = task.watermark_us, False
            return task.watermark_us
        return None

    def quieten(self, now_us: int) -> None:
        """Look for edges of timed tasks that have said nothing for long; asked now and then."""
        for t, task in enumerate(self._tasks):
            if task.layout.timed and not task.finished and self._times.quieten(task, now_us):
                self._ready.consider(t)

    def passed_in(self, edge: int, size: int) -> None:
        """A batch from another worker has gone straight to its target, as `passes` allowed; its credit goes back."""
        self._credit.give_back(edge, size)

    def holds(self, edge: int, rows: int = 0) -> bool:
        """Whether a batch (or, without rows, a mark) for an edge to another worker is to be held instead of sent."""
        return self._linger.holds(edge, rows)

    def hold(self, edge: int, payload: object, size: int, rows: int) -> None:
        """Keep a batch for another worker until `Send`; it counts as sent."""
        self._credit.draw(edge, size)
        self._linger.hold(edge, payload, size, rows)

    def sent(self, edge: int, counted: int, size: int) -> None:
        """What was held has been sent; the receiver counts `size` bytes for it, where this end had `counted`."""
        if size > counted:
            self._credit.draw(edge, size - counted)
        elif size < counted:
            self._credit.release(edge, counted - size)

    def wants_edge(self, task: int, edge: int | None) -> None:
        """A selective task holds data for this output and nothing else; None: it holds nothing.

        It is woken when that output has room. Until then every credit wakes it, to tell which replica is late.
        """
        if edge is None:
            self._linger.go_on(task)
        self._credit.want(task, edge)

    def emitted_watermark(self, edge: int, time_us: int) -> None:
        """A task has passed a watermark on; on outbound edges the loop sends it, unless it is held here."""
        if self._targets[edge] is not None:
            self._mark(edge, time_us)
        else:
            self._linger.mark(edge, time_us)

    def polled(self, task: int, ended: bool, wait_until_us: int | None) -> None:
        """What a source said."""
        state = self._tasks[task]
        state.source_ended = ended
        state.poll_at_us = wait_until_us
        if wait_until_us is not None:
            self._alarms.ask(task, wait_until_us)
        self._ready.consider(task)

    def wants_wake(self, task: int, at_us: int | None) -> None:
        """A task asks to be woken at a time, or no longer."""
        self._tasks[task].wake_at_us = at_us
        if at_us is not None:
            self._alarms.ask(task, at_us)

    def hurry(self, task: int) -> None:
        """Poll a source now, even one that asked for a pause: it is to be stopped."""
        self._tasks[task].poll_at_us = None
        self._ready.consider(task)

    def finished(self, task: int) -> None:
        """A task's `finish` has run and everything it emitted has been handed in: its outputs end."""
        state = self._tasks[task]
        if not state.finished:
            state.finished = True
            self._unfinished -= 1
            for edge in state.outputs:
                if self._targets[edge] is not None:
                    self._end(edge)
                else:
                    self._linger.end(edge)
            self._let_in(task)

    def snapshotted(self, task: int) -> None:
        """A task has been saved, and its marker sent to other workers: what waited behind the marker comes in."""
        epoch = self._alignment.epoch
        self.moves.join(task)
        self._let_in(task)
        for edge in self._tasks[task].outputs:
            if self._targets[edge] is not None:
                self.received_epoch(edge, epoch)
        self._ready.consider(task)

    def flushed(self, edge: int) -> Send | None:
        """What is held on an edge to another worker; it goes before a marker."""
        return self._linger.flush(edge)

    def continue_from(self, task: int, times: TaskTimes) -> None:
        """Where event time stood for a task when it was saved; before the first instruction."""
        self._times.restore(self._tasks[task], times)

    # -- moves -------------------------------------------------------------------------------------------------------

    def comes(self, layout: TaskLayout) -> int:
        """A task will come here, and counts as one that has not finished; its number."""
        self._unfinished += 1
        return self.moves.add_task(layout)

    def came(self, task: int, *, finished: bool = False) -> None:
        """A task that was to come is here: what has waited for it comes in, unless it had finished."""
        self.moves.came(task)
        if finished:
            self._alignment.saved(task)  # its inputs had ended, and end again
        else:
            self._let_in(task)
            self._ready.consider(task)

    def left(self, task: int) -> None:
        """A task that was to leave has been saved, or has finished before that: it is another worker's now."""
        self._unfinished -= not self._tasks[task].finished
        self.moves.left(task)

    def end_new_routes(self, task: int) -> list[int]:
        """A task has finished before a marker that is under way: so do its new routes. Those to other workers."""
        routes = self.moves.still_to_switch(task)
        for edge in [edge for edge in routes if self._targets[edge] is not None]:
            self._end(edge)
        return [edge for edge in routes if self._targets[edge] is None]

    def stays(self) -> None:
        """Nothing comes of the move that was prepared."""
        self._unfinished -= self.moves.drop()

    # -- decisions ---------------------------------------------------------------------------------------------------

    def next(self, now_us: int) -> Instruction:
        """What to do now."""
        self._moment.us = now_us
        if self._inboxes.in_run:
            self._inboxes.end_run()
        linger = self._linger
        if now_us >= linger.look_at_us:
            linger.look(now_us)
        instruction = self._next(now_us)
        while type(instruction) is Wait:
            if linger.when_busy and linger.let_go():
                instruction = self._next(now_us)
            elif self._credit.awaited or now_us >= self._credit.grant_at_us:
                return self._credit.take_grant(now_us)
            else:
                break
        return instruction

    def _next(self, now_us: int) -> Instruction:
        if now_us >= self._credit.grant_at_us:
            return self._credit.take_grant(now_us)
        if self._linger.held:
            send = self._linger.due_send(now_us)
            if send is not None:
                return send
        if not self._unfinished:
            return Done()
        if now_us >= self._alarms.first_us:
            for t in self._alarms.due(now_us):
                self._ready.consider(t)
        ready, tasks = self._ready, self._tasks
        while (t := ready.pop()) >= 0:
            task = tasks[t]
            instruction = self._instruction(t, task, now_us)
            if instruction is not None:
                # A source comes back with `polled`; a task without inbox, mark or end left, with the next delivery.
                left = task.inbox or has_news(task) or not task.open_inputs or task.wake_at_us is not None
                if left or (self._alignment.under_way and self._alignment.is_aligned(t)):
                    ready.consider(t)
                return instruction
        return Wait(self._earliest())

    def _earliest(self) -> int | None:
        times = (self._alarms.earliest(), self._linger.earliest_send())
        return min([at_us for at_us in times if at_us is not None], default=None)

    # -- questions ---------------------------------------------------------------------------------------------------

    def waits_aside(self, edge: int) -> bool:
        """Whether what comes on an edge now waits behind a marker; it may be long until it is taken."""
        return bool(self._aside) and edge in self._aside

    @property
    def epoch(self) -> int:
        """The epoch that has begun last; 0: none has."""
        return self._alignment.epoch

    @property
    def epoch_under_way(self) -> bool:
        """Whether tasks are still to be saved in the epoch that has begun."""
        return self._alignment.under_way

    def times_of(self, task: int) -> TaskTimes:
        """Where event time stands for a task, by its input edges."""
        return self._times.saved(self._tasks[task])

    def has_room(self, edge: int) -> bool:
        """Whether an output is below its window."""
        return self._credit.has_room(edge)

    def outstanding(self, edge: int) -> int:
        """Bytes of an output whose credit has not come back."""
        return self._credit.outstanding(edge)

    def held(self, edge: int) -> int:
        """Bytes that count as sent along an edge to another worker and are held until `Send`."""
        held = self._linger.held.get(edge)
        return 0 if held is None else held.size

    def statistics(self) -> Statistics:
        """How full the machine is."""
        queues = [self.queue(t) for t in range(len(self._tasks))]
        return Statistics(
            queued_batches=sum(batches for batches, _ in queues),
            queued_bytes=sum(size for _, size in queues),
            unfinished_tasks=self._unfinished,
            blocked_tasks=sum(1 for task in self._tasks if task.blocked and not task.finished),
        )

    def queue(self, task: int) -> tuple[int, int]:
        """Batches and bytes that wait for a task, in its inbox or for their turn to get there."""
        waiting = self._inboxes.waiting(task)
        return len(waiting), sum(entry[2] for entry in waiting)

    def waiting(self) -> Counter[int]:
        """Batches that have come in on each edge and wait, in an inbox or aside."""
        found = Counter(self._alignment.aside_batches)
        for task in self._tasks:
            found.update(edge for edge, payload, _, _ in task.inbox if payload is not MARK and payload is not END)
        return found

    def unreturned(self, edge: int) -> int:
        """Bytes that have come in on an edge whose credit has not gone back: queued, in a run, or owed."""
        aside = self._alignment.aside_bytes.get(edge, 0)
        return self._inboxes.untaken(edge) + self._credit.owed(edge) + aside

    def event_time(self, task: int) -> tuple[int | None, bool]:
        """How far event time has come for a task before its end, if it has any, and whether its inputs are idle."""
        state = self._tasks[task]
        return None if state.latest_us == BEFORE_TIME_US else state.latest_us, state.is_idle

    def blocked_us(self, task: int) -> int:
        """How long a task has been without credit since this was last asked."""
        return self._credit.take_blocked_us(task)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _mark(self, edge: int, time_us: int) -> None:
        if self._aside and edge in self._aside:
            self._alignment.wait(edge, lambda: self._mark(edge, time_us))
        else:
            self._deliver(edge, MARK, 0, time_us)

    def _end(self, edge: int) -> None:
        if self._aside and edge in self._aside:
            self._alignment.wait(edge, lambda: self._end(edge))
            return
        if (t := self._targets[edge]) is not None and self._tasks[t].finished:
            return  # it had finished before it came here, and its inputs end again
        self._inboxes.slices.ended(edge)
        self._deliver(edge, END, 0, 0)
        self._settle(self._alignment.ended(edge))

    def _settle(self, t: int | None) -> None:
        """A task lacks no marker any more: what waits for it is not to linger."""
        if t is not None:
            self._linger.run_soon(t)
            self._ready.consider(t)

    def _let_in(self, t: int) -> None:
        """A task is past the marker: what waited behind it comes in, and batches may go straight to it again."""
        inputs = [edge for edge in self._tasks[t].inputs if edge in self._aside]
        came = self._alignment.saved(t)
        for edge in inputs:
            self._direct[edge] = self._straight[edge]
        for take_in in came:
            take_in()

    def _may_be_saved(self, t: int, task: TaskState) -> bool:
        """Nothing before the marker waits for it any more; a source that has ended finishes instead."""
        ended = task.source_ended if task.layout.is_source else not task.open_inputs
        return not task.inbox and not ended and self._alignment.is_aligned(t)

    def _instruction(self, t: int, task: TaskState, now_us: int) -> Instruction | None:
        if task.wanted is not None:
            return self._selective_instruction(t, task, now_us)
        # A mark that has been taken goes before what waits behind it: under load something always waits.
        told = not has_news(task)
        due = task.wake_at_us is not None and task.wake_at_us <= now_us
        if told and task.inbox and (not task.run_at_us or task.run_at_us <= now_us) and (task.woken or not due):
            task.woken = False
            inputs, edge = self._inboxes.take(t, task)
            if inputs:
                return Run(t, inputs, edge)
        if has_news(task):
            return take_news(t, task)
        if self._alignment.under_way and self._may_be_saved(t, task):
            return Snapshot(t, self._alignment.epoch)
        if due:
            task.wake_at_us = None
            task.woken = True
            return Wake(t)
        if task.layout.is_source:
            polled = Poll(t) if task.poll_at_us is None or task.poll_at_us <= now_us else None
            return Finish(t) if task.source_ended else polled
        if task.open_inputs == 0 and not task.inbox:
            self._inboxes.slices.require_none_held(t)
            return Finish(t)
        return None

    def _selective_instruction(self, t: int, task: TaskState, now_us: int) -> Instruction | None:
        """A task that holds data is woken and given nothing: neither data, marks nor the end may overtake it."""
        due = task.wake_at_us is not None and task.wake_at_us <= now_us
        if task.blocked and not task.credited and not due:
            return None
        task.credited = False
        if due:
            task.wake_at_us = None
        return Wake(t)
