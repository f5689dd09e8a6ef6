"""The exact sparsest cut: Dinkelbach's method over minimum cuts with a knapsack, from a cut that is good already.

Some cut has a smaller ratio than r exactly when a set S of at most half of the weight has cut(S) - r * gain(S) < 0. The
smallest value names a better cut, whose ratio is the next r (Dinkelbach 1967). `cut_program.py` has the integer
program of a round. The flow's bound t keeps it small: cut(S) >= t * w(S) * w(V - S), so a cut of a smaller ratio than r
weighs more than W - r / t on its lighter side. Where that leaves very light sides possible, weights are gone through in
ranges of a factor each, since a solver that resolves half of the weight does not resolve a thousandth of it.

Stopped by the clock, bounds still hold: value >= b for all sets of a range gives ratio >= r + b / gain at the range's
smallest gain, and the flow's bound holds for the other ranges. Rejected: a Lagrangian for the weight with plain minimum
cuts below it, because without fixed ends its bound is the trivial one. docs/decisions/0017-ratio-cut.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.optimise.fuse.ratio_cut.contract import CutOptions, Found
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph
from penstock.optimise.fuse.ratio_cut.cut_program import Range, best_set
from penstock.optimise.fuse.ratio_cut.refined import solve as refined

ROUNDS_MAX = 50  # of a range; Dinkelbach's ratios fall faster than geometrically, three rounds are many
RANGES_MAX = 40
FACTOR = 8.0  # between the ends of a range: PROOF over the solver's resolution, nearly
START_EPSILON = 0.3  # of the flow: a closer bound takes longer than it saves
PROOF = 1e-6  # of the ratio: what a better cut may still gain when one is called proved


def solve(graph: CutGraph, options: CutOptions) -> Found:
    """The sparsest cut, or the best known with a bound when time ends first."""
    found = refined(graph, replace(options, epsilon=max(options.epsilon, START_EPSILON)))
    relaxed = found.bound
    bound = graph.ratio(found.side)
    for limits in _ranges(graph, bound, relaxed):
        found, proven = _search(graph, found, limits, relaxed, options)
        bound = min(bound, max(relaxed, proven))
    ratio = graph.ratio(found.side)
    bound = min(bound, ratio)
    return Found(found.side, bound, proved=bound >= ratio * (1 - PROOF))


def _search(graph: CutGraph, found: Found, limits: Range, relaxed: float, options: CutOptions) -> tuple[Found, float]:
    """The best cut after looking at sets of these weights, and a bound on the ratio of every such set."""
    for _ in range(ROUNDS_MAX):
        ratio = graph.ratio(found.side)
        if ratio * (1 - PROOF) <= relaxed:
            return found, relaxed
        if options.deadline.remaining <= 0:
            return found, 0.0
        narrow = _narrowed(graph, limits, ratio, relaxed)
        side, value = best_set(graph, ratio, narrow, found.side, options.deadline)
        proven = ratio + min(0.0, value) / max(narrow.low, narrow.gain_min)
        if side is None or graph.ratio(side) >= ratio:
            return found, min(ratio, proven)
        better = replace(found, side=side)
        if graph.ratio(side) * (1 - PROOF) <= proven:  # the program's own bound already proves its cut
            return better, proven
        found = better
    return found, 0.0


def _lightest(graph: CutGraph, ratio: float, relaxed: float) -> float:
    """What the lighter side of every cut below this ratio weighs at least, by the flow's bound; may be negative."""
    throughput = 2 * relaxed / graph.total if graph.total > 0 else 0.0
    return graph.total - ratio / throughput if throughput > 0 else 0.0


def _narrowed(graph: CutGraph, limits: Range, ratio: float, relaxed: float) -> Range:
    """The range without the weights that a better cut than now known cannot have."""
    return replace(limits, low=max(limits.low, min(limits.high, _lightest(graph, ratio, relaxed))))


def _ranges(graph: CutGraph, ratio: float, relaxed: float) -> list[Range]:
    """Ranges of the lighter side's weight, heaviest first, that cover every set which may be better."""
    positive = np.concatenate([graph.weight[graph.weight > 0], graph.demands.weight])
    smallest = float(positive.min())
    lightest = max(_lightest(graph, ratio, relaxed), 0.0)
    high = graph.total / 2
    ranges: list[Range] = []
    while len(ranges) < RANGES_MAX:
        low = high / FACTOR
        last = low <= max(lightest, smallest) or len(graph.demands.weight) > 0
        if last:  # demand can be gained by sets that weigh nothing, so with demand there is one range for all
            ranges.append(Range(lightest, high, max(lightest, smallest)))
            return ranges
        ranges.append(Range(low, high, low))
        high = low
    return [*ranges, Range(0.0, high, smallest)]
