"""Meters: what a worker counts while it runs, as plain integers, and how they become rows of the metric log.

Counting must cost next to nothing (under 2 % of CPU), so the core counts (`core/bindings/bind_tally.cpp`). Bytes are
payload (`core/image/payload.hpp`), the same at every distance. The thread's CPU clock is a system call, ten times as
dear as the monotonic clock. So work is timed with the monotonic clock: that of tasks, that of each end of each edge,
the loop's. The CPU clock is read every five milliseconds, and its time is shared out by those times; it samples sends,
whose thread may be put aside for the one that it wakes (decision 36). All of it is charged to something
(`test_all_cpu_time_is_charged_to_something`). A task that sleeps in its function for longer than a slice is not charged
(`test_a_task_that_sleeps_for_longer_than_a_slice_is_not_charged_for_it`). Latency is a histogram with buckets 3 % wide.
Decision: docs/decisions/0035-true-measurements.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock._core import PreparedImage, Tally
from penstock.run.engine.core_wait import waited_ns
from penstock.run.transport.protocol import ChannelStatistics
from penstock.run.transport.wire import codec_of

TASK_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("worker", pa.int32()),
        pa.field("node", pa.string()),
        pa.field("task", pa.string()),
        pa.field("cpu_us", pa.int64()),  # of its code, routing, the loop's turns for it; not of sending: see edges
        pa.field("busy_us", pa.int64()),  # time of day in that code
        pa.field("tuples_in", pa.int64()),
        pa.field("tuples_out", pa.int64()),
        pa.field("bytes_out", pa.int64()),
        pa.field("runs", pa.int64()),
        pa.field("queue_batches", pa.int64()),
        pa.field("queue_bytes", pa.int64()),
        pa.field("blocked_us", pa.int64()),
        pa.field("late", pa.int64()),  # rows behind the watermark or without a time, read or not
        pa.field("watermark_us", pa.int64()),  # event time: of a source's output, or of a task's input; null: none yet
        pa.field("idle", pa.bool_()),  # whether event time goes on without it
        pa.field("quarantined", pa.int64()),  # rows whose function raised, where they are set aside, read or not
        pa.field("ended", pa.bool_()),  # whether the worker has ended: it was its last interval; null in older logs
    ]
)
EDGE_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("target", pa.string()),
        pa.field("tuples", pa.int64()),
        pa.field("bytes", pa.int64()),  # payload
        pa.field("batches", pa.int64()),  # as they went: held ones are joined first
        pa.field("distance", pa.string()),  # call, ring or socket
        pa.field("send_us", pa.int64()),  # CPU of preparing and sending, in the sender's row; with turns of the loop
        pa.field("receive_us", pa.int64()),  # CPU of taking in and opening, in the receiver's row
        pa.field("transport_us", pa.int64()),  # from leaving to arrival, summed over batches, by both machines' clocks
        pa.field("queue_us", pa.int64()),  # from arrival to being taken by the task, summed over batches
    ]
)
WORKER_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("worker", pa.int32()),
        pa.field("node", pa.string()),
        pa.field("cpu_us", pa.int64()),  # of the worker's thread: what tasks and edges have, and its own
        pa.field("loop_us", pa.int64()),  # CPU of the worker's own: reports, and turns that nothing caused
        pa.field("waiting_us", pa.int64()),  # time of day in which there was nothing to do
        pa.field("delayed_us", pa.int64()),  # in which its thread had work and no core; null where nobody counts it
    ]
)
LATENCY_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("task", pa.string()),
        pa.field("latency_us", pa.int64()),  # upper end of the bucket
        pa.field("batches", pa.int64()),
        pa.field("rows", pa.int64()),
    ]
)
LINK_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("worker", pa.int32()),
        pa.field("peer", pa.int32()),
        pa.field("transport", pa.string()),  # ring, socket or tls
        pa.field("frames", pa.int64()),
        pa.field("bytes", pa.int64()),  # to the peer
        pa.field("waiting_bytes", pa.int64()),
        pa.field("blocked_us", pa.int64()),  # how long the transport took nothing more (paper 002, section 3)
    ]
)
BALANCE_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("replica", pa.int32()),
        pa.field("weight", pa.int32()),  # thousandths, from now on
        pa.field("rate", pa.float64()),  # smoothed share of the time for which the splitter waited for it
        pa.field("blocked_s", pa.float64()),  # since the start
        pa.field("sent", pa.int64()),  # rows since the start
        pa.field("cluster", pa.int32()),
    ]
)
DECISION_COLUMNS = pa.schema(  # of the driver, in a job that adapts
    [
        pa.field("time_us", pa.int64()),
        pa.field("taken", pa.bool_()),
        pa.field("moves", pa.int32()),
        pa.field("tasks", pa.string()),  # that move
        pa.field("words", pa.string()),  # why, or why not
        pa.field("figures", pa.string()),  # JSON: prices, gain, cost, noise
    ]
)
TABLES = {
    "tasks": TASK_COLUMNS,
    "edges": EDGE_COLUMNS,
    "workers": WORKER_COLUMNS,
    "latency": LATENCY_COLUMNS,
    "links": LINK_COLUMNS,
    "balance": BALANCE_COLUMNS,
    "decisions": DECISION_COLUMNS,
}
KEYS = {  # the columns that say what a row is about
    "tasks": ("task",),
    "edges": ("source", "target"),
    "workers": ("worker",),
    "latency": ("task", "latency_us"),
    "links": ("worker", "peer"),
    "balance": ("region", "replica"),
    "decisions": ("time_us",),
}
ADDED = {  # columns that count an interval; the others say how things stand at its end
    "tasks": (
        "cpu_us",
        "busy_us",
        "tuples_in",
        "tuples_out",
        "bytes_out",
        "runs",
        "blocked_us",
        "interval_us",
        "late",
        "quarantined",
    ),
    "edges": ("tuples", "bytes", "batches", "send_us", "receive_us", "transport_us", "queue_us", "interval_us"),
    "workers": ("cpu_us", "loop_us", "waiting_us", "delayed_us", "interval_us"),
    "latency": ("batches", "rows"),
    "links": ("frames", "bytes", "blocked_us", "interval_us"),
    "balance": (),
    "decisions": (),
}


class TaskTime(NamedTuple):
    """How a task stands to event time, and how many rows it has set aside."""

    late: int = 0
    watermark_us: int | None = None
    idle: bool = False
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in place of the machine's, for simulation: time of day and CPU time of the worker's thread, in ns."""

    wall_ns: Callable[[], int]
    cpu_ns: Callable[[], int]


