"""Folders of `parquet` sinks: what is done about files that are there already, decided before anything is launched.

As Spark's writer has it: `error`, the default, refuses such a folder, `append` adds files to it, `overwrite` removes
what is there first. Unlike Spark, `overwrite` refuses a folder that holds more than the files of a Parquet writer: a
wrong path must not cost a home folder (tests/unit/test_deploy_folders.py). And an empty folder is as good as none in
every mode, because people make one first. The driver looks, so a folder that is seen by workers alone is not examined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from fnmatch import fnmatch
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.run.endpoints import Mode, SinkFacts

WRITTEN = ("*.parquet", "_SUCCESS", "_metadata", "_common_metadata", ".*.crc", ".*.parquet.writing", ".penstock-*.seen")


def prepare_folders(sinks: Iterable[tuple[str, SinkFacts]], files_read: Callable[[], Iterable[str]] = tuple) -> None:
    """Refuse what cannot be written to, all faults at once; where there is none, empty what is to be overwritten.

    `files_read` gives the files that the job itself is going to read; it is called where something is overwritten.
    """
    given = [(name, sink.folder, sink.mode) for name, sink in sinks if sink.folder is not None]
    found = {folder: _entries(folder) for _, folder, _ in given}
    overwritten = {folder for _, folder, mode in given if mode == "overwrite"}
    read = {Path(file).resolve() for file in files_read()} if overwritten else set()
    faults = [folder_fault(name, folder, mode, found[folder], read) for name, folder, mode in given]
    if any(faults):
        raise InvalidInput([fault for fault in faults if fault])
    for path in overwritten:
        for entry in found[path] or ():
            entry.unlink(missing_ok=True)


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
