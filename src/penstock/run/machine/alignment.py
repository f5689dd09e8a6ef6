"""Alignment: where a marker has come to on one worker, and what waits behind it. Pure; a part of the machine.

A marker of epoch e cuts every edge. What comes on an edge behind its marker waits aside, before it reaches any queue of
the machine, until the task at the edge's end has been saved. So all that a task finds in its inbox meanwhile belongs
before the marker, slices and partial slices of a region included, and it works that off in any order. An ended edge
counts as aligned. Sources meet the marker as soon as the worker hears of the epoch, by the driver's word or by the
first marker that comes in. One epoch is under way at a time; why nothing locks up is in docs/decisions/0043-epochs.md.

Rejected: markers as entries of inboxes, which would have to be overtaken by the edges that have not met theirs yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from penstock.run.machine.instructions import WorkerLayout
from penstock.run.machine.state import TaskState

Came = Callable[[], None]  # what came behind a marker, to be taken in later


class Alignment:
    """The markers of one machine."""

    def __init__(self, layout: WorkerLayout, tasks: Sequence[TaskState]) -> None:
        self._layout, self._tasks = layout, tasks
        self.epoch = 0  # the one under way, or the last
        self.aside: dict[int, list[Came]] = {}  # by edge, from its marker to the saving of the task at its end
        self.aside_bytes: dict[int, int] = {}  # of batches, by edge
        self.aside_batches: Counter[int] = Counter()  # likewise
        self._parts_bytes: dict[int, int] = {}  # of batches aside whose slice is not whole
        self._ended: set[int] = set()  # edges that have ended, in front of every queue
        self._lacking: dict[int, set[int]] = {}  # tasks that have met the marker -> open inputs without it
        self._due: set[int] = set()  # tasks that are neither saved in this epoch nor finished
        self.joined: set[int] = set()  # tasks that get an input in place of one that they have, at the next marker

    @property
    def under_way(self) -> bool:
        """Whether tasks of this worker have still to be saved."""
        return bool(self._due)

    def begin(self, epoch: int) -> list[int]:
        """An epoch begins here; the tasks that wait for no marker. Nothing where it has begun before.

        These are sources, and tasks whose inputs have ended where others will take their places.
        """
        if epoch <= self.epoch:
            return []
        self.epoch = epoch
        self._due = {t for t, task in enumerate(self._tasks) if not task.finished}
        sources = [t for t in self._due if self._tasks[t].layout.is_source]
        self._lacking = {t: set() for t in sources}
        for t in self.joined & self._due:
            self._lacking[t] = {e for e in self._tasks[t].inputs if e not in self._ended}
        return [t for t, lacking in self._lacking.items() if not lacking]

    def met(self, edge: int) -> int | None:
        """A marker has come in: the edge waits from now on; the task at its end, if it lacks no other."""
        t: int = self._layout.edges[edge].target  # type: ignore[assignment] # it ends here
        if edge in self.aside:
            msg = f"edge {edge} brought the marker of epoch {self.epoch} twice"
            raise ValueError(msg)
        self.aside[edge], self.aside_bytes[edge] = [], 0
        if t not in self._lacking:
            self._lacking[t] = {e for e in self._tasks[t].inputs if e not in self._ended}
        self._lacking[t].discard(edge)
        return t if not self._lacking[t] else None

    def ended(self, edge: int) -> int | None:
        """An edge has ended; the task at its end, if that was the last one that it lacked."""
        self._ended.add(edge)
        t: int = self._layout.edges[edge].target  # type: ignore[assignment] # it ends here
        lacking = self._lacking.get(t)
        if not lacking or edge not in lacking:
            return None
        lacking.discard(edge)
        return t if not lacking else None

    def hold(self, edge: int) -> None:
        """A new edge waits as one that has met a marker, until `saved` or `released`."""
        self.aside[edge], self.aside_bytes[edge] = [], 0

    def has_ended(self, edge: int) -> bool:
        """Whether the end of an edge has come."""
        return edge in self._ended

    def forget(self, edge: int) -> list[Came]:
        """An edge is no more; what waits on it."""
        self._ended.discard(edge)
        self.aside_bytes.pop(edge, None)
        self.aside_batches.pop(edge, None)
        return self.aside.pop(edge, [])

    def wait(self, edge: int, came: Came, size: int = 0) -> None:
        """Keep what has come on an edge behind its marker."""
        self.aside[edge].append(came)
        if size:
            self.aside_bytes[edge] += size
            self.aside_batches[edge] += 1

    def wait_part(self, edge: int, came: Came, size: int) -> None:
        """The same for a batch of a slice; it counts with the slice's mark, as in the window."""
        self.aside[edge].append(came)
        self._parts_bytes[edge] = self._parts_bytes.get(edge, 0) + size

    def wait_slice(self, edge: int, came: Came) -> None:
        """The same for the mark of a slice."""
        self.wait(edge, came, max(self._parts_bytes.pop(edge, 0), self._layout.edges[edge].slice_bytes_min))

    def is_aligned(self, t: int) -> bool:
        """Whether a task lacks no marker and is to be saved as soon as nothing waits before it."""
        return t in self._due and t in self._lacking and not self._lacking[t]

    def saved(self, t: int) -> list[Came]:
        """A task is past the marker, or has finished: what waited for that, each edge in its order."""
        self._due.discard(t)
        self._lacking.pop(t, None)
        found: list[Came] = []
        for edge in self._tasks[t].inputs:
            found += self.aside.pop(edge, ())
            self.aside_bytes.pop(edge, None)
            self.aside_batches.pop(edge, None)
            self._parts_bytes.pop(edge, None)
        return found
