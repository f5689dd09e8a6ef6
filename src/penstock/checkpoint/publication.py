"""How sinks show the rows of committed epochs: files are moved out of a hidden folder, then named as one.

A staged part belongs to whoever reads its name: sink, store, attempt and epoch. It gets the number of the epoch that
commits it when it is moved, so what is shown of which epoch can be told from the folder alone, after any crash. Moving
is done again where it was done half; a file that is at its place already is left there. For Parquet folders the step
that counts is one entry of Spark's own log (`shown_log.py`). Collected rows have one reader, the driver, after the end.

Nobody commits an epoch before the one before it is shown. A driver shows what it has committed before it commits again,
and does so as the store's current attempt (`Store.held`); one that has taken over resumes first, from the last epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from penstock.checkpoint.contract import Manifest, Publication
from penstock.checkpoint.shown_log import ShownLog, file_of
from penstock.errors import CheckpointDamaged, InternalError, JobFailed, PenstockError
from penstock.run.operators.sinks.folder import STAGING, Folder, short_name
from penstock.run.operators.sinks.staged import PARQUET, PartName

__all__ = ["CollectPublication", "ParquetPublication"]

READERS_MAX = 8  # threads that compare files of a folder

BACK = "put it back from a copy, or begin anew in another checkpoint folder, with sinks that write into other folders"


class _Moved(Publication):
    """What both have in common: parts that wait in one folder and are moved into another."""

    def __init__(self, folder: Folder, waiting: Folder, sink: str, token: str) -> None:
        """`token` is the store's (`Store.token`): other jobs may show rows in the same folder."""
        self.folder, self._waiting = folder, waiting
        self._sink, self._store = sink, token
        self._shown_to: int | None = None  # the epoch up to which everything is shown; None: to be looked up
        self._compared: set[str] = set()  # files that wait, and were found to be as they were written
        self.changed = 0  # files that were read, moved or removed: who waits sees by it that this goes forward
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

    def compare(self, manifest: Manifest) -> None:
        """Read what waits for `publish` or `resume`, which then do not: they are called while others have to wait."""
        self._compared = set()
        if self._shown_to is None or manifest.epoch > self._shown_to:
            self._require_sound(self._parts(manifest), is_new=self._shown_to is not None)

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

    def require_whole(self) -> None:
        """CheckpointDamaged where what was shown is not there any more; collected rows are looked at when read."""

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
        """Move what waits to where it is read; `is_new`: nothing of the epoch can be there already."""
        self._move(parts)

    def _is_void(self, name: str, epoch: int) -> bool:
        part = PartName.read(name, self._sink)
        return part is not None and part.store == self._store and part.epoch > epoch

    def _parts(self, manifest: Manifest) -> dict[str, str]:
        """The sink's parts of an epoch: the name that each gets, and where it was left to wait."""
        found: dict[str, str] = {}
        of_task: dict[PartName, str] = {}
        for staged in manifest.staged:
            if staged.sink == self._sink:
                name = staged.path.rpartition("/")[2]
                part = PartName.read(name, self._sink)
                if part is None or part.store != self._store:
                    msg = f"epoch {manifest.epoch} names {staged.path}, which is no file of sink {self._sink!r}"
                    raise JobFailed(msg)
                part = part._replace(epoch=manifest.epoch)
                other = of_task.setdefault(part._replace(sum=""), name)
                if other != name:  # a task has one file in an epoch: which of the two is it?
                    msg = f"epoch {manifest.epoch} has two files of one task, {other} and {name}; please report this"
                    raise InternalError(msg)
                found[str(part)] = staged.path
        return found

    def _move(self, parts: dict[str, str]) -> None:
        for shown, left in parts.items():
            folder, _, waiting = left.rpartition("/")
            if self._waiting.file(waiting) is not None:
                self._waiting.move(waiting, self.folder, shown)
                self.changed += 1
            elif self.folder.file(shown) is None:
                raise self._missing(waiting, folder)
        if parts:
            self.folder.sync()
            self._waiting.sync()

    def _require_sound(self, parts: dict[str, str], *, is_new: bool) -> None:
        """All that waits is read once more before any of it is shown, or nobody would notice damage."""
        for left in parts.values():
            name = left.rpartition("/")[2]
            part = None if name in self._compared else PartName.read(name, self._sink)
            if part is not None and self._waiting.file(name) is not None:
                if not part.is_whole(self._waiting):  # a folder that does not answer now is no damage
                    raise CheckpointDamaged(self._waiting.named(name), "does not match its checksum", BACK)
                self._compared.add(name)
                self.changed += 1

    def _missing(self, name: str, written_to: str) -> PenstockError:
        """What to say where committed rows are not there; it is no advice that costs what is left."""
        gone = f"it belongs to a committed epoch and is gone, so that rows of sink {self._sink!r} are missing in"
        return CheckpointDamaged(self._waiting.named(name), f"{gone} {self.folder.given}", BACK)

    def _clear(self) -> None:
        """Remove what waits: nobody will commit it."""
        for name in self._own(self._waiting.names()):
            self._waiting.remove(name)
            self.changed += 1

    def _own(self, names: Iterable[str]) -> list[str]:
        """Those of this job's sink; other jobs write into the same folder, under the same names of sinks too."""
        found = [(name, PartName.read(name, self._sink)) for name in names]
        return [name for name, part in found if part is not None and part.store == self._store]


