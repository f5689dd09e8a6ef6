"""Jobs whose answers are known beforehand, and which go on for as long as a test wants: for tests of recovery."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.flow import io

ROWS, KEYS = 20_000, 17
PATIENCE_S = 60.0
SLOW_S = 0.001  # a row, until the test lets go: the job lasts long enough for whatever is to happen to it
Answer = list[tuple[int, ...]]


class Numbers:
    """Numbered rows, one by one until a file is there, and then as fast as they can."""

    def __init__(self, gate: Path | None = None) -> None:
        self.gate = gate

    def __call__(self, task: int, tasks: int) -> Iterator[tuple[int, int]]:
        is_open = self.gate is None
        for number in range(task, ROWS, tasks):
            if not is_open:
                is_open = self.gate is not None and self.gate.exists()
                time.sleep(SLOW_S)
            yield number, number % KEYS


def numbers(gate: Path | None = None) -> io.Source:
    """Two columns: the number of each row, and its key."""
    return io.generator(Numbers(gate), "n bigint, k bigint")


def answer() -> Answer:
    """Of each key the number of its rows, and their sum."""
    return [(key, len(range(key, ROWS, KEYS)), sum(range(key, ROWS, KEYS))) for key in range(KEYS)]


def counts(source: io.Source, sink: io.Sink | None = None, name: str = "counts", tasks: int = 2) -> ps.Topology:
    """Rows and their sum of each key, on several workers."""
    top = ps.Topology(name)
    stream = top.source("numbers", source)
    keyed = stream.key_by("k").aggregate(rows="count(*)", total="sum(n)", name="count", tasks=tasks)
    keyed.sink("out", sink or io.collect())
    return top


def rows_of(job: Job) -> Answer:
    """What a job answered, in order."""
    return sorted(tuple(row) for row in job.result.collect())


def await_epoch(job: Job, epoch: int) -> None:
    """Until this epoch is committed."""
    assert wait_until(lambda: job.epoch >= epoch, PATIENCE_S), f"epoch {epoch} never came: {job.error or job}"


def await_recoveries(job: Job, count: int) -> None:
    """Until the job has gone on so many times."""
    assert wait_until(lambda: job.recoveries >= count, PATIENCE_S), f"it never went on: {job.error or job}"


def kill(job: Job, worker: int) -> None:
    """End a worker's process as the kernel does when memory is short."""
    os.kill(job.workers[worker].pid, signal.SIGKILL)
