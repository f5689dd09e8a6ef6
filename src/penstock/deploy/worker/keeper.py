"""Keeper: writes a worker's part of each epoch in a thread of its own, and tells the driver that it is kept.

The worker's loop hands over states and goes on. The thread finishes the files of sinks, encodes, compresses, writes and
syncs; then it reports over the control line, in the order of epochs. What cannot be kept ends the worker: an epoch that
never completes would hold every later one back. The thread complains to the driver, because the loop may be in a long
call, and wakes the loop, which looks (`check`). The last part is waited for, because the process ends behind it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.checkpoint.contract import Manifest, Part, Report
from penstock.checkpoint.store import Store
from penstock.errors import InternalError, InvalidInput
from penstock.model.task_id import tasks_of_operator
from penstock.run.columns.unwritten import State, Written, in_bytes, written
from penstock.run.contract import Staged, Staging
from penstock.run.engine.epochs import Restored, TaskSnapshot
from penstock.run.engine.worker import Cancelled, Checkpoint

WAITING_MAX = 4  # one epoch at a time is under way, and behind it the end
LOOK_SECONDS = 0.1


class Unkept(Exception):
    """A part of an epoch could not be written or told."""

    def __init__(self, message: str, refused: str = "") -> None:
        """`refused`: why no other attempt could keep it, where that is so."""
        super().__init__(message)
        self.refused = refused


class Keeper:
    """One worker's port to the store; implements `penstock.run.engine.epochs.Epochs`."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        worker: int,
        tell: Callable[[Report], None],
        complain: Callable[[str, str], None],
        cancelled: Callable[[], bool],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`tell` carries a report to the driver, `complain` why there is none; both are called by the thread.

        `complain` is given `message` and `refused` of an `Unkept`, and then sees to it that the loop calls `check`.
        `wake` has the loop look at what was fetched.
        """
        self.first = checkpoint.first
        self._checkpoint, self._worker, self._tell = checkpoint, worker, tell
        self._complain, self._cancelled, self._wake = complain, cancelled, wake
        self._fetched: Sequence[TaskSnapshot] | Exception | None = None  # of tasks that come from other workers
        self._store = Store(checkpoint.root)
        self._manifest = None if checkpoint.restore is None else self._store.manifest(checkpoint.restore)
        self._read: dict[str, Mapping[str, TaskSnapshot]] = {}  # parts by their path
        self._waiting: queue.Queue[tuple[int | None, Sequence[TaskSnapshot]] | None] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        self._stepped_s: float | None = None  # the thread's last step; None while it has nothing to do

    # -- before the run ------------------------------------------------------------------------------------------------

    def restored(self, operator: str) -> Restored | None:
        """What the operator's tasks continue from; parts are read as they are asked for."""
        manifest = self._manifest
        if manifest is None or not manifest.tasks.get(operator):
            return None
        names = tasks_of_operator(operator, manifest.tasks[operator])
        finished = {task for part in manifest.parts for task in part.finished}
        return Restored([name in finished for name in names], _States(self, manifest, names))

    def snapshot_of(self, manifest: Manifest, task: str) -> TaskSnapshot:
        """One task at the marker that is continued from."""
        part = next(part for part in manifest.parts if task in part.tasks)
        if part.path not in self._read:
            self._read[part.path] = {snapshot.task: snapshot for snapshot in self._store.read_part(part)}
        return self._read[part.path][task]

    def begin(self) -> None:
        """The tasks are put back: let go of what was read."""
        self._read.clear()

    # -- called by the worker's loop -----------------------------------------------------------------------------------

    def completed(self, epoch: int, snapshots: Sequence[TaskSnapshot]) -> None:
        """All tasks are past this marker; the thread does the rest."""
        self._hand((epoch, snapshots))

    def ended(self, snapshots: Sequence[TaskSnapshot]) -> None:
        """All tasks have finished: keep their part of every epoch from now on."""
        self._hand((None, snapshots))
        self.finish()

    def fetch(self, parts: Sequence[Mapping[str, Any]], tasks: Collection[str]) -> None:
        """Read what these tasks knew, in a thread: a part may be large, and the tasks that are here go on."""
        found = [Part(int(p["worker"]), str(p["path"]), int(p["size"]), str(p["checksum"]), ()) for p in parts]
        wanted = frozenset(tasks)
        self._fetched = None
        threading.Thread(target=self._fetch, args=(found, wanted), name="penstock-fetch", daemon=True).start()

    def fetched(self) -> Sequence[TaskSnapshot] | None:
        """What was read; None: not yet."""
        found, self._fetched = self._fetched, None
        if isinstance(found, Exception):
            raise found
        return found

    def _fetch(self, parts: Sequence[Part], tasks: frozenset[str]) -> None:
        try:
            read = [known for part in parts for known in self._store.read_part(part) if known.task in tasks]
            if missing := sorted(tasks - {known.task for known in read}):
                msg = f"worker {self._worker}: no part of the epoch has the state of {missing}; please report this"
                raise InternalError(msg)
            self._fetched = [replace(known, state=in_bytes(known.state)) for known in read]
        except Exception as error:
            self._fetched = error
        self._wake()

    def still_s(self) -> float:
        """For how long the thread has made no step, though it has something to keep; another thread asks."""
        stepped_s = self._stepped_s
        return 0.0 if stepped_s is None else max(0.0, time.monotonic() - stepped_s)

    def check(self) -> None:
        """Raise what went wrong with what was handed over."""
        self._check()

    def finish(self) -> None:
        """Wait until everything that was handed over is kept."""
        self._hand(None)
        while self._thread is not None and self._thread.is_alive():
            self._check()
            self._thread.join(LOOK_SECONDS)
        self._check()

    def close(self) -> None:
        """Wait for nothing any more; the thread ends when it has written what it is at."""
        self._cancelled = lambda: True
        while self._thread is not None and self._thread.is_alive():
            try:
                self._waiting.put_nowait(None)
                break
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                except queue.Empty:
                    continue

    def _hand(self, entry: tuple[int | None, Sequence[TaskSnapshot]] | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-keeper", daemon=True)
            self._thread.start()
        while True:
            self._check()
            try:
                return self._waiting.put(entry, timeout=LOOK_SECONDS)
            except queue.Full:
                continue

    def _check(self) -> None:
        if self.error is not None:
            raise self._unkept(self.error) from self.error
        if self._cancelled():
            msg = f"worker {self._worker} was cancelled"
            raise Cancelled(msg)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (entry := self._waiting.get()) is not None:
                self._step()
                self._keep(*entry)
                self._stepped_s = None
                if self._cancelled():
                    return
        except Exception as error:  # whatever it is, the worker must not go on as if its epochs were kept
            self.error = error
            self._stepped_s = None
            unkept = self._unkept(error)
            self._complain(str(unkept), unkept.refused)

    def _step(self) -> None:
        self._stepped_s = time.monotonic()

    def _unkept(self, error: Exception) -> Unkept:
        why = f"worker {self._worker} could not keep its part of an epoch in {self._store.shown}: {error}"
        return Unkept(why, why if isinstance(error, InvalidInput) else "")  # a limit, which is there the next time too

    def _keep(self, epoch: int | None, snapshots: Sequence[TaskSnapshot]) -> None:
        attempt = self._checkpoint.attempt
        whole = [replace(s, staged=tuple(self._finished(each) for each in s.staged)) for s in snapshots]
        states = [_Steps(s.state, self._step) for s in whole]
        whole = [replace(s, state=state) for s, state in zip(whole, states, strict=True)]
        part = self._store.write_part(attempt, epoch, self._worker, whole)
        self._step()
        if not self._cancelled():
            self._tell(Report(attempt, epoch, part, tuple(state.size for state in states)))

    def _finished(self, staging: Staging) -> Staged:
        self._step()
        return staging.finish()


class _Steps(Mapping[str, State]):
    """The states of a task; one is asked for when the one before has been written, and that is a step."""

    def __init__(self, states: Mapping[str, State], step: Callable[[], None]) -> None:
        self._given, self._step = states, step
        self._sizes: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes of all that have been written."""
        return sum(self._sizes.values())

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __getitem__(self, name: str) -> State:
        self._step()
        return _Weighed(self._given[name], partial(self._sizes.__setitem__, name))


class _Weighed:
    """One state, which says how large it is when it is written."""

    def __init__(self, state: State, tell: Callable[[int], None]) -> None:
        self._state, self._tell = state, tell

    def written(self) -> Written:
        """The bytes."""
        found = written(self._state)
        self._tell(len(found))
        return found


class _States(Sequence[Mapping[str, bytes]]):
    """The states of an operator's tasks, each read when it is asked for: most workers want a few."""

    def __init__(self, keeper: Keeper, manifest: Manifest, names: Sequence[str]) -> None:
        self._keeper, self._manifest, self._names = keeper, manifest, names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Mapping[str, bytes]:  # type: ignore[override] # slices are not asked for
        return in_bytes(self._keeper.snapshot_of(self._manifest, self._names[index]).state)

    def __iter__(self) -> Iterator[Mapping[str, bytes]]:
        return (self[index] for index in range(len(self)))
