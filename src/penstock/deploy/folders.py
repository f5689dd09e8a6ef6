"""Folders of `parquet` sinks: what is done about files that are there already, decided before anything is launched.

As Spark's writer has it: `error`, the default, refuses such a folder, `append` adds files to it, `overwrite` removes
what is there first. Unlike Spark, `overwrite` removes only files that a Parquet writer leaves, and refuses a folder
that holds anything else: a wrong path must not cost a home folder. And an empty folder is as good as none in every
mode, because people make one first. The driver looks, so a folder that only the workers see is not examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from fnmatch import fnmatch
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.run.operators.sinks import Parquet

WRITTEN = ("*.parquet", "_SUCCESS", "_metadata", "_common_metadata", ".*.crc", ".*.parquet.writing")


def prepare_folders(sinks: Iterable[tuple[str, Parquet]], files_read: Callable[[], Iterable[str]] = tuple) -> None:
    """Refuse what cannot be written to, all faults at once, and only then empty what is to be overwritten.

    `files_read` gives the files that the job itself is going to read; it is asked only where something is overwritten.
    """
    given = list(sinks)
    found = {sink.path: _entries(sink.path) for _, sink in given}
    overwritten = {sink.path for _, sink in given if sink.mode == "overwrite"}
    read = {Path(file).resolve() for file in files_read()} if overwritten else set()
    faults = [folder_fault(name, sink, found[sink.path], read) for name, sink in given]
    if any(faults):
        raise InvalidInput([fault for fault in faults if fault])
    for path in overwritten:
        for entry in found[path] or ():
            entry.unlink(missing_ok=True)


def folder_fault(name: str, sink: Parquet, entries: list[Path] | None, read: Set[Path] = frozenset()) -> str | None:
    """Why the sink cannot write where these files are, if it cannot; None instead of files: that is no folder."""
    if entries is None:
        return f"sink {name!r} writes into {sink.path}, which is a file; name a folder"
    if sink.mode == "error" and entries:
        return (
            f"sink {name!r} writes into {sink.path}, which holds {entries[0].name!r} already; "
            "name another folder, or give mode='append' or mode='overwrite'"
        )
    if sink.mode == "overwrite" and (foreign := [entry for entry in entries if not _is_ours(entry)]):
        return (
            f"sink {name!r} overwrites {sink.path}, but {foreign[0].name!r} in it is no Parquet writer's file; "
            "remove it, or name another folder"
        )
    if sink.mode == "overwrite" and (needed := [entry for entry in entries if entry.resolve() in read]):
        return f"sink {name!r} overwrites {sink.path}, but the job reads {needed[0].name!r} in it; name another folder"
    return None


def _is_ours(entry: Path) -> bool:
    return not entry.is_dir() and any(fnmatch(entry.name, pattern) for pattern in WRITTEN)


def _entries(path: str) -> list[Path] | None:
    """What is in the folder, in order; nothing where there is none yet, None where it is no folder."""
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        return None
    return sorted(folder.iterdir()) if folder.exists() else []
