"""Random topologies in which no two tasks are alike, on clusters of three node types, for the exact solver's tests.

Operators of 1 to 6 tasks in a layered acyclic graph; a load per task and a rate per task pair, both lognormal; streams
join all pairs of tasks. The cluster has 4 to 12 nodes of three capacities, 1.3 to 1.6 times the load in all.
"""

from __future__ import annotations

import itertools

import numpy as np

from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Problem


def unequal_topology(tasks: int, rng: np.random.Generator) -> OperatorGraph:
    """Layers of one to three operators; every operator hears one or two of the layer before."""
    sizes: list[int] = []
    while sum(sizes) < tasks:
        sizes.append(min(int(rng.integers(1, 7)), tasks - sum(sizes)))
    operators = tuple(
        Operator(f"o{k}", size, load=tuple(rng.lognormal(0.0, 0.5, size).tolist())) for k, size in enumerate(sizes)
    )
    layers: list[list[int]] = []
    at = 0
    while at < len(sizes):
        width = min(int(rng.integers(1, 4)), len(sizes) - at)
        layers.append(list(range(at, at + width)))
        at += width
    streams = []
    for before, layer in itertools.pairwise(layers):
        for k in layer:
            heard = rng.choice(before, size=min(len(before), int(rng.integers(1, 3))), replace=False)
            for source in sorted(int(s) for s in heard):
                rate = tuple(tuple(row) for row in rng.lognormal(0.0, 1.0, (sizes[source], sizes[k])).tolist())
                streams.append(Stream(f"o{source}", f"o{k}", rate=rate))
    return OperatorGraph(f"unequal:{tasks}", operators, tuple(streams))


def unequal_cluster(graph: OperatorGraph, rng: np.random.Generator) -> Cluster:
    """Nodes of sizes 1, 1.5 and 2.5, scaled to 1.3 to 1.6 times the load, the largest never below the largest task."""
    loads = [load for operator in graph.operators for load in operator.loads()]
    size = np.array([1.0, 1.5, 2.5])[np.arange(int(rng.integers(4, 13))) % 3]
    capacity = size * (sum(loads) * rng.uniform(1.3, 1.6) / size.sum())
    capacity *= max(1.0, 1.05 * max(loads) / capacity.max())
    return Cluster(tuple(Node(f"n{k}", float(c)) for k, c in enumerate(capacity)))


def unequal_problem(tasks: int, seed: int) -> Problem:
    """The instance of this size and seed."""
    rng = np.random.default_rng([tasks, seed])
    graph = unequal_topology(tasks, rng)
    return Problem(TaskGraph.expand(graph), unequal_cluster(graph, rng))