class ParquetPublication(_Moved):
    """A folder of Parquet files: `spark.read.parquet` sees whole epochs, at any time."""

    def __init__(self, folder: str | Folder, sink: str, token: str) -> None:
        """`token` is what tasks are told as SETTING_STORE: it says whose job this is."""
        at = folder if isinstance(folder, Folder) else Folder(folder)
        super().__init__(at, at.inner(STAGING), sink, token)
        self._log = ShownLog(at)

    @property
    def has_files(self) -> bool:
        """Whether rows of this sink lie in the folder. Another job may have a sink of the same name: its are none."""
        return bool(self._own(self.folder.names()))

    def require_shown(self, before: Iterable[Manifest]) -> None:
        """CheckpointDamaged where a file is gone that was shown, by the log or by these epochs; one look at the folder.

        A log may be gone for a good reason: another job that wrote here has ended
        (`test_a_shown_file_that_is_gone_is_named`).
        """
        shown = [file_of(entry) for entry in self._log.entries()] if self._log.is_there else []
        own = self._own(shown) + [name for manifest in before for name in self._parts(manifest)]
        there = set(self.folder.names())
        if gone := sorted({name for name in own if name not in there}):
            more = f", and {len(gone) - 1} more of its files" if len(gone) > 1 else ""
            raise CheckpointDamaged(
                self.folder.named(gone[0]),
                f"sink {self._sink!r} has shown its rows, and it is gone{more}",
                "put back what is gone, or begin anew in other folders",
            )

    def resume(self, committed: Manifest | None) -> None:
        """In another folder than the epoch's, nothing is begun before its files have come along."""
        parts = {} if committed is None else self._parts(committed)
        for shown, left in parts.items():
            folder, _, waiting = left.rpartition("/")
            is_here = folder == self._waiting.given or self._waiting.file(waiting) or self.folder.file(shown)
            if not is_here:
                raise self._missing(waiting, folder)
        super().resume(committed)

    def _missing(self, name: str, written_to: str) -> PenstockError:
        """The most likely reason comes first: the folder is another one than it was."""
        here, was = self.folder.given, written_to.removesuffix(f"/{STAGING}")
        if was == here:
            return super()._missing(name, written_to)
        return JobFailed(
            f"sink {self._sink!r} writes into {here}, and the rows that its job has committed were written into {was}: "
            f"{name} is not in {here}; copy all of {was} but its _spark_metadata to {here}, or have it write into "
            f"{was} again, unless another job goes on there"
        )

    def require_whole(self) -> None:
        """CheckpointDamaged where a file that the log lists is gone: before the end, which takes the log away."""
        self.require_shown(())

    def fault(self) -> tuple[str, str] | None:
        """A file of this job that is not as it was shown and what is wrong with it; what is gone is not looked for."""
        found = [(name, PartName.read(name, self._sink)) for name in self.folder.names()]
        own = [(name, part) for name, part in found if part is not None and part.store == self._store]
        with ThreadPoolExecutor(READERS_MAX) as readers:
            for (name, _), fault in zip(own, readers.map(lambda known: known[1].fault(self.folder), own), strict=True):
                if fault is not None:
                    path = self.folder.named(name)
                    return path, fault.removeprefix(f"{path} ")
        return None

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
            self._log.settle()
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
        self._require_sound(parts, is_new=is_new)  # readers of the folder compare nothing with its sum
        self._move(parts)
        infos = [info for name in parts if (info := self.folder.file(name)) is not None]
        if not self._log.is_there:  # it has ended meanwhile
            self._prepare()
        elif infos:
            self._log.add([self._log.entry(info) for info in infos])


class CollectPublication(_Moved):
    """Collected rows: a folder beneath `results` that has the parts of committed epochs."""

    def __init__(self, results: str | Folder, sink: str, staging: str, token: str) -> None:
        """`staging` is the folder where tasks leave their parts: SETTING_STAGING."""
        at = results if isinstance(results, Folder) else Folder(results)
        super().__init__(at.inner(f"sink-{short_name(sink)}"), Folder(staging), sink, token)
        self._expected: int | None = None  # files

    def publish(self, manifest: Manifest) -> None:
        """Show the rows of an epoch; how many files there are by then is known of it."""
        super().publish(manifest)
        self._expected = manifest.shown.get(self._sink)

    def _show(self, parts: dict[str, str], *, is_new: bool) -> None:
        self._require_sound(parts, is_new=is_new)
        self._move(parts)

    def _require_sound(self, parts: dict[str, str], *, is_new: bool) -> None:
        """Rows are compared when they are read, at the end; after a crash also now, so that damage is told early."""
        if not is_new:
            super()._require_sound(parts, is_new=is_new)

    def fault(self) -> tuple[str, str] | None:
        """A file that is not as it was written and what is wrong with it; or the folder, where files are gone."""
        found = [part for name in self.folder.names() if (part := PartName.read(name, self._sink)) is not None]
        for part in found:
            if (fault := part.fault(self.folder)) is not None:
                path = self.folder.named(str(part))
                return path, fault.removeprefix(f"{path} ")
        if self._expected is not None and len(found) != self._expected:
            return self.folder.given, f"it has {len(found)} of {self._expected} files of collected rows"
        return None

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
