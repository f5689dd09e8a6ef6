"""Moves: tasks that come to a machine and leave it while it runs, and edges that are led elsewhere. Pure.

A move happens at one epoch, for which all is prepared before: a task that will come counts as one that has finished,
so it is not run, and each new route of an edge waits as if it had met the marker. At the marker a sender that stays
goes over from the old route to the new one (`switch`). A reader that stays lets the new route in when it has been
saved, because by then all has come along the old one (`join`). A task that leaves is saved and gone (`left`); where it
goes, what came meanwhile waits until its state is there (`came`). So rows of an edge come once each and in their order.

Old and new routes are edges of different numbers, so credit of one cannot be taken for that of the other. Numbers of
tasks and edges that are no more are given again to later ones (`over`), so a machine does not grow with its moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from penstock.run.machine.alignment import Alignment
from penstock.run.machine.credit import Credit
from penstock.run.machine.edge_times import EdgeTimes
from penstock.run.machine.instructions import EdgeLayout, TaskLayout, WorkerLayout
from penstock.run.machine.ready import ReadyQueue
from penstock.run.machine.state import TaskState, direct_target

WITHOUT_END = 1 << 62  # the window of a route that nothing is sent along any more
Entry = TypeVar("Entry")


class Routes(NamedTuple):
    """What a machine knows of its edges, by their numbers."""

    edges: list[EdgeLayout]
    targets: list[int | None]
    straight: list[int | None]
    direct: list[int | None]


class Switch(NamedTuple):
    """An edge whose route changes."""

    old: int
    new: int


class Moves:
    """The move of one machine that is prepared or under way, and the places of what has gone."""

    def __init__(
        self,
        layout: WorkerLayout,
        routes: Routes,
        tasks: list[TaskState],
        times: EdgeTimes,
        credit: Credit,
        alignment: Alignment,
        ready: ReadyQueue,
    ) -> None:
        self._layout, self._routes, self._tasks = layout, routes, tasks
        self._task_layouts: list[TaskLayout] = layout.tasks  # type: ignore[assignment] # the machine's own list
        self._times, self._credit, self._alignment, self._ready = times, credit, alignment, ready
        self.epoch = 0  # at which it happens; 0: none is under way
        self.coming: set[int] = set()  # tasks
        self.leaving: set[int] = set()
        self._switches: dict[int, list[Switch]] = {}  # by the sender that stays
        self._joins: dict[int, list[Switch]] = {}  # by the reader that stays
        self._new_edges: list[int] = []
        self._old_tasks: list[int] = []  # that are no more when it is over
        self._old_edges: set[int] = set()
        self._left_edges: list[int] = []  # along which nothing comes or goes any more, since this was last asked
        self._free_tasks: list[int] = []  # numbers to be given again
        self._free_edges: list[int] = []

    # -- before the epoch ----------------------------------------------------------------------------------------------

    def prepare(self, epoch: int, leaving: Sequence[int]) -> None:
        """The next epoch is that of a move; these tasks leave."""
        if self.epoch:
            msg = f"a move at epoch {epoch} is prepared while that at epoch {self.epoch} is under way"
            raise ValueError(msg)
        self.epoch = epoch
        self.leaving = set(leaving)

    def add_task(self, layout: TaskLayout) -> int:
        """A task will come; its number. Until then it counts as finished for everything but the end of the worker."""
        t = self._free_tasks.pop() if self._free_tasks else len(self._tasks)
        put(self._tasks, t, TaskState(layout, [], [], 0, finished=True))
        put(self._task_layouts, t, layout)
        self.coming.add(t)
        return t

    def add_edge(self, layout: EdgeLayout, old: int | None) -> int:
        """A new route of an edge with an end here; `old` is its route until then, where an end that is here stays."""
        e = self._free_edges.pop() if self._free_edges else len(self._routes.edges)
        put(self._routes.edges, e, layout)
        put(self._routes.targets, e, layout.target)
        put(self._routes.straight, e, direct_target(self._layout, layout))
        put(self._routes.direct, e, None)
        self._times.added(e)
        self._credit.added(e)
        self._new_edges.append(e)
        if layout.target is not None:
            self._alignment.hold(e)
            self._tasks[layout.target].open_inputs += 1
            if layout.target in self.coming:
                self._tasks[layout.target].inputs.append(e)
            else:
                self._joins.setdefault(layout.target, []).append(_switch(old, e))
                self._alignment.joined.add(layout.target)
        if layout.source is not None:
            if layout.source in self.coming:
                self._tasks[layout.source].outputs.append(e)
            else:
                self._switches.setdefault(layout.source, []).append(_switch(old, e))
        return e

    def drop(self) -> int:
        """Nothing comes of it, and the epoch has not begun; how many tasks do not come."""
        for t, joins in self._joins.items():
            self._tasks[t].open_inputs -= len(joins)
            self._alignment.joined.discard(t)
            self._ready.consider(t)
        for e in self._new_edges:
            self._alignment.forget(e)
            self._times.forget(e)
        coming = len(self.coming)
        self._free_tasks += self.coming
        self._free_edges += self._new_edges
        self._joins, self._switches = {}, {}
        self._begin_anew()
        return coming

    # -- at the epoch --------------------------------------------------------------------------------------------------

    def require_at(self, epoch: int) -> None:
        """ValueError where a move is prepared for another epoch than the one that begins."""
        if self.epoch > epoch > self._alignment.epoch:
            msg = f"epoch {epoch} begins where a move is prepared for epoch {self.epoch}"
            raise ValueError(msg)

    def still_to_switch(self, t: int) -> list[int]:
        """New routes of outputs that a task has not taken, at the epoch that is under way."""
        if not self.epoch or self._alignment.epoch != self.epoch:
            return []
        return [switch.new for switch in self._switches.get(t, ())]

    def switching(self) -> list[int]:
        """Tasks that have not taken new routes of theirs yet."""
        return list(self._switches)

    def join(self, t: int) -> None:
        """A task has been saved: of what it reads, the new routes take the places of the old ones."""
        if self._alignment.epoch != self.epoch:
            return
        task = self._tasks[t]
        for old, new in self._joins.pop(t, ()):
            task.inputs[task.inputs.index(old)] = new
            task.open_inputs -= not self._alignment.has_ended(old)
            self._times.pass_on(old, new)
            self._give_up(old)
        self._alignment.joined.discard(t)

    def switch(self, t: int) -> list[Switch]:
        """A task has sent the marker along all old routes: the outputs that are led elsewhere from now on."""
        if self._alignment.epoch != self.epoch:
            return []
        task, found = self._tasks[t], self._switches.pop(t, [])
        for old, new in found:
            task.outputs[task.outputs.index(old)] = new
            self._credit.unblock(old)
            self._routes.edges[old] = replace(self._routes.edges[old], window=WITHOUT_END)
            self._leave(old)
        return found

    def left(self, t: int) -> None:
        """A task has been saved, or had finished, and works elsewhere from now on."""
        task = self._tasks[t]
        task.finished = True
        self.leaving.discard(t)
        self._old_tasks.append(t)
        for e in task.inputs:
            self._give_up(e)
        for e in task.outputs:
            self._leave(e)

    def came(self, t: int) -> None:
        """The state of a task that was to come is there."""
        self.coming.remove(t)
        self._tasks[t].finished = False

    def is_old(self, e: int) -> bool:
        """Whether an edge is a former route, which is no more when the move is over."""
        return e in self._old_edges

    def take_left_edges(self) -> list[int]:
        """Edges along which nothing comes or goes from here any more, but credit that is late."""
        left, self._left_edges = self._left_edges, []
        return left

    # -- questions -----------------------------------------------------------------------------------------------------

    def outputs_of(self, t: int) -> Sequence[int]:
        """The edges that leave a task."""
        return self._tasks[t].outputs

    def inputs_of(self, t: int) -> Sequence[int]:
        """The edges into a task."""
        return self._tasks[t].inputs

    def has_finished(self, t: int) -> bool:
        """Whether a task has come to its end."""
        return self._tasks[t].finished

    # -- behind it -----------------------------------------------------------------------------------------------------

    def over(self) -> None:
        """Every worker is past it: the numbers of what has gone may be given again."""
        if self._joins or self.coming or self.leaving:
            msg = (
                f"the move at epoch {self.epoch} counts as over where tasks are still to come, to leave or to be saved"
            )
            raise ValueError(msg)
        for t in tuple(self._switches):  # it had finished before the marker
            self.switch(t)
        for e in self._old_edges:
            self._alignment.forget(e)
        for t in self._old_tasks:
            self._tasks[t] = TaskState(self._tasks[t].layout, [], [], 0, finished=True)
        self._free_tasks += self._old_tasks
        self._free_edges += self._old_edges
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.epoch = 0
        self.coming, self.leaving, self._old_edges = set(), set(), set()
        self._new_edges, self._old_tasks = [], []

    def _give_up(self, e: int) -> None:
        """Nothing more comes in along an edge."""
        self._times.forget(e)
        self._credit.forgive(e)
        if self._alignment.forget(e):
            msg = f"edge {e} brought something behind the marker of epoch {self.epoch}, at which it was led elsewhere"
            raise ValueError(msg)
        self._leave(e)

    def _leave(self, e: int) -> None:
        if e not in self._old_edges:
            self._old_edges.add(e)
            self._left_edges.append(e)


def _switch(old: int | None, new: int) -> Switch:
    if old is None:
        msg = f"edge {new} has an end that stays, and no route until now"
        raise ValueError(msg)
    return Switch(old, new)


def put(entries: list[Entry], i: int, entry: Entry) -> None:
    """In its place, or behind the last."""
    if i == len(entries):
        entries.append(entry)
    else:
        entries[i] = entry
