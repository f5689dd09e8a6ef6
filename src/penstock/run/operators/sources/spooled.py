"""The rows of a Spark DataFrame: handed in by Spark as they come, or written down before and read from files.

Rows that Spark hands in come once. Under checkpoints a source has to read on from a position, also after Spark would
have made the rows anew in another order. So the driver has Spark write them to files first, and tells workers of the
files through the settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.run.columns.unwritten import State
from penstock.run.contract import Outputs, Owns, Polled, SourceTask, TaskContext
from penstock.run.operators.sources.files import FilesSource
from penstock.run.operators.sources.generated import HandedSource, PositionedSource

SETTING_SPOOLED = "spooled"  # operator name -> files with the rows of its DataFrame, as `SummedFile`


class DataFrameSource(SourceTask):
    """One task of a DataFrame's reader; which way its rows come is known when it is opened."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._reader: PositionedSource | None = None

    def open(self, context: TaskContext) -> None:
        """Nothing is read before the first poll."""
        super().open(context)
        spooled = context.settings.get(SETTING_SPOOLED)
        files = spooled.get(context.operator) if isinstance(spooled, Mapping) else None
        self._reader = HandedSource(self._schema) if files is None else FilesSource(files, "parquet", self._schema)
        self._reader.open(context)

    @property
    def reader(self) -> PositionedSource:
        """What reads, once the task is open."""
        if self._reader is None:
            msg = "the task is not open"
            raise AssertionError(msg)
        return self._reader

    def tells_time(self, column: str) -> bool:
        """Once it is open: files know what is still to come, rows that Spark hands in do not."""
        return self._reader is not None and self._reader.tells_time(column)

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """The next batch."""
        return self.reader.poll(now_us, out)

    def stop(self) -> None:
        """The next poll answers ENDED."""
        self.reader.stop()

    def close(self) -> None:
        """Close what is open."""
        if self._reader is not None:
            self._reader.close()

    def take_state(self) -> Mapping[str, State]:
        """The reader's position."""
        return self.reader.take_state()

    def put_state(self, state: Mapping[str, bytes]) -> None:
        """Read on from there."""
        self.reader.put_state(state)

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Share out anew what is left to read."""
        self.reader.put_states(states, owns)
