"""The one signature of every placement scheduler, what it is given and what it answers.

    schedule(problem: Problem, options: Options) -> Placement

Pure and seeded: same problem, options and seed, same answer (`test_same_seed_same_plan`). The one clock is the
deadline, which may end a search early. A scheduler decides; `door.place` measures, costs and certifies. Rejected:
handing schedulers the operator graph and letting each expand it, which made twelve slightly different readings.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from penstock.errors import Infeasible, InternalError, InvalidInput, PenstockError
from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, SLOTS_MAX, Cluster
from penstock.model.constraints import Constraint, Pin, Resource, tags_as_nodes
from penstock.model.taskgraph import Floats, Ints, TaskGraph

THETA_MAX = 86_400.0
SEED_LIMIT = 1 << 32
BYTES, THROUGHPUT = "bytes", "throughput"
GOALS = (BYTES, THROUGHPUT)  # of `best`: few bytes between nodes, or a busiest worker that is as little busy as can be
Progress = Callable[[float, float], None]  # told the cost of the cheapest plan so far and the best lower bound
SLACK = 1e-9  # relative room on every limit, so that 10 tasks of load 0.1 fit a capacity of 1


def untold(cost: float, bound: float) -> None:
    """Nobody asked how far the search is."""


@dataclass(frozen=True)
class Options:
    """What a user can ask of any scheduler; each ignores what does not concern it."""

    seed: int = 0
    theta: float | None = None  # seconds allowed; None is the scheduler's own default
    tasks_per_worker: int = 5  # the papers' T
    settings: Mapping[str, object] = field(default_factory=dict)  # a scheduler's own named parameters, e.g. OLS's alfa
    progress: Progress = field(default=untold, repr=False, compare=False)  # for schedulers that search
    usable_share: float = 1.0  # of nodes' cores, in their capacities: 0.8 in a job's clusters; files keep nothing back

    def faults(self) -> list[str]:
        """Numbers out of range, one sentence each."""
        found: list[str] = []
        if self.theta is not None and not (math.isfinite(self.theta) and 0 <= self.theta <= THETA_MAX):
            found.append(f"theta is {self.theta:g}; it must be from 0 to {THETA_MAX:g} seconds")
        if self.tasks_per_worker < 1:
            found.append(f"tasks_per_worker is {self.tasks_per_worker}; the least is 1")
        if not 0 <= self.seed < SEED_LIMIT:
            found.append(f"seed is {self.seed}; it must be from 0 to {SEED_LIMIT - 1}")
        if not 0 < self.usable_share <= 1:
            found.append(f"usable_share is {self.usable_share:g}; it must be above 0 and at most 1")
        return found


@dataclass(frozen=True)
class Deadline:
    """A moment after which a search must stop and answer with what it has."""

    at: float
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """The moment this many seconds from now."""
        return cls(clock() + seconds, clock)

    @property
    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self.at - self.clock())

    def earlier(self, seconds: float) -> Deadline:
        """The moment this long before, by which a step must end so that a later one has its share."""
        return Deadline(self.at - seconds, self.clock)

    def within(self, seconds: float) -> Deadline:
        """The moment this many seconds from now, or the deadline itself where that comes sooner."""
        return Deadline(min(self.at, self.clock() + seconds), self.clock)


@dataclass(frozen=True, eq=False)
class Problem:
    """Tasks, edges and node limits in arrays. Limits already contain the slack: compare with a plain `<=`."""

    graph: TaskGraph
    cluster: Cluster
    constraints: Sequence[Constraint] = ()  # with tags as the nodes that have them

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraints", tags_as_nodes(self.constraints, self.cluster.tags))

    @cached_property
    def capacity(self) -> Floats:
        """CPU limit of each node."""
        return _with_slack([node.capacity for node in self.cluster.nodes])

    @cached_property
    def memory_mb(self) -> Floats:
        """Memory limit of each node, infinite where none is given."""
        return _with_slack([math.inf if node.memory_mb is None else node.memory_mb for node in self.cluster.nodes])

    @cached_property
    def bandwidth(self) -> Floats:
        """Limit on what a node sends, and on what it receives, in rate units; infinite where none is given."""
        return _with_slack(
            [
                math.inf if node.bandwidth_mbps is None else node.bandwidth_mbps * BYTES_PER_SECOND_PER_MBPS
                for node in self.cluster.nodes
            ]
        )

    @cached_property
    def slots(self) -> Ints:
        """Worker processes that each node can hold."""
        return np.array([node.workers_max for node in self.cluster.nodes], dtype=np.int32)

    @cached_property
    def worker_capacity(self) -> Floats:
        """What one worker of each node carries, infinite where its workers are no single threads."""
        given = [node.worker_capacity for node in self.cluster.nodes]
        return _with_slack([math.inf if limit is None else limit for limit in given])

    @cached_property
    def workers_limit(self) -> Ints:
        """Workers that each node may have: what it states, else as many as the tasks need."""
        return np.array(
            [SLOTS_MAX if node.slots is None else node.slots for node in self.cluster.nodes], dtype=np.int32
        )

    @property
    def node_count(self) -> int:
        """Number of nodes."""
        return len(self.cluster.nodes)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return self.graph.task_count

    def node_name_faults(self) -> list[str]:
        """Constraints that name nodes which the cluster lacks, or workers for which a node has no slot."""
        slots = {node.name: SLOTS_MAX if node.slots is None else node.slots for node in self.cluster.nodes}
        found: list[str] = []
        for position, constraint in enumerate(self.constraints):
            who = f"constraint {position} ({constraint.type})"
            match constraint:
                case Resource(operator=name, nodes=(), tags=tags):
                    known = sorted({tag for node in self.cluster.nodes for tag in node.tags})
                    wanted = " and ".join(map(repr, tags))
                    there = f"their tags are {', '.join(map(repr, known))}" if known else "none of them has a tag"
                    found.append(
                        f"{who} of {name!r} needs tag {wanted}, which no node that it allows has; {there}; "
                        'give a node the tag: "tags" in the cluster file, or for a job a Spark resource or attribute'
                    )
                case Resource(nodes=nodes):
                    found += [f"{who} names node {n!r}, which the cluster lacks" for n in nodes if n not in slots]
                case Pin(node=name) if name not in slots:
                    found.append(f"{who} names node {name!r}, which the cluster lacks")
                case Pin(node=name, worker=worker) if worker >= slots[name]:
                    found.append(f"{who} names worker {worker} of node {name!r}, which has {slots[name]} slots")
        return found

    def shortfalls(self) -> list[str]:
        """Every reason, by plain arithmetic, why no plan can exist."""
        found = self._shortfalls_of("load", "", self.graph.load, self.capacity)
        return found + self._shortfalls_of("memory", " MB", self.graph.memory_mb, self.memory_mb)

    def _shortfalls_of(self, what: str, unit: str, needs: Floats, offers: Floats) -> list[str]:
        found: list[str] = []
        largest = int(np.argmax(needs))
        if needs[largest] > offers.max():
            found.append(
                f"task {self.graph.ids[largest]!r} needs {what} {needs[largest]:g}{unit} but the largest node offers "
                f"{offers.max():g}{unit}; split the operator into more tasks or add a larger node"
            )
        needed, offered = float(needs.sum()), float(offers.sum())
        if needed > offered:
            found.append(
                f"the tasks need {what} {needed:g}{unit} in all but the cluster offers {offered:g}{unit}; "
                f"it is {needed - offered:g}{unit} short: add nodes or give the tasks less"
            )
        return found

    def require_plausible(self) -> None:
        """Raise Infeasible when plain arithmetic shows that no plan exists."""
        if found := self.shortfalls():
            raise Infeasible("; ".join(found))


def _with_slack(limits: list[float]) -> Floats:
    array = np.array(limits, dtype=np.float64)
    return array * (1 + SLACK)


@dataclass(frozen=True, eq=False)
class Placement:
    """A scheduler's decision: a node number for each task and, where it decides that too, a worker on that node."""

    node: Ints
    worker: Ints | None = None  # None: `workers.split_by_kway` decides
    lower_bound: float = 0.0  # a proven bound on `cost`; 0 is always true
    proved_optimal: bool = False
    notes: tuple[str, ...] = ()


