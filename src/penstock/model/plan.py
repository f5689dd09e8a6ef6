"""Plan: where every task runs, what that costs, and how good it is known to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Slot(NamedTuple):
    """A worker process on a node; workers count from 0 on each node."""

    node: str
    worker: int


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
    faults: tuple[str, ...] = ()  # why it must not be deployed; empty unless overload was asked for

    @property
    def gap(self) -> float:
        """How much of the cost may be avoidable, as a fraction of the cost; 0 when proved optimal."""
        return 0.0 if self.cost <= max(self.lower_bound, 0.0) else (self.cost - self.lower_bound) / self.cost
