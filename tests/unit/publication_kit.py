"""What tests of publication share: staged epochs, what a reader sees, and a process that dies between any two steps."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.checkpoint import files
from penstock.checkpoint.contract import Manifest
from penstock.flow.schema import parse_schema
from penstock.run.contract import SETTING_ATTEMPT, SETTING_EPOCH, SETTING_STORE, Staged, TaskContext
from penstock.run.operators.sinks import folder as folders
from penstock.run.operators.sinks.folder import Folder
from penstock.run.operators.sinks.staged import EpochFiles

SINK = "out"
STORE = "5ee5a5705e0fa70b"  # the token of a job
SCHEMA = parse_schema("epoch bigint, n bigint")
TASKS = 2
ROWS = 3  # of a task and epoch


def staged(folder: Folder, epoch: int, attempt: int, store: str, kind: str = "parquet") -> tuple[Staged, ...]:
    """The rows of one epoch, as the tasks of a sink hand them over."""
    found: list[Staged] = []
    for task in range(TASKS):
        settings = {SETTING_EPOCH: epoch, SETTING_ATTEMPT: attempt, SETTING_STORE: store}
        rows = EpochFiles(folder, TaskContext(SINK, task, TASKS, settings=settings), SCHEMA, kind)
        rows.add(pa.RecordBatch.from_pydict({"epoch": [epoch] * ROWS, "n": [*range(ROWS)]}, SCHEMA))
        found += [unfinished.finish() for unfinished in rows.stage(epoch)]
    return tuple(found)


def seen(folder: Path) -> Counter[int]:
    """Rows of each epoch that a reader finds, by the rules of Spark, written down once more for this."""
    log = folder / "_spark_metadata"
    found: Counter[int] = Counter()
    for path in _of_log(log) if log.is_dir() else _of_folder(folder):
        found.update(_epochs(path, path.stat().st_ino, path.stat().st_mtime_ns))
    return found


@lru_cache(maxsize=10_000)
def _epochs(path: Path, inode: int, changed_ns: int) -> tuple[int, ...]:
    return tuple(pq.read_table(path)["epoch"].to_pylist())


def _of_folder(folder: Path) -> list[Path]:
    hidden = ("_", ".")
    return [path for path in folder.glob("*") if path.is_file() and not path.name.startswith(hidden)]


def _of_log(log: Path) -> list[Path]:
    """What the last batch that repeats all says, and what those behind it say."""
    names = [path.name for path in log.iterdir() if re.fullmatch(r"\d+(\.compact)?", path.name)]
    wholes = [int(name.removesuffix(".compact")) for name in names if name.endswith(".compact")]
    last = max(wholes, default=-1)
    batches = [name for name in names if int(name.removesuffix(".compact")) >= last]
    if f"{last}.compact" in batches and f"{last}" in batches:
        batches.remove(f"{last}")
    lines: list[str] = []
    for name in batches:
        version, *said = (log / name).read_text().split("\n")
        assert version == "v1"
        lines += [line for line in said if line]
    paths = [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
    assert len(set(paths)) == len(paths), "a file is shown twice"
    return paths


class Died(BaseException):
    """The process is gone: nothing of it cleans up."""


class Steps:
    """Counts what changes the disk; dies at one of these, or looks around after each."""

    def __init__(self, dies_at: int | None = None, look: Callable[[], None] = lambda: None) -> None:
        self.count, self.dies_at, self.look, self.is_dead = 0, dies_at, look, False

    def step(self, act: Callable[[], object]) -> object:
        if self.is_dead:  # what would clean up does not run in a process that was killed
            raise Died
        self.count += 1
        if self.count == self.dies_at:
            self.is_dead = True
            raise Died
        done = act()
        self.look()
        return done


class _Watched:
    """Arrow's local file system, each change a step."""

    CHANGES = ("create_dir", "open_output_stream", "move", "delete_file", "delete_dir")

    def __init__(self, steps: Steps) -> None:
        self._real, self._steps = fs.LocalFileSystem(), steps

    def __getattr__(self, name: str) -> object:
        found = getattr(self._real, name)
        if name not in self.CHANGES:
            return found
        return lambda *given, **options: self._steps.step(lambda: found(*given, **options))


def watched_folder(path: Path, steps: Steps) -> Folder:
    return Folder(str(path), _Watched(steps))


@contextmanager
def watched(steps: Steps) -> Iterator[None]:
    """Every change that the store and folders ask of the operating system is a step."""
    names = ("link", "replace", "rename", "unlink", "rmdir", "write")
    real = {name: getattr(os, name) for name in names}

    def step(name: str) -> Callable[..., object]:
        return lambda *given: steps.step(lambda: real[name](*given))

    class Watching:
        """`os`, as two modules see it."""

        def __getattr__(self, name: str) -> object:
            if name == "fsync":  # what a process leaves is there without it
                return os.fstat
            return step(name) if name in real else getattr(os, name)

    system = Watching()
    files.os, folders.os = system, system  # type: ignore[attr-defined, assignment]
    try:
        yield
    finally:
        files.os, folders.os = os, os  # type: ignore[attr-defined]


def whole(epochs: int, others: int = 0) -> Counter[int]:
    """So many epochs, each once, and rows of others."""
    found = Counter(dict.fromkeys(range(1, epochs + 1), TASKS * ROWS))
    if others:
        found[0] = others
    return found


def manifest_of(epoch: int, attempt: int, found: tuple[Staged, ...], path: str = "parts/x") -> Manifest:
    from store_kit import a_part, manifest

    return manifest(epoch, [a_part(0, path, found)], attempt)
