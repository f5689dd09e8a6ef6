"""Tasks move again and again under load: whether a row is lost or comes twice, and whether memory grows.

Rows are numbered and go two ways: each by itself into files that an epoch makes visible, and into counts of keys, which
come at the end. Both answers are known by arithmetic. Memory is that of the driver and of the workers' processes.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import penstock as ps
from penstock.deploy import Job
from penstock.errors import PenstockError
from penstock.flow import io
from penstock_lab.bench.adapt import jobs
from penstock_lab.bench.adapt.gaps import growth, percentile
from penstock_lab.bench.contract import Progress, Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_SECOND = 2_000.0
KEYS = 100
MINUTE_S = 60.0
SLACK = 0.05  # of a minute, in which the last move ends
SAMPLE_S = 1.0
CLOSING_S = 300.0  # for the rows on their way when all is over


def numbered(folder: str) -> jobs.Numbered:
    """The source."""
    return jobs.Numbered(folder, "numbers", KEYS, ROWS_PER_SECOND)


def moving(folder: str) -> ps.Topology:
    """Numbered rows, each kept by itself and counted by key."""
    top = ps.Topology("often")
    rows = top.source("numbers", io.generator(numbered(folder), jobs.SCHEMA))
    rows.select("v", name="each").sink("rows", io.parquet(Path(folder, "rows")), tasks=2)
    counted = rows.key_by("k").aggregate(n="count(*)", s="sum(v)", emit="end", name="count", tasks=3)
    counted.sink("counts", io.collect())
    return top


@dataclass(slots=True)
class Memory:
    """Samples of what processes hold, in MB, taken in a thread of its own."""

    job: Job
    driver: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)  # all of them together
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Memory:
        threading.Thread(target=self._sample, name="bench-memory", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            workers = [resident_mb(hello.pid) for hello in self.job.workers]
            if all(workers):  # else some are just starting or ending
                self.driver.append(resident_mb(os.getpid()))
                self.workers.append(sum(workers))


def resident_mb(pid: int) -> float:
    """What a process holds in memory; 0 of one that has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def run(spark: SparkSession, minutes: float, per_minute: float, progress: Progress) -> Row:
    """Move a task every so often for so long; then compare both answers."""
    chance = np.random.default_rng(1)
    stood: list[float] = []
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        job = moving(folder).start(
            spark, workers=3, scheduler="even", checkpoint=Path(folder, "kept"), checkpoint_interval_s=2.0
        )
        with job, Memory(job) as memory:
            began = time.monotonic()
            due = began
            while (now := time.monotonic()) < began + minutes * MINUTE_S:
                if now < due:
                    job.wait(due - now)
                    continue
                due = max(due + MINUTE_S / per_minute, now - MINUTE_S / per_minute)  # what is late is not owed for ever
                progress(f"moving often: {len(stood)} moves in {now - began:.0f} s of {minutes * MINUTE_S:.0f}")
                task, target = choice(chance, job.worker_of, 3)
                try:
                    stood.append(job.move(task, target).seconds)
                except PenstockError as error:
                    failures.append(str(error))
            seconds = time.monotonic() - began
            rows = numbered(folder).close()
            results = job.results if job.wait(CLOSING_S) else {}
            wrong = wrong_rows(results, rows)
        return {
            "minutes": minutes,
            "moves": len(stood),
            "moves_a_minute": len(stood) / max(minutes, seconds / MINUTE_S - SLACK),
            "failed": len(failures),
            "recoveries": job.recoveries,
            "stood_p50_ms": percentile([1e3 * s for s in stood], 0.5),
            "stood_p99_ms": percentile([1e3 * s for s in stood], 0.99),
            "rows": rows,
            "rows_wrong": wrong,
            "driver_mb": memory.driver[-1] if memory.driver else None,
            "driver_growth": growth(memory.driver),
            "workers_mb": memory.workers[-1] if memory.workers else None,
            "workers_growth": growth(memory.workers),
        }


def choice(chance: np.random.Generator, worker_of: Mapping[str, int], workers: int) -> tuple[str, int]:
    """A task and another worker for it; no worker is left without tasks, since it would end."""
    places = dict(worker_of)
    held = Counter(places.values())
    can = sorted(task for task, worker in places.items() if held[worker] > 1)
    task = can[int(chance.integers(len(can)))]
    others = [worker for worker in range(workers) if worker != places[task]]
    return task, others[int(chance.integers(len(others)))]


def wrong_rows(results: dict[str, DataFrame], rows: int) -> int | None:
    """How many rows are missing, there twice or counted wrongly, of so many; None: there is no answer."""
    if not results:
        return None
    numbers = np.sort(results["rows"].toArrow().column("v").to_numpy())
    counts = {row.k: (row.n, row.s) for row in results["counts"].collect()}
    return compared(numbers, counts, rows)


def compared(numbers: np.ndarray, counts: dict[int, tuple[int, int]], rows: int) -> int:
    """Differences from the numbers that the source gave, of which there were so many, and from what keys count of them.

    How many there were is told by the source. The largest that came would hide all behind it that did not.
    """
    times = np.bincount(numbers, minlength=rows) if len(numbers) else np.zeros(rows, np.int64)
    wrong = int(np.abs(times[:rows] - 1).sum() + times[rows:].sum())
    whole = np.arange(rows)
    keys = whole * jobs.SPREAD % KEYS
    expected_n, expected_s = np.bincount(keys, minlength=KEYS), np.bincount(keys, weights=whole, minlength=KEYS)
    for key in range(KEYS):
        n, s = counts.get(key, (0, 0))
        wrong += abs(n - int(expected_n[key])) + int(n == expected_n[key] and s != int(expected_s[key]))
    return wrong
