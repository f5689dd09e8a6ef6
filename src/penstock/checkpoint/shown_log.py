"""The log by which Spark knows which files of a folder count: `_spark_metadata`, as its streaming file sink keeps it.

Where the log is there, `spark.read.parquet(folder)` reads the files that it names and no others. A batch of it is one
file: batch n appears whole, so a reader sees all of its files or none. Some batches repeat what those before them say
(`9.compact`), and reading begins at the last of these: every tenth at first, later fewer, so that about 17 lines are
written for each that is new (`test_the_work_of_the_log_grows_with_what_is_shown`). So the log can be written anew in
one step as well: as the next such batch, whatever the number of the last one was. Batches that no reader begins at any
more are removed, one round late, because a reader may be under way.
Format: FileStreamSinkLog, CompactibleFileStreamLog of Spark 4; `tests/spark/test_published_rows.py` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from pyarrow import fs

from penstock.errors import InvalidInput
from penstock.run.operators.sinks.folder import Folder

NAME = "_spark_metadata"
VERSION = "v1"
COMPACT = ".compact"
INTERVAL = 10  # batches from one that repeats all to the next, at first; Spark's default, and told by names of files
GROWS_AT = 20  # of them: then the interval doubles, so that it is a twentieth to a tenth of all batches
INTERVAL_MAX = 640  # files that a reader opens behind the last batch that repeats all
BEGUN = "_begun_by_penstock"  # a file without which the log is another writer's; Spark passes over it
BLOCK_BYTES = 32 << 20  # what Spark says of local files
WRITERS_MAX = 100  # others that may write a batch of the same number in between


class Layout(NamedTuple):
    """What the names in a log say. Pure."""

    latest: int  # -1: nothing has been written yet
    interval: int
    compacts: tuple[int, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Layout:
        """As Spark derives it from the names of the files."""
        compacts = sorted(int(n.removesuffix(COMPACT)) for n in names if n.endswith(COMPACT) and _is_batch(n))
        latest = max((int(n.removesuffix(COMPACT)) for n in names if _is_batch(n)), default=-1)
        if len(compacts) > 1:
            interval = compacts[-1] - compacts[-2]
        elif compacts:
            interval = _derived(compacts[-1] + 1)
        else:
            interval = INTERVAL
        return cls(latest, interval, tuple(compacts))

    def repeats_all(self, batch: int) -> bool:
        """Whether a batch of this number says everything."""
        return (batch + 1) % self.interval == 0

    def name(self, batch: int) -> str:
        """The file of a batch."""
        return f"{batch}{COMPACT}" if self.repeats_all(batch) else str(batch)

    def read(self) -> list[str]:
        """The files that together say everything."""
        first = max(0, (self.latest + 1) // self.interval * self.interval - 1)
        return [self.name(batch) for batch in range(first, self.latest + 1)]

    def next_whole(self) -> int:
        """The number of the next batch that repeats all.

        Readers take the distance of the last two for the interval, and an interval has to divide the count of batches
        up to each; so it doubles where that count is even, and numbers are left out.
        """
        so_far = (self.latest + 1) // self.interval  # of this interval, and nearly as many batches that repeat all
        last = so_far * self.interval - 1
        can_grow = so_far % 2 == 0 and last in self.compacts and 2 * self.interval <= INTERVAL_MAX
        return last + self.interval * (2 if can_grow and so_far >= GROWS_AT else 1)


def _is_batch(name: str) -> bool:
    number = name.removesuffix(COMPACT)
    return number.isascii() and number.isdigit()


def _derived(count: int) -> int:
    """The interval where one batch that repeats all is there, the `count`th (CompactibleFileStreamLog)."""
    if count // 2 > INTERVAL:
        return next((n for n in range(INTERVAL, count // 2 + 1) if count % n == 0), count)
    return count


def file_of(entry: str) -> str:
    """The name of the file that a line of the log shows, without its folder."""
    return unquote(str(json.loads(entry)["path"]).rpartition("/")[2])


def _text(entries: Iterable[str]) -> bytes:
    return "\n".join((VERSION, *entries)).encode()


def _is_folder(folder: Folder) -> bool:
    return bool(folder.filesystem.get_file_info(folder.path).type == fs.FileType.Directory)


class ShownLog:
    """The log of one folder; its entries are lines of JSON, of which this knows the path."""

    def __init__(self, folder: Folder) -> None:
        self._shown, self._folder = folder, folder.inner(NAME)
        self._known = -1  # the last batch of which it is known what it says

    @property
    def is_there(self) -> bool:
        """Whether readers go by it."""
        return self._layout().latest >= 0

    @property
    def is_ours(self) -> bool:
        """Whether it was begun by this class, and not by a streaming query."""
        return self._folder.file(BEGUN) is not None

    def begin(self, entries: Sequence[str]) -> None:
        """Have readers go by the log, which shows these files from the start; on a local disk this is one step.

        A log without a batch would hide every file (`test_whatever_dies_between_two_steps_readers_see_whole_epochs`).
        """
        aside = self._shown.inner(f"{NAME}.begun")
        at_once = self._folder.is_local and not _is_folder(self._folder)
        log = aside if at_once else self._folder
        log.make()
        if log.file(BEGUN) is None:
            log.write(BEGUN, b"")
        log.write("0", _text(entries))
        if at_once:
            self._folder.filesystem.move(log.path, self._folder.path)
            self._shown.sync()

    def entry(self, info: fs.FileInfo) -> str:
        """The line of a file in the folder, or further down."""
        name = info.path.removeprefix(self._shown.path).lstrip("/")
        known = {
            "path": self._shown.hadoop_uri(name),
            "size": info.size,
            "isDir": False,
            "modificationTime": (info.mtime_ns or 0) // 1_000_000,
            "blockReplication": 1,
            "blockSize": BLOCK_BYTES,
            "action": "add",
        }
        return json.dumps(known, separators=(",", ":"))

    def entries(self) -> list[str]:
        """Every line that counts."""
        return self._said(self._layout())

    def add(self, entries: Sequence[str]) -> None:
        """Show more files, all at once; those that somebody else has shown meanwhile are shown already."""
        for _ in range(WRITERS_MAX):
            layout = self._layout()
            if layout.latest != self._known:
                shown = {file_of(line) for line in self._said(layout)}
                entries = [line for line in entries if file_of(line) not in shown]
            if not entries:
                return
            batch = layout.latest + 1
            try:
                if layout.repeats_all(batch):
                    batch = layout.next_whole()
                    self._write(layout.name(batch), [*self._said(layout), *entries])
                    self._forget()
                else:
                    self._write(layout.name(batch), entries)
            except FileExistsError:
                continue  # another writer was faster
            self._known = batch
            return
        msg = f"{self._folder.given} is written by too many others at once; give each job a folder of its own"
        raise InvalidInput(msg)

    def replace(self, entries: Sequence[str]) -> None:
        """Show these files and no others, all at once."""
        layout = self._layout()
        self._write(layout.name(layout.next_whole()), entries)
        self._forget()

    def remove(self) -> None:
        """Have readers see every file of the folder again; on a local disk, where this is one step."""
        away = f"{self._folder.path}.done"
        self.sweep()
        self._folder.filesystem.move(self._folder.path, away)
        self._shown.sync()
        self._folder.filesystem.delete_dir(away)

    def settle(self) -> None:
        """Have its batches last, whoever wrote them: a process may have died between a batch's name and its sync."""
        if _is_folder(self._folder):
            self._folder.sync()

    def sweep(self) -> None:
        """Remove what an interrupted `begin` or `remove` has left."""
        for left in (self._shown.inner(f"{NAME}.begun"), self._shown.inner(f"{NAME}.done")):
            if _is_folder(left):
                left.filesystem.delete_dir(left.path)

    def _layout(self) -> Layout:
        return Layout.of(self._folder.names())

    def _said(self, layout: Layout) -> list[str]:
        lines = [line for name in layout.read() for line in self._lines(name)]
        self._known = layout.latest
        return lines

    def _lines(self, name: str) -> list[str]:
        try:
            version, *lines = self._folder.read(name).decode().split("\n")
        except (FileNotFoundError, ValueError) as error:
            raise self._unsound(name, str(error)) from error
        if version != VERSION:
            raise self._unsound(name, f"its version is {version[:20]!r} and not {VERSION!r}")
        return [line for line in lines if line]

    def _unsound(self, name: str, why: str) -> InvalidInput:
        return InvalidInput(
            f"{self._folder.named(name)} cannot be read: {why}; by these files Spark knows what is in "
            f"{self._shown.given}: restore them, or write into another folder"
        )

    def _write(self, name: str, entries: Sequence[str]) -> None:
        self._folder.write(name, _text(entries))

    def _forget(self) -> None:
        """Remove what is said again by the last but one of the batches that repeat all."""
        names = self._folder.names()
        for kept in Layout.of(names).compacts[-2:-1]:
            for name in names:
                if _is_batch(name) and int(name.removesuffix(COMPACT)) < kept:
                    self._folder.remove(name)
