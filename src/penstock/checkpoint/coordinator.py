"""When an epoch begins, and when it is whole: the driver's decisions about the epochs of one attempt at a job.

It is pure: time is given in microseconds, reports go in, what is to be done comes out. One epoch is under way at a
time, from its beginning until its manifest is there. A manifest may only name parts that are kept, so an epoch is whole
when every worker has reported its part, or its end: the part of a worker whose tasks have all finished counts for every
later epoch. What such a worker staged goes with one epoch (`test_what_an_ended_worker_staged_goes_with_one_epoch`). An
epoch for which any worker has saved at the marker is not the last one: a task would have two files in it, one of each
side of the marker, and files are shown under the number of their epoch.
Rejected: epochs that overlap. They would need a queue of markers at every edge, and an interval that is too short for
the state would pile them up; here the next one just begins later.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from penstock.checkpoint.contract import ENDED, Part, Report
from penstock.errors import InternalError


class Whole(NamedTuple):
    """An epoch of which every part is kept: its manifest is to be written now."""

    epoch: int
    parts: tuple[Part, ...]  # one of each worker, in their order
    is_last: bool  # every task has finished: nothing is left to do when this epoch is committed


class Awaited(NamedTuple):
    """An epoch that has begun and is not committed yet."""

    epoch: int
    began_us: int
    workers: tuple[int, ...]  # that have not handed over; none: its manifest is being written, or what it names shown


class Coordinator:
    """The epochs of one attempt. Both `reported` and `committed` may answer an epoch that is to be written now."""

    def __init__(self, attempt: int, workers: int, committed: int, interval_us: int, now_us: int) -> None:
        self._attempt, self._workers, self._interval_us = attempt, workers, interval_us
        self._committed = committed  # the last epoch whose manifest is there
        self._began_us = self._free_us = now_us  # when the epoch before began; since when none is under way
        self._is_asked = self._is_held = self._lets_one = False
        self._parts: dict[int, Part] = {}  # of the epoch under way, by worker
        self._ended: dict[int, Part] = {}  # of every epoch from now on; files that were shown are taken out
        self._writing: Whole | None = None
        self.epoch_under_way: int | None = None
        self.stale = 0  # reports that came too late, or from another attempt, or twice
        self.is_over = False  # the last epoch is committed

    def awaited(self) -> Awaited | None:
        """The epoch that is under way; another thread may ask, to whom it may be the one of a moment ago."""
        epoch, parts = self.epoch_under_way, self._parts  # these are left for others, and not emptied
        if epoch is None:
            return None
        lacking = () if self._writing is not None else range(self._workers)
        return Awaited(epoch, self._began_us, tuple(w for w in lacking if w not in parts and w not in self._ended))

    def wakes_at(self) -> int | None:
        """When `begins` is to be asked next; None: not before something else has happened."""
        if self.is_over or self.epoch_under_way is not None or (self._is_held and not self._lets_one):
            return None
        if self._lets_one:
            return self._free_us
        return self._free_us if self._is_asked else max(self._free_us, self._began_us + self._interval_us)

    def begins(self, now_us: int) -> int | None:
        """The epoch that begins now, if one is due; all workers are to be told."""
        wakes_us = self.wakes_at()
        if wakes_us is None or now_us < wakes_us:
            return None
        self._began_us, self._is_asked, self._lets_one = now_us, False, False
        self.epoch_under_way = self._committed + 1
        return self.epoch_under_way

    def ask(self) -> None:
        """Somebody wants an epoch that begins after this moment, as soon as possible."""
        self._is_asked = True

    def hold(self) -> None:
        """No epoch begins before `release`, but one for each `let_one`; that under way ends as always."""
        self._is_held = True

    def let_one(self) -> None:
        """One epoch may begin, at once."""
        self._lets_one = True

    def release(self) -> None:
        """Epochs begin as they are due."""
        self._is_held = self._lets_one = False

    @property
    def held_at(self) -> int | None:
        """The number of the next epoch, where none is under way and none begins for now."""
        is_at_rest = self._is_held and not self._lets_one and self.epoch_under_way is None and not self.is_over
        return self._committed + 1 if is_at_rest else None

    @property
    def unended(self) -> set[int]:
        """Workers that have not said that their tasks have all finished."""
        return set(range(self._workers)) - self._ended.keys()

    def reported(self, report: Report) -> Whole | None:
        """A worker's part is kept; the epoch that is whole by this."""
        worker = report.part.worker
        if report.attempt != self._attempt:
            self.stale += 1
            return None
        if not 0 <= worker < self._workers:
            known = f"attempt {self._attempt} has {self._workers} workers"
            msg = f"worker {worker} reports a part; {known}; please report this"
            raise InternalError(msg)
        if report.epoch is ENDED:
            if worker in self._ended:  # its files may have been shown: they must not come back
                self.stale += 1
                return None
            self._ended[worker] = report.part
        else:
            is_wanted = report.epoch == self.epoch_under_way and self._writing is None
            if not is_wanted or worker in self._parts:
                self.stale += 1
                return None
            self._parts[worker] = report.part
        return self._whole()

    def committed(self, epoch: int, now_us: int) -> Whole | None:
        """The manifest of this epoch is there. Where all workers ended meanwhile: the last epoch, to be written now."""
        if self._writing is None or self._writing.epoch != epoch:
            due = None if self._writing is None else self._writing.epoch
            msg = f"epoch {epoch} was committed, and {due} is the one to be written; please report this"
            raise InternalError(msg)
        self._committed, self.is_over = epoch, self._writing.is_last
        self._writing = self.epoch_under_way = None
        self._free_us = now_us
        return self._whole()

    def _whole(self) -> Whole | None:
        """What is to be written now, if anything is."""
        if self.is_over or self._writing is not None:
            return None
        is_last = len(self._ended) == self._workers and not self._parts
        if self.epoch_under_way is None:
            if not is_last:
                return None
            self.epoch_under_way = self._committed + 1
        elif len(self._parts.keys() | self._ended.keys()) < self._workers:
            return None
        parts = tuple(self._parts[w] if w in self._parts else self._ended[w] for w in range(self._workers))
        self._writing = Whole(self.epoch_under_way, parts, is_last)
        for w in self._ended.keys() - self._parts.keys():
            self._ended[w] = replace(self._ended[w], staged=())
        self._parts = {}
        return self._writing
