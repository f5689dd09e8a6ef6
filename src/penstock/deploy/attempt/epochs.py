"""The driver's side of epochs: begins them, commits what workers have handed over, has sinks show it.

`checkpoint/coordinator.py` decides; this is its shell: a thread for each attempt, and the store. An epoch is committed
by its manifest; then sinks publish. What a crash leaves between the two is published when the job goes on, before
anything else (`resume`). A later attempt at the same store, from any driver, ends this one before it commits again.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator, Whole
from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.fitting import Fitting
from penstock.deploy.attempt.publications import publications
from penstock.deploy.attempt.recovery import found_note
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InvalidInput, PenstockError, StoreUnusable
from penstock.model.task_id import operator_of
from penstock.run.dataflow import Dataflow
from penstock.run.engine.epochs import epoch_command
from penstock.run.engine.worker import Checkpoint

log = logging.getLogger(__name__)
LAST_SECONDS = 30.0  # for the last epoch, once every worker has said goodbye
SAVEPOINT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """What a job was asked to keep."""

    root: str  # a path or URI that driver and workers reach
    interval_s: float = 10.0
    kept: int = 3  # epochs
    savepoint: str | None = None  # at which the job begins, instead of at its last epoch


class DriverEpochs:
    """All epochs of one job in this process, from attempt to attempt."""

    def __init__(self, order: CheckpointOrder, dataflow: Dataflow) -> None:
        self._order, self._dataflow = order, dataflow
        self.store = Store(order.root)
        self._publications: dict[str, CollectPublication | ParquetPublication] = {}  # those of an open store
        self.committed: Manifest | None = None
        self.attempt = 0  # the number that the store gave last
        self.notes: tuple[str, ...] = ()
        self.error: PenstockError | None = None  # why epochs cannot go on
        self._changed = threading.Condition()
        self._reports: list[Report] = []
        self._thread: threading.Thread | None = None
        self._over = False  # the attempt under way has ended
        self._asked = 0  # epochs wanted out of turn, counted
        self._began_from = 0  # the epoch from which the attempt before began

    # -- from attempt to attempt ---------------------------------------------------------------------------------------

    @property
    def collected(self) -> dict[str, CollectPublication]:
        """Where the rows of collecting sinks are shown, by sink."""
        found = self._publications.items()
        return {name: publication for name, publication in found if isinstance(publication, CollectPublication)}

    @property
    def is_new(self) -> bool:
        """Whether nobody has ever begun the job in this folder."""
        return self.store.topology() is None

    def open(self) -> None:
        """Find where the job goes on, and make what sinks show that of the last committed epoch."""
        name = self._order.savepoint
        saved = None if name is None else self.store.saved(name)  # a name that is not there changes nothing
        if saved is not None:
            self.store.require_on_line(saved)
        fitting = Fitting(self._dataflow, self.store)
        fitting.require(next(iter(self.store.epochs()[::-1]), None) if saved is None else saved)  # as above
        self.attempt = self.store.claim(self._dataflow.name)
        self._publications = publications(self._dataflow, self.store)
        self.committed = self.store.latest() if saved is None else saved
        self.notes = self.store.notes
        fitting.require(self.committed)
        fitting.require_shown(self.committed, self._publications)
        fitting.keep(self.attempt)
        if saved is not None:
            self.committed, note = self.store.rewind(self.attempt, saved)
            self.notes = (note,)
        elif self.committed is not None:
            self.notes += (found_note(self.last_epoch, self.store.shown, is_over=self.is_over),)
        self._resume()

    def again(self) -> None:
        """Another attempt begins: void is what is not committed. StaleAttempt where another driver has taken over.

        Where the attempt before got no further than its first epoch, that may be damaged: then all of it is read. A
        commit that has failed may have come to the store all the same, so what is there counts, and not what is known.
        """
        self.attempt = self.store.claim(self._dataflow.name, after=self.attempt)  # never back from another driver
        error, self.error = self.error, None
        is_known = error is None and self.store.numbers()[-1:] == ([self.last_epoch] if self.last_epoch else [])
        if not is_known or self.last_epoch == self._began_from > 0:
            self.committed = self.store.latest()
            self.notes += self.store.notes
        self._resume()

    def _resume(self) -> None:
        self._began_from = self.last_epoch
        if self.committed is not None:
            self.committed = self.store.begin(self.attempt, self.committed)
        with self.store.held(self.attempt):
            for publication in self._publications.values():
                publication.resume(self.committed)

    @property
    def last_epoch(self) -> int:
        """The number of the last committed epoch; 0 before the first."""
        return 0 if self.committed is None else self.committed.epoch

    @property
    def is_over(self) -> bool:
        """Whether the last epoch says that nothing is left to do."""
        return self.committed is not None and self.committed.is_last

    def checkpoint(self) -> Checkpoint:
        """What the workers of this attempt are told."""
        restore = None if self.committed is None else self.committed.epoch
        return Checkpoint(self.store.root, self.attempt, self.last_epoch + 1, restore, self.store.token())

    def begin(self, roll: Roll, worker_of: Mapping[str, int], workers: int) -> None:
        """The workers of an attempt are at work."""
        with self._changed:
            self._reports, self._over = [], False
        coordinator = Coordinator(
            self.attempt, workers, self.last_epoch, round(self._order.interval_s * 1e6), _now_us()
        )
        self._thread = threading.Thread(
            target=self._run, args=(coordinator, roll, dict(worker_of)), name="penstock-epochs", daemon=True
        )
        self._thread.start()

    def kept(self, worker: int, report: Report) -> None:
        """A worker's part is kept; called by the threads of the control server."""
        if report.part.worker != worker:
            msg = f"worker {worker} reports a part of worker {report.part.worker}"
            raise ValueError(msg)
        with self._changed:
            self._reports.append(report)
            self._changed.notify_all()

    def end(self, *, finished: bool) -> None:
        """The attempt is over. Where all workers finished, their last epoch is waited for."""
        with self._changed:
            if finished:
                self._changed.wait_for(lambda: self.is_over or self.error is not None, LAST_SECONDS)
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(LAST_SECONDS)

    def finish(self) -> None:
        """The job has finished."""
        for publication in self._publications.values():
            publication.finish()
            self.notes += publication.notes

    # -- for users -----------------------------------------------------------------------------------------------------

    def savepoint(self, name: str, timeout: float = SAVEPOINT_SECONDS) -> Manifest:
        """Commit an epoch now and keep it under a name."""
        before = self.last_epoch
        with self._changed:
            self._asked += 1
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: self.last_epoch > before or self._over or self.error is not None, timeout
            )
        committed = self.committed
        if not done or committed is None or committed.epoch <= before:
            msg = f"no epoch was committed within {timeout:g} s, so there is no savepoint {name!r}; try again"
            raise InvalidInput(msg)
        self.store.savepoint(name, committed)
        return committed

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self, coordinator: Coordinator, roll: Roll, worker_of: Mapping[str, int]) -> None:
        try:
            while self._turn(coordinator, roll, worker_of):
                pass
        except Exception as error:  # a store that cannot be written: without epochs the job's promise does not hold
            self.error = error if isinstance(error, PenstockError) else None
            roll.give_up(str(error))
            with self._changed:
                self._changed.notify_all()

    def _turn(self, coordinator: Coordinator, roll: Roll, worker_of: Mapping[str, int]) -> bool:
        """Wait for something to do, and do it; False when the attempt is over."""
        with self._changed:
            at_us = coordinator.wakes_at()
            wait = None if at_us is None else max(0.0, (at_us - _now_us()) / 1e6)
            self._changed.wait_for(lambda: self._reports or self._over or self._asked != self._heard, wait)
            asked, reports, over = self._asked, self._reports, self._over
            self._reports = []
        if asked != self._heard:
            self._heard = asked
            coordinator.ask()
        for report in reports:
            whole = coordinator.reported(report)
            while whole is not None:
                whole = self._commit(coordinator, whole, worker_of)
        if over:
            return False
        if (epoch := coordinator.begins(_now_us())) is not None:
            roll.command(epoch_command(epoch))
        return True

    _heard = 0  # of `_asked`

    def _commit(self, coordinator: Coordinator, whole: Whole, worker_of: Mapping[str, int]) -> Whole | None:
        """Write the manifest, then have sinks show what it names; answers the epoch that is whole by now, if any."""
        manifest = Manifest(
            whole.epoch,
            self.attempt,
            self._dataflow.name,
            Counter(map(operator_of, worker_of)),  # as they were: readers of a DataFrame are as many as workers came
            tuple(whole.parts),
            whole.is_last,
            worker_of,
            time.time_ns() // 1000,
            line=() if self.committed is None else self.committed.line,
        )
        self.store.require_current(self.attempt)
        self.store.commit(manifest)
        with self._changed:
            self.committed = manifest
            self._changed.notify_all()
        for publication in self._publications.values():
            publication.publish(manifest)
        self._sweep()
        return coordinator.committed(manifest.epoch, _now_us())

    def _sweep(self) -> None:
        """Remove what is not kept. What cannot be removed is tried again with every epoch, and told once."""
        try:
            self.store.keep(self._order.kept)
        except StoreUnusable as error:
            if not self._is_untidy:
                self._is_untidy = True
                self.notes += (f"what is not needed any more stays for now: {error}",)
                log.warning("old epochs stay: %s", error)

    _is_untidy = False  # whether that was told


def _now_us() -> int:
    return time.monotonic_ns() // 1000
