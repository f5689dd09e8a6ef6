"""A live move as the driver decides it: when to prepare, switch, hand over, and when it is over. Pure.

Events go in, what is to be told to all workers comes out, in order. No epoch begins until the one under way is
committed (`held`) and workers have made tasks and connections (`said`); where one refuses, until all have forgotten the
move again, because a marker that overtook the word would set it off. Then its epoch begins. When the parts of workers
that tasks leave are kept (`kept`), those to which they come read their state. When these are at work and the epoch is
committed (`committed`), the plan counts. What fails a worker or the attempt meanwhile is a failure like any other, from
which the job goes on under the plan that it had; nothing of it is decided here. Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.errors import InternalError
from penstock.run.engine.moves import (
    CAME,
    DROPPED,
    ENDED,
    PREPARED,
    REFUSED,
    Move,
    come_command,
    drop_command,
    over_command,
    prepare_command,
)


class Phase(Enum):
    """How far a move is."""

    WAITING = "waiting for the epoch before it"
    PREPARING = "preparing"
    SWITCHING = "switching"
    LANDING = "landing"
    OVER = "over"
    DROPPING = "dropping"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell all workers."""

    command: str


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """Begin the move's epoch, and none behind it before the move is over."""


Step = Tell | BeginEpoch


class LiveMove:
    """One move of one attempt."""

    def __init__(self, number: int, to: Mapping[str, int], worker_of: Mapping[str, int], workers: int) -> None:
        self.number, self.to = number, dict(to)
        self.sources = {worker_of[task] for task in to}  # workers that tasks leave
        self.targets = set(to.values())
        self.phase, self.epoch = Phase.WAITING, 0
        self.why, self.is_late = "", False  # of a refusal, and whether a task had finished
        self._prepared: set[int] = set()
        self._dropped: set[int] = set()
        self._parted: set[int] = set()  # workers that have said goodbye, and hear nothing any more
        self._workers = workers
        self._parts: dict[int, Mapping[str, object]] = {}
        self._came: set[int] = set()
        self._is_committed = False

    def held(self, epoch: int) -> list[Step]:
        """No epoch is under way, and the next one is this."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase, self.epoch = Phase.PREPARING, epoch
        return [Tell(prepare_command(Move(self.number, epoch, self.to)))]

    def said(self, worker: int, number: int, phase: str, why: str = "") -> list[Step]:
        """A worker's word; that of an earlier move is nothing."""
        if number != self.number:
            return []
        if phase == PREPARED and self.phase is Phase.PREPARING:
            self._prepared.add(worker)
            if len(self._prepared) == self._workers:
                self.phase = Phase.SWITCHING
                return [BeginEpoch()]
        elif phase in {REFUSED, ENDED} and self.phase is Phase.PREPARING:
            self.is_late = phase == ENDED
            return self.give_up(why)
        elif phase == CAME and self.phase is Phase.LANDING:
            self._came.add(worker)
            return self._end()
        elif phase == DROPPED and self.phase is Phase.DROPPING:
            self._dropped.add(worker)
            self._look_dropped()
        elif phase not in {PREPARED, REFUSED, ENDED}:
            msg = f"worker {worker} says {phase!r} of move {number}, which is {self.phase.value}; please report this"
            raise InternalError(msg)
        return []

    def give_up(self, why: str) -> list[Step]:
        """Nothing comes of it; possible until its epoch begins."""
        self.why = why
        if self.phase is Phase.WAITING:
            self.phase = Phase.REFUSED
            return []
        self.phase = Phase.DROPPING
        self._look_dropped()
        return [Tell(drop_command(self.number))]

    def parted(self, worker: int) -> list[Step]:
        """A worker has said goodbye: it had nothing to do any more.

        One that has prepared a task stays until the move is over, so one that goes without is not needed behind that.
        """
        self._parted.add(worker)
        if self.phase is Phase.WAITING or (self.phase is Phase.PREPARING and worker not in self._prepared):
            self.is_late = True
            return self.give_up(f"worker {worker} has finished its work")
        if self.phase is Phase.DROPPING:
            self._look_dropped()
        elif self.phase in {Phase.SWITCHING, Phase.LANDING} and worker in self.targets - self._came:
            msg = f"worker {worker} has said goodbye before tasks came to it in move {self.number}; please report this"
            raise InternalError(msg)
        return []

    def _look_dropped(self) -> None:
        if len(self._dropped | self._parted) == self._workers:
            self.phase = Phase.REFUSED

    def kept(self, worker: int, epoch: int | None, part: Mapping[str, object]) -> list[Step]:
        """A worker's part of an epoch is kept; None: that of every epoch from now on."""
        if worker not in self.sources:
            return []
        if epoch is None or epoch == self.epoch:
            self._parts.setdefault(worker, part)  # its end may follow
        if self.phase is Phase.SWITCHING and self._parts.keys() >= self.sources:
            self.phase = Phase.LANDING
            return [Tell(come_command([self._parts[source] for source in sorted(self.sources)]))]
        return []

    def committed(self, epoch: int) -> list[Step]:
        """An epoch's manifest is there."""
        self._is_committed = self._is_committed or epoch == self.epoch
        return self._end()

    def _end(self) -> list[Step]:
        if self.phase is not Phase.LANDING or not self._is_committed or self._came != self.targets:
            return []
        self.phase = Phase.OVER
        return [Tell(over_command())]

    @property
    def awaited(self) -> list[int]:
        """The workers for whose word the move waits; none where it waits for an epoch."""
        if self.phase is Phase.WAITING:
            return []
        if self.phase is Phase.PREPARING:
            return sorted(set(range(self._workers)) - self._prepared)
        if self.phase is Phase.DROPPING:
            return sorted(set(range(self._workers)) - self._dropped - self._parted)
        if self.phase is Phase.SWITCHING:
            return sorted(self.sources - self._parts.keys())
        return sorted(self.targets - self._came)
