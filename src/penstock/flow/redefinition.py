"""Notebook cells that are run again: which operators are the same, what hangs on them, and what is left behind. Pure.

A cell that is run twice leaves the operator of its first run in the topology, without readers. Two operators are twins
when they are of the same kind and read the same outputs of twins in the same way. Functions and schemas are not
compared, because users run a cell again to change them. A twin that is given the same name replaces the earlier
operator. An operator without name and readers is left out when a later twin has readers
(`test_cells_that_are_run_again_count_once`). Everything else is an error, as in a program: a stream without a sink is
told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.run.dataflow import AttachedSink, Input, OperatorSpec

Reads = tuple[tuple[object, ...], ...]
Sinks = Mapping[str, list[AttachedSink]]


def lineages(specs: Iterable[OperatorSpec]) -> dict[str, str]:
    """Each operator's first twin, or itself where no twin comes before it; specs come before their readers."""
    first: dict[tuple[str, Reads], str] = {}
    found: dict[str, str] = {}
    for spec in specs:
        key = (spec.kind, reads(spec.inputs, found)) if spec.inputs else (spec.name, ())
        found[spec.name] = first.setdefault(key, spec.name)
    return found


def reads(inputs: Iterable[Input], lineage: Mapping[str, str]) -> Reads:
    """What inputs read, with every twin replaced by the first."""
    return tuple((lineage[i.operator], i.output, i.grouping.kind, i.grouping.columns) for i in inputs)


def hanging_on(name: str, specs: Iterable[OperatorSpec]) -> list[str]:
    """An operator and everything that reads it, directly or through others."""
    found = [name]
    for spec in specs:
        if any(given.operator in found for given in spec.inputs):
            found.append(spec.name)
    return found


def unread(specs: Collection[OperatorSpec], sinks: Sinks) -> list[OperatorSpec]:
    """Operators whose rows go nowhere."""
    read = {given.operator for spec in specs for given in spec.inputs}
    return [spec for spec in specs if spec.role != "sink" and spec.name not in read and not sinks.get(spec.name)]


def left_behind(specs: Collection[OperatorSpec], sinks: Sinks, unnamed: Collection[str]) -> dict[str, str]:
    """Operators without names and readers that a later twin replaces, each with that twin."""
    lineage, kept = lineages(specs), list(specs)
    found: dict[str, str] = {}
    while True:
        idle = [spec.name for spec in unread(kept, sinks)]
        names = [spec.name for spec in kept]
        stands_for = {lineage[name]: name for name in names if name not in idle}  # the last one of each lineage
        gone = {
            name: stands_for[lineage[name]]
            for name in idle
            if name in unnamed and names.index(stands_for.get(lineage[name], name)) > names.index(name)
        }
        if not gone:
            return found
        found |= gone
        kept = [spec for spec in kept if spec.name not in gone]
