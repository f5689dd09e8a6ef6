"""`none`: no fusion, every task its own worker, scheduled by LPT; colocated tasks share one because they must."""

from __future__ import annotations

import numpy as np

from penstock.errors import NoPlanFound
from penstock.optimise.fuse.contract import Case, Fused
from penstock.optimise.fuse.steps.assign import schedule_workers
from penstock.optimise.fuse.steps.quick_schedule import quick_schedule

THETA_DEFAULT = 10.0


def fuse(case: Case) -> Fused:
    """Workers of one vertex each."""
    graph = case.graph
    part = np.arange(graph.count, dtype=np.int64)
    schedule = quick_schedule(graph, part)
    if schedule is None or not schedule.is_feasible:
        schedule = schedule_workers(graph, part, case.deadline(THETA_DEFAULT)) or schedule
    if schedule is None or not schedule.is_feasible:
        full = "" if schedule is None else f": the fullest node would be at {100 * schedule.utilisation:.4g} %"
        msg = (
            f"method 'none' found no schedule for {graph.count} workers on {len(graph.capacity)} nodes, with every "
            f"stream paid for at both ends{full}; try --method best, add nodes, or lower --stream-cost"
        )
        raise NoPlanFound(msg)
    return Fused(part[graph.vertex_of], schedule.host)
