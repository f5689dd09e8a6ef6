"""Sinks: rows for the driver, Parquet files, nothing. Under checkpoints they stage files for each epoch (`staged.py`).

Elsewhere Parquet parts are written under a hidden name and renamed when the task finishes, so a reader never sees half
a file. Of a job that fails the driver removes all parts, where it sees the folder
(`test_a_job_that_fails_leaves_no_part_of_its_files`). Names hold the job's own token: a job that is run again under the
same token replaces its parts instead of doubling them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run.contract import SETTING_EPOCH, SETTING_STAGING, Outputs, Staging, Task, TaskContext
from penstock.run.operators.sinks.folder import STAGING, Folder
from penstock.run.operators.sinks.positional import OPTIONS, fits_parquet, fitted, positional
from penstock.run.operators.sinks.row_groups import RowGroups
from penstock.run.operators.sinks.staged import ARROW, PARQUET, EpochFiles
from penstock.run.operators.sinks.uris import shown

SETTING_DELIVER = "deliver"  # callable(operator name, batch): takes the rows of `collect` sinks
SETTING_JOB = "job"  # text: the job's token, part of file names
DEFAULT_JOB = "local"

Deliver = Callable[[str, pa.RecordBatch], None]


class Collect(Task):
    """Hands batches to the deployment, which makes a DataFrame of them; under checkpoints it stages files."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._staged: EpochFiles | None = None

    def open(self, context: TaskContext) -> None:
        """Find the callable that takes the rows, or the folder."""
        super().open(context)
        if SETTING_STAGING in context.settings:
            fits = fits_parquet(self.schema)
            self._kept = positional(self.schema) if fits else self.schema
            folder = Folder(str(context.settings[SETTING_STAGING]))
            self._staged = EpochFiles(folder, context, self._kept, PARQUET if fits else ARROW, **OPTIONS)
            return
        deliver = context.settings.get(SETTING_DELIVER)
        if not callable(deliver):
            msg = f"sink {context.operator!r} collects rows but nobody takes them; settings have no {SETTING_DELIVER!r}"
            raise InvalidInput(msg)
        self.deliver: Deliver = deliver

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Hand over."""
        if self._staged is not None:
            self._staged.add(fitted(batch, self._kept))
        else:
            self.deliver(self.context.operator, batch)

    def stage(self, epoch: int) -> Sequence[Staging]:
        """The rows since the last marker."""
        return () if self._staged is None else self._staged.stage(epoch)

    def close(self) -> None:
        """Remove what no epoch has."""
        if self._staged is not None:
            self._staged.close()


class Parquet(Task):
    """One part file for each task, however long the stream; rows wait in memory until they make a row group.

    Under checkpoints it is one for each task and epoch, below the folder until its epoch is published.
    """

    def __init__(self, path: str, schema: pa.Schema, compression: str = "zstd") -> None:
        self.path = path
        self.schema = schema
        self.compression = compression
        self._rows: RowGroups | None = None
        self._staged: EpochFiles | None = None

    def open(self, context: TaskContext) -> None:
        """Make the folder; the file comes with the first row."""
        super().open(context)
        if SETTING_EPOCH in context.settings:
            folder = Folder(self.path).inner(STAGING)
            self._staged = EpochFiles(folder, context, self.schema, PARQUET, compression=self.compression)
            return
        if "://" in self.path:
            msg = (
                f"sink {context.operator!r} writes into {shown(self.path)}, which is no path; that needs a job with "
                "checkpoint=..., or a folder that is mounted on every worker"
            )
            raise InvalidInput(msg)
        parts = Path(self.path)
        parts.mkdir(parents=True, exist_ok=True)
        job = context.settings.get(SETTING_JOB, DEFAULT_JOB)
        self.part = parts / f"part-{context.index:05d}-{context.operator}-{job}.parquet"
        self.hidden = parts / f".{self.part.name}.writing"
        self._rows = RowGroups(self.hidden, self.schema, compression=self.compression)

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Append to the hidden file."""
        if self._staged is not None:
            self._staged.add(batch)
        elif self._rows is not None:
            self._rows.add(batch)

    def stage(self, epoch: int) -> Sequence[Staging]:
        """The rows since the last marker."""
        return () if self._staged is None else self._staged.stage(epoch)

    def finish(self, out: Outputs) -> None:
        """Give the file its name; the first task writes one even without rows, so that the result has a schema."""
        if self._staged is not None:
            if not self._staged.begun and self.context.index == 0:
                self._staged.begin()
        elif self._rows is not None and (self._rows.begun or self.context.index == 0):
            self._rows.finish()
            self.hidden.replace(self.part)

    def close(self) -> None:
        """Remove what was not finished."""
        if self._staged is not None:
            self._staged.close()
        if self._rows is not None:
            self._rows.abandon()
            self._rows = None


class Discard(Task):
    """Takes rows and forgets them."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Forget."""
