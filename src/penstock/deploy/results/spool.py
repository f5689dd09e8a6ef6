"""Rows of collecting sinks that come over the control line: one Arrow file per sink in a private folder of the driver.

So the driver's memory stays bounded; reading maps the file. The files are removed when their rows have been handed
over, when the job fails, or when the process ends (`test_rows_come_back_and_nothing_stays`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.deploy.session.private_folder import PrivateFolder


class ResultSpool:
    """Takes batches from any thread; gives each sink's rows as one table."""

    def __init__(self, folder: PrivateFolder, schemas: Mapping[str, pa.Schema]) -> None:
        self.schemas = dict(schemas)
        self._folder = folder
        self._open = True
        self._writers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.rows = dict.fromkeys(self.schemas, 0)

    def take(self, sink: str, batch: pa.RecordBatch) -> None:
        """Append rows; KeyError for a sink that the job does not have."""
        schema = self.schemas[sink]
        with self._lock:
            if not self._open:
                return  # the job has been cancelled meanwhile
            if sink not in self._writers:
                self._writers[sink] = pa.ipc.new_stream(str(self._path(sink)), schema)
            self._writers[sink].write_table(pa.Table.from_batches([batch]).cast(schema))
            self.rows[sink] += batch.num_rows

    def finish(self) -> None:
        """Take no more rows; OSError where the last rows find no room on the disk."""
        with self._lock:
            self._open = False
            for writer in self._writers.values():
                writer.close()

    def table(self, sink: str) -> pa.Table:
        """All rows of a sink, mapped from the file, once it is finished."""
        with self._lock:
            if sink not in self._writers:
                return self.schemas[sink].empty_table()
            return pa.ipc.open_stream(pa.memory_map(str(self._path(sink)))).read_all()

    def remove(self) -> None:
        """Delete everything, also when the disk is full."""
        with self._lock:
            self._open = False
            for sink, writer in self._writers.items():
                with contextlib.suppress(OSError, pa.ArrowException):
                    writer.close()
                self._path(sink).unlink(missing_ok=True)
            self._writers.clear()  # this also drops files that could not be closed

    def _path(self, sink: str) -> Path:
        return self._folder.path / f"{list(self.schemas).index(sink)}.arrow"
