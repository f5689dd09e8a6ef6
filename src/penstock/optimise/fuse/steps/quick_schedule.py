"""A schedule without asking the integer program: plain LPT, or LPT under the rules where there are any."""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.steps.assign import Schedule, schedule_workers
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.lpt import lpt

NEVER = Deadline(float("inf"))


def is_plain(graph: FuseGraph) -> bool:
    """Whether CPU is all that limits a schedule."""
    return (
        not len(graph.node_label)
        and bool(graph.allowed.all())
        and int(graph.site.max()) + 1 == graph.count
        and not np.isfinite(graph.memory_limit).any()
        and len(np.unique(graph.worker_limit)) == 1
    )


def quick_schedule(graph: FuseGraph, part: Longs) -> Schedule | None:
    """LPT's schedule; None when it finds none that keeps the rules."""
    if not is_plain(graph):
        return schedule_workers(graph, part, NEVER, ask=False)
    return Schedule.of(graph, part, lpt(graph.sizes(part), graph.capacity))
