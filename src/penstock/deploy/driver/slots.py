"""Slots: the workers that Spark gave, by node. A plan speaks of worker 0, 1, ... of a node, a job of worker 0, 1, ...

A node is a host; where all executors share one host (`local-cluster`, one machine) an executor counts as a node, so
that placement means something there as well. What a node can do is what its workers report: each is a thread of the
host's speed, all of them together have the cores that the executor may use, and nodes of one host share that host's
cores. Of a node's cores 0.8 are for tasks, as the papers set it where capacities are discovered.

A worker's report is believed within limits (`Hello` refuses nonsense). Speeds that differ from the driver's machine by
no more than noise are 1, so that plans do not change from one start to the next (`test_speeds_within_noise_are_one`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.deploy.line.messages import Hello
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Slot

USABLE_SHARE = 0.8
SPEED_NOISE = 0.15  # relative: one test after the other on one machine differed by up to 10 %
SPEED_MAX = 16.0  # and its inverse is the least: a machine that says more is mistaken


@dataclass(frozen=True, slots=True)
class Power:
    """What a node has beside its number of workers."""

    cores: float = math.inf  # that all of its workers can use at once
    speed: float = 1.0  # of a core, in cores of the driver's machine
    memory_mb: float | None = None


@dataclass(frozen=True)
class Slots:
    """The node of each worker, in order of worker, and what each node has."""

    node_of: tuple[str, ...]
    power_of: Mapping[str, Power] = field(default_factory=dict)
    tags_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, hellos: Sequence[Hello], node: str | None, work_ms: float | None = None) -> Slots:
        """Where the workers are; `node` is "executor", "host", or None to decide by where the executors are.

        `work_ms` is what the workers' test of speed takes on the driver's machine; None: speeds are not compared.
        """
        names = node_names(hellos, node)
        return cls(tuple(names), powers(hellos, names, work_ms), common_tags(hellos, names))

    @cached_property
    def workers_on(self) -> dict[str, list[int]]:
        """The workers of each node."""
        found: dict[str, list[int]] = defaultdict(list)
        for worker, name in enumerate(self.node_of):
            found[name].append(worker)
        return dict(found)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many workers each node has."""
        return {name: len(workers) for name, workers in self.workers_on.items()}

    @property
    def offered(self) -> float:
        """Cores that tasks can use."""
        return self.cluster().capacity

    def slot(self, worker: int) -> Slot:
        """A worker of the job in a plan's words."""
        name = self.node_of[worker]
        return Slot(name, self.workers_on[name].index(worker))

    def worker(self, slot: Slot) -> int:
        """A slot of a plan in the job's words."""
        return self.workers_on[slot.node][slot.worker]

    def cluster(self, stretched: float = 1.0) -> Cluster:
        """Nodes with a slot for each worker; what they and their workers carry is multiplied by a factor."""
        return Cluster(tuple(self._node(name, count, stretched) for name, count in self.counts.items()))

    def _node(self, name: str, count: int, stretched: float) -> Node:
        power = self.power_of.get(name, Power())
        thread = power.speed * stretched
        capacity = min(float(count), power.cores) * USABLE_SHARE * thread
        tags = self.tags_of.get(name, ())
        return Node(name, capacity, power.memory_mb, slots=count, tags=tags, worker_capacity=thread)


def powers(hellos: Sequence[Hello], names: Sequence[str], work_ms: float | None) -> dict[str, Power]:
    """What each node has, by what its workers say; nodes of one host share cores and memory by their workers."""
    on_host = Counter(hello.boot_id for hello in hellos)
    host_cores = {h.boot_id: max(o.cores for o in hellos if o.boot_id == h.boot_id) for h in hellos}
    host_memory = {h.boot_id: min(o.memory_mb for o in hellos if o.boot_id == h.boot_id) for h in hellos}
    found: dict[str, Power] = {}
    for name in dict.fromkeys(names):
        here = [hello for hello, where in zip(hellos, names, strict=True) if where == name]
        host = here[0].boot_id
        share = len(here) / on_host[host]
        memory = host_memory[host] * share
        found[name] = Power(
            cores=min(max(hello.cores for hello in here), host_cores[host] * share),
            speed=_speed(min(hello.work_ms for hello in here), work_ms),
            memory_mb=memory if math.isfinite(memory) and memory > 0 else None,
        )
    return found


def _speed(theirs_ms: float, ours_ms: float | None) -> float:
    """How fast a core is against the driver's; 1 where that is within noise or not known."""
    if ours_ms is None or theirs_ms <= 0:
        return 1.0
    speed = min(SPEED_MAX, max(1 / SPEED_MAX, ours_ms / theirs_ms))
    return 1.0 if 1 / (1 + SPEED_NOISE) <= speed <= 1 + SPEED_NOISE else speed


def common_tags(hellos: Sequence[Hello], node_of: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The tags of each node: those of all of its workers, because a task may be in any of them."""
    found: dict[str, tuple[str, ...]] = {}
    for hello, name in zip(hellos, node_of, strict=True):
        found[name] = tuple(tag for tag in found.get(name, hello.tags) if tag in hello.tags)
    return found


def node_names(hellos: Sequence[Hello], node: str | None) -> list[str]:
    """The node of each worker: n1, n2, ... by executor, or the host's own name."""
    machines = {hello.boot_id for hello in hellos}
    kind = node or ("executor" if len(machines) == 1 else "host")
    if kind == "executor":
        number = {address: i for i, address in enumerate(sorted({hello.address for hello in hellos}), start=1)}
        return [f"n{number[hello.address]}" for hello in hellos]
    name_of: dict[str, str] = {}
    for hello in sorted(hellos, key=lambda hello: hello.address):
        name_of.setdefault(hello.boot_id, hello.address.rpartition(":")[0] or hello.address)
    return [name_of[hello.boot_id] for hello in hellos]
