"""The dataflows of `penstock bench checkpoint`: a busy count, a probe of latency, and state of a given size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock._core import Timers
from penstock.flow import io
from penstock.flow.topology import Topology
from penstock.run.columns.kernels import Row
from penstock.run.dataflow import Dataflow
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.stateful import Emit, Stateful

ROWS_A_BATCH = 4096
NATIVE_BYTES_A_KEY = 40  # what a key, a count and a sum are in a part before compression
PYTHON_BYTES_A_KEY = 60
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.int64())])
KEPT_BATCHES = 64  # different batches of a busy source


def _busy(seconds: float, keys: int, task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    """Batches of rows with keys drawn evenly, as fast as they are taken, for so long."""
    chance = np.random.default_rng(task)
    columns = [[chance.integers(0, keys, ROWS_A_BATCH), np.arange(ROWS_A_BATCH)] for _ in range(KEPT_BATCHES)]
    batches = [pa.record_batch([pa.array(k), pa.array(v)], schema=SCHEMA) for k, v in columns]
    ends, at = time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        yield batches[at % KEPT_BATCHES]
        at += 1


def busy_count(seconds: float, keys: int) -> Dataflow:
    """Two sources at full speed, a keyed count and sum on two tasks, nothing; half of the rows change workers."""
    top = Topology("busy")
    rows = top.source("rows", io.generator(partial(_busy, seconds, keys), SCHEMA, tasks=2))
    counts = rows.key_by("k").aggregate(n="count(*)", s="sum(v)", emit="changes", name="count", tasks=2)
    counts.local_or_shuffle().sink("out", io.discard(), tasks=2)
    return top.build()


def paced_count(rows_per_second: float, seconds: float, keys: int, sent: Any) -> Dataflow:  # noqa: ANN401 - a sink's function
    """Rows on an open schedule, each with the time at which it was due, through a keyed count on two workers."""
    top = Topology("paced")
    ticks = top.source("ticks", io.rate(rows_per_second, rows=int(rows_per_second * seconds), tasks=2))
    spread = ticks.select(f"(value * 7919) % {keys} as k", "timestamp as due")
    counts = spread.key_by("k").aggregate(n="count(*)", due="last(due)", emit="each", name="count", tasks=2)
    counts.local_or_shuffle().sink("out", io.callback(sent), tasks=2)
    return top.build()


class Lateness:
    """A sink that notes when rows came out, and when each was due."""

    def __init__(self) -> None:
        self._came_ns: list[int] = []
        self._batches: list[pa.RecordBatch] = []

    def __call__(self, batch: pa.RecordBatch) -> None:
        """Note the time."""
        self._came_ns.append(time.time_ns())
        self._batches.append(batch)

    def rows(self) -> tuple[Any, Any]:
        """When each row came out (ns since 1970), and how long after it was due (us)."""
        came = [np.full(b.num_rows, at) for at, b in zip(self._came_ns, self._batches, strict=True)]
        due = [b.column("due").cast(pa.int64()).to_numpy() for b in self._batches]
        when = np.concatenate(came) if came else np.zeros(0, np.int64)
        return when, when // 1000 - (np.concatenate(due) if due else when)


def _filling(keys: int, seconds: float, task: int, tasks: int, start: int) -> Iterator[pa.RecordBatch | None]:
    """Every key once, as fast as they are taken; then rows of a few keys at a time, with pauses, for so long.

    It goes on behind `start` batches: by the clock there may be fewer of them the second time.
    """
    for at in range(start * ROWS_A_BATCH, keys, ROWS_A_BATCH):
        numbers = np.arange(at, min(at + ROWS_A_BATCH, keys))
        yield pa.record_batch([pa.array(numbers), pa.array(numbers)], schema=SCHEMA)
    ends, chance = time.monotonic() + seconds, np.random.default_rng(task)
    while time.monotonic() < ends:
        numbers = chance.integers(0, keys, 256)
        yield pa.record_batch([pa.array(numbers), pa.array(numbers)], schema=SCHEMA)
        yield None  # nothing yet: the source is asked again in a millisecond


class Totals(Stateful):
    """Rows and their sum of each key, as Python state."""

    schema = "k bigint, n bigint"

    def on_row(self, key: Any, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401
        """One more."""
        state["n"] = state.get("n", 0) + 1
        state["total"] = state.get("total", 0) + row.v


def native_state(keys: int, seconds: float, tasks: int = 1) -> Dataflow:
    """A keyed count and sum over so many keys."""
    top = Topology("native")
    rows = top.source("rows", io.generator(partial(_filling, keys, seconds), SCHEMA))
    counts = rows.key_by("k").aggregate(n="count(*)", s="sum(v)", emit="end", name="state", tasks=tasks)
    counts.where("k = 0").sink("out", io.discard())
    return top.build()


def python_state(keys: int, seconds: float, tasks: int = 1) -> Dataflow:
    """The same as a user writes it."""
    top = Topology("python")
    rows = top.source("rows", io.generator(partial(_filling, keys, seconds), SCHEMA))
    rows.key_by("k").process(Totals, name="state", tasks=tasks).sink("out", io.discard())
    return top.build()
