"""A Parquet file that grows by whole row groups, whatever the size of the batches that come.

A row group carries its own statistics and pages: one for each small batch of a stream would make files of headers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.run.operators.summed import Summed

GROUP_ROWS = 128 * 1024
GROUP_BYTES = 32 << 20


class RowGroups:
    """Keeps rows until they make a row group, then appends it to the file, which the first group makes."""

    def __init__(
        self,
        path: Path | str,
        schema: pa.Schema,
        filesystem: fs.FileSystem | None = None,
        **options: Any,  # noqa: ANN401 # those of ParquetWriter
    ) -> None:
        self.path, self.schema, self._options = str(path), schema, options
        self._filesystem = filesystem or fs.LocalFileSystem()
        self._writer: Any = None
        self._bytes: Summed | None = None  # the file, once there is one
        self._group: Any = None  # rows on their way to a row group, as Arrow bytes
        self._rows = 0

    @property
    def begun(self) -> bool:
        """Whether there are rows, in the file or on their way to it."""
        return self._writer is not None or self._group is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows; they are copied, for a batch may lie in memory that its sender wants back."""
        if self._group is None:
            self._group = pa.BufferOutputStream()
            self._stream = pa.ipc.new_stream(self._group, self.schema)
        self._stream.write_batch(batch)
        self._rows += batch.num_rows
        if self._rows >= GROUP_ROWS or self._group.tell() >= GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        """Write what is left and close the file; without rows it is a file with a schema."""
        if self._group is not None or self._writer is None:
            self._write_group()
        self._close()

    @property
    def sum(self) -> int:
        """Of the file's bytes."""
        return 0 if self._bytes is None else self._bytes.sum

    def abandon(self) -> None:
        """Close and remove the file."""
        if self._writer is not None:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._close()
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(self.path)

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        try:
            writer.close()
        finally:
            if self._bytes is not None:
                self._bytes.close()

    def _write_group(self) -> None:
        if self._writer is None:
            import pyarrow.parquet as pq

            self._bytes = Summed(self._filesystem.open_output_stream(self.path, compression=None))
            self._writer = pq.ParquetWriter(self._bytes, self.schema, **self._options)
        if self._group is not None:
            self._stream.close()
            rows = pa.ipc.open_stream(self._group.getvalue()).read_all()
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._group, self._rows = None, 0
