"""The splitter and merger of a parallel region as tasks of the engine.

The splitter cuts while it sends: a slice is cut when the one before it has gone, so new weights count at once, and it
waits for the connection of that slice alone. With every credit that comes it asks again which replica the wait is
charged to: the laggard in an ordered region, the full connection in an unordered one and wherever `blocking` says so
(docs/decisions/0016-balance.md, 0042-blocking-as-published.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.errors import InternalError
from penstock.run.contract import MAIN, Outputs, Task, TaskContext
from penstock.run.engine.outputs import Carrier, OutStream, Packet, TaskOutputs
from penstock.run.region.blocking_rate import BlockingMeter, Charged, ConnectionWaits, ObservedTime
from penstock.run.region.contract import Decision, Policy
from penstock.run.region.lengths import SliceLengths
from penstock.run.region.membership import Membership, Meters
from penstock.run.region.order import Slice, Splitter


class Connections(Protocol):
    """What a splitter asks the machine about its outputs, and tells it."""

    def has_room(self, edge: int) -> bool:
        """Whether an output is below its window."""

    def outstanding(self, edge: int) -> int:
        """Bytes of an output whose credit has not come back."""

    def wants_edge(self, task: int, edge: int | None) -> None:
        """The task holds data for this output; None: for none."""


@dataclass(frozen=True, slots=True)
class SplitterSettings:
    """How one region is split; `policy` is called in the worker."""

    region: str
    replicas: int
    policy: Callable[[], Policy]
    ordered: bool = True
    sample_s: float = 1.0
    slice_rows: int | None = None  # None: as the throughput allows
    active: int | None = None  # how many of the replicas take part at first; None: all
    blocking: Charged = "laggard"  # whom a wait is charged to; in an unordered region nobody is late


class SplitterOutputs(TaskOutputs):
    """A splitter's connections, by replica."""

    __slots__ = ("_clock", "_connections", "_edges", "_transport_ns")

    def __init__(
        self,
        carrier: Carrier,
        task: int,
        streams: dict[str, list[OutStream]],
        connections: Connections,
        clock: Callable[[], int],
        transport_ns: Callable[[Sequence[int]], list[int]],
    ) -> None:
        super().__init__(carrier, task, streams)
        self._connections, self._clock, self._transport_ns = connections, clock, transport_ns
        self._edges = streams[MAIN][0].edges

    def now_us(self) -> int:
        """The worker's clock: a splitter has to know how long it waits."""
        return self._clock()

    def has_room(self, replica: int) -> bool:
        """Whether a connection may be sent to."""
        return self._connections.has_room(self._edges[replica])

    def outstanding(self, replica: int) -> int:
        """What a replica has not worked off, as its window counts it."""
        return self._connections.outstanding(self._edges[replica])

    def transport_s(self) -> list[float]:
        """For how long the transport to each replica's worker has taken nothing more; 0 inside a worker."""
        return [waited / 1e9 for waited in self._transport_ns(self._edges)]

    def send(self, replica: int, sequence: int, batch: pa.RecordBatch) -> int:
        """Send a slice; what its window counts it for."""
        self.emitted += batch.num_rows
        parts = (Packet(batch, self.origin_ns),)
        return self._carrier.push_slice(self._task, self._edges[replica], sequence, parts)

    def send_empty(self, replica: int, sequence: int) -> None:
        """Send a slice without rows."""
        self._carrier.push_slice(self._task, self._edges[replica], sequence, ())

    def want(self, replica: int | None) -> None:
        """The next slice is for this replica; None: there is none."""
        self._connections.wants_edge(self._task, None if replica is None else self._edges[replica])


