"""The flow relaxation solved exactly: a linear program over shortest-path trees, in HiGHS, with rows made as needed.

Leighton and Rao's program (paper 004, section 2.2) in its dual form: lengths of edges, as little length times capacity
as possible, such that demand times distance is 1 in all. Distances are minima over paths, so each source u has a
variable for its demand times distance and one row for every shortest-path tree that was met: the tree's flow times the
lengths is at least that variable. A round solves the program, finds the trees of its lengths and adds those that are
shorter than promised. Sources have rows of their own because one row for all of them converges too slowly.
Rejected: the one-shot program with a variable for each source and arc, which takes minutes at 200 operators.

The bound does not rest on the solver's word: prices of the rows are a flow along trees, whose congestion is added up
here. Any prices, scaled to carry all of every source's demand, prove a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.exact.master import limit_time, quiet_highs
from penstock.optimise.fuse.ratio_cut.contract import CutOptions, Found
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side
from penstock.optimise.fuse.ratio_cut.garg_konemann import ratio_bound, relax
from penstock.optimise.fuse.ratio_cut.leighton_rao import best_of, round_lengths

if TYPE_CHECKING:
    from highspy import Highs

    from penstock.optimise.contract import Deadline

ROUNDS_MAX = 300
GAP = 1e-6  # between what lengths promise and what they keep, at which the program counts as solved
START_EPSILON = 0.3  # of the flow whose trees are the first rows
TOWARDS_BEST = 0.5  # where trees are looked for: between the program's lengths and the best known ones


@dataclass(frozen=True, eq=False)
class Bounds:
    """The relaxation's value from both sides, and lengths that attain the upper one."""

    throughput: float
    upper: float
    length: Floats
    rounds: int


@dataclass(frozen=True, eq=False)
class Trees:
    """A tree for each vertex: compressed rows of edges with the flow of the vertex's demand on them."""

    start: Longs
    edge: Ints
    flow: Floats
    reach: Floats  # demand times distance

    @classmethod
    def of(cls, graph: CutGraph, length: Floats) -> Trees:
        """The shortest-path trees of these lengths."""
        return cls(*graph.native.trees(np.maximum(length, 0.0)))

    def dense(self, edges: int) -> Floats:
        """One row for each vertex."""
        matrix = np.zeros((len(self.reach), edges))
        matrix[np.repeat(np.arange(len(self.reach)), np.diff(self.start)), self.edge] = self.flow
        return matrix


def solve(graph: CutGraph, options: CutOptions) -> Found:
    """The best rounding of exact lengths, and the relaxation's bound."""
    start = relax(graph, replace(options, epsilon=max(START_EPSILON, options.epsilon)))
    bounds = tree_program(graph, options.deadline, start.length)
    side = best_of(graph, start.side, round_lengths(graph, start.length), round_lengths(graph, bounds.length))
    return Found(side, ratio_bound(graph, max(start.throughput, bounds.throughput)))


def tree_program(graph: CutGraph, deadline: Deadline, start: Floats) -> Bounds:
    """Rounds of program and trees until both sides meet, from lengths that are good already."""
    program = _Program(graph)
    best = _scaled(graph, start)
    trees = Trees.of(graph, best)
    upper, throughput, rounds = 1.0 / float(trees.reach.sum()), 0.0, 0
    program.add(trees, np.flatnonzero(trees.reach > 0))
    while rounds < ROUNDS_MAX and deadline.remaining > 0 and throughput < upper * (1 - GAP):
        rounds += 1
        if not program.solve(deadline):
            break
        throughput = max(throughput, program.throughput())
        found = _scaled(graph, program.length)
        for length in (TOWARDS_BEST * best + (1 - TOWARDS_BEST) * found, found):
            trees = Trees.of(graph, length)
            reach = float(trees.reach.sum())
            if 1.0 / reach < upper:
                upper, best = 1.0 / reach, length
            if program.add(trees, program.broken(trees)):
                break
        else:
            break  # nothing is broken: what is left between the sides is rounding
    return Bounds(throughput, upper, best, rounds)


