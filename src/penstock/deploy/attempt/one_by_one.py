"""Wishes for other places of tasks, met while the tasks that stay go on, where that can be.

What cannot be met so (`why_not_live`) is left to the way of a recovery, for which all tasks stand, and the crossing
says why they did.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.deploy.attempt.crossing import Crossing, Wish
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.attempt.live import Declined, Landed, LiveMover, why_not_live
from penstock.deploy.attempt.resizing import Resizing
from penstock.deploy.driver.binding import Bound, Placing
from penstock.deploy.line.messages import Hello
from penstock.deploy.scaling.planned import fitting_placing
from penstock.errors import JobFailed, PenstockError
from penstock.model.plan import Plan
from penstock.run.dataflow import Dataflow, as_placed, sized


class OneByOne(Resizing):
    """What `Attempts` has of this."""

    crossings: deque[Crossing]
    moves: int
    _bind: Callable[[Placing, Dataflow, Sequence[Hello]], Bound]
    _at_work: Callable[[tuple[Hello, ...], Bound], None]
    _plan: Plan | None
    _stop_asked: bool
    _turn: threading.Lock
    _live: LiveMover | None = None  # the last move of tasks while others went on

    def _moved_live(self, epochs: DriverEpochs, wish: Wish) -> Crossing | None:
        """Move the tasks while the others go on; None where all have to go over."""
        attempt, at_work = self.now, epochs.at_work
        if attempt.is_at_work:  # before that workers connect, and would not know what to add a route to
            attempt.await_work()
        if at_work is None or attempt.deployment is None or not attempt.are_all_at_work or self._stop_asked:
            wish.why_all = "not all workers were at work"
            return None
        before, given = attempt.deployment, sized(self._around.order.dataflow, len(attempt.hellos))
        dataflow = as_placed(given, before.worker_of)
        bound = self._bind(self._wanted(wish, given, dataflow), dataflow, attempt.hellos)
        after = bound.deployment.worker_of
        why = why_not_live(dataflow, before.worker_of, after, attempt.moves)
        if why is not None:
            wish.why_all = why
            return None
        moved = tuple(task for task, worker in after.items() if before.worker_of[task] != worker)

        def landed(found: Landed) -> None:
            with self._turn:
                deployment = replace(before, worker_of=after)
                attempt.moved(deployment)
                self._plan = bound.certified.plan
                self._at_work(attempt.hellos, replace(bound, deployment=deployment))
                self.crossings.append(Crossing(attempt.number, found.epoch, found.seconds, moved, True))
                self.moves += len(moved)

        self._live = LiveMover(attempt.next_move(), attempt, at_work, after, landed)
        self._live.start()
        try:
            found = self._live.outcome()
        except PenstockError as error:
            msg = f"topology {self._name!r} did not go over to another plan: {error}"
            raise JobFailed(msg) from error
        match found:
            case Landed():
                return self.crossings[-1]
            case Declined(why=why, may_cross=True):
                wish.why_all = why
                return None
            case Declined(why=why):
                msg = f"topology {self._name!r} stays as it is, because its tasks cannot move: {why}"
                raise JobFailed(msg)

    def _wanted(self, wish: Wish, given: Dataflow, dataflow: Dataflow) -> Placing:
        """How tasks are to be placed; the dataflow may have other numbers of tasks than it was given with."""
        placing = fitting_placing(self._around.order.placing, given, dataflow)
        return replace(placing, plan=wish.plan, profile=wish.profile or placing.profile)

    @property
    def _is_moving(self) -> bool:
        return self._live is not None and not self._live.is_over
