"""The thin loop: carries out what the machine decides, moves bytes, counts, and turns a user's exception into a fault.

One thread, one epoll. Everything that waits (sockets, control, tasks that asked for a time) is one descriptor or one
timeout of that call, so an idle worker burns nothing. Task functions run here, between two looks at the descriptors.
"""

from __future__ import annotations

import contextlib
import socket
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.run.channel.protocol import PeerGone
from penstock.run.contract import MAIN, SourceTask, TaskContext
from penstock.run.dataflow import Dataflow
from penstock.run.layout import RunSettings, WorkerShare, job_edges, share_of
from penstock.run.links import Links, WorkerPlace
from penstock.run.machine import Advance, Done, Finish, Machine, Poll, Run, Wait, Wake
from penstock.run.meters import Meters
from penstock.run.routing import Router
from penstock.run.wire import Frame, Kind, unpack_batch

LOOK_EVERY_NS = 50_000  # look at the descriptors at least this often while tasks keep the loop busy
GRANT_FRACTION = 4  # credit goes back when a quarter of the window has been taken, or when there is nothing else to do


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
        """Commands that wait: `stop` (drain and end) or `cancel` (end now)."""

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log; must not block."""


class TaskFault(PenstockError):
    """A user's function failed; names operator, task, worker and node, and keeps the user's traceback."""

    def __init__(self, task: str, worker: int, node: str, cause: BaseException) -> None:
        self.task, self.worker, self.node = task, worker, node
        self.trace = "".join(traceback.format_exception(cause))
        operator, _, index = task.rpartition("/")
        brief = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        super().__init__(f"operator {operator!r} (task {index}, worker {worker}, node {node!r}) failed: {brief}")


class Cancelled(PenstockError):
    """The driver asked this worker to end at once."""


class Packet(NamedTuple):
    """A batch on its way, and when the oldest of its rows left its source."""

    batch: pa.RecordBatch
    origin_ns: int


@dataclass(slots=True)
class OutStream:
    """Where one output of one task goes: a router, and the machine's edge for each of its targets."""

    router: Router
    edges: list[int]


