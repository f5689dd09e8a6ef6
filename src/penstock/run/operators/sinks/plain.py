"""Sinks: rows for the driver, Parquet files, a user's function, nothing.

Parquet parts are written under a hidden name and renamed when the task finishes, so a reader never sees half a file.
Of a job that fails the driver removes all parts, where it sees the folder
(`test_a_job_that_fails_leaves_no_part_of_its_files`). Names hold the job's own token: a job that is run again under the
same token replaces its parts instead of doubling them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.columns import kernels
from penstock.run.contract import Outputs, Task, TaskContext
from penstock.run.operators.sinks.row_groups import RowGroups

SETTING_DELIVER = "deliver"  # callable(operator name, batch): takes the rows of `collect` sinks
SETTING_JOB = "job"  # text: the job's token, part of file names
DEFAULT_JOB = "local"

Deliver = Callable[[str, pa.RecordBatch], None]


class Collect(Task):
    """Hands batches to the deployment, which makes a DataFrame of them."""

    def open(self, context: TaskContext) -> None:
        """Find the callable that takes the rows."""
        super().open(context)
        deliver = context.settings.get(SETTING_DELIVER)
        if not callable(deliver):
            msg = f"sink {context.operator!r} collects rows but nobody takes them; settings have no {SETTING_DELIVER!r}"
            raise InvalidInput(msg)
        self.deliver: Deliver = deliver

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Hand over."""
        self.deliver(self.context.operator, batch)


class Parquet(Task):
    """One part file for each task, however long the stream; rows wait in memory until they make a row group."""

    def __init__(self, path: str, schema: pa.Schema, compression: str = "zstd") -> None:
        self.path = path
        self.schema = schema
        self.compression = compression
        self._rows: RowGroups | None = None

    def open(self, context: TaskContext) -> None:
        """Make the folder; the file comes with the first row."""
        super().open(context)
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        job = context.settings.get(SETTING_JOB, DEFAULT_JOB)
        self.part = folder / f"part-{context.index:05d}-{context.operator}-{job}.parquet"
        self.hidden = folder / f".{self.part.name}.writing"
        self._rows = RowGroups(self.hidden, self.schema, compression=self.compression)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Append to the hidden file."""
        if self._rows is not None:
            self._rows.add(batch)

    def finish(self, out: Outputs) -> None:
        """Give the file its name; the first task writes one even without rows, so that the result has a schema."""
        if self._rows is not None and (self._rows.begun or self.context.index == 0):
            self._rows.finish()
            self.hidden.replace(self.part)

    def close(self) -> None:
        """Remove what was not finished."""
        if self._rows is not None:
            self._rows.abandon()
            self._rows = None


class BatchCallback(Task):
    """Calls a function with every batch."""

    def __init__(self, function: Callable[[pa.RecordBatch], object]) -> None:
        self.function = function

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Call."""
        self.function(batch)


class RowCallback(Task):
    """Calls a function with every row."""

    def __init__(self, function: Callable[[kernels.Row], object]) -> None:
        self.function = function

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Call for each row; what it returns does not matter."""
        kernels.filter_rows(self.function, batch)


class Discard(Task):
    """Takes rows and forgets them."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Forget."""
