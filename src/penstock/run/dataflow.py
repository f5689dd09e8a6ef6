"""Dataflow: a topology as its builder leaves it, frozen. It is what travels to the workers and what plans are made for.

Operators are in an order in which every input comes before its reader. Functions of the user sit inside `build`, a
factory without arguments that is called in the worker; Spark's own closure carries it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import pyarrow as pa

from penstock.model.constraints import Constraint, names_in
from penstock.model.task_id import SEPARATOR, operator_of
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.run.columns.kernels import Row
from penstock.run.contract import MAIN, Build
from penstock.run.endpoints import KEEPS_NOTHING, READS_NO_FILES, SinkFacts, SourceFacts

INDEX_DIGITS = 5  # of a worker that a name may speak of before there are any
FORWARD = "forward"  # a grouping: task i sends to task i
Role = Literal["source", "operator", "sink"]
Needed = Mapping[str, frozenset[str]]  # by output: the columns that are read
Outputs = dict[str, pa.Schema]  # by output


@dataclass(frozen=True, slots=True)
class Grouping:
    """How rows choose among the tasks of the operator that reads them."""

    kind: str = "shuffle"  # one of model.topology.GROUPINGS
    columns: tuple[str, ...] = ()  # fields, partial-key
    choose: Callable[[Row], int] | None = None  # direct: a row function that gives the task's index


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
    facts: SinkFacts = KEEPS_NOTHING


@dataclass(frozen=True, slots=True)
class RegionPart:
    """What an operator is in a parallel region: its splitter, one of the operators that are replicated, its merger."""

    region: str
    role: Literal["splitter", "replica", "merger"]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class TimeSpec:
    """The event time that an operator's main output carries: its column, and how far behind the newest rows may be."""

    column: str
    lateness_us: int | None  # None: nothing is known of the rows' order before they end
    by_input: bool = False  # each input edge has a time of its own, and the slowest counts
    behind_input: bool = False  # a task with state: nor is it ahead of the event time of its input


@dataclass(frozen=True, slots=True)
class StateFacts:
    """What the state of an operator depends on; `checkpoint/shape.py` compares it with that of a checkpoint."""

    keys: tuple[tuple[str, ...], ...]  # by input: the columns that tell whose state it is
    reads: tuple[str, ...] | None = None  # columns from which the state is made; None: it keeps rows as they come in
    others: Mapping[str, str] = field(default_factory=dict)  # by name, in words: a window, aggregates, a ranking


class ColumnUse(Protocol):
    """Which columns an operator reads, and how it is built over inputs that have no others."""

    def reads(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[frozenset[str], ...]:
        """Columns of each input, given what is wanted of the outputs."""

    def narrowed(self, needed: Needed, inputs: Sequence[pa.Schema]) -> tuple[Build, Outputs]:
        """The operator over inputs of these schemas, which have all columns that it reads."""


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
    state: StateFacts | None = None  # None: it has none
    bounded: bool = True  # sources: whether it ends by itself
    one_per_worker: bool = False  # DataFrame sources: Spark hands one partition to every worker
    load: float = 1.0  # of each task, in cores: declared, until a profile has measured it
    memory_mb: float = 0.0  # of each task, declared likewise
    region: RegionPart | None = None
    idle_us: int | None = None  # sources: after this time without rows event time goes on without them; None: it waits
    event_time: TimeSpec | None = None  # part of what `build` makes; listed for the code that orders a source's rows
    columns: ColumnUse | None = None  # None: it reads every column of its inputs
    source: SourceFacts = READS_NO_FILES  # sources: what it reads
    sink: SinkFacts = KEEPS_NOTHING  # sinks with tasks of their own: where the rows go
    sinks: tuple[AttachedSink, ...] = ()  # part of what `build` makes; listed for the code that looks for results

    @property
    def stateful(self) -> bool:
        """Whether it knows more than what it reads at the moment."""
        return self.state is not None


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A whole topology, in topological order."""

    name: str
    operators: tuple[OperatorSpec, ...]
    constraints: tuple[Constraint, ...] = ()  # that every plan for it must keep

    def operator(self, name: str) -> OperatorSpec:
        """The operator of that name."""
        return next(operator for operator in self.operators if operator.name == name)

    @property
    def bounded(self) -> bool:
        """Whether every source ends by itself."""
        return all(operator.bounded for operator in self.operators if operator.role == "source")

    def sinks(self) -> dict[str, tuple[SinkFacts, pa.Schema]]:
        """Every sink, with tasks of its own or attached: where its rows go, and their schema."""
        found: dict[str, tuple[SinkFacts, pa.Schema]] = {}
        for operator in self.operators:
            if operator.role == "sink":
                read = operator.inputs[0]
                found[operator.name] = operator.sink, self.operator(read.operator).outputs[read.output]
            for sink in operator.sinks:
                found[sink.name] = sink.facts, operator.outputs[sink.output]
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
            tuple(Operator(o.name, o.tasks, o.load, o.memory_mb, o.role == "source") for o in self.operators),
            tuple(Stream(i.operator, o.name, i.grouping.kind) for o in self.operators for i in o.inputs),
            self.constraints,
            relative=True,
        )

    def placeable(self, named: Iterable[str] = ()) -> OperatorGraph:
        """The graph before there are workers; see `as_mentioned`."""
        return as_mentioned(self, named).graph()

    def regions(self) -> dict[str, int]:
        """Every parallel region and how many replicas it has."""
        parts = [(o.region, o.tasks) for o in self.operators if o.region is not None]
        return {part.region: tasks for part, tasks in parts if part.role == "replica"}


def sized(dataflow: Dataflow, workers: int) -> Dataflow:
    """The dataflow with one task per worker for every operator that reads what Spark hands to each worker."""
    if not any(operator.one_per_worker for operator in dataflow.operators):
        return dataflow
    return replace(
        dataflow,
        operators=tuple(
            replace(operator, tasks=workers) if operator.one_per_worker else operator for operator in dataflow.operators
        ),
    )


def as_placed(dataflow: Dataflow, tasks: Iterable[str]) -> Dataflow:
    """The dataflow with as many tasks of each operator as a plan has places for: a job that was scaled has others.

    Readers of DataFrames are left to `sized`, and so is what the plan does not know.
    """
    there = Counter(operator_of(task) for task in tasks)
    others = {o.name: there[o.name] for o in dataflow.operators if not o.one_per_worker and o.name in there}
    if all(others.get(operator.name, operator.tasks) == operator.tasks for operator in dataflow.operators):
        return dataflow
    operators = (replace(operator, tasks=others.get(operator.name, operator.tasks)) for operator in dataflow.operators)
    return replace(dataflow, operators=tuple(operators))


def as_mentioned(dataflow: Dataflow, also: Iterable[str] = ()) -> Dataflow:
    """The dataflow with as many tasks of every reader of a DataFrame as its constraints, and other names, speak of.

    A reader has a task on every worker, and how many there are is known once they are there.
    """
    readers = {operator.name for operator in dataflow.operators if operator.one_per_worker}
    named = [*also, *(name for constraint in dataflow.constraints for name in names_in(constraint))]
    told = [name.rpartition(SEPARATOR)[2] for name in named if SEPARATOR in name and operator_of(name) in readers]
    there = [operator.tasks for operator in dataflow.operators if operator.one_per_worker]
    return sized(dataflow, max([*there, *(int(index) + 1 for index in told if _is_index(index))], default=1))


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= INDEX_DIGITS
