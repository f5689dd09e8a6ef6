"""Order: the splitter numbers slices, the merger gives them out by number, and neither can lock the other up.

    >>> splitter, merger = Splitter((0, 1), slice_rows=2), Merger()
    >>> [(slice.sequence, slice.replica, slice.start, slice.rows) for slice in splitter.cut(5)]
    [(0, 0, 0, 2), (1, 1, 2, 2), (2, 0, 4, 1)]
    >>> merger.arrived(1, 1, "b", last=True), merger.arrived(0, 0, "a", last=True)
    ([], [Released(replica=0, payload='a', size=0), Released(replica=1, payload='b', size=0)])

A batch is cut into consecutive slices, each for one replica and with the next number of the region. A replica works
slice by slice and tags whatever comes out with the slice's number; the last output of a slice says that it is the last,
and a slice of which a filter left nothing still sends an empty last one. The merger passes the slice whose number is
next straight through and holds the others.

Memory is bounded by the credit of each connection from a replica to the merger: the merger gives it back when it
*releases* a payload (`Released.size`), not when it takes it. This cannot lock up. Let s be the number that the merger
waits for and r the replica that has it. Replicas work in order, so everything r has sent before belongs to numbers
below s and is released: the merger holds nothing of r, and of r's credit all but a part below a quarter is free. So r
can go on whatever the others do. If s has not been sent yet because the splitter waits for a connection q, every number
that was sent is below s and released, so q has worked off all its input and has room. Each part of s is released as it
comes, so even a slice whose output is larger than the credit passes.

With bounded memory the connection that is full is often not the one to blame: fast replicas stop because the merger
waits for a slow one. `laggard` says which replica holds the oldest slice that has not been worked off, and that is
whose blocking time it is. So a replica gives credit back for a slice when it has worked it off, not when it begins:
the slice that everybody waits for is mostly one in work. With unbounded memory, as in the paper, the laggard is the
full connection.

Slices are cut in proportion to weight (`slice_rows` is the heaviest replica's), so a slow replica gets few rows often
instead of many rows seldom: the others never have to wait for a long slice of the slow one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.errors import InternalError
from penstock.run.region.contract import Routing
from penstock.run.region.sharing import Queued, Sharing

SLICE_ROWS = 1024
Payload = TypeVar("Payload")


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive rows of one incoming batch for one replica."""

    sequence: int
    replica: int
    start: int
    rows: int


