"""What a task emits on its way out: routed while the task runs, and handed to its receivers.

What goes to a task of the same worker is passed on at once where nothing stands in the way; the rest is sent or queued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.model.task_id import TaskId
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, ERRORS, IDLE_US, LATE, LATE_RIGHT, MAIN
from penstock.run.dataflow import FORWARD, Dataflow
from penstock.run.engine.routing import Router
from penstock.run.engine.worker_share import WorkerShare, job_streams
from penstock.run.region.slices import PARTS_MAX
from penstock.run.transport.wire import codec_of

MEASURED_ONE_IN = 64  # batches of a source, to know what a row of it takes


class Packet(NamedTuple):
    """A batch on its way, and when the oldest of its rows left its source."""

    batch: pa.RecordBatch
    origin_ns: int
    edge: int = -1  # of the worker's own, by which it came into an inbox


def joined_packets(packets: Sequence[Packet]) -> Packet:
    """Several batches as one, as old as the oldest."""
    if len(packets) == 1:
        return packets[0]
    batch = pa.concat_batches([packet.batch for packet in packets])
    return Packet(batch, min(packet.origin_ns for packet in packets), packets[-1].edge)


class Carrier(Protocol):
    """The worker's side that takes what tasks emit."""

    def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """A batch, or a part of one, for one edge."""

    def push_image(self, task: int, edge: int, image: PreparedImage, origin_ns: int, schema: pa.Schema) -> None:
        """Rows of a batch for an edge that leaves the worker, not gathered yet."""

    def push_slice(self, task: int, edge: int, sequence: int, parts: tuple[Packet, ...]) -> int:
        """A slice of a parallel region for one edge; what its window counts it for."""

    def push_watermark(self, edge: int, time_us: int) -> None:
        """Event time for one edge."""

    def arrived(self, task: int, origin_ns: int, rows: int) -> None:
        """Rows that left their source then have reached a sink."""


@dataclass(slots=True)
class OutStream:
    """Where one output of one task goes: a router, and the machine's edge for each of its targets."""

    router: Router
    edges: list[int]
    straight: bool = False  # rows for other workers are written straight into their rings or sockets


class TaskOutputs:
    """What a task emits, routed while it runs."""

    __slots__ = ("_carrier", "_idle", "_streams", "_task", "_told_us", "emitted", "late", "origin_ns", "quarantined")

    def __init__(self, carrier: Carrier, task: int, streams: Mapping[str, Sequence[OutStream]]) -> None:
        self._carrier, self._task, self._streams = carrier, task, streams
        self.origin_ns = 0
        self.emitted = 0  # rows of the main output since the meters last asked
        self.quarantined = 0  # rows whose function raised, whether a stream reads them or not
        self.late = 0  # rows that came too late or had no time, whether a stream reads them or not
        self._told_us = BEFORE_TIME_US  # the last watermark
        self._idle = False  # told behind it

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Route a batch to every reader of this output."""
        rows = batch.num_rows
        if rows == 0:
            return
        if output == MAIN:
            self.emitted += rows
        elif output in {LATE, LATE_RIGHT}:
            self.late += rows
        elif output == ERRORS:
            self.quarantined += rows
        origin_ns = self.origin_ns
        for stream in self._streams.get(output, ()):
            only = stream.router.only
            if only is not None:
                self._carrier.pass_on(self._task, stream.edges[only], batch, rows, origin_ns)
            elif stream.straight:
                self._emit_images(stream, batch, origin_ns)
            else:
                local = stream.router.local
                parts = stream.router.route(batch)
                for position, part in sorted(parts, key=lambda routed: local[routed[0]]) if len(parts) > 1 else parts:
                    self._carrier.pass_on(self._task, stream.edges[position], part, part.num_rows, origin_ns)

    def _emit_images(self, stream: OutStream, batch: pa.RecordBatch, origin_ns: int) -> None:
        """Route rows for other workers first, as above: they can work while this worker goes on with its own rows."""
        near = []
        for position, image in stream.router.route_images(batch):
            if stream.router.local[position]:
                near.append((stream.edges[position], image))
            else:
                self._carrier.push_image(self._task, stream.edges[position], image, origin_ns, batch.schema)
        for edge, image in near:
            self._carrier.pass_on(self._task, edge, image.open(codec_of(batch.schema)), image.rows, origin_ns)

    def watermark(self, time_us: int) -> None:
        """Pass event time on to every reader of the main output."""
        if time_us == IDLE_US:
            self._idle = True
        else:
            self._told_us, self._idle = time_us, False
        for stream in self._streams.get(MAIN, ()):
            for edge in stream.edges:
                self._carrier.push_watermark(edge, time_us)

    def lead(self, routes: Mapping[int, int], is_near: Callable[[int], bool]) -> None:
        """From now on these edges are led elsewhere: new ones, by the old; `is_near` tells those that end here."""
        for stream in (stream for streams in self._streams.values() for stream in streams):
            if not routes.keys().isdisjoint(stream.edges):
                stream.edges = [routes.get(edge, edge) for edge in stream.edges]
                stream.router.retarget(stream.router.targets, [is_near(edge) for edge in stream.edges])
                stream.straight = stream.router.looks_into_rows and not all(stream.router.local)

    def told(self) -> tuple[int, bool]:
        """The last watermark, and whether the outputs were told behind it that they are idle."""
        return self._told_us, self._idle

    def tell_again(self, time_us: int, is_idle: bool) -> None:
        """Continue from what `told` said: readers are told anew."""
        if time_us != BEFORE_TIME_US:
            self.watermark(time_us)
        if is_idle:
            TaskOutputs.watermark(self, IDLE_US)

    @property
    def promised_us(self) -> int | None:
        """For a source, the watermark that it has promised last; None: no reader waits for it."""
        return None

    def event_time(self) -> tuple[int | None, bool] | None:
        """For a source, how far event time has come in what it has emitted, and whether it is idle; others: None."""
        return None

    def arrived(self, rows: int) -> None:
        """Meter the latency of rows that have just reached a sink inside this task."""
        self._carrier.arrived(self._task, self.origin_ns, rows)


class SliceOutputs(TaskOutputs):
    """What a replica makes of one slice: gathered until the slice is worked off; side outputs go on at once."""

    __slots__ = ("_gathered", "_onward")

    def __init__(self, carrier: Carrier, task: int, streams: Mapping[str, Sequence[OutStream]]) -> None:
        super().__init__(carrier, task, streams)
        self._gathered: list[Packet] = []
        (self._onward,) = streams[MAIN][0].edges  # to the next replica of the chain, or the merger

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Keep rows of the main output for the slice's end."""
        if output != MAIN:
            super().emit(batch, output)
        elif batch.num_rows:
            self.emitted += batch.num_rows
            self._gathered.append(Packet(batch, self.origin_ns))

    def close_slice(self, sequence: int) -> None:
        """The slice has been worked off: what is left of it goes on under its number, even when nothing is left."""
        made = tuple(self._gathered)
        self._gathered.clear()
        if len(made) > PARTS_MAX:
            made = (joined_packets(made),)
        self._carrier.push_slice(self._task, self._onward, sequence, made)

    @property
    def is_open(self) -> bool:
        """Whether rows have been emitted that belong to no slice."""
        return bool(self._gathered)


