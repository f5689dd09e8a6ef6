"""Isomorphic replicas seen alike: loads and inner streams of mirrored vertices replaced by their averages.

Paper 004, section 3.3, pre-processor. The partitioner looks at this graph, so that a cut suits all replicas, whichever
of them it is found on; sizes and limits are taken from the real one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.optimise.fuse.steps.fuse_graph import FuseGraph


def averaged(graph: FuseGraph) -> FuseGraph:
    """The graph with averages in its mirrored groups."""
    if not graph.mirrors:
        return graph
    load, weight = graph.load.copy(), graph.weight.copy()
    for mirror in graph.mirrors:
        load[mirror] = load[mirror].mean(axis=0)
        groups, positions = mirror.shape
        place = np.full(graph.count, -1, dtype=np.int64)
        group = np.full(graph.count, -1, dtype=np.int64)
        for g in range(groups):
            place[mirror[g]] = np.arange(positions)
            group[mirror[g]] = g
        inside = (group[graph.u] >= 0) & (group[graph.u] == group[graph.v])
        low = np.minimum(place[graph.u], place[graph.v])[inside]
        high = np.maximum(place[graph.u], place[graph.v])[inside]
        _, at = np.unique(low * positions + high, return_inverse=True)
        weight[inside] = (np.bincount(at, weight[inside]) / groups)[at]
    return replace(graph, load=load, weight=weight)
