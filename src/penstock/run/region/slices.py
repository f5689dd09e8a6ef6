"""Slices on their way through a worker: how the loop carries what belongs to one number of an ordered region.

A slice travels as one unit: a number and everything that a task made of the slice so far, be it nothing, one batch or
several. Between two tasks of a worker it is one payload. Between workers it is its batches and then a mark
(`Kind.SLICE`, with the number and how many batches there were), so every transport that can carry marks can carry
slices, frames of data stay as they are, and a slice of which nothing is left is the mark alone. The mark comes last,
because one that comes first wakes a sleeping receiver for nothing, and the batch wakes it again. A slice is always
whole, so "last" need not be said, and tasks inside a region stay plain tasks: the loop gathers what they emit while
they work one off.
Rejected: a tag in the head of every frame, which each transport and the core would have to know, and which needs
batches without rows.

Two edges of a region return credit late. A replica's, when it has worked the slice off: by that the splitter tells whom
the others wait for. The merger's, when it gives the slice out, which is what bounds its memory. A slice counts for its
bytes and never for less than some: towards the merger so that empty ones count at all, and from the splitter so that a
window holds `SLICES_AHEAD` slices, however small their rows; a queue that takes minutes to fill would tell nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import InternalError
from penstock.run.contract import MAIN
from penstock.run.dataflow import Dataflow
from penstock.run.instructions import Run
from penstock.run.layout import WorkerShare, carries_slices
from penstock.run.machine import Machine
from penstock.run.meters import Meters
from penstock.run.outputs import Carrier, OutStream, TaskOutputs
from penstock.run.region.order import Merger
from penstock.run.wire import Kind, WireFault

SLICES_AHEAD = 8  # slices that a replica may have before it: enough to be busy until the next ones come
SLICE_BYTES_MIN = 64
PARTS_MAX = (1 << 16) - 1
CALLS_DEEP_MAX = 24  # replicas of one chain that call each other directly
JOIN_BELOW = 8  # the merger joins batches below this fraction of rows_max to their neighbours


class SlicePacket(NamedTuple):
    """What there is of one slice, and the edge that it counts against."""

    sequence: int
    batches: tuple[pa.RecordBatch, ...]
    origin_ns: int
    edge: int
    size: int


class Wires(Protocol):
    """What slices need of the links to other workers."""

    def send_batch(self, edge: int, batch: pa.RecordBatch, origin_ns: int) -> int:
        """Send rows along an edge."""

    def send_mark(self, kind: Kind, edge: int, value: int = 0) -> None:
        """Send a mark along an edge."""


class SliceOutputs(TaskOutputs):
    """What a replica makes of one slice: gathered until the slice is worked off; side outputs go on at once."""

    __slots__ = ("gathered",)

    def __init__(self, carrier: Carrier, task: int, streams: Mapping[str, Sequence[OutStream]]) -> None:
        super().__init__(carrier, task, streams)
        self.gathered: list[pa.RecordBatch] = []

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Keep rows of the main output for the slice's end."""
        if output != MAIN:
            super().emit(batch, output)
        elif batch.num_rows:
            self.emitted += batch.num_rows
            self.gathered.append(batch)


@dataclass(slots=True)
class _Arriving:
    """What has come of a slice from another worker whose mark has not."""

    size: int = 0
    origin_ns: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)


Process = Callable[[int, int, pa.RecordBatch, int, int], None]  # task, port, batch, rows, origin_ns


