"""Order: the splitter numbers slices, the merger gives them out by number, and neither can lock the other up.

    >>> splitter, merger = Splitter((0, 1), slice_rows=2), Merger()
    >>> splitter.first(0, 5), splitter.first(2, 3)
    (Slice(sequence=0, replica=0, start=0, rows=2), Slice(sequence=1, replica=1, start=2, rows=2))
    >>> merger.arrived(1, "b"), merger.arrived(0, "a")
    ([], ['a', 'b'])

A replica works slice by slice and passes on, under the same number, what is left of each, even when nothing is. Why
credit bounds what the merger holds and why that cannot lock up: docs/decisions/0016-balance.md and 0032-machine.md;
held by `test_every_row_comes_out_once_and_in_order`.
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
        self._given: dict[int, int] = {}  # lengths that the caller has set
        self._outstanding: dict[int, deque[list[int]]] = {}  # replica -> [sequence, size left, rows, sent], in order
        self._worked_off: dict[int, int] = {}  # replica -> rows of slices whose credit has come back whole
        self._took_us: dict[int, int] = {}  # replica -> for how long it had one of them in hand
        self._done_us: dict[int, int] = {}  # replica -> when the last of them came back
        self._measure()

    def retarget(self, replicas: Sequence[int], weights: Sequence[int]) -> None:
        """Other replicas or weights from the next slice on; slices that are out stay where they are.

        A replica that leaves still works off what it has; its connection stays, for it may come back.
        """
        self._sharing.retarget(replicas, weights)
        self._measure()

    def first(self, start: int, rows: int, queued: Queued | None = None) -> Slice:
        """The first slice of `rows` consecutive rows, for a splitter that cuts while it sends."""
        length = min(self._length[self._sharing.peek()], rows)
        replica = self._sharing.take(length, queued)
        self._next += 1
        return Slice(self._next - 1, replica, start, length)

    def closing(self, replicas: Sequence[int]) -> list[Slice]:
        """An empty slice for every replica, behind all others: whatever is lost before its end leaves a gap before it.

        The merger then holds slices at its end, and says so. The closing slices themselves can go unmissed.
        """
        found = [Slice(self._next + i, replica, 0, 0) for i, replica in enumerate(replicas)]
        self._next += len(found)
        return found

    def set_lengths(self, rows: Mapping[int, int]) -> None:
        """Set each replica's rows per slice from the next slice on, instead of lengths in proportion to weight."""
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
        """A replica's credit has come back: it has taken the rows and worked them off."""
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


class Merger(Generic[Payload]):
    """Takes slices in any order and gives them out by number."""

    def __init__(self) -> None:
        self.next_sequence = 0
        self._held: dict[int, Payload] = {}

    def arrived(self, sequence: int, payload: Payload) -> list[Payload]:
        """A slice has come; what can be given out now, in order."""
        if sequence < self.next_sequence or sequence in self._held:
            msg = f"slice {sequence} came twice; the merger waits for {self.next_sequence}"
            raise InternalError(msg)
        self._held[sequence] = payload
        out = []
        while self.next_sequence in self._held:
            out.append(self._held.pop(self.next_sequence))
            self.next_sequence += 1
        return out

    def held(self) -> list[Payload]:
        """What waits for a slice before it."""
        return list(self._held.values())
