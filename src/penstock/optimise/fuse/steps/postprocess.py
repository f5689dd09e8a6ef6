"""COLA's post-processor: greedy merges that lower the cut and keep the partition schedulable (paper 004, section 2.2).

Of the pairs of workers whose merging leaves a feasible schedule, the pair with the heaviest streams between them is
merged, until there is none. Pairs without a stream gain nothing and stay as they are. Where a node states fewer slots
than it got workers, workers of that node are merged on, which lowers SIZE and keeps every limit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Ints, Longs
from penstock.optimise.fuse.steps.assign import Schedule
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, numbered
from penstock.optimise.fuse.steps.workers import merge_workers

Acceptable = Callable[[Longs, list[tuple[int, int]]], "Schedule | None"]


def greedily_merged(graph: FuseGraph, part: Longs, schedule: Schedule, accept: Acceptable) -> tuple[Longs, Schedule]:
    """Merge while `accept` gives a schedule for the merged partition; it is shown which workers were merged."""
    for _ in range(graph.count):
        pairs = sorted(graph.between(part).items(), key=lambda item: (-item[1], item[0]))
        for (a, b), _weight in pairs:
            merged = merge_workers(graph, part, a, b)
            if merged is None:
                continue
            after = numbered(merged[0])
            accepted = accept(after, merged[1])
            if accepted is not None:
                part, schedule = after, accepted
                break
        else:
            return part, schedule
    return part, schedule


def within_slots(graph: FuseGraph, part: Longs, host: Ints, names: list[str]) -> tuple[Longs, Ints]:
    """The same schedule with at most as many workers on a node as it has slots; NoPlanFound where rules forbid it."""
    while len(crowded := np.flatnonzero(np.bincount(host, minlength=len(graph.slots)) > graph.slots)):
        weight = graph.between(part)
        here = np.flatnonzero(np.isin(host, crowded)).tolist()
        pairs = [(a, b) for i, a in enumerate(here) for b in here[i + 1 :] if host[a] == host[b]]
        for a, b in sorted(pairs, key=lambda pair: (-weight.get(pair, 0.0), pair)):
            merged = merge_workers(graph, part, a, b)
            if merged is not None and all(host[x] == host[y] for x, y in merged[1]):
                kept = np.unique(merged[0])
                part, host = numbered(merged[0]), host[kept]
                break
        else:
            k = int(crowded[0])
            msg = (
                f"node {names[k]!r} has {graph.slots[k]} slots but {int((host == k).sum())} workers on it must stay "
                "apart; give it more slots, add nodes, or drop a constraint"
            )
            raise NoPlanFound(msg)
    return part, host
