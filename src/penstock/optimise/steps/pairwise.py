"""Pairwise packing: the one procedure that OLS runs twice, first with tasks and workers, then with workers and nodes.

Items go to bins, pair of items by pair of items, heaviest traffic first. A bin admits an item while its number of items
and its load stay within the bin's limits. Two candidate moves differ by what the moved items exchange with the bins
concerned. So every item keeps a table of its traffic to each bin, and a pair costs a few look-ups. Rejected: summing up
the whole traffic for every candidate, as the published program does, which is cubic.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Longs

RESIDUE = 1e-12


class NoBin(Exception):
    """No bin admits an item: a signal to the caller, which knows names and makes a NoPlanFound of it."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item


class PairwisePacking:
    """Bins that fill up; `bin_of` is the answer, -1 for items that are in no bin yet."""

    def __init__(self, item_load: Floats, load_max: Floats, count_max: Longs, *, adds_load: bool = True) -> None:
        """Empty bins with their limits; without `adds_load` a bin's load stays 0 whatever it holds."""
        self._item_load: list[float] = item_load.tolist()
        self._load_max = load_max
        self._count_max = count_max
        self._adds_load = adds_load
        self._rows: list[dict[int, float]] = [{} for _ in self._item_load]  # item -> neighbour -> traffic
        self._to_bin: list[dict[int, float]] = [{} for _ in self._item_load]  # item -> bin -> traffic
        self.load = np.zeros(len(load_max))
        self.count = np.zeros(len(load_max), dtype=np.int64)
        self.bin_of = [-1] * len(self._item_load)

    def join(self, pairs: Iterable[tuple[int, int, float]]) -> None:
        """Make the traffic known; every pair of items is given once."""
        for a, b, traffic in pairs:
            self._rows[a][b] = traffic
            self._rows[b][a] = traffic

    def pack(self, pairs: Iterable[tuple[int, int, float]]) -> None:
        """Place every item of the pairs, which come heaviest first."""
        for a, b, traffic in pairs:
            if self.bin_of[a] < 0 and self.bin_of[b] < 0:
                self._place_fresh(a, b)
            else:
                self._place_again(a, b, traffic)

    def place_alone(self, item: int) -> None:
        """The least loaded bin that admits the item."""
        chosen = self._least_loaded(1, self._item_load[item])
        if chosen is None:
            raise NoBin(item)
        self._put(item, chosen)

    def internal_traffic(self) -> Floats:
        """What each item exchanges inside its own bin."""
        return np.array([row.get(bin_, 0.0) for row, bin_ in zip(self._to_bin, self.bin_of, strict=True)])

    def fill_empty(self, used_wanted: int) -> None:
        """While fewer bins than wanted hold something: the cheapest move of an item into the first empty bin for it.

        An item that is alone stays. Items are tried bin by bin and then by number, the first of equals moves.
        """
        while int((self.count > 0).sum()) < used_wanted:
            empty = np.flatnonzero(self.count == 0)
            move = self._cheapest_move(empty)
            if move is None:
                return
            item, target = move
            self._take(item)
            self._put(item, target)

    def _cheapest_move(self, empty: Longs) -> tuple[int, int] | None:
        bins = np.array(self.bin_of)
        movable = np.flatnonzero((bins >= 0) & (self.count[bins] > 1))
        movable = movable[np.argsort(bins[movable], kind="stable")]
        lost = self.internal_traffic()[movable]
        for k in np.argsort(lost, kind="stable").tolist():
            item = int(movable[k])
            fitting = empty[self._admits(1, self._item_load[item])[empty]]
            if len(fitting):
                return item, int(fitting[0])
        return None

    def _admits(self, items: int, load: float) -> NDArray[np.bool_]:
        admits: NDArray[np.bool_] = (self.count + items <= self._count_max) & (self.load + load <= self._load_max)
        return admits

    def _least_loaded(self, items: int, load: float) -> int | None:
        """The least loaded bin that admits these items and their load; the first of equals."""
        admitted = np.where(self._admits(items, load), self.load, np.inf)
        least = int(np.argmin(admitted))
        return None if admitted[least] == np.inf else least

    def _place_fresh(self, a: int, b: int) -> None:
        both = self._least_loaded(2, self._item_load[a] + self._item_load[b])
        if both is not None:
            self._put(a, both)
            self._put(b, both)
        else:
            self.place_alone(a)
            self.place_alone(b)

    def _place_again(self, a: int, b: int, traffic: float) -> None:
        """Try both items in every ordered pair of candidate bins; the first with least traffic between bins wins."""
        was_a, was_b = self.bin_of[a], self.bin_of[b]
        candidates = sorted({was_a, was_b} - {-1})
        spare = self._spare_bin(a, b)
        if spare is not None and spare not in candidates:
            candidates.append(spare)
        # Both items count as taken off: neither the other's traffic nor their own places may speak for a bin.
        row_a, row_b = self._to_bin[a], self._to_bin[b]
        kept_a = [row_a.get(c, 0.0) - (traffic if c == was_b else 0.0) for c in candidates]
        kept_b = [row_b.get(c, 0.0) - (traffic if c == was_a else 0.0) for c in candidates]
        best: tuple[int, int] | None = None
        best_kept = -np.inf
        for i, for_a in enumerate(candidates):
            for j, for_b in enumerate(candidates):
                kept = kept_a[i] + kept_b[j] + (traffic if i == j else 0.0)
                if kept > best_kept and self._room_for(a, b, for_a, for_b):
                    best, best_kept = (for_a, for_b), kept
        if best is None:
            raise NoBin(a if was_a < 0 else b)
        self._move(a, best[0])
        self._move(b, best[1])

    def _spare_bin(self, a: int, b: int) -> int | None:
        """The least loaded bin that admits the heavier of the two, else the lighter."""
        heavier, lighter = sorted((self._item_load[a], self._item_load[b]), reverse=True)
        spare = self._least_loaded(1, heavier)
        return self._least_loaded(1, lighter) if spare is None else spare

    def _room_for(self, a: int, b: int, for_a: int, for_b: int) -> bool:
        """Whether a fits one bin and b the other when both are taken off first and then put in that order."""
        return self._room_in(for_a, a, b, joined_by=None) and self._room_in(
            for_b, b, a, joined_by=a if for_a == for_b else None
        )

    def _room_in(self, bin_: int, item: int, other: int, joined_by: int | None) -> bool:
        counted = [k for k in (item, other) if self.bin_of[k] == bin_]
        items = self.count[bin_] - len(counted) + 1 + (joined_by is not None)
        load = self._item_load[item]
        if self._adds_load:
            load += self.load[bin_] - sum(self._item_load[k] for k in counted)
            load += 0.0 if joined_by is None else self._item_load[joined_by]
        return bool(items <= self._count_max[bin_] and load <= self._load_max[bin_])

    def _move(self, item: int, target: int) -> None:
        if self.bin_of[item] != target:
            if self.bin_of[item] >= 0:
                self._take(item)
            self._put(item, target)

    def _put(self, item: int, target: int) -> None:
        self.bin_of[item] = target
        self.count[target] += 1
        if self._adds_load:
            self.load[target] += self._item_load[item]
        for neighbour, traffic in self._rows[item].items():
            row = self._to_bin[neighbour]
            row[target] = row.get(target, 0.0) + traffic

    def _take(self, item: int) -> None:
        source = self.bin_of[item]
        self.bin_of[item] = -1
        self.count[source] -= 1
        if self._adds_load:
            self.load[source] -= self._item_load[item]
        for neighbour, traffic in self._rows[item].items():
            row = self._to_bin[neighbour]
            row[source] -= traffic
            if abs(row[source]) <= RESIDUE * traffic:  # rounding must not make an empty bin look attractive
                del row[source]