class TaskOutputs:
    """What a task emits, routed while it runs."""

    def __init__(self, worker: Worker, task: int, streams: Mapping[str, Sequence[OutStream]]) -> None:
        self._worker, self._task, self._streams = worker, task, streams
        self.origin_ns = 0

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Route a batch to everyone who reads this output."""
        if batch.num_rows == 0:
            return
        self._worker.meters.tuples_out[self._task] += batch.num_rows
        for stream in self._streams.get(output, ()):
            for position, part in stream.router.route(batch):
                self._worker.push(self._task, stream.edges[position], Packet(part, self.origin_ns))

    def watermark(self, time_us: int) -> None:
        """Pass event time on to every reader of the main output."""
        for stream in self._streams.get(MAIN, ()):
            for edge in stream.edges:
                self._worker.push_watermark(edge, time_us)

    def arrived(self) -> None:
        """Meter the latency of what has just reached a sink inside this task."""
        self._worker.meters.arrived(self._task, (time.time_ns() - self.origin_ns) // 1000)


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
        self._share = share = share_of(dataflow, deployment.worker_of, me, deployment.settings)
        self._machine = Machine(share.layout)
        self._node = deployment.workers[me].node
        self._links = _links(dataflow, share, me)
        self.meters = Meters(me, self._node, share.tasks, [(edge.source, edge.target) for edge in share.edges])
        self._specs = [dataflow.operator(task.rpartition("/")[0]) for task in share.tasks]
        self._schemas = [dataflow.operator(e.source.rpartition("/")[0]).outputs[e.output] for e in share.edges]
        self._tasks = [spec.build() for spec in self._specs]
        self._outputs = [TaskOutputs(self, t, _streams(dataflow, share, task)) for t, task in enumerate(share.tasks)]
        self._task_settings = dict(task_settings or {})
        self._owed: dict[int, int] = {}  # machine edge -> bytes taken whose credit has not gone back yet
        self._looked_ns = 0
        self._report_at_us = 0

    def run(self, listener: socket.socket, key: bytes) -> None:
        """Connect, run until every task has finished, and leave nothing behind."""
        try:
            self._links.open(listener, self._deployment.workers, key)
            self._open_tasks()
            self._loop()
            self._report(_now_us())
            self._links.say_goodbye()
        finally:
            for task in self._tasks:
                with contextlib.suppress(Exception):  # the first error is the one that counts
                    task.close()
            self._links.close()
            listener.close()

    # -- what tasks emit ---------------------------------------------------------------------------------------------

    def push(self, task: int, edge: int, packet: Packet) -> None:
        """Send a routed batch along one of the machine's edges."""
        rows = packet.batch.num_rows
        if self._share.layout.edges[edge].target is None:
            # Both ends must count the same bytes, or credit would leak: the frame's, not either side's buffers.
            size = self._links.send_batch(self._share.edges[edge].number, packet.batch, packet.origin_ns)
        else:
            size = packet.batch.nbytes
        meters = self.meters
        meters.bytes_out[task] += size
        meters.edge_tuples[edge] += rows
        meters.edge_bytes[edge] += size
        self._machine.emitted(edge, packet, size, rows)

    def push_watermark(self, edge: int, time_us: int) -> None:
        """Send event time along one of the machine's edges."""
        self._machine.emitted_watermark(edge, time_us)
        if self._share.layout.edges[edge].target is None:
            self._links.send_mark(Kind.WATERMARK, self._share.edges[edge].number, time_us)

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _open_tasks(self) -> None:
        settings = self._deployment.settings
        for t, task in enumerate(self._tasks):
            spec, index = self._specs[t], int(self._share.tasks[t].rpartition("/")[2])
            with self._charged(t):
                task.open(
                    TaskContext(
                        spec.name, index, spec.tasks, self._me, self._node, settings.rows_max, self._task_settings
                    )
                )
            self._machine.wants_wake(t, task.wake_at())
        if self._control is not None:
            self._links.watch(self._control.fileno())
        self.meters.started_us = _now_us()
        self._report_at_us = self.meters.started_us + int(settings.interval_s * 1e6)

    def _loop(self) -> None:
        while True:
            now_us = _now_us()
            if now_us >= self._report_at_us:
                self._report(now_us)
            match self._machine.next(now_us):
                case Run(task=t, inputs=inputs):
                    self._run(t, inputs)
                case Poll(task=t):
                    self._poll(t, now_us)
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
                case Wait(until_us=until_us):
                    self._return_credit(all_of_it=True)
                    until_us = self._report_at_us if until_us is None else min(until_us, self._report_at_us)
                    self._look(max(0, until_us - _now_us()) / 1e6)
                    continue
                case Done():
                    return
            if self._machine.grants:
                self._return_credit(all_of_it=False)
            if time.monotonic_ns() - self._looked_ns > LOOK_EVERY_NS:
                self._look(0.0)

    def _run(self, t: int, inputs: Sequence[tuple[int, tuple[object, ...]]]) -> None:
        task, outputs, is_sink = self._tasks[t], self._outputs[t], self._specs[t].role == "sink"
        with self._charged(t):
            for port, payloads in inputs:
                packets: list[Packet] = payloads  # type: ignore[assignment] # the machine does not look into payloads
                batches = [packet.batch for packet in packets]
                batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
                outputs.origin_ns = min(packet.origin_ns for packet in packets)
                self.meters.tuples_in[t] += batch.num_rows
                task.process(batch, port, outputs)
                if is_sink:
                    now_ns = time.time_ns()
                    for packet in packets:
                        self.meters.arrived(t, (now_ns - packet.origin_ns) // 1000)
        self._machine.wants_wake(t, task.wake_at())

    def _poll(self, t: int, now_us: int) -> None:
        source = self._tasks[t]
        outputs = self._outputs[t]
        outputs.origin_ns = time.time_ns()
        with self._charged(t):
            answer = source.poll(now_us, outputs)  # type: ignore[attr-defined] # only sources are polled
        self._machine.polled(t, answer.ended, answer.wait_until_us)

    def _finish(self, t: int) -> None:
        self._outputs[t].origin_ns = self._outputs[t].origin_ns or time.time_ns()
        with self._charged(t):
            self._tasks[t].finish(self._outputs[t])
        self._machine.finished(t)
        for edge, layout in enumerate(self._share.layout.edges):
            if layout.source == t and layout.target is None:
                self._links.send_mark(Kind.END, self._share.edges[edge].number)

    @contextmanager
    def _charged(self, t: int) -> Iterator[None]:
        """Charge the CPU time of a task's code to it, and say whose code it was when it raises."""
        began = time.thread_time_ns()
        try:
            yield
        except (PeerGone, Cancelled):
            raise  # met while sending or delivering what the task emitted; not the task's fault
        except Exception as error:
            raise TaskFault(self._share.tasks[t], self._me, self._node, error) from error
        self.meters.cpu_ns[t] += time.thread_time_ns() - began
        self.meters.runs[t] += 1

    # -- the world outside -------------------------------------------------------------------------------------------

    def _look(self, seconds: float) -> None:
        """Take in what has arrived, waiting at most so long for it."""
        frames, called = self._links.wait(seconds)
        self._looked_ns = time.monotonic_ns()
        for frame in frames:
            self._take(frame)
        if called and self._control is not None:
            for command in self._control.commands():
                self._obey(command)

    def _take(self, frame: Frame) -> None:
        edge = self._share.local_number[frame.edge]
        match frame.kind:
            case Kind.DATA:
                batch = unpack_batch(frame, self._schemas[edge])
                self._machine.received(edge, Packet(batch, frame.value), frame.size, frame.rows)
            case Kind.WATERMARK:
                self._machine.received_watermark(edge, frame.value)
            case Kind.END:
                self._machine.received_end(edge)
            case Kind.CREDIT:
                self._machine.credit(edge, frame.value)

    def _obey(self, command: str) -> None:
        if command == "cancel":
            msg = f"worker {self._me} was cancelled"
            raise Cancelled(msg)
        for task in self._tasks:
            if isinstance(task, SourceTask):
                task.stop()
        for t, layout in enumerate(self._share.layout.tasks):
            if layout.is_source:
                self._machine.hurry(t)

    def _return_credit(self, *, all_of_it: bool) -> None:
        owed = self._owed
        for edge, size in self._machine.take_grants():
            owed[edge] = owed.get(edge, 0) + size
        for edge in list(owed):
            if all_of_it or owed[edge] * GRANT_FRACTION >= self._share.layout.edges[edge].window:
                self._links.send_mark(Kind.CREDIT, self._share.edges[edge].number, owed.pop(edge))

    def _report(self, now_us: int) -> None:
        self._report_at_us = now_us + int(self._deployment.settings.interval_s * 1e6)
        queues = [self._machine.queue(t) for t in range(len(self._tasks))]
        blocked = [self._machine.blocked_us(t) for t in range(len(self._tasks))]
        tables = self.meters.snapshot(now_us, queues, blocked)
        if self._control is not None:
            self._control.metrics(tables)


def _now_us() -> int:
    return time.time_ns() // 1000


def _links(dataflow: Dataflow, share: WorkerShare, me: int) -> Links:
    edges = share.layout.edges
    sends_to = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].target is None}
    hears_from = {share.edges[i].number: peer for i, peer in share.peer_of.items() if edges[i].source is None}
    return Links(me, len(job_edges(dataflow)), sends_to, hears_from)


def _streams(dataflow: Dataflow, share: WorkerShare, task: str) -> dict[str, list[OutStream]]:
    """The streams that leave a task, by output: one for each operator and port that reads it."""
    operator, _, index = task.rpartition("/")
    number = {(edge.source, edge.target, edge.port): i for i, edge in enumerate(share.edges)}
    mine = set(share.tasks)
    found: dict[str, list[OutStream]] = {}
    for reader in dataflow.operators:
        for port, read in enumerate(reader.inputs):
            if read.operator == operator:
                targets = [f"{reader.name}/{j}" for j in range(reader.tasks)]
                router = Router(
                    read.grouping,
                    targets=range(reader.tasks),
                    local=[target in mine for target in targets],
                    index=int(index),
                    tasks=dataflow.operator(operator).tasks,
                )
                edges = [number[task, target, port] for target in targets]
                found.setdefault(read.output, []).append(OutStream(router, edges))
    return found
