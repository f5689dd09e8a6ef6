"""The answer in a folder that is there whole or not at all, so that a command that was killed can be given again.

Spark writes a folder file by file, and a driver that dies meanwhile leaves a part of it. So the answer is written under
a hidden name beside its own, in place of what an earlier run has left there, and renamed. On an object store renaming
copies, and is not one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidInput, JobFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_answer(frames: Mapping[str, DataFrame], folder: str) -> None:
    """Write each DataFrame as Parquet into the folder of its name inside this one; one without a name is the folder."""
    if not frames:
        return
    spark = next(iter(frames.values())).sparkSession
    java: Any = spark._jvm
    there = java.org.apache.hadoop.fs.Path(folder)
    files = there.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    there = files.makeQualified(there)
    if files.exists(there):
        msg = f"cannot write the answer to {folder}, which is there already; name a folder that is not"
        raise InvalidInput(msg)
    aside = java.org.apache.hadoop.fs.Path(there.getParent(), f".{there.getName()}.writing")
    files.delete(aside, True)
    for name, frame in frames.items():
        frame.write.parquet(f"{aside.toString()}/{name}" if name else aside.toString())
    if not files.rename(aside, there):
        msg = f"the answer is in {aside.toString()} and could not be renamed to {folder}; rename it yourself"
        raise JobFailed(msg)
