"""The jobs of `penstock bench state`: a counter and sessions with keyed Python state, as users write them.

Rows are 50 us of event time apart, in order; their keys are drawn evenly from all keys. A session ends after 10 s of
silence. With 100,000 keys each key comes back every 5 s on average, so most rows clear a timer and set it again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock._core import Timers
from penstock.flow import io
from penstock.flow.schema import parse_schema
from penstock.flow.topology import Topology
from penstock.run.columns.kernels import Row
from penstock.run.contract import END_OF_TIME_US, MAIN, TaskContext
from penstock.run.dataflow import Dataflow
from penstock.run.operators.state.keyed_state import KeyState
from penstock.run.operators.state.process import Process, RowTime
from penstock.run.operators.state.stateful import Emit, Stateful
from penstock.run.operators.times import TIMESTAMP

SCHEMA = pa.schema([pa.field("user", pa.string()), pa.field("ts", TIMESTAMP)])
ROWS_A_BATCH = 4096
START_US = 1_700_000_000_000_000
US_APART = 50
GAP = timedelta(seconds=10)


class Count(Stateful):
    """Rows per key, told at the end."""

    schema = "user string, n bigint"

    def on_row(self, key: Any, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401
        """One more."""
        state["n"] = state.get("n", 0) + 1

    def on_end(self, key: Any, state: KeyState, emit: Emit) -> None:  # noqa: ANN401
        """The count."""
        emit((key, state["n"]))


class CountEach(Stateful):
    """Rows per key, told at every row."""

    schema = "user string, n bigint"

    def on_row(self, key: Any, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401
        """One more, and the count."""
        state["n"] = n = state.get("n", 0) + 1
        emit((key, n))


class Sessions(Stateful):
    """Rows of each visit, told when its key has been silent for the gap."""

    schema = "user string, n bigint"

    def on_row(self, key: Any, row: Row, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401
        """One more; the gap begins anew."""
        state["n"] = state.get("n", 0) + 1
        timers.clear()
        timers.at(row.ts + GAP)

    def on_timer(self, key: Any, time: datetime, state: KeyState, timers: Timers, emit: Emit) -> None:  # noqa: ANN401
        """The visit is over."""
        emit((key, state.pop("n")))


def make_batches(rows: int, keys: int, seed: int = 1) -> list[pa.RecordBatch]:
    """The rows, in batches."""
    chance = np.random.default_rng(seed)
    users = pa.array([f"user{i}" for i in range(keys)]).take(pa.array(chance.integers(0, keys, rows)))
    times = pa.array(START_US + US_APART * np.arange(rows, dtype=np.int64)).cast(TIMESTAMP)
    whole = pa.record_batch([users, times], schema=SCHEMA)
    return [whole.slice(at, ROWS_A_BATCH) for at in range(0, rows, ROWS_A_BATCH)]


def write_rows(batches: list[pa.RecordBatch], path: Path) -> None:
    """The rows as lines `user,microseconds`, for peers."""
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            times = batch.column(1).cast(pa.int64()).to_pylist()
            file.writelines(f"{user},{at}\n" for user, at in zip(batch.column(0).to_pylist(), times, strict=True))


def dataflow(batches: list[pa.RecordBatch], operator: type[Stateful]) -> Dataflow:
    """Source, stateful operator, nothing: one task each."""
    topology = Topology("state")
    source = topology.source("rows", io.generator(partial(_given, batches), SCHEMA))
    source.event_time("ts").key_by("user").process(operator, name="state").sink("out", io.discard())
    return topology.build()


def _given(batches: list[pa.RecordBatch], task: int, tasks: int) -> Iterator[pa.RecordBatch]:
    return iter(batches)


class _NoReaders:
    """Outputs without readers."""

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Forget the rows."""

    def watermark(self, time_us: int) -> None:
        """Forget the time."""

    def arrived(self, rows: int) -> None:
        """Nothing to do."""


def operator_seconds(batches: list[pa.RecordBatch], operator: type[Stateful]) -> float:
    """CPU seconds of the operator alone, from the first row to the last word."""
    task, out = Process(operator, ("user",), parse_schema(operator.schema), RowTime("ts")), _NoReaders()
    task.open(TaskContext("state", 0, 1, rows_max=ROWS_A_BATCH))
    newest = [int(batch.column(1)[-1].cast(pa.int64()).as_py()) for batch in batches]
    began = time.process_time()
    for batch, at_us in zip(batches, newest, strict=True):
        task.process(batch, 0, out)
        task.advance(at_us, out)
    task.advance(END_OF_TIME_US, out)
    task.finish(out)
    return time.process_time() - began


def append_seconds(length: int, puts: int) -> float:
    """CPU seconds of `puts` puts of a list that has `length` elements and grows by one each time."""
    state, seen = KeyState(), list(range(length))
    began = time.process_time()
    for i in range(puts):
        seen.append(i)
        state["seen"] = seen
    return time.process_time() - began
