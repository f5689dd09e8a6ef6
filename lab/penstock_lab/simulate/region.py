"""A parallel region under virtual time: a model in, a trace of weights, blocking and throughput out.

    >>> model = RegionModel(phases=(Phase((1e-3, 1e-3)),), send_s=1e-4)
    >>> trace = simulate(model, find_policy("round-robin").build(), seconds=5)
    >>> trace.weights[-1].tolist()
    [500, 500]

The core moves the rows (`core/simulate/virtual_region.hpp`: a recurrence, no event queue, the same on every machine for
a seed). Decisions are the engine's: once per sample interval the meters go to the policy, and turns come from
`Sharing`. A simulated row may stand for many real ones, because results depend on two things that the model gives:
ratios of rates, and the number of rows that a buffer holds.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from penstock import _core
from penstock.errors import InvalidInput
from penstock.run.region.contract import UNITS, Decision, Policy, Sample, Weights, units_of
from penstock.run.region.policies.oracle import Known, Oracle
from penstock.run.region.sharing import Sharing

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]

SECONDS_MAX = 100_000.0
ROUTINGS = {"turns": 0, "reroute": 1, "rebalance": 2}


@dataclass(frozen=True, slots=True)
class Phase:
    """What a row costs each replica from a time and a row on; both must have been reached."""

    cost_s: tuple[float, ...]
    from_s: float = 0.0
    from_row: int = 0


@dataclass(frozen=True, slots=True)
class Buffers:
    """What lies between splitter and replica, in rows.

    TCP wakes a waiting sender when a third of its buffer is free; a ring wakes it for every slot.
    """

    rows: int = 60
    low_water: int = 20

    @classmethod
    def tcp(cls, size: int, row_size: int) -> Buffers:
        """Send and receive buffer together, in bytes, for rows of this size."""
        rows = max(1, size // row_size)
        return cls(rows, max(1, rows // 3))

    @classmethod
    def ring(cls, slots: int) -> Buffers:
        """A ring with this number of slots."""
        return cls(slots, 1)


@dataclass(frozen=True, slots=True)
class Members:
    """The replicas that take part from a time on."""

    from_s: float
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RegionModel:
    """Everything that an experiment fixes."""

    phases: tuple[Phase, ...]
    send_s: float  # what one row costs the splitter; its rate is the most that the region can do
    merge_s: float = 0.0
    buffers: Buffers = field(default_factory=Buffers)
    merger_rows: int = 0  # of each replica; 0: no limit, as in the paper
    charge_laggard: bool = False  # see run/region/order.py; needed when merger_rows is a limit
    credits: bool = False  # replicas tell what they have worked off, as in the engine; over plain sockets they do not
    jitter: float = 0.1
    interval_s: float = 1.0
    seed: int = 0
    members: tuple[Members, ...] = ()  # empty: all replicas, at all times

    @property
    def replicas(self) -> int:
        """How many replicas there are at most."""
        return len(self.phases[0].cost_s)

    def members_at(self, time_s: float) -> tuple[int, ...]:
        """The replicas that take part at a time."""
        valid = [entry.replicas for entry in self.members if entry.from_s <= time_s]
        return valid[-1] if valid else tuple(range(self.replicas))

    def ideal(self, phase: int = 0) -> Weights:
        """Weights in proportion to capacity."""
        return units_of([1.0 / cost for cost in self.phases[phase].cost_s])

    def oracle(self) -> Oracle:
        """The policy that knows the capacities of every phase and changes with them."""
        known = [
            Known(phase.from_s, {j: 1.0 / cost for j, cost in enumerate(phase.cost_s)}, phase.from_row)
            for phase in self.phases
        ]
        return Oracle(known)

    def capacity(self, phase: int = 0) -> float:
        """Rows per second that the region can do with the best weights."""
        return min(1.0 / self.send_s, sum(1.0 / cost for cost in self.phases[phase].cost_s))


@dataclass(frozen=True, slots=True)
class Trace:
    """What a run showed, one row for each sample. Replicas that did not take part have weight 0."""

    time_s: Floats
    weights: Longs  # in force during the interval that ends at the sample
    rates: Floats  # blocking of each connection in that interval, not smoothed
    throughput: Floats  # rows per second that left the merger in it
    held: Longs  # rows in the merger at its end
    clusters: Longs  # of the decision at its end; -1 for replicas that do not take part
    rows: int
    seconds: float  # when the last row left the merger
    decisions: tuple[Decision, ...]

    @property
    def left(self) -> float:
        """Rows that have left the merger; fewer than were sent, because buffers and the merger hold some at the end."""
        return float(self.throughput @ np.diff(self.time_s, prepend=0.0))

    def reached_after(self, throughput: float) -> float | None:
        """The end of the first interval with this throughput; None when there is none."""
        enough = np.flatnonzero(self.throughput >= throughput)
        return float(self.time_s[enough[0]]) if len(enough) else None

    def final_throughput(self, share: float = 0.1) -> float:
        """Rows per second while the last part of the rows left; the last interval, often cut short, does not count."""
        left = np.cumsum(self.throughput[:-1])
        if not len(left):
            return float(self.throughput[-1])
        last = np.flatnonzero(left >= (1 - share) * left[-1])
        return float(self.throughput[last].mean())


def simulate(
    model: RegionModel,
    policy: Policy,
    *,
    seconds: float | None = None,
    rows: int | None = None,
    samples_max: int = 10_000,
) -> Trace:
    """Run for a stretch of virtual time, or until a number of rows has been sent, whichever is given."""
    _check(model, seconds, rows)
    run = _Run(model, policy)
    limit = 1 << 40 if rows is None else rows
    ends = SECONDS_MAX if seconds is None else seconds
    number = 1
    while run.kernel.sent() < limit and (number - 1) * model.interval_s < ends and number <= samples_max:
        run.interval(number * model.interval_s, limit)
        number += 1
    return run.trace()


class _Run:
    """One run: the kernel, the policy, and what has been seen."""

    def __init__(self, model: RegionModel, policy: Policy) -> None:
        self.model, self.policy = model, policy
        self.kernel = _kernel(model)
        self.members = model.members_at(0.0)
        self.weights = policy.start(self.members)
        self.sharing = Sharing(self.members, policy.routing)
        self.sharing.retarget(self.members, self.weights)
        self._hand_over()
        self.rows: list[tuple[float, Longs, Floats, float, int, Longs]] = []
        self.decisions: list[Decision] = []
        self.left, self.blocked = 0, np.zeros(model.replicas)

    def interval(self, until: float, limit: int) -> None:
        """Send for one interval, then ask the policy."""
        model, kernel = self.model, self.kernel
        in_force = self._spread(self.weights, 0)
        kernel.advance(until, limit)
        blocked, left = kernel.blocked_seconds(), kernel.left_by(until)
        rates, throughput = (blocked - self.blocked) / model.interval_s, (left - self.left) / model.interval_s
        self.blocked, self.left = blocked, left
        members = model.members_at(until)
        decision = self.policy.decide(self._sample(until, members, blocked))
        self._apply(members, decision.weights)
        self.decisions.append(decision)
        clusters = self._spread(decision.clusters, -1)
        self.rows.append((until, in_force, rates, throughput, kernel.held_at(until), clusters))

    def _sample(self, until: float, members: tuple[int, ...], blocked: Floats) -> Sample:
        kernel, chosen = self.kernel, list(members)
        kernel.note_worked_off(until)
        if not self.model.credits:
            return Sample(until, members, tuple(blocked[chosen].tolist()), tuple(kernel.sent_rows()[chosen].tolist()))
        rows, took = kernel.worked_off_rows()[chosen].tolist(), kernel.took_seconds()[chosen].tolist()
        return Sample(until, members, tuple(blocked[chosen].tolist()), tuple(rows), tuple(took))

    def trace(self) -> Trace:
        """Everything seen so far."""
        times, weights, rates, throughput, held, clusters = zip(*self.rows, strict=True)
        return Trace(
            np.array(times), np.array(weights), np.array(rates), np.array(throughput), np.array(held),
            np.array(clusters), self.kernel.sent(), self.kernel.last_exit(), tuple(self.decisions),
        )  # fmt: skip

    def _spread(self, values: Sequence[int], missing: int) -> Longs:
        found = np.full(self.model.replicas, missing, dtype=np.int64)
        found[list(self.members)] = values
        return found

    def _apply(self, members: tuple[int, ...], weights: Weights) -> None:
        if (members, weights) == (self.members, self.weights):
            return
        for _ in range(self.kernel.turn()):  # the cycle repeats, so the part of it that was begun counts
            self.sharing.take(1)
        self.sharing.retarget(members, weights)
        self.members, self.weights = members, weights
        self._hand_over()

    def _hand_over(self) -> None:
        ahead = copy.deepcopy(self.sharing)
        turns = np.fromiter((ahead.take(1) for _ in range(UNITS)), dtype=np.int32, count=UNITS)
        self.kernel.set_turns(turns, ROUTINGS[self.policy.routing])


def _kernel(model: RegionModel) -> _core.RegionSimulation:
    return _core.RegionSimulation(
        np.array([phase.cost_s for phase in model.phases], dtype=np.float64),
        np.array([phase.from_s for phase in model.phases], dtype=np.float64),
        np.array([phase.from_row for phase in model.phases], dtype=np.float64),
        model.buffers.rows,
        model.buffers.low_water,
        model.merger_rows,
        model.send_s,
        model.merge_s,
        model.jitter,
        model.charge_laggard,
        model.seed,
    )


def _check(model: RegionModel, seconds: float | None, rows: int | None) -> None:
    if (seconds is None) == (rows is None):
        msg = f"a simulation ends after seconds or after rows; give one of them, not {seconds} and {rows}"
        raise InvalidInput(msg)
    if len({len(phase.cost_s) for phase in model.phases}) != 1:
        msg = f"phases have {[len(phase.cost_s) for phase in model.phases]} replicas; all must have the same number"
        raise InvalidInput(msg)
