"""Epochs as a worker sees them: what it hands over when a marker has passed its tasks, and what it continues from.

A marker cuts the stream of every edge at one point. A task that has met it on all open inputs is saved there, and
passes it on in the same step (`run/machine/alignment.py`). When all tasks of a worker are saved or had finished before,
the worker hands the epoch over, and goes on. Writing is not the loop's business.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.run.columns.unwritten import State
from penstock.run.contract import Staging


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task at a marker, or a task that had finished before."""

    task: str
    finished: bool
    state: Mapping[str, State]  # by name, as bytes or what becomes bytes; "engine" is the engine's own part
    staged: tuple[Staging, ...] = ()  # to be finished by who keeps the epoch, beside the loop


@dataclass(frozen=True, slots=True)
class Restored:
    """What the tasks of one operator gave at the marker from which a job continues, in the order of their indexes."""

    finished: Sequence[bool]
    states: Sequence[Mapping[str, bytes]]


class Epochs(Protocol):
    """Where a worker's epochs go; real or simulated."""

    first: int  # the number of the first epoch that is still to come

    def restored(self, operator: str) -> Restored | None:
        """What the operator's tasks continue from; None: from the beginning."""

    def begin(self) -> None:
        """All tasks are put back: what was read for that is not asked for again."""

    def fetch(self, parts: Sequence[Mapping[str, Any]], tasks: Collection[str]) -> None:
        """Read what these tasks knew at a marker, from the parts of other workers; must not wait."""

    def fetched(self) -> Sequence[TaskSnapshot] | None:
        """What was read; None: not yet. Raises why it could not be read."""

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        """All tasks of the worker are past this marker; must not wait."""

    def check(self) -> None:
        """Raise what went wrong with what was handed over; asked when the driver's line has woken the loop."""

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        """All tasks of the worker have finished: their part of every epoch from now on; waits until it is kept."""


_COMMAND = "epoch "


def epoch_command(epoch: int) -> str:
    """The driver's word by which an epoch begins."""
    return f"{_COMMAND}{epoch}"


def asked_epoch(command: str) -> int | None:
    """The epoch that a command begins, if it is such a command."""
    number = command.removeprefix(_COMMAND)
    return int(number) if number != command and number.isascii() and number.isdigit() else None
