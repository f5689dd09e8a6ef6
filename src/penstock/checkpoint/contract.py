"""What an epoch is outside the workers: the parts that workers hand over, and the manifest that makes an epoch of them.

A part is one worker's: one file with the states of its tasks, and the files that its sinks have staged. An epoch counts
from the moment at which its manifest is there, and the manifest is written last. Both are plain data: `store` writes
them, `coordinator` decides when an epoch is whole, `publication` lets sinks show what it holds.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.run.contract import Staged

ENDED = None  # in place of an epoch's number: the worker's tasks have all finished


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker hands over of one epoch."""

    worker: int
    path: str  # of the file with the states, beneath the store's root
    size: int  # bytes
    checksum: str  # of the whole file
    tasks: tuple[str, ...]  # whose states it holds
    finished: tuple[str, ...] = ()  # of these, the tasks that had finished
    staged: tuple[Staged, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's word that its part of an epoch is kept."""

    attempt: int
    epoch: int | None  # ENDED: its part of every epoch from now on
    part: Part
    sizes: tuple[
        int, ...
    ] = ()  # bytes of the state of each of the part's tasks; for who weighs moves: no epoch needs it


class Branch(NamedTuple):
    """Where the job left a history: this attempt began at this epoch, and gave up what had been committed behind it."""

    attempt: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """An epoch that is committed."""

    epoch: int
    attempt: int  # at the job, which wrote it
    topology: str
    tasks: Mapping[str, int]  # of each operator
    parts: tuple[Part, ...]
    is_last: bool = False  # every task has finished: nothing is left to do
    worker_of: Mapping[str, int] = field(default_factory=dict)  # the plan that was followed
    written_us: int = 0  # since 1970
    name: str | None = None  # of a savepoint
    line: tuple[Branch, ...] = ()  # how the job came here: every branch on the way, the oldest first
    shown: Mapping[str, int] = field(default_factory=dict)  # files that each sink has shown with this epoch and before

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What sinks show with this epoch, and have not shown with an earlier one."""
        return tuple(staged for part in self.parts for staged in part.staged)

    def leads_to(self, later: Manifest) -> bool:
        """Whether the job has come from here to there, or has been there only: what this one shows is shown there."""
        known = len(self.line)
        is_kept = all(branch.epoch >= self.epoch for branch in later.line[known:])
        return self.epoch <= later.epoch and later.line[:known] == self.line and is_kept


class Publication(Protocol):
    """How the sinks of one kind show the rows of committed epochs, on the driver's side."""

    def resume(self, committed: Manifest | None) -> None:
        """Make what is shown that of this epoch, and remove what was staged behind it; None: of no epoch."""

    def compare(self, manifest: Manifest) -> None:
        """Read what this epoch has them show, beforehand: CheckpointDamaged where it is not as it was written."""

    def publish(self, manifest: Manifest) -> None:
        """Show the rows of an epoch that has just been committed; doing it again changes nothing."""

    def finish(self) -> None:
        """The last epoch has been published: remove what is not wanted any more."""
