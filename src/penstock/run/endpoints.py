"""What sources and sinks tell of themselves, so that the driver need not make one and look inside.

The driver asks for these facts before a job begins: which files every worker must see, which folder is to be prepared,
whose rows make a DataFrame, which sink is given rows again by a recovery. They are plain values beside the factory that
makes the task in a worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal[
    "error", "append", "overwrite"
]  # what to do about a folder that has files; see `deploy/driver/folders.py`


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source reads."""

    files: tuple[str, ...] = ()  # every file, in order, as the driver names it
    by_task: bool = False  # how many tasks there are decides which rows each has
    schedule: str = ""  # of rows that come by the clock, in words


@dataclass(frozen=True, slots=True)
class SinkFacts:
    """Where a sink's rows go."""

    collects: bool = False  # to the driver
    folder: str | None = None  # into files of this folder, as the driver names it
    mode: Mode = "append"
    repeats: bool = False  # after a recovery it is given rows again that it has had: at least once
    numbers: bool = False  # it tells rows by the task that gives them and their number there

    @property
    def kept(self) -> bool:
        """Whether the rows can be read again when the job has finished."""
        return self.collects or self.folder is not None


READS_NO_FILES = SourceFacts()
KEEPS_NOTHING = SinkFacts()