class SourceOutputs(TaskOutputs):
    """What a source emits, and for how long it has emitted nothing.

    After `idle_us` without rows, event time goes on without it (Flink's idleness, but told by the source itself and
    passed on by every task behind it). The first row afterwards says that time has to wait again, before it is sent.
    """

    __slots__ = ("_came", "_idle_us", "_latest_us", "_quiet_since_us", "_unmeasured", "is_idle", "row_bytes")

    def __init__(
        self, carrier: Carrier, task: int, streams: Mapping[str, Sequence[OutStream]], idle_us: int | None
    ) -> None:
        super().__init__(carrier, task, streams)
        self._idle_us = idle_us
        self._quiet_since_us: int | None = None
        self._came = False  # since the last poll
        self._latest_us: int | None = None  # told before the end of time
        self.is_idle = False
        self._unmeasured = 0  # batches until one is measured again
        self.row_bytes = 1  # of a row, as measured last

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Wake time first."""
        self._came = True
        self._unmeasured -= 1
        if self._unmeasured < 0 and batch.num_rows:
            self._unmeasured, self.row_bytes = MEASURED_ONE_IN - 1, max(1, batch.nbytes // batch.num_rows)
        if self.is_idle and batch.num_rows:
            self.is_idle = False
            super().watermark(self._told_us)
        super().emit(batch, output)

    def watermark(self, time_us: int) -> None:
        """Pass event time on; it is told again when the source wakes."""
        self._latest_us = time_us if time_us < END_OF_TIME_US else self._latest_us
        super().watermark(time_us)

    def tell_again(self, time_us: int, is_idle: bool) -> None:
        """As before the end; what was idle is idle until rows come."""
        super().tell_again(time_us, is_idle)
        self.is_idle = is_idle

    @property
    def promised_us(self) -> int | None:
        """As it has been told, unless it is idle."""
        return None if self.is_idle else self._told_us

    def event_time(self) -> tuple[int | None, bool]:
        """As it has been told."""
        return self._latest_us, self.is_idle

    def polled(self, now_us: int) -> int | None:
        """After each poll: tell idleness when it has come; answers when to ask again, where idleness may still come."""
        if self._idle_us is None or self.is_idle:
            return None
        if self._came:  # quiet begins with the first poll that brings nothing: a source that is not asked is not idle
            self._came, self._quiet_since_us = False, None
            return None
        if self._quiet_since_us is None:
            self._quiet_since_us = now_us
        if now_us - self._quiet_since_us >= self._idle_us:
            self.is_idle, self._quiet_since_us = True, None
            super().watermark(IDLE_US)
            return None
        return self._quiet_since_us + self._idle_us


def out_streams(dataflow: Dataflow, share: WorkerShare, task: str) -> dict[str, list[OutStream]]:
    """The streams that leave a task, by output: one for each operator and port that reads it."""
    operator, index = TaskId(task).operator, TaskId(task).number
    found: dict[str, list[OutStream]] = {}
    for number, (reader, _, read) in enumerate(job_streams(dataflow)):
        if read.operator == operator:
            readers = range(reader.tasks) if read.grouping.kind != FORWARD else (index,)
            ends = [(j, share.moved[task] + share.moved[TaskId.of(reader.name, j)]) for j in readers]
            edges = [share.local_number[share.numbers.of(number, index, j, moves)] for j, moves in ends]
            router = Router(
                read.grouping,
                targets=readers,
                local=[edge not in share.peer_of for edge in edges],
                index=index,
                tasks=dataflow.operator(operator).tasks,
            )
            straight = router.looks_into_rows and not all(router.local)
            found.setdefault(read.output, []).append(OutStream(router, edges, straight))
    return found
