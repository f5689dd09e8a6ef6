"""The jobs whose metrics one folder holds: a file's name begins with its job, and its footer has the topology.

Sums over two jobs would be wrong: rates would count the time between them, and tasks of two topologies may share names.
So one job is read, the latest of its topology unless the caller names another. Where the folder holds several
topologies, the caller must name one. Rejected: a column for the job in every table, the same in every row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput

TOPOLOGY_KEY = b"penstock.topology"
UNKNOWN = "unknown"  # a log from before footers named it
SHOWN_MAX = 8
WHY_CHARACTERS_MAX = 200
_FILE = re.compile(r"(.+)-\d+\.parquet")


@dataclass(frozen=True, slots=True)
class LoggedJob:
    """One job in a log."""

    id: str
    topology: str
    written_at: float  # seconds since 1970, of its last file

    def __str__(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.written_at))
        return f"{self.id} ({self.topology}, {when})"


def table_files(folder: str | Path, table: str, job: str | None = None) -> list[Path]:
    """The files of one table, of one job or of all."""
    found = sorted((Path(folder) / table).glob("[!.]*.parquet"))
    return [path for path in found if job is None or _job_of(path) == job]


def logged_jobs(folder: str | Path, table: str = "tasks") -> list[LoggedJob]:
    """Every job that wrote a table of a log, the latest last; InvalidInput where a file is damaged."""
    newest: dict[str, Path] = {}
    for path in table_files(folder, table):
        newest[_job_of(path)] = path  # names are numbered, so the last is the newest
    jobs = [LoggedJob(job, topology_of(path), path.stat().st_mtime) for job, path in newest.items()]
    return sorted(jobs, key=lambda job: (job.written_at, job.id))


def topology_of(path: Path) -> str:
    """The topology that a file of the log is about."""
    return ((require_whole(path).metadata or {}).get(TOPOLOGY_KEY) or UNKNOWN.encode()).decode(errors="replace")


def require_whole(path: Path) -> pa.Schema:
    """The schema of a file; InvalidInput where its footer cannot be read."""
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None


def damaged(path: str | Path, error: Exception) -> InvalidInput:
    """The error about an unreadable file or folder of the log, in one line."""
    why = " ".join(str(error).split())[:WHY_CHARACTERS_MAX]
    return InvalidInput(f"the metric log is damaged: {path} cannot be read ({why}); remove it, or log the job again")


def choose_job(
    folder: str | Path, jobs: Sequence[LoggedJob], job: str | None = None, topology: str | None = None
) -> tuple[LoggedJob, str]:
    """The job to look at, and a note where there were others to choose from; `jobs` has the latest last."""
    if not jobs:
        msg = f"{folder} is no metric log: it holds no job yet; give what --metrics wrote"
        raise InvalidInput(msg)
    fit = [found for found in jobs if job in {None, found.id} and topology in {None, found.topology}]
    if not fit:
        asked = " and ".join(f"{what} {name!r}" for what, name in (("job", job), ("topology", topology)) if name)
        msg = f"{folder} has no {asked}; it holds {_listed(jobs)}"
        raise InvalidInput(msg)
    if len(names := sorted({found.topology for found in fit})) > 1:
        msg = f"{folder} holds jobs of several topologies, {', '.join(names)}; say which with --topology or --job"
        raise InvalidInput(msg)
    note = f"the latest of {len(fit)} jobs: {fit[-1]}; --job takes another" if len(fit) > 1 else ""
    return fit[-1], note


def _listed(jobs: Sequence[LoggedJob]) -> str:
    more = f" and {len(jobs) - SHOWN_MAX} more" if len(jobs) > SHOWN_MAX else ""
    return ", ".join(str(found) for found in jobs[-SHOWN_MAX:]) + more


def _job_of(path: Path) -> str:
    found = _FILE.fullmatch(path.name)
    return path.stem if found is None else found[1]
