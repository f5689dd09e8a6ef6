"""The one signature of every fusion method, what it is given and what it answers.

    fuse(case: Case) -> Fused

Pure and seeded: same case, same answer. A method decides which tasks share a worker and where each worker runs;
`fuse.door.fuse` finds clashes first, then measures, computes every figure and certifies. A method minimises f(U, C) of
paper 004, section 3.2: U is the utilisation of the fullest node with streams counted as in SIZE, C the sum of SIZE's
stream part over all workers (each cut stream counts at both ends). U must stay at or below 1.

What a stream costs in CPU at each end is its rate times `stream_cost`, one figure for all streams or one for each;
by default what streams really cost (decision 36). The default f is `balance * U + (1 - balance) * C / C of no fusion`;
`balance` 0 asks for the least cut alone. The paper leaves weights and threshold to its user: decision 39.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.communication import StreamCost, usual_stream_cost
from penstock.optimise.contract import SEED_LIMIT, THETA_MAX, Deadline, Problem
from penstock.optimise.fuse.ratio_cut import METHODS as CUT_METHODS
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, fuse_graph
from penstock.optimise.fuse.steps.rules import Flags, compile_rules

CUTS = tuple(CUT_METHODS)
OF_ALL = ("seed", "theta", "gamma", "stream_cost")  # options of every method
_OF_CUTS = ("cut", "epsilon")
_OF_COLA = ("balance", "objective", "threshold", *_OF_CUTS)
STREAM_COST_MAX = 1e15
THRESHOLD_MAX = 1e6
GAMMA_MIN = 1e-3
SAME = 1e-9  # relative: objectives this near are equal, and U decides
FULL = 1.0 + 1e-9  # capacities contain the slack already; this is for sums in another order

Objective = Callable[[float, float], float]


@dataclass(frozen=True)
class FuseOptions:
    """What a user can ask of a fusion method; `Method.reads` has what is not for all of them."""

    seed: int = 0
    theta: float | None = None  # seconds allowed; None is the method's own default
    balance: float = 0.5  # weight of U in the default f(U, C), "a weighted average" in the paper; 0: C alone
    objective: Objective | None = None  # any f(U, C) in place of the default; smaller is better
    threshold: float = 1.0  # COLA's T: how much C may grow in phase 4 for a better f; the paper's example is 1
    cut: str | None = None  # how minimum-ratio cuts are found; None: leighton-rao for COLA, best chooses
    epsilon: float = 0.1  # of the multicommodity flow
    gamma: float = 1.0  # share of every capacity that may be used; COLA's profile iterations begin with 0.5
    stream_cost: float | None = None  # CPU of one unit of rate at each end of a cut stream; None: what streams cost

    def faults(self) -> list[str]:
        """Numbers out of range, one sentence each."""
        found: list[str] = []
        for name, value, least, most in (
            ("theta", self.theta, 0.0, THETA_MAX),
            ("balance", self.balance, 0.0, 1.0),
            ("threshold", self.threshold, 0.0, THRESHOLD_MAX),
            ("epsilon", self.epsilon, 1e-3, 0.5),
            ("gamma", self.gamma, GAMMA_MIN, 1.0),
            ("stream cost", self.stream_cost, 0.0, STREAM_COST_MAX),
        ):
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                found.append(f"{name} is {value:g}; it must be from {least:g} to {most:g}")
        if not 0 <= self.seed < SEED_LIMIT:
            found.append(f"seed is {self.seed}; it must be from 0 to {SEED_LIMIT - 1}")
        if self.cut is not None and self.cut not in CUTS:
            found.append(f"cut is {self.cut!r}; known: {', '.join(CUTS)}")
        return found


@dataclass(frozen=True, eq=False)
class Case:
    """A problem whose constraints do not clash, with the options and the deadline."""

    problem: Problem
    options: FuseOptions = field(default_factory=FuseOptions)
    given: FuseGraph | None = None  # a graph to use in place of the problem's own; its vertices are sets of tasks
    splits: dict[str, dict[bytes, Flags]] = field(default_factory=dict)  # cuts already found, by kind of graph
    until: Deadline | None = None  # where given, methods stop here even without an answer: NoPlanFound

    @cached_property
    def graph(self) -> FuseGraph:
        """The vertices that the rules leave free to be joined."""
        if self.given is not None:
            return self.given
        return fuse_graph(self.problem, compile_rules(self.problem), self.stream_cost)

    @cached_property
    def stream_cost(self) -> StreamCost:
        """CPU that one unit of rate costs at each end of a stream between workers."""
        stated = self.options.stream_cost
        return usual_stream_cost(self.problem) if stated is None else stated

    def deadline(self, default: float) -> Deadline:
        """The moment after which the method must answer."""
        seconds = default if self.options.theta is None else self.options.theta
        return Deadline.after(seconds) if self.until is None else self.until.within(seconds)

    @property
    def is_late(self) -> bool:
        """Whether the method is to stop."""
        return self.until is not None and self.until.remaining <= 0

    def require_time(self) -> None:
        """Raise NoPlanFound where the method is to stop."""
        if self.is_late:
            msg = "the time for fusion was over before it had an answer; raise --theta"
            raise NoPlanFound(msg)

    def objective(self, utilisation: float, communication: float) -> float:
        """f(U, C)."""
        if self.options.objective is not None:
            return float(self.options.objective(utilisation, communication))
        return float(self.weighted(np.float64(utilisation), np.float64(communication)))

    @cached_property
    def unfused(self) -> float:
        """C of no fusion: every stream counts, colocated or not, so that f does not depend on the constraints."""
        return 2.0 * float((self.problem.graph.rate * self.stream_cost).sum())

    def weighted(self, utilisation: Floats | np.float64, communication: Floats | np.float64) -> Floats | np.float64:
        """The default f, also over arrays."""
        balance, unfused = self.options.balance, self.unfused
        return balance * utilisation + (1.0 - balance) * communication / (unfused if unfused > 0 else 1.0)

    def score(self, utilisation: float, communication: float) -> tuple[float, float]:
        """What plans are compared by: f, and U among equals; rounded so that noise in f does not hide U."""
        value = self.objective(utilisation, communication)
        digits = 10 if value == 0 else 10 - math.floor(math.log10(abs(value)))
        return (round(value, min(digits, 300)), utilisation)


@dataclass(frozen=True, eq=False)
class Fused:
    """A method's decision."""

    worker: Longs  # a number for each task; workers count over all nodes
    host: Ints  # a node for each worker
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """A row of the registry."""

    name: str
    summary: str
    module: str  # imported when first used
    honours_constraints: bool = True
    reads: tuple[str, ...] = ()  # the options that it looks at beside those in OF_ALL

    def require_read(self, options: FuseOptions) -> None:
        """Raise InvalidInput for an option that is given and that this method would ignore in silence."""
        require_read(options, (self.name,))

    def heard(self, options: FuseOptions) -> FuseOptions:
        """The options without those that this method does not read, for callers that ask several methods."""
        usual = FuseOptions()
        unread = {name: getattr(usual, name) for name in given_options(options) if name not in self.reads}
        return replace(options, **unread)

    def load(self) -> Callable[[Case], Fused]:
        """The method's function."""
        found: Callable[[Case], Fused] = importlib.import_module(self.module).fuse
        return found


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("best", "ours: starts from all of these and refines", "penstock.optimise.fuse.best", reads=_OF_COLA),
        Method(
            "cola", "Advanced COLA: four phases, constraints, f(U, C)", "penstock.optimise.fuse.cola", reads=_OF_COLA
        ),
        Method(
            "cola-basic", "Basic COLA: split until it fits", "penstock.optimise.fuse.cola_basic", False, reads=_OF_CUTS
        ),
        Method("fint", "bottom-up: merge the heaviest streams", "penstock.optimise.fuse.fint"),
        Method("none", "every task its own worker", "penstock.optimise.fuse.none"),
    )
}


