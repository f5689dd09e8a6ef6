"""Rows of a sink under checkpoints: one file for each task and each epoch that has rows, hidden until its commit.

At a marker the file is handed over as it is, and the next row begins another. Encoding the last rows, closing and
syncing take long, so they are done by `finish`, in the thread that keeps epochs, while the worker's loop goes on
(`test_a_file_that_is_handed_over_is_finished_by_another_thread`). A finished file has the sum of its bytes in its name,
which it keeps when it is shown: the manifest that names it goes with its epoch, and the file stays. Not on object
stores, where renaming is copying, and which check what they keep themselves.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from penstock.run.contract import SETTING_ATTEMPT, SETTING_EPOCH, SETTING_STORE, Staged, TaskContext
from penstock.run.engine.user_errors import SinkFailed
from penstock.run.operators.sinks.folder import STREAM_BYTES, Folder
from penstock.run.operators.sinks.row_groups import RowGroups
from penstock.run.operators.summed import Summed, sum_of

ARROW = "arrow"
PARQUET = "parquet"
NO_STORE = "0" * 16  # the token where nobody has told one; no publication shows such files
_NUMBERS = r"([0-9a-f]{16})-(\d+)-(\d+)(?:-([0-9a-f]{8}))?"  # store, attempt, epoch, sum


class PartName(NamedTuple):
    """What a part's name tells: whose rows it has, the epoch that they belong to, and the sum of its bytes."""

    task: int
    sink: str
    store: str  # its token
    attempt: int
    epoch: int
    kind: str
    sum: str = ""  # none while it is written, and on object stores

    def __str__(self) -> str:
        numbers = f"{self.store}-{self.attempt}-{self.epoch:08d}{self.sum and f'-{self.sum}'}"
        return f"part-{self.task:05d}-{self.sink}-{numbers}.{self.kind}"

    @classmethod
    def read(cls, name: str, sink: str | None = None) -> PartName | None:
        """What a file's name tells; None where it is no part of this sink, or of any."""
        whose = ".+" if sink is None else re.escape(sink)
        found = re.fullmatch(rf"part-(\d+)-({whose})-{_NUMBERS}\.({PARQUET}|{ARROW})", name)
        if found is None:
            return None
        return cls(int(found[1]), found[2], found[3], int(found[4]), int(found[5]), found[7], found[6] or "")

    def is_whole(self, folder: Folder) -> bool:
        """Whether the file of this name is as it was written; all of it is read."""
        if not self.sum:
            return True
        with folder.filesystem.open_input_stream(folder.at(str(self)), compression=None) as file:
            return f"{sum_of(file):08x}" == self.sum

    def fault(self, folder: Folder) -> str | None:
        """What is wrong with the file of this name."""
        path = folder.named(str(self))
        try:
            return None if self.is_whole(folder) else f"{path} does not match its checksum"
        except (OSError, pa.ArrowException) as error:
            return f"{path} cannot be read: {error}"


class _File(Protocol):
    """A file that grows by batches."""

    @property
    def sum(self) -> int: ...
    def add(self, batch: pa.RecordBatch) -> None: ...
    def finish(self) -> None: ...
    def abandon(self) -> None: ...


class EpochFiles:
    """The files of one task of one sink."""

    def __init__(self, folder: Folder, context: TaskContext, schema: pa.Schema, kind: str, **options: object) -> None:
        settings = context.settings
        store, attempt = str(settings.get(SETTING_STORE, NO_STORE)), int(str(settings.get(SETTING_ATTEMPT, 1)))
        epoch = int(str(settings[SETTING_EPOCH]))
        self._folder, self._schema, self._options = folder, schema, options
        self._part = PartName(context.index, context.operator, store, attempt, epoch, kind)
        self._file: _File | None = None
        self._rows = 0
        self.begun = False  # whether there has been any file
        folder.make()

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows to the file of the epoch under way."""
        self.begin()
        self._file.add(batch)  # type: ignore[union-attr] # it has begun
        self._rows += batch.num_rows

    def begin(self) -> None:
        """Have a file for the epoch under way, even if no row comes."""
        if self._file is None:
            self._file, self.begun = self._made(), True

    def stage(self, epoch: int) -> tuple[Unfinished, ...]:
        """Hand over the file of the epoch that ends here."""
        file, part, rows = self._file, self._part, self._rows
        self._file, self._rows, self._part = None, 0, part._replace(epoch=epoch + 1)
        return () if file is None else (Unfinished(self._folder, part, file, rows),)

    def close(self) -> None:
        """Remove what was not handed over."""
        if self._file is not None:
            self._file.abandon()
            self._file = None

    def _made(self) -> _File:
        filesystem, path = self._folder.filesystem, self._folder.at(str(self._part))
        if self._part.kind == ARROW:
            return ArrowRows(filesystem, path, self._schema)
        return RowGroups(path, self._schema, filesystem, **self._options)


class Unfinished:
    """A file that was handed over at a marker, and that nobody else touches any more."""

    def __init__(self, folder: Folder, part: PartName, file: _File, rows: int) -> None:
        self._folder, self._part, self._file, self._rows = folder, part, file, rows
        self._staged: Staged | None = None

    def finish(self) -> Staged:
        """Close the file; it lasts when this returns. Asked again, it answers the same."""
        if self._staged is None:
            try:
                self._file.finish()
                name = self._summed()
                size = self._folder.lasting(name)
            except Exception as error:
                raise SinkFailed(self._part.sink, error) from error
            self._staged = Staged(self._part.sink, self._folder.named(name), self._rows, size)
        return self._staged

    def _summed(self) -> str:
        """The name that the file has now."""
        name = str(self._part)
        if self._folder.puts_whole:
            return name
        summed = str(self._part._replace(sum=f"{self._file.sum:08x}"))
        self._folder.move(name, self._folder, summed)
        return summed


class ArrowRows:
    """A file of Arrow's stream format, for rows that Parquet does not keep as they are."""

    def __init__(self, filesystem: Any, path: str, schema: pa.Schema) -> None:  # noqa: ANN401 # of pyarrow.fs
        self._filesystem, self._path = filesystem, path
        self._stream = Summed(filesystem.open_output_stream(path, compression=None, buffer_size=STREAM_BYTES))
        self._writer = pa.ipc.new_stream(self._stream, schema)

    @property
    def sum(self) -> int:
        """Of the file's bytes."""
        return self._stream.sum

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self._writer.write_batch(batch)

    def finish(self) -> None:
        """Make the file whole."""
        self._writer.close()
        self._stream.close()

    def abandon(self) -> None:
        """Close and remove the file."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()
        with contextlib.suppress(FileNotFoundError):  # a later attempt has removed it
            self._filesystem.delete_file(self._path)
