"""What a decision about moving is given, and what it answers. Plain data; time is a number that the caller says.

    offer = candidates(look, settings)                        # seconds of search: `candidate.py`
    decision, memory = decide(look, offer, memory, settings)  # arithmetic: `decide.py`

A shell keeps the memory from one look to the next, writes `decision.row()` to its log, and carries out
`decision.moves`. Decision 45 (docs/decisions/0045-when-to-move.md) has the reasons and what simulations say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.constraints import Constraint
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import GOALS, THROUGHPUT

Assignment = Mapping[str, Slot]
INTERVAL_S_MAX = 600.0  # a job remembers no longer what it has measured (`deploy/metrics/recent.py`)


@dataclass(frozen=True, slots=True)
class AdaptGoals:
    """What a plan is to be good at; a worker or node above its limit, and a slow one, count under any goal."""

    what: str = THROUGHPUT  # or bytes: the CPU of communication, or bytes between nodes, are what is saved
    latency_us: float | None = None  # 99 of 100 rows are to be through within this


@dataclass(frozen=True, slots=True)
class AdaptSettings:
    """How eager a job is to move, and who makes its candidates."""

    goals: AdaptGoals = AdaptGoals()
    interval_s: float = 60.0  # from one look to the next; the papers look after the first 60 s
    horizon_s: float = 600.0  # for how long a plan is expected to stay good
    tolerance: float = 0.05  # of a price: plans so near to each other are equal, and the nearest is taken
    moves_max: int = 20  # tasks at once
    rest_s: float = 120.0  # after moves
    confirm: bool = True  # a plan is taken if it pays at later looks, on measurements that it was not made from
    watch_max: int = 6  # looks in which a proposal may show that it pays
    sigmas: float = 4.0  # of the measurements' noise that a gain has to exceed
    busy: float = 0.8  # of what a worker or node can do: beyond this the job waits for it
    pause_s: float = 0.05  # for which a task that moves stands still, without state, until one is measured
    state_bytes_per_s: float = 100e6  # at which state is carried over
    scheduler: str = "best"
    seed: int = 0  # kept from look to look, so that ties are broken alike
    theta: float = 1.0  # seconds of search for each candidate
    tasks_per_worker: int = 5
    scheduler_settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """InvalidInput with every number that is out of range."""
        if faults := [*self._out_of_range(), *self._unknown()]:
            raise InvalidInput(faults)

    def _out_of_range(self) -> Iterator[str]:
        limits = {"interval_s": 0.0, "horizon_s": 0.0, "state_bytes_per_s": 0.0, "busy": 0.0}
        for name, above in limits.items():
            if not (math.isfinite(value := getattr(self, name)) and value > above):
                yield f"{name} is {value!r}; it must be a finite number above {above:g}"
        if self.interval_s > INTERVAL_S_MAX:
            yield f"interval_s is {self.interval_s!r}; it must be at most {INTERVAL_S_MAX:g} seconds"
        for name in ("tolerance", "rest_s", "sigmas", "pause_s"):
            if not (math.isfinite(value := getattr(self, name)) and value >= 0):
                yield f"{name} is {value!r}; it must be a finite number, 0 or more"
        for name in ("moves_max", "watch_max"):
            if (value := getattr(self, name)) < 1:
                yield f"{name} is {value!r}; give at least 1, or do not adapt"

    def _unknown(self) -> Iterator[str]:
        if self.goals.what not in GOALS:
            yield f"goal is {self.goals.what!r}; known: {', '.join(GOALS)}"
        bound = self.goals.latency_us
        if bound is not None and not (math.isfinite(bound) and bound > 0):
            yield f"the goal of latency is {bound!r} us; it must be a finite number above 0, such as 5000"


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a job at one time."""

    now_s: float
    graph: OperatorGraph
    cluster: Cluster  # as schedulers see it, before what `speed` says
    assignment: Assignment
    profile: Profile  # of the last interval; its `seconds` and its loads' spread say how sure it is
    demands: tuple[Constraint, ...] = ()  # of the deployment, beside the graph's constraints
    usable_share: float = 1.0  # of the cores of nodes, in their capacities; as in `Options`
    state_bytes: Mapping[str, float] = field(default_factory=dict)  # of tasks, where it is known
    latency_us: float | None = None  # 99th percentile
    speed: Mapping[Slot, float] = field(default_factory=dict)  # of workers, in shares of what it was at first
    able: Mapping[Slot, float] = field(default_factory=dict)  # cores of one that workers can have as things are
    done: float = 1.0  # of what the job would do if no worker held it back; the profile is of all of that
    full: frozenset[Slot] = frozenset()  # workers that had work all the time: they may be holding the job back
    starved: frozenset[str] = frozenset()  # tasks that would do more if their workers let them, as replicas
    pause_s: float | None = None  # for which the job stood when it went over before; None: it never has


class Move(NamedTuple):
    """One task that goes elsewhere."""

    task: str
    origin: Slot
    target: Slot


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scheduler's plan, and by how much the cluster had to be stretched until it fitted."""

    plan: Plan
    stretch: float = 1.0


@dataclass(frozen=True, slots=True)
class Offer:
    """The candidates of one look; where there are none, why."""

    candidates: tuple[Candidate, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a look would have moved to, and what later ones have said of it."""

    target: Assignment
    stretch: float
    looks: int = 0  # since then
    gain: float = 0.0  # over the horizon, of all these looks together


@dataclass(frozen=True, slots=True)
class Memory:
    """What one look leaves to the next."""

    moved_at_s: float | None = None
    proposal: Proposal | None = None

    def rests_s(self, now_s: float, settings: AdaptSettings) -> float:
        """Seconds until the job may move again: no candidates are needed before."""
        return 0.0 if self.moved_at_s is None else max(0.0, self.moved_at_s + settings.rest_s - now_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to move, and why. Where the job is to move, `plan` is certified on `cluster`; else both are None."""

    now_s: float
    taken: bool
    words: str  # one sentence
    target: Assignment  # the present one where nothing moves
    figures: Mapping[str, float]
    moves: tuple[Move, ...] = ()
    plan: Plan | None = None
    cluster: Cluster | None = None

    def row(self) -> dict[str, str | float | int | bool]:
        """This decision for a log: the same columns every time, plain values."""
        return {
            "at_s": self.now_s,
            "taken": self.taken,
            "moves": len(self.moves),
            "tasks": ", ".join(move.task for move in self.moves),
            "words": self.words,
            **self.figures,
        }
