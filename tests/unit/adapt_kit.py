"""A job in virtual time for tests of `penstock.adapt`: truth, measurements with noise, and plans that move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.adapt.candidate import candidates
from penstock.adapt.contract import AdaptSettings, Assignment, Decision, Look, Memory, Offer
from penstock.adapt.core_shares import CoreTime, Slow, able_workers, full_workers, slow_after
from penstock.adapt.decide import decide
from penstock.adapt.held_back import Free, as_free, free_after, held_back
from penstock.model.cluster import Cluster, Node
from penstock.model.costs import Distance
from penstock.model.plan import Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.task_id import TaskId
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.testing import task_rates

MB = 1e6
Offering = Callable[[Look, AdaptSettings], Offer]


def three_nodes(workers: int = 1, capacity: float = 0.8) -> Cluster:
    """What a job on three executors has: a thread each, of which a fifth stays free."""
    return Cluster(tuple(Node(f"n{k}", capacity * workers, slots=workers) for k in range(3)))


def pairs_graph(pairs: int = 6, heavy: float = 10 * MB, light: float = 0.2 * MB, load: float = 0.15) -> OperatorGraph:
    """Sources and counts; count i gets most of its bytes from source i."""
    rates = tuple(tuple(heavy if i == j else light for j in range(pairs)) for i in range(pairs))
    operators = (Operator("source", pairs, load=load, source=True), Operator("count", pairs, load=load))
    return OperatorGraph("pairs", operators, (Stream("source", "count", rate=rates),))


def round_robin(graph: OperatorGraph, cluster: Cluster) -> dict[str, Slot]:
    """Each task on the next worker, operator by operator, as the papers' first plans are."""
    slots = [Slot(node.name, w) for w in range(max(n.slots or 1 for n in cluster.nodes)) for node in cluster.nodes
             if w < (node.slots or 1)]  # fmt: skip
    tasks = [TaskId.of(o.name, i) for o in graph.operators for i in range(o.tasks)]
    return {task: slots[i % len(slots)] for i, task in enumerate(tasks)}


def measured(
    graph: OperatorGraph, assignment: Assignment, rng: np.random.Generator, noise: float = 0.0, seconds: float = 10.0
) -> Profile:
    """What a job would measure in an interval: truth times noise, and how much that noise is."""
    loads = {TaskId.of(o.name, i): load for o in graph.operators for i, load in enumerate(o.loads())}
    tasks = {t: TaskProfile(_noisy(load, rng, noise), spread=noise * load) for t, load in loads.items()}
    edges = tuple(
        EdgeProfile(a, b, _noisy(rate, rng, noise), distance=_distance(assignment[a], assignment[b]))
        for (a, b), rate in task_rates(graph).items()
    )
    return Profile(tasks, edges, seconds=seconds, rows=1e5)


def _noisy(amount: float, rng: np.random.Generator, noise: float) -> float:
    return float(amount * max(0.0, 1.0 + noise * rng.standard_normal()))


def _distance(a: Slot, b: Slot) -> Distance:
    return "socket" if a.node != b.node else "ring" if a.worker != b.worker else "call"


