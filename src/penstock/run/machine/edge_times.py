"""How far event time has come on each edge of a worker, and so for each of its tasks. Pure; a part of the machine.

A task's time is that of its slowest input: the least watermark of the edges that neither have ended nor are idle. It
never goes back (`test_watermarks_never_go_back_and_end_at_the_end_of_time`). When all inputs that are left are idle,
the task is idle itself, and its readers go on without it. Its own time is then that of the furthest edge, because no
reader waits for the others (as in Flink). An edge that wakes counts again from the watermark that it had; rows that are
older than the task's time by then are late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, IDLE_US
from penstock.run.machine.instructions import Advance, Idle
from penstock.run.machine.state import TaskState


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Where event time stands for one task."""

    watermark_us: int
    told_us: int
    marks: Mapping[int, int]  # watermarks of its inputs, by edge
    idle: Sequence[int] = ()  # inputs that are idle
    told_idle: bool = False


class EdgeTimes:
    """One watermark for each edge."""

    def __init__(self, edges: int) -> None:
        self._marks = [BEFORE_TIME_US] * edges
        self._idle: set[int] = set()
        self._quiet_us: dict[int, int] = {}  # edges of timed tasks -> the first look since their rows that found none

    def added(self, edge: int) -> None:
        """One more edge, or another in the place of one that is forgotten."""
        self.pass_on(None, edge)

    def pass_on(self, old: int | None, new: int) -> None:
        """What comes along an edge comes along another one from now on, which is as far; None: nothing has come."""
        mark_us = BEFORE_TIME_US if old is None else self._marks[old]
        if new == len(self._marks):
            self._marks.append(mark_us)
        self._marks[new] = mark_us
        is_idle = old in self._idle
        for edge in (old, new):  # a number that is given up, or given anew, brings nothing along
            if edge is not None:
                self.forget(edge)
        if is_idle:
            self._idle.add(new)

    def forget(self, edge: int) -> None:
        """Nothing more comes along an edge; its number may be given to another."""
        self._idle.discard(edge)
        self._quiet_us.pop(edge, None)

    def marked(self, edge: int, time_us: int, task: TaskState) -> None:
        """A mark has been taken; of the marks for a timed task only idleness counts."""
        if time_us == IDLE_US:
            self._idle.add(edge)
            return
        self._idle.discard(edge)
        if not task.layout.timed:
            self._marks[edge] = max(self._marks[edge], time_us)

    def ended(self, edge: int) -> None:
        """Nothing more comes along an edge."""
        self._idle.discard(edge)
        self._marks[edge] = END_OF_TIME_US

    def observed(self, edge: int, time_us: int) -> None:
        """Rows of an edge of a timed task have said how far it is."""
        self._marks[edge] = max(self._marks[edge], time_us)
        self._quiet_us.pop(edge, None)
        self._idle.discard(edge)

    def quieten(self, task: TaskState, now_us: int) -> bool:
        """Edges of a timed task are idle after a long time without rows that have a time; whether one has become so.

        Its sources may have rows all the while, which a filter or a grouping keeps from this task. Rows that wait here,
        because the task may not send or its worker was busy, are not silence: quiet begins with a look that finds none.
        """
        limit_us = task.layout.idle_us
        if limit_us is None:
            return False
        waiting = {entry[0] for entry in task.inbox}
        quiet = []
        for e in task.inputs:
            if task.blocked or e in waiting or e in self._idle or self._marks[e] == END_OF_TIME_US:
                self._quiet_us.pop(e, None)
            elif now_us - self._quiet_us.setdefault(e, now_us) >= limit_us:
                quiet.append(e)
        self._idle.update(quiet)
        if quiet:
            self.settle(task)
        return bool(quiet)

    def saved(self, task: TaskState) -> TaskTimes:
        """What there is to know of a task's time."""
        marks = {e: self._marks[e] for e in task.inputs if self._marks[e] != BEFORE_TIME_US}
        idle = [e for e in task.inputs if e in self._idle]
        return TaskTimes(task.watermark_us, task.told_us, marks, idle, task.told_idle)

    def restore(self, task: TaskState, times: TaskTimes) -> None:
        """Go on from there. An edge that had ended ends again by itself: its sender was saved as finished.

        Whether the task is idle follows from its edges, of which some may be new. What it was told stays told, so it is
        told to wake where they are live (`test_a_task_that_was_told_to_be_idle_is_woken_by_inputs_that_are_new`).
        """
        for edge, mark_us in times.marks.items():
            self._marks[edge] = mark_us
        self._idle.update(times.idle)
        task.watermark_us, task.told_us = times.watermark_us, times.told_us
        task.latest_us = times.watermark_us if times.watermark_us < END_OF_TIME_US else task.latest_us
        task.told_idle = times.told_idle
        if task.inputs:
            self.settle(task)

    def settle(self, task: TaskState) -> None:
        """Bring the task's time up to that of its inputs."""
        if not self._idle:
            task.is_idle = False
            self._advance(task, self._least(task.inputs))
            return
        live = [e for e in task.inputs if e not in self._idle and self._marks[e] < END_OF_TIME_US]
        task.is_idle = not live and any(e in self._idle for e in task.inputs)
        if task.is_idle:
            self._advance(task, max(self._marks[e] for e in task.inputs if e in self._idle))
        else:
            self._advance(task, self._least(live))

    @staticmethod
    def _advance(task: TaskState, time_us: int) -> None:
        task.watermark_us = max(task.watermark_us, time_us)
        if task.watermark_us < END_OF_TIME_US:
            task.latest_us = task.watermark_us

    def _least(self, edges: Sequence[int]) -> int:
        return min([self._marks[e] for e in edges], default=END_OF_TIME_US)


def has_news(task: TaskState) -> bool:
    """Whether event time has moved, stopped or begun again since the task was told."""
    return task.watermark_us > task.told_us or task.is_idle != task.told_idle


def take_news(t: int, task: TaskState) -> Advance | Idle:
    """What to tell a task for which there is news: how far time has come, and after that whether inputs are idle."""
    if task.watermark_us > task.told_us or not task.is_idle:
        task.told_us, task.told_idle = task.watermark_us, False
        return Advance(t, task.watermark_us)
    task.told_idle = True
    return Idle(t)
