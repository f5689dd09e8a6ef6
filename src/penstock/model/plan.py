"""Plan: where every task runs, what that costs, and how good it is known to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.constraints import Constraint


class Slot(NamedTuple):
    """A worker process on a node; workers count from 0 on each node."""

    node: str
    worker: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What somebody says that a plan costs, in bytes per second between nodes, and at which throughput."""

    cost: float
    rows_per_second: float  # of sources


@dataclass(frozen=True, slots=True)
class Plan:
    """One scheduler's answer. `cost` is the sum of rates between tasks on different nodes."""

    scheduler: str
    seed: int
    seconds: float
    cost: float
    inter_worker_cost: float  # between workers of the same node
    lower_bound: float  # no plan costs less
    proved_optimal: bool
    nodes_used: int
    max_utilisation: float  # load over capacity on the fullest node
    assignment: Mapping[str, Slot]
    notes: tuple[str, ...] = ()  # what the scheduler wants its reader to know, e.g. capped workers
    faults: tuple[str, ...] = ()  # why the plan must not be deployed; empty unless overload was asked for
    constraints: tuple[Constraint, ...] = ()  # of the topology that it was made for: a job that is given it keeps them
    rows_per_second: float | None = None  # of sources, in the profile that the cost was made from: its throughput
    own_word: Forecast | None = None  # of a plan that was given without a profile: nothing checks it

    def __repr__(self) -> str:
        workers = len(set(self.assignment.values()))
        optimal = ", proved optimal" if self.proved_optimal else ""
        return (
            f"Plan({self.scheduler}: {len(self.assignment)} tasks on {workers} workers of {self.nodes_used} nodes, "
            f"cost {self.cost:g} between nodes{optimal}; .assignment says where each task runs)"
        )

    @property
    def forecast(self) -> Forecast | None:
        """What the plan foretells: its certified cost at a measured throughput, else its own word, else nothing."""
        return Forecast(self.cost, self.rows_per_second) if self.rows_per_second else self.own_word

    @property
    def gap(self) -> float:
        """How much of the cost may be avoidable, as a fraction of the cost; 0 when proved optimal."""
        return 0.0 if self.cost <= max(self.lower_bound, 0.0) else (self.cost - self.lower_bound) / self.cost
