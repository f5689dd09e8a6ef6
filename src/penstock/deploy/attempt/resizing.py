"""Wishes of a job's users: one at a time, and those that want other workers than the job has.

Workers that are to join are asked of Spark while the job runs, and wait at the attempt that comes next. So a plan for
all of them is made and certified before any of the others stands still. Rejected: new processes for all, as after a
recovery; it costs a start of Spark's action and of Python for the workers that the job has already.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from penstock.deploy.attempt.attempt import Attempt, Surroundings
from penstock.deploy.attempt.crossing import COMMIT_SECONDS, Change, Crossing, Wish
from penstock.deploy.attempt.epochs import DriverEpochs
from penstock.deploy.line.messages import Hello
from penstock.errors import InvalidInput
from penstock.model.plan import Plan
from penstock.model.profile import Profile

PlanOf = Callable[[Sequence[Hello]], tuple[Plan, Profile | None]]


class Resizing:
    """What `Attempts` has of this."""

    now: Attempt
    _around: Surroundings
    _epochs: DriverEpochs | None
    _words: threading.Lock
    _wish: Wish | None = None  # that the thread which supervises looks for
    _is_claimed = False  # somebody wishes for something
    _is_closed = False  # nobody looks for wishes any more

    def rescale(self, plan_of: Callable[[], tuple[Plan, Profile | None]]) -> Crossing:
        """Follow a plan that is made now, when nobody else changes where tasks are. Raises as `go_over`."""
        epochs = self.require_checkpoints("its tasks stay as many as they are")
        with self._claimed():
            return self._followed(epochs, Wish(*plan_of()))

    def resize(self, who_stays: Callable[[], Sequence[int]], joining: int, plan_of: PlanOf, *, anew: bool) -> Crossing:
        """Go on with some of the workers, and with as many others from Spark, under a plan that is made for them.

        The others have said hello, and the plan is made, before anything stands still. Where a worker has ended because
        it had no tasks, all are started anew, if that is allowed, and the job plans when they are there. Raises as
        `go_over`.
        """
        epochs = self.require_checkpoints("its workers stay as many as they are")
        with self._claimed():
            before, stays = self.now, who_stays()
            if not before.is_at_work:
                msg = f"topology {self._name!r} is recovering or ends, so its workers stay as they are; ask again"
                raise InvalidInput(msg)
            change = Change(before, tuple(stays), len(stays) + joining)
            if not before.are_all_at_work:
                if not anew:
                    msg = (
                        f"a worker of topology {self._name!r} has ended because it had no tasks, so all would be "
                        "started anew, wherever Spark has slots; give the job fewer workers instead"
                    )
                    raise InvalidInput(msg)
                return self._followed(epochs, Wish(None, None, change))
            hellos = [replace(before.hellos[old], worker=number) for number, old in enumerate(stays)]
            try:
                if joining:
                    change.joined = Attempt(
                        self._around, epochs.attempt + 1, change.workers, before, change.stays, joining
                    )
                    hellos += change.joined.newcomers(lambda: self.now is not before or not before.is_at_work)
                return self._followed(epochs, Wish(*plan_of(hellos), change))
            finally:
                if change.joined is not None:
                    change.joined.dismiss()

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Nobody else may wish for anything meanwhile."""
        with self._words:
            if self._is_claimed or self._is_moving:
                msg = f"topology {self._name!r} is going over to another plan already; ask again when it has"
                raise InvalidInput(msg)
            self._is_claimed = True
        try:
            yield
        finally:
            self._is_claimed = False

    def _followed(self, epochs: DriverEpochs, wish: Wish) -> Crossing:
        """Have the thread that supervises carry a wish out."""
        self._wish = wish
        try:
            epochs.commit("so its tasks stay where they are", COMMIT_SECONDS)
            with self._words:
                if self._is_closed:
                    msg = f"topology {self._name!r} has ended before it could go over to another plan"
                    raise InvalidInput(msg)
                wish.is_due = True
            self.now.roll.awaken()
            return wish.outcome()
        finally:
            self._wish = None

    def require_checkpoints(self, none: str) -> DriverEpochs:
        """The job's epochs; InvalidInput where it has none, and `none` says what of that."""
        if self._epochs is None:
            msg = f"job {self._name!r} has no checkpoints, so {none}; start it with checkpoint=FOLDER"
            raise InvalidInput(msg)
        return self._epochs

    @property
    def _is_moving(self) -> bool:
        """Whether tasks still move for somebody who waits no longer."""
        return False

    @property
    def _name(self) -> str:
        return self._around.order.dataflow.name
