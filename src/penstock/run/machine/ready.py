"""The ready queue: which of the tasks that may have something to do is looked at next.

Tasks nearer to the sinks go first, those of one depth by turns: what is under way is finished before more is begun
(decision 13). One look in FAIR_EVERY may be for the task that has been ready for longest, wherever it stands. Without
that a source would starve beside a reader that others feed without end
(`test_a_task_that_can_run_does_so_soon_however_much_comes_in_nearer_to_the_sinks`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import itemgetter

from penstock.run.machine.state import TaskState

FAIR_EVERY = 16  # looks
STARVED_AFTER = 64  # tasks that became ready later


class ReadyQueue:
    """Tasks that may have something to do, each at most once; the machine finds out whether one has."""

    __slots__ = ("_heap", "_tasks", "_turn", "_until_fair")

    def __init__(self, tasks: Sequence[TaskState]) -> None:
        self._tasks = tasks
        self._heap: list[tuple[float, int, int]] = []  # -depth, turn, task
        self._turn = 0
        self._until_fair = FAIR_EVERY

    def consider(self, t: int) -> None:
        """Queue a task; one that waits for credit, unless it chose one output to wait for, is queued by the credit."""
        task = self._tasks[t]
        if not task.queued and not task.finished and (not task.blocked or task.layout.selective):
            task.queued = True
            self._turn += 1
            heapq.heappush(self._heap, (-task.layout.depth, self._turn, t))

    def pop(self) -> int:
        """The next task that may run, out of the queue; -1: there is none."""
        heap, tasks = self._heap, self._tasks
        while heap:
            self._until_fair -= 1
            t = heapq.heappop(heap)[2] if self._until_fair else self._pop_starved()
            task = tasks[t]
            task.queued = False
            if not task.finished and (not task.blocked or task.layout.selective):
                return t
        return -1

    def _pop_starved(self) -> int:
        """The task that has been ready for longest, if that is long, or else the next one."""
        self._until_fair = FAIR_EVERY
        oldest = min(self._heap, key=itemgetter(1))
        if self._turn - oldest[1] < STARVED_AFTER:
            return heapq.heappop(self._heap)[2]
        self._heap.remove(oldest)
        heapq.heapify(self._heap)
        return oldest[2]