Schedule = Callable[[Problem, Options], Placement]


@dataclass(frozen=True)
class Scheduler:
    """A row of the registry."""

    name: str
    summary: str
    module: str  # imported when first used: solvers are heavy
    looks_at: frozenset[str] = frozenset({"cpu"})  # of cpu, memory, bandwidth, constraints
    settings: tuple[str, ...] = ()  # names that `Options.settings` may hold for it

    def require_known(self, settings: Mapping[str, object]) -> None:
        """Raise InvalidInput for a setting that this scheduler does not have."""
        for name in settings:
            if name not in self.settings:
                known = ", ".join(self.settings) or "none"
                msg = f"unknown setting {name!r} of scheduler {self.name!r}; known: {known}"
                raise InvalidInput(msg)

    def load(self) -> Schedule:
        """The scheduler's function."""
        schedule: Schedule = importlib.import_module(self.module).schedule
        return schedule

    def broke_its_word(self, what: str) -> PenstockError:
        """The error for a plan that does not keep what the scheduler says that it looks at: our bug."""
        return InternalError(f"scheduler {self.name!r} made a plan that {what}; please report this")

    def prepare(self, options: Options) -> None:
        """What the scheduler does once per machine, such as a calibration; not part of its time."""
        prepare: Callable[[Options], None] | None = getattr(importlib.import_module(self.module), "prepare", None)
        if prepare is not None:
            prepare(options)
