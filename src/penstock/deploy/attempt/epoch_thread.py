"""The epochs of one attempt at a job: a thread that begins them, and commits and shows what workers hand over.

`checkpoint/coordinator.py` decides; this is its shell. An attempt has its own, with its number, its reports and its
end, so nothing that is left of one reaches the next. What ends the thread early is one typed error, with its cause.
Decision: docs/decisions/0043-epochs.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Awaited, Coordinator, Whole
from penstock.deploy.driver.rendezvous import Roll
from penstock.errors import InternalError, PenstockError
from penstock.model.task_id import operator_of
from penstock.run.engine.moves import home_command

log = logging.getLogger(__name__)
STILL_SECONDS = 120.0  # in which nothing moves, before a thread counts as stuck: a store may copy a large file so long

Commit = Callable[[Manifest, Callable[[], None]], None]  # the second is called as soon as the manifest is there


@dataclass(frozen=True, slots=True)
class Held:
    """No epoch is under way, and this is the next one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Committed:
    """An epoch's manifest is there, and sinks show it."""

    epoch: int


Event = Held | Committed | Report


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
        self._orders: deque[Callable[[Coordinator], None]] = deque()  # to be carried out by the thread
        self._follower: Callable[[Event], None] | None = None  # of a move that is under way
        self._held_at: int | None = None  # as the follower was told last
        self._are_home = False  # whether workers without tasks were told that none will come
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

    # -- moves ---------------------------------------------------------------------------------------------------------

    def follow(self, follower: Callable[[Event], None]) -> None:
        """Begin no epoch but those that a move asks for, and tell it what comes; until `leave`."""

        def hold(coordinator: Coordinator) -> None:
            self._follower, self._held_at = follower, None
            coordinator.hold()

        self._order(hold)

    def begin_one(self) -> None:
        """Begin the move's epoch."""
        self._order(Coordinator.let_one)

    def leave(self, worker_of: Mapping[str, int] | None) -> None:
        """The move is over; where its tasks are now, if it came to that."""

        def release(coordinator: Coordinator) -> None:
            self._follower = None
            self._worker_of = self._worker_of if worker_of is None else dict(worker_of)
            coordinator.release()

        self._order(release)

    def _order(self, order: Callable[[Coordinator], None]) -> None:
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()

    def _tell(self, event: Event) -> None:
        if self._follower is not None:
            self._follower(event)

    def _send_home(self) -> None:
        """Workers that moves have left without tasks end when all others have."""
        left = self._coordinator.unended
        if left and not self._are_home and self._follower is None and left.isdisjoint(self._worker_of.values()):
            self._are_home = True
            self._roll.command(home_command())

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
            self._changed.wait_for(
                lambda: self._reports or self.is_over or self._asked != self._heard or self._orders, wait
            )
            asked, reports, over = self._asked, self._reports, self.is_over
            self._reports = []
            orders = [self._orders.popleft() for _ in range(len(self._orders))]
        for order in orders:
            order(coordinator)
        if asked != self._heard:
            self._heard = asked
            coordinator.ask()
        for report in reports:
            whole = coordinator.reported(report)
            self._tell(report)
            while whole is not None:
                whole = self._commit(whole)
        if over:
            return False
        if (epoch := coordinator.begins(now_us())) is not None:
            self._begun_for = self._heard
            self._roll.begin_epoch(epoch)
        if (held_at := coordinator.held_at) is not None and held_at != self._held_at:
            self._held_at = held_at
            self._tell(Held(held_at))
        if reports or orders:
            self._send_home()
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
        self._tell(Committed(manifest.epoch))
        return self._coordinator.committed(manifest.epoch, now_us())


def now_us() -> int:
    """The clock of epochs."""
    return time.monotonic_ns() // 1000