class SplitterTask(Task):
    """Numbers rows and shares them out among replicas, and learns from its own waiting how."""

    def __init__(self, settings: SplitterSettings) -> None:
        self._settings = settings
        self._interval_us = int(settings.sample_s * 1e6)
        self._all = tuple(range(settings.replicas))
        self._members = Membership(settings.replicas, settings.active or settings.replicas)
        self._policy = settings.policy()
        self._splitter = Splitter(self._members.names, self._policy.routing, settings.slice_rows or 1)
        self._splitter.retarget(self._members.names, self._policy.start(self._members.names))
        self._meter = BlockingMeter()
        self._waits = ConnectionWaits(settings.replicas) if settings.blocking == "connection" else None
        self._batch: pa.RecordBatch | None = None
        self._start = 0
        self._slice: Slice | None = None
        self._sent = [0] * settings.replicas
        self._outstanding = [0] * settings.replicas
        self._observed = ObservedTime()
        self._sample_at_us = 0
        self._sampled = (0, 0.0)  # rows and blocking of the last sample
        self._sampled_s = 0.0
        self._decided: list[tuple[object, ...]] = []

    def open(self, context: TaskContext) -> None:
        """Remember how long batches are at most."""
        super().open(context)
        self._lengths = SliceLengths(self._all, context.rows_max)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Send as much of a batch as there is room for; the rest goes when there is."""
        if self._batch is not None:
            msg = f"the splitter of region {self._settings.region!r} got rows while it holds others"
            raise InternalError(msg)
        self._batch, self._start = batch, 0
        outputs = _splitter_outputs(out)
        self._begin(outputs)
        self._send(outputs)

    def wake_at(self) -> int | None:
        """When the next sample is due; the first call starts the clock."""
        return self._sample_at_us

    def wake(self, now_us: int, out: Outputs) -> None:
        """There is room, or credit has come, or a sample is due."""
        outputs = _splitter_outputs(out)
        self._note_credit(outputs, now_us)
        if now_us >= self._sample_at_us:
            self._sample(outputs, now_us)
        if self._batch is not None:
            self._send(outputs)

    def finish(self, out: Outputs) -> None:
        """Close every replica's part of an ordered region with a slice by which the merger tells that all have come."""
        if self._settings.ordered:
            outputs = _splitter_outputs(out)
            for piece in self._splitter.closing(self._all):
                outputs.send_empty(piece.replica, piece.sequence)

    def scale(self, region: str, replicas: int) -> None:
        """Set how many replicas take part from the next sample on, if this region is meant."""
        if region == self._settings.region:
            self._members.ask(replicas)

    def decisions(self) -> list[tuple[object, ...]]:
        """What was decided since the last call, as rows of the metric log."""
        taken, self._decided = self._decided, []
        return taken

    # -- sending -------------------------------------------------------------------------------------------------------

    def _send(self, out: SplitterOutputs) -> None:
        now_us = out.now_us()
        self._meter.go_on(now_us / 1e6)
        self._note_credit(out, now_us)
        if self._settings.slice_rows is None and self._lengths.observe(now_us, self._worked_off()):
            self._splitter.set_lengths(self._lengths.rows)
        batch = self._batch
        while batch is not None:
            if self._slice is None:
                self._slice = self._splitter.first(self._start, batch.num_rows - self._start, self._queued(out))
            if not out.has_room(self._slice.replica):
                self._meter.wait(self._blamed(self._slice.replica), out.now_us() / 1e6)
                out.want(self._slice.replica)
                return
            self._send_slice(self._slice, batch, out)
            if self._start == batch.num_rows:
                batch = self._batch = None
        out.want(None)

    def _send_slice(self, piece: Slice, batch: pa.RecordBatch, out: SplitterOutputs) -> None:
        rows = batch if piece.rows == batch.num_rows else batch.slice(piece.start, piece.rows)
        sent_us = out.now_us()  # before: the replica may be at work while we are on our way back
        size = out.send(piece.replica, piece.sequence, rows)
        self._splitter.sent(piece, size, sent_us)
        self._sent[piece.replica] += piece.rows
        self._outstanding[piece.replica] += size
        self._start += piece.rows
        self._slice = None

    def _note_credit(self, out: SplitterOutputs, now_us: int) -> None:
        for replica in self._all:  # replicas that have left still work off what they have
            left = out.outstanding(replica)
            if left < self._outstanding[replica]:
                self._splitter.taken(replica, self._outstanding[replica] - left, now_us)
                self._outstanding[replica] = left

    def _worked_off(self) -> dict[int, int]:
        return {replica: self._splitter.worked_off(replica) for replica in self._all}

    def _blamed(self, full: int) -> int:
        late = self._settings.ordered and self._settings.blocking == "laggard"
        laggard = self._splitter.laggard() if late else None
        return full if laggard is None else laggard

    def _queued(self, out: SplitterOutputs) -> Callable[[int], tuple[float, bool]] | None:
        if self._policy.routing == "turns":
            return None
        return lambda replica: (float(out.outstanding(replica)), not out.has_room(replica))

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _begin(self, out: SplitterOutputs) -> None:
        """There are rows again: an interval begins, and what was worked off since the last one is in none."""
        now_us = out.now_us()
        if self._observed.begin(now_us):
            self._note_credit(out, now_us)
            self._members.leave_out(self._read_meters(out, now_us))
            self._sample_at_us = now_us + self._interval_us

    def _sample(self, out: SplitterOutputs, now_us: int) -> None:
        """Learn from the interval that ends now, unless nothing was to be sent in it."""
        self._sample_at_us = now_us + self._interval_us
        meters = self._read_meters(out, now_us)
        blocked_s = [blocked for blocked, _, _ in meters]
        seen = (sum(self._sent), sum(blocked_s))
        if seen == self._sampled:
            self._observed.leave_out()
            if not self._members.changes:
                return
            self._observed.begin(now_us - self._interval_us)  # who takes part is decided with one interval, even idle
        time_s = self._observed.read(now_us)
        if time_s <= self._sampled_s:
            return
        self._sampled, self._sampled_s = seen, time_s
        self._members.follow(meters)
        decision = self._policy.decide(self._members.sample(time_s, meters))
        self._splitter.retarget(decision.replicas, decision.weights)
        self._log(now_us, decision, blocked_s)

    def _read_meters(self, out: SplitterOutputs, now_us: int) -> list[Meters]:
        blocked_s = self._meter.read(self._all, now_us / 1e6)
        if self._waits is not None:
            blocked_s = self._waits.read(blocked_s, out.transport_s())
        # What was worked off instead of what was sent: rows that fill a queue say nothing of a replica's speed.
        took_s = [self._splitter.took_us(replica) / 1e6 for replica in self._all]
        return list(zip(blocked_s, map(float, self._worked_off().values()), took_s, strict=True))

    def _log(self, now_us: int, decision: Decision, blocked_s: Sequence[float]) -> None:
        """A row for every replica that was built; one that takes no part has weight 0 and no cluster."""
        figures = dict(
            zip(decision.replicas, zip(decision.weights, decision.rates, decision.clusters, strict=True), strict=True)
        )
        for replica in self._all:
            weight, rate, cluster = figures.get(replica, (0, 0.0, -1))
            row = (replica, weight, rate, blocked_s[replica], self._sent[replica], cluster)
            self._decided.append((now_us, self._settings.region, *row))


class MergerTask(Task):
    """The end of an ordered region: slices reach it in order (`TaskLayout.merges`), and it passes them on."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Pass on."""
        out.emit(batch)


def splitters_in(tasks: Sequence[Task]) -> list[SplitterTask]:
    """The splitters among a worker's tasks."""
    return [task for task in tasks if isinstance(task, SplitterTask)]


def _splitter_outputs(out: Outputs) -> SplitterOutputs:
    if not isinstance(out, SplitterOutputs):
        msg = f"a splitter runs in a worker, which gives it its connections; it was given {type(out).__name__}"
        raise InternalError(msg)
    return out
