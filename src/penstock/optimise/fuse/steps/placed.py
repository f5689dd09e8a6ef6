"""Fusion as a placement: a worker is a place with room for its thread, and what the placement cuts is what fusion cuts.

Where workers have threads enough, the workers of a node may as well be one, so a node is one place. Where a worker is
one thread, a node is as many places as it carries workers, each with an equal share. Some capacity is kept free for the
streams, which a placement does not count as load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from penstock.errors import UserError
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Longs
from penstock.optimise.contract import Deadline, Options, Problem
from penstock.optimise.fuse.contract import Fused
from penstock.optimise.fuse.steps.fuse_graph import numbered
from penstock.optimise.search import annealed

SHARES = (1.0, 0.97, 0.93, 0.88, 0.8)  # of each capacity that a placement may fill, to leave room for streams
THETA = 10.0  # a cap: what a placement does is fixed by its size
PLACES_MAX = 2_000  # beyond, a search over places takes longer than it is worth


def placed(problem: Problem, seed: int, deadline: Deadline) -> Iterator[tuple[float, Fused]]:
    """Placements with more and more room left for streams: the first that leaves enough wastes least."""
    for share in SHARES:
        cluster, node_of = places(problem, share)
        roomy = Problem(problem.graph, cluster)
        if len(node_of) > PLACES_MAX or roomy.shortfalls() or deadline.remaining <= 0:
            return
        try:
            options = Options(seed=seed, theta=min(THETA, deadline.remaining))
            place = annealed.find(roomy, options).node
        except UserError:
            continue
        used = np.unique(place)
        yield share, Fused(numbered(place.astype(np.int64)), node_of[used].astype(np.int32))


def places(problem: Problem, share: float) -> tuple[Cluster, Longs]:
    """A node for each place, with that share of its capacity, and the number of the node that it belongs to."""
    found: list[Node] = []
    node_of: list[int] = []
    for k, node in enumerate(problem.cluster.nodes):
        limit = node.capacity if node.worker_capacity is None else node.worker_capacity
        wanted = max(1, math.ceil(node.capacity / limit * (1 - 1e-9)))
        count = min(wanted, problem.task_count, node.slots or wanted)
        memory = None if node.memory_mb is None else node.memory_mb / count
        bandwidth = node.bandwidth_mbps if count == 1 else None
        capacity = share * min(node.capacity / count, limit)
        found += [Node(f"{node.name}.{i}", capacity, memory, bandwidth, rack=node.rack) for i in range(count)]
        node_of += [k] * count
    return Cluster(tuple(found)), np.array(node_of, dtype=np.int64)
