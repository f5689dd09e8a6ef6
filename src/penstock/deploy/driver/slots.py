"""Slots: the workers that Spark gave, by node. A plan speaks of worker 0, 1, ... of a node, a job of worker 0, 1, ...

A node is a host; where all executors share one host (`local-cluster`, one machine) an executor counts as a node, so
that placement means something there as well. Capacity is cores x 0.8, as the papers set it where capacities are
discovered; `stretched` says when it is taken to be more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from penstock.deploy.line.messages import Hello
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Slot

USABLE_SHARE = 0.8


@dataclass(frozen=True)
class Slots:
    """The node of each worker, in order of worker."""

    node_of: tuple[str, ...]

    @classmethod
    def of(cls, hellos: Sequence[Hello], node: str | None) -> Slots:
        """Where the workers are; `node` is "executor", "host", or None to decide by where the executors are."""
        return cls(tuple(node_names(hellos, node)))

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
        return len(self.node_of) * USABLE_SHARE

    def slot(self, worker: int) -> Slot:
        """A worker of the job in a plan's words."""
        name = self.node_of[worker]
        return Slot(name, self.workers_on[name].index(worker))

    def worker(self, slot: Slot) -> int:
        """A slot of a plan in the job's words."""
        return self.workers_on[slot.node][slot.worker]

    def cluster(self, stretched: float = 1.0) -> Cluster:
        """Nodes with as many slots as there are workers, each a core of which 0.8 is usable, times a factor."""
        share = USABLE_SHARE * stretched
        return Cluster(
            tuple(
                Node(name, count * share, slots=count, worker_capacity=stretched) for name, count in self.counts.items()
            )
        )


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
