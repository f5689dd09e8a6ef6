"""How sinks show the rows of committed epochs: files are moved out of a hidden folder, then named as one.

A staged part belongs to whoever reads its name: sink, store, attempt and epoch. It gets the number of the epoch that
commits it when it is moved, so what is shown of which epoch can be told from the folder alone, after any crash. Moving
is done again where it was done half; a file that is at its place already is left there. For Parquet folders the step
that counts is one entry of Spark's own log (`shown_log.py`). Collected rows have one reader, the driver, after the end.

The driver publishes an epoch before it commits the next one, and resumes before the tasks of an attempt begin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.checkpoint.contract import Manifest, Publication
from penstock.checkpoint.shown_log import ShownLog, file_of
from penstock.errors import JobFailed
from penstock.run.operators.sinks.folder import STAGING, Folder, store_token
from penstock.run.operators.sinks.staged import PARQUET, PartName

__all__ = ["CollectPublication", "ParquetPublication"]


class _Moved(Publication):
    """What both have in common: parts that wait in one folder and are moved into another."""

    def __init__(self, folder: Folder, waiting: Folder, sink: str, staging: str) -> None:
        self.folder, self._waiting = folder, waiting
        self._sink, self._store = sink, store_token(staging)
        self._shown_to: int | None = None  # the epoch up to which everything is shown; None: to be looked up
        self.changed = 0  # files that were moved or removed: who waits sees by it that this goes forward
        self.notes: tuple[str, ...] = ()  # what people should know of the folder

    def resume(self, committed: Manifest | None) -> None:
        """Show what this epoch and those before it hold, and nothing else of this job."""
        self._shown_to = None
        self._prepare()
        epoch = 0 if committed is None else committed.epoch
        self._withdraw(epoch)
        if committed is not None:
            self.publish(committed)
        self._clear()
        self._shown_to = epoch

    def publish(self, manifest: Manifest) -> None:
        """Show the rows of an epoch; one that is shown already stays as it is."""
        if self._shown_to is not None and manifest.epoch <= self._shown_to:
            return
        is_new, self._shown_to = self._shown_to is not None, None  # until all is done it has to be looked up
        self._show(self._parts(manifest), is_new=is_new)
        self._shown_to = manifest.epoch

    def finish(self) -> None:
        """The last epoch is shown: nothing waits any more."""
        self._clear()
        self._waiting.remove_if_empty()

    def _prepare(self) -> None:
        self.folder.make()
        self._waiting.make()

    def _withdraw(self, epoch: int) -> None:
        """Remove parts of later epochs from the folder, which an epoch that was lost afterwards had shown."""
        for name in self.folder.names():
            if self._is_void(name, epoch):
                self.folder.remove(name)
                self.changed += 1
        self.folder.sync()

    def _show(self, parts: dict[str, str], *, is_new: bool) -> None:
        self._move(parts)

    def _is_void(self, name: str, epoch: int) -> bool:
        part = PartName.read(name, self._sink)
        return part is not None and part.store == self._store and part.epoch > epoch

    def _parts(self, manifest: Manifest) -> dict[str, str]:
        """The sink's parts of an epoch: the name that each gets, and the name under which it waits."""
        found = {}
        for staged in manifest.staged:
            if staged.sink == self._sink:
                name = staged.path.rpartition("/")[2]
                part = PartName.read(name, self._sink)
                if part is None:
                    msg = f"epoch {manifest.epoch} names {staged.path}, which is no file of sink {self._sink!r}"
                    raise JobFailed(msg)
                found[str(part._replace(epoch=manifest.epoch))] = name
        return found

    def _move(self, parts: dict[str, str]) -> None:
        for shown, waiting in parts.items():
            if self._waiting.file(waiting) is not None:
                self._waiting.move(waiting, self.folder, shown)
                self.changed += 1
            elif self.folder.file(shown) is None:
                msg = (
                    f"sink {self._sink!r}: {self._waiting.named(waiting)} belongs to a committed epoch and is gone, so "
                    f"that its rows are missing in {self.folder.given}; remove the checkpoint to start from the "
                    "beginning"
                )
                raise JobFailed(msg)
        if parts:
            self.folder.sync()
            self._waiting.sync()

    def _clear(self) -> None:
        """Remove what waits: nobody will commit it."""
        for name in self._waiting.names():
            part = PartName.read(name, self._sink)
            if part is not None and part.store == self._store:
                self._waiting.remove(name)
                self.changed += 1