class SliceCarrier:
    """The slices of one worker: sends, receives, works off and merges them."""

    def __init__(
        self,
        dataflow: Dataflow,
        share: WorkerShare,
        machine: Machine,
        meters: Meters,
        wires: Wires,
        process: Process,
        outputs: Sequence[TaskOutputs],
    ) -> None:
        self._share, self._machine, self._meters, self._wires = share, machine, meters, wires
        self._process, self._outputs = process, outputs
        self.edges = frozenset(e for e, edge in enumerate(share.edges) if carries_slices(dataflow, edge))
        self.from_splitters = frozenset(e for e in self.edges if self._source_role(dataflow, e) == "splitter")
        self._least = {e: self._least_size(e) for e in self.edges}
        parts = [dataflow.operator(task.rpartition("/")[0]).region for task in share.tasks]
        self._mergers: dict[int, Merger[SlicePacket]] = {
            t: Merger() for t, part in enumerate(parts) if part is not None and part.role == "merger"
        }
        self._onward = {
            layout.source: e
            for e, layout in enumerate(share.layout.edges)
            if e in self.edges and layout.source is not None and not share.layout.tasks[layout.source].selective
        }
        self.tasks = frozenset(
            layout.target
            for e, layout in enumerate(share.layout.edges)
            if e in self.edges and layout.target is not None
        )
        self._arriving: dict[int, _Arriving] = {}
        self._deep = 0

    def _source_role(self, dataflow: Dataflow, edge: int) -> str | None:
        part = dataflow.operator(self._share.edges[edge].source.rpartition("/")[0]).region
        return None if part is None else part.role

    def _least_size(self, edge: int) -> int:
        if edge in self.from_splitters:
            return max(1, self._share.layout.edges[edge].window // SLICES_AHEAD)
        return SLICE_BYTES_MIN

    # -- between tasks -------------------------------------------------------------------------------------------------

    def send(self, task: int, edge: int, sequence: int, batches: tuple[pa.RecordBatch, ...], origin_ns: int) -> int:
        """Send a slice along one of the machine's edges; what it counts for."""
        layout = self._share.layout.edges[edge]
        rows = sum(batch.num_rows for batch in batches)
        if layout.target is None:
            number = self._share.edges[edge].number
            size = sum(self._wires.send_batch(number, batch, origin_ns) for batch in batches)
            self._wires.send_mark(Kind.SLICE, number, _packed(sequence, len(batches)))
        else:
            size = sum(batch.nbytes for batch in batches)
            direct = not layout.on_release and self._deep < CALLS_DEEP_MAX and self._machine.passes(edge, rows)
            if direct:
                self._meters.sent(task, edge, rows, size)
                self._deep += 1
                self._work_off(layout.target, SlicePacket(sequence, batches, origin_ns, edge, 0))
                self._deep -= 1
                return 0
        counted = max(size, self._least[edge])
        self._machine.emitted(edge, SlicePacket(sequence, batches, origin_ns, edge, counted), counted, rows)
        self._meters.sent(task, edge, rows, size)
        return counted

    def part(self, edge: int, batch: pa.RecordBatch, size: int, origin_ns: int) -> None:
        """A batch of the slice that the next mark of this edge closes."""
        arriving = self._arriving.setdefault(edge, _Arriving())
        arriving.batches.append(batch)
        arriving.size += size
        arriving.origin_ns = origin_ns
        if len(arriving.batches) > PARTS_MAX:
            msg = f"edge {self._share.edges[edge].number} received over {PARTS_MAX} batches of one slice"
            raise WireFault(msg)

    def closes(self, edge: int, value: int) -> None:
        """A mark has come: the slice on an edge from another worker is whole."""
        arriving = self._arriving.pop(edge, None) or _Arriving()
        sequence, parts = value >> 16, value & PARTS_MAX
        if edge not in self.edges or len(arriving.batches) != parts:
            msg = (
                f"edge {self._share.edges[edge].number} received slice {sequence} of {parts} batches where "
                f"{len(arriving.batches)} have come, or none can come"
            )
            raise WireFault(msg)
        size, batches = max(arriving.size, self._least[edge]), tuple(arriving.batches)
        packet = SlicePacket(sequence, batches, arriving.origin_ns, edge, size)
        self._machine.received(edge, packet, size, sum(batch.num_rows for batch in batches))

    # -- inside tasks --------------------------------------------------------------------------------------------------

    def run(self, run: Run) -> None:
        """Give a replica its next slice, or a merger all that has come."""
        for _, payloads in run.inputs:
            packets: Sequence[SlicePacket] = payloads  # type: ignore[assignment] # the machine does not look into them
            if run.task in self._mergers:
                self._merge(run.task, packets)
                continue
            for packet in packets:
                self._work_off(run.task, packet)
                if self._share.layout.edges[packet.edge].on_release:
                    self._machine.returned(packet.edge, packet.size)

    def _work_off(self, task: int, packet: SlicePacket) -> None:
        for batch in packet.batches:
            self._process(task, 0, batch, batch.num_rows, packet.origin_ns)
        onward = self._onward.get(task)
        if onward is not None:
            outputs: SliceOutputs = self._outputs[task]  # type: ignore[assignment] # who sends slices on has these
            made = tuple(outputs.gathered)
            outputs.gathered.clear()
            if len(made) > PARTS_MAX:
                made = (pa.concat_batches(made),)
            self.send(task, onward, packet.sequence, made, packet.origin_ns)

    def _merge(self, task: int, packets: Sequence[SlicePacket]) -> None:
        merger, machine = self._mergers[task], self._machine
        out: list[tuple[pa.RecordBatch, int]] = []
        for packet in packets:
            for released in merger.arrived(packet.edge, packet.sequence, packet, packet.size, last=True):
                machine.returned(released.replica, released.size)
                if released.payload is not None:
                    out += [(batch, released.payload.origin_ns) for batch in released.payload.batches]
        small = self._share.layout.rows_max // JOIN_BELOW
        for batch, origin_ns in _joined(out, small):
            self._process(task, 0, batch, batch.num_rows, origin_ns)

    def finished(self, task: int) -> None:
        """A task has finished: a merger must not hold anything any more."""
        merger = self._mergers.get(task)
        if merger is not None and merger.statistics().slices_held:
            msg = f"{self._share.tasks[task]!r} ended with slices held: {merger.statistics()}"
            raise InternalError(msg)
        outputs = self._outputs[task]
        if isinstance(outputs, SliceOutputs) and outputs.gathered:
            msg = f"{self._share.tasks[task]!r} emitted rows at its end, which belong to no slice of its region"
            raise InternalError(msg)

    def held(self) -> dict[str, int]:
        """The most that each merger of this worker has held, in bytes."""
        return {self._share.tasks[t]: merger.statistics().size_held_max for t, merger in self._mergers.items()}


def _packed(sequence: int, parts: int) -> int:
    return sequence << 16 | parts


def _joined(batches: Sequence[tuple[pa.RecordBatch, int]], small: int) -> list[tuple[pa.RecordBatch, int]]:
    """Neighbours below `small` rows as one batch, as old as the oldest of them."""
    found: list[tuple[pa.RecordBatch, int]] = []
    waiting: list[tuple[pa.RecordBatch, int]] = []
    rows = 0
    for batch, origin_ns in batches:
        waiting.append((batch, origin_ns))
        rows += batch.num_rows
        if rows >= small:
            found.append(_one(waiting))
            waiting, rows = [], 0
    return [*found, _one(waiting)] if waiting else found


def _one(batches: Sequence[tuple[pa.RecordBatch, int]]) -> tuple[pa.RecordBatch, int]:
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches([batch for batch, _ in batches]), min(origin_ns for _, origin_ns in batches)
