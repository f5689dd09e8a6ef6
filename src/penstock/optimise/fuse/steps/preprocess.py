"""COLA's pre-processor: Lemma 1 of paper 004, iterated, makes super-operators.

    w_e >= min(w_u + other edges of u, w_v + other edges of v)  =>  some optimum keeps u and v in one worker

The lighter end can move to the other's worker without making any worker larger or the cut dearer
(`test_gluing_keeps_the_optimum`). Three limits: vertices that a constraint names are not joined, as section 3.3 says;
the end that moves must take no memory where memory is limited, because the proof moves it to another node without
asking for room there; and where a worker is one thread, the two must be what any worker carries, because a vertex that
alone is more than that may stay alone and take nothing in.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from penstock.model.taskgraph import Longs
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.rules import Classes


def glued(graph: FuseGraph) -> FuseGraph:
    """The graph with every pair that Lemma 1 holds for made one, until it holds for none."""
    return graph.contracted(super_operators(graph))


def super_operators(graph: FuseGraph) -> Longs:
    """A super-operator number for each vertex."""
    neighbours: list[dict[int, float]] = [{} for _ in range(graph.count)]
    for a, b, w in zip(graph.u.tolist(), graph.v.tolist(), graph.weight.tolist(), strict=True):
        neighbours[a][b] = neighbours[b][a] = w
    load, memory = graph.load.tolist(), graph.memory_mb.tolist()
    memory_limited, carried = bool(np.isfinite(graph.memory_limit).any()), float(graph.worker_limit.min())
    classes = Classes(graph.count)
    waiting = deque(v for v in range(graph.count) if not graph.named[v])
    queued = set(waiting)
    while waiting:
        v = waiting.popleft()
        queued.discard(v)
        if classes.find(v) != v or not neighbours[v] or (memory_limited and memory[v] > 0):
            continue
        free = [u for u in neighbours[v] if not graph.named[u]]
        if not free:
            continue
        u = max(free, key=lambda u: (neighbours[v][u], -u))
        others = sum(w for x, w in neighbours[v].items() if x != u)
        if neighbours[v][u] < load[v] + others:
            continue
        others_of_u = sum(w for x, w in neighbours[u].items() if x != v)
        if load[v] + others + load[u] + others_of_u > carried:
            continue
        kept, gone = min(u, v), max(u, v)
        classes.join(kept, gone)
        load[kept] += load[gone]
        memory[kept] += memory[gone]
        for x, w in neighbours[gone].items():
            del neighbours[x][gone]
            if x != kept:
                neighbours[kept][x] = neighbours[x][kept] = neighbours[kept].get(x, 0.0) + w
        neighbours[gone] = {}
        # Vertices whose edges grew or merged may fulfil the condition now.
        for x in (kept, *neighbours[kept]):
            if x not in queued and not graph.named[x]:
                waiting.append(x)
                queued.add(x)
    return classes.labels()
