"""Profile: a run's measurements, which replace the figures that a topology declares.

Loads and memory of tasks that the profile leaves out stay as declared. If the profile lists any edge, its edges replace
all declared rates: a pair of tasks that it does not list sent nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import InvalidInput
from penstock.model.constraints import tasks_named
from penstock.model.costs import DISTANCES, Distance, StreamCosts
from penstock.model.task_id import operator_of
from penstock.model.topology import MAGNITUDE_MAX, OperatorGraph

SECONDS_TOLD = 1.0  # a profile of less is told of: metric intervals are a second, and starting is most of less than one
NO_SPREAD = 1e-6  # of a load: what is left by rounding where there was one interval


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """Measured needs of one task."""

    load: float  # CPU seconds per second of the task's own work (w_v); sending and receiving belong to the edges
    memory_mb: float | None = None
    spread: float | None = None  # standard deviation of the load from interval to interval
    execute_us: float | None = None  # how long the task's code takes with one batch, in the mean


@dataclass(frozen=True, slots=True)
class EdgeProfile:
    """Measured traffic from one task to another, as far apart as the two were while they were measured."""

    source: str
    target: str
    rate: float  # bytes per second; of the batches themselves, so it does not depend on the distance
    tuples: float | None = None
    batches: float | None = None
    distance: Distance | None = None
    send_cpu: float | None = None  # CPU seconds per second at the sending end, at that distance
    receive_cpu: float | None = None  # and at the receiving end
    latency_us: float | None = None  # from leaving the one task to being taken by the other, in the mean


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of one run, keyed by task id."""

    tasks: Mapping[str, TaskProfile] = field(default_factory=dict)
    edges: tuple[EdgeProfile, ...] = ()
    costs: StreamCosts | None = None  # what streams cost on the machine that was measured, at every distance
    seconds: float | None = None  # the time that was measured
    rows: float | None = None  # that sources emitted in it: what a rate means for a run that is faster or slower

    def __repr__(self) -> str:
        load = sum(measured.load for measured in self.tasks.values())
        rate = sum(edge.rate for edge in self.edges)
        return f"Profile({len(self.tasks)} tasks, load {load:g}; {len(self.edges)} pairs, {rate:g} B/s)"

    @property
    def rows_per_second(self) -> float | None:
        """Rows that sources emitted per second, where that is known: the throughput at which the rates hold."""
        return self.rows / self.seconds if self.rows and self.seconds else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever plans with it should know: that it is of so little time that it says little."""
        if self.seconds is not None and self.seconds < SECONDS_TOLD:
            covers = f"the profile covers {self.seconds:.2g} s: too short to say what a second takes"
            return (f"{covers}; run longer or with --busy",)
        loaded = [task for task in self.tasks.values() if task.load > 0]
        if loaded and all(task.spread is not None and task.spread <= NO_SPREAD * task.load for task in loaded):
            return ("the profile is of one metric interval of each task: too few to say what is usual; run longer",)
        return ()

    def faults(self, graph: OperatorGraph) -> list[str]:
        """Tasks that the topology lacks, pairs that no stream joins, and numbers that cannot be."""
        tasks_of = {operator.name: operator.tasks for operator in graph.operators}
        joined = {(stream.source, stream.target) for stream in graph.streams}
        faults: list[str] = []
        for task, measured in self.tasks.items():
            if task in tasks_of or tasks_named(task, tasks_of) is None:
                faults.append(f"profile names unknown task {task!r} of topology {graph.name!r}")
            for label in ("load", "memory_mb", "spread", "execute_us"):
                faults += _fault(f"profile {label} of task {task!r}", getattr(measured, label))
        for edge in self.edges:
            ends = operator_of(edge.source), operator_of(edge.target)
            if any(tasks_named(task, tasks_of) is None or task in tasks_of for task in (edge.source, edge.target)):
                faults.append(f"profile edge {edge.source!r} -> {edge.target!r} names a task that the topology lacks")
            elif ends not in joined:
                faults.append(f"profile edge {edge.source!r} -> {edge.target!r} follows no stream of the topology")
            for label in ("rate", "tuples", "batches", "send_cpu", "receive_cpu", "latency_us"):
                faults += _fault(f"profile {label} of {edge.source!r} -> {edge.target!r}", getattr(edge, label))
            if edge.distance is not None and edge.distance not in DISTANCES:
                known = ", ".join(DISTANCES)
                faults.append(
                    f"profile distance of {edge.source!r} -> {edge.target!r} is {edge.distance!r}; known: {known}"
                )
        faults += _fault("profile seconds", self.seconds) + _fault("profile rows", self.rows)
        if self.costs is not None:
            faults += self.costs.faults()
        return faults

    def validated(self, graph: OperatorGraph) -> Profile:
        """This profile, or InvalidInput with every fault."""
        if faults := self.faults(graph):
            raise InvalidInput(faults)
        return self


def _fault(what: str, value: float | None) -> list[str]:
    if value is None or (math.isfinite(value) and 0 <= value <= MAGNITUDE_MAX):
        return []
    return [f"{what} is {value:g}; it must be finite, 0 or more and at most {MAGNITUDE_MAX:g}"]
