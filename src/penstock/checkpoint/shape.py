"""The shape of a topology: what of it a checkpoint depends on, as plain data, and whether two shapes fit. Pure.

A job keeps its shape with its epochs. A topology that is started with the same folder is compared with it before
anything else, because state that goes into another operator is wrong without a word, or is refused by a worker that
knows no more than bytes. Compared is what the stored bytes mean: keys, windows, aggregates, files, sinks; not what is
free to change: tasks, plans, functions, names of columns that nobody keeps. What is written here in words is shown to
users as it is. Rejected: to compare classes or their settings, which change from version to version.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow as pa

from penstock.run.dataflow import FORWARD, Dataflow, OperatorSpec
from penstock.run.endpoints import SinkFacts

FILES_MAX = 1_000  # of a source that are kept by name; of more, a digest of them
NONE = "none"
FOLLOWS = ("columns", "rows")  # facts that may follow from others
ELSE = "or begin in another checkpoint folder"
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}

Shape = Mapping[str, Any]  # JSON: "operators" and "sinks", each by name
Entry = Mapping[str, Any]  # of one of them: "kind", "facts" by name, and of sources "source" and "files"


def shape_of(dataflow: Dataflow, size_of: Callable[[str], int]) -> dict[str, Any]:
    """The shape of a topology; `size_of` is asked for the bytes of each file that it reads."""
    operators = {spec.name: _operator(spec, dataflow, size_of) for spec in dataflow.operators if spec.role != "sink"}
    homes = {sink.name: spec.name for spec in dataflow.operators for sink in spec.sinks}
    kinds = {sink.name: sink.kind for spec in dataflow.operators for sink in spec.sinks}
    kinds |= {spec.name: spec.kind for spec in dataflow.operators if spec.role == "sink"}
    sinks = {
        name: _sink(kinds[name], facts, schema, homes.get(name, name))
        for name, (facts, schema) in dataflow.sinks().items()
        if facts.kept or facts.repeats
    }
    return {"operators": operators, "sinks": sinks}


def misfit(was: Shape, now: Shape, ended: Collection[str] = (), moved: Collection[str] = ()) -> str | None:
    """The first thing that keeps a topology from going on. What is new begins without state; what has none may go.

    `ended` are the operators whose tasks had all finished, `moved` the sinks whose files are there, wherever that is.
    """
    for section, find, free in (("operators", _operator_misfit, ended), ("sinks", _sink_misfit, moved)):
        before, after = was[section], now[section]
        for name, entry in before.items():
            if (found := find(name, entry, after, before, name in free)) is not None:
                return found
    return None


def reopened(dataflow: Dataflow, tasks: Mapping[str, int], finished: Mapping[str, Collection[int]]) -> str | None:
    """The first operator that had finished and reads what may still come: it would be dropped, or waited for for ever.

    `tasks` has how many tasks the operators of a checkpoint had, `finished` the numbers of those that had finished. An
    operator that is new gives rows if it is a source, or reads an operator that does.
    """
    giving: set[str] = set()
    for spec in dataflow.operators:
        past = set(finished.get(spec.name, ()))
        sources = [read for read in spec.inputs if read.operator in giving]
        for read in sources if past else []:
            of_it = set(finished.get(read.operator, ()))
            if read.grouping.kind != FORWARD or not past <= of_it:  # forward: of each task its like alone is read
                return _reopened(spec, dataflow.operator(read.operator), is_new=read.operator not in tasks)
        if len(past) < tasks[spec.name] if spec.name in tasks else sources or spec.role == "source":
            giving.add(spec.name)
    return None


def _reopened(spec: OperatorSpec, read: OperatorSpec, *, is_new: bool) -> str:
    past = "is new" if is_new else "had not"
    advice = f"let another {spec.role} read them"
    if spec.role == "operator" and spec.state is None:
        advice = "give it another name, under which it begins anew"
    return (
        f"{spec.role} {spec.name!r} had finished when the checkpoint was made, and reads {read.role} {read.name!r} "
        f"now, which {past}: its rows would be lost; {advice}, {ELSE}"
    )


def is_shape(found: object) -> bool:
    """Whether what was read is what `shape_of` makes."""
    if not isinstance(found, dict):
        return False
    sections = [found.get(section) for section in ("operators", "sinks")]
    return all(isinstance(section, dict) and all(map(_is_entry, section.values())) for section in sections)


def _is_entry(found: object) -> bool:
    return (
        isinstance(found, dict)
        and isinstance(found.get("kind"), str)
        and isinstance(found.get("facts"), dict)
        and all(isinstance(fact, str) for fact in found["facts"].values())
        and ("files" not in found or _are_files(found["files"]))
    )


def _are_files(found: object) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("digest"), str):
        return False
    sizes = found.get("sizes", {})
    numbers = [found.get("count"), found.get("bytes"), *(sizes.values() if isinstance(sizes, dict) else [None])]
    return all(isinstance(number, int) for number in numbers)


# -- making ------------------------------------------------------------------------------------------------------------


def _operator(spec: OperatorSpec, dataflow: Dataflow, size_of: Callable[[str], int]) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": spec.kind, "facts": _facts(spec, dataflow)}
    if spec.role == "source":
        entry["source"] = True
        if spec.source.files:
            entry["files"] = _files(spec.source.files, size_of)
    return entry


def _facts(spec: OperatorSpec, dataflow: Dataflow) -> dict[str, str]:
    facts: dict[str, str] = {}
    if spec.state is not None:
        inputs = [dataflow.operator(read.operator).outputs[read.output] for read in spec.inputs]
        by_input = list(zip(inputs, spec.state.keys, strict=True))
        keys = " and ".join(typed(schema, keys) for schema, keys in by_input)
        facts["keys"] = keys
        if any(read.grouping.kind == "partial-key" for read in spec.inputs):  # each key is in two tasks: none can move
            facts |= {"grouping": "partial-key", "tasks": str(spec.tasks)}
        facts |= spec.state.others
        if spec.state.reads is None:
            facts["rows"] = " and ".join(f"({typed(schema, schema.names)})" for schema in inputs)
        else:
            facts["columns"] = typed(inputs[0], [name for name in spec.state.reads if name not in spec.state.keys[0]])
    if spec.event_time is not None:
        facts["event time"] = repr(spec.event_time.column)
    if spec.source.schedule:
        facts["schedule"] = spec.source.schedule
    if spec.source.by_task:
        facts["tasks"] = str(spec.tasks)
    return facts


def _files(files: tuple[str, ...], size_of: Callable[[str], int]) -> dict[str, Any]:
    parent = os.path.commonpath([os.path.dirname(path) for path in files])  # all of them may lie elsewhere
    sizes = {os.path.relpath(path, parent): size_of(path) for path in files}
    digest = hashlib.blake2b(repr(sizes).encode(), digest_size=16).hexdigest()
    return {"count": len(files), "bytes": sum(sizes.values()), "digest": digest} | (
        {"sizes": sizes} if len(files) <= FILES_MAX else {}
    )


def _sink(kind: str, facts: SinkFacts, schema: pa.Schema, home: str) -> dict[str, Any]:
    found = {"columns": typed(schema, schema.names)} if facts.kept else {"tasks": f"those of {home!r}"}
    if facts.folder is not None:
        found["place"] = without_keys(facts.folder)
    return {"kind": kind, "facts": found}


def typed(schema: pa.Schema, names: Collection[str]) -> str:
    """Columns with their types, as users write them."""
    fields = [schema.field(name) for name in names]
    words = [f"{f.name} {_NAMES.get(f.type, f.type)}{'' if f.nullable else ' not null'}" for f in fields]
    return ", ".join(words) or NONE


def without_keys(place: str) -> str:
    """A path or URI without whatever opens it: the part before an @, and the options behind a question mark."""
    scheme, found, rest = place.partition("://")
    if not found:
        return place
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


# -- comparing ---------------------------------------------------------------------------------------------------------


def _operator_misfit(name: str, was: Entry, after: Shape, before: Shape, has_ended: bool) -> str | None:
    is_source = bool(was.get("source"))
    who = f"{'source' if is_source else 'operator'} {name!r}"
    now = after.get(name)
    if now is None:
        if has_ended if is_source else not was["facts"]:
            return None
        what = "where it stands" if is_source else "its state"
        return f"{who}, of which a checkpoint is kept, is gone, and {what} with it; {_back(name, was, after, before)}"
    if is_source != bool(now.get("source")) or (was["kind"] != now["kind"] and (was["facts"] or now["facts"])):
        return _changed(who, "kind", was["kind"], now["kind"])
    free = {"tasks"} if has_ended else frozenset[str]()
    return _fact_misfit(who, was, now, free) or _file_misfit(who, was.get("files"), now.get("files"))


def _sink_misfit(name: str, was: Entry, after: Shape, before: Shape, has_moved: bool) -> str | None:
    who = f"sink {name!r}"
    now = after.get(name)
    if now is None:
        what = "its rows" if "columns" in was["facts"] else "the numbers of its rows"
        return f"{who}, of which a checkpoint is kept, is gone, and {what} with it; {_back(name, was, after, before)}"
    if was["kind"] != now["kind"]:
        return _changed(who, "kind", was["kind"], now["kind"])
    return _fact_misfit(who, was, now, {"place"} if has_moved else frozenset())


def _fact_misfit(who: str, was: Entry, now: Entry, free: Collection[str] = ()) -> str | None:
    facts = [fact for fact in {**was["facts"], **now["facts"]} if fact not in free]
    for fact in sorted(facts, key=lambda fact: fact in FOLLOWS):  # what a user has changed comes first
        then, there = was["facts"].get(fact, NONE), now["facts"].get(fact, NONE)
        if then != there:
            return _changed(who, fact, then, there)
    return None


def _file_misfit(who: str, was: Entry | None, now: Entry | None) -> str | None:
    if was is None or now is None or was["digest"] == now["digest"]:
        return None
    then, there = was.get("sizes", {}), now.get("sizes", {})
    differs = next((path for path in sorted({**then, **there}) if then.get(path) != there.get(path)), None)
    which = ""
    if differs is not None:
        which = f": {differs!r} is {_bytes(there.get(differs))}, and was {_bytes(then.get(differs))}"
    return (
        f"{who} has {now['count']:,} files of {now['bytes']:,} bytes now, and had {was['count']:,} of {was['bytes']:,} "
        f"when the checkpoint was made{which}; its positions would mean other rows: give the same files back, {ELSE}"
    )


def _bytes(size: int | None) -> str:
    return "not there" if size is None or size < 0 else f"{size:,} bytes"


def _changed(who: str, fact: str, was: str, now: str) -> str:
    return f"{who} has {fact} {now} now, and had {fact} {was} when the checkpoint was made; make it as it was, {ELSE}"


def _back(name: str, was: Entry, after: Shape, before: Shape) -> str:
    """What to do where something is gone; often it has just another name."""
    new = [other for other, entry in after.items() if other not in before and entry["kind"] == was["kind"]]
    return (f"if {new[0]!r} is the same, call it {name!r} again" if len(new) == 1 else "give it back") + f", {ELSE}"
