"""Rows of DataFrames that were written down for a job: the list of their files, which says that they are whole.

Another program writes the files (Spark), so they are read once more for their checksums, and synced. The list is
written last, and has a checksum of its own. Files that are not in it are nobody's. Each attempt that writes rows down
does so in a folder of its own beside the list; an earlier version had the files themselves there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock.checkpoint import manifests
from penstock.checkpoint.files import LocalFiles
from penstock.errors import CheckpointDamaged
from penstock.run.operators.sources.files import list_files
from penstock.run.operators.summed import SummedFile

LIST = "_checksums.json"  # Spark passes over such names
LIST_BYTES_MAX = 1 << 30


def settled(folder: str, inside: str = "") -> tuple[SummedFile, ...]:
    """The Parquet files of a folder in it, which last from now on."""
    paths = list_files(os.path.join(folder, inside), "parquet")
    found = tuple(SummedFile.of(path, then=lambda file: os.fsync(file.fileno())) for path in paths)
    for place in (inside, ""):
        LocalFiles(folder).settle(place)
    return found


def keep_list(folder: str, files: Iterable[SummedFile]) -> None:
    """List files that last: from now on they are the rows."""
    above, name = os.path.split(folder)
    entries = [[os.path.relpath(file.path, folder), file.size, file.sums.hex()] for file in files]
    LocalFiles(above).replace(f"{name}/{LIST}", manifests.sealed({"penstock": manifests.FORMAT, "files": entries}))


def listed(folder: str) -> tuple[SummedFile, ...] | None:
    """The files as they were when they were listed; None where they are not listed yet. CheckpointDamaged."""
    path = Path(folder) / LIST
    if not path.exists():
        return None
    entries = manifests.unsealed(LocalFiles(folder).read(LIST, LIST_BYTES_MAX), str(path)).get("files")
    return tuple(_file(folder, entry, str(path)) for entry in (entries if isinstance(entries, list) else [None]))


def _file(folder: str, entry: Any, path: str) -> SummedFile:  # noqa: ANN401 # of JSON
    match entry:
        case [str(name), int(size), str(sums)]:
            return SummedFile(os.path.join(folder, name), size, bytes.fromhex(sums))
        case _:
            raise CheckpointDamaged(path, f"it has {str(entry)[:80]} where a file should be")
