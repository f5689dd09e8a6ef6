"""What somebody sees who looks at the files of a simulated job at any moment, and what has to hold then.

It goes by the disk alone. A reader of the sink's folder sees the rows of all epochs up to one, whole, each file once;
no epoch that is not committed; and none fewer than before. A manifest goes only when enough later ones are there, and a
part only when no manifest and no savepoint names it. What has been committed is there after any crash, unless its files
were damaged.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn
from urllib.parse import unquote

import pyarrow as pa

from penstock.checkpoint import manifests
from penstock.checkpoint.contract import Branch, Manifest
from penstock.checkpoint.files import BEFORE, UNFINISHED
from penstock.checkpoint.shown_log import NAME, Layout
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged
from penstock.run.endpoints import SinkFacts
from penstock.run.operators.sinks.staged import PartName
from penstock_lab.simulate.disk import Disk
from penstock_lab.simulate.system import BUCKET

SINK = "out"


class Reader:
    """The disk of one simulation, looked at from outside."""

    def __init__(
        self,
        disk: Disk,
        store: str,
        sink: SinkFacts,
        kept: int,
        fail: Callable[[str], NoReturn],
        goes_back: Callable[[Branch], bool],
    ) -> None:
        """`goes_back`: whether somebody wants the job to begin there, at a savepoint."""
        self._disk, self._store, self._kept, self._fail = disk, store, kept, fail
        self.folder = None if sink.folder is None else "/" + sink.folder.removeprefix(BUCKET).lstrip("/")
        self._manifests: dict[str, Manifest] = {}  # those on the disk that can be read, by path
        self._names: dict[int, frozenset[str]] = {}  # of the files that each epoch shows
        self._seen = 0  # the last epoch that a reader has seen since power was lost
        self.known = 0  # the last that a reader has ever seen
        self._firm = 0  # the last epoch that is there to stay
        self._goes_back = goes_back
        self._back_to: int | None = None  # the epoch to which the job goes back, until the next one is committed
        self.damaged: set[str] = set()
        self.doubtful: set[str] = set()  # files that were put, which who has put them was not told

    def shows(self, path: str) -> bool:
        """Whether readers of rows may see this file."""
        return self.folder is not None and path.startswith(self.folder)

    # -- what is told --------------------------------------------------------------------------------------------------

    def changed(self, what: str, path: str) -> None:
        """Something on the disk is otherwise."""
        if path.startswith((f"{self._store}/manifests/", f"{self._store}/savepoints/")):
            self._may_count(what, path)
        elif what == "remove" and path.endswith(".part"):
            self._part_removed(path.removeprefix(f"{self._store}/"))
        elif self.shows(path):
            self.look()

    def _may_count(self, what: str, path: str) -> None:
        """What was there before a replacement counts until that is removed."""
        name = path.removesuffix(BEFORE)
        is_done = what == "remove" and (name == path or self._disk.find(name) is None)
        if name.endswith(".json") and self._disk.find(f"{name}{BEFORE}") is None:
            self._manifest_changed("remove" if is_done else "put" if name != path else what, name)

    def _manifest_changed(self, what: str, path: str) -> None:
        if what == "remove":
            gone = self._manifests.pop(path, None)
            if gone is not None and "/manifests/" in path and path in self.doubtful:  # taken back at once
                self.doubtful.discard(path)
                self._names.pop(gone.epoch, None)
                self._firm = min(self._firm, max(self.epochs(), default=0))
            elif gone is not None and "/manifests/" in path:
                later = [epoch for epoch in self.epochs() if epoch > gone.epoch]
                if len(later) < self._kept and self._is_sound(gone) and not self._is_left(gone):
                    self._fail(
                        f"the manifest of epoch {gone.epoch} is removed, and only {later} of {self._kept} are left"
                    )
        elif what in {"link", "rename", "put"}:
            is_known = path in self._manifests
            manifest = self._read(path)
            if manifest is None or "/manifests/" not in path:
                return
            branch = manifest.line[-1] if manifest.line else None
            if branch is not None and branch.epoch == manifest.epoch and self._goes_back(branch):
                self._back_to = epoch = manifest.epoch  # until sinks have taken back what is behind it readers see that
                self._seen, self.known, self._firm = (min(at, epoch) for at in (self._seen, self.known, self._firm))
                self._names[epoch] = frozenset(_shown(manifest))
            elif not is_known:  # else it says anew where the job has gone back to: readers see what they saw before
                there = self.epochs()
                self._names = {e: names for e, names in self._names.items() if e < manifest.epoch or e in there}
                self._names[manifest.epoch] = frozenset(_shown(manifest))
                self._firm, self._back_to = manifest.epoch, None

    def _is_left(self, gone: Manifest) -> bool:
        """Whether the job has left the history of an epoch, or is about to."""
        there = [manifest for path, manifest in self._manifests.items() if "/manifests/" in path]
        last = max(there, key=lambda manifest: manifest.epoch, default=None)
        is_behind = self._back_to is not None and gone.epoch > self._back_to
        return is_behind or (last is not None and not gone.leads_to(last))

    def _part_removed(self, path: str) -> None:
        for by, manifest in self._manifests.items():
            if any(part.path == path for part in manifest.parts):
                self._fail(f"{path} is removed, which {by} names")

    def power_lost(self) -> None:
        """The disk is as chance has left it."""
        self._manifests = {}
        for folder in ("manifests", "savepoints"):
            for path, _ in self._disk.files(f"{self._store}/{folder}"):
                if path.endswith(".json"):
                    self._read(path)
        self._firm = min(self._firm, max(self.epochs(), default=0))
        names = [name for name in self._disk.names(f"{self._store}/manifests") if name.endswith(".json")]
        there = max((int(name.removesuffix(".json")) for name in names), default=0)  # damaged ones as well
        if self._back_to is None:  # else rows are still there that belong to epochs which are gone
            self._names = {epoch: files for epoch, files in self._names.items() if epoch <= there}
        self._seen = 0  # a name that was not yet synced comes back when the job goes on
        self.look()

    def damage(self, path: str, data: bytearray) -> None:
        """Somebody has overwritten a file."""
        node = self._disk.at(path)
        node.data, node.synced = data, bytes(data)
        self.damaged.add(path)
        self._manifests.pop(path, None)
        self._firm = self.sound()
        self._seen, self.known = min(self._seen, self._firm), min(self.known, self._firm)

    def damage_any(self, rng: random.Random) -> str | None:
        """Cut or overwrite a file of the last epochs, which no savepoint needs; tell which, and where."""
        needed = {f"{self._store}/{part.path}" for manifest in self.savepoints().values() for part in manifest.parts}
        paths = [path for folder in ("manifests", "parts") for path, _ in self._disk.files(f"{self._store}/{folder}")]
        paths = [path for path in paths if self._disk.find(f"{path.removesuffix(BEFORE)}{BEFORE}") is None]
        # A name that is not there yet may be another name of a manifest, whose damage would go unnoticed here.
        paths = [path for path in paths if path not in needed and not path.endswith(UNFINISHED)]
        if not paths:
            return None
        path = rng.choice(paths)
        data = bytearray(self._disk.at(path).data)
        at = rng.randrange(len(data)) if data else 0
        if rng.random() < 0.5 or not data:
            data = data[:at]
        else:
            data[at] ^= 1 << rng.randrange(8)
        self.damage(path, data)
        return f"{path} at byte {at}"

    def _read(self, path: str) -> Manifest | None:
        node = self._disk.find(path)
        if node is None:
            return None
        try:
            manifest = manifests.decode(bytes(node.data), path)
        except CheckpointDamaged:
            return None
        self.damaged.discard(path)
        self._manifests[path] = manifest
        return manifest

    # -- what is there -------------------------------------------------------------------------------------------------

    def epochs(self) -> list[int]:
        """Those whose manifests are there."""
        return sorted(manifest.epoch for path, manifest in self._manifests.items() if "/manifests/" in path)

    def sound(self) -> int:
        """The newest epoch that is there with all its parts; 0: none."""
        found = (m for path, m in self._manifests.items() if "/manifests/" in path and self._is_sound(m))
        return max((manifest.epoch for manifest in found), default=0)

    def _is_sound(self, manifest: Manifest) -> bool:
        paths = [f"{self._store}/{part.path}" for part in manifest.parts]
        return not self.damaged & {*paths} and all(self._disk.find(path) is not None for path in paths)

    def savepoints(self) -> dict[str, Manifest]:
        """Those that are there, by path."""
        return {path: manifest for path, manifest in self._manifests.items() if "/savepoints/" in path}

    # -- what a reader of the rows sees --------------------------------------------------------------------------------

    def shown(self) -> list[str]:
        """The files that a reader of the folder goes by; as Spark does, by the log where there is one."""
        names = self._disk.names(f"{self.folder}/{NAME}")
        layout = Layout.of(names)
        if layout.latest < 0:
            return [name for name in self._disk.names(str(self.folder)) if not name.startswith(("_", "."))]
        lines = [line for name in layout.read() for line in self._lines(name)]
        return [unquote(str(json.loads(line)["path"]).rpartition("/")[2]) for line in lines]

    def _lines(self, name: str) -> list[str]:
        data = bytes(self._disk.at(f"{self.folder}/{NAME}/{name}").data)
        return [line for line in data.decode().split("\n")[1:] if line]

    def look(self) -> None:
        """What is shown now is whole epochs, all that are committed or nearly all, each file once."""
        if self.folder is None:
            return
        shown = self.shown()
        if twice := [name for name, count in Counter(shown).items() if count > 1]:
            self._fail(f"a reader sees {twice} twice")
        by_epoch: dict[int, set[str]] = {}
        for name in shown:
            part = PartName.read(name, SINK)
            if part is None or self._disk.find(f"{self.folder}/{name}") is None:
                self._fail(f"a reader is told of {name}, which is not there")
            by_epoch.setdefault(part.epoch, set()).add(name)
        self._judge(by_epoch)

    def _judge(self, by_epoch: dict[int, set[str]]) -> None:
        last = max(by_epoch, default=0)
        if last > max(self._names, default=0):
            self._fail(f"a reader sees rows of epoch {last}, which is not committed")
        for epoch in range(1, last + 1):
            seen, due = by_epoch.get(epoch, set()), self._names.get(epoch, frozenset())
            if seen != due:
                self._fail(f"of epoch {epoch} a reader sees {sorted(seen)} and not {sorted(due)}")
        if any(self._names[epoch] - by_epoch.get(epoch, set()) for epoch in self._names if epoch <= self._seen):
            self._fail(f"a reader sees epochs up to {last}, and has seen {self._seen} before")
        self._seen = max(self._seen, min(last, self._firm))
        self.known = max(self.known, self._seen)

    def require_savepoints(self, store: Store) -> None:
        """All that are there are sound."""
        for path, manifest in self.savepoints().items():
            if faults := store.verify(manifest):
                self._fail(f"{path} is not sound: {faults}")

    def answers(self, collected: Mapping[str, Iterable[str]]) -> dict[str, list[pa.RecordBatch]]:
        """The rows of every sink: those that readers of its folder see, and those of these files."""
        paths = {name: [path.removeprefix(BUCKET) for path in found] for name, found in collected.items()}
        if self.folder is not None:
            paths[SINK] = [f"{self.folder}/{name}" for name in self.shown()]
        return {name: list(self.rows(found)) for name, found in paths.items()}

    def rows(self, paths: list[str]) -> Iterator[pa.RecordBatch]:
        """The rows of files."""
        for path in paths:
            yield from pa.ipc.open_stream(bytes(self._disk.at(path).data))


def _shown(manifest: Manifest) -> Iterator[str]:
    for staged in manifest.staged:
        part = PartName.read(staged.path.rpartition("/")[2], SINK)
        if staged.sink == SINK and part is not None:
            yield str(part._replace(epoch=manifest.epoch))
