"""The worker: one thread that takes in frames and commands, carries out what the machine says, and waits in one place.

`step` is one pass: look around if it is time to, ask the machine for an instruction, carry it out. `run` is those steps
and the waits between them, from the first connection to the last goodbye. Links and clock can be given, so that whole
workers run under a seeded scheduler and virtual time (penstock_lab/simulate, docs/decisions/0032-machine.md). Task
functions run inside a step, between two looks at the descriptors.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InternalError
from penstock.model.task_id import operator_of
from penstock.run.contract import SETTING_EPOCH
from penstock.run.dataflow import Dataflow
from penstock.run.engine.built_tasks import BuiltTasks
from penstock.run.engine.clock import steady_clock
from penstock.run.engine.control import Control
from penstock.run.engine.epochs import Epochs, asked_epoch
from penstock.run.engine.faults import Cancelled, TaskFault, WentOver
from penstock.run.engine.meters import CALL, Clocks, Meters, Unmetered, balance_rows
from penstock.run.engine.moves import Moves, Parts, asked_move
from penstock.run.engine.outputs import Packet
from penstock.run.engine.pace import pace_of
from penstock.run.engine.promptness import prompt_thread
from penstock.run.engine.snapshots import Snapshots
from penstock.run.engine.task_runner import TaskRunner
from penstock.run.engine.worker_links import WorkerLinks, real_links
from penstock.run.engine.worker_share import RunSettings, WorkerShare, share_of
from penstock.run.machine.instructions import (
    Advance,
    Done,
    Finish,
    Grant,
    Idle,
    Instruction,
    Poll,
    Run,
    Send,
    Snapshot,
    Wait,
    Wake,
)
from penstock.run.machine.machine import Machine
from penstock.run.operators.convert import owned
from penstock.run.region.membership import asked_scale
from penstock.run.region.slices import unpacked_mark
from penstock.run.region.tasks import splitters_in
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.protocol import ChannelStatistics
from penstock.run.transport.tls.credentials import Credentials
from penstock.run.transport.wire import Frame, Kind, WireFault, unpack_batch

__all__ = ["Cancelled", "Deployment", "TaskFault", "WentOver", "Worker"]

LOOK_EVERY_US = 200  # look at the descriptors at least this often while tasks keep the loop busy
NEVER_US = 1 << 62


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where the epochs of one attempt at a job go, and what it continues from."""

    root: str  # a path or URI that every worker reaches
    attempt: int
    first: int  # number of the first epoch of this attempt
    restore: int | None = None  # the committed epoch from which it continues
    token: str = ""  # of the store: it marks what sinks write


@dataclass(frozen=True, slots=True)
class Deployment:
    """The bound plan: which worker runs which task, and where the workers are."""

    job: str
    workers: tuple[WorkerPlace, ...]
    worker_of: Mapping[str, int]
    settings: RunSettings = field(default_factory=RunSettings)
    checkpoint: Checkpoint | None = None


