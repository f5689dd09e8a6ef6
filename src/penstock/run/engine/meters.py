"""Meters: what a worker counts while it runs, as plain integers, and how they become rows of the metric log.

Counting must cost next to nothing (under 2 % of CPU), so the core counts, once per batch
(`core/bindings/bind_tally.cpp`). The thread's CPU clock is a system call (0.7 us, ten times the monotonic clock), too
dear around each run of a task. So runs are timed with the monotonic clock, the CPU clock is read every five
milliseconds, and its time is shared out among the tasks that ran in between, by their times. A task that sleeps in its
function for longer than that is not charged (`test_a_task_that_sleeps_for_longer_than_a_slice_is_not_charged_for_it`),
because its slice has little CPU time to share. Latency is a histogram with buckets about 9 % wide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock._core import Tally
from penstock.run.transport.protocol import ChannelStatistics

TASK_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("worker", pa.int32()),
        pa.field("node", pa.string()),
        pa.field("task", pa.string()),
        pa.field("cpu_us", pa.int64()),
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
    ]
)
EDGE_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("target", pa.string()),
        pa.field("tuples", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
LATENCY_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("task", pa.string()),
        pa.field("latency_us", pa.int64()),  # upper end of the bucket
        pa.field("batches", pa.int64()),
    ]
)
LINK_COLUMNS = pa.schema(
    [
        pa.field("time_us", pa.int64()),
        pa.field("interval_us", pa.int64()),
        pa.field("worker", pa.int32()),
        pa.field("peer", pa.int32()),
        pa.field("transport", pa.string()),  # ring or socket
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
TABLES = {
    "tasks": TASK_COLUMNS,
    "edges": EDGE_COLUMNS,
    "latency": LATENCY_COLUMNS,
    "links": LINK_COLUMNS,
    "balance": BALANCE_COLUMNS,
}
KEYS = {  # the columns that say what a row is about
    "tasks": ("task",),
    "edges": ("source", "target"),
    "latency": ("task", "latency_us"),
    "links": ("worker", "peer"),
    "balance": ("region", "replica"),
}
ADDED = {  # columns that count an interval; the others say how things stand at its end
    "tasks": (
        "cpu_us",
        "tuples_in",
        "tuples_out",
        "bytes_out",
        "runs",
        "blocked_us",
        "interval_us",
        "late",
        "quarantined",
    ),
    "edges": ("tuples", "bytes", "interval_us"),
    "latency": ("batches",),
    "links": ("frames", "bytes", "blocked_us", "interval_us"),
    "balance": (),
}


class TaskTime(NamedTuple):
    """How a task stands to event time, and how many rows it has set aside."""

    late: int = 0
    watermark_us: int | None = None
    idle: bool = False
    quarantined: int = 0


SLICE_NS = 5_000_000  # between two readings of the CPU clock

_SUB_BITS = 3  # eight buckets for each power of two, as the core has them


def upper_end_us(bucket: int) -> int:
    """The largest latency that falls into a bucket."""
    if bucket < 1 << (_SUB_BITS + 1):
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return ((bucket - (shift << _SUB_BITS) + 1) << shift) - 1


class Meters:
    """Counters of one worker since the last snapshot."""

    def __init__(self, worker: int, node: str, tasks: Sequence[str], edges: Sequence[tuple[str, str]]) -> None:
        self._worker, self._node = worker, node
        self._tasks, self._edges = tuple(tasks), tuple(edges)
        self.started_us = 0
        self.loop = len(self._tasks)  # in place of a task: the worker's own work
        self.waiting = self.loop + 1  # in place of a task: nothing to do
        self._settled_ns = self._cpu_ns = 0
        self._links: dict[int, tuple[int, int, int]] = {}  # frames, bytes, blocked us of each at the last snapshot
        self.cpu_ns = [0] * len(self._tasks)
        self.tuples_out = [0] * len(self._tasks)
        self._tally = tally = Tally(len(self._tasks), len(self._edges))
        # Called for every batch, so the core's own methods: a function in between would cost as much as they do.
        self.switch: Callable[[int], int] = tally.switch_to  # the task at work from now on; answers the task until now
        self.run: Callable[[int, int], int] = tally.run  # the same, for a task that is given rows
        self.passed: Callable[[int, int, pa.RecordBatch, int], None] = tally.passed  # task, edge, batch, rows
        self.sent: Callable[[int, int, int, int], None] = tally.sent  # task, edge, rows, bytes
        self.arrived: Callable[[int, int], None] = tally.arrived_now  # task, origin_ns

    def start(self, now_us: int) -> None:
        """Counting begins, in the thread that will do the work."""
        self._clear()
        self.started_us = now_us
        self.switch(self.loop)
        self._tally.take_wall_ns()
        self._settled_ns = self._tally.since_ns
        self._cpu_ns = time.thread_time_ns()

    def _clear(self) -> None:
        self.cpu_ns = [0] * len(self._tasks)
        self.tuples_out = [0] * len(self._tasks)

    def settle(self, *, at_once: bool = False) -> None:
        """Share out the CPU time since the last call, unless that was a moment ago."""
        if not at_once and self._tally.since_ns - self._settled_ns < SLICE_NS:
            return
        self.switch(self._tally.at_work)
        cpu_ns = time.thread_time_ns()
        wall = self._tally.take_wall_ns()
        busy = sum(wall) - wall[self.waiting]
        if busy > 0:
            share = (cpu_ns - self._cpu_ns) / busy
            for t, ns in enumerate(wall[: self.loop]):
                if ns:
                    self.cpu_ns[t] += int(ns * share)
        self._settled_ns, self._cpu_ns = self._tally.since_ns, cpu_ns

    def snapshot(
        self,
        now_us: int,
        queues: Sequence[tuple[int, int]],
        blocked_us: Sequence[int],
        times: Sequence[TaskTime] | None = None,
        links: Mapping[int, tuple[str, ChannelStatistics]] | None = None,
    ) -> dict[str, pa.RecordBatch]:
        """Rows of the tables for the interval that ends now; counting starts afresh."""
        self.settle(at_once=True)
        tuples_in, runs, bytes_out, edge_tuples, edge_bytes = self._tally.take_counts()
        interval = now_us - self.started_us
        count = len(self._tasks)
        times = [TaskTime()] * count if times is None else times
        columns: list[Sequence[object]] = [
            [now_us] * count, [interval] * count, [self._worker] * count, [self._node] * count, self._tasks,
            [ns // 1000 for ns in self.cpu_ns], tuples_in, self.tuples_out, bytes_out, runs,
            [q[0] for q in queues], [q[1] for q in queues], list(blocked_us),
            [t.late for t in times], [t.watermark_us for t in times], [t.idle for t in times],
            [t.quarantined for t in times],
        ]  # fmt: skip
        busy = [e for e, tuples in enumerate(edge_tuples) if tuples]
        edges: list[Sequence[object]] = [
            [now_us] * len(busy), [interval] * len(busy),
            [self._edges[e][0] for e in busy], [self._edges[e][1] for e in busy],
            [edge_tuples[e] for e in busy], [edge_bytes[e] for e in busy],
        ]  # fmt: skip
        seen = self._tally.take_latency()
        latency: list[Sequence[object]] = [
            [now_us] * len(seen), [self._tasks[t] for t, _, _ in seen],
            [upper_end_us(bucket) for _, bucket, _ in seen], [n for _, _, n in seen],
        ]  # fmt: skip
        rows = {"tasks": columns, "edges": edges, "latency": latency, "links": self._link_columns(now_us, links or {})}
        self._clear()
        self.started_us = now_us
        return {name: _batch(TABLES[name], values) for name, values in rows.items()}

    def _link_columns(self, now_us: int, links: Mapping[int, tuple[str, ChannelStatistics]]) -> list[Sequence[object]]:
        """What each connection has done since the last snapshot; its own counters count from its start."""
        before, count = self._links, len(links)
        now = {peer: (s.frames_sent, s.bytes_sent, s.blocked_ns // 1000) for peer, (_, s) in links.items()}
        grown = [[a - b for a, b in zip(now[peer], before.get(peer, (0, 0, 0)), strict=True)] for peer in links]
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
        self.switch = lambda to: to
        self.run = lambda task, _rows: task
        self.passed = lambda _task, _edge, _batch, _rows: None
        self.sent = lambda _task, _edge, _rows, _size: None
        self.arrived = lambda _task, _origin_ns: None

    def settle(self, *, at_once: bool = False) -> None:
        """Nothing to share out."""


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