@dataclass
class VirtualJob:
    """A job that follows every decision at once."""

    graph: OperatorGraph
    cluster: Cluster
    settings: AdaptSettings
    seed: int = 0
    noise: float = 0.0
    offering: Offering = candidates
    usable_share: float = 0.8
    speed: dict[Slot, float] = field(default_factory=dict)
    cores: dict[Slot, float] = field(default_factory=dict)  # of one, which workers have; then all is measured by that
    slow: dict[Slot, Slow] = field(default_factory=dict)
    free: Free | None = None
    state_bytes: dict[str, float] = field(default_factory=dict)
    latency_us: float | None = None
    now_s: float = 0.0
    memory: Memory = field(default_factory=Memory)
    decisions: list[Decision] = field(default_factory=list)
    assignment: dict[str, Slot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.assignment = self.assignment or round_robin(self.graph, self.cluster)

    def look(self) -> Look:
        if self.cores:
            return self._look_by_cores()
        profile = measured(self.graph, self.assignment, self.rng, self.noise, self.settings.interval_s)
        return Look(
            self.now_s, self.graph, self.cluster, dict(self.assignment), profile, usable_share=self.usable_share,
            speed=dict(self.speed), state_bytes=self.state_bytes, latency_us=self.latency_us,
        )  # fmt: skip

    def _look_by_cores(self) -> Look:
        """What a real job would show: its slowest worker holds all of it back, and threads wait for their cores."""
        held = self.held_back()
        graph = pairs_graph_of(self.graph, held)
        profile = measured(graph, self.assignment, self.rng, self.noise, self.settings.interval_s)
        profile = replace(profile, rows=1e4 * held * self.settings.interval_s)
        had: dict[Slot, CoreTime] = {}
        for slot, core in self.cores.items():
            ran = sum(p.load for t, p in profile.tasks.items() if self.assignment[t] == slot)
            ran = min(ran, core) * self.settings.interval_s
            waited = min(ran * (1 / core - 1), self.settings.interval_s - ran)
            had[slot] = CoreTime(self.settings.interval_s, ran, _noisy(waited, self.rng, self.noise))
        self.slow = slow_after(self.slow, had, self.now_s, self.settings.horizon_s)
        full = full_workers(had)
        self.free = free_after(self.free, profile, self.now_s, self.settings.horizon_s, is_full=bool(full))
        done = held_back(profile, self.free, is_full=bool(full))
        return Look(
            self.now_s, graph, self.cluster, dict(self.assignment), as_free(profile, done),
            usable_share=self.usable_share, done=done, full=full,
            speed={slot: slow.speed for slot, slow in self.slow.items()}, able=able_workers(had),
            state_bytes=self.state_bytes, latency_us=self.latency_us,
        )  # fmt: skip

    def held_back(self) -> float:
        """What share of its work the job gets done."""
        return min(1.0, *(core / max(core, self.load_of(slot)) for slot, core in self.cores.items()))

    def step(self) -> Decision:
        self.now_s += self.settings.interval_s
        look = self.look()
        offer = Offer() if self.memory.rests_s(look.now_s, self.settings) else self.offering(look, self.settings)
        decision, self.memory = decide(look, offer, self.memory, self.settings)
        self.assignment = dict(decision.target)
        self.decisions.append(decision)
        return decision

    def run(self, seconds: float) -> list[Decision]:
        """The decisions of so many seconds."""
        return [self.step() for _ in range(int(seconds / self.settings.interval_s))]

    @property
    def taken(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.taken]

    def bytes_between_nodes(self) -> float:
        """The truth, not what is measured."""
        rates = task_rates(self.graph)
        return sum(rate for (a, b), rate in rates.items() if self.assignment[a].node != self.assignment[b].node)

    def load_of(self, slot: Slot) -> float:
        loads = {TaskId.of(o.name, i): load for o in self.graph.operators for i, load in enumerate(o.loads())}
        return sum(loads[task] for task, at in self.assignment.items() if at == slot)


def pairs_graph_of(graph: OperatorGraph, share: float) -> OperatorGraph:
    """The same graph where only a share of its work is done."""
    operators = tuple(replace(o, load=tuple(load * share for load in o.loads())) for o in graph.operators)
    rows = graph.streams[0].rate if isinstance(graph.streams[0].rate, tuple) else ()
    rates = tuple(tuple(rate * share for rate in row) for row in rows)
    return replace(graph, operators=operators, streams=(replace(graph.streams[0], rate=rates),))


def shifted(graph: OperatorGraph, by: int = 1) -> OperatorGraph:
    """The same graph after its heavy streams have changed their targets."""
    stream = graph.streams[0]
    rows = stream.rate if isinstance(stream.rate, tuple) else ()
    return replace(graph, streams=(replace(stream, rate=tuple(row[-by:] + row[:-by] for row in rows)),))