CALL = "call"  # the distance between tasks of one worker

_SUB_BITS = 5  # 32 buckets for each power of two, as the core has them


def upper_end_us(bucket: int) -> int:
    """The largest latency that falls into a bucket."""
    if bucket < 1 << (_SUB_BITS + 1):
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


class Meters:
    """Counters of one worker since the last snapshot."""

    def __init__(
        self,
        worker: int,
        node: str,
        tasks: Sequence[str],
        edges: Sequence[tuple[str, str]],
        schemas: Sequence[pa.Schema] = (),
        clocks: Clocks | None = None,
    ) -> None:
        self._worker, self._node = worker, node
        self._tasks, self._edges = tuple(tasks), tuple(edges)
        self._clocks = (None, None) if clocks is None else (clocks.wall_ns, clocks.cpu_ns)
        self.gone: set[int] = set()  # tasks that work elsewhere by now, or not here yet
        self.started_us = 0
        self._has_clocks = clocks is not None  # simulated ones: its thread is everybody's
        self._waited_ns: int | None = None  # for a core, by its thread, at the last snapshot
        self._links: dict[int, tuple[int, int, int]] = {}  # frames, bytes, blocked us of each at the last snapshot
        self.tuples_out = [0] * len(self._tasks)
        self._begin(schemas)

    def _begin(self, schemas: Sequence[pa.Schema]) -> None:
        """Count from nothing."""
        codecs = [codec_of(schema) for schema in schemas] if schemas else [None] * len(self._edges)
        self._tally = tally = Tally(len(self._tasks), codecs, *self._clocks)
        self.loop = tally.loop  # in place of a task: the worker's own work
        self.waiting = tally.waiting  # in place of a task: nothing to do
        self.arriving = tally.arriving  # in place of a task: taking in what has come
        self.reporting = tally.reporting  # in place of a task: what no task and no edge has caused
        # Called for every batch, so the core's own methods: a function in between would cost as much as they do.
        self.switch: Callable[[int], int] = tally.switch_to  # the task at work from now on; answers the task until now
        self.run: Callable[[int, int], int] = tally.run  # the same, for a task that is given rows
        self.due: Callable[[int, int], int] = tally.due  # its time has come, so the loop turned for it; runs
        self.passed: Callable[[int, int, pa.RecordBatch, int], None] = tally.passed  # task, edge, batch, rows
        self.handing: Callable[[int], None] = tally.handing  # an edge's sending end is at work, inside this worker ...
        self.sending: Callable[[int], None] = tally.sending  # ... or sends to another, which may have to be woken ...
        self.sent: Callable[[int, int, pa.RecordBatch, int], None] = (
            tally.sent
        )  # ... until now: task, edge, batch, rows
        self.kept: Callable[[int, int, PreparedImage], None] = tally.kept  # likewise, and it waits in an inbox ...
        self.held: Callable[[int, int, PreparedImage], None] = tally.held  # ... or for others to join it
        self.sent_image: Callable[[int, int, PreparedImage], None] = tally.sent_image  # likewise: task, edge, image
        self.joined: Callable[[int], None] = tally.joined  # likewise: held batches of an edge have gone as one
        self.rest: Callable[[], None] = tally.rest  # likewise, where no batch has gone
        self.receiving: Callable[[int], None] = tally.receiving  # an edge's receiving end is at work until `rest`
        self.taken: Callable[[int, int, int, int], None] = tally.taken  # a frame: edge, kind, sent at, bytes
        self.woken: Callable[[int], None] = tally.woken  # a wait was over then, and what had come has been taken in
        self.looked: Callable[[], None] = tally.looked  # all frames of a look have been dealt with
        self.queued: Callable[[int], None] = tally.queued  # a batch of an edge waits in an inbox
        self.dequeued: Callable[[tuple[object, ...]], None] = tally.dequeued  # packets have been taken from it
        self.arrived: Callable[[int, int, int], None] = tally.arrived_now  # task, origin_ns, rows
        self.settle: Callable[..., None] = tally.settle  # share out CPU time, if it is time to or `at_once`

    def change(
        self,
        tasks: Sequence[str],
        edges: Sequence[tuple[str, str]],
        schemas: Sequence[pa.Schema],
        waiting: Mapping[int, int],
    ) -> None:
        """Count these from now on; of some edges so many batches wait. Everything until now has been told."""
        self._tasks, self._edges = tuple(tasks), tuple(edges)
        self._begin(schemas)
        self.start(self.started_us)
        for edge, batches in waiting.items():
            for _ in range(batches):
                self.queued(edge)

    def start(self, now_us: int) -> None:
        """Counting begins, in the thread that will do the work."""
        self.tuples_out = [0] * len(self._tasks)
        self.started_us = now_us
        self._take_delay_us()
        self._tally.start()

    def snapshot(
        self,
        now_us: int,
        queues: Sequence[tuple[int, int]],
        blocked_us: Sequence[int],
        times: Sequence[TaskTime] | None = None,
        links: Mapping[int, tuple[str, ChannelStatistics]] | None = None,
        distances: Sequence[str] = (),
        *,
        ended: bool = False,
    ) -> dict[str, pa.RecordBatch]:
        """Rows of the tables for the interval that ends now; counting starts afresh. `ended`: it is the last."""
        self.settle(True)  # at once
        tuples_in, runs, bytes_out, busy_us, cpu_us, loop_us, waiting_us = self._tally.take_tasks()
        flows = self._tally.take_edges()
        interval = now_us - self.started_us
        count = len(self._tasks)
        times = [TaskTime()] * count if times is None else times
        columns: list[Sequence[object]] = [
            [now_us] * count, [interval] * count, [self._worker] * count, [self._node] * count, self._tasks,
            cpu_us, busy_us, tuples_in, self.tuples_out, bytes_out, runs,
            [q[0] for q in queues], [q[1] for q in queues], list(blocked_us),
            [t.late for t in times], [t.watermark_us for t in times], [t.idle for t in times],
            [t.quarantined for t in times], [ended] * count,
        ]  # fmt: skip
        here = [t for t in range(count) if t not in self.gone]
        columns = [[column[t] for t in here] for column in columns]
        edge, tuples, size, batches, send, receive, transport, queue = zip(*flows, strict=True) if flows else [()] * 8
        edges: list[Sequence[object]] = [
            [now_us] * len(flows), [interval] * len(flows),
            [self._edges[e][0] for e in edge], [self._edges[e][1] for e in edge],
            tuples, size, batches, [distances[e] if distances else CALL for e in edge],
            send, receive, transport, queue,
        ]  # fmt: skip
        seen = self._tally.take_latency()
        latency: list[Sequence[object]] = [
            [now_us] * len(seen), [self._tasks[t] for t, _, _, _ in seen],
            [upper_end_us(bucket) for _, bucket, _, _ in seen], [n for _, _, n, _ in seen], [n for _, _, _, n in seen],
        ]  # fmt: skip
        all_us = sum(cpu_us) + loop_us + sum(send) + sum(receive)
        worker: list[Sequence[object]] = [
            [now_us], [interval], [self._worker], [self._node], [all_us], [loop_us], [waiting_us],
            [self._take_delay_us()],
        ]  # fmt: skip
        rows = {
            "tasks": columns,
            "edges": edges,
            "workers": worker,
            "latency": latency,
            "links": self._link_columns(now_us, links or {}),
        }
        self.tuples_out = [0] * count
        self.started_us = now_us
        return {name: _batch(TABLES[name], values) for name, values in rows.items()}

    def _take_delay_us(self) -> int | None:
        """For how long the calling thread has waited for a core since the last time."""
        before_ns, self._waited_ns = self._waited_ns, None if self._has_clocks else waited_ns()
        return None if before_ns is None or self._waited_ns is None else (self._waited_ns - before_ns) // 1000

    def _link_columns(self, now_us: int, links: Mapping[int, tuple[str, ChannelStatistics]]) -> list[Sequence[object]]:
        """What each connection has done since the last snapshot; its own counters count from its start."""
        before, count = self._links, len(links)
        now = {peer: (s.frames_sent, s.bytes_sent, s.blocked_ns // 1000) for peer, (_, s) in links.items()}
        grown = [  # a peer that has been met anew has counters that begin anew
            [a - b if a >= b else a for a, b in zip(now[peer], before.get(peer, (0, 0, 0)), strict=True)]
            for peer in links
        ]
        self._links = now
        return [
            [now_us] * count, [now_us - self.started_us] * count, [self._worker] * count, list(links),
            [transport for transport, _ in links.values()], [g[0] for g in grown], [g[1] for g in grown],
            [s.bytes_waiting for _, s in links.values()], [g[2] for g in grown],
        ]  # fmt: skip


class Unmetered(Meters):
    """Counts nothing, for measuring what counting costs."""

    def __init__(self, worker: int, node: str, tasks: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
        super().__init__(worker, node, tasks, edges)

    def _begin(self, schemas: Sequence[pa.Schema]) -> None:
        super()._begin(())
        self.switch = lambda to: to
        self.run = lambda task, _rows: task
        self.due = lambda task, _runs: task
        self.passed = self.sent = lambda _task, _edge, _batch, _rows: None
        self.handing = self.sending = self.joined = self.receiving = self.woken = self.queued = lambda _number: None
        self.sent_image = self.kept = self.held = lambda _task, _edge, _image: None
        self.rest = self.looked = lambda: None
        self.settle = lambda at_once=False: None
        self.taken = lambda _edge, _kind, _sent_ns, _size: None
        self.dequeued = lambda _packets: None
        self.arrived = lambda _task, _origin_ns, _rows: None


def balance_rows(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Decisions of splitters as rows of the log."""
    return _batch(BALANCE_COLUMNS, list(zip(*rows, strict=True)) or [()] * len(BALANCE_COLUMNS))


def _batch(schema: pa.Schema, columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def joined(name: str, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join rows of one worker's intervals, given in order, to those of a single long interval: no count is lost."""
    schema = TABLES[name]
    rest = [column for column in schema.names if column not in KEYS[name]]
    how = [(column, "sum" if column in ADDED[name] else "last") for column in rest]
    table = pa.Table.from_batches(batches, schema).group_by(KEYS[name], use_threads=False).aggregate(how)
    named = {f"{column}_{by}": column for column, by in how}
    table = table.rename_columns([named.get(column, column) for column in table.column_names])
    return table.select(schema.names).cast(schema).combine_chunks().to_batches()[0]


def percentile(histogram: Sequence[tuple[int, int]], fraction: float) -> int:
    """The latency below which this fraction of (latency, count) entries falls; 0 when there are none."""
    total = sum(count for _, count in histogram)
    seen = 0
    for latency, count in sorted(histogram):
        seen += count
        if seen >= fraction * total:
            return latency
    return 0
