"""Garg and Koenemann's multicommodity flow: the relaxation of the minimum-ratio cut, within a stated epsilon.

COLA (paper 004, section 2.2) routes a demand of w_u * w_v between every pair of vertices and minimises the largest
congestion. The work is native (`core/search/cut/concurrent_flow.cpp` describes the algorithm); here is what it means.

A flow that carries the part t of all demand proves that every cut S has cut(S) >= t * w(S) * w(V - S). The heavier side
weighs at least half of the total W, so cut(S) / lighter side >= t * W / 2: the bound on equation (2). A part of this
half is lost on balanced cuts, and nearly all of it on uneven ones, whatever the accuracy of the flow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.optimise.fuse.ratio_cut.contract import CutOptions
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side

PHASES_MAX, PHASES_MIN = 2_000, 50
# Edges looked at in all phases together, about ten seconds' worth: beyond some 1,500 operators the gap may stay above
# epsilon. The bound says so, and cuts hardly suffer.
WORK_MAX = 1_000_000_000
# Phases between two looks at the balls of the lengths on the way, which are as good as those of the last ones. A look
# takes as long as two phases, so large graphs, whose phases are long, get fewer.
SWEEP_EVERY = 4
VERTICES_PER_SWEEP = 100


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Lengths that nearly attain the flow's bound, what it proves, and the best cut met on the way."""

    length: Floats
    throughput: float  # every cut has at least this weight for each unit of demand that it parts
    upper: float  # no flow carries more
    phases: int
    side: Side | None


def relax(graph: CutGraph, options: CutOptions) -> Relaxation:
    """The flow of a connected graph; the deadline may leave a larger gap than epsilon, but the bound stays true."""
    sweep_every = max(SWEEP_EVERY, graph.size // VERTICES_PER_SWEEP)
    length, throughput, upper, phases, side, _ = graph.native.flow(
        options.epsilon, phases_max(graph), sweep_every, options.deadline.remaining
    )
    return Relaxation(length, throughput, upper, phases, side.astype(np.bool_) if len(side) else None)


def phases_max(graph: CutGraph) -> int:
    """How many phases a graph of this size is given."""
    affordable = WORK_MAX // max(1, 2 * graph.size * len(graph.streams.weight))
    return max(PHASES_MIN, min(PHASES_MAX, affordable))


def ratio_bound(graph: CutGraph, throughput: float) -> float:
    """What a flow proves about equation (2)."""
    return throughput * (graph.total if graph.total > 0 else 1.0) / 2