def find_method(name: str) -> Method:
    """The method of that name, or InvalidInput listing the known ones."""
    if name not in METHODS:
        raise InvalidInput.unknown_name(kind="fusion method", name=name, known=METHODS)
    return METHODS[name]


def given_options(options: FuseOptions) -> dict[str, object]:
    """Options that not every method reads and that differ from their defaults, by name."""
    usual = FuseOptions()
    named = {option.name: getattr(options, option.name) for option in fields(FuseOptions)}
    return {name: value for name, value in named.items() if name not in OF_ALL and value != getattr(usual, name)}


def require_read(options: FuseOptions, methods: Sequence[str]) -> None:
    """Raise InvalidInput for an option that is given and that none of the methods reads."""
    read = {name for method in methods for name in find_method(method).reads}
    for name, value in given_options(options).items():
        if name not in read:
            one = len(methods) == 1
            who = f"method{'' if one else 's'} {', '.join(map(repr, methods))}"
            known = ", ".join(name for name in (*OF_ALL, *_OF_COLA) if name in {*OF_ALL, *read})
            others = ", ".join(method.name for method in METHODS.values() if name in method.reads)
            what = "given" if callable(value) else repr(value)
            msg = (
                f"{name} is {what}, which fusion {who} {'does' if one else 'do'} not read: "
                f"{'it reads' if one else 'they read'} {known}; leave {name} out, or name a method "
                f"that reads it ({others})"
            )
            raise InvalidInput(msg)