class ParquetPublication(_Moved):
    """A folder of Parquet files: `spark.read.parquet` sees whole epochs, at any time."""

    def __init__(self, folder: str | Folder, sink: str, staging: str) -> None:
        """`staging` is what tasks are told as SETTING_STAGING: it says whose job this is."""
        at = folder if isinstance(folder, Folder) else Folder(folder)
        super().__init__(at, at.inner(STAGING), sink, staging)
        self._log = ShownLog(at)

    def finish(self) -> None:
        """Nothing waits any more; on a local disk the folder is as any writer of Parquet leaves it."""
        super().finish()
        if self.folder.is_local and self._log.is_ours:
            self._log.remove()
        elif self._log.is_there:
            why = "removing it is not one step there" if self._log.is_ours else "a streaming query has begun it"
            self.notes = (
                f"{self.folder.given}: _spark_metadata stays, because {why}; spark.read.parquet sees what it lists, so "
                "files that others append to the folder are seen only with "
                "spark.sql.streaming.fileStreamSink.ignoreMetadata=true",
            )

    def _prepare(self) -> None:
        super()._prepare()
        if self.folder.is_local:
            self._log.sweep()
        if not self._log.is_there:  # files of the folder stay visible; those to come wait for their epoch
            self._log.begin([self._log.entry(info) for info in self.folder.visible()])

    def _withdraw(self, epoch: int) -> None:
        entries = self._log.entries()
        kept = [entry for entry in entries if not self._is_void(file_of(entry), epoch)]
        if len(kept) < len(entries):
            self._log.replace(kept)
        super()._withdraw(epoch)

    def _show(self, parts: dict[str, str], *, is_new: bool) -> None:
        if not parts:
            return
        if not self._log.is_there:  # another job has ended in this folder: without a log all files are seen
            self._prepare()
        if not is_new:
            shown = {file_of(entry) for entry in self._log.entries()}
            parts = {name: waiting for name, waiting in parts.items() if name not in shown}
        self._move(parts)
        infos = [info for name in parts if (info := self.folder.file(name)) is not None]
        if not self._log.is_there:  # it has ended meanwhile
            self._prepare()
        elif infos:
            self._log.add([self._log.entry(info) for info in infos])


class CollectPublication(_Moved):
    """Collected rows: a folder beneath `results` that has the parts of committed epochs."""

    def __init__(self, results: str | Folder, sink: str, staging: str) -> None:
        """`staging` is the folder where tasks leave their parts: SETTING_STAGING."""
        at = results if isinstance(results, Folder) else Folder(results)
        super().__init__(at.inner(f"sink-{store_token(sink)}"), Folder(staging), sink, staging)

    def files(self) -> list[str]:
        """The parts, by task and epoch: the order in which each task had its rows."""
        return [path for paths in self.by_task().values() for path in paths]

    def by_task(self) -> dict[int, list[str]]:
        """The parts of each task, in the order of its rows."""
        parts = [part for name in self.folder.names() if (part := PartName.read(name, self._sink)) is not None]
        found: dict[int, list[str]] = {}
        for part in sorted(parts, key=lambda part: (part.task, part.epoch)):
            found.setdefault(part.task, []).append(self.folder.named(str(part)))
        return found

    def batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of one Parquet part, bit by bit."""
        import pyarrow.parquet as pq

        with self.folder.filesystem.open_input_file(self.folder.at(path.rpartition("/")[2])) as file:
            yield from pq.ParquetFile(file).iter_batches()

    @property
    def is_parquet(self) -> bool:
        """Whether Spark can read the files; else they are Arrow streams."""
        return all(name.endswith(f".{PARQUET}") for name in self.folder.names())

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(info.size for info in self.folder.files())

    def table(self, schema: pa.Schema) -> pa.Table:
        """All rows, in the order in which each task had them, with the declared names and types."""
        import pyarrow.parquet as pq

        parts = []
        for path in self.files():
            with self.folder.filesystem.open_input_file(self.folder.at(path.rpartition("/")[2])) as file:
                parts.append(pq.read_table(file) if self.is_parquet else pa.ipc.open_stream(file).read_all())
        return pa.concat_tables(parts).rename_columns(schema.names).cast(schema) if parts else schema.empty_table()
