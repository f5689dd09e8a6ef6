"""What slow workers leave of a cluster: for the certificate and the price, and for schedulers.

A worker's speed is what it gets through in a second, as a share of what it did at first: a busy loop on its core or a
quota of its control group lowers it, and the CPU seconds that its tasks take stay the same. Schedulers know one
capacity for all workers of a node. Where some of them are slow and none is pinned they are offered the others alone.
Speeds within noise are 1.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.adapt.contract import Look
from penstock.model.cluster import Cluster, Node
from penstock.model.constraints import Pin
from penstock.model.plan import Slot

NOISE = 0.15  # of a speed, as in `deploy/driver/slots.py`
SPEED_MIN = 0.01


def slow_workers(look: Look) -> dict[Slot, float]:
    """The workers that are slower than noise explains, with their speeds."""
    return {slot: max(SPEED_MIN, speed) for slot, speed in sorted(look.speed.items()) if speed < 1 - NOISE}


def speeds_of(look: Look, node: Node) -> list[float]:
    """The speed of every worker of a node, in order: all that it has slots for, else all that it uses."""
    slow = slow_workers(look)
    used = max((slot.worker + 1 for slot in look.assignment.values() if slot.node == node.name), default=1)
    return [slow.get(Slot(node.name, w), 1.0) for w in range(used if node.slots is None else node.slots)]


def as_measured(look: Look, stretch: float = 1.0) -> Cluster:
    """The cluster with what its workers do now; a node's limit for one worker is that of its fastest."""
    return Cluster(tuple(_slowed(node, speeds_of(look, node), stretch) for node in look.cluster.nodes))


def _slowed(node: Node, speeds: list[float], stretch: float, thread: float | None = None) -> Node:
    own = None if node.worker_capacity is None else node.worker_capacity * (thread or max(speeds)) * stretch
    return replace(node, capacity=node.capacity * stretch * sum(speeds) / len(speeds), worker_capacity=own)


def as_offered(look: Look) -> Cluster:
    """The cluster that schedulers are to fill: slow workers are left out where their node has others.

    Where a worker has work all the time, others offer what they can do as things are: a load of a twentieth of a core
    is no little load where nobody gets more.
    """
    pinned = {c.node for c in (*look.graph.constraints, *look.demands) if isinstance(c, Pin)}
    nodes = [_offered(node, speeds_of(look, node), node.name in pinned) for node in look.cluster.nodes]
    return Cluster(tuple(_as_able(look, node) for node in nodes) if look.full else tuple(nodes))


def _as_able(look: Look, node: Node) -> Node:
    """A node with what its sound workers can do; one limit for all, that of the most able."""
    slow = slow_workers(look)
    able = [max(SPEED_MIN, cores) for slot, cores in look.able.items() if slot.node == node.name and slot not in slow]
    if not able:
        return node
    own = None if node.worker_capacity is None else node.worker_capacity * max(able)
    return replace(node, capacity=node.capacity * sum(able) / len(able), worker_capacity=own)


def _offered(node: Node, speeds: list[float], pinned: bool) -> Node:
    sound = speeds.count(1.0)
    if sound == len(speeds):
        return node
    if pinned or not sound or node.slots is None:
        return _slowed(node, speeds, 1.0, min(speeds))
    return replace(node, capacity=node.capacity * sound / len(speeds), slots=sound)
