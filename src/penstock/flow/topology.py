"""Topology: where users begin.

    >>> import penstock as ps
    >>> top = ps.Topology("words")
    >>> lines = top.source("lines", ps.io.generator(lambda task, tasks: ["a b", "a"], "line string"))
    >>> lines.split("line").key_by("word").count().sink("out", ps.io.collect())
    >>> [operator.name for operator in top.build().operators]
    ['lines', 'split1', 'count1']

It collects operators as streams are written down and checks each at once, so a mistake is reported on the line that
makes it. Operators keep the order in which they were made, which is topological, and their names: the default is
the kind and a number, the same in every run of the same program.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.flow.checks import require_count, require_kind
from penstock.flow.io import Source
from penstock.flow.stream import DataStream
from penstock.model.topology import NAME_LENGTH_MAX, OPERATORS_MAX, TASKS_MAX
from penstock.run.contract import MAIN, Build
from penstock.run.dataflow import AttachedSink, Dataflow, Input, OperatorSpec, RegionPart, Role
from penstock.run.operators.attached import with_sinks
from penstock.run.operators.event_time import with_event_time


class Topology:
    """A dataflow under construction."""

    def __init__(self, name: str) -> None:
        _require_name(name, "topology")
        self.name = name
        self.frames: dict[str, object] = {}  # DataFrames by source name; they stay on the driver
        self._operators: dict[str, OperatorSpec] = {}
        self._event_time: dict[str, str] = {}  # operator -> column
        self._sinks: dict[str, list[AttachedSink]] = {}  # operator -> sinks without tasks of their own
        self._counters: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, operators=[{', '.join(self._operators)}])"

    def source(self, name: str, source: Source, tasks: int | None = None) -> DataStream:
        """A stream that comes from outside; see `ps.io` for what there is."""
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
        )
        if source.frame is not None:
            self.frames[spec.name] = source.frame
        return DataStream(self, spec.name, source.schema, bounded=source.bounded)

    def build(self) -> Dataflow:
        """The frozen dataflow, or InvalidInput with everything that is wrong with it."""
        faults: list[str] = []
        specs = list(self._operators.values())
        if not any(spec.role == "source" for spec in specs):
            faults.append(f"topology {self.name!r} has no source; begin with top.source(name, ps.io....)")
        if not self._sinks and not any(spec.role == "sink" for spec in specs):
            faults.append(f"topology {self.name!r} has no sink; end with stream.sink(name, ps.io.collect())")
        read = {given.operator for spec in specs for given in spec.inputs}
        faults += region_faults(specs)
        if not faults:
            faults += [
                f"nobody reads {spec.name!r}; give it a sink (ps.io.discard() drops its rows) or remove it"
                for spec in specs
                if spec.role != "sink" and spec.name not in read and spec.name not in self._sinks
            ]
        dataflow = Dataflow(self.name, tuple(self._with_sinks(spec) for spec in specs))
        if not faults:
            faults += dataflow.graph().faults()
        if faults:
            raise InvalidInput(faults)
        return dataflow

    def run(self, spark: Any, **options: Any) -> Any:  # noqa: ANN401 - Spark's types are not known here
        """Run to the end of bounded input; what `collect` sinks received, as a DataFrame."""
        # The deployment imports this room, so it is opened only when somebody deploys.
        return importlib.import_module("penstock.deploy").run_topology(self, spark, **options)

    def start(self, spark: Any, **options: Any) -> Any:  # noqa: ANN401 - Spark's types are not known here
        """Start and return a Job."""
        deploy = importlib.import_module("penstock.deploy")
        deploy.require_options(options)
        return deploy.start_topology(self, spark, **options)

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
        stateful: bool = False,
        bounded: bool = True,
        one_per_worker: bool = False,
        region: RegionPart | None = None,
    ) -> OperatorSpec:
        """Add an operator; streams call this."""
        name = self._default_name(kind) if name is None else name
        self._require_free(name, kind)
        require_count(tasks, 1, TASKS_MAX, f"tasks of {kind} {name!r}")
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
            stateful,
            bounded,
            one_per_worker,
            region=region,
        )
        self._operators[name] = spec
        return spec

    def attach(self, operator: str, sink: AttachedSink) -> None:
        """Add a sink that runs inside the tasks of an operator."""
        self._require_free(sink.name, sink.kind)
        self._sinks.setdefault(operator, []).append(sink)

    def add_event_time(self, operator: str, column: str, lateness_us: int) -> None:
        """Have an operator make watermarks from a column of its main output."""
        if (known := self.event_time_of(operator)) is not None:
            msg = (
                f"{operator!r} has event time on {known!r} already; go on with the stream that event_time({known!r}) "
                f"returned, or put a map or select before event_time({column!r})"
            )
            raise InvalidInput(msg)
        spec = self._operators[operator]
        self._event_time[operator] = column
        self._operators[operator] = replace(spec, build=partial(with_event_time, spec.build, column, lateness_us))

    def event_time_of(self, operator: str) -> str | None:
        """The column from which an operator makes watermarks, if it does."""
        return self._event_time.get(operator)

    def operator(self, name: str) -> OperatorSpec:
        """An operator as it stands."""
        return self._operators[name]

    def free_name(self, kind: str) -> str:
        """The kind and a number, as operators without a name get it."""
        return self._default_name(kind)

    def _with_sinks(self, spec: OperatorSpec) -> OperatorSpec:
        """The operator with its sinks inside; they come last, so that they see rows as every reader does."""
        sinks = tuple(self._sinks.get(spec.name, ()))
        return replace(spec, build=partial(with_sinks, spec.build, sinks), sinks=sinks) if sinks else spec

    def _require_free(self, name: str, kind: str) -> None:
        _require_name(name, kind)
        if name in self._names():
            msg = f"topology {self.name!r} has an operator {name!r} already; names must be unique"
            raise InvalidInput(msg)

    def _names(self) -> set[str]:
        return {*self._operators, *(sink.name for sinks in self._sinks.values() for sink in sinks)}

    def _default_name(self, kind: str) -> str:
        while True:
            self._counters[kind] = number = self._counters.get(kind, 0) + 1
            if f"{kind}{number}" not in self._names():
                return f"{kind}{number}"


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