class Splitter:
    """Cuts batches into numbered slices, and knows which of them are still on their way."""

    def __init__(self, replicas: Sequence[int], routing: Routing = "turns", slice_rows: int = SLICE_ROWS) -> None:
        if slice_rows < 1:
            msg = f"slice_rows is {slice_rows}; it must be 1 or more"
            raise ValueError(msg)
        self._sharing = Sharing(replicas, routing)
        self._slice_rows = slice_rows
        self._next = 0
        self._given: dict[int, int] = {}  # lengths that somebody has set
        self._outstanding: dict[
            int, deque[list[int]]
        ] = {}  # replica -> [sequence, size left, rows, sent], oldest first
        self._worked_off: dict[int, int] = {}  # replica -> rows of slices whose credit has come back whole
        self._took_us: dict[
            int, int
        ] = {}  # replica -> for how long it had one of them before it and none in front of it
        self._done_us: dict[int, int] = {}  # replica -> when the last of them came back
        self._measure()

    @property
    def next_sequence(self) -> int:
        """The number of the next slice: how many there have been."""
        return self._next

    def retarget(self, replicas: Sequence[int], weights: Sequence[int]) -> None:
        """Other replicas or weights from the next slice on; slices that are out stay where they are.

        A replica that leaves still works off what it has; its connection stays, for it may come back.
        """
        self._sharing.retarget(replicas, weights)
        self._measure()

    def cut(self, rows: int, queued: Queued | None = None) -> list[Slice]:
        """A batch of so many rows as slices; neighbours for the same replica are one slice."""
        found: list[Slice] = []
        start = 0
        while start < rows:
            length = min(self._length[self._sharing.peek()], rows - start)
            replica = self._sharing.take(length, queued)
            if found and found[-1].replica == replica:
                last = found[-1]
                found[-1] = Slice(last.sequence, replica, last.start, last.rows + length)
            else:
                found.append(Slice(self._next, replica, start, length))
                self._next += 1
            start += length
        return found

    def first(self, start: int, rows: int, queued: Queued | None = None) -> Slice:
        """The first slice of so many consecutive rows, for a splitter that cuts while it sends."""
        length = min(self._length[self._sharing.peek()], rows)
        replica = self._sharing.take(length, queued)
        self._next += 1
        return Slice(self._next - 1, replica, start, length)

    def closing(self, replicas: Sequence[int]) -> list[Slice]:
        """An empty slice for every replica, behind all others: whatever is lost before its end leaves a gap before it.

        The merger then holds slices at its end, and says so. Only the closing slices themselves can go unmissed.
        """
        found = [Slice(self._next + i, replica, 0, 0) for i, replica in enumerate(replicas)]
        self._next += len(found)
        return found

    def set_lengths(self, rows: Mapping[int, int]) -> None:
        """Slices of so many rows from the next one on, instead of lengths in proportion to weight."""
        self._given = dict(rows)
        self._measure()

    def worked_off(self, replica: int) -> int:
        """Rows that a replica has worked off so far, in whole slices."""
        return self._worked_off.get(replica, 0)

    def took_us(self, replica: int) -> int:
        """How long a replica has taken for the rows that it has worked off, without the time in which it had none.

        The way there and back is in it, so it says how fast a replica is at least.
        """
        return self._took_us.get(replica, 0)

    def sent(self, slice_: Slice, size: int, now_us: int = 0) -> None:
        """A slice has gone out; size is what its connection counts credit in."""
        waiting = self._outstanding.setdefault(slice_.replica, deque())
        waiting.append([slice_.sequence, size, slice_.rows, now_us])

    def taken(self, replica: int, size: int, now_us: int = 0) -> None:
        """A replica's credit has come back for so much: it has taken it and worked it off."""
        waiting = self._outstanding.get(replica)
        while waiting and size >= waiting[0][1]:
            _, whole, rows, sent_us = waiting.popleft()
            size -= whole
            self._worked_off[replica] = self._worked_off.get(replica, 0) + rows
            began_us = max(sent_us, self._done_us.get(replica, 0))
            self._took_us[replica] = self._took_us.get(replica, 0) + max(0, now_us - began_us)
            self._done_us[replica] = now_us
        if waiting:
            waiting[0][1] -= size

    def laggard(self) -> int | None:
        """The replica with the oldest slice that has not been worked off; None when all have been."""
        oldest = [(waiting[0][0], replica) for replica, waiting in self._outstanding.items() if waiting]
        return min(oldest)[1] if oldest else None

    def _measure(self) -> None:
        weights = self._sharing.weights
        heaviest = max(weights.values())
        self._length = {r: max(1, self._slice_rows * w // heaviest) for r, w in weights.items()} | self._given


@dataclass(frozen=True, slots=True)
class Released(Generic[Payload]):
    """A payload whose turn has come, and the credit that its replica gets back for it."""

    replica: int
    payload: Payload | None  # None where the slice left nothing
    size: int


@dataclass(slots=True)
class _Held(Generic[Payload]):
    parts: list[Released[Payload]]
    done: bool = False


@dataclass(frozen=True, slots=True)
class MergerStatistics:
    """How full the merger is."""

    next_sequence: int
    slices_held: int
    size_held: int
    size_held_max: int  # the most so far


class Merger(Generic[Payload]):
    """Takes slices in any order and gives them out by number."""

    def __init__(self) -> None:
        self._next = 0
        self._held: dict[int, _Held[Payload]] = {}
        self._size_of: dict[int, int] = {}  # replica -> size held
        self._size = 0
        self._size_max = 0

    def arrived(
        self, replica: int, sequence: int, payload: Payload | None = None, size: int = 0, *, last: bool
    ) -> list[Released[Payload]]:
        """A part of a slice has come; what can be given out now, in order.

        Entries without payload (slices that left nothing) are kept in the answer when they carry credit.
        """
        held = self._held.get(sequence)
        if sequence < self._next or (held is not None and held.done):
            msg = f"replica {replica} sent more of slice {sequence} after its end; the merger waits for {self._next}"
            raise InternalError(msg)
        part = [Released(replica, payload, size)] if payload is not None or size else []
        if sequence == self._next:
            return self._released(part, last)
        if held is None:
            held = self._held[sequence] = _Held([])
        held.parts += part
        held.done = last
        self._count(replica, size)
        return []

    def size_held(self, replica: int) -> int:
        """What the merger holds of a replica; never more than its credit, and 0 while its slice is next."""
        return self._size_of.get(replica, 0)

    def statistics(self) -> MergerStatistics:
        """How full the merger is, and was at most."""
        return MergerStatistics(self._next, len(self._held), self._size, self._size_max)

    def finish(self, slices: int) -> None:
        """All replicas have ended after so many slices: every one must have been given out."""
        if self._held or self._next != slices:
            msg = f"the region ended after {slices} slices but slice {self._next} never came; {len(self._held)} wait"
            raise InternalError(msg)

    def _released(self, out: list[Released[Payload]], last: bool) -> list[Released[Payload]]:
        """Everything from the part of the next slice on that has no gap before it."""
        while last:
            self._next += 1
            held = self._held.pop(self._next, None)
            if held is None:
                break
            for part in held.parts:
                self._count(part.replica, -part.size)
            out += held.parts
            last = held.done
        return out

    def _count(self, replica: int, size: int) -> None:
        self._size_of[replica] = self._size_of.get(replica, 0) + size
        self._size += size
        self._size_max = max(self._size_max, self._size)
