"""Credit: how much each edge may still carry, which tasks are blocked for want of it, and when it goes back.

An edge holds at most its window of bytes that the receiving task has not taken yet. A task runs while every one of its
outputs is below its window; a selective task names the one output that it waits for. What a run emits may overdraw a
window by that one run (`test_queues_stay_within_their_windows`).

Credit goes back when a quarter of the window has been taken. Less can wait: a sender without credit has a whole window
outstanding, and a taken window is more than a quarter. Rejected: sending credit back whenever there is nothing else to
do, for which a third of all wake-ups were at a steady rate. A splitter waits for single slices and tells by their
credit which replica is late, so on `prompt` edges any credit goes back soon
(`test_credit_goes_back_by_quarters_and_to_a_splitter_within_two_milliseconds_or_at_rest`).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US
from penstock.run.machine.instructions import EdgeLayout, Grant
from penstock.run.machine.ready import ReadyQueue
from penstock.run.machine.state import Moment, TaskState

GRANT_FRACTION = 4
GRANT_PROMPT_US = 2_000  # between two grants of a prompt edge


class Credit:
    """The windows of one machine's edges: drawn from by its own tasks, owed to the senders elsewhere."""

    def __init__(
        self, edges: Sequence[EdgeLayout], tasks: Sequence[TaskState], ready: ReadyQueue, moment: Moment
    ) -> None:
        self._edges, self._tasks, self._ready, self._moment = edges, tasks, ready, moment
        self._outstanding = [0] * len(edges)
        self._owed: dict[int, int] = {}  # inbound edge -> bytes taken whose credit has not gone back yet
        self._due: list[int] = []  # of those, a quarter of the window and more
        self._granted_us: dict[int, int] = {}  # prompt edges -> when credit last went back
        self.awaited: dict[int, int] = {}  # prompt edges with less than that -> when it goes back at the latest
        self.grant_at_us = END_OF_TIME_US  # nothing goes back before this

    def added(self, edge: int) -> None:
        """One more edge, or another in the place of one that is forgotten."""
        if edge == len(self._outstanding):
            self._outstanding.append(0)
        self._outstanding[edge] = 0

    # -- outputs -------------------------------------------------------------------------------------------------------

    def outstanding(self, edge: int) -> int:
        """Bytes of an output whose credit has not come back."""
        return self._outstanding[edge]

    def has_room(self, edge: int) -> bool:
        """Whether an output is below its window."""
        return self._outstanding[edge] < self._edges[edge].window

    def draw(self, edge: int, size: int) -> None:
        """More bytes are on their way along an edge."""
        before = self._outstanding[edge]
        self._outstanding[edge] = before + size
        layout = self._edges[edge]
        if layout.source is not None and before < layout.window <= before + size:
            task = self._tasks[layout.source]
            if task.layout.selective:
                return
            task.blocked += 1
            if task.blocked == 1:
                task.blocked_since_us = self._moment.us

    def release(self, edge: int, size: int) -> None:
        """The receiver of an output has taken bytes."""
        before = self._outstanding[edge]
        layout = self._edges[edge]
        self._outstanding[edge] = before - size
        source = layout.source
        if source is None:
            return
        task = self._tasks[source]
        if task.layout.selective:
            if task.wanted is not None:
                task.credited = True
                self._gate(source, task)
        elif before >= layout.window > before - size:
            task.blocked -= 1
            if not task.blocked:
                task.blocked_us += self._moment.us - task.blocked_since_us
                self._ready.consider(source)

    def want(self, t: int, edge: int | None) -> None:
        """A selective task holds data for this output and nothing else; None: it holds nothing."""
        task = self._tasks[t]
        task.wanted, task.credited = edge, False
        self._gate(t, task)

    def _gate(self, t: int, task: TaskState) -> None:
        """Block a selective task while the output that it wants is full."""
        full = task.wanted is not None and not self.has_room(task.wanted)
        if full and not task.blocked:
            task.blocked_since_us = self._moment.us
        elif task.blocked and not full:
            task.blocked_us += self._moment.us - task.blocked_since_us
        task.blocked = int(full)
        if task.wanted is not None:
            self._ready.consider(t)

    def unblock(self, edge: int) -> None:
        """An output is led elsewhere: what is still on its way there holds its task up no longer."""
        layout, outstanding = self._edges[edge], self._outstanding[edge]
        if layout.source is not None and outstanding >= layout.window:
            self.release(edge, outstanding - layout.window + 1)
            self._outstanding[edge] = outstanding

    def take_blocked_us(self, t: int) -> int:
        """How long a task has been without credit since this was last asked."""
        task, now_us = self._tasks[t], self._moment.us
        if task.blocked:
            task.blocked_us += now_us - task.blocked_since_us
            task.blocked_since_us = now_us
        taken, task.blocked_us = task.blocked_us, 0
        return taken

    # -- inputs --------------------------------------------------------------------------------------------------------

    def give_back(self, edge: int, size: int) -> None:
        """What came along an edge has been taken: its credit returns, at once where the sender is on this worker."""
        layout = self._edges[edge]
        if layout.source is not None:
            self.release(edge, size)
            return
        owed = self._owed[edge] = self._owed.get(edge, 0) + size
        if owed * GRANT_FRACTION >= layout.window:
            self.awaited.pop(edge, None)
            if edge not in self._due:
                self._due.append(edge)
            self.grant_at_us = BEFORE_TIME_US
        elif layout.prompt and edge not in self.awaited:
            self.awaited[edge] = at_us = self._granted_us.get(edge, 0) + GRANT_PROMPT_US
            self.grant_at_us = min(self.grant_at_us, at_us)

    def owed(self, edge: int) -> int:
        """Bytes taken from an inbound edge whose credit has not gone back yet."""
        return self._owed.get(edge, 0)

    def forgive(self, edge: int) -> None:
        """Nobody waits for the credit of an inbound edge any more."""
        self._owed.pop(edge, None)
        self._granted_us.pop(edge, None)
        if self.awaited.pop(edge, None) is not None or edge in self._due:
            self._due = [other for other in self._due if other != edge]
            self._look_again()

    def _look_again(self) -> None:
        later_us = min(self.awaited.values(), default=END_OF_TIME_US)
        self.grant_at_us = BEFORE_TIME_US if self._due else later_us

    def take_grant(self, now_us: int) -> Grant:
        """The next credit to send back; there must be some that is due, or awaited."""
        edge = self._due.pop(0) if self._due else min(self.awaited, key=self.awaited.__getitem__)
        if self._edges[edge].prompt:
            self.awaited.pop(edge, None)
            self._granted_us[edge] = now_us
        self._look_again()
        return Grant(edge, self._owed.pop(edge))
