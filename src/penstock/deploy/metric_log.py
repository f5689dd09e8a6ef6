"""The metric log: rows of `run.meters.TABLES` as Parquet files under `tasks/`, `edges/` and `latency/`.

Rows are buffered and written as whole files, first under a hidden name: a reader, Spark SQL among them, never sees half
a file while the job runs. The latest rows of each worker and totals since the start stay in memory for `Job.metrics()`.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa

from penstock.run.meters import TABLES, percentile

FLUSH_SECONDS = 10.0
FLUSH_ROWS = 100_000


class MetricLog:
    """Takes batches from any thread. Without a folder only the latest rows and the totals are kept."""

    def __init__(self, job: str, folder: str | Path | None = None) -> None:
        self._job, self._folder = job, None if folder is None else Path(folder)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._files = 0
        self._flush_at = time.monotonic() + FLUSH_SECONDS
        self._latest: dict[tuple[str, int], pa.RecordBatch] = {}
        self._latency: dict[int, int] = defaultdict(int)
        self._totals: dict[str, dict[str, int]] = {}
        if self._folder is not None:
            for name in TABLES:
                (self._folder / name).mkdir(parents=True, exist_ok=True)

    def take(self, worker: int, name: str, batch: pa.RecordBatch) -> None:
        """Rows from a worker; KeyError or ValueError for what is no table of the log."""
        batch = batch.cast(TABLES[name])
        with self._lock:
            self._latest[name, worker] = batch
            self._add(name, batch)
            if self._folder is None:
                return
            self._waiting[name].append(batch)
            if time.monotonic() >= self._flush_at or len(self._waiting[name]) * 100 > FLUSH_ROWS:
                self._flush()

    def latest(self, name: str) -> pa.Table:
        """The newest rows of every worker."""
        with self._lock:
            batches = [batch for (table, _), batch in sorted(self._latest.items()) if table == name]
        return pa.Table.from_batches(batches, TABLES[name])

    def totals(self) -> dict[str, dict[str, int]]:
        """CPU, tuples and bytes of each task since the start."""
        with self._lock:
            return {task: dict(counts) for task, counts in self._totals.items()}

    def latency_us(self, fraction: float) -> int:
        """End-to-end latency of batches, as a percentile since the start; 0 before the first one arrives."""
        with self._lock:
            return percentile(list(self._latency.items()), fraction)

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            self._flush()

    def _add(self, name: str, batch: pa.RecordBatch) -> None:
        if name == "latency":
            for latency, count in zip(batch["latency_us"].to_pylist(), batch["batches"].to_pylist(), strict=True):
                self._latency[latency] += count
        elif name == "tasks":
            columns = ("cpu_us", "tuples_in", "tuples_out", "bytes_out", "runs", "blocked_us")
            for row in batch.select(["task", *columns]).to_pylist():
                counts = self._totals.setdefault(row["task"], dict.fromkeys(columns, 0))
                for column in columns:
                    counts[column] += row[column]

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        self._flush_at = time.monotonic() + FLUSH_SECONDS
        if self._folder is None:
            return
        for name, batches in self._waiting.items():
            if batches:
                target = self._folder / name / f"{self._job}-{self._files:05d}.parquet"
                hidden = target.with_name(f".{target.name}.writing")
                pq.write_table(pa.Table.from_batches(batches, TABLES[name]), hidden)
                hidden.replace(target)
                batches.clear()
        self._files += 1
