"""CutGraph: the input of a minimum-ratio cut, checked once, merged and taken apart into what is connected.

The ratio is equation (2) of COLA (paper 004): cut weight / weight of the lighter side. Pairs that ought to be parted
(section 3.3, phase 1: "additional demand between such operator pairs") add their demand to the lower part when the cut
parts them. A side that weighs nothing balances nothing, so 0 / 0 counts as infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import InvalidInput
from penstock.model.taskgraph import Floats, Ints

if TYPE_CHECKING:
    from penstock._core import CutNetwork

Side = NDArray[np.bool_]
VERTICES_MAX = 1_000_000
MAGNITUDE_MIN, MAGNITUDE_MAX = 1e-100, 1e15  # of weights above 0: products and quotients stay far from the ends


@dataclass(frozen=True, eq=False)
class Pairs:
    """Undirected weighted pairs of vertices, merged: source < target, ascending, weights above 0."""

    source: Ints
    target: Ints
    weight: Floats

    @classmethod
    def merged(cls, source: Ints, target: Ints, weight: Floats, vertices: int) -> Pairs:
        """Parallel pairs added up; loops and weights of 0 left out, since no cut pays for them."""
        kept = (source != target) & (weight > 0)
        low, high = np.minimum(source, target)[kept], np.maximum(source, target)[kept]
        key, place = np.unique(low.astype(np.int64) * vertices + high, return_inverse=True)
        total = np.bincount(place, weights=weight[kept], minlength=len(key))
        return cls((key // vertices).astype(np.int32), (key % vertices).astype(np.int32), total.astype(np.float64))

    def parted(self, side: Side) -> float:
        """Weight of the pairs that a cut parts."""
        return float(self.weight[side[self.source] != side[self.target]].sum())

    def within(self, number: Ints, members: Side) -> Pairs:
        """The pairs among the members, renumbered."""
        kept = members[self.source] & members[self.target]
        return Pairs(number[self.source[kept]], number[self.target[kept]], self.weight[kept])


@dataclass(frozen=True, eq=False)
class CutGraph:
    """Vertices with weights, streams with weights, and demand between pairs beyond what weights imply."""

    weight: Floats
    streams: Pairs
    demands: Pairs

    @property
    def size(self) -> int:
        """Number of vertices."""
        return len(self.weight)

    @cached_property
    def total(self) -> float:
        """Weight of all vertices."""
        return float(self.weight.sum())

    @cached_property
    def native(self) -> CutNetwork:
        """The same graph for the native core."""
        from penstock._core import CutNetwork

        streams, demands = self.streams, self.demands
        return CutNetwork(
            self.weight, streams.source, streams.target, streams.weight, demands.source, demands.target, demands.weight
        )

    @property
    def is_divisible(self) -> bool:
        """Whether some cut parts weight or demand."""
        return int(np.count_nonzero(self.weight)) > 1 or len(self.demands.weight) > 0

    def gain(self, side: Side) -> float:
        """The lower part of the ratio: weight of the lighter side, and demand parted."""
        return min(float(self.weight[side].sum()), float(self.weight[~side].sum())) + self.demands.parted(side)

    def ratio(self, side: Side) -> float:
        """Equation (2); infinite where neither weight nor demand is parted."""
        gain = self.gain(side)
        return self.streams.parted(side) / gain if gain > 0 else math.inf

    def best_single(self) -> Side:
        """One of a few vertices cut off alone: a finite ratio where weights are too unequal for sums of them."""
        heaviest = np.argsort(-self.weight, kind="stable")[:2]
        pair_ends = np.concatenate([self.demands.source[:1], self.demands.target[:1]])
        return min((np.arange(self.size) == v for v in (*heaviest, *pair_ends)), key=self.ratio)

    @cached_property
    def component(self) -> Ints:
        """A number for each vertex, equal where streams connect them; numbered in order of their first vertex."""
        label = np.arange(self.size, dtype=np.int32)
        while True:  # every round at least halves the longest chain of labels
            least = label.copy()
            np.minimum.at(least, self.streams.source, label[self.streams.target])
            np.minimum.at(least, self.streams.target, label[self.streams.source])
            least = least[least]
            if np.array_equal(least, label):
                return np.unique(label, return_inverse=True)[1].astype(np.int32)
            label = least

    def restricted(self, members: Side) -> CutGraph:
        """The graph of some of the vertices, in their order."""
        number = (np.cumsum(members) - 1).astype(np.int32)
        return CutGraph(
            self.weight[members], self.streams.within(number, members), self.demands.within(number, members)
        )


def checked_graph(
    vertex_weights: ArrayLike,
    streams: tuple[ArrayLike, ArrayLike, ArrayLike],
    demands: tuple[ArrayLike, ArrayLike, ArrayLike] | None,
) -> CutGraph:
    """The graph of these arrays, or InvalidInput that names the array, the entry and the limit."""
    weight = np.ascontiguousarray(vertex_weights, dtype=np.float64)
    if weight.ndim != 1 or not 2 <= len(weight) <= VERTICES_MAX:
        msg = f"a cut needs from 2 to {VERTICES_MAX} vertices in one row but got {weight.size}; split no further"
        raise InvalidInput(msg)
    _require_amounts("vertex weight", weight)
    return CutGraph(
        weight,
        _checked_pairs("stream", streams, len(weight)),
        _checked_pairs("demand", ((), (), ()) if demands is None else demands, len(weight)),
    )


def _checked_pairs(what: str, given: tuple[ArrayLike, ArrayLike, ArrayLike], vertices: int) -> Pairs:
    source, target = (np.asarray(ends).reshape(-1) for ends in given[:2])
    weight = np.asarray(given[2], dtype=np.float64).reshape(-1)
    if not len(source) == len(target) == len(weight):
        msg = (
            f"{what}s have {len(source)} sources, {len(target)} targets and {len(weight)} weights; give as many of each"
        )
        raise InvalidInput(msg)
    for ends in (source, target):
        if len(ends) and (ends.dtype.kind not in "iu" or ends.min() < 0 or ends.max() >= vertices):
            msg = f"a {what} ends at {ends.min()} or {ends.max()}; ends are whole numbers from 0 to {vertices - 1}"
            raise InvalidInput(msg)
    _require_amounts(f"{what} weight", weight)
    return Pairs.merged(source.astype(np.int32), target.astype(np.int32), weight, vertices)


def _require_amounts(what: str, values: Floats) -> None:
    wrong = np.flatnonzero(~((values == 0) | ((values >= MAGNITUDE_MIN) & (values <= MAGNITUDE_MAX))))
    if len(wrong):
        msg = f"{what} {wrong[0]} is {values[wrong[0]]:g}; it must be 0, or from {MAGNITUDE_MIN:g} to {MAGNITUDE_MAX:g}"
        raise InvalidInput(msg)
