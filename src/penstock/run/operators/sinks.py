"""Sinks: rows for the driver, Parquet files, a user's function, nothing.

Parquet parts are written under a hidden name and renamed when the task finishes, so a reader never sees half a file
and a job that fails leaves none behind. Names hold the job's own token: a job that is run again under the same token
replaces its parts instead of doubling them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.run import kernels
from penstock.run.contract import Outputs, Task, TaskContext

SETTING_DELIVER = "deliver"  # callable(operator name, batch): takes the rows of `collect` sinks
SETTING_JOB = "job"  # text: the job's token, part of file names
DEFAULT_JOB = "local"

# A row group carries its own statistics and pages: one for each small batch of a stream would make files of headers.
GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 << 20

MODES = ("error", "append", "overwrite")  # what to do about a folder that has files; see `deploy/folders.py`

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

    def __init__(self, path: str, schema: pa.Schema, compression: str = "zstd", mode: str = "append") -> None:
        self.path = path
        self.schema = schema
        self.compression = compression
        self.mode = mode  # for who prepares the folder; the task itself only adds its part
        self._writer: Any = None
        self._group: Any = None  # rows on their way to a row group, as Arrow bytes
        self._rows = 0

    def open(self, context: TaskContext) -> None:
        """Make the folder; the file comes with the first row."""
        super().open(context)
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True)
        job = context.settings.get(SETTING_JOB, DEFAULT_JOB)
        self.part = folder / f"part-{context.index:05d}-{context.operator}-{job}.parquet"
        self.hidden = folder / f".{self.part.name}.writing"

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Keep rows until they make a row group, then append it to the hidden file."""
        if self._group is None:
            self._group = pa.BufferOutputStream()
            self._stream = pa.ipc.new_stream(self._group, self.schema)
        # Rows are copied: a batch may lie in memory that its sender wants back.
        self._stream.write_batch(batch)
        self._rows += batch.num_rows
        if self._rows >= GROUP_ROWS or self._group.tell() >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        if self._writer is None:
            self._start()
        if self._group is not None:
            self._stream.close()
            rows = pa.ipc.open_stream(self._group.getvalue()).read_all()
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._group, self._rows = None, 0

    def _start(self) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(str(self.hidden), self.schema, compression=self.compression)

    def finish(self, out: Outputs) -> None:
        """Give the file its name; the first task writes one even without rows, so that the result has a schema."""
        if self._group is not None or self.context.index == 0:
            self._write_group()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self.hidden.replace(self.part)

    def close(self) -> None:
        """Remove what was not finished."""
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer = None
        if hasattr(self, "hidden"):
            self.hidden.unlink(missing_ok=True)


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
