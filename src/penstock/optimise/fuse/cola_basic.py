"""`cola-basic`: Basic COLA (paper 004, section 2.2). Split the largest worker until LPT can schedule the workers.

    pre-processor    Lemma 1 makes super-operators                         preprocess.py
    scheduler        longest processing time first                         lpt.py
    oracle           the largest worker with more than one vertex          here
    partitioner      minimum-ratio cut                                     partition.py
    post-processor   greedy merges that LPT can still schedule             postprocess.py

The basic scheme knows no constraints; the certificate refuses a plan that breaks one. Memory counts where nodes limit
it, in the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Longs
from penstock.optimise.fuse.contract import Case, Fused
from penstock.optimise.fuse.steps.assign import Schedule
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, fuse_graph
from penstock.optimise.fuse.steps.partition import Partitioner
from penstock.optimise.fuse.steps.postprocess import greedily_merged
from penstock.optimise.fuse.steps.preprocess import glued
from penstock.optimise.fuse.steps.quick_schedule import quick_schedule
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.fuse.steps.workers import split_worker

THETA_DEFAULT = 300.0


def fuse(case: Case) -> Fused:
    """Split until it fits, then merge what can be merged."""
    options = case.options
    graph = glued(fuse_graph(case.problem, compile_rules(case.problem, ()), case.stream_cost))
    cut = options.cut or "leighton-rao"
    # Without constraints Advanced COLA cuts the same graph, so the two share what they find.
    known = case.splits.setdefault(f"{cut} free", {})
    partitioner = Partitioner(graph, cut, options.epsilon, options.seed, case.deadline(THETA_DEFAULT), known)
    part, schedule = split_until_feasible(graph, partitioner, case.require_time)
    part, schedule = greedily_merged(
        graph, part, schedule, lambda after, _: None if case.is_late else _feasible(graph, after)
    )
    return Fused(part[graph.vertex_of], schedule.host)


def split_until_feasible(
    graph: FuseGraph, partitioner: Partitioner, require_time: Callable[[], None]
) -> tuple[Longs, Schedule]:
    """The main loop."""
    part = np.zeros(graph.count, dtype=np.int64)
    schedule = _feasible(graph, part)
    while schedule is None:
        require_time()
        vertices = largest_divisible(graph, part)
        if vertices is None:
            msg = (
                f"method 'cola-basic' split everything into {graph.count} workers and LPT schedules them on no "
                f"{len(graph.capacity)} nodes; try --method best, add nodes, or lower --stream-cost"
            )
            raise NoPlanFound(msg)
        part = split_worker(graph, part, vertices, partitioner.split(vertices))
        schedule = _feasible(graph, part)
    return part, schedule


def _feasible(graph: FuseGraph, part: Longs) -> Schedule | None:
    schedule = quick_schedule(graph, part)
    return schedule if schedule is not None and schedule.is_feasible else None


def largest_divisible(graph: FuseGraph, part: Longs, among: Longs | None = None) -> Longs | None:
    """The oracle: vertices of the largest worker that has more than one, of all workers or of some."""
    sizes = np.where(np.bincount(part) > 1, graph.sizes(part), -1.0)
    if among is not None:
        chosen = np.zeros(len(sizes), dtype=bool)
        chosen[among] = True
        sizes = np.where(chosen, sizes, -1.0)
    worker = int(np.argmax(sizes))
    return np.flatnonzero(part == worker) if sizes[worker] >= 0 else None
