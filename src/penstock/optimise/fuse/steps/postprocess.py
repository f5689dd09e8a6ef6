"""COLA's post-processor: greedy merges that lower the cut and keep the partition schedulable (paper 004, section 2.2).

Of the pairs of workers whose merging leaves a feasible schedule, the pair with the heaviest streams between them is
merged, until there is none. Pairs without a stream gain nothing and stay as they are. Where a node states fewer slots
than it got workers, workers of that node are merged on, which lowers SIZE: heaviest streams first or, where that leaves
workers that no thread carries together, smallest workers first.
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
    for by_size in (False, True) if graph.limits_workers else (False,):
        merged_part, merged_host = _merged_on(graph, part, host, by_size)
        if not len(crowded := _crowded(graph, merged_host)):
            return merged_part, merged_host
    k = int(crowded[0])
    least = int((merged_host == k).sum())
    why = ", by the constraints or by what one worker carries" if graph.limits_workers else ""
    msg = (
        f"node {names[k]!r} has {graph.slots[k]} slots but {least} workers on it must stay apart{why}; give it more "
        "slots, add nodes, or drop a constraint"
    )
    raise NoPlanFound(msg)


def _crowded(graph: FuseGraph, host: Ints) -> Longs:
    """Nodes with more workers than slots."""
    return np.flatnonzero(np.bincount(host, minlength=len(graph.slots)) > graph.slots)


def _merged_on(graph: FuseGraph, part: Longs, host: Ints, by_size: bool) -> tuple[Longs, Ints]:
    """Workers of crowded nodes merged until none is crowded, or nothing more can be merged."""
    while len(crowded := _crowded(graph, host)):
        weight, sizes = graph.between(part), graph.sizes(part)
        here = np.flatnonzero(np.isin(host, crowded)).tolist()
        pairs = [(a, b) for i, a in enumerate(here) for b in here[i + 1 :] if host[a] == host[b]]
        if by_size:
            pairs.sort(key=lambda pair: (sizes[pair[0]] + sizes[pair[1]] - 2 * weight.get(pair, 0.0), pair))
        else:
            pairs.sort(key=lambda pair: (-weight.get(pair, 0.0), pair))
        for a, b in pairs:
            merged = merge_workers(graph, part, a, b)
            if merged is None or not all(host[x] == host[y] for x, y in merged[1]):
                continue
            after, there = numbered(merged[0]), host[np.unique(merged[0])]
            if graph.keeps_worker_limits(after, there):
                part, host = after, there
                break
        else:
            break
    return part, host
