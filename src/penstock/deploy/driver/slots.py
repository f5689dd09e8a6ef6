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

from penstock.deploy.line.messages import CORES_MAX, Hello
from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Slot
from penstock.model.profile import Profile

USABLE_SHARE = 0.8
LEFT_SHARE = 0.05  # of a node's cores: what a job has there, however much other jobs use
SPEED_NOISE = 0.15  # relative: one test after the other on one machine differed by up to 10 %
TOLD_CORES = 0.01  # that other jobs use: less is not worth a note
SPEED_MAX = 16.0  # and its inverse is the least: a machine that says more is mistaken


@dataclass(frozen=True, slots=True)
class Power:
    """What a node has beside its number of workers."""

    cores: float = math.inf  # that all of its workers can use at once
    speed: float = 1.0  # of a core, in cores of the driver's machine
    memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What a worker of another job of the session takes, and where."""

    address: str  # of its executor
    boot_id: str
    cores: float
    declared: bool = False  # whether some of that is what its tasks declare, because they were not measured yet


@dataclass(frozen=True)
class Slots:
    """The node of each worker, in order of worker, and what each node has."""

    node_of: tuple[str, ...]
    power_of: Mapping[str, Power] = field(default_factory=dict)
    tags_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    taken: Mapping[str, float] = field(default_factory=dict)  # cores of nodes that other jobs use
    declared: frozenset[str] = frozenset()  # nodes of which some of that is declared, not measured

    @classmethod
    def of(
        cls, hellos: Sequence[Hello], node: str | None, work_ms: float | None = None, others: Sequence[Use] = ()
    ) -> Slots:
        """Where the workers are; `node` is "executor", "host", or None to decide by where the executors are.

        `work_ms` is what the workers' test of speed takes on the driver's machine; None: speeds are not compared.
        """
        names = node_names(hellos, node)
        return cls(
            tuple(names),
            powers(hellos, names, work_ms),
            common_tags(hellos, names),
            taken_of(hellos, names, others),
            frozenset(taken_of(hellos, names, [use for use in others if use.declared])),
        )

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
        left = max(LEFT_SHARE * power.cores, power.cores - self.taken.get(name, 0.0))
        capacity = min(float(count), left) * USABLE_SHARE * thread
        tags = self.tags_of.get(name, ())
        return Node(name, capacity, power.memory_mb, slots=count, tags=tags, worker_capacity=thread)


def compared_ms(hellos: Sequence[Hello], work_ms: float, own_boot_id: str) -> float | None:
    """The driver's test of speed, where a worker is on another machine; None: all are as fast as the driver's machine.

    Two tests on one busy machine differ by more than noise (once by 1.6), and plans would be made of that.
    """
    return None if all(hello.boot_id == own_boot_id for hello in hellos) else work_ms


def powers(hellos: Sequence[Hello], names: Sequence[str], work_ms: float | None) -> dict[str, Power]:
    """What each node has, by what its workers say; nodes of one host share cores and memory by their workers.

    What a control group leaves to a container (workers with one ipc) is no limit of the other containers of its host.
    """
    on_host = Counter(hello.boot_id for hello in hellos)
    inside = Counter(map(_container, hellos))
    quota = {key: max(o.cores for o in hellos if _container(o) == key) for key in inside}
    host_cores = {
        host: max(h.host_cores for h in hellos if h.boot_id == host)
        or max(h.cores for h in hellos if h.boot_id == host)
        for host in on_host
    }
    host_memory = {h.boot_id: min(o.memory_mb for o in hellos if o.boot_id == h.boot_id) for h in hellos}
    found: dict[str, Power] = {}
    for name in dict.fromkeys(names):
        here = [hello for hello, where in zip(hellos, names, strict=True) if where == name]
        host = here[0].boot_id
        share = len(here) / on_host[host]
        memory = host_memory[host] * share
        granted = sum(
            min(max(h.cores for h in here if _container(h) == key), quota[key] * count / inside[key])
            for key, count in Counter(map(_container, here)).items()
        )
        found[name] = Power(
            cores=min(granted, host_cores[host] * share),
            speed=_speed(min(hello.work_ms for hello in here), work_ms),
            memory_mb=memory if math.isfinite(memory) and memory > 0 else None,
        )
    return found


def _container(hello: Hello) -> tuple[str, str]:
    return hello.boot_id, hello.ipc


def taken_of(hellos: Sequence[Hello], names: Sequence[str], others: Sequence[Use]) -> dict[str, float]:
    """Cores that other jobs use of each node on which this one has workers."""
    by_address = {hello.address: name for hello, name in zip(hellos, names, strict=True)}
    on_host: dict[str, list[str]] = defaultdict(list)
    for hello, name in zip(hellos, names, strict=True):
        on_host[hello.boot_id] += [] if name in on_host[hello.boot_id] else [name]
    found: dict[str, float] = defaultdict(float)
    for use in others:
        # An executor of which this job has no worker takes from the whole host: all nodes there share its cores.
        there = [by_address[use.address]] if use.address in by_address else on_host.get(use.boot_id, [])
        for name in there:
            found[name] += use.cores / len(there)
    return dict(found)


def uses(
    hellos: Sequence[Hello], worker_of: Mapping[str, int], profile: Profile, declared: Mapping[str, float]
) -> tuple[Use, ...]:
    """What each worker of a job takes: as measured where it was, else as declared; a worker is one thread."""
    load = {**declared, **{task: measured.load for task, measured in profile.tasks.items()}}
    for edge in profile.edges:
        for task, cpu in ((edge.source, edge.send_cpu), (edge.target, edge.receive_cpu)):
            load[task] = load.get(task, 0.0) + (cpu or 0.0)
    cores: dict[int, float] = defaultdict(float)
    guessed = {worker for task, worker in worker_of.items() if task not in profile.tasks and declared.get(task)}
    for task, worker in worker_of.items():
        cores[worker] += load.get(task, 0.0)
    return tuple(
        Use(hello.address, hello.boot_id, min(1.0, cores[hello.worker]), hello.worker in guessed) for hello in hellos
    )


def taken_note(slots: Slots) -> tuple[str, ...]:
    """What other jobs use of the nodes of which that is known to matter."""
    told = [
        f"{cores:.2g} cores of {name!r}{' (declared, not measured yet)' if name in slots.declared else ''}"
        for name, cores in slots.taken.items()
        if cores >= TOLD_CORES and slots.power_of[name].cores < CORES_MAX
    ]
    return (
        (f"other jobs of this session use {' and '.join(told)}, which are taken off what this one has",) if told else ()
    )


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