def _scaled(graph: CutGraph, length: Floats) -> Floats:
    """Lengths whose length times capacity is 1 in all."""
    return np.maximum(length, 0.0) / float(np.maximum(length, 0.0) @ graph.streams.weight)


class _Program:
    """Columns: length times capacity of every edge, then promised reach of every vertex. Row 0 adds up the promises."""

    def __init__(self, graph: CutGraph) -> None:
        self._capacity = graph.streams.weight
        self._edges, self._vertices = len(self._capacity), graph.size
        self._owner: list[Ints] = []
        self._rows: list[Floats] = []  # flow over capacity
        self._value: Floats = np.zeros(self._edges + self._vertices)
        self._prices: Floats = np.zeros(0)
        # One tree for each vertex gives the size of things; scaled by it, the program's numbers are around 1.
        reach = Trees.of(graph, 1.0 / self._capacity).reach
        self._unit = float(reach.sum()) / self._edges
        self._highs = self._empty(reach > 0)

    def _empty(self, asks: Side) -> Highs:
        """The program without trees; vertices that ask for nothing promise nothing."""
        highs = quiet_highs()
        highs.setOptionValue("presolve", "off")
        infinite = highs.getInfinity()
        count = self._edges + self._vertices
        cost = np.concatenate([np.ones(self._edges), np.zeros(self._vertices)])
        upper = np.concatenate([np.full(self._edges, infinite), np.where(asks, infinite, 0.0)])
        none = np.zeros(0, dtype=np.int32)
        highs.addCols(count, cost, np.zeros(count), upper, 0, np.zeros(count, dtype=np.int32), none, np.zeros(0))
        promised = np.arange(self._edges, count, dtype=np.int32)
        highs.addRow(1.0, infinite, self._vertices, promised, np.ones(self._vertices))
        return highs

    def broken(self, trees: Trees) -> Longs:
        """Vertices whose tree is shorter than the last answer promised."""
        scaled = trees.dense(self._edges) / (self._capacity * self._unit)
        short = self._value[self._edges :] - scaled @ self._value[: self._edges]
        return np.flatnonzero(short > 1e-9)

    def add(self, trees: Trees, owners: Longs) -> int:
        """Add the rows of these vertices and say how many."""
        if not len(owners):
            return 0
        rows = trees.dense(self._edges)[owners] / (self._capacity * self._unit)
        matrix = np.hstack([rows, -np.eye(self._vertices)[owners]])
        row, column = np.nonzero(matrix)
        self._highs.addRows(
            len(owners),
            np.zeros(len(owners)),
            np.full(len(owners), self._highs.getInfinity()),
            len(row),
            np.searchsorted(row, np.arange(len(owners))).astype(np.int32),
            column.astype(np.int32),
            matrix[row, column],
        )
        self._owner.append(owners.astype(np.int32))
        self._rows.append(rows)
        return len(owners)

    def solve(self, deadline: Deadline) -> bool:
        """Solve from where the last solve ended; False when there is no answer."""
        limit_time(self._highs, deadline)
        self._highs.run()
        solution = self._highs.getSolution()
        if len(solution.row_dual) != self._highs.getNumRow() or deadline.remaining <= 0:
            return False
        self._value = np.array(solution.col_value)
        self._prices = np.maximum(0.0, np.array(solution.row_dual)[1:])
        return True

    @property
    def length(self) -> Floats:
        """Lengths of the last answer."""
        return self._value[: self._edges] / self._capacity

    def throughput(self) -> float:
        """What the flow of the last answer's prices proves, added up here."""
        owner = np.concatenate(self._owner)
        carried = np.bincount(owner, weights=self._prices, minlength=self._vertices)
        needed = np.unique(owner)
        if np.any(carried[needed] <= 0):
            return 0.0
        congestion = float(((self._prices / carried[owner]) @ np.vstack(self._rows)).max())
        return 1.0 / (congestion * self._unit)
