"""When tasks want something: a source its next turn, a timer its time, small batches the end of their linger.

The machine asks between any two instructions, so the earliest time is kept, and tasks that cannot have asked for a time
are not looked at. Rejected: a heap of times, in which a timer that moves with every batch leaves an entry each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.run.contract import END_OF_TIME_US
from penstock.run.machine.state import TaskState, may_run, times_of


class Alarms:
    """The times that the tasks of one machine have asked for."""

    def __init__(self, tasks: Sequence[TaskState]) -> None:
        self._tasks = tasks
        self._asked: set[int] = set()
        self.first_us = END_OF_TIME_US  # no task asked for a time before this

    def ask(self, task: int, at_us: int) -> None:
        """A task's state names a time, and it is this one."""
        self._asked.add(task)
        self.first_us = min(self.first_us, at_us)

    def due(self, now_us: int) -> list[int]:
        """The tasks one of whose times has come."""
        found = []
        first_us = END_OF_TIME_US
        for t in tuple(self._asked):
            times = () if self._tasks[t].finished else times_of(self._tasks[t])
            if not times:
                self._asked.discard(t)
                continue
            if min(times) <= now_us:
                found.append(t)
            for at_us in times:
                if now_us < at_us < first_us:
                    first_us = at_us
        self.first_us = first_us
        return found

    def earliest(self) -> int | None:
        """The first time at which a task that may run wants something; it may have come already."""
        first_us: int | None = None
        for t in self._asked:
            task = self._tasks[t]
            if not task.finished and may_run(task):
                for at_us in times_of(task):
                    if first_us is None or at_us < first_us:
                        first_us = at_us
        return first_us
