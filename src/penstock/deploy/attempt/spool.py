"""DataFrames under checkpoints: written down once by Spark, before the first attempt, and read from there ever after.

What a source has read must come again in the same order after a failure, and Spark promises no order of rows that it
makes a second time. So a job's DataFrames become Parquet files beneath its checkpoint folder, in as many files as there
are workers, in order of event time where the source has one. A later start with the same folder reads the same files,
whatever DataFrame it is given: the job goes on, it does not begin anew. What Spark has written is synced, and a list of
it with checksums is written last: a folder without one is written anew (`checkpoint/input_files.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from penstock.checkpoint.input_files import listed, sealed
from penstock.errors import InvalidInput
from penstock.run.dataflow import Dataflow
from penstock.run.operators.sinks.uris import shown
from penstock.run.operators.summed import SummedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def spooled(
    dataflow: Dataflow, frames: Mapping[str, DataFrame], folder: str, workers: int
) -> dict[str, tuple[SummedFile, ...]]:
    """The files with the rows of each DataFrame, by source; written now where they are not there yet."""
    found: dict[str, tuple[SummedFile, ...]] = {}
    for name, frame in frames.items():
        if "://" in folder and not folder.startswith("file://"):
            msg = (
                f"source {name!r} reads a DataFrame, whose rows would be written down in {shown(folder)}; workers "
                "read files of paths alone; name a checkpoint folder that is a path, or write the DataFrame to files "
                "yourself"
            )
            raise InvalidInput(msg)
        path = Path(folder.removeprefix("file://")) / quote(name, safe="")
        files = listed(str(path))
        if files is None:
            from penstock.deploy.driver.frames import frame_inputs, handed  # imports all of Spark's SQL

            rows = handed(frame_inputs(dataflow, {name: frame}), workers)
            rows.write.mode("overwrite").parquet(f"file://{path}")  # Spark takes what follows as it is: no escapes
            files = sealed(str(path))
        found[name] = files
    return found
