"""One round of the exact sparsest cut: the set of smallest cut - r * gain, as an integer program in HiGHS.

A 0-1 variable for each vertex (in the set or not), a variable for each edge that is at least the difference of its
ends, one for each demand that is at most it, and one row that keeps the set's weight in a range. Values are in units of
r times the largest gain in the range, so that every coefficient is at most 1: heavier edges are cut by no better set
and are made just heavy enough, heavier vertices are in no set of the range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.taskgraph import Floats, Ints
from penstock.optimise.exact.master import RESOLUTION, quiet_highs, run_confirmed
from penstock.optimise.fuse.ratio_cut.cut_graph import CutGraph, Side

if TYPE_CHECKING:
    from highspy import Highs

    from penstock.optimise.contract import Deadline

GAP = RESOLUTION / 10
SLACK = 1e-9  # of the largest weight: halves that differ by rounding are still halves


@dataclass(frozen=True)
class Range:
    """Weights that the lighter side may have, and the smallest gain of a set in it."""

    low: float
    high: float
    gain_min: float


def best_set(
    graph: CutGraph, ratio: float, limits: Range, known: Side, deadline: Deadline
) -> tuple[Side | None, float]:
    """(the best set found or None, a true lower bound on cut - ratio * gain of every set in the range)."""
    unit = limits.high + float(graph.demands.weight.sum())
    highs = _program(graph, ratio * unit, unit, limits)
    _start_from(highs, graph, known, limits)
    run_confirmed(highs, deadline)
    bound = _bound(highs)
    value = np.array(highs.getSolution().col_value)
    found = value[: graph.size] > 0.5 if len(value) else None
    usable = found is not None and 0 < np.count_nonzero(found) < graph.size
    return found if usable else None, (bound - RESOLUTION) * ratio * unit


def _bound(highs: Highs) -> float:
    """What the run proved about all values: at most 0, because it looked for better sets than the known one."""
    import highspy

    status, info = highs.getModelStatus(), highs.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return 0.0
    bound = float(info.mip_dual_bound)
    if status == highspy.HighsModelStatus.kOptimal and not math.isfinite(bound):
        bound = float(info.objective_function_value) - GAP  # solved before branching: no bound is kept then
    return -1.0 if math.isnan(bound) else min(0.0, max(-1.0, bound))


def _program(graph: CutGraph, cost_unit: float, gain_unit: float, limits: Range) -> Highs:
    import highspy

    vertices, edges, pairs = graph.size, len(graph.streams.weight), len(graph.demands.weight)
    highs = quiet_highs()
    highs.setOptionValue("mip_rel_gap", 0.0)
    highs.setOptionValue("mip_abs_gap", GAP)
    highs.setOptionValue("objective_bound", 0.0)
    count = vertices + edges + pairs
    cost = np.concatenate(
        [
            -graph.weight / gain_unit,
            np.minimum(1.0, graph.streams.weight / cost_unit),
            -graph.demands.weight / gain_unit,
        ]
    )
    upper = np.ones(count)
    upper[:vertices][graph.weight > limits.high * (1 + SLACK)] = 0.0
    none = np.zeros(0, dtype=np.int32)
    highs.addCols(count, cost, np.zeros(count), upper, 0, np.zeros(count, dtype=np.int32), none, np.zeros(0))
    integer = np.full(vertices, highspy.HighsVarType.kInteger)
    highs.changeColsIntegrality(vertices, np.arange(vertices, dtype=np.int32), integer)
    streams, demands = graph.streams, graph.demands
    own = np.arange(vertices, vertices + edges, dtype=np.int32)
    _add_rows(highs, 0.0, math.inf, (own, 1.0), (streams.source, 1.0), (streams.target, -1.0))
    _add_rows(highs, 0.0, math.inf, (own, 1.0), (streams.source, -1.0), (streams.target, 1.0))
    own = np.arange(vertices + edges, count, dtype=np.int32)
    _add_rows(highs, -math.inf, 0.0, (own, 1.0), (demands.source, -1.0), (demands.target, -1.0))
    _add_rows(highs, -math.inf, 2.0, (own, 1.0), (demands.source, 1.0), (demands.target, 1.0))
    if limits.high > 0:
        low, high = limits.low / limits.high - SLACK, 1.0 + SLACK
        highs.addRow(low, high, vertices, np.arange(vertices, dtype=np.int32), graph.weight / limits.high)
    return highs


def _add_rows(highs: Highs, lower: float, upper: float, *terms: tuple[Ints, float]) -> None:
    """One row for each entry of the terms' columns, which all have the same length."""
    count = len(terms[0][0])
    if count == 0:
        return
    columns = np.stack([column for column, _ in terms], axis=1).reshape(-1)
    values: Floats = np.tile(np.array([factor for _, factor in terms]), count)
    starts = np.arange(0, len(columns), len(terms), dtype=np.int32)
    infinite = highs.getInfinity()
    limits = [np.full(count, min(infinite, max(-infinite, limit))) for limit in (lower, upper)]
    highs.addRows(count, limits[0], limits[1], len(columns), starts, columns.astype(np.int32), values)


def _start_from(highs: Highs, graph: CutGraph, known: Side, limits: Range) -> None:
    """Hand over the known cut where it is in the range: its value is 0, and better sets are looked for."""
    import highspy

    lighter = known if graph.weight[known].sum() <= graph.weight[~known].sum() else ~known
    weight = float(graph.weight[lighter].sum())
    if not limits.low <= weight <= limits.high:
        return
    solution = highspy.HighsSolution()
    inside = lighter.astype(np.float64)
    apart = [np.abs(inside[pairs.source] - inside[pairs.target]) for pairs in (graph.streams, graph.demands)]
    solution.col_value = np.concatenate([inside, *apart]).tolist()
    highs.setSolution(solution)
