"""The driver's side of epochs: begins them, commits what workers have handed over, has sinks show it.

Each attempt has a thread of its own (`epoch_thread.py`); here is what outlasts it: the store, what is committed, what
sinks show. An epoch is committed by its manifest; then sinks publish. What a crash or an error leaves between the two
is published when the job goes on, before anything else (`resume`), or at its end (`finish`). Nothing that waits to be
shown is removed before the last epoch is shown (`test_what_is_committed_and_not_shown_stays_until_it_is`). A later
attempt at the same store, from any driver, ends this one before it commits or shows anything again
(`test_a_driver_that_was_taken_over_shows_nothing_that_was_taken_back`).
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
from penstock.checkpoint.coordinator import Awaited, Coordinator
from penstock.checkpoint.files import reason_of
from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epoch_thread import STILL_SECONDS, AttemptEpochs, now_us
from penstock.deploy.attempt.fitting import Fitting
from penstock.deploy.attempt.publications import publications
from penstock.deploy.attempt.recovery import found_note
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import CheckpointDamaged, InvalidInput, JobFailed, PenstockError, StoreUnusable
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Checkpoint

log = logging.getLogger(__name__)
SAVEPOINT_SECONDS = 60.0
LOOKS_MAX = 5  # at a folder in which another job commits meanwhile


@dataclass(frozen=True, slots=True)
class CheckpointOrder:
    """What a job was asked to keep."""

    root: str  # a path or URI that driver and workers reach
    interval_s: float = 10.0
    kept: int = 3  # epochs
    savepoint: str | None = None  # at which the job begins, instead of at its last epoch


@dataclass(eq=False, slots=True)
class _Asked:
    """An epoch that somebody waits for."""

    name: str | None  # of the savepoint that is to be made of it, if any
    is_due: Callable[[], bool]  # an epoch that began with the call, or later, is committed
    is_begun: bool = False  # it is being written
    is_done: bool = False
    saved: Manifest | None = None
    error: PenstockError | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """What a folder held when it was read."""

    numbers: list[int]  # of epochs
    found: Manifest | None

    def holds(self, store: Store) -> bool:
        """Whether that is still so. A savepoint stays, whatever is committed."""
        found = self.found
        try:
            if found is None or found.name is None:
                return store.numbers() == self.numbers and (found is None or store.manifest(found.epoch) == found)
            return store.saved(found.name) == found
        except CheckpointDamaged:
            return False


class DriverEpochs:
    """All epochs of one job in this process, from attempt to attempt."""

    def __init__(self, order: CheckpointOrder, dataflow: Dataflow) -> None:
        self._order, self._dataflow = order, dataflow
        self.store = Store(order.root)
        self._fitting = Fitting(dataflow, self.store)
        self._publications: dict[str, CollectPublication | ParquetPublication] = {}  # those of an open store
        self.committed: Manifest | None = None
        self.attempt = 0  # the number that the store gave last
        self.notes: tuple[str, ...] = ()
        self.state_bytes: dict[str, int] = {}  # of tasks, as last saved in this process
        self.stuck: JobFailed | None = None  # the thread of an attempt does not end, so there can be no other
        self._changed = threading.Condition()
        self._told: set[str] = set()  # savepoints that are damaged
        self._asked: list[_Asked] = []  # for which somebody waits
        self._at_work: AttemptEpochs | None = None  # the last attempt whose workers were sent to work
        self._is_finished = False
        self._began_from = 0  # the epoch from which the attempt before began
        self._looked: _Look | None = None

    # -- from attempt to attempt ---------------------------------------------------------------------------------------

    @property
    def collected(self) -> dict[str, CollectPublication]:
        """Where the rows of collecting sinks are shown, by sink."""
        found = self._publications.items()
        return {name: publication for name, publication in found if isinstance(publication, CollectPublication)}

    @property
    def is_new(self) -> bool:
        """Whether nobody has ever begun the job in this folder; who has claimed it and no more has shown nothing."""
        return self.store.topology() is None or not (self.store.record.has_begun or self.store.numbers())

    def look(self) -> None:
        """Find where the job goes on, and refuse what cannot go on from there; nothing is changed.

        A job that runs there may remove meanwhile what was about to be read. So damage has to be seen twice, with the
        same epochs; and where others are there every time, `open` looks when nobody else commits any more.
        """
        self.store.require_of(self._dataflow.name)
        before: tuple[list[int], str] | None = None
        for _ in range(LOOKS_MAX):
            numbers = self.store.numbers()
            try:
                self.committed = self._found()
            except CheckpointDamaged as damaged:
                if before == (numbers, str(damaged)):
                    raise
                before = numbers, str(damaged)
            else:
                self._looked = _Look(numbers, self.committed)
                return

    def _found(self) -> Manifest | None:
        """Where the job goes on; all of it is there, as it was written."""
        name = self._order.savepoint
        if name is None:
            self._fitting.require(next(reversed(self.store.epochs()), None))  # before much is read
            found = self.store.latest()
            self._fitting.require(found)
        else:
            found = self.store.saved(name)
            self.store.require_on_line(found)
            self._fitting.require(found)
            self.store.require_sound(found)
        self._fitting.require_shown(found)
        return found

    def open(self, clear: Callable[[], None] = lambda: None) -> None:
        """Take the job over where it goes on, and make what sinks show that of the last committed epoch.

        What can refuse this does so before the claim, which ends a job that runs there
        (`test_a_start_that_is_refused_leaves_the_job_that_runs_there_alone`). `clear` removes what sinks overwrite: it
        is called where nobody has begun the job yet, and again if that was cut short.
        """
        if self._looked is None:
            self.look()
        self.attempt = self.store.claim(self._dataflow.name)
        self._publications = publications(self._dataflow, self.store)
        if self._looked is None or not self._looked.holds(self.store):
            self.committed = self._found()
        with self.store.held(self.attempt):  # a later attempt may have begun, and shown rows
            if self.is_new:
                clear()
            self._fitting.keep(self.attempt)
        if self.committed is None:
            self.notes = self.store.notes
        elif self._order.savepoint is None:
            note = found_note(self.last_epoch, self.store.shown, is_over=self.is_over)
            self.notes = (*self.store.notes, note)
        else:
            self.committed, note = self.store.rewind(self.attempt, self.committed)
            self.notes = (note,)
        self._resume()

    def again(self) -> None:
        """Another attempt begins: void is what is not committed. StaleAttempt where another driver has taken over.

        Where the attempt before got no further than its first epoch, that may be damaged: then all of it is read. So
        it is where its epochs failed, because a manifest may be there although writing it has failed
        (`test_an_epoch_whose_commit_seemed_to_fail_is_found_by_the_next_attempt`).
        """
        self._require_ended()
        self._claim_again()
        is_known = self.error is None and self.store.numbers()[-1:] == ([self.last_epoch] if self.last_epoch else [])
        if not is_known or self.last_epoch == self._began_from > 0:
            self.committed = self.store.latest()
            self.notes += self.store.notes
        self._resume()
        self._at_work = None

    def _claim_again(self) -> None:
        """Never back from another driver; a folder that is gone will not be there the next time either."""
        try:
            self.attempt = self.store.claim(self._dataflow.name, after=self.attempt)
        except StoreUnusable as unusable:
            if not isinstance(unusable.__cause__, FileNotFoundError):
                raise
            raise CheckpointDamaged(
                self.store.shown,
                "the folder was removed while the job ran, and all its epochs with it",
                "put it back from a copy and run the job again, or begin anew: rows that its sinks have shown stay "
                "where they are, and a new job adds its own",
            ) from unusable

    def _resume(self) -> None:
        self._began_from = self.last_epoch
        if self.committed is not None:
            self.committed = self.store.begin(self.attempt, self.committed)
            self._compare(self.committed)
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
    def at_work(self) -> AttemptEpochs | None:
        """Those of the attempt whose workers were sent to work last."""
        return self._at_work

    def awaited(self) -> Awaited | None:
        """The epoch that is under way, and who has not handed it over."""
        attempt = self._at_work
        return None if attempt is None else attempt.awaited()

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
            self.state_bytes.update(zip(report.part.tasks, report.sizes, strict=False))
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
        self._compare(self.committed)
        with self.store.held(self.attempt):  # what waits may be a later attempt's by now
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.publish(self.committed)
                    publication.require_whole()  # of all sinks, before anything is taken away
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.finish()
                self.notes += publication.notes
        self._is_finished = True

    def require_as_shown(self) -> None:
        """CheckpointDamaged where a file of a Parquet sink is not as it was shown: Spark would read it all the same.

        A job that has just ended has compared each file before it showed it. This is for one that had ended before:
        what its folders hold is its answer, and has been out of sight since.
        """
        for name, publication in self._publications.items():
            if isinstance(publication, ParquetPublication):
                with self._showing(name):
                    found = publication.fault()
                if found is not None:
                    raise CheckpointDamaged(*found, f"put it back from a copy; rows of sink {name!r} are in it")

    def _require_ended(self) -> None:
        if self.stuck is not None:
            raise self.stuck

    # -- for users -----------------------------------------------------------------------------------------------------

    def savepoint(self, name: str, timeout: float = SAVEPOINT_SECONDS) -> Manifest:
        """Commit an epoch that begins now and keep it under a name."""
        return self._asked_for(name, f"so there is no savepoint {name!r}", timeout)

    def commit(self, none: str, timeout: float) -> Manifest:
        """Commit an epoch that begins now; InvalidInput where there is none in time, and `none` says what of that."""
        return self._asked_for(None, none, timeout)

    def _asked_for(self, name: str | None, none: str, timeout: float) -> Manifest:
        with self._changed:
            attempt = self._at_work
            if attempt is None or attempt.ends():
                msg = f"the job is recovering or ends, and no epoch can begin, {none}; ask again once it is running"
                raise InvalidInput(msg)
            asked = _Asked(name, attempt.ask())
            self._asked.append(asked)
            self._changed.wait_for(lambda: asked.is_begun or attempt.has_ended, timeout)
            self._asked = [other for other in self._asked if other is not asked]
            if asked.is_begun:
                self._changed.wait_for(lambda: asked.is_done or attempt.has_ended, STILL_SECONDS)
        if asked.error is not None:
            raise asked.error
        if asked.saved is None:
            why = f"no epoch that began with this call was committed within {timeout:g} s, {none}; try again"
            if asked.is_begun:
                what = "the epoch" if name is None else f"savepoint {name!r}"
                why = f"{self.store.shown} does not answer, and {what} may be there later; look for it then"
            if attempt.ends():
                why = f"attempt {attempt.number} has ended before the epoch was there, {none}; ask again if it goes on"
            if attempt.error is not None:
                why = f"epochs cannot go on, {none}: {attempt.error}"
            raise InvalidInput(why) from attempt.error
        return asked.saved

    def _save(self, asked: _Asked, manifest: Manifest) -> None:
        """Keep an epoch under a name before any later one has it swept; what is wrong with that ends nothing."""
        try:
            if asked.name is not None:
                self.store.savepoint(asked.name, manifest, manifest.attempt)
            asked.saved = manifest
        except PenstockError as error:
            asked.error = error
        with self._changed:
            asked.is_done = True
            self._changed.notify_all()

    # -- the end of every epoch ----------------------------------------------------------------------------------------

    def _commit(self, manifest: Manifest, committed: Callable[[], None]) -> None:
        """Write the manifest, keep it where somebody waits for that, have sinks show what it names.

        Called by the thread of an attempt. Savepoints are written here because later epochs have this one removed
        (`test_a_savepoint_is_kept_before_later_epochs_have_it_removed`).
        """
        line, shown = ((), {}) if self.committed is None else (self.committed.line, self.committed.shown)
        shown = Counter(shown) + Counter(staged.sink for staged in manifest.staged)
        manifest = replace(manifest, line=line, shown=shown)
        self.store.commit(manifest)
        with self._changed:
            self.committed = manifest
            committed()
            due = [asked for asked in self._asked if asked.is_due()]
            for asked in due:
                asked.is_begun = True
            self._changed.notify_all()
        for asked in due:
            self._save(asked, manifest)
        self._publish(manifest)
        self._sweep()

    def _publish(self, manifest: Manifest) -> None:
        """Have sinks show an epoch, as the current attempt: a later one may have taken it back."""
        self._compare(manifest)
        with self.store.held(manifest.attempt):
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.publish(manifest)

    def _compare(self, manifest: Manifest) -> None:
        """Have sinks read what they are to show, before others have to wait for them."""
        try:
            for name, publication in self._publications.items():
                with self._showing(name):
                    publication.compare(manifest)
        except (CheckpointDamaged, JobFailed):
            self.store.require_current(self.attempt)  # a later one may have moved or taken back what is gone
            raise

    def _sweep(self) -> None:
        """Remove what is not kept. What cannot be removed is tried again with every epoch, and told once."""
        try:
            self.store.keep(self._order.kept)
            faults = self.store.saved_parts.faults
            for name in [name for name in faults if name not in self._told]:
                self._told.add(name)
                self.notes += (
                    f"savepoint {name!r} is damaged: {faults[name]}. What it may name stays, so that its manifest can "
                    "be put back from a copy; or remove its folder",
                )
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
