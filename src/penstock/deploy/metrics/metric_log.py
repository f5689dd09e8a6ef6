"""The metric log: rows of `run.meters.TABLES` as Parquet files, a folder for each table.

Rows are buffered and written as whole files, first under a hidden name, so that a reader such as Spark SQL does not
meet half a file while the job runs (`test_a_full_disk_stops_the_log_and_leaves_no_half_file`). The latest rows of each
worker and the sums since the start stay in memory, for `Job.metrics()`, `Job.profile()` and the page for Prometheus.
"""

from __future__ import annotations

import copy
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa

from penstock.deploy.metrics.logged_jobs import TOPOLOGY_KEY, UNKNOWN, choose_job, damaged, logged_jobs, table_files
from penstock.deploy.metrics.recent import Recent, Window
from penstock.deploy.metrics.sums import Sums
from penstock.errors import InvalidInput
from penstock.run.engine.meters import TABLES, percentile

FLUSH_SECONDS = 10.0
FLUSH_ROWS = 100_000


class MetricLog:
    """Takes batches from any thread. Without a folder only the latest rows and the sums are kept."""

    def __init__(self, job: str, folder: str | Path | None = None, topology: str = UNKNOWN) -> None:
        self._job, self._folder = job, None if folder is None else Path(folder)
        self._footer = {TOPOLOGY_KEY: topology}
        self._lock = threading.Lock()
        self._waiting: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        self._files = 0
        self._flush_at = time.monotonic() + FLUSH_SECONDS
        self._stopped: Exception | None = None  # why nothing is written any more
        self._unwritten = 0  # rows since then
        self._latest: dict[tuple[str, int], pa.RecordBatch] = {}
        self._heard_at: dict[int, float] = {}  # worker -> when it last said anything, on the monotonic clock
        self._sums = Sums()
        self._recent = Recent()
        self._anew: Sums | None = None  # since tasks are as many as they are, where they were others in number
        if self._folder is not None:
            make_folders(self._folder)

    def take(self, worker: int, name: str, batch: pa.RecordBatch) -> None:
        """Take rows from a worker; KeyError or ValueError where the log has no table of that name or schema."""
        batch = batch.cast(TABLES[name])
        with self._lock:
            self._latest[name, worker] = batch
            self._heard_at[worker] = time.monotonic()
            self._sums.add(name, batch)
            self._recent.add(name, batch)
            if self._anew is not None:
                self._anew.add(name, batch)
            if self._stopped is not None:
                self._unwritten += batch.num_rows
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

    def silent_s(self, worker: int, since: float) -> float:
        """Seconds since a worker's last rows, or since `since` (on the monotonic clock) where none came later."""
        with self._lock:
            return time.monotonic() - max(since, self._heard_at.get(worker, since))

    def sums(self) -> Sums:
        """Everything added up since the start; a copy."""
        with self._lock:
            return copy.deepcopy(self._sums)

    def begin_anew(self) -> None:
        """Tasks are others in number from now on, and share their work in another way."""
        with self._lock:
            self._anew = Sums()
            self._recent.forget()

    def let_go(self, workers: int) -> None:
        """Workers from this number on are gone: their latest rows say nothing of the job any more."""
        with self._lock:
            self._latest = {key: batch for key, batch in self._latest.items() if key[1] < workers}

    def measured(self) -> Sums:
        """Everything added up since tasks are as many as they are; a copy."""
        with self._lock:
            return copy.deepcopy(self._sums if self._anew is None else self._anew)

    def recent(self, window: Window) -> Sums:
        """The same of the intervals that ended within the last so many seconds."""
        with self._lock:
            return self._recent.sums(window, self._sums if self._anew is None else self._anew)

    def totals(self) -> dict[str, dict[str, int]]:
        """CPU, tuples and bytes of each task since the start."""
        with self._lock:
            return {task: dict(counts) for task, counts in self._sums.tasks.items()}

    def latency_us(self, fraction: float, window: Window | None = None) -> int:
        """End-to-end latency of rows, a percentile since the start or of a window; 0 before the first ones arrive."""
        with self._lock:
            if window is not None:
                together = self._recent.latency(window)
            else:
                together = sum(self._sums.latency.values(), Counter[int]())
        return percentile(list(together.items()), fraction)

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            self._try_to_flush()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing in the folder, if anything; the sums in memory are complete all the same."""
        if self._stopped is None:
            return ()
        rows = "1 row of it was" if self._unwritten == 1 else f"{self._unwritten:,} rows of it were"
        return (f"metric log stopped: {self._stopped}; {rows} not written",)

    def _try_to_flush(self) -> None:
        """Write the buffered rows; where that fails, the log ends and the job goes on."""
        try:
            self._flush()
        except (OSError, pa.ArrowException) as error:
            self._stopped, self._folder = error, None
            self._unwritten += sum(batch.num_rows for batches in self._waiting.values() for batch in batches)
            self._waiting.clear()

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        self._flush_at = time.monotonic() + FLUSH_SECONDS
        if self._folder is None:
            return
        for name, batches in self._waiting.items():
            if batches:
                target = self._folder / name / f"{self._job}-{self._files:05d}.parquet"
                hidden = target.with_name(f".{target.name}.writing")
                try:
                    table = pa.Table.from_batches(batches, TABLES[name]).replace_schema_metadata(self._footer)
                    pq.write_table(table, hidden)
                    hidden.replace(target)
                except BaseException:
                    hidden.unlink(missing_ok=True)  # free its space: the disk may be full
                    raise
                batches.clear()
        self._files += 1


def make_folders(folder: Path) -> None:
    """Make a folder for each table; InvalidInput, before a job begins, where files cannot be written there."""
    try:
        for name in TABLES:
            (folder / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder / name):
                pass
    except OSError as error:
        msg = f"metrics cannot be written to {str(folder)!r}: {error.strerror or error}; give a folder that is yours"
        raise InvalidInput(msg) from None


def require_log_folder(folder: str | Path) -> None:
    """Raise InvalidInput for a folder that does not exist or holds no metric log."""
    missing = f"there is no folder {folder}" if not Path(folder).is_dir() else f"{folder} has no folder 'tasks'"
    if not (Path(folder) / "tasks").is_dir():
        msg = f"{folder} is no metric log: {missing}; give the folder that penstock run --metrics wrote"
        raise InvalidInput(msg)


def read_metric_table(folder: str | Path, name: str, job: str | None = None) -> list[dict[str, object]]:
    """Every row of one table of a folder's log, of one job or of all jobs; empty where the log has no rows of it."""
    import pyarrow.parquet as pq

    require_log_folder(folder)
    rows: list[dict[str, object]] = []
    for path in table_files(folder, name, job):
        try:
            rows += pq.read_table(path, schema=TABLES[name]).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise damaged(path, error) from None
    return rows


def read_job_table(
    folder: str | Path, name: str, job: str | None = None, topology: str | None = None
) -> tuple[list[dict[str, object]], str]:
    """The rows of one job, the latest unless one is named, and a note on the choice."""
    require_log_folder(folder)
    jobs = logged_jobs(folder, name)
    if not jobs:
        return [], ""
    chosen, note = choose_job(folder, jobs, job, topology)
    return read_metric_table(folder, name, chosen.id), note
