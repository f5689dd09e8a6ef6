"""`fint`: bottom-up fusion (paper 004, section 4, after reference 13), derived: its stopping rule is not public.

Start from no fusion; among joined pairs of workers whose merged SIZE fits the largest node (and one worker of it) and
which leave the partition LPT-schedulable, merge the pair with the heaviest streams between them; stop when there is
none. As long as the partition is not schedulable at all, which happens where paying for every stream overloads the
cluster, pairs are merged without that test, because merging is what makes it schedulable.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.fuse.contract import FULL, Case, Fused
from penstock.optimise.fuse.steps.assign import Schedule, schedule_workers
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, numbered
from penstock.optimise.fuse.steps.quick_schedule import quick_schedule
from penstock.optimise.fuse.steps.workers import merge_workers

THETA_DEFAULT = 60.0


def fuse(case: Case) -> Fused:
    """Merge the heaviest pair until nothing can be merged."""
    graph = case.graph
    part = np.arange(graph.count, dtype=np.int64)
    schedule = _schedulable(graph, part)
    for _ in range(graph.count):
        if case.is_late:
            break
        found = merge_one(graph, part, schedule is not None)
        if found is None:
            break
        part, schedule = found
    if schedule is None:
        last = schedule_workers(graph, part, case.deadline(THETA_DEFAULT))
        schedule = last if last is not None and last.is_feasible else None
    if schedule is None:
        msg = (
            f"method 'fint' merged down to {int(part.max()) + 1} workers and LPT schedules them on no "
            f"{len(graph.capacity)} nodes; try --method best, or add nodes"
        )
        raise NoPlanFound(msg)
    return Fused(part[graph.vertex_of], schedule.host)


def _schedulable(graph: FuseGraph, part: Longs) -> Schedule | None:
    schedule = quick_schedule(graph, part)
    return schedule if schedule is not None and schedule.is_feasible else None


def merge_one(graph: FuseGraph, part: Longs, must_stay: bool) -> tuple[Longs, Schedule | None] | None:
    """The heaviest merge that is allowed, or None."""
    sizes, largest = graph.sizes(part), float(np.minimum(graph.capacity, graph.worker_limit).max()) * FULL
    for (a, b), weight in sorted(graph.between(part).items(), key=lambda item: (-item[1], item[0])):
        if _merged_size(sizes, a, b, weight) > largest:
            continue
        merged = merge_workers(graph, part, a, b)
        if merged is None:
            continue
        after = numbered(merged[0])
        schedule = _schedulable(graph, after)
        if schedule is not None or not must_stay:
            return after, schedule
    return None


def _merged_size(sizes: Floats, a: int, b: int, weight: float) -> float:
    return float(sizes[a] + sizes[b]) - 2.0 * weight
