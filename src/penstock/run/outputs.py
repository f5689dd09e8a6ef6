"""What a task emits on its way out: routed while the task runs, and handed to whoever is to have it.

What goes to a task of the same worker is passed on at once where nothing stands in the way; the rest is sent or queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock._core import PreparedImage
from penstock.run.contract import MAIN
from penstock.run.dataflow import FORWARD, Dataflow
from penstock.run.layout import WorkerShare
from penstock.run.routing import Router
from penstock.run.wire import codec_of


class Packet(NamedTuple):
    """A batch on its way, and when the oldest of its rows left its source."""

    batch: pa.RecordBatch
    origin_ns: int


class Carrier(Protocol):
    """Who takes what tasks emit: the worker."""

    def pass_on(self, task: int, edge: int, batch: pa.RecordBatch, rows: int, origin_ns: int) -> None:
        """A batch, or a part of one, for one edge."""

    def push_image(self, task: int, edge: int, image: PreparedImage, origin_ns: int, schema: pa.Schema) -> None:
        """Rows of a batch for an edge that leaves the worker, not gathered yet."""

    def push_watermark(self, edge: int, time_us: int) -> None:
        """Event time for one edge."""

    def arrived(self, task: int, origin_ns: int) -> None:
        """Rows that left their source then have reached a sink."""


@dataclass(slots=True)
class OutStream:
    """Where one output of one task goes: a router, and the machine's edge for each of its targets."""

    router: Router
    edges: list[int]
    straight: bool = False  # rows for other workers are written straight into their rings or sockets


class TaskOutputs:
    """What a task emits, routed while it runs."""

    __slots__ = ("_carrier", "_streams", "_task", "emitted", "origin_ns")

    def __init__(self, carrier: Carrier, task: int, streams: Mapping[str, Sequence[OutStream]]) -> None:
        self._carrier, self._task, self._streams = carrier, task, streams
        self.origin_ns = 0
        self.emitted = 0  # rows since the meters last asked

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Route a batch to everyone who reads this output."""
        rows = batch.num_rows
        if rows == 0:
            return
        self.emitted += rows
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
        """Rows for other workers first, as above: those work on theirs while this one goes on with its own."""
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
        for stream in self._streams.get(MAIN, ()):
            for edge in stream.edges:
                self._carrier.push_watermark(edge, time_us)

    def arrived(self) -> None:
        """Meter the latency of what has just reached a sink inside this task."""
        self._carrier.arrived(self._task, self.origin_ns)


def out_streams(dataflow: Dataflow, share: WorkerShare, task: str) -> dict[str, list[OutStream]]:
    """The streams that leave a task, by output: one for each operator and port that reads it."""
    operator, _, index = task.rpartition("/")
    number = {(edge.source, edge.target, edge.port): i for i, edge in enumerate(share.edges)}
    mine = set(share.tasks)
    found: dict[str, list[OutStream]] = {}
    for reader in dataflow.operators:
        for port, read in enumerate(reader.inputs):
            if read.operator == operator:
                readers = range(reader.tasks) if read.grouping.kind != FORWARD else (int(index),)
                targets = [f"{reader.name}/{j}" for j in readers]
                router = Router(
                    read.grouping,
                    targets=readers,
                    local=[target in mine for target in targets],
                    index=int(index),
                    tasks=dataflow.operator(operator).tasks,
                )
                edges = [number[task, target, port] for target in targets]
                straight = router.looks_into_rows and not all(router.local)
                found.setdefault(read.output, []).append(OutStream(router, edges, straight))
    return found
