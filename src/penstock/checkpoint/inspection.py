"""What people ask of a store: which epochs and savepoints it has, what each holds, and whether they are sound.

Nothing here changes a store but `save_last`. A store is looked at while a job writes to it, so an epoch that is removed
in between is told as damaged; asking again tells what is there then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import fs

from penstock.checkpoint import manifests
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.input_files import listed
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, Staged
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.engine.snapshots import ENGINE
from penstock.run.operators.sinks.folder import Folder, short_name
from penstock.run.operators.sinks.staged import PartName
from penstock.run.operators.sources.positions import position

NEVER_YET, THE_END = "none yet", "the end"
SAVES_MAX = 5  # epochs that may be removed before they are kept


@dataclass(frozen=True, slots=True)
class Kept:
    """An epoch or a savepoint, as far as its manifest tells."""

    epoch: int | None  # None: a savepoint whose manifest cannot be read
    name: str | None  # of a savepoint
    manifest: Manifest | None
    fault: str = ""  # why there is no manifest

    def __str__(self) -> str:
        if self.name is None:
            return f"epoch {self.epoch}"
        return f"savepoint {self.name!r}" + ("" if self.epoch is None else f" of epoch {self.epoch}")

    @property
    def size(self) -> int:
        """Bytes of states."""
        return 0 if self.manifest is None else sum(part.size for part in self.manifest.parts)

    @property
    def written(self) -> str:
        """When, in UTC."""
        return "-" if self.manifest is None else _moment(self.manifest.written_us)


@dataclass(frozen=True, slots=True)
class Operator:
    """The tasks of one operator at an epoch."""

    name: str
    tasks: int
    finished: int
    size: int  # bytes of states, as tasks have them
    event_time: str | None  # how far the slowest has come; None: there is none
    positions: Mapping[str, str]  # of a source's tasks, in words


@dataclass(frozen=True, slots=True)
class Content:
    """Everything that an epoch holds."""

    kept: Kept
    operators: tuple[Operator, ...]
    staged: tuple[Staged, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What is wrong with everything that is kept, and from where the job would go on."""

    kept: list[tuple[Kept, list[str]]] = field(default_factory=list)
    used: int | None = None
    rows: list[str] = field(default_factory=list)  # faults of files of rows: collected, staged, of DataFrames
    job: str | None = None  # what is wrong with job.json
    words: list[str] = field(default_factory=list)  # faults of other files: shapes, claims of attempts
    stopped: str = ""  # what has to be done before the job starts; empty: nothing

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do but to give the answer."""
        return any(kept.manifest is not None and kept.manifest.is_last for kept, _ in self.kept if self._uses(kept))

    def _uses(self, kept: Kept) -> bool:
        return kept.name is None and kept.epoch == self.used

    @property
    def damaged(self) -> list[tuple[str, str]]:
        """What is not sound, with its first fault."""
        found = [(str(kept), faults[0]) for kept, faults in self.kept if faults]
        found += [("a file of rows", fault) for fault in self.rows]
        found += [("a file beside the epochs", fault) for fault in self.words]
        return found if self.job is None else [*found, ("job.json", self.job)]

    def document(self) -> dict[str, object]:
        """As JSON has it."""
        rows = [{"epoch": kept.epoch, "name": kept.name, "faults": faults} for kept, faults in self.kept]
        beside = {"job": self.job, "words": self.words, "rows": self.rows}
        return {"kept": rows, **beside, "used": self.used, "over": self.is_over, "sound": not self.damaged}


def opened(folder: str) -> Store:
    """The store in a folder; InvalidInput where a job has never begun one there."""
    store = Store(folder)
    if whose(store) is None:
        wanted = "give the folder that `penstock run --checkpoint` or checkpoint=... was given"
        msg = f"{store.shown} {_lacking(store.root)}; {wanted}"
        raise InvalidInput(msg)
    return store


def whose(store: Store) -> str | None:
    """The topology whose checkpoints these are; where job.json is damaged, as far as an epoch tells."""
    try:
        return store.topology()
    except CheckpointDamaged:
        return next((manifest.topology for manifest in [*store.epochs(), *store.savepoints()]), "a topology unknown")


def _lacking(root: str) -> str:
    """Why there are no checkpoints; of a URI it is not asked whether there is a folder: most stores have none."""
    if "://" not in root and not os.path.exists(root):
        return "does not exist"
    if "://" not in root and not os.path.isdir(root):
        return "is a file"
    return "has no checkpoints: there is no job.json in it"


def list_kept(store: Store) -> list[Kept]:
    """All epochs in order, and then all savepoints by name."""
    return [_epoch(store, epoch) for epoch in store.numbers()] + [_saved(store, n) for n in store.savepoint_names()]


def find(store: Store, which: str | None) -> Kept:
    """The epoch or savepoint that a user names, or the last epoch."""
    epochs, names = store.numbers(), store.savepoint_names()
    if which is None and not epochs:
        msg = f"{store.shown} has no epoch yet; wait until the job has committed one"
        raise InvalidInput(msg)
    if which in names:
        return _required(store, _saved(store, which))
    number = epochs[-1] if which is None else int(which) if which.isascii() and which.isdigit() else -1
    if number not in epochs:
        known = f"epochs {', '.join(map(str, epochs)) or 'none'}, savepoints {', '.join(names) or 'none'}"
        msg = f"{store.shown} has no epoch or savepoint {which!r}; it has {known}"
        raise InvalidInput(msg)
    return _required(store, _epoch(store, number))


def content_of(store: Store, kept: Kept) -> Content:
    """What an epoch holds; its parts are read one after the other."""
    manifest = kept.manifest
    if manifest is None:
        return Content(kept, (), ())
    tasks: dict[str, dict[str, TaskSnapshot]] = {name: {} for name in manifest.tasks}
    sizes = dict.fromkeys(tasks, 0)
    for part in manifest.parts:
        for snapshot in store.read_part(part):
            operator = snapshot.task.rpartition("/")[0]
            tasks.setdefault(operator, {})[snapshot.task] = snapshot
            sizes[operator] = sizes.get(operator, 0) + sum(map(len, _in_bytes(snapshot).values()))
    operators = [_operator(name, found, sizes[name]) for name, found in tasks.items()]
    return Content(kept, tuple(operators), manifest.staged)


def verified(store: Store) -> Report:
    """Read everything that is kept."""
    store.require_none_lost()  # there would be nothing to find a fault in
    found = [(kept, _faults(store, kept)) for kept in list_kept(store)]
    sound = [kept for kept, faults in found if kept.name is None and not faults]
    rows = [*_input_faults(store), *_row_faults(store)]
    words = [f"{damaged.path}: {damaged.fault}" for damaged in store.record.faults()]
    used = sound[-1] if sound else None
    stopped = "" if used is None else _stopped(store, used.manifest)
    return Report(found, None if used is None else used.epoch, rows, _job_fault(store), words, stopped)


def _job_fault(store: Store) -> str | None:
    try:
        store.token()
    except CheckpointDamaged as damaged:
        return f"{damaged.path}: {damaged.fault}"
    return None


def _stopped(store: Store, last: Manifest | None) -> str:
    """What has to be done before the job goes on from a sound epoch: the shape of its topology cannot be read."""
    try:
        for manifest in () if last is None else (last, replace(last, attempt=manifests.ATTEMPT_MAX)):
            store.record.shape_of(manifest)  # a start compares with the first and writes behind the second
    except CheckpointDamaged as damaged:
        return damaged.advice
    return ""


def save_last(store: Store, name: str) -> int:
    """Keep the last sound epoch under a name; its number. While all of it is read, a job that runs may remove it."""
    for _ in range(SAVES_MAX):
        last = store.latest()
        if last is None:
            msg = f"{store.shown} has no epoch yet that could be kept as {name!r}; wait until the job has committed one"
            raise InvalidInput(msg)
        try:
            store.savepoint(name, last)
        except CheckpointDamaged:
            if last.epoch in store.numbers():
                raise
        else:
            return last.epoch
    msg = f"epochs in {store.shown} go faster than one can be read; have the job keep one itself, by job.savepoint"
    raise InvalidInput(msg)


def next_step(folder: str) -> str:
    """What starting the job again does, for the user of one that was interrupted."""
    last = Store(folder).epochs()[-1:]
    if not last:
        return "run the same command to begin again: there was no epoch yet"
    if last[0].is_last:
        return "the job is over; run the same command to see its answer"
    return f"run the same command to go on from epoch {last[0].epoch}"


def _epoch(store: Store, epoch: int) -> Kept:
    try:
        return Kept(epoch, None, store.manifest(epoch))
    except CheckpointDamaged as damaged:
        return Kept(epoch, None, None, f"{damaged.path}: {damaged.fault}")


def _saved(store: Store, name: str) -> Kept:
    try:
        manifest = store.saved(name)
    except CheckpointDamaged as damaged:
        return Kept(None, name, None, f"{damaged.path}: {damaged.fault}")
    return Kept(manifest.epoch, name, manifest)


def _required(store: Store, kept: Kept) -> Kept:
    if kept.manifest is None:
        raise CheckpointDamaged(store.shown, f"{kept} cannot be read: {kept.fault}")
    return kept


def _faults(store: Store, kept: Kept) -> list[str]:
    if kept.manifest is None:
        return [kept.fault]
    faults = store.verify(kept.manifest)
    return faults or _undecoded(store, kept.manifest)


def _undecoded(store: Store, manifest: Manifest) -> list[str]:
    """A file may be as it was written, and still be one that this version does not read."""
    faults = []
    for part in manifest.parts:
        try:
            store.read_part(part)
        except CheckpointDamaged as damaged:
            faults.append(f"{damaged.path}: {damaged.fault}")
    return faults


def _row_faults(store: Store) -> Iterator[str]:
    """What is wrong with files of sinks in the store. One that is moved while it is looked at is not there any more."""
    results = Folder(store.results())
    selector = fs.FileSelector(results.path, allow_not_found=True)
    shown = [info.base_name for info in results.filesystem.get_file_info(selector)]
    for folder in (Folder(store.staging()), *(results.inner(name) for name in shown)):
        for name in folder.names():
            part = PartName.read(name)
            fault = None if part is None else part.fault(folder)
            if fault is not None and folder.file(name) is not None:
                yield fault
    newest = next(reversed(store.epochs()), None)
    for sink, count in ({} if newest is None or not newest.is_last else newest.shown).items():
        if (name := f"sink-{short_name(sink)}") in shown:  # else its rows lie in a folder of its user's
            there = sum(PartName.read(part, sink) is not None for part in results.inner(name).names())
            if there != count:
                yield f"{results.named(name)} has {there} of {count} files of collected rows"


def _input_faults(store: Store) -> Iterator[str]:
    """What is wrong with the rows of DataFrames, which are files of paths alone."""
    folder = Path(store.inputs())
    for each in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            for file in listed(str(each)) or ():
                yield from file.faults()
        except CheckpointDamaged as damaged:
            yield f"{damaged.path}: {damaged.fault}"


def _in_bytes(snapshot: TaskSnapshot) -> dict[str, bytes]:
    """A state as it was read."""
    return {name: data for name, data in snapshot.state.items() if isinstance(data, bytes)}


def _operator(name: str, found: Mapping[str, TaskSnapshot], size: int) -> Operator:
    ordered = sorted(found.items(), key=lambda item: int(item[0].rpartition("/")[2]))
    told = {task: position(_in_bytes(snapshot), finished=snapshot.finished) for task, snapshot in ordered}
    times = [_out_us(snapshot) for _, snapshot in ordered]
    known = [END_OF_TIME_US if time is None else time for time in times]
    has_time = any(time is not None and time > BEFORE_TIME_US for time in times)
    return Operator(
        name,
        len(found),
        sum(snapshot.finished for _, snapshot in ordered),
        size,
        _event_time(min(known)) if has_time else None,
        {task: words for task, words in told.items() if words is not None},
    )


def _out_us(snapshot: TaskSnapshot) -> int | None:
    """How far a task has said that event time has come; None: it has finished."""
    engine = _in_bytes(snapshot).get(ENGINE)
    return None if engine is None else int(json.loads(engine)["out"][0])


def _event_time(time_us: int) -> str:
    if time_us >= END_OF_TIME_US:
        return THE_END
    return NEVER_YET if time_us <= BEFORE_TIME_US else _moment(time_us)


def _moment(time_us: int) -> str:
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_us:,} us"
