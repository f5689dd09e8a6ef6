"""Leighton and Rao's cut, refined by annealing: ours, not the paper's, and the start of every proof.

Annealing is native (`core/search/cut/anneal_cut.cpp`), seeded, and never worse than its start
(`test_annealing_is_never_worse_than_its_start`). It makes up for an inaccurate flow at a fraction of the flow's time:
with epsilon 0.3 the cuts are as good as with 0.1, and the bound is weaker.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.optimise.fuse.ratio_cut.contract import CutOptions, Found
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side
from penstock.optimise.fuse.ratio_cut.leighton_rao import best_of
from penstock.optimise.fuse.ratio_cut.leighton_rao import solve as leighton_rao

RUNS = 40
MOVES_MAX = 40_000_000  # in all runs together: about three seconds
MOVES_PER_VERTEX = 400


def solve(graph: CutGraph, options: CutOptions) -> Found:
    """Leighton and Rao's answer after annealing."""
    found = leighton_rao(graph, options)
    return replace(found, side=refine(graph, found.side, options))


def refine(graph: CutGraph, side: Side, options: CutOptions) -> Side:
    """The best cut that annealing reaches from this one."""
    runs = max(1, min(RUNS, MOVES_MAX // (MOVES_PER_VERTEX * graph.size)))
    better, _ = graph.native.anneal(side.astype(np.uint8), options.seed, runs, options.deadline.remaining)
    return best_of(graph, side, better.astype(np.bool_) if len(better) else None)
