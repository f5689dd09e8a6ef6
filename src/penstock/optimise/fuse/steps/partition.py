"""COLA's graph partitioner: a worker is split by a minimum-ratio cut of the graph that its vertices induce.

Vertex weights are operator costs, as in formula (2); edges that leave the worker stay cut whatever happens, so they do
not count. Where vertices must be parted (phase 1), the paper adds demand between them: all these pairs together are
worth as much as the whole worker weighs. Splits are remembered, because the phases and methods that share a partitioner
split many of the same sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.model.taskgraph import Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.ratio_cut import minimum_ratio_cut
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.rules import Flags

SECONDS_LEAST = 0.05  # seconds that a cut gets even after the deadline: an answer needs it


@dataclass(eq=False)
class Partitioner:
    """Splits sets of vertices of one graph."""

    graph: FuseGraph
    cut: str
    epsilon: float
    seed: int
    deadline: Deadline
    known: dict[bytes, Flags] = field(default_factory=dict)

    def split(self, vertices: Longs, pairs: Longs | None = None) -> Flags:
        """Which of the vertices go to the second worker, some but not all; `pairs` (2, n) are to be parted."""
        key = vertices.tobytes() + (b"" if pairs is None else pairs.tobytes())
        if key not in self.known:
            self.known[key] = self._found(vertices, pairs)
        return self.known[key]

    def _found(self, vertices: Longs, pairs: Longs | None) -> Flags:
        weight = self.graph.load[vertices]
        position = np.full(self.graph.count, -1, dtype=np.int64)
        position[vertices] = np.arange(len(vertices))
        a, b = position[self.graph.u], position[self.graph.v]
        inside = (a >= 0) & (b >= 0)
        demands = None
        if pairs is not None and pairs.size:
            total = float(weight.sum())
            each = (total if total > 0 else 1.0) / pairs.shape[1]
            demands = (position[pairs[0]], position[pairs[1]], np.full(pairs.shape[1], each))
        seconds = max(SECONDS_LEAST, self.deadline.remaining)
        cut = minimum_ratio_cut(
            weight, a[inside], b[inside], self.graph.weight[inside],
            method=self.cut, epsilon=self.epsilon, seed=self.seed, seconds=seconds, demands=demands,
        )  # fmt: skip
        return np.asarray(cut.side, dtype=bool)
