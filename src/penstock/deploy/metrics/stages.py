"""What a job's sums say of its stages: how long their code takes, how long batches are on their way and wait. Pure.

A stage is an operator. Its execute latency is the time of day that one call of its code takes in the mean; transport is
from when a batch leaves the sending task until it has arrived, and queue from then until the task takes it (the
inter-operator latency of the papers is their sum). All are means over the batches of all tasks of the operator. Clocks
of two nodes may differ, and with them transport.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.deploy.metrics.sums import EdgeSums, Sums
from penstock.model.plan import Plan
from penstock.model.task_id import operator_of


@dataclass(frozen=True, slots=True)
class Stage:
    """One operator, in microseconds per call and per batch."""

    operator: str
    execute_us: float
    transport_us: float = 0.0
    queue_us: float = 0.0

    @property
    def whole_us(self) -> float:
        """From leaving the task before to having been worked off."""
        return self.execute_us + self.transport_us + self.queue_us

    def in_ms(self) -> dict[str, object]:
        """As `penstock run --format json` has it."""
        parts = ("execute", "transport", "queue")
        return {"operator": self.operator} | {f"{part}_ms": getattr(self, f"{part}_us") / 1000 for part in parts}


def stages_of(sums: Sums) -> list[Stage]:
    """Every operator that ran, the slowest first."""
    busy: dict[str, list[int]] = {}
    for task, counts in sums.tasks.items():
        entry = busy.setdefault(operator_of(task), [0, 0])
        entry[0] += counts["busy_us"]
        entry[1] += counts["runs"]
    into: dict[str, EdgeSums] = {}
    for (_, target), edge in sums.edges.items():
        entered = into.setdefault(operator_of(target), EdgeSums())
        entered.batches += edge.batches
        entered.transport_us += edge.transport_us
        entered.queue_us += edge.queue_us
    found = []
    for operator, (busy_us, runs) in busy.items():
        entered = into.get(operator, EdgeSums())
        batches = max(1, entered.batches)
        found.append(
            Stage(operator, busy_us / max(1, runs), entered.transport_us / batches, entered.queue_us / batches)
        )
    return sorted(found, key=lambda stage: (-stage.whole_us, stage.operator))


def bytes_between_nodes(sums: Sums, node_of: Mapping[str, str]) -> float:
    """Bytes per second between tasks on different nodes, over the time that the sums cover."""
    there = sum(
        edge.bytes for (source, target), edge in sums.edges.items() if node_of.get(source) != node_of.get(target)
    )
    return there / sums.seconds


def foretold_bytes(plan: Plan | None, rows_per_second: float) -> float | None:
    """Bytes between nodes that a plan foretold, at the throughput that a run had; None: it was made from no profile.

    A plan's cost is a rate at the throughput of the run that its profile was taken in. A job that has read all of its
    input twice as fast has sent as many bytes in half the time.
    """
    forecast = None if plan is None else plan.forecast
    return None if forecast is None else round(forecast.cost * rows_per_second / forecast.rows_per_second, 1)
