"""Dataflow: a topology as its builder leaves it, frozen. It is what travels to the workers and what plans are made for.

Operators are in an order in which every input comes before its reader. Functions of the user sit inside `build`, a
factory without arguments that is called in the worker; Spark's own closure carries it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.run.contract import MAIN, Build

FORWARD = "forward"  # a grouping: task i sends to task i
Role = Literal["source", "operator", "sink"]


@dataclass(frozen=True, slots=True)
class Grouping:
    """How rows choose among the tasks of the operator that reads them."""

    kind: str = "shuffle"  # one of model.topology.GROUPINGS
    columns: tuple[str, ...] = ()  # fields, partial-key
    choose: Callable[[object], int] | None = None  # direct: a row function that gives the task's index


@dataclass(frozen=True, slots=True)
class Input:
    """What one input port of an operator reads."""

    operator: str
    output: str = MAIN
    grouping: Grouping = Grouping()


@dataclass(frozen=True, slots=True)
class AttachedSink:
    """A sink without tasks of its own: it runs inside every task of the operator whose rows it takes."""

    name: str
    kind: str
    build: Build
    output: str = MAIN


@dataclass(frozen=True, slots=True)
class RegionPart:
    """What an operator is in a parallel region: its splitter, one of the operators that are replicated, its merger."""

    region: str
    role: Literal["splitter", "replica", "merger"]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator: how many tasks, what they read, what they emit, and how to make one."""

    name: str
    kind: str  # map, filter, count, ...: for people
    build: Build
    tasks: int = 1
    inputs: tuple[Input, ...] = ()
    outputs: Mapping[str, pa.Schema] = field(default_factory=dict)  # by output name; sinks have none
    role: Role = "operator"
    stateful: bool = False
    bounded: bool = True  # sources: whether it ends by itself
    one_per_worker: bool = False  # DataFrame sources: Spark hands one partition to every worker
    load: float = 1.0  # declared, until a profile has measured it
    region: RegionPart | None = None
    sinks: tuple[AttachedSink, ...] = ()  # already part of what `build` makes; listed for who looks for results


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A whole topology, in topological order."""

    name: str
    operators: tuple[OperatorSpec, ...]

    def operator(self, name: str) -> OperatorSpec:
        """The operator of that name."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def bounded(self) -> bool:
        """Whether every source ends by itself."""
        return all(operator.bounded for operator in self.operators if operator.role == "source")

    def sinks(self) -> dict[str, tuple[Build, pa.Schema]]:
        """Every sink, with tasks of its own or attached: how to make one, and the schema of the rows that it takes."""
        found: dict[str, tuple[Build, pa.Schema]] = {}
        for operator in self.operators:
            if operator.role == "sink":
                read = operator.inputs[0]
                found[operator.name] = operator.build, self.operator(read.operator).outputs[read.output]
            for sink in operator.sinks:
                found[sink.name] = sink.build, operator.outputs[sink.output]
        return found

    def depths(self) -> dict[str, int]:
        """Longest distance of each operator from a source."""
        found: dict[str, int] = {}
        for operator in self.operators:
            found[operator.name] = 1 + max((found[i.operator] for i in operator.inputs), default=-1)
        return found

    def graph(self) -> OperatorGraph:
        """The shape that optimisers place: declared loads, and rate 1 per pair until a profile says better."""
        return OperatorGraph(
            self.name,
            tuple(Operator(o.name, o.tasks, o.load, source=o.role == "source") for o in self.operators),
            tuple(Stream(i.operator, o.name, i.grouping.kind) for o in self.operators for i in o.inputs),
        )

    def regions(self) -> dict[str, int]:
        """Every parallel region and how many replicas it has."""
        parts = [(o.region, o.tasks) for o in self.operators if o.region is not None]
        return {part.region: tasks for part, tasks in parts if part.role == "replica"}
