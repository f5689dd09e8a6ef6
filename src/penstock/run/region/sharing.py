"""Sharing: whose turn is next. Weighted shares as smooth as whole rows allow, for slices of any size.

Stride scheduling: a replica is due again after rows / weight of virtual time, and the one that is due first gets the
next slice. It counts rows, not slices, so shares hold whatever the sizes of the slices; within any stretch a replica's
rows differ from its share by about one slice. A change of weights keeps how far each replica has come on its way to
its next turn: starting afresh with every decision would starve a replica whose turn comes less than once a second.
Rejected: a table of R turns (inexact for unequal slices) and random choice (bursts fill the slow replica's buffer).

Routing by queues (`reroute`, `rebalance`) asks for a different replica when the turn of one has come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from penstock.run.region.contract import UNITS, Routing, even_weights

REBALANCE_CHOICES = 4  # connections that Flink's adaptive rebalance looks at
Queued = Callable[[int], tuple[float, bool]]  # a replica's queue, and whether it is full


class Sharing:
    """Which replica gets the next rows.

    >>> sharing = Sharing((7, 8, 9))
    >>> sharing.retarget((7, 8, 9), (500, 250, 250))
    >>> [sharing.take(1) for _ in range(8)]
    [7, 8, 9, 7, 7, 8, 9, 7]
    """

    def __init__(self, replicas: Sequence[int], routing: Routing = "turns") -> None:
        self._routing = routing
        self._now = 0.0  # virtual time: rows sent over UNITS
        self._due: dict[int, float] = {}
        self._weights: dict[int, int] = {}
        self._heap: list[tuple[float, int]] = []
        self.retarget(replicas, even_weights(len(replicas)))

    @property
    def weights(self) -> dict[int, int]:
        """The weight of each replica."""
        return dict(self._weights)

    def retarget(self, replicas: Sequence[int], weights: Sequence[int]) -> None:
        """Other replicas, or other weights, from the next slice on."""
        if sum(weights) != UNITS or min(weights) < 0 or len(set(replicas)) != len(weights):
            msg = f"weights {list(weights)} of replicas {list(replicas)} must be 0 or more and add up to {UNITS}"
            raise ValueError(msg)
        due = {}
        for replica, weight in zip(replicas, weights, strict=True):
            before = self._weights.get(replica, 0)
            if weight > 0 and before > 0:
                due[replica] = self._now + (self._due[replica] - self._now) * before / weight
            elif weight > 0:
                due[replica] = self._now + 0.5 / weight  # half a stride: turns lie in the middle of their shares
        self._due = due
        self._weights = dict(zip(replicas, weights, strict=True))
        self._heap = [(at, replica) for replica, at in due.items()]
        heapq.heapify(self._heap)

    def peek(self) -> int:
        """The replica whose turn it is."""
        return self._heap[0][1]

    def take(self, rows: int, queued: Queued | None = None) -> int:
        """The replica that gets the next `rows` rows; its turn moves on by as many."""
        replica = self.peek()
        if queued is not None and self._routing != "turns":
            replica = self._by_queue(replica, queued)
        self._advance(self.peek(), rows)
        return replica

    def _advance(self, replica: int, rows: int) -> None:
        at = self._heap[0][0] + rows / self._weights[replica]
        self._due[replica] = at
        heapq.heapreplace(self._heap, (at, replica))
        self._now += rows / UNITS

    def _by_queue(self, first: int, queued: Queued) -> int:
        members = tuple(self._weights)
        begin = members.index(first)
        turn = [members[(begin + i) % len(members)] for i in range(len(members))]
        if self._routing == "reroute":
            return next((replica for replica in turn if not queued(replica)[1]), first)
        choices = turn[:REBALANCE_CHOICES]
        return min(choices, key=lambda replica: queued(replica)[0])
