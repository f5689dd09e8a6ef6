"""Meters: what a worker counts while it runs, as plain integers, and how they become rows of the metric log.

Counting must cost next to nothing (under 2 % of CPU), so it happens once per batch, never per row. The thread's CPU
clock is a system call (0.7 us, ten times the monotonic clock), too dear around each run of a task. So runs are timed
with the monotonic clock, the CPU clock is read every five milliseconds, and what it says is shared out among the tasks
that ran in between, by their times. A task that waits in its function for longer than that is found out, because its
slice has little CPU time to share; on a shared processor being preempted hits all tasks alike. Latency is a histogram
with buckets about 9 % wide.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.run.channel.protocol import ChannelStatistics

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

SLICE_NS = 5_000_000  # between two readings of the CPU clock
MEASURE_EVERY = 16  # batches of an edge between two that have their bytes counted, where only the log wants them

_SUB_BITS = 3  # eight buckets for each power of two


def bucket_of(latency_us: int) -> int:
    """The histogram bucket of a latency."""
    if latency_us < 1 << (_SUB_BITS + 1):
        return max(0, latency_us)
    shift = latency_us.bit_length() - _SUB_BITS - 1
    return (shift << _SUB_BITS) + (latency_us >> shift)


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
        self._now = self.loop  # who is at work
        self._since_ns = self._settled_ns = self._cpu_ns = 0
        self._links: dict[int, tuple[int, int, int]] = {}  # frames, bytes, blocked us of each at the last snapshot
        self._row_bytes = [(0.0, 0)] * len(self._edges)  # of each edge: last measured, batches since
        self._clear()

    def start(self, now_us: int) -> None:
        """Counting begins, in the thread that will do the work."""
        self._clear()
        self.started_us = now_us
        self._now = self.loop
        self._since_ns = self._settled_ns = time.monotonic_ns()
        self._cpu_ns = time.thread_time_ns()

    def _clear(self) -> None:
        count = len(self._tasks)
        self.cpu_ns = [0] * count
        self._wall_ns = [0] * (count + 2)
        self.tuples_in = [0] * count
        self.tuples_out = [0] * count
        self.bytes_out = [0] * count
        self.runs = [0] * count
        self.edge_tuples = [0] * len(self._edges)
        self.edge_bytes = [0] * len(self._edges)
        self.latency: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def switch(self, to: int) -> int:
        """From now on someone else is at work, a task, `loop` or `waiting`; who it was until now."""
        now_ns = time.monotonic_ns()
        was = self._now
        self._wall_ns[was] += now_ns - self._since_ns
        self._now, self._since_ns = to, now_ns
        return was

    def settle(self, *, at_once: bool = False) -> None:
        """Share out the CPU time since the last call, unless that was a moment ago."""
        if not at_once and self._since_ns - self._settled_ns < SLICE_NS:
            return
        self.switch(self._now)
        cpu_ns = time.thread_time_ns()
        wall = self._wall_ns
        busy = sum(wall) - wall[self.waiting]
        if busy > 0:
            share = (cpu_ns - self._cpu_ns) / busy
            for t, ns in enumerate(wall[: self.loop]):
                if ns:
                    self.cpu_ns[t] += int(ns * share)
        self._wall_ns = [0] * len(wall)
        self._settled_ns, self._cpu_ns = self._since_ns, cpu_ns

    def passed(self, task: int, edge: int, batch: pa.RecordBatch, rows: int) -> None:
        """A batch has gone straight to a task of the same worker; only the log wants its bytes: mostly guessed."""
        row_bytes, count = self._row_bytes[edge]
        if not count:
            row_bytes, count = batch.nbytes / rows, MEASURE_EVERY
        self._row_bytes[edge] = (row_bytes, count - 1)
        self.sent(task, edge, rows, int(row_bytes * rows))

    def sent(self, task: int, edge: int, rows: int, size: int) -> None:
        """A batch has left a task on an edge."""
        self.bytes_out[task] += size
        self.edge_tuples[edge] += rows
        self.edge_bytes[edge] += size

    def arrived(self, task: int, latency_us: int) -> None:
        """A batch has reached a sink so long after it left its source."""
        self.latency[task][bucket_of(latency_us)] += 1

    def snapshot(
        self,
        now_us: int,
        queues: Sequence[tuple[int, int]],
        blocked_us: Sequence[int],
        links: Mapping[int, tuple[str, ChannelStatistics]] | None = None,
    ) -> dict[str, pa.RecordBatch]:
        """Rows of the tables for the interval that ends now; counting starts afresh."""
        self.settle(at_once=True)
        interval = now_us - self.started_us
        count = len(self._tasks)
        columns: list[Sequence[object]] = [
            [now_us] * count, [interval] * count, [self._worker] * count, [self._node] * count, self._tasks,
            [ns // 1000 for ns in self.cpu_ns], self.tuples_in, self.tuples_out, self.bytes_out, self.runs,
            [q[0] for q in queues], [q[1] for q in queues], list(blocked_us),
        ]  # fmt: skip
        busy = [e for e, tuples in enumerate(self.edge_tuples) if tuples]
        edges: list[Sequence[object]] = [
            [now_us] * len(busy), [interval] * len(busy),
            [self._edges[e][0] for e in busy], [self._edges[e][1] for e in busy],
            [self.edge_tuples[e] for e in busy], [self.edge_bytes[e] for e in busy],
        ]  # fmt: skip
        seen = [(t, bucket, n) for t, histogram in self.latency.items() for bucket, n in sorted(histogram.items())]
        latency: list[Sequence[object]] = [
            [now_us] * len(seen), [self._tasks[t] for t, _, _ in seen],
            [upper_end_us(bucket) for _, bucket, _ in seen], [n for _, _, n in seen],
        ]  # fmt: skip
        rows = {"tasks": columns, "edges": edges, "latency": latency, "links": self._link_columns(now_us, links or {})}
        self._clear()
        self.started_us = now_us
        return {name: _batch(TABLES[name], values) for name, values in rows.items()}

    def _link_columns(self, now_us: int, links: Mapping[int, tuple[str, ChannelStatistics]]) -> list[Sequence[object]]:
        """What each connection has done since the last snapshot; its own counters never start afresh."""
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

    def switch(self, to: int) -> int:
        """Nobody is timed."""
        return to

    def settle(self, *, at_once: bool = False) -> None:
        """Nothing to share out."""

    def passed(self, task: int, edge: int, batch: pa.RecordBatch, rows: int) -> None:
        """Not counted."""

    def sent(self, task: int, edge: int, rows: int, size: int) -> None:
        """Not counted."""

    def arrived(self, task: int, latency_us: int) -> None:
        """Not counted."""


def balance_rows(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Decisions of splitters as rows of the log."""
    return _batch(BALANCE_COLUMNS, list(zip(*rows, strict=True)) or [()] * len(BALANCE_COLUMNS))


def _batch(schema: pa.Schema, columns: Sequence[Sequence[object]]) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def percentile(histogram: Sequence[tuple[int, int]], fraction: float) -> int:
    """The latency below which this fraction of (latency, count) entries falls; 0 when there are none."""
    total = sum(count for _, count in histogram)
    seen = 0
    for latency, count in sorted(histogram):
        seen += count
        if seen >= fraction * total:
            return latency
    return 0
