"""Leighton and Rao's cut, as COLA uses it: flow lengths by Garg and Koenemann, rounded by growing balls and regions.

Paper 004, section 2.2, references [24] and [25]; the rounding is native (`core/search/cut/balls.cpp`). Leighton and Rao
prove a factor of O(log n). In practice it comes near the optimum, because every ball is looked at and not one alone.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.optimise.fuse.ratio_cut.contract import CutOptions, Found
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side
from penstock.optimise.fuse.ratio_cut.garg_konemann import ratio_bound, relax


def solve(graph: CutGraph, options: CutOptions) -> Found:
    """The best ball or region of the flow's lengths, and the flow's bound."""
    relaxation = relax(graph, options)
    side = best_of(graph, round_lengths(graph, relaxation.length), relaxation.side)
    return Found(side, ratio_bound(graph, relaxation.throughput))


def round_lengths(graph: CutGraph, length: Floats) -> Side | None:
    """The best cut by balls and by regions; None where rounding hides every weight but one."""
    side, _ = graph.native.round(length)
    return side.astype(np.bool_) if len(side) else None


def best_of(graph: CutGraph, *sides: Side | None) -> Side:
    """The side of smallest ratio."""
    return min((side for side in (*sides, graph.best_single()) if side is not None), key=graph.ratio)