class Worker:
    """One worker of one job."""

    def __init__(
        self,
        dataflow: Dataflow,
        deployment: Deployment,
        me: int,
        control: Control | None = None,
        task_settings: Mapping[str, object] | None = None,
        *,
        links: WorkerLinks | None = None,
        clock: Callable[[], int] | None = None,
        work_clocks: Clocks | None = None,
        epochs: Epochs | None = None,
        credentials: Credentials | None = None,
        at_work: Callable[[], None] = lambda: None,
    ) -> None:
        self._deployment, self._control, self._me, self._at_work = deployment, control, me, at_work
        self._settings, node = deployment.settings, deployment.workers[me].node
        self._now_us = clock or steady_clock()
        self._share = share = share_of(dataflow, deployment.worker_of, me, self._settings)
        self.machine = Machine(share.layout)
        built = BuiltTasks(dataflow, share.tasks, me, node)  # users' code: before anything has to be closed
        self._links: WorkerLinks = links or real_links(share, me, self._settings.transport, credentials)
        schemas = {operator.name: operator.outputs for operator in dataflow.operators}
        self._schemas = [schemas[operator_of(edge.source)][edge.output] for edge in share.edges]
        ends = [(edge.source, edge.target) for edge in share.edges]
        if self._settings.metered:
            self.meters = Meters(me, node, share.tasks, ends, self._schemas, work_clocks)
        else:
            self.meters = Unmetered(me, node, share.tasks, ends)
        self._pace = pace_of(dataflow, share.tasks, deployment.worker_of, me)
        self._runner = TaskRunner(
            dataflow, share, built, self.machine, self._links, self.meters, self._pace, self._now_us
        )
        self._task_settings = dict(task_settings or {})
        self._snapshots: Snapshots | None = None
        self.moves: Moves | None = None
        self._has_ended = False
        if epochs is not None:
            self._task_settings[SETTING_EPOCH] = epochs.first
            self._snapshots = Snapshots(epochs, dataflow, share, self.machine, self._runner)
            self.moves = self._moves(dataflow, epochs, built)
        self._look_at_us = 0
        self._report_at_us = 0
        self._pace_at_us = 0 if self._pace.speaks and control is not None else NEVER_US

    def _moves(self, dataflow: Dataflow, epochs: Epochs, built: BuiltTasks) -> Moves:
        snapshots: Snapshots = self._snapshots  # type: ignore[assignment] # there are epochs
        parts = Parts(
            self._share,
            self.machine,
            self._links,
            self._runner,
            snapshots,
            built,
            self.meters,
            self._schemas,
            lambda: self._report(self._now_us()),
        )
        told = self._deployment
        tell = (lambda said: None) if self._control is None else self._control.moves
        settings = self._settings, self._task_settings
        return Moves(dataflow, self._me, told.workers, told.worker_of, *settings, epochs, parts, tell)

    def run(self, listener: socket.socket, key: bytes) -> None:
        """Connect, run until every task has finished, and leave nothing behind."""
        with prompt_thread():
            try:
                if self._control is not None:
                    self._links.watch(self._control.fileno())
                self._links.open(listener, self._deployment.workers, key, self._listen)
                self.open()
                self._at_work()
                self._loop()
                self.ended()
                self._tell_pace()  # that its sources have ended, because other workers wait for them
                self._report(self._now_us(), ended=True)
                self._links.say_goodbye(self._listen)
            finally:
                self.close()
                listener.close()

    def open(self) -> None:
        """Open the tasks; steps may follow."""
        self.meters.start(self._now_us())
        self._runner.open(self._settings.rows_max, self._task_settings)
        if self._snapshots is not None:
            self._snapshots.restore()
        self._report_at_us = self.meters.started_us + int(self._settings.interval_s * 1e6)

    @property
    def share(self) -> WorkerShare:
        """What it runs, as moves have left it."""
        return self._share

    def busy_s(self) -> float:
        """For how long the loop has been in one call, 0 while it waits; another thread asks, so it is a guess."""
        look_at_us = self._look_at_us
        return max(0.0, (self._now_us() - look_at_us) / 1e6) if look_at_us else 0.0

    def ended(self) -> None:
        """Every task has finished: hand over what no epoch has yet."""
        self._has_ended = True
        if self._snapshots is not None:
            self._snapshots.ended()

    def close(self) -> None:
        """Close the tasks and the connections, whatever has happened."""
        self._runner.close()
        self._links.close()

    # -- one step ----------------------------------------------------------------------------------------------------

    def step(self, now_us: int) -> Wait | Done | None:
        """Take in what has come, if it is time to look, and carry out one instruction.

        None: there may be more to do at once. Wait: nothing to do until something comes in, or until then. Done: every
        task has finished.
        """
        if now_us >= self._look_at_us:
            now_us = self._look(0.0)
            self._tend_meters(now_us)
        if self._snapshots is not None and self._snapshots.writes:
            self._snapshots.write(self._now_us)
        instruction = self.machine.next(now_us)
        kind = type(instruction)
        if kind is Run:
            self._runner.run(instruction)  # type: ignore[arg-type] # said above
        elif kind is Poll:
            self._runner.poll(instruction.task, now_us)  # type: ignore[union-attr] # said above
        elif kind is Wait:
            self._look_at_us = 0  # whatever ends the wait, the next step looks first
            if self._snapshots is not None and self._snapshots.writes:
                self._snapshots.write(self._now_us, at_rest=True)
                return None
            return self._until(instruction.until_us)  # type: ignore[union-attr] # said above
        elif kind is Done:
            if self.moves is not None and self.moves.stays:
                self._look_at_us = 0
                return self._until(None)
            return instruction  # type: ignore[return-value] # said above
        else:
            self._seldom(instruction, now_us)
        return None

    def _until(self, until_us: int | None) -> Wait:
        tend_us = min(self._report_at_us, self._pace_at_us)
        return Wait(tend_us if until_us is None else min(until_us, tend_us))

    def _seldom(self, instruction: Instruction, now_us: int) -> None:
        """Instructions that do not come with every batch."""
        match instruction:
            case Grant(edge=edge, size=size):
                self.meters.receiving(edge)
                self._links.send_mark(Kind.CREDIT, self._share.edges[edge].number, size)
                self.meters.rest()
            case Advance(task=t, watermark_us=watermark_us):
                self._runner.advance(t, watermark_us)
            case Idle(task=t):
                self._runner.idle(t)
            case Wake(task=t):
                self._runner.wake(t, now_us)
            case Finish(task=t):
                self._runner.finish(t)
                if self._snapshots is not None:
                    self._snapshots.finished(t)
            case Snapshot(task=t, epoch=epoch) if self._snapshots is not None:
                self._snapshots.take(t, epoch)
            case Send():
                self._runner.send_held(instruction)

    def _loop(self) -> None:
        step, clock = self.step, self._now_us
        while True:
            found = step(clock())
            if found is None:
                continue
            if type(found) is Done:
                self._look_at_us = 0  # what follows is waiting for others
                return
            until_us: int = found.until_us  # type: ignore[union-attr,assignment] # a wait, and reports are due for ever
            self._tend_meters(self._look(max(0, until_us - clock()) / 1e6))

    # -- the world outside -------------------------------------------------------------------------------------------

    def _look(self, seconds: float) -> int:
        """Take in what has arrived, waiting at most `seconds` for it; answers the time then."""
        meters = self.meters
        if not seconds:
            meters.switch(meters.arriving)
            frames, called = self._links.wait(0.0)
            meters.switch(meters.loop)
        else:
            meters.switch(meters.waiting)
            frames, called = self._links.wait(seconds)
            meters.woken(self._links.woken_ns)
        now_us = self._now_us()
        self._look_at_us = now_us + LOOK_EVERY_US
        if frames:
            self.machine.clock(now_us)
        straight = len(frames) == 1  # several frames for one task go through its inbox, where they are joined
        for frame in frames:
            self._take(frame, straight=straight)
        meters.looked()
        if called:
            self._listen()
        if self.moves is not None and self.moves.waits:
            self.moves.look()
        return now_us

    def _take(self, frame: Frame, *, straight: bool) -> None:
        machine, edge = self.machine, self._share.local_number.get(frame.edge)
        if edge is None:
            if frame.kind == Kind.CREDIT and frame.edge in self._share.former:
                return  # late, of a route that is no more
            msg = f"worker {self._me} received a frame of edge {frame.edge}, which has no end here"
            raise WireFault(msg)
        self.meters.taken(edge, frame.kind, frame.sent_ns, frame.size)
        match frame.kind:
            case Kind.DATA:
                batch = unpack_batch(frame, self._schemas[edge])
                if machine.waits_aside(edge):  # it may be long: its ring's memory is wanted by the marker it waits for
                    batch = owned(batch)
                if straight and machine.passes(edge, frame.rows):
                    machine.passed_in(edge, frame.size)
                    self._runner.straight(edge, batch, frame.rows, frame.value)
                else:
                    machine.received(edge, Packet(batch, frame.value, edge), frame.size, frame.rows)
                    self.meters.queued(edge)
            case Kind.WATERMARK:
                machine.received_watermark(edge, frame.value)
            case Kind.END:
                machine.received_end(edge)
            case Kind.CREDIT:
                machine.credit(edge, frame.value)
            case Kind.SLICE:
                machine.received_slice(edge, *unpacked_mark(frame.value))
            case Kind.EPOCH:
                self.machine.received_epoch(edge, frame.value)
                self._epoch_has_begun()

    def _listen(self) -> None:
        """Carry out the driver's commands, if there are any; what was handed over may have gone wrong as well."""
        if self._control is not None and select.select([self._control], [], [], 0)[0]:
            for command in self._control.commands():
                self._obey(command)
            if self._snapshots is not None:
                self._snapshots.check()

    def _obey(self, command: str) -> None:
        if command == "cancel":
            msg = f"worker {self._me} was cancelled"
            raise Cancelled(msg)
        if (scale := asked_scale(command)) is not None:
            for splitter in splitters_in(self._runner.tasks):
                splitter.scale(*scale)
            return
        if (epoch := asked_epoch(command)) is not None:
            self.begin_epoch(epoch)
            return
        if (move := asked_move(command)) is not None and self.moves is not None:
            self.move(*move)
            return
        if command == "over":
            self._go_over()
        if command != "stop":
            known = "stop, cancel, over, scale, move and epoch"
            msg = f"worker {self._me} was told {command!r}; it knows {known}; please report this"
            raise InternalError(msg)
        self._runner.stop_sources()

    def _go_over(self) -> None:
        """Stand still, wait until all do, and leave: who left before others have heard would be taken for dead."""
        self._report(self._now_us())
        if self._control is not None:
            self._control.over()
        msg = f"worker {self._me} goes over to the next attempt"
        raise WentOver(msg)

    def move(self, word: str, body: Mapping[str, Any]) -> None:
        """What the driver says of a move of tasks; where all here have finished, none can come any more."""
        if self.moves is None:
            return
        if self._has_ended and word == "prepare" and self._me in body["to"].values():
            self.moves.refuse(body)
        else:
            self.moves.obey(word, body)

    def begin_epoch(self, epoch: int) -> None:
        """The driver begins an epoch; the worker may have heard of it by a marker."""
        self.machine.begin_epoch(epoch)
        self._epoch_has_begun()

    def _epoch_has_begun(self) -> None:
        if self._snapshots is not None and self.moves is not None:
            self.moves.begun()
            self._snapshots.hand_over()

    # -- what others are told ----------------------------------------------------------------------------------------

    def _tend_meters(self, now_us: int) -> None:
        """Report after each look, busy or at rest: a report that is due and not made would end every wait at once."""
        self.meters.settle()
        if now_us >= self._report_at_us:
            self._report(now_us)
        if now_us >= self._pace_at_us or (self._pace.is_pressed and self._pace_at_us < NEVER_US):
            self._tell_pace()
            self._pace_at_us = now_us + self._pace.wait_us

    def _tell_pace(self) -> None:
        """Compare with the other workers how far the sources are, where they keep pace."""
        if self._pace_at_us < NEVER_US and self._control is not None:
            self._pace.heard(self._control.keep_pace(self._pace.floors()))

    def _distances(self, links: Mapping[int, tuple[str, ChannelStatistics]]) -> list[str]:
        """How far apart the two tasks of each edge are; what TLS adds counts as a socket's."""
        peers = self._share.peer_of
        found = [links[peers[e]][0] if peers.get(e) in links else CALL for e in range(len(self._share.edges))]
        return ["socket" if distance == "tls" else distance for distance in found]

    def _report(self, now_us: int, *, ended: bool = False) -> None:
        self._report_at_us = now_us + int(self._settings.interval_s * 1e6)
        self.meters.switch(self.meters.reporting)
        machine, tasks = self.machine, range(len(self._share.tasks))
        machine.quieten(now_us)
        queues = [machine.queue(t) for t in tasks]
        blocked = [machine.blocked_us(t) for t in tasks]
        times = self._runner.take_times()
        links = self._links.statistics()
        tables = self.meters.snapshot(now_us, queues, blocked, times, links, self._distances(links), ended=ended)
        if decided := [row for splitter in splitters_in(self._runner.tasks) for row in splitter.decisions()]:
            tables["balance"] = balance_rows(decided)
        if self._control is not None:
            self._control.metrics(tables)
        self.meters.switch(self.meters.loop)
