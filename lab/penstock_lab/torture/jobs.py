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
ON_TIME_S = 0.1  # from when a row is due to the last operator; less is on schedule
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

    def tell(self, name: str, number: float) -> None:
        """Leave a number, which appears whole."""
        hidden = self.at(f".{name}")
        hidden.write_text(repr(number))
        hidden.replace(self.at(name))

    def told(self, name: str) -> float | None:
        """The number that was left, if one was."""
        try:
            return float(self.at(name).read_text())
        except FileNotFoundError:
            return None

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


@dataclass(frozen=True)
class Schedule:
    """When rows of a shape are due: from the moment on at which the job was written down."""

    shape: Shape
    began: float  # seconds since 1970

    def due(self, batch: int) -> float:
        """When a batch of every source is due."""
        return self.began + batch * self.shape.pace_s

    @property
    def last(self) -> float:
        """When the last batch is due that does not wait for the end of the trial."""
        return self.due(self.shape.batches - LAST_BATCHES - 1)


class Numbered:
    """A source: each task numbers its rows from 0, on a schedule that began when the job was written down."""

    HOLD, GO, CLOCK = "hold-source", "go", "what-time"

    def __init__(self, gates: Gates, schedule: Schedule) -> None:
        self.gates, self.schedule = gates, schedule
        self.arrival = Arrival(gates)

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """Batches, and None while the next one is not due."""
        rows = self.schedule.shape.rows
        for batch in range(self.schedule.shape.batches):
            while not self._is_due(batch):
                self._tell_time()
                yield None
            if task == 0:
                self.gates.wait_before(self.HOLD)
            yield numbered(task, batch * rows, rows)

    def _tell_time(self) -> None:
        """Leave the time of this process, where a trial has asked for it."""
        if self.gates.is_there(self.CLOCK) and self.gates.claimed(self.CLOCK):
            self.gates.tell(f"{self.CLOCK}-told", time.time())

    def _is_due(self, batch: int) -> bool:
        if self.gates.is_there(self.GO):
            return True
        return batch < self.schedule.shape.batches - LAST_BATCHES and time.time() >= self.schedule.due(batch)


def numbered(source: int, first: int, rows: int) -> pa.RecordBatch:
    """Rows of one source."""
    numbers = pa.array(range(first, first + rows), pa.int64())
    return pa.record_batch({"source": pa.array([source] * rows, pa.int32()), "n": numbers})


class Timed(Numbered):
    """The same with a time in each row, a thousand rows of a source to the second."""

    def __call__(self, task: int, tasks: int) -> Iterator[pa.RecordBatch | None]:
        """One source."""
        for batch in super().__call__(task, tasks):
            at = (
                None
                if batch is None
                else pa.array([n * 1_000 for n in batch["n"].to_pylist()], pa.timestamp("us", "UTC"))
            )
            yield None if batch is None else batch.append_column("at", at)


class Counting(ps.Stateful):
    """How many rows of each source there have been: wrong for ever after state was lost or came twice.

    With a schedule it tells when the first row of each source came through that was on it.
    """

    schema = f"{SCHEMA}, {COUNTED} bigint"
    HOLD, ON_TIME = "hold-end", "on-time"

    def __init__(self, gates: Gates, schedule: Schedule | None = None) -> None:
        self.gates, self._schedule = gates, schedule
        self._late = set() if schedule is None else set(range(schedule.shape.sources))  # of which none was on time

    def on_row(self, key: Any, row: Any, state: Any, timers: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """One more."""
        if key in self._late and self._schedule is not None:
            now = time.time()
            if now < self._schedule.due(row.n // self._schedule.shape.rows) + ON_TIME_S:
                self._late.remove(key)
                self.gates.tell(f"{self.ON_TIME}-{key}.{os.getpid()}.{id(self)}", now)
        state[COUNTED] = seen = state.get(COUNTED, 0) + 1
        emit((key, row.n, seen))

    def on_end(self, key: Any, state: Any, emit: Callable[..., None]) -> None:  # noqa: ANN401
        """The job is closing."""
        self.gates.wait_before(self.HOLD)


def on_time_at(gates: Gates, source: int, since: float) -> float | None:
    """When an operator that began after this time had a row of the source on its schedule, if one had."""
    told = (gates.told(path.name) for path in Path(gates.folder).glob(f"{Counting.ON_TIME}-{source}.*"))
    return min((at for at in told if at is not None and at > since), default=None)


def keyed(gates: Gates, schedule: Schedule, sink: io.Sink) -> ps.Topology:
    """Sources, rows routed by key to an operator with state, a sink."""
    top = ps.Topology("keyed")
    sources = io.generator(Numbered(gates, schedule), SCHEMA, tasks=schedule.shape.sources)
    counted = (
        top.source("numbers", sources)
        .key_by("source")
        .process(partial(Counting, gates, schedule), tasks=2, name="count")
    )
    counted.sink("out", sink)
    return top


def timed(gates: Gates, schedule: Schedule, sink: io.Sink) -> ps.Topology:
    """The same with event time at the sources, which compare how far they are."""
    top = ps.Topology("timed")
    sources = io.generator(Timed(gates, schedule), f"{SCHEMA}, at timestamp", tasks=schedule.shape.sources)
    keyed_rows = top.source("numbers", sources).event_time("at").select("source", "n").key_by("source")
    keyed_rows.process(partial(Counting, gates, schedule), tasks=2, name="count").sink("out", sink)
    return top


class Paced:
    """Rows pass no faster than so many a second, until the trial lets them go."""

    def __init__(self, gates: Gates, rows_per_s: float) -> None:
        self.gates, self._rows_per_s = gates, rows_per_s

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, later."""
        if not self.gates.is_there(Numbered.GO):
            time.sleep(batch.num_rows / self._rows_per_s)
        return batch


def of_frame(gates: Gates, frame: Any, rows_per_s: float, sink: io.Sink) -> ps.Topology:  # noqa: ANN401 # a DataFrame
    """The same from a DataFrame with columns `source`, `n` and `at`, the time that gives their order."""
    top = ps.Topology("framed")
    rows = top.source("numbers", io.dataframe(frame)).event_time("at")
    slowed = rows.map_batches(Paced(gates, rows_per_s), f"{SCHEMA}, at timestamp", name="pace", tasks=1)
    slowed.select("source", "n").key_by("source").process(partial(Counting, gates), tasks=2, name="count").sink(
        "out", sink
    )
    return top


class Passing:
    """The work of a replica; as quick as it can be."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows."""
        return batch


def region(gates: Gates, schedule: Schedule, sink: io.Sink) -> ps.Topology:
    """One source, a parallel region that keeps its order, a sink."""
    top = ps.Topology("region")
    split = top.source("numbers", io.generator(Numbered(gates, schedule), SCHEMA)).parallel(
        2, sample_s=0.1, name="share"
    )
    worked = cast("RegionStream", split.map_batches(Passing(), SCHEMA, name="work"))
    worked.merge().sink("out", sink)
    return top


def released(pids: list[int]) -> None:
    """Have processes end that a trial has left with limits of their own."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
