"""Runs a worker's tasks: gives them batches, times and polls, and carries what they emit to its receivers.

A batch for a task of the same worker goes straight into that task where nothing waits before it; the rest is queued in
the machine, held there, or sent. A task's CPU time is its own, and so are its exceptions: each becomes a `TaskFault`
that names the task whose code raised it, however deep in a chain of calls
(`test_a_fault_in_the_middle_of_a_chain_is_its_own_and_not_its_callers`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.errors import InternalError
from penstock.run.columns.unwritten import Sliced, State
from penstock.run.contract import IDLE_US, Interrupted, Owns, SourceTask, Staging, Task
from penstock.run.dataflow import Dataflow
from penstock.run.engine.built_tasks import BuiltTasks, Gone, Made
from penstock.run.engine.clock import origin_ns
from penstock.run.engine.faults import Cancelled, TaskFault
from penstock.run.engine.meters import Meters, TaskTime
from penstock.run.engine.outputs import (
    OutStream,
    Packet,
    SliceOutputs,
    SourceOutputs,
    TaskOutputs,
    joined_packets,
    out_streams,
)
from penstock.run.engine.pace import Pace
from penstock.run.engine.worker_links import WorkerLinks
from penstock.run.engine.worker_share import WorkerShare
from penstock.run.machine.instructions import Run, Send, SlicePayload
from penstock.run.machine.machine import Machine
from penstock.run.machine.moves import put
from penstock.run.region.slices import packed_mark
from penstock.run.region.tasks import SplitterOutputs
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.wire import Kind, codec_of, is_long, sendable

CALLS_DEEP_MAX = 24  # tasks that call each other directly; beyond that a batch is queued, or the stack would overflow
HELD_US = 2_000  # how long a source that is ahead of the others waits before it looks again

FAULTS = (PeerGone, Cancelled, TaskFault, Interrupted)  # met while sending, or in a task that was called: passed on


class TaskRunner:
    """The tasks of one worker at work; takes what they emit (`outputs.Carrier`)."""

    def __init__(
        self,
        dataflow: Dataflow,
        share: WorkerShare,
        built: BuiltTasks,
        machine: Machine,
        links: WorkerLinks,
        meters: Meters,
        pace: Pace,
        clock: Callable[[], int],
    ) -> None:
        self._share, self._machine, self._links, self._meters, self._clock = share, machine, links, meters, clock
        self._built, self.tasks, self.pace, self._dataflow = built, built.tasks, pace, dataflow
        self._edges = machine.layout.edges
        self._numbers = [edge.number for edge in share.edges]
        self.outputs: list[TaskOutputs] = []
        self._outbound: list[list[int]] = []  # a task's edges to other workers
        self._is_sink: list[bool] = []
        self._timed: list[bool] = []
        self._slicewise: list[bool] = []
        self._sleeps: list[bool] = []
        self._deep = 0  # tasks that have called each other directly
        self._stopping = False
        for t in range(len(share.tasks)):
            self._know(t)

    def _know(self, t: int) -> None:
        """What is asked of a task for every batch."""
        name, layout = self._share.tasks[t], self._machine.layout.tasks[t]
        put(self.outputs, t, self._outputs_of(t, out_streams(self._dataflow, self._share, name)))
        put(self._outbound, t, self._outbound_of(t))
        put(self._is_sink, t, self._built.specs[t].role == "sink")
        put(self._timed, t, layout.timed)
        put(self._slicewise, t, layout.slicewise)
        put(self._sleeps, t, type(self.tasks[t]).wake_at is not Task.wake_at)

    def _outbound_of(self, t: int) -> list[int]:
        return [e for e in self._machine.moves.outputs_of(t) if self._edges[e].target is None]

    def _outputs_of(self, t: int, streams: dict[str, list[OutStream]]) -> TaskOutputs:
        spec = self._built.specs[t]
        if spec.region is not None and spec.region.role == "splitter":
            return SplitterOutputs(self, t, streams, self._machine, self._clock, self._transport_ns)
        if spec.region is not None and spec.region.role == "replica" and spec.region.ordered:
            return SliceOutputs(self, t, streams)
        if spec.role == "source":
            return SourceOutputs(self, t, streams, spec.idle_us)
        return TaskOutputs(self, t, streams)

    def _transport_ns(self, edges: Sequence[int]) -> list[int]:
        """For how long the transport under each edge has taken nothing more; edges to one worker share it."""
        ports = self._links.statistics()
        peers = [self._share.peer_of.get(edge) for edge in edges]
        return [ports[peer][1].blocked_ns if peer is not None and peer in ports else 0 for peer in peers]

    # -- what tasks emit ---------------------------------------------------------------------------------------------

    def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Call the next task at once where nothing waits before it, or else queue or send the batch."""
        if self._deep < CALLS_DEEP_MAX and self._machine.passes(edge, rows):
            self._meters.passed(task, edge, batch, rows)
            self._deep += 1
            self.straight(edge, batch, rows, origin_ns)
            self._deep -= 1
        else:
            self._push(task, edge, batch, rows, origin_ns)

    def straight(self, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Give a batch to the task where its edge ends, as the machine allowed."""
        layout = self._edges[edge]
        t: int = layout.target  # type: ignore[assignment] # the edge ends here
        self._process(t, layout.port, batch, rows, origin_ns)
        if self._timed[t]:
            self._observe(t, edge)

    def _push(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """Queue a batch for a task of this worker, hold it for others to join it, or send it."""
        machine, meters, is_near = self._machine, self._meters, self._edges[edge].target is not None
        # Both ends must count the same bytes, or credit would leak: the image's, not either side's buffers.
        if not is_near and not machine.holds(edge, rows):
            meters.sending(edge)
            size = self._links.send_batch(self._numbers[edge], batch, origin_ns)
            machine.emitted(edge, batch, size, rows)
        else:
            meters.handing(edge)
            image = codec_of(batch.schema).prepare(batch)  # a third of the time that pyarrow takes for `nbytes`
            keep = machine.emitted if is_near else machine.hold
            keep(edge, Packet(batch, origin_ns, edge), image.size, rows)
            count = meters.kept if is_near else meters.held
            count(task, edge, image)
            return
        meters.sent(task, edge, batch, rows)

    def push_image(self, task: int, edge: int, image: PreparedImage, origin_ns: int, schema: pa.Schema) -> None:
        """Write routed rows for another worker to where they stay, a peer's ring or a socket, or hold them."""
        rows, machine = image.rows, self._machine
        if machine.holds(edge, rows) or is_long(image):
            self._push(task, edge, image.open(codec_of(schema)), rows, origin_ns)
            return
        self._meters.sending(edge)
        size = self._links.send_image(self._numbers[edge], image, origin_ns)
        machine.emitted(edge, image, size, rows)
        self._meters.sent_image(task, edge, image)

    def push_slice(self, task: int, edge: int, sequence: int, parts: tuple[Packet, ...]) -> int:
        """Work a slice off in the next task of a chain, or queue or send it; what its window counts it for."""
        layout, rows = self._edges[edge], sum(packet.batch.num_rows for packet in parts)
        enter = self._meters.sending if layout.target is None else self._meters.handing
        enter(edge)
        for packet in parts:
            self._meters.sent(task, edge, packet.batch, packet.batch.num_rows)
        enter(edge)
        if layout.target is None:
            size = self._send_slice(self._numbers[edge], sequence, parts)
        else:
            size = sum(packet.batch.nbytes for packet in parts)
            if self._deep < CALLS_DEEP_MAX and self._machine.passes(edge, rows):
                self._meters.rest()
                self._deep += 1
                self._work_off(layout.target, SlicePayload(sequence, parts))
                self._deep -= 1
                return 0
            parts = tuple([packet._replace(edge=edge) for packet in parts])
            for _ in parts:
                self._meters.queued(edge)
        counted = self._machine.emitted_slice(edge, SlicePayload(sequence, parts), size, rows)
        self._meters.rest()
        return counted

    def _send_slice(self, number: int, sequence: int, parts: Sequence[Packet]) -> int:
        pieces = [(piece, packet.origin_ns) for packet in parts for piece in sendable(packet.batch)]
        size = sum(self._links.send_batch(number, piece, origin_ns) for piece, origin_ns in pieces)
        self._links.send_mark(Kind.SLICE, number, packed_mark(sequence, len(pieces)))
        return size

    def push_watermark(self, edge: int, time_us: int) -> None:
        """Send event time along one of the machine's edges."""
        held = self._machine.holds(edge)
        self._machine.emitted_watermark(edge, time_us)
        if self._edges[edge].target is None and not held:
            self._send_mark(Kind.WATERMARK, edge, time_us)

    def arrived(self, task: int, origin_ns: int, rows: int) -> None:
        """Meter the latency of rows that have reached a sink."""
        self._meters.arrived(task, origin_ns, rows)

    def send_held(self, held: Send) -> None:
        """Send the batches that lingered on an edge as one, and what was to follow them."""
        packets: Sequence[Packet] = held.payloads  # type: ignore[assignment] # the machine does not look into payloads
        number = self._numbers[held.edge]
        self._meters.sending(held.edge)
        batch, origin_ns, _ = joined_packets(packets)
        size = self._links.send_batch(number, batch, origin_ns)
        self._machine.sent(held.edge, held.size, size)
        if held.watermark_us is not None:
            self._links.send_mark(Kind.WATERMARK, number, held.watermark_us)
        if held.idle:
            self._links.send_mark(Kind.WATERMARK, number, IDLE_US)
        if held.ended:
            self._links.send_mark(Kind.END, number)
        self._meters.joined(held.edge)

    # -- what tasks are given ----------------------------------------------------------------------------------------

    def open(self, rows_max: int, settings: Mapping[str, object]) -> None:
        """Open every task."""
        for t in range(len(self.tasks)):
            with self._charged(t):
                self._built.open(t, rows_max, settings)
            self._machine.wants_wake(t, self.tasks[t].wake_at())
        if self._stopping:  # the stop came while workers were connecting, and opening a source forgets it
            self.stop_sources()

    def run(self, run: Run) -> None:
        """Give a task what waited for it: batches joined to one, or its next slice."""
        t = run.task
        for port, payloads in run.inputs:
            if self._slicewise[t]:
                self._meters.dequeued(payloads[0].parts)  # type: ignore[attr-defined] # a slice, and one at a time
                self._work_off(t, payloads[0])  # type: ignore[arg-type] # likewise
                continue
            packets: Sequence[Packet] = payloads  # type: ignore[assignment] # the machine does not look into payloads
            self._meters.dequeued(payloads)
            batch, origin_ns, _ = packets[0] if len(packets) == 1 else joined_packets(packets)
            self._process(t, port, batch, batch.num_rows, origin_ns)
        if self._timed[t]:
            self._observe(t, run.edge)

    def _work_off(self, t: int, payload: SlicePayload) -> None:
        """Give a replica a slice, and pass on what it makes of it."""
        parts: Sequence[Packet] = payload.parts  # type: ignore[assignment] # the machine does not look into payloads
        for packet in parts:
            self._process(t, 0, packet.batch, packet.batch.num_rows, packet.origin_ns)
        outputs = self.outputs[t]
        if isinstance(outputs, SliceOutputs):  # not in an unordered region, whose rows go on as they are
            outputs.close_slice(payload.sequence)

    def _process(self, t: int, port: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        meters, outputs = self._meters, self.outputs[t]
        outputs.origin_ns = origin_ns
        caller = meters.run(t, rows)
        try:
            self.tasks[t].process(batch, port, outputs)
        except FAULTS:
            raise
        except BaseException as error:
            raise self._built.fault(t, error) from error
        meters.switch(caller)
        if self._is_sink[t]:
            meters.arrived(t, origin_ns, rows)
        if self._sleeps[t]:
            self._machine.wants_wake(t, self.tasks[t].wake_at())

    def _observe(self, t: int, edge: int) -> None:
        """A timed task has had a batch of an edge: how far that edge has come may move the task's time."""
        time_us = self.tasks[t].observed_us()
        if time_us is None or (watermark_us := self._machine.observed(edge, time_us)) is None:
            return
        caller = self._meters.switch(t)
        with self._charged(t):
            self.tasks[t].advance(watermark_us, self.outputs[t])
        self._meters.switch(caller)

    def poll(self, t: int, now_us: int) -> None:
        """Ask a source for more, unless it is ahead of the others."""
        source, outputs, meters = self.tasks[t], self.outputs[t], self._meters
        if not self.pace.may_run(t) and not self._stopping:
            self._machine.polled(t, False, now_us + HELD_US)
            return
        outputs.origin_ns, before = origin_ns(source.due_us()), outputs.emitted  # type: ignore[attr-defined] # a source
        meters.due(t, 1)
        try:
            answer = source.poll(now_us, outputs)  # type: ignore[attr-defined] # only sources are polled
        except FAULTS:
            raise
        except BaseException as error:
            raise self._built.fault(t, error) from error
        meters.switch(meters.loop)
        wait_until_us = answer.wait_until_us
        if wait_until_us is not None and not answer.ended:
            look_us = outputs.polled(now_us)  # type: ignore[attr-defined] # only sources are polled
            wait_until_us = wait_until_us if look_us is None else min(wait_until_us, look_us)
        size = (outputs.emitted - before) * outputs.row_bytes  # type: ignore[attr-defined] # only sources are polled
        self.pace.polled(t, size, None if answer.ended else outputs.promised_us)
        self._machine.polled(t, answer.ended, wait_until_us)

    def advance(self, t: int, watermark_us: int) -> None:
        """Tell a task that event time has moved."""
        with self._charged(t):
            self.tasks[t].advance(watermark_us, self.outputs[t])
        self._machine.wants_wake(t, self.tasks[t].wake_at())

    def idle(self, t: int) -> None:
        """Tell a task that nothing comes in for now."""
        with self._charged(t):
            self.tasks[t].idle(self.outputs[t])

    def wake(self, t: int, now_us: int) -> None:
        """The time that a task asked for has come, or credit for which it waits."""
        with self._charged(t, due=True):
            self.tasks[t].wake(now_us, self.outputs[t])
        self._machine.wants_wake(t, self.tasks[t].wake_at())

    def finish(self, t: int) -> None:
        """All inputs of a task have ended: its last rows, then the end of its outputs."""
        outputs = self.outputs[t]
        outputs.origin_ns = outputs.origin_ns or origin_ns(None)
        with self._charged(t):
            self.tasks[t].finish(outputs)
            if isinstance(outputs, SliceOutputs) and outputs.is_open:
                msg = f"{self._share.tasks[t]!r} emitted rows at its end, which belong to no slice of its region"
                raise InternalError(msg)
        for edge in self._outbound[t]:
            if not self._machine.holds(edge):
                self._send_mark(Kind.END, edge)
        self._machine.finished(t)
        self.end_new_routes(t)

    # -- moves -------------------------------------------------------------------------------------------------------

    def lead(self, t: int, routes: Mapping[int, int]) -> None:
        """From now on these outputs of a task are led elsewhere: new edges, by the old."""
        self.outputs[t].lead(routes, lambda edge: self._edges[edge].target is not None)
        self._outbound[t] = self._outbound_of(t)

    def end_new_routes(self, t: int) -> None:
        """End the routes that a task which has finished would have taken at the marker that is under way."""
        for edge in self._machine.end_new_routes(t):
            self._send_mark(Kind.END, edge)

    def take_in(self, t: int, made: Made) -> None:
        """A task that is open and not at work yet has this number."""
        self._built.put(t, made)
        self._know(t)

    def add_edge(self, e: int, number: int) -> None:
        """An edge of this worker has this number in the job."""
        put(self._numbers, e, number)

    def begin(self, t: int) -> None:
        """A task that has come goes to work: if sources are to end, it is to as well."""
        task = self.tasks[t]
        if self._stopping and isinstance(task, SourceTask):
            task.stop()

    def put_away(self, t: int) -> None:
        """A task is no more here."""
        with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
            self.tasks[t].close()
        self.tasks[t] = Gone()

    # -- markers -----------------------------------------------------------------------------------------------------

    def state_of(self, t: int) -> Mapping[str, State]:
        """What a task knows."""
        with self._charged(t):
            return self.tasks[t].take_state()

    def write_slice(self, t: int, state: Sliced) -> bool:
        """Write a little of what a task knew; False: nothing is left."""
        with self._charged(t):
            return state.slice()

    def staged(self, t: int, epoch: int) -> tuple[Staging, ...]:
        """The files that a task's sinks have finished with this epoch."""
        with self._charged(t):
            return tuple(self.tasks[t].stage(epoch))

    def pass_marker(self, t: int, epoch: int) -> None:
        """Send the marker to tasks of other workers, behind everything that was emitted."""
        self.send_rest(t)
        for edge in self._outbound[t]:
            self._send_mark(Kind.EPOCH, edge, epoch)

    def send_rest(self, t: int) -> None:
        """Send what lingers on the outputs of a task: nothing joins it any more."""
        for edge in self._outbound[t]:
            if (held := self._machine.flushed(edge)) is not None:
                self.send_held(held)

    def put_back(self, t: int, states: Sequence[Mapping[str, bytes]], owns: Owns | None) -> None:
        """Let a task continue from its own state, or from those of all tasks of an operator of others in number."""
        with self._charged(t):
            if owns is None:
                self.tasks[t].put_state(states[0])
            else:
                self.tasks[t].put_states(states, owns)
        self._machine.wants_wake(t, self.tasks[t].wake_at())

    def tell_again(self, t: int, time_us: int, is_idle: bool) -> None:
        """Tell a task's outputs how far event time has come: they may be others than before."""
        self.outputs[t].tell_again(time_us, is_idle)

    def end_again(self, t: int) -> None:
        """End the outputs of a task that had finished: its rows have come, and their end has not."""
        if self._machine.layout.tasks[t].is_source:
            self.pace.polled(t, 0, None)
        for edge in self._outbound[t]:
            self._send_mark(Kind.END, edge)
        self._machine.finished(t)

    def _send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        self._meters.sending(edge)
        self._links.send_mark(kind, self._numbers[edge], value)
        self._meters.rest()

    def stop_sources(self) -> None:
        """Let every source end with its next poll, and poll it soon."""
        self._stopping = True
        for t, task in enumerate(self.tasks):
            if isinstance(task, SourceTask):
                task.stop()
            if self._machine.layout.tasks[t].is_source:
                self._machine.hurry(t)

    def take_times(self) -> list[TaskTime]:
        """How each task stands to event time; rows out and late rows are counted afresh."""
        times = []
        for t, outputs in enumerate(self.outputs):
            self._meters.tuples_out[t], outputs.emitted = outputs.emitted, 0
            watermark_us, idle = outputs.event_time() or self._machine.event_time(t)
            times.append(TaskTime(outputs.late, watermark_us, idle, outputs.quarantined))
            outputs.late = outputs.quarantined = 0
        return times

    def close(self) -> None:
        """Close every task; the first error of a job counts, and a user's `close` must not end the process."""
        for task in self.tasks:
            with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
                task.close()

    @contextmanager
    def _charged(self, t: int, *, due: bool = False) -> Iterator[None]:
        """Charge the CPU time of a task's code to the task, and name the task when its code raises."""
        if due:
            self._meters.due(t, 0)
        else:
            self._meters.switch(t)  # no run: the time of one is told for each batch
        try:
            yield
        except FAULTS:
            raise
        except BaseException as error:
            raise self._built.fault(t, error) from error
        self._meters.switch(self._meters.loop)
