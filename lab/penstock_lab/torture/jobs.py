"""Jobs that can be tortured: numbered sources, an operator with state, and gates by which moments are held open.

Rows come on a schedule until the gate `go` is there, and then as fast as they can; the last of them wait for it, so a
job lasts until its trial has done what it is to do. A source that is asked again for rows of long ago gives them at
once. Gates are files: the processes that look for them may die at any moment, which no lock or pipe would outlive.
Every wait for a gate has a limit.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

import penstock as ps
from penstock.flow import io
from penstock.flow.region import RegionStream

SCHEMA = "source int, n bigint"
COUNTED = "seen"
GATE_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.002
LAST_BATCHES = 5  # which wait for the end of the trial
MEMORY_FILE_BYTES = 128 << 10  # fewer than any ring has, more than the files of an epoch here


@dataclass(frozen=True)
class Gates:
    """The folder by whose files a job and its trial speak with each other."""

    folder: str

    def at(self, name: str) -> Path:
        """The file of a gate."""
        return Path(self.folder) / name

    def is_there(self, name: str) -> bool:
        """Whether a gate has been set."""
        return os.path.exists(f"{self.folder}/{name}")

    def set(self, name: str) -> None:
        """Set a gate."""
        self.at(name).touch()

    def lift(self, name: str) -> None:
        """Take a gate away; one that is not there is none."""
        self.at(name).unlink(missing_ok=True)

    def claimed(self, name: str) -> bool:
        """Whether this process is the one that a gate was set for: of several that look, one gets it."""
        try:
            self.at(name).unlink()
        except FileNotFoundError:
            return False
        return True

    def wait_before(self, name: str) -> None:
        """Stand still while a gate is set, and tell so: the process holds up everything that it is part of."""
        if not self.is_there(name):
            return
        latest = time.monotonic() + GATE_SECONDS_MAX
        self.at(f"{name}.{os.getpid()}").touch()
        while self.is_there(name) and time.monotonic() < latest:
            time.sleep(LOOK_SECONDS)

    def standing(self, name: str) -> list[int]:
        """The processes that have come to stand before a gate, whether they live or not."""
        return [int(path.suffix[1:]) for path in Path(self.folder).glob(f"{name}.*")]


@dataclass(frozen=True)
class Shape:
    """How much a job reads, and how fast."""

    sources: int = 4
    batches: int = 600  # of each source
    rows: int = 25  # of a batch
    pace_s: float = 0.02  # from one batch to the next

    @property
    def rows_each(self) -> int:
        """Rows of each source."""
        return self.batches * self.rows


class Arrival:
    """What happens to a process when the job's functions reach it, before it has said hello to the driver."""

    DIES, WAITS, NO_MEMORY_FILES = "arrival-dies", "arrival-waits", "arrival-without-memory-files"

    def __init__(self, gates: Gates) -> None:
        self.gates, self.driver = gates, os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpacked, in a worker or elsewhere."""
        self.__dict__.update(state)
        if os.getpid() == self.driver:
            return
        if self.gates.claimed(self.DIES):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.gates.is_there(self.NO_MEMORY_FILES):
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY_FILE_BYTES, limit))
        if self.gates.claimed(self.WAITS):
            self.gates.set(f"{self.WAITS}-held")
            self.gates.wait_before(f"{self.WAITS}-held")


class Numbered:
    """A source: each task numbers its rows from 0, on a schedule that began when the job was written down."""

    HOLD, GO = "hold-source", "go"

    def __init__(self, gates: Gates, shape: Shape) -> None:
        self.gates, self.shape, self.began = gates, shape, time.time()
        self.arrival = Arrival(gates)

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """Batches, and None while the next one is not due."""
        rows = self.shape.rows
        for batch in range(self.shape.batches):
            while not self._is_due(batch):
                yield None
            if task == 0:
                self.gates.wait_before(self.HOLD)
            yield numbered(task, batch * rows, rows)

    def _is_due(self, batch: int) -> bool:
        if self.gates.is_there(self.GO):
            return True
        return batch < self.shape.batches - LAST_BATCHES and time.time() >= self.began + batch * self.shape.pace_s


def numbered(source: int, first: int, rows: int) -> pa.RecordBatch:
    """Rows of one source."""
    numbers = pa.array(range(first, first + rows), pa.int64())
    return pa.record_batch({"source": pa.array([source] * rows, pa.int32()), "n": numbers})


class Counting(ps.Stateful):
    """How many rows of each source there have been: wrong for ever after state was lost or came twice."""

    schema = f"{SCHEMA}, {COUNTED} bigint"
    HOLD = "hold-end"

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """One more."""
        state[COUNTED] = seen = state.get(COUNTED, 0) + 1
        emit((key, row.n, seen))

    def on_end(self, key: Any, state: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """The job is closing."""
        self.gates.wait_before(self.HOLD)


def keyed(gates: Gates, shape: Shape, sink: io.Sink) -> ps.Topology:
    """Sources, rows routed by key to an operator with state, a sink."""
    top = ps.Topology("keyed")
    stream = top.source("numbers", io.generator(Numbered(gates, shape), SCHEMA, tasks=shape.sources))
    stream.key_by("source").process(partial(Counting, gates), tasks=2, name="count").sink("out", sink)
    return top


class Passing:
    """The work of a replica; as quick as it can be."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows."""
        return batch


def region(gates: Gates, shape: Shape, sink: io.Sink) -> ps.Topology:
    """One source, a parallel region that keeps its order, a sink."""
    top = ps.Topology("region")
    split = top.source("numbers", io.generator(Numbered(gates, shape), SCHEMA)).parallel(2, sample_s=0.1, name="share")
    worked = cast("RegionStream", split.map_batches(Passing(), SCHEMA, name="work"))
    worked.merge().sink("out", sink)
    return top


def released(pids: list[int]) -> None:
    """Have processes end that a trial has left with limits of their own."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
