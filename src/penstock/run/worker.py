"""The thin loop: carries out what the machine decides, moves bytes, counts, and turns a user's exception into a fault.

One thread, one epoll. Everything that waits (sockets, control, tasks that asked for a time) is one descriptor or one
timeout of that call, so an idle worker burns nothing. Task functions run here, between two looks at the descriptors.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.errors import InternalError, PenstockError
from penstock.run.channel.protocol import PeerGone
from penstock.run.channel.segment import inbox_bytes
from penstock.run.contract import Interrupted, SourceTask, Task, TaskContext
from penstock.run.dataflow import Dataflow
from penstock.run.instructions import Advance, Done, Finish, Instruction, Poll, Run, Send, Wait, Wake
from penstock.run.layout import RunSettings, WorkerShare, job_edges, share_of
from penstock.run.links import Links, Transport, WorkerPlace
from penstock.run.machine import Machine
from penstock.run.meters import Meters, Unmetered, balance_rows
from penstock.run.outputs import OutStream, Packet, TaskOutputs, out_streams
from penstock.run.promptness import prompt_thread
from penstock.run.region.membership import asked_scale
from penstock.run.region.slices import SliceCarrier, SliceOutputs
from penstock.run.region.tasks import SplitterOutputs, splitters_in
from penstock.run.wire import Frame, Kind, codec_of, unpack_batch

LOOK_EVERY_US = 200  # look at the descriptors at least this often while tasks keep the loop busy
CALLS_DEEP_MAX = 24  # tasks that call each other directly; beyond that a batch is queued, or the stack would overflow
GRANT_PROMPT_US = 2_000  # credit of a region's slices goes back about as often, however little it is
# Credit goes back when a quarter of the window has been taken. Less need not: a sender that waits has a whole window
# outstanding, and when all of it has been taken, that is more than a quarter. Sent back whenever there was nothing else
# to do, credit woke the sender after each batch, and at a steady rate a third of all wake-ups were for that.
GRANT_FRACTION = 4


@dataclass(frozen=True, slots=True)
class Deployment:
    """The bound plan: which worker runs which task, and where the workers are."""

    job: str
    workers: tuple[WorkerPlace, ...]
    worker_of: Mapping[str, int]
    settings: RunSettings = field(default_factory=RunSettings)


class Control(Protocol):
    """The worker's line to the driver."""

    def fileno(self) -> int:
        """Readable when a command waits."""

    def commands(self) -> list[str]:
        """Commands that wait: `stop` (drain and end), `cancel` (end now) or `scale COUNT REGION`."""

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log; must not block."""


class TaskFault(PenstockError):
    """A user's function failed; names operator, task, worker and node, and keeps the user's traceback."""

    def __init__(self, task: str, worker: int, node: str, cause: BaseException) -> None:
        self.task, self.worker, self.node = task, worker, node
        self.trace = "".join(traceback.format_exception(cause))
        operator, _, index = task.rpartition("/")
        brief = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        if not isinstance(cause, Exception):  # an exit keeps its kind, and says in notes which sink and row it was
            brief = ": ".join([*reversed(getattr(cause, "__notes__", ())), brief])
        super().__init__(f"operator {operator!r} (task {index}, worker {worker}, node {node!r}) failed: {brief}")


class Cancelled(PenstockError):
    """The driver asked this worker to end at once."""


class Worker:
    """One worker process of one job, from the first connection to the last goodbye."""

    def __init__(
        self,
        dataflow: Dataflow,
        deployment: Deployment,
        me: int,
        control: Control | None = None,
        task_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._deployment, self._control, self._me = deployment, control, me
        self._now_us = steady_clock()
        self._share = share = share_of(dataflow, deployment.worker_of, me, deployment.settings)
        self._machine = Machine(share.layout)
        self._node = deployment.workers[me].node
        self._specs = [dataflow.operator(task.rpartition("/")[0]) for task in share.tasks]
        self._tasks = [self._built(t) for t in range(len(self._specs))]  # users' code: before anything has to be closed
        self._links = _links(dataflow, share, me, deployment.settings.transport)
        self.meters = (Meters if deployment.settings.metered else Unmetered)(
            me, self._node, share.tasks, [(edge.source, edge.target) for edge in share.edges]
        )
        self._schemas = [dataflow.operator(e.source.rpartition("/")[0]).outputs[e.output] for e in share.edges]
        self._outputs: list[TaskOutputs] = []
        self._slices = SliceCarrier(
            dataflow, share, self._machine, self.meters, self._links, self._process, self._outputs
        )
        self._outputs += [self._outputs_of(t, out_streams(dataflow, share, task)) for t, task in enumerate(share.tasks)]
        self._is_sink = [spec.role == "sink" for spec in self._specs]
        self._sleeps = [type(task).wake_at is not Task.wake_at for task in self._tasks]
        self._deep = 0  # tasks that have called each other directly
        self._task_settings = dict(task_settings or {})
        self._owed: dict[int, int] = {}  # machine edge -> bytes taken whose credit has not gone back yet
        self._granted_us: dict[int, int] = {}  # when that last happened
        self._last_us = self._look_at_us = 0
        self._report_at_us = 0
        self._stopping = False

    def _built(self, t: int) -> Task:
        """The task; a user's class may fail here as anywhere else."""
        try:
            return self._specs[t].build()
        except Interrupted:
            raise
        except BaseException as error:
            raise self._fault(t, error) from error

    def _outputs_of(self, t: int, streams: dict[str, list[OutStream]]) -> TaskOutputs:
        part = self._specs[t].region
        if part is not None and part.role == "splitter":
            return SplitterOutputs(self, t, streams, self._machine, self._slices.send, self._now_us)
        if part is not None and part.role == "replica" and part.ordered:
            return SliceOutputs(self, t, streams)
        return TaskOutputs(self, t, streams)

    def run(self, listener: socket.socket, key: bytes) -> None:
        """Connect, run until every task has finished, and leave nothing behind."""
        with prompt_thread():
            try:
                if self._control is not None:
                    self._links.watch(self._control.fileno())
                self._links.open(listener, self._deployment.workers, key, self._listen)
                self._open_tasks()
                if self._stopping:  # heard while the workers were still connecting, and opening a source forgets it
                    self._stop_sources()
                self._loop()
                self._report(self._now_us())
                self._links.say_goodbye(self._listen)
            finally:
                for task in self._tasks:
                    # The first error is the one that counts, and a user's `close` must not end the process.
                    with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
                        task.close()
                self._links.close()
                listener.close()

    # -- what tasks emit ---------------------------------------------------------------------------------------------

    def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Call the next task at once where nothing waits before it, or else queue or send the batch."""
        if self._deep < CALLS_DEEP_MAX and self._machine.passes(edge, rows):
            layout = self._share.layout.edges[edge]
            self.meters.passed(task, edge, batch, rows)
            self._deep += 1
            self._process(layout.target, layout.port, batch, rows, origin_ns)  # type: ignore[arg-type] # it is local
            self._deep -= 1
        else:
            self._push(task, edge, batch, rows, origin_ns)

    def _push(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Queue a batch for a task of this worker, hold it for others to join it, or send it."""
        machine, is_near = self._machine, self._share.layout.edges[edge].target is not None
        # Both ends must count the same bytes, or credit would leak: the image's, not either side's buffers.
        if not is_near and not machine.holds(edge, rows):
            size = self._links.send_batch(self._share.edges[edge].number, batch, origin_ns)
            machine.emitted(edge, batch, size, rows)
        else:
            size = codec_of(batch.schema).prepare(batch).size  # a third of the time that pyarrow takes for `nbytes`
            keep = machine.emitted if is_near else machine.hold
            keep(edge, Packet(batch, origin_ns), size, rows)
        self.meters.sent(task, edge, rows, size)

    def push_image(self, task: int, edge: int, image: PreparedImage, origin_ns: int, schema: pa.Schema) -> None:
        """Write routed rows for another worker to where they stay, a peer's ring or a socket, or hold them."""
        rows, machine = image.rows, self._machine
        if machine.holds(edge, rows):
            self._push(task, edge, image.open(codec_of(schema)), rows, origin_ns)
            return
        size = self._links.send_image(self._share.edges[edge].number, image, origin_ns)
        machine.emitted(edge, image, size, rows)
        self.meters.sent(task, edge, rows, size)

    def push_watermark(self, edge: int, time_us: int) -> None:
        """Send event time along one of the machine's edges."""
        held = self._machine.holds(edge)
        self._machine.emitted_watermark(edge, time_us)
        if self._share.layout.edges[edge].target is None and not held:
            self._links.send_mark(Kind.WATERMARK, self._share.edges[edge].number, time_us)

    def arrived(self, task: int, origin_ns: int) -> None:
        """Meter the latency of rows that have reached a sink."""
        self.meters.arrived(task, origin_ns)

    def _send_held(self, held: Send) -> None:
        """Send the batches that lingered on an edge as one, and what was to follow them."""
        packets: Sequence[Packet] = held.payloads  # type: ignore[assignment] # the machine does not look into payloads
        number = self._share.edges[held.edge].number
        batch, origin_ns = _joined(packets)
        size = self._links.send_batch(number, batch, origin_ns)
        self._machine.sent(held.edge, held.size, size)
        if held.watermark_us is not None:
            self._links.send_mark(Kind.WATERMARK, number, held.watermark_us)
        if held.ended:
            self._links.send_mark(Kind.END, number)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _open_tasks(self) -> None:
        settings = self._deployment.settings
        self.meters.start(self._now_us())
        for t, task in enumerate(self._tasks):
            spec, index = self._specs[t], int(self._share.tasks[t].rpartition("/")[2])
            with self._charged(t):
                task.open(
                    TaskContext(
                        spec.name, index, spec.tasks, self._me, self._node, settings.rows_max, self._task_settings
                    )
                )
            self._machine.wants_wake(t, task.wake_at())
        self._report_at_us = self.meters.started_us + int(settings.interval_s * 1e6)

    def _loop(self) -> None:
        machine = self._machine
        while True:
            self._last_us = now_us = self._now_us()
            if now_us >= self._look_at_us:
                self._last_us = now_us = self._look(0.0)
                if self._owed and self._slices.from_splitters:
                    self._return_credit(at_rest=False)  # or a splitter waits until this worker has more or rests
                self._tend_meters(now_us)
            instruction = machine.next(now_us)
            kind = type(instruction)
            if kind is Run:
                self._run(instruction)  # type: ignore[arg-type] # said above
            elif kind is Poll:
                self._poll(instruction.task, now_us)  # type: ignore[union-attr] # said above
            elif kind is Wait:
                self._wait(instruction.until_us)  # type: ignore[union-attr] # said above
                continue
            elif kind is Done:
                return
            else:
                self._seldom(instruction, now_us)
            if machine.grants:
                self._return_credit(at_rest=False)

    def _wait(self, until_us: int | None) -> None:
        self._return_credit(at_rest=True)
        until_us = self._report_at_us if until_us is None else min(until_us, self._report_at_us)
        self._tend_meters(self._look(max(0, until_us - self._now_us()) / 1e6))

    def _tend_meters(self, now_us: int) -> None:
        """After each look, busy or at rest: a report that is due and not made would end every wait at once."""
        self.meters.settle()
        if now_us >= self._report_at_us:
            self._report(now_us)

    def _seldom(self, instruction: Instruction, now_us: int) -> None:
        """Instructions that do not come with every batch."""
        match instruction:
            case Advance(task=t, watermark_us=watermark_us):
                with self._charged(t):
                    self._tasks[t].advance(watermark_us, self._outputs[t])
                self._machine.wants_wake(t, self._tasks[t].wake_at())
            case Wake(task=t):
                with self._charged(t):
                    self._tasks[t].wake(now_us, self._outputs[t])
                self._machine.wants_wake(t, self._tasks[t].wake_at())
            case Finish(task=t):
                self._finish(t)
            case Send():
                self._send_held(instruction)

    def _run(self, run: Run) -> None:
        t = run.task
        if t in self._slices.tasks:
            self._slices.run(run)
            return
        for port, payloads in run.inputs:
            packets: Sequence[Packet] = payloads  # type: ignore[assignment] # the machine does not look into payloads
            batch, origin_ns = packets[0] if len(packets) == 1 else _joined(packets)
            self._process(t, port, batch, batch.num_rows, origin_ns)

    def _process(self, t: int, port: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Give a task a batch; its CPU time is its own, and so are its exceptions."""
        meters, outputs = self.meters, self._outputs[t]
        outputs.origin_ns = origin_ns
        caller = meters.run(t, rows)
        try:
            self._tasks[t].process(batch, port, outputs)
        except (PeerGone, Cancelled, TaskFault, Interrupted):
            raise  # met while sending what the task emitted, or in a task that it called
        except BaseException as error:
            raise self._fault(t, error) from error
        meters.switch(caller)
        if self._is_sink[t]:
            meters.arrived(t, origin_ns)
        if self._sleeps[t]:
            self._machine.wants_wake(t, self._tasks[t].wake_at())

    def _poll(self, t: int, now_us: int) -> None:
        source, outputs, meters = self._tasks[t], self._outputs[t], self.meters
        outputs.origin_ns = time.time_ns()
        meters.run(t, 0)
        try:
            answer = source.poll(now_us, outputs)  # type: ignore[attr-defined] # only sources are polled
        except (PeerGone, Cancelled, TaskFault, Interrupted):
            raise
        except BaseException as error:
            raise self._fault(t, error) from error
        meters.switch(meters.loop)
        self._machine.polled(t, answer.ended, answer.wait_until_us)

    def _finish(self, t: int) -> None:
        self._outputs[t].origin_ns = self._outputs[t].origin_ns or time.time_ns()
        with self._charged(t):
            self._tasks[t].finish(self._outputs[t])
            self._slices.finished(t)
        outbound = [e for e, edge in enumerate(self._share.layout.edges) if edge.source == t and edge.target is None]
        for edge in outbound:
            if not self._machine.holds(edge):
                self._links.send_mark(Kind.END, self._share.edges[edge].number)
        self._machine.finished(t)

    @contextmanager
    def _charged(self, t: int) -> Iterator[None]:
        """Charge the CPU time of a task's code to it, and say whose code it was when it raises."""
        self.meters.run(t, 0)
        try:
            yield
        except (PeerGone, Cancelled, TaskFault, Interrupted):
            raise  # met while sending what the task emitted, or in a task that it called
        except BaseException as error:
            raise self._fault(t, error) from error
        self.meters.switch(self.meters.loop)

    def _fault(self, t: int, error: BaseException) -> TaskFault:
        return TaskFault(self._share.tasks[t], self._me, self._node, error)

    # -- the world outside -------------------------------------------------------------------------------------------

    def _look(self, seconds: float) -> int:
        """Take in what has arrived, waiting at most so long for it; when that was."""
        if not seconds:
            frames, called = self._links.wait(0.0)
        else:
            self.meters.switch(self.meters.waiting)
            frames, called = self._links.wait(seconds)
            self.meters.switch(self.meters.loop)
        now_us = self._now_us()
        self._look_at_us = now_us + LOOK_EVERY_US
        if frames:
            self._machine.clock(now_us)
        straight = len(frames) == 1  # several for one task go through its inbox, where they are joined
        for frame in frames:
            self._take(frame, straight=straight)
        if called:
            self._listen()
        return now_us

    def _listen(self) -> None:
        """Do what the driver says, if it was the driver who called."""
        if self._control is not None and select.select([self._control], [], [], 0)[0]:
            for command in self._control.commands():
                self._obey(command)

    def _take(self, frame: Frame, *, straight: bool) -> None:
        edge = self._share.local_number[frame.edge]
        match frame.kind:
            case Kind.DATA:
                batch = unpack_batch(frame, self._schemas[edge])
                if edge in self._slices.edges:
                    self._slices.part(edge, batch, frame.size, frame.value)
                elif straight and self._machine.passes(edge, frame.rows):
                    layout = self._share.layout.edges[edge]
                    self._machine.passed_in(edge, frame.size)
                    self._process(layout.target, layout.port, batch, frame.rows, frame.value)  # type: ignore[arg-type] # it ends here
                else:
                    self._machine.received(edge, Packet(batch, frame.value), frame.size, frame.rows)
            case Kind.WATERMARK:
                self._machine.received_watermark(edge, frame.value)
            case Kind.END:
                self._machine.received_end(edge)
            case Kind.CREDIT:
                self._machine.credit(edge, frame.value)
            case Kind.SLICE:
                self._slices.closes(edge, frame.value)

    def _obey(self, command: str) -> None:
        if command == "cancel":
            msg = f"worker {self._me} was cancelled"
            raise Cancelled(msg)
        if (scale := asked_scale(command)) is not None:
            for splitter in splitters_in(self._tasks):
                splitter.scale(*scale)
            return
        if command != "stop":
            msg = f"worker {self._me} was told {command!r}; it knows stop, cancel and scale; please report this"
            raise InternalError(msg)
        self._stopping = True
        self._stop_sources()

    def _stop_sources(self) -> None:
        for task in self._tasks:
            if isinstance(task, SourceTask):
                task.stop()
        for t, layout in enumerate(self._share.layout.tasks):
            if layout.is_source:
                self._machine.hurry(t)

    def _return_credit(self, *, at_rest: bool) -> None:
        owed = self._owed
        for edge, size in self._machine.take_grants():
            owed[edge] = owed.get(edge, 0) + size
        for edge in list(owed):
            layout = self._share.layout.edges[edge]
            # A splitter waits for single slices and tells by their credit who is late, so it gets to know soon.
            waited_for = edge in self._slices.from_splitters
            prompt = waited_for and (at_rest or self._last_us - self._granted_us.get(edge, 0) >= GRANT_PROMPT_US)
            if prompt or owed[edge] * GRANT_FRACTION >= layout.window:
                self._granted_us[edge] = self._last_us
                self._links.send_mark(Kind.CREDIT, self._share.edges[edge].number, owed.pop(edge))

    def _report(self, now_us: int) -> None:
        self._report_at_us = now_us + int(self._deployment.settings.interval_s * 1e6)
        queues = [self._machine.queue(t) for t in range(len(self._tasks))]
        blocked = [self._machine.blocked_us(t) for t in range(len(self._tasks))]
        for t, outputs in enumerate(self._outputs):
            self.meters.tuples_out[t], outputs.emitted = outputs.emitted, 0
        tables = self.meters.snapshot(now_us, queues, blocked, self._links.statistics())
        if decided := [row for splitter in splitters_in(self._tasks) for row in splitter.decisions()]:
            tables["balance"] = balance_rows(decided)
        if self._control is not None:
            self._control.metrics(tables)


def steady_clock() -> Callable[[], int]:
    """The time of day in microseconds, as it runs on from now: a clock that is set meanwhile moves nobody's waits."""
    ahead_ns = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + ahead_ns) // 1000


def _joined(packets: Sequence[Packet]) -> Packet:
    """Several batches as one, as old as the oldest."""
    if len(packets) == 1:
        return packets[0]
    return Packet(pa.concat_batches([packet.batch for packet in packets]), min(packet.origin_ns for packet in packets))


def _links(dataflow: Dataflow, share: WorkerShare, me: int, transport: str) -> Links:
    edges = share.layout.edges
    sends_to = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].target is None}
    hears_from = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].source is None}
    windows = [edges[i].window for i in share.peer_of if edges[i].source is None]
    return Links(me, len(job_edges(dataflow)), sends_to, hears_from, Transport(transport, inbox_bytes(windows)))
