"""The epochs of one attempt at a job: a thread that begins them, and commits and shows what workers hand over.

`checkpoint/coordinator.py` decides; this is its shell. An attempt has its own, with its number, its reports and its
end, so nothing that is left of one reaches the next. What ends the thread early is one typed error, with its cause.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Awaited, Coordinator, Whole
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InternalError, PenstockError
from penstock.model.task_id import operator_of

log = logging.getLogger(__name__)
STILL_SECONDS = 120.0  # in which nothing moves, before a thread counts as stuck: a store may copy a large file so long

Commit = Callable[[Manifest, Callable[[], None]], None]  # the second is called as soon as the manifest is there


class AttemptEpochs:
    """What one attempt's workers hand over, until the attempt is over."""

    def __init__(
        self,
        number: int,
        coordinator: Coordinator,
        roll: Roll,
        worker_of: Mapping[str, int],
        topology: str,
        commit: Commit,
        changed: threading.Condition,
    ) -> None:
        self.number = number
        self.error: PenstockError | None = None  # why its epochs could not go on
        self.has_ended = False  # the thread: nothing more comes of it
        self.is_over = False  # the attempt: the thread ends as soon as it sees this
        self._coordinator, self._roll, self._worker_of = coordinator, roll, dict(worker_of)
        self._topology, self._keep, self._changed = topology, commit, changed
        self._reports: list[Report] = []
        self._asked = self._heard = 0  # epochs wanted out of turn, counted: by users, and as far as the thread knows
        self._begun_for = self._committed_for = 0  # how many of these the epoch under way, and the last one, answer
        self._thread = threading.Thread(target=self._run, name="penstock-epochs", daemon=True)

    def ends(self) -> bool:
        """Whether no further epoch begins."""
        return self.is_over or self.has_ended or self.error is not None

    def awaited(self) -> Awaited | None:
        """The epoch that is under way, and who has not handed it over."""
        return None if self.has_ended else self._coordinator.awaited()

    def start(self) -> None:
        """The workers are at work."""
        self._thread.start()

    def reported(self, report: Report) -> None:
        """A worker's part is kept; `changed` is held."""
        self._reports.append(report)
        self._changed.notify_all()

    def ask(self) -> Callable[[], bool]:
        """Want an epoch that begins from now on; answers what tells whether it is committed. `changed` is held."""
        self._asked += 1
        mine = self._asked
        self._changed.notify_all()
        return lambda: self._committed_for >= mine

    def await_end(self, progress: Callable[[], object]) -> bool:
        """Whether the thread has ended; waits for as long as it goes forward."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
            before: object = None
            while not self.has_ended and before != progress():
                before = progress()
                self._changed.wait_for(lambda: self.has_ended, STILL_SECONDS)
        if self.has_ended:
            self._thread.join()
        return self.has_ended

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as error:  # without epochs the job's promise does not hold
            self.error = self._typed(error)
            level = logging.ERROR if isinstance(self.error, InternalError) else logging.WARNING
            trace = None if self.error.__cause__ is None else self.error  # ours alone says all
            log.log(level, "topology %r, attempt %d: %s", self._topology, self.number, self.error, exc_info=trace)
            self._roll.cancel()
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _typed(self, error: Exception) -> PenstockError:
        if isinstance(error, PenstockError):
            return error
        what = f"the driver's side of epochs failed: {type(error).__name__}: {error}"
        found = InternalError(f"topology {self._topology!r}, attempt {self.number}: {what}; please report this")
        found.__cause__ = error
        return found

    def _turn(self) -> bool:
        """Wait for something to do, and do it; False when the attempt is over."""
        coordinator = self._coordinator
        with self._changed:
            at_us = coordinator.wakes_at()
            wait = None if at_us is None else max(0.0, (at_us - now_us()) / 1e6)
            self._changed.wait_for(lambda: self._reports or self.is_over or self._asked != self._heard, wait)
            asked, reports, over = self._asked, self._reports, self.is_over
            self._reports = []
        if asked != self._heard:
            self._heard = asked
            coordinator.ask()
        for report in reports:
            whole = coordinator.reported(report)
            while whole is not None:
                whole = self._commit(whole)
        if over:
            return False
        if (epoch := coordinator.begins(now_us())) is not None:
            self._begun_for = self._heard
            self._roll.begin_epoch(epoch)
        return True

    def _commit(self, whole: Whole) -> Whole | None:
        """Write the manifest, then have sinks show what it names; answers the epoch that is whole by now, if any."""
        manifest = Manifest(
            whole.epoch,
            self.number,
            self._topology,
            Counter(map(operator_of, self._worker_of)),  # as they were: a DataFrame's readers are as many as workers
            tuple(whole.parts),
            whole.is_last,
            self._worker_of,
            time.time_ns() // 1000,
        )

        def committed() -> None:
            self._committed_for = self._asked if whole.is_last else self._begun_for  # behind the last nothing comes

        self._keep(manifest, committed)
        return self._coordinator.committed(manifest.epoch, now_us())


def now_us() -> int:
    """The clock of epochs."""
    return time.monotonic_ns() // 1000
