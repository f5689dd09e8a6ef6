"""Going over to another plan: what is wished, and what came of it.

Tasks move behind a marker while the others go on (`live.py`). What that does not cover goes the way of a recovery: the
job commits an epoch, its workers stand still, and the same processes go on under the other plan from that epoch, as
another attempt. All streams stand for as long as that takes.
Decision: docs/decisions/0046-moves.md.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.deploy.driver.rendezvous import wait_in_steps
from penstock.errors import PenstockError
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.task_id import operator_of

if TYPE_CHECKING:
    from penstock.deploy.attempt.attempt import Attempt

COMMIT_SECONDS = 60.0  # for the epoch from which the job goes on


@dataclass(frozen=True, slots=True)
class Crossing:
    """One time that a job went over to another plan."""

    attempt: int  # that follows the plan
    epoch: int  # from which it goes on
    seconds: float  # for which the tasks that moved stood, or all: see `stood`
    moved: tuple[str, ...]  # tasks that are elsewhere now
    has_kept_processes: bool  # else Spark has started others
    stood: str = ""  # why all tasks stood, from standing still, or being ended, until they were at work; "": only moved
    scaled: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # by operator: tasks before, and now
    workers: tuple[int, int] = (0, 0)  # before, and now

    @classmethod
    def between(
        cls,
        before: Mapping[str, int],
        after: Mapping[str, int],
        stays: Sequence[int] | None,
        workers: tuple[int, int],
        attempt: int,
        epoch: int,
        seconds: float,
        *,
        kept: bool,
        stood: str,
    ) -> Crossing:
        """By which worker runs which task; `kept`: in the same processes. What is new or gone has not moved.

        `stays`: the workers that stay, in the order of their new numbers, by which names of slots change too; None: all
        do. So a task has moved where its worker is another one, whatever that is called.
        """
        then, now = (Counter(map(operator_of, tasks)) for tasks in (before, after))
        numbers = range(workers[0]) if stays is None else stays
        number_of = {old: new for new, old in enumerate(numbers)}
        scaled = {name: (then[name], now[name]) for name in then if then[name] != now[name]}
        moved = tuple(task for task, at in after.items() if task in before and number_of.get(before[task]) != at)
        return cls(attempt, epoch, seconds, moved, kept, stood, scaled, workers)

    @property
    def note(self) -> str:
        """A sentence for the job's user."""
        changes = [
            f"{name!r} has {_counted(now, 'task')} instead of {then}" for name, (then, now) in self.scaled.items()
        ]
        then, now = self.workers
        changes += [f"{_counted(now, 'worker')} instead of {then}"] if then != now else []
        changes += [f"{_counted(len(self.moved), 'task')} moved"]
        went = f"the job went over to another plan at epoch {self.epoch}: {', '.join(changes)}"
        if not self.stood:
            return f"{went} in {self.seconds:.3f} s, while the others went on"
        how = "" if self.has_kept_processes else ", in new processes"
        why = f"; all tasks stood because {self.stood}"
        return f"{went}, and it stood for {self.seconds:.3f} s (attempt {self.attempt}){how}{why}"


@dataclass(slots=True)
class Change:
    """Other workers than the job has."""

    of: Attempt  # whose workers they were when this was wished
    stays: tuple[int, ...]  # of these, in the order in which they are numbered from now on
    workers: int  # in all
    joined: Attempt | None = None  # the next attempt, where those that join have said hello already


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class Wish:
    """A plan that the job is to follow, and what came of it; its maker waits in another thread."""

    def __init__(self, plan: Plan | None, profile: Profile | None, change: Change | None = None) -> None:
        """Without a plan the job makes one when it has the workers of the change."""
        self.plan, self.profile, self.change = plan, profile, change
        self.is_due = False  # an epoch is committed: it is time
        self.why_all = "operators or workers become more or fewer"  # why all tasks have to stand for it
        self._answered = threading.Event()
        self._found: Crossing | PenstockError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether it is known what came of it."""
        return self._answered.is_set()

    def grant(self, crossing: Crossing) -> None:
        """The job follows the plan."""
        self._answer(crossing)

    def refuse(self, error: PenstockError) -> None:
        """It does not."""
        self._answer(error)

    def _answer(self, found: Crossing | PenstockError) -> None:
        if not self.is_answered:
            self._found = found
            self._answered.set()

    def outcome(self) -> Crossing:
        """Wait for what comes of it; raises why the job does not follow the plan."""
        wait_in_steps(self._answered.wait, None)
        if isinstance(self._found, Crossing):
            return self._found
        raise self._found or AssertionError
