"""The metric log: rows of `run.meters.TABLES` as Parquet files, a folder for each table.

Rows are buffered and written as whole files, first under a hidden name: a reader, Spark SQL among them, never sees half
a file while the job runs. The latest rows of each worker and sums since the start stay in memory: for
`Job.metrics()`, for `Job.profile()`, and for whoever scrapes them.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.run.meters import TABLES, percentile

FLUSH_SECONDS = 10.0
FLUSH_ROWS = 100_000
SUMMED = ("cpu_us", "tuples_in", "tuples_out", "bytes_out", "runs", "blocked_us", "interval_us")
LINK_SUMMED = ("frames", "bytes", "blocked_us")
NEWEST = ("queue_batches", "queue_bytes", "worker", "node")


@dataclass
class Sums:
    """What a job's log adds up to so far."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)  # task -> SUMMED
    newest: dict[str, dict[str, int | str]] = field(default_factory=dict)  # task -> NEWEST
    edges: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)  # (from, to) -> tuples, bytes
    latency: dict[str, Counter[int]] = field(default_factory=dict)  # task -> batches by upper end of the bucket (us)
    links: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)  # (worker, peer) -> LINK_SUMMED
    transports: dict[tuple[int, int], str] = field(default_factory=dict)  # (worker, peer) -> ring or socket
    began_us: int | None = None
    ended_us: int = 0

    def add(self, name: str, batch: pa.RecordBatch) -> None:
        """Count rows of one table in."""
        for row in batch.to_pylist():
            if name == "tasks":
                counts = self.tasks.setdefault(row["task"], dict.fromkeys(SUMMED, 0))
                for column in SUMMED:
                    counts[column] += row[column]
                self.newest[row["task"]] = {column: row[column] for column in NEWEST}
                began_us = row["time_us"] - row["interval_us"]
                self.began_us = began_us if self.began_us is None else min(self.began_us, began_us)
                self.ended_us = max(self.ended_us, row["time_us"])
            elif name == "edges":
                counts = self.edges.setdefault((row["source"], row["target"]), {"tuples": 0, "bytes": 0})
                counts["tuples"] += row["tuples"]
                counts["bytes"] += row["bytes"]
            elif name == "links":
                counts = self.links.setdefault((row["worker"], row["peer"]), dict.fromkeys(LINK_SUMMED, 0))
                for column in LINK_SUMMED:
                    counts[column] += row[column]
                self.transports[row["worker"], row["peer"]] = row["transport"]
            elif name == "latency":
                self.latency.setdefault(row["task"], Counter())[row["latency_us"]] += row["batches"]

    def profile(self) -> Profile:
        """The same sums as `profile_builder` asks Spark SQL for, over the same log."""
        seconds = max(1, self.ended_us - (self.began_us or 0)) / 1e6
        loads = {
            task: TaskProfile(counts["cpu_us"] / max(1, counts["interval_us"]))
            for task, counts in sorted(self.tasks.items())
        }
        edges = tuple(
            EdgeProfile(source, target, counts["bytes"] / seconds, counts["tuples"] / seconds)
            for (source, target), counts in sorted(self.edges.items())
        )
        return Profile(loads, edges)


class MetricLog:
    """Takes batches from any thread. Without a folder only the latest rows and the sums are kept."""

    def __init__(self, job: str, folder: str | Path | None = None) -> None:
        self._job, self._folder = job, None if folder is None else Path(folder)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._files = 0
        self._flush_at = time.monotonic() + FLUSH_SECONDS
        self._unwritten: Exception | None = None
        self._latest: dict[tuple[str, int], pa.RecordBatch] = {}
        self._sums = Sums()
        if self._folder is not None:
            for name in TABLES:
                (self._folder / name).mkdir(parents=True, exist_ok=True)

    def take(self, worker: int, name: str, batch: pa.RecordBatch) -> None:
        """Rows from a worker; KeyError or ValueError for what is no table of the log."""
        batch = batch.cast(TABLES[name])
        with self._lock:
            self._latest[name, worker] = batch
            self._sums.add(name, batch)
            if self._folder is None:
                return
            self._waiting[name].append(batch)
            if time.monotonic() >= self._flush_at or len(self._waiting[name]) * 100 > FLUSH_ROWS:
                self._try_to_flush()

    def latest(self, name: str) -> pa.Table:
        """The newest rows of every worker."""
        if name not in TABLES:
            msg = f"metric table {name!r} is asked for; there are {', '.join(TABLES)}"
            raise InvalidInput(msg)
        with self._lock:
            batches = [batch for (table, _), batch in sorted(self._latest.items()) if table == name]
        return pa.Table.from_batches(batches, TABLES[name])

    def sums(self) -> Sums:
        """Everything added up since the start; a copy."""
        with self._lock:
            return copy.deepcopy(self._sums)

    def totals(self) -> dict[str, dict[str, int]]:
        """CPU, tuples and bytes of each task since the start."""
        with self._lock:
            return {task: dict(counts) for task, counts in self._sums.tasks.items()}

    def latency_us(self, fraction: float) -> int:
        """End-to-end latency of batches, as a percentile since the start; 0 before the first one arrives."""
        with self._lock:
            together: Counter[int] = Counter()
            for histogram in self._sums.latency.values():
                together.update(histogram)
        return percentile(list(together.items()), fraction)

    def close(self) -> None:
        """Write what waits; raises what kept the log from being written, now or before."""
        with self._lock:
            if self._unwritten is not None:
                raise self._unwritten
            self._flush()

    def _try_to_flush(self) -> None:
        """Write what waits; a log that cannot be written ends here, and not the job: `close` will tell."""
        try:
            self._flush()
        except (OSError, pa.ArrowException) as error:
            self._unwritten, self._folder = error, None
            for batches in self._waiting.values():
                batches.clear()

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


def require_log_folder(folder: str | Path) -> None:
    """Refuse what is not there, or is no metric log."""
    missing = f"there is no folder {folder}" if not Path(folder).is_dir() else f"{folder} has no folder 'tasks'"
    if not (Path(folder) / "tasks").is_dir():
        msg = f"{folder} is no metric log: {missing}; give the folder that penstock run --metrics wrote"
        raise InvalidInput(msg)


def read_metric_table(folder: str | Path, name: str) -> list[dict[str, object]]:
    """Every row of one table of a log that was written to a folder; none when nothing was ever said in it."""
    import pyarrow.parquet as pq

    require_log_folder(folder)
    rows: list[dict[str, object]] = []
    for path in sorted((Path(folder) / name).glob("[!.]*.parquet")):
        rows += pq.read_table(path, schema=TABLES[name]).to_pylist()
    return rows
