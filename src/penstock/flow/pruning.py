"""Leaves out columns that no operator uses: one pure pass over a finished dataflow.

Backwards from the sinks, every operator tells which columns of its inputs it needs for the wanted columns of its
outputs. Then forwards, sources leave the other columns out and every operator is built over its narrower inputs.
Declared schemas stay exact, because batches travel without theirs. An operator that cannot tell (a user's function, a
ranking) needs every column, so everything before it stays as it was written
(`test_generators_and_sinks_see_every_column`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock.run.contract import MAIN
from penstock.run.dataflow import Dataflow, Input, OperatorSpec, Outputs
from penstock.run.operators.event_time import with_event_time
from penstock.run.operators.sinks.attached import with_sinks

Wanted = dict[str, dict[str, frozenset[str]]]  # operator -> output -> columns


def pruned(dataflow: Dataflow) -> Dataflow:
    """The same dataflow without unused columns."""
    wanted = _wanted(dataflow.operators)
    schemas: dict[str, Outputs] = {}
    made: list[OperatorSpec] = []
    for spec in dataflow.operators:
        narrow = _narrowed(spec, wanted[spec.name], [schemas[i.operator][i.output] for i in spec.inputs])
        schemas[spec.name] = dict(narrow.outputs)
        made.append(narrow)
    return replace(dataflow, operators=tuple(made))


def needed_columns(dataflow: Dataflow) -> dict[str, tuple[str, ...]]:
    """The columns that each source of a pruned dataflow reads, in order; DataFrames are asked for no others."""
    return {o.name: tuple(o.outputs[MAIN].names) for o in dataflow.operators if o.role == "source"}


def _wanted(specs: Sequence[OperatorSpec]) -> Wanted:
    """What is read of every output, from the last operator to the first."""
    by_name = {spec.name: spec for spec in specs}
    wanted: Wanted = {spec.name: dict.fromkeys(spec.outputs, frozenset()) for spec in specs}
    for spec in reversed(specs):
        own = wanted[spec.name]
        for sink in spec.sinks:
            own[sink.output] |= frozenset(spec.outputs[sink.output].names)
        if spec.event_time is not None:
            own[MAIN] |= {spec.event_time.column}
        inputs = [by_name[i.operator].outputs[i.output] for i in spec.inputs]
        for given, schema, reads in zip(spec.inputs, inputs, _reads(spec, own, inputs), strict=True):
            wanted[given.operator][given.output] |= reads | _routing(given, schema)
    return wanted


def _reads(spec: OperatorSpec, own: dict[str, frozenset[str]], inputs: Sequence[pa.Schema]) -> Sequence[frozenset[str]]:
    if spec.columns is None:
        return [frozenset(schema.names) for schema in inputs]
    return spec.columns.reads(own, inputs)


def _routing(given: Input, schema: pa.Schema) -> frozenset[str]:
    """The columns by which rows choose their task; a user's function may look at any."""
    return frozenset(schema.names if given.grouping.choose is not None else given.grouping.columns)


def _narrowed(spec: OperatorSpec, wanted: dict[str, frozenset[str]], inputs: Sequence[pa.Schema]) -> OperatorSpec:
    """An operator over narrower inputs, with its event time and sinks around it as before."""
    if spec.columns is None:
        return spec
    build, outputs = spec.columns.narrowed(wanted, inputs)
    if spec.event_time is not None:
        build = partial(with_event_time, build, spec.event_time)
    if spec.sinks:
        build = partial(with_sinks, build, spec.sinks)
    return replace(spec, build=build, outputs=outputs, columns=None)
