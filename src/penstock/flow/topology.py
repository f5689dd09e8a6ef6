"""Topology: where users begin; `penstock.jobs` adds the methods that run one.

    >>> import penstock as ps
    >>> top = ps.Topology("words")
    >>> lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b", "a"], "line string"))
    >>> lines.split("line").key_by("word").count().sink("out", ps.io.collect())
    >>> [operator.name for operator in top.build().operators]
    ['lines', 'split1', 'count1']

It checks each operator as it is written down, so a mistake is reported on the line that makes it. Operators keep the
order in which they were made, which is topological. A default name is the kind and a number, the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_count, require_number, usage
from penstock.flow.columns import Reads
from penstock.flow.constraints import require_constraints
from penstock.flow.io import Source
from penstock.flow.lineage import carries_time, mixed_before, mixed_rows
from penstock.flow.pruning import pruned
from penstock.flow.redefinition import hanging_on, left_behind, lineages, reads, unread
from penstock.flow.stream import DataStream
from penstock.model.constraints import Constraint, names_in, tasks_named
from penstock.model.kinds import require_kind
from penstock.model.task_id import SEPARATOR, operator_of
from penstock.model.topology import MAGNITUDE_MAX, NAME_LENGTH_MAX, OPERATORS_MAX, TASKS_MAX, OperatorGraph
from penstock.run.contract import MAIN, Build
from penstock.run.dataflow import (
    AttachedSink,
    ColumnUse,
    Dataflow,
    Input,
    OperatorSpec,
    RegionPart,
    Role,
    StateFacts,
    TimeSpec,
)
from penstock.run.endpoints import KEEPS_NOTHING, READS_NO_FILES, SinkFacts, SourceFacts
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.sinks.attached import with_sinks
from penstock.run.operators.times import Duration, parse_duration_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

IDLE = "1 minute"


class Topology:
    """A dataflow under construction; `penstock.Topology` adds what runs it."""

    def __init__(self, name: str) -> None:
        _require_name(name, "topology")
        self.name = name
        self.frames: dict[str, DataFrame] = {}  # DataFrames by source name; they stay on the driver
        self._operators: dict[str, OperatorSpec] = {}
        self._event_time: dict[str, str] = {}  # operator -> column
        self._sinks: dict[str, list[AttachedSink]] = {}  # operator -> sinks without tasks of their own
        self._counters: dict[str, int] = {}
        self._editions: dict[str, int] = {}  # operator -> which of all definitions is its own
        self._unnamed: set[str] = set()  # operators and regions whose names are ours
        self._again: dict[str, None] = {}  # names that were given again, in order
        self._constraints: dict[Constraint, None] = {}  # in order
        self._lost: dict[str, str] = {}  # names that went with an operator that was defined again -> that operator

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, operators=[{', '.join(self._operators)}])"

    @usage("source('lines', ps.io.dataframe(df))")
    def source(
        self,
        name: str,
        source: Source,
        tasks: int | None = None,
        *,
        idle: Duration | None = None,
        load: float | None = None,
        memory_mb: float | None = None,
    ) -> DataStream:
        """A stream that comes from outside; see `ps.io` for what there is.

        `load` is what each of its tasks takes, in cores, and `memory_mb` what it holds, until a profile measures them.

        `idle` is how long a task of an endless source may have no rows before event time goes on without it; rows that
        it has afterwards may be late. Left out, it is a minute. A source that ends is waited for.
        """
        require_kind(source, Source, f"source {name!r}", "ps.io.dataframe(df), generator(...), files(...) or rate(...)")
        if source.one_per_worker and tasks is not None:
            msg = f"source {name!r} has one task on every worker; leave tasks={tasks} out"
            raise InvalidInput(msg)
        spec = self.add(
            source.kind,
            source.build,
            name=name,
            tasks=source.tasks if tasks is None else tasks,
            outputs={MAIN: source.schema},
            role="source",
            bounded=source.bounded,
            one_per_worker=source.one_per_worker,
            idle_us=_idle_us(name, source, idle),
            columns=None if source.over is None else Reads(source.schema, source.over),
            source=source.facts,
        )
        if source.frame is not None:
            self.frames[spec.name] = source.frame
        self.declare_new(spec.name, load, memory_mb)
        return DataStream(self, spec.name, source.schema, bounded=source.bounded)

    def declare(self, name: str, load: float | None = None, memory_mb: float | None = None) -> None:
        """Say what each task of an operator takes, for plans that are made before a profile has measured it.

        `load` is in cores; without it every task counts 1.0, so that all weigh the same. `memory_mb` is what a task
        holds, and nothing where it is not said.
        """
        if name not in self._operators:
            kind = "operator"
            raise InvalidInput.unknown_name(kind, name, self._operators)
        spec = self._operators[name]
        for figure, value in (("load", load), ("memory_mb", memory_mb)):
            if value is not None:
                require_number(value, 0.0, MAGNITUDE_MAX, f"{figure} of {name!r}")
        self._operators[name] = replace(
            spec,
            load=spec.load if load is None else float(load),
            memory_mb=spec.memory_mb if memory_mb is None else float(memory_mb),
        )

    def declare_new(self, name: str, load: float | None, memory_mb: float | None) -> None:
        """As `declare`, of an operator that was just added: it goes where it is refused. Streams call this."""
        try:
            self.declare(name, load, memory_mb)
        except InvalidInput:
            self._drop(name)
            raise

    def require(self, *constraints: Constraint) -> None:
        """Have every plan for this topology keep these: `top.require(ps.colocate(parsed, counts))`.

        A job that cannot keep one is refused, whether its plan is given or a scheduler's. What they name must be
        there; what is asked for twice counts once.
        """
        require_constraints(constraints, f"require of topology {self.name!r}")
        tasks_of = {spec.name: spec.tasks for spec in self._operators.values()}
        for constraint in constraints:
            for name in names_in(constraint):
                self._require_placed(constraint, name, tasks_of)
        self._constraints |= dict.fromkeys(constraints)

    def waive(self, *constraints: Constraint) -> None:
        """Take constraints back that were required."""
        require_constraints(constraints, f"waive of topology {self.name!r}")
        for constraint in constraints:
            if constraint not in self._constraints:
                msg = f"topology {self.name!r} does not require {constraint!r}; it requires {len(self._constraints)}"
                raise InvalidInput(msg)
            del self._constraints[constraint]

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What `require` was told, in order."""
        return tuple(self._constraints)

    def _require_placed(self, constraint: Constraint, name: str, tasks_of: Mapping[str, int]) -> None:
        """Refuse a name that no plan would have."""
        reader = self._operators.get(operator_of(name)) if SEPARATOR in name else None
        if tasks_named(name, tasks_of) is not None or (reader is not None and reader.one_per_worker):
            return
        homes = [operator for operator, sinks in self._sinks.items() if any(sink.name == name for sink in sinks)]
        where = f"; it is part of {homes[0]!r}, so name that, or give the sink tasks=" if homes else ""
        known = where or f"; known: {', '.join(self._operators)}; a task is named as in {next(iter(tasks_of), 'a')}/0"
        msg = f"{constraint.type} names {name!r}, which is no operator or task of topology {self.name!r}{known}"
        raise InvalidInput(msg)

    def remove(self, name: str) -> None:
        """Take an operator, source or sink out, with everything that reads it and the constraints that name these."""
        if self._lost.pop(name, None) is not None:
            return
        if name not in self._names():
            kind = "operator or sink"
            raise InvalidInput.unknown_name(kind, name, sorted(self._names()))
        self._constraints = dict.fromkeys(without(self._constraints, self._drop(name)))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was defined again and what is left out, for the user who runs this."""
        left_out = left_behind(self._operators.values(), self._sinks, self._unnamed)
        found = [f"{name!r} is left out: nobody reads it, and {left_out[name]!r} is in its place" for name in left_out]
        if again := [name for name in self._again if name in self._names()]:
            found.append(f"defined more than once, of which the last counts: {', '.join(map(repr, again))}")
        return tuple(found)

    def build(self) -> Dataflow:
        """The frozen dataflow, or InvalidInput with everything that is wrong with it."""
        left_out = left_behind(self._operators.values(), self._sinks, self._unnamed)
        specs = [spec for spec in self._operators.values() if spec.name not in left_out]
        faults = [
            f"{name!r} read what {cause!r} was before it was defined again; write {name!r} again, by running its cell, "
            f"or call remove({name!r})"
            for name, cause in self._lost.items()
        ]
        if not any(spec.role == "source" for spec in specs):
            faults.append(f"topology {self.name!r} has no source; begin with top.source(name, ps.io....)")
        if not self._lost and not any(spec.role == "sink" or self._sinks.get(spec.name) for spec in specs):
            faults.append(f"topology {self.name!r} has no sink; end with stream.sink(name, ps.io.collect())")
        faults += region_faults(specs)
        if not faults:
            faults += [
                f"nobody reads {spec.name!r}; give it a sink (ps.io.discard() drops its rows) or take it out with "
                f"remove({spec.name!r}), as in a notebook whose cell was run again"
                for spec in unread(specs, self._sinks)
            ]
        constraints = without(self._constraints, left_out)  # of a cell that was run again, as the operators are
        dataflow = Dataflow(self.name, tuple(self._with_sinks(spec) for spec in specs), constraints)
        if not faults:
            faults += dataflow.placeable().faults()
        if faults:
            raise InvalidInput(faults)
        return pruned(dataflow)

    def placeable(self, named: Iterable[str] = ()) -> OperatorGraph:
        """What is to be placed, for `ps.place`, `ps.fuse` and `ps.compare`, which take a topology as it is."""
        return self.build().placeable(named)

    # -- for streams -------------------------------------------------------------------------------------------------

    def add(
        self,
        kind: str,
        build: Build,
        *,
        name: str | None = None,
        tasks: int = 1,
        inputs: Sequence[Input] = (),
        outputs: Mapping[str, pa.Schema] | None = None,
        role: Role = "operator",
        state: StateFacts | None = None,
        bounded: bool = True,
        one_per_worker: bool = False,
        idle_us: int | None = None,
        region: RegionPart | None = None,
        columns: ColumnUse | None = None,
        source: SourceFacts = READS_NO_FILES,
        sink: SinkFacts = KEEPS_NOTHING,
    ) -> OperatorSpec:
        """Add an operator; streams call this."""
        self._require_there(given.operator for given in inputs)
        name = self._default_name(kind) if name is None else name
        require_count(tasks, 1, TASKS_MAX, f"tasks of {kind} {name!r}")
        self._make_room(name, kind, role, inputs)
        if len(self._operators) >= OPERATORS_MAX:
            msg = f"topology {self.name!r} has {OPERATORS_MAX} operators, which is the limit"
            raise InvalidInput(msg)
        spec = OperatorSpec(
            name,
            kind,
            build,
            tasks,
            tuple(inputs),
            dict(outputs or {}),
            role,
            state,
            bounded,
            one_per_worker,
            idle_us=idle_us,
            region=region,
            columns=columns,
            source=source,
            sink=sink,
        )
        self._operators[name] = spec
        self._editions[name] = max(self._editions.values(), default=0) + 1
        if region is not None and region.region in self._unnamed:
            self._unnamed.add(name)
        return spec

    def attach(self, operator: str, sink: AttachedSink) -> None:
        """Add a sink that runs inside the tasks of an operator."""
        self._require_there([operator])
        self._make_room(sink.name, sink.kind, "sink", [Input(operator, sink.output)])
        self._sinks.setdefault(operator, []).append(sink)

    def add_event_time(self, operator: str, column: str, lateness_us: int | None) -> None:
        """Have an operator make watermarks from a column of its main output; no lateness: as it is safe."""
        spec = self._operators[operator]
        if lateness_us is None and (spec.role == "source" or not self._ends(operator)):
            lateness_us = 0
        by_input = bool(spec.inputs) and not spec.stateful and spec.region is None
        behind_input = spec.stateful and carries_time(self._operators, operator)
        time = TimeSpec(column, lateness_us, by_input, behind_input)
        if spec.event_time == time:
            return  # a cell was run again
        if (known := self.event_time_of(operator)) is not None:
            msg = (
                f"{operator!r} has event time on {known!r} already; go on with the stream that event_time({known!r}) "
                f"returned, or put a map or select before event_time({column!r})"
            )
            raise InvalidInput(msg)
        if lateness_us is not None and (mixed := mixed_before(self._operators, operator)) is not None:
            raise InvalidInput(mixed_rows(operator, *mixed, ends=self._ends(operator)))
        self._event_time[operator] = column
        self._operators[operator] = replace(spec, build=partial(with_event_time, spec.build, time), event_time=time)

    def _ends(self, operator: str) -> bool:
        """Whether all rows of an operator come from sources that end."""
        spec = self._operators[operator]
        return spec.bounded if spec.role == "source" else all(self._ends(read.operator) for read in spec.inputs)

    def event_time_of(self, operator: str) -> str | None:
        """The column from which an operator makes watermarks, if it does."""
        return self._event_time.get(operator)

    def operator(self, name: str) -> OperatorSpec:
        """An operator as it stands."""
        self._require_there([name])
        return self._operators[name]

    def edition(self, name: str) -> int:
        """Which definition of an operator is in force."""
        self._require_there([name])
        return self._editions[name]

    def free_name(self, kind: str) -> str:
        """The kind and a number, as operators without a name get it."""
        return self._default_name(kind)

    def _with_sinks(self, spec: OperatorSpec) -> OperatorSpec:
        """The operator with its sinks inside; they come last, so that they see rows as every reader does."""
        sinks = tuple(self._sinks.get(spec.name, ()))
        return replace(spec, build=partial(with_sinks, spec.build, sinks), sinks=sinks) if sinks else spec

    def _require_there(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._operators:
                msg = (
                    f"{name!r} is no longer in topology {self.name!r}: it was removed, or what it read was defined "
                    "again; write it again, by running its cell, and go on from there"
                )
                raise InvalidInput(msg)

    def _make_room(self, name: str, kind: str, role: Role, inputs: Sequence[Input]) -> None:
        """Take out what has this name, if that is the same operator in an earlier version; or refuse."""
        _require_name(name, kind)
        self._lost.pop(name, None)
        if name not in self._names():
            return
        lineage = lineages(self._operators.values())
        had_role, had_inputs = self._had(name)
        if had_role != role or reads(had_inputs, lineage) != reads(inputs, lineage):
            msg = (
                f"topology {self.name!r} has an operator {name!r} already; names must be unique, so choose another or "
                f"call remove({name!r}) first"
            )
            raise InvalidInput(msg)
        self._again[name] = None
        went = [gone for gone in self._drop(name) if gone != name]
        self._lost |= dict.fromkeys((gone for gone in went if gone not in self._unnamed), name)

    def _had(self, name: str) -> tuple[Role, Sequence[Input]]:
        """What an operator or sink is and reads."""
        if name in self._operators:
            return self._operators[name].role, self._operators[name].inputs
        found = [(operator, sink) for operator, sinks in self._sinks.items() for sink in sinks if sink.name == name]
        return "sink", [Input(operator, sink.output) for operator, sink in found]

    def _drop(self, name: str) -> list[str]:
        """Take an operator or sink out with everything that hangs on it; the names that went, sinks too."""
        gone = hanging_on(name, self._operators.values())
        sinks = [sink.name for operator in gone for sink in self._sinks.pop(operator, ())]
        for operator in gone:
            spec = self._operators.pop(operator, None)
            self.frames.pop(operator, None)
            self._event_time.pop(operator, None)
            if spec is not None and operator in self._unnamed:
                self._counters.pop(spec.kind, None)  # numbers that are free again are given again
        for operator, attached in list(self._sinks.items()):
            self._sinks[operator] = [sink for sink in attached if sink.name != name]
        return [*gone, *sinks]

    def _names(self) -> set[str]:
        return {*self._operators, *(sink.name for sinks in self._sinks.values() for sink in sinks)}

    def _default_name(self, kind: str) -> str:
        while True:
            self._counters[kind] = number = self._counters.get(kind, 0) + 1
            if f"{kind}{number}" not in self._names():
                self._unnamed.add(f"{kind}{number}")
                return f"{kind}{number}"


def without(constraints: Iterable[Constraint], gone: Iterable[str]) -> tuple[Constraint, ...]:
    """The constraints that name none of these operators or their tasks."""
    names = set(gone)
    return tuple(c for c in constraints if not names & {one for n in names_in(c) for one in (n, operator_of(n))})


def _idle_us(name: str, source: Source, idle: Duration | None) -> int | None:
    if idle is None:
        return None if source.bounded else parse_duration_us(IDLE, "idle")
    return parse_duration_us(idle, f"idle of source {name!r}")


def _require_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name.strip() or "/" in name or len(name) > NAME_LENGTH_MAX:
        msg = f"{what} has the name {name!r}; give text of 1 to {NAME_LENGTH_MAX} characters without '/'"
        raise InvalidInput(msg)


def region_faults(specs: Sequence[OperatorSpec]) -> list[str]:
    """Regions that are not ended, and rows inside one that several operators read."""
    faults: list[str] = []
    for spec in specs:
        if spec.region is None or spec.region.role == "merger":
            continue
        readers = [o.name for o in specs for i in o.inputs if i.operator == spec.name and i.output == MAIN]
        if not readers and (spec.region.ordered or spec.region.role == "splitter"):
            faults.append(f"region {spec.region.region!r} does not end after {spec.name!r}; call merge()")
        if len(readers) > 1 and (spec.region.ordered or spec.region.role == "splitter"):
            faults.append(
                f"{' and '.join(map(repr, readers))} read {spec.name!r} inside region {spec.region.region!r}; "
                "rows inside a region have one reader, so branch after merge()"
            )
    return faults
