"""Cluster: the nodes that tasks can be put on.

>>> [node.name for node in Cluster.uniform([(2, 6.0), (1, 4.0)]).nodes]
['n1', 'n2', 'n3']
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.model.topology import MAGNITUDE_MAX, NAME_LENGTH_MAX, name_faults

NODES_MAX = 100_000
SLOTS_MAX = 100_000
BYTES_PER_SECOND_PER_MBPS = 125_000.0
MAGNITUDE_MIN = 1e-12  # of a capacity or another limit; anything below is a mistake in the unit


@dataclass(frozen=True, slots=True)
class Node:
    """A host; None means that the resource is not limited (or, for slots, follows from the capacity).

    Capacities are in cores of the machine that loads were measured on, as loads are.
    """

    name: str
    capacity: float
    memory_mb: float | None = None
    bandwidth_mbps: float | None = None  # each way: what leaves the node and what enters it are limited separately
    slots: int | None = None
    rack: str = "r1"
    tags: tuple[str, ...] = ()
    worker_capacity: float | None = 1.0  # of one worker: it is one thread; None where workers have threads enough

    @property
    def workers_max(self) -> int:
        """Worker processes that fit: the slots given, else one per whole unit of capacity and at least one."""
        return self.slots if self.slots is not None else max(1, min(SLOTS_MAX, math.floor(self.capacity)))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in the order of the file; their names are unique."""

    nodes: tuple[Node, ...]

    @classmethod
    def uniform(cls, groups: Iterable[tuple[int, float]], worker_capacity: float | None = 1.0) -> Cluster:
        """Nodes named n1, n2, ... from (how many, capacity) groups."""
        capacities = [capacity for count, capacity in groups for _ in range(count)]
        nodes = (Node(f"n{i}", capacity, worker_capacity=worker_capacity) for i, capacity in enumerate(capacities, 1))
        return cls(tuple(nodes))

    @property
    def capacity(self) -> float:
        """Capacity of all nodes together."""
        return math.fsum(node.capacity for node in self.nodes)

    @property
    def tags(self) -> dict[str, tuple[str, ...]]:
        """The tags of every node."""
        return {node.name: node.tags for node in self.nodes}

    def faults(self) -> list[str]:
        """Every fault of this cluster, one sentence each; empty when it is sound."""
        if not self.nodes:
            return ["the cluster has no nodes; give at least one"]
        if len(self.nodes) > NODES_MAX:
            return [f"the cluster has {len(self.nodes)} nodes; the limit is {NODES_MAX}"]
        faults: list[str] = []
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                faults.append(f"node name {node.name!r} is used twice; names must be unique")
            seen.add(node.name)
            faults += _node_faults(node)
        return faults

    def validated(self) -> Cluster:
        """This cluster, or InvalidInput with every fault."""
        if faults := self.faults():
            raise InvalidInput(faults)
        return self


def _node_faults(node: Node) -> list[str]:
    faults = name_faults(f"node {node.name[: NAME_LENGTH_MAX + 1]!r}", node.name)
    for label, value in (
        ("capacity", node.capacity),
        ("memory_mb", node.memory_mb),
        ("bandwidth_mbps", node.bandwidth_mbps),
        ("worker_capacity", node.worker_capacity),
    ):
        if value is not None and not (math.isfinite(value) and MAGNITUDE_MIN <= value <= MAGNITUDE_MAX):
            limits = f"finite, at least {MAGNITUDE_MIN:g} and at most {MAGNITUDE_MAX:g}"
            faults.append(f"{label} of node {node.name!r} is {value:g}; it must be {limits}")
    if node.slots is not None and not 1 <= node.slots <= SLOTS_MAX:
        faults.append(f"slots of node {node.name!r} is {node.slots}; it must be from 1 to {SLOTS_MAX}")
    return faults
