"""Jobs that give adapting something to do: work that can be slowed, and traffic that shifts while they run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock.flow import io

BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
# A worker of nice value 8 gets a sixth of what a plain process gets beside it, however busy the machine is. Who may not
# take a nice value back again has to do with many plain ones.
NICE, BUSY_PROCESSES = (8, 1) if os.geteuid() == 0 else (0, 12)
PAYLOAD = "x" * 400


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """A worker's process bound to one core, with others that take most of it."""
    cores = os.sched_getaffinity(pid)
    core = min(cores)
    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for _ in range(BUSY_PROCESSES)]
    try:
        for thread in _threads(pid):
            os.sched_setaffinity(thread, {core})
            os.setpriority(os.PRIO_PROCESS, thread, NICE)
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            for thread in _threads(pid):  # Spark uses processes again
                os.sched_setaffinity(thread, cores)
                os.setpriority(os.PRIO_PROCESS, thread, 0)


def _threads(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]


def burning(us: float) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function of batches that takes so much CPU for each row."""

    def burn(batch: pa.RecordBatch) -> pa.RecordBatch:
        until_s = time.thread_time() + us * 1e-6 * batch.num_rows
        while time.thread_time() < until_s:
            pass
        return batch

    return burn


def working(rows_per_s: float, us: float, tasks: int) -> ps.Topology:
    """A steady stream whose rows take CPU in many tasks."""
    top = ps.Topology("working")
    ticks = top.source("ticks", io.rate(rows_per_s)).shuffle()
    ticks.map_batches(burning(us), name="work", tasks=tasks).sink("out", io.discard())
    return top


def shifting(gate: Path, rows_per_s: float, tasks: int) -> ps.Topology:
    """Tasks that each feed one sum with nine of ten rows, and another sum from when a file is there."""

    def fed(batch: pa.RecordBatch) -> pa.RecordBatch:
        later, length = int(gate.exists()), batch.num_rows
        targets = [(value + later + (value % 11 == 0)) % tasks for value in batch["value"].to_pylist()]
        return pa.RecordBatch.from_pydict({"target": pa.array(targets, pa.int64()), "text": [PAYLOAD] * length})

    top = ps.Topology("shifting")
    ticks = top.source("ticks", io.rate(rows_per_s)).direct(lambda row: row.value % tasks)
    rows = ticks.map_batches(fed, "target bigint, text string", name="feed", tasks=tasks)
    sums = rows.direct(lambda row: row.target).map_batches(lambda batch: batch, name="sum", tasks=tasks)
    sums.sink("out", io.discard())
    return top
