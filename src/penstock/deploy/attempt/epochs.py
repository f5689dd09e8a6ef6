"""The driver's side of epochs: begins them, commits what workers have handed over, has sinks show it.

Each attempt has a thread of its own (`epoch_thread.py`); here is what outlasts it: the store, what is committed, what
sinks show. An epoch is committed by its manifest; then sinks publish. What a crash or an error leaves between the two
is published when the job goes on, before anything else (`resume`), or at its end (`finish`). Nothing that waits to be
shown is removed before the last epoch is shown (`test_what_is_committed_and_not_shown_stays_until_it_is`). A later
attempt at the same store, from any driver, ends this one before it commits again.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.files import reason_of
from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epoch_thread import STILL_SECONDS, AttemptEpochs, now_us
from penstock.deploy.attempt.fitting import Fitting
from penstock.deploy.attempt.publications import publications
from penstock.deploy.attempt.recovery import found_note
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InvalidInput, JobFailed, PenstockError, StoreUnusable
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Checkpoint

log = logging.getLogger(__name__)
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
        self.stuck: JobFailed | None = None  # the thread of an attempt does not end, so there can be no other
        self._changed = threading.Condition()
        self._at_work: AttemptEpochs | None = None  # the last attempt whose workers were sent to work
        self._is_finished = False
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
        fitting.require_shown(self.committed)
        fitting.keep(self.attempt)
        if saved is not None:
            self.committed, note = self.store.rewind(self.attempt, saved)
            self.notes = (note,)
        elif self.committed is not None:
            self.notes += (found_note(self.last_epoch, self.store.shown, is_over=self.is_over),)
        self._resume()

    def again(self) -> None:
        """Another attempt begins: void is what is not committed. StaleAttempt where another driver has taken over.

        Where the attempt before got no further than its first epoch, that may be damaged: then all of it is read. So
        it is where its epochs failed, because a manifest may be there although writing it has failed
        (`test_an_epoch_whose_commit_seemed_to_fail_is_found_by_the_next_attempt`).
        """
        self._require_ended()
        self.attempt = self.store.claim(self._dataflow.name, after=self.attempt)  # never back from another driver
        is_known = self.error is None and self.store.numbers()[-1:] == ([self.last_epoch] if self.last_epoch else [])
        if not is_known or self.last_epoch == self._began_from > 0:
            self.committed = self.store.latest()
            self.notes += self.store.notes
        self._resume()
        self._at_work = None

    def _resume(self) -> None:
        self._began_from = self.last_epoch
        if self.committed is not None:
            self.committed = self.store.begin(self.attempt, self.committed)
        with self.store.held(self.attempt):
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.resume(self.committed)

    @property
    def error(self) -> PenstockError | None:
        """Why the epochs of the attempt that was sent to work last could not go on."""
        return None if self._at_work is None else self._at_work.error

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
        interval_us = round(self._order.interval_s * 1e6)
        coordinator = Coordinator(self.attempt, workers, self.last_epoch, interval_us, now_us())
        name = self._dataflow.name
        with self._changed:
            self._at_work = AttemptEpochs(self.attempt, coordinator, roll, worker_of, name, self._commit, self._changed)
        self._at_work.start()

    def kept(self, worker: int, report: Report) -> None:
        """A worker's part is kept; called by the threads of the control server."""
        if report.part.worker != worker:
            msg = f"worker {worker} reports a part of worker {report.part.worker}"
            raise ValueError(msg)
        with self._changed:
            if self._at_work is not None:
                self._at_work.reported(report)

    def end(self) -> None:
        """The attempt is over: what its workers have handed over by now is committed and shown, and nothing after it.

        Waits for as long as that goes forward; what does not is `stuck`.
        """
        attempt = self._at_work
        if attempt is None or self.stuck is not None or attempt.await_end(self._progress):
            return
        self.stuck = JobFailed(
            f"topology {self._dataflow.name!r}: {self.store.shown}, or the folder of a sink, has not answered for "
            f"{STILL_SECONDS:g} s, so attempt {attempt.number} cannot be ended and nobody can go on from it; end this "
            f"process and run the job again when it answers: it goes on from epoch {self.last_epoch}"
        )

    def finish(self) -> None:
        """The job has finished: have sinks show its last epoch, where they do not yet, and remove what else waits.

        Raises what keeps them from showing it; then everything stays as it is, and this can be called again.
        """
        self._require_ended()
        if self._is_finished or self.committed is None:
            return
        with self.store.held(self.attempt):  # what waits may be a later attempt's by now
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.publish(self.committed)
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.finish()
                self.notes += publication.notes
        self._is_finished = True

    def _require_ended(self) -> None:
        if self.stuck is not None:
            raise self.stuck

    # -- for users -----------------------------------------------------------------------------------------------------

    def savepoint(self, name: str, timeout: float = SAVEPOINT_SECONDS) -> Manifest:
        """Commit an epoch that begins now and keep it under a name."""
        none = f"so there is no savepoint {name!r}"
        with self._changed:
            attempt = self._at_work
            if attempt is None or attempt.ends():
                msg = f"the job is recovering or ends, and no epoch can begin, {none}; ask again once it is running"
                raise InvalidInput(msg)
            is_there = attempt.ask()
            self._changed.wait_for(lambda: is_there() or attempt.has_ended, timeout)
            committed = self.committed if is_there() else None
        if committed is None:
            why = f"no epoch that began with this call was committed within {timeout:g} s, {none}; try again"
            if attempt.ends():
                why = f"attempt {attempt.number} has ended before the epoch was there, {none}; ask again if it goes on"
            if attempt.error is not None:
                why = f"epochs cannot go on, {none}: {attempt.error}"
            raise InvalidInput(why) from attempt.error
        self.store.savepoint(name, committed)
        return committed

    # -- the end of every epoch ----------------------------------------------------------------------------------------

    def _commit(self, manifest: Manifest, committed: Callable[[], None]) -> None:
        """Write the manifest, then have sinks show what it names; called by the thread of an attempt."""
        line, shown = ((), {}) if self.committed is None else (self.committed.line, self.committed.shown)
        shown = Counter(shown) + Counter(staged.sink for staged in manifest.staged)
        manifest = replace(manifest, line=line, shown=shown)
        self.store.require_current(manifest.attempt)
        self.store.commit(manifest)
        with self._changed:
            self.committed = manifest
            committed()
            self._changed.notify_all()
        for name, publication in self._publications.items():
            with self._showing(name):
                publication.publish(manifest)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what is not kept. What cannot be removed is tried again with every epoch, and told once."""
        try:
            self.store.keep(self._order.kept)
        except StoreUnusable as error:
            if not self._is_untidy:
                self._is_untidy = True
                self.notes += (f"what is not needed any more stays for now: {error}",)
                log.warning("topology %r: old epochs stay for now: %s", self._dataflow.name, error)

    _is_untidy = False  # whether that was told

    @contextlib.contextmanager
    def _showing(self, sink: str) -> Iterator[None]:
        """What a sink's folder complains of, as an error of the job."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            msg = (
                f"topology {self._dataflow.name!r}: sink {sink!r} cannot show the rows of epoch {self.last_epoch} in "
                f"{self._publications[sink].folder.given}: {reason_of(error)}. They are kept; once the folder can be "
                "written and has room, run the job again and it shows them"
            )
            raise JobFailed(msg) from error

    def _progress(self) -> object:
        changed = [publication.changed for publication in self._publications.values()]
        return self.last_epoch, self.store.removed, changed
