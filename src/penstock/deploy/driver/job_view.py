"""What a job looks like when its name stands alone in a notebook's cell or at a prompt. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.deploy.driver.job import Job

ERROR_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at a glance."""

    name: str
    id: str
    status: str
    workers: int
    tasks: int
    rows_read: int  # by sources, as far as workers have reported
    bounded: bool
    keeps_rows: bool  # whether there is a result to ask for
    error: str = ""

    @classmethod
    def of(cls, job: Job, bounded: bool, keeps_rows: bool) -> JobView:
        """A job as it is now."""
        places, error = job.worker_of, "" if job.error is None else str(job.error)
        workers = len(set(places.values()))
        return cls(job.name, job.id, job.status, workers, len(places), job.rows_read, bounded, keeps_rows, error)

    @property
    def figures(self) -> str:
        """How large it is and how far it has come."""
        return f"{_counted(self.workers, 'worker')}, {_counted(self.tasks, 'task')}, {self.rows_read:,} rows read"

    @property
    def hint(self) -> str:
        """What to do next."""
        if self.error:
            return self.error.partition("\n")[0][:ERROR_CHARACTERS_MAX]
        if self.status == "finished":
            return "job.result has its rows" if self.keeps_rows else "its sinks have its rows"
        if self.status == "stopping":
            return "it ends when all that was read has flowed out; job.cancel() ends it at once"
        end = "job.result waits for its end" if self.bounded else "job.stop() drains it"
        return f"{end}, job.cancel() ends it"

    def text(self) -> str:
        """One line."""
        return f"Job({self.name!r}, id={self.id!r}, {self.status}: {self.figures}; {self.hint})"

    def html(self) -> str:
        """A table of two columns."""
        rows = (("status", self.status), ("size", self.figures), ("id", self.id), ("next", self.hint))
        cells = "".join(
            f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in rows
        )
        return f"<table><caption>Job {escape(self.name)}</caption>{cells}</table>"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
