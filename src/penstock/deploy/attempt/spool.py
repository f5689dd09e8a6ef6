"""DataFrames under checkpoints: written down once by Spark, before the first attempt, and read from there ever after.

Spark promises no order of rows that it makes a second time. So a job's DataFrames become Parquet files beneath its
checkpoint folder, in as many files as there are workers, in order of event time where the source has one. A later start
with the same folder reads the same files, whatever DataFrame it is given: the job goes on, it does not begin anew.

    input/NAME/_checksums.json              the rows are those of these files: written last, by the current attempt
    input/NAME/00000002-5f3a9c01/part-...   what attempt 2 has written; other such folders are nobody's

Each attempt writes into a folder of its own, because Spark commits whatever finished task it finds below the folder
that it writes to: also one of another driver, or of a driver that was killed and whose executors went on
(`test_rows_that_two_drivers_write_down_are_not_mixed`).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.checkpoint.input_files import LIST, keep_list, listed, settled
from penstock.checkpoint.store import Store
from penstock.errors import InvalidInput
from penstock.run.dataflow import Dataflow
from penstock.run.operators.sinks.uris import shown
from penstock.run.operators.summed import SummedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WRITTEN = re.compile(r"(\d{8,15})-[0-9a-f]{8}")  # by an attempt; the rest is by chance, as no name may come twice


def require_spoolable(sources: Iterable[str], store: Store) -> None:
    """InvalidInput where no rows can be written down; CheckpointDamaged where those that were cannot be told."""
    folder = store.inputs()
    for name in sources:
        if "://" in folder and not folder.startswith("file://"):
            msg = (
                f"source {name!r} reads a DataFrame, whose rows would be written down in {shown(folder)}; workers "
                "read files of paths alone; name a checkpoint folder that is a path, or write the DataFrame to files "
                "yourself"
            )
            raise InvalidInput(msg)
        listed(str(_place(store, name)))


def spooled(
    dataflow: Dataflow, frames: Mapping[str, DataFrame], store: Store, attempt: int, workers: int
) -> dict[str, tuple[SummedFile, ...]]:
    """The files with the rows of each DataFrame, by source; written now where they are not there yet. StaleAttempt."""
    require_spoolable(frames, store)
    found: dict[str, tuple[SummedFile, ...]] = {}
    for name, frame in frames.items():
        place = _place(store, name)
        files = listed(str(place))
        _sweep(place, attempt, files)
        found[name] = _written(dataflow, name, frame, store, attempt, workers) if files is None else files
    return found


def _written(
    dataflow: Dataflow, name: str, frame: DataFrame, store: Store, attempt: int, workers: int
) -> tuple[SummedFile, ...]:
    from penstock.deploy.driver.frames import frame_inputs, handed  # imports all of Spark's SQL

    place, inside = _place(store, name), f"{attempt:08d}-{secrets.token_hex(4)}"
    rows = handed(frame_inputs(dataflow, {name: frame}), workers)
    try:
        rows.write.parquet(f"file://{place / inside}")  # Spark takes what follows as it is: no escapes
        files = settled(str(place), inside)
    except Exception:
        store.require_current(attempt)  # a later one has removed what was written here
        raise
    with store.held(attempt):
        keep_list(str(place), files)
    return files


def _place(store: Store, name: str) -> Path:
    """Where the list of a source's files is."""
    quoted = quote(name, safe="")
    if not quoted.strip("."):
        quoted = quoted.replace(".", "%2E")  # else it were this folder, or the one above
    return Path(store.inputs().removeprefix("file://")) / quoted


def _sweep(place: Path, attempt: int, files: Collection[SummedFile] | None) -> None:
    """Remove what earlier attempts have left, and nobody can list any more: the current attempt alone does that.

    Executors of a driver that died may still write there, and put a folder back; the next start removes it.
    """
    named = {os.path.relpath(file.path, place).partition(os.sep)[0] for file in files or ()}
    for entry in sorted(place.iterdir()) if place.is_dir() else []:
        written = WRITTEN.fullmatch(entry.name)
        is_old = files is None and not entry.name.startswith(LIST) if written is None else int(written[1]) < attempt
        if is_old and entry.name not in named:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
