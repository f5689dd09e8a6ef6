"""Folders of `parquet` sinks: what is done about files that are there already, decided before anything is launched.

As Spark's writer has it: `error`, the default, refuses such a folder, `append` adds files to it, `overwrite` removes
what is there first. Unlike Spark, `overwrite` refuses a folder that holds more than the files of a Parquet writer: a
wrong path must not cost a home folder (tests/unit/test_deploy_folders.py). And an empty folder is as good as none in
every mode, because people make one first. The driver looks, so a folder that is seen by workers alone is not examined.

Nor do two write into one folder: readers could not tell the rows of two sinks apart, and see what a checkpoint keeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Set
from fnmatch import fnmatch
from itertools import combinations
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidInput
from penstock.run.endpoints import Mode, SinkFacts

WRITTEN = ("*.parquet", "_SUCCESS", "_metadata", "_common_metadata", ".*.crc", ".*.parquet.writing", ".penstock-*.seen")


def overwritten(sinks: Iterable[tuple[str, SinkFacts]], files_read: Callable[[], Iterable[str]] = tuple) -> list[Path]:
    """The files that sinks overwrite, for `clear`; refuses what cannot be written to, all faults at once.

    They stay until nothing else is left that could refuse the job. `files_read` gives the files that the job itself is
    going to read; it is called where something is overwritten.
    """
    given = [(name, sink.folder, sink.mode) for name, sink in sinks if sink.folder is not None]
    found = {folder: _entries(folder) for _, folder, _ in given}
    folders = {folder for _, folder, mode in given if mode == "overwrite"}
    read = {Path(file).resolve() for file in files_read()} if folders else set()
    faults = [folder_fault(name, folder, mode, found[folder], read) for name, folder, mode in given]
    if any(faults):
        raise InvalidInput([fault for fault in faults if fault])
    return [entry for folder in folders for entry in found[folder] or ()]


def clear(files: Iterable[Path]) -> None:
    """Remove what is overwritten."""
    for file in files:
        file.unlink(missing_ok=True)


def require_apart(sinks: Iterable[tuple[str, SinkFacts]], checkpoint: str | None) -> None:
    """Refuse two sinks in one folder, which would mix their rows, and a sink's beside a job's checkpoints in one."""
    given = [(f"sink {name!r}", sink.folder) for name, sink in sinks if sink.folder is not None]
    given += [] if checkpoint is None else [("the checkpoint", checkpoint)]
    faults = [_clash(*one, *other) for one, other in combinations(given, 2)]
    if any(faults):
        raise InvalidInput([fault for fault in faults if fault])


def _clash(who: str, folder: str, other_who: str, other: str) -> str | None:
    """Why two cannot both write where they do, if they cannot."""
    here, there = _place(folder), _place(other)
    if here == there:
        return f"{who} and {other_who} are given the same folder, {folder}; give each one of its own"
    if f"{here}/".startswith(f"{there.rstrip('/')}/"):
        return f"{who} has the folder {folder}, which lies in that of {other_who}, {other}; put one beside the other"
    if f"{there}/".startswith(f"{here.rstrip('/')}/"):
        return _clash(other_who, other, who, folder)
    return None


def _place(folder: str) -> str:
    """A path or URI in the one form that all names of the folder have."""
    if "://" not in folder:
        return os.path.realpath(folder)
    if folder.startswith("file://"):
        return os.path.realpath(unquote(urlsplit(folder).path))
    return folder.partition("?")[0].rstrip("/")


def folder_fault(
    name: str, folder: str, mode: Mode, entries: list[Path] | None, read: Set[Path] = frozenset()
) -> str | None:
    """Why the sink cannot write where these files are, if it cannot; None instead of files: that is no folder."""
    if entries is None:
        return f"sink {name!r} writes into {folder}, which is a file; name a folder"
    if mode == "error" and entries:
        return (
            f"sink {name!r} writes into {folder}, which holds {entries[0].name!r} already; "
            "name another folder, or give mode='append' or mode='overwrite'"
        )
    if mode == "overwrite" and (foreign := [entry for entry in entries if not _is_ours(entry)]):
        return (
            f"sink {name!r} overwrites {folder}, but {foreign[0].name!r} in it is no Parquet writer's file; "
            "remove it, or name another folder"
        )
    if mode == "overwrite" and (needed := [entry for entry in entries if entry.resolve() in read]):
        return f"sink {name!r} overwrites {folder}, but the job reads {needed[0].name!r} in it; name another folder"
    return None


def _is_ours(entry: Path) -> bool:
    return not entry.is_dir() and any(fnmatch(entry.name, pattern) for pattern in WRITTEN)


def _entries(path: str) -> list[Path] | None:
    """What is in the folder, in order; nothing where there is none yet, None where it is no folder."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        return None
    return sorted(folder.iterdir()) if folder.exists() else []
