"""Whether any placement exists: a plain feasibility program, asked when annealing found none that fits.

Tasks by nodes, a flag per edge and end where bandwidth is limited. It says nothing about cost; it either finds a plan,
proves that there is none, or runs out of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import Infeasible
from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Deadline, Problem
from penstock.optimise.exact.master import quiet_highs, run_confirmed

if TYPE_CHECKING:
    from highspy import Highs

CELLS_MAX = 200_000  # tasks x nodes, and flags, beyond which the program would not even load in time


def no_plan_exists(problem: Problem) -> str:
    """The sentence for a proven absence."""
    return (
        f"no plan exists for {problem.task_count} tasks on {problem.node_count} nodes: every way of sharing them out "
        f"exceeds a node's capacity, memory or bandwidth; add nodes, or split operators into smaller tasks"
    )


def any_placement(problem: Problem, deadline: Deadline) -> Ints | None:
    """A placement that keeps every limit, or None when time ran out; raises Infeasible when there is none."""
    import highspy

    n, m, graph = problem.task_count, problem.node_count, problem.graph
    limited = np.flatnonzero(np.isfinite(problem.bandwidth)).tolist() if len(graph.rate) else []
    edges = len(graph.rate)
    if n * m + 2 * edges * len(limited) > CELLS_MAX or deadline.remaining <= 0:
        return None
    highs = quiet_highs()
    leaves = {k: n * m + at * 2 * edges for at, k in enumerate(limited)}  # first flag of node k; entering flags follow
    count = n * m + 2 * edges * len(limited)
    highs.addVars(count, np.zeros(count), np.ones(count))
    cells = np.arange(n * m, dtype=np.int32)
    highs.changeColsIntegrality(n * m, cells, [highspy.HighsVarType.kInteger] * (n * m))
    for i in range(n):
        highs.addRow(1.0, 1.0, m, cells[i * m : (i + 1) * m], np.ones(m))
    for k in range(m):
        if deadline.remaining <= 0:
            return None
        # In shares of the node's limit: the solver's tolerances are absolute.
        highs.addRow(-np.inf, 1.0, n, cells[k::m], graph.load / problem.capacity[k])
        if np.isfinite(problem.memory_mb[k]) and problem.memory_mb[k] > 0:
            highs.addRow(-np.inf, 1.0, n, cells[k::m], graph.memory_mb / problem.memory_mb[k])
        elif problem.memory_mb[k] == 0:
            highs.addRow(-np.inf, 0.0, n, cells[k::m], (graph.memory_mb > 0).astype(np.float64))
    for k in limited:
        if deadline.remaining <= 0:
            return None
        _limit_bandwidth(highs, problem, k, leaves[k])
    if run_confirmed(highs, deadline) == highspy.HighsModelStatus.kInfeasible:
        raise Infeasible(no_plan_exists(problem))
    if highs.getInfo().primal_solution_status != 2:
        return None
    value = np.array(highs.getSolution().col_value)[: n * m].reshape(n, m)
    node: Ints = value.argmax(axis=1).astype(np.int32)
    return node


def _limit_bandwidth(highs: Highs, problem: Problem, k: int, first: int) -> None:
    """Rows for one node: a flag is up when the edge leaves (or enters) it, and the flagged rates are limited."""
    graph, m = problem.graph, problem.node_count
    edges = len(graph.rate)
    for e, (a, b) in enumerate(zip(graph.source.tolist(), graph.target.tolist(), strict=True)):
        for flag, here, there in ((first + e, a, b), (first + edges + e, b, a)):
            highs.addRow(
                0.0,
                np.inf,
                3,
                np.array([flag, there * m + k, here * m + k], dtype=np.int32),
                np.array([1.0, 1.0, -1.0]),
            )
    limit = float(problem.bandwidth[k])
    share = np.minimum(graph.rate / limit, 2.0) if limit > 0 else np.full(edges, 2.0)  # 2 is as impossible as more
    for at in (first, first + edges):
        flags = np.arange(at, at + edges, dtype=np.int32)
        highs.addRow(-np.inf, 1.0, edges, flags, share)
