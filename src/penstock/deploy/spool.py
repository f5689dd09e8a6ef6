"""Rows of collecting sinks on their way to a DataFrame: one Arrow file per sink in a private folder of the driver.

The driver's memory stays bounded however much comes; reading maps the file. The folder is removed when
its results have been handed over, when the job fails, or when the process ends.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.deploy.private_folder import PrivateFolder


class ResultSpool:
    """Takes batches from any thread; gives each sink's rows as one table."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.schemas = dict(schemas)
        self._folder = PrivateFolder("results")
        self._writers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.rows = dict.fromkeys(self.schemas, 0)

    def take(self, sink: str, batch: pa.RecordBatch) -> None:
        """Append rows; KeyError for a sink that the job does not have."""
        schema = self.schemas[sink]
        with self._lock:
            if not self._folder.alive:
                return  # the job has been cancelled meanwhile
            if sink not in self._writers:
                self._writers[sink] = pa.ipc.new_stream(str(self._path(sink)), schema)
            self._writers[sink].write_table(pa.Table.from_batches([batch]).cast(schema))
            self.rows[sink] += batch.num_rows

    def table(self, sink: str) -> pa.Table:
        """All rows of a sink, mapped from the file; no more rows are taken."""
        with self._lock:
            if sink not in self._writers:
                return self.schemas[sink].empty_table()
            self._writers[sink].close()
            return pa.ipc.open_stream(pa.memory_map(str(self._path(sink)))).read_all()

    def remove(self) -> None:
        """Delete everything."""
        with self._lock:
            for writer in self._writers.values():
                writer.close()
            self._folder.remove()

    def _path(self, sink: str) -> Path:
        return self._folder.path / f"{list(self.schemas).index(sink)}.arrow"
