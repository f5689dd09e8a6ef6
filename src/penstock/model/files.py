"""Reads and writes topology, cluster, profile and plan files, in JSON (YAML is read as well).

Reading names every fault of a file at once, unknown keys among them: a misspelt "memory" that is silently ignored would
cost an afternoon (`test_all_faults_are_named_at_once`). Writing is atomic: a plan file is whole or not there.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from penstock.errors import InvalidInput
from penstock.model.cluster import MAGNITUDE_MIN, NODES_MAX, Cluster, Node
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together
from penstock.model.costs import DISTANCES, DistanceCost, EndCost, StreamCosts
from penstock.model.documents import read_document
from penstock.model.fields import Faults, Fields, as_numbers, as_texts
from penstock.model.plan import Plan, Slot
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.topology import (
    MAGNITUDE_MAX,
    OPERATORS_MAX,
    Operator,
    OperatorGraph,
    Placeable,
    Rate,
    Stream,
    graph_of,
)

FORMAT_VERSION = 1
SHORTHAND = re.compile(r"\d+x[0-9.eE+-]+(,\d+x[0-9.eE+-]+)*")

Read = TypeVar("Read")


def read_topology(path: str | Path) -> OperatorGraph:
    """An operator graph from a file, validated."""
    return _read(Path(path), "topology", _topology, OperatorGraph.faults)


def read_cluster(path: str | Path) -> Cluster:
    """A cluster from a file, validated."""
    return _read(Path(path), "cluster", _cluster, Cluster.faults)


def read_profile(path: str | Path, graph: OperatorGraph | Placeable | None = None) -> Profile:
    """A profile from a file, validated against the topology that it measured; without one, a job or `place` does so."""

    def judge(found: Profile) -> list[str]:
        return [] if graph is None else found.faults(graph_of(graph, found.tasks))

    return _read(Path(path), "profile", _profile, judge)


def read_plan(path: str | Path) -> Plan:
    """A plan from a file; `check_plan` judges whether it holds."""
    return _read(Path(path), "plan", _plan, lambda _: [])


def read_costs(path: str | Path) -> StreamCosts:
    """What streams cost, from a file that `penstock calibrate` wrote, validated."""
    return _read(Path(path), "costs", _costs, StreamCosts.faults)


def write_costs(costs: StreamCosts, path: str | Path) -> None:
    """Write a file of what streams cost, whole or not at all."""
    write_text(path, json.dumps({"penstock": FORMAT_VERSION, **costs_document(costs)}, indent=1) + "\n")


def read_constraints(path: str | Path) -> tuple[Constraint, ...]:
    """The constraints of a file that holds them alone, or of a topology or plan; names are the topology's to judge."""
    return _read(Path(path), "constraints", lambda fields: tuple(_constraints(fields, required=True)), lambda _: [])


def parse_cluster(text: str) -> Cluster:
    """A cluster from the shorthand `3x6,3x4,4x2`, or from the file of that name."""
    if not SHORTHAND.fullmatch(text):
        path = Path(text)
        if not text or not path.exists():
            msg = f"cluster {text!r} is neither a file nor a shorthand such as 3x6,3x4,4x2"
            raise InvalidInput(msg)
        return read_cluster(path)
    groups: list[tuple[int, float]] = []
    for part in text.split(","):
        count, _, capacity = part.partition("x")
        try:
            groups.append((int(count), float(capacity)))
        except ValueError:
            msg = f"cluster {text!r} has {part!r}; each part is COUNTxCAPACITY, such as 3x6"
            raise InvalidInput(msg) from None
        if not MAGNITUDE_MIN <= groups[-1][1] <= MAGNITUDE_MAX:
            limits = f"at least {MAGNITUDE_MIN:g} and at most {MAGNITUDE_MAX:g}"
            msg = f"cluster {text!r} has {part!r}, whose capacity is {groups[-1][1]:g}; it must be finite, {limits}"
            raise InvalidInput(msg)
    if (nodes := sum(count for count, _ in groups)) > NODES_MAX:
        msg = f"cluster {text!r} has {nodes} nodes; the limit is {NODES_MAX}"
        raise InvalidInput(msg)
    return Cluster.uniform(groups).validated()


def plan_document(plan: Plan, *, with_assignment: bool = True) -> dict[str, object]:
    """The plan as the plain value that its file holds."""
    document: dict[str, object] = {
        "penstock": FORMAT_VERSION,
        "scheduler": plan.scheduler,
        "seed": plan.seed,
        "seconds": round(plan.seconds, 6),
        "cost": plan.cost,
        "inter_worker_cost": plan.inter_worker_cost,
        "lower_bound": plan.lower_bound,
        "proved_optimal": plan.proved_optimal,
        "nodes_used": plan.nodes_used,
        "max_utilisation": plan.max_utilisation,
        "notes": list(plan.notes),
        "faults": list(plan.faults),
    }
    document |= _stated(plan, ("rows_per_second",))
    if plan.constraints:
        document["constraints"] = [_constraint_document(constraint) for constraint in plan.constraints]
    if with_assignment:
        document["assignment"] = {task: {"node": s.node, "worker": s.worker} for task, s in plan.assignment.items()}
    return document


def _constraint_document(constraint: Constraint) -> dict[str, object]:
    """A constraint as topology and plan files have it."""
    document: dict[str, object] = {"type": constraint.type}
    for key in _CONSTRAINT_KEYS[constraint.type][1:]:
        value = getattr(constraint, key)
        if key in {"nodes", "tags"} and not value:
            continue
        document[key] = [list(v) if isinstance(v, tuple) else v for v in value] if isinstance(value, tuple) else value
    return document


def topology_document(graph: OperatorGraph) -> dict[str, object]:
    """The operator graph as the plain value that its file holds."""
    document: dict[str, object] = {
        "penstock": FORMAT_VERSION,
        "name": graph.name,
        "operators": [asdict(operator) for operator in graph.operators],
        "streams": [
            {"from": stream.source, "to": stream.target, "grouping": stream.grouping, "rate": stream.rate}
            for stream in graph.streams
        ],
    }
    if graph.constraints:
        document["constraints"] = [_constraint_document(constraint) for constraint in graph.constraints]
    return document


def write_topology(graph: OperatorGraph, path: str | Path) -> None:
    """Write a topology file, whole or not at all."""
    write_text(path, json.dumps(topology_document(graph), indent=1) + "\n")


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan file, whole or not at all."""
    write_text(path, json.dumps(plan_document(plan), indent=1) + "\n")


def profile_document(profile: Profile) -> dict[str, object]:
    """The profile as the plain value that its file holds."""
    tasks = {task: _stated(found, _TASK_FIGURES) for task, found in profile.tasks.items()}
    edges = [
        {"from": edge.source, "to": edge.target, **_stated(edge, (*_EDGE_FIGURES, "distance"))}
        for edge in profile.edges
    ]
    covered = _stated(profile, ("seconds", "rows"))
    document: dict[str, object] = {"penstock": FORMAT_VERSION, **covered, "tasks": tasks, "edges": edges}
    return document if profile.costs is None else {**document, "costs": costs_document(profile.costs)}


def costs_document(costs: StreamCosts) -> dict[str, object]:
    """The costs of streams as profiles and files of `penstock calibrate` have them."""
    return {"origin": costs.origin, **{distance: asdict(costs.at(distance)) for distance in DISTANCES}}


def _stated(record: TaskProfile | EdgeProfile | Profile | Plan, names: Sequence[str]) -> dict[str, object]:
    """The figures of a record that are known."""
    return {name: value for name in names if (value := getattr(record, name)) is not None}


def write_profile(profile: Profile, path: str | Path) -> None:
    """Write a profile file, whole or not at all."""
    write_text(path, json.dumps(profile_document(profile), indent=1) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    if not str(path):
        msg = "cannot write a file without a name"
        raise InvalidInput(msg)
    target = Path(path).resolve()  # a link stays a link; its target is replaced
    if target.exists() and not target.is_file():
        msg = f"cannot write {path}: it is not a regular file"
        raise InvalidInput(msg)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).chmod(0o644)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        msg = f"cannot write {target}: {error.strerror or error}"
        raise InvalidInput(msg) from None


def _read(path: Path, kind: str, build: Callable[[Fields], Read], judge: Callable[[Read], list[str]]) -> Read:
    """Read, build and judge; faults of form are raised first, because they would cause faults of meaning."""
    faults, document = Faults(), read_document(path)
    if kind == "constraints" and isinstance(document, list):  # there is nothing else to say in such a file
        document = {kind: document}
    keys = document if isinstance(document, dict) else {}
    others = [name for name, mark in _MARKS.items() if mark in keys]
    if kind in _MARKS and others and kind not in others:
        msg = f"{path} is a {others[0]}, not a {kind}"
        raise InvalidInput(msg)
    fields = Fields.of(document, "", faults, _TOP_KEYS[kind])
    version = fields.values.get("penstock", FORMAT_VERSION)
    if version != FORMAT_VERSION or isinstance(version, bool):
        msg = f"{path} has format version {version!r}; this program reads version {FORMAT_VERSION}"
        raise InvalidInput(msg)
    value = build(fields)
    found = faults.found or judge(value)
    if found:
        raise InvalidInput([f"{path}: {fault}" for fault in found])
    return value


_MARKS = {"plan": "assignment", "cluster": "nodes", "topology": "operators", "profile": "tasks"}  # of each kind alone
_PLAN_KEYS = (
    *("scheduler", "seed", "seconds", "cost", "inter_worker_cost", "lower_bound", "proved_optimal"),
    *("nodes_used", "max_utilisation", "rows_per_second", "notes", "faults", "assignment"),
)
_TOP_KEYS: dict[str, tuple[str, ...]] = {
    "topology": ("penstock", "name", "operators", "streams", "constraints"),
    "cluster": ("penstock", "name", "nodes"),
    "profile": ("penstock", "seconds", "rows", "tasks", "edges", "costs"),
    "costs": ("penstock", "origin", *DISTANCES),
    "constraints": ("penstock", "constraints", *("name", "operators", "streams"), *_PLAN_KEYS),
    "plan": ("penstock", "constraints", *_PLAN_KEYS),
}


def _each(fields: Fields, key: str, known: tuple[str, ...], *, required: bool, count_max: int) -> list[Fields]:
    entries = fields.items(key, required=required, count_max=count_max)
    return [Fields.of(entry, f"{fields.at(key)}[{i}]", fields.faults, known) for i, entry in enumerate(entries)]


def _topology(fields: Fields) -> OperatorGraph:
    operator_keys = ("name", "tasks", "load", "memory_mb", "source")
    operators = _each(fields, "operators", operator_keys, required=True, count_max=OPERATORS_MAX)
    streams = _each(fields, "streams", ("from", "to", "grouping", "rate"), required=False, count_max=5 * OPERATORS_MAX)
    arcs = tuple(
        Stream(entry.text("from"), entry.text("to"), entry.text("grouping", "shuffle"), _rate(entry))
        for entry in streams
    )
    fed = {stream.target for stream in arcs}
    return OperatorGraph(
        fields.text("name", "topology"),
        tuple(_operator(entry, fed) for entry in operators),
        arcs,
        tuple(_constraints(fields)),
    )


def _operator(fields: Fields, fed: set[str]) -> Operator:
    name = fields.text("name")
    return Operator(
        name,
        fields.whole("tasks", 1),
        _per_task(fields, "load", 1.0),
        _per_task(fields, "memory_mb", 0.0),
        fields.flag("source", name not in fed),
    )


def _per_task(fields: Fields, key: str, default: float) -> float | tuple[float, ...]:
    if isinstance(value := fields.values.get(key), list):
        return as_numbers(value, fields.at(key), fields.faults)
    return fields.number(key, default)


def _rate(fields: Fields) -> Rate:
    value = fields.values.get("rate")
    if isinstance(value, list):
        where = fields.at("rate")
        return tuple(as_numbers(row, f"{where}[{i}]", fields.faults) for i, row in enumerate(value))
    return fields.number("rate", 1.0)


_CONSTRAINT_KEYS: dict[str, tuple[str, ...]] = {
    "resource": ("type", "operator", "nodes", "tags"),
    "colocate-worker": ("type", "operators"),
    "colocate-node": ("type", "operators"),
    "separate-workers": ("type", "operators"),
    "separate-nodes": ("type", "operators"),
    "replicas": ("type", "groups", "isomorphic"),
    "dedicated-worker": ("type", "operator"),
    "dedicated-node": ("type", "operator"),
}


def _constraints(fields: Fields, *, required: bool = False) -> list[Constraint]:
    found: list[Constraint] = []
    for i, value in enumerate(fields.items("constraints", required=required, count_max=OPERATORS_MAX)):
        where = f"constraints[{i}]"
        kind = value.get("type") if isinstance(value, dict) else None
        known = _CONSTRAINT_KEYS.get(kind) if isinstance(kind, str) else None
        if kind is not None and known is None:
            fields.faults.add(where, f"unknown type {kind!r}; known: {', '.join(_CONSTRAINT_KEYS)}")
            continue
        if isinstance(value, dict) and kind is None:  # the type decides which keys are known, so it is checked first
            fields.faults.add(f"{where}.type", f"is missing; known: {', '.join(_CONSTRAINT_KEYS)}")
            continue
        entry = Fields.of(value, where, fields.faults, known or ())
        if constraint := _constraint(entry, entry.text("type")):
            found.append(constraint)
    return found


def _constraint(entry: Fields, kind: str) -> Constraint | None:
    match kind:
        case "resource":
            tags = as_texts(entry.values.get("tags", []), entry.at("tags"), entry.faults)
            nodes = () if tags and "nodes" not in entry.values else entry.texts("nodes")
            return Resource(entry.text("operator"), nodes, tags)
        case "colocate-worker" | "colocate-node":
            return Together("worker" if kind.endswith("worker") else "node", entry.texts("operators"))
        case "separate-workers" | "separate-nodes":
            return Apart("worker" if kind.endswith("workers") else "node", entry.texts("operators"))
        case "dedicated-worker" | "dedicated-node":
            return Dedicated("worker" if kind.endswith("worker") else "node", entry.text("operator"))
        case "replicas":
            where = entry.at("groups")
            groups = entry.items("groups", required=True)
            members = tuple(as_texts(group, f"{where}[{i}]", entry.faults) for i, group in enumerate(groups))
            return Replicas(members, entry.flag("isomorphic", False))
    return None


def _cluster(fields: Fields) -> Cluster:
    keys = ("name", "capacity", "memory_mb", "bandwidth_mbps", "slots", "rack", "tags", "worker_capacity")
    return Cluster(
        tuple(
            Node(
                entry.text("name"),
                entry.number("capacity"),
                entry.optional_number("memory_mb"),
                entry.optional_number("bandwidth_mbps"),
                None if entry.values.get("slots") is None else entry.whole("slots"),
                entry.text("rack", "r1"),
                as_texts(entry.values.get("tags", []), entry.at("tags"), entry.faults),
                entry.optional_number("worker_capacity") if "worker_capacity" in entry.values else 1.0,
            )
            for entry in _each(fields, "nodes", keys, required=True, count_max=NODES_MAX)
        )
    )


_TASK_FIGURES = ("load", "memory_mb", "spread", "execute_us")
_EDGE_FIGURES = ("rate", "tuples", "batches", "send_cpu", "receive_cpu", "latency_us")
_END_FIGURES = ("batch_us", "tuple_ns", "byte_ns")


def _profile(fields: Fields) -> Profile:
    tasks: dict[str, TaskProfile] = {}
    for name, value in fields.mapping("tasks").items():
        entry = Fields.of(value, f"tasks.{name}", fields.faults, _TASK_FIGURES)
        tasks[name] = TaskProfile(entry.number("load"), *map(entry.optional_number, _TASK_FIGURES[1:]))
    edges = _each(fields, "edges", ("from", "to", "distance", *_EDGE_FIGURES), required=False, count_max=5_000_000)
    costs = fields.values.get("costs")
    return Profile(
        tasks,
        tuple(_edge(entry) for entry in edges),
        None if costs is None else _costs(Fields.of(costs, "costs", fields.faults, ("origin", *DISTANCES))),
        fields.optional_number("seconds"),
        fields.optional_number("rows"),
    )


def _edge(entry: Fields) -> EdgeProfile:
    found = {name: entry.optional_number(name) for name in _EDGE_FIGURES[1:]}
    distance = None if entry.values.get("distance") is None else entry.text("distance")
    return EdgeProfile(entry.text("from"), entry.text("to"), entry.number("rate"), distance=distance, **found)  # type: ignore[arg-type] # judged by Profile.faults


def _costs(fields: Fields) -> StreamCosts:
    def end(distance: Fields, key: str) -> EndCost:
        entry = Fields.of(distance.values.get(key, {}), distance.at(key), fields.faults, _END_FIGURES)
        return EndCost(*(entry.number(name, 0.0) for name in _END_FIGURES))

    found: dict[str, DistanceCost] = {}
    for name in DISTANCES:
        distance = Fields.of(fields.values.get(name, {}), fields.at(name), fields.faults, ("send", "receive"))
        found[name] = DistanceCost(end(distance, "send"), end(distance, "receive"))
    return StreamCosts(**found, origin=fields.text("origin", ""))


def _plan(fields: Fields) -> Plan:
    def slot(name: str, value: object) -> Slot:
        entry = Fields.of(value, f"assignment.{name}", fields.faults, ("node", "worker"))
        return Slot(entry.text("node"), entry.whole("worker", 0))

    assignment: Mapping[str, Slot] = {name: slot(name, value) for name, value in fields.mapping("assignment").items()}
    return Plan(
        scheduler=fields.text("scheduler", "unknown"),
        seed=fields.whole("seed", 0),
        seconds=fields.number("seconds", 0.0),
        cost=fields.number("cost"),
        inter_worker_cost=fields.number("inter_worker_cost", 0.0),
        lower_bound=fields.number("lower_bound", 0.0),
        proved_optimal=fields.flag("proved_optimal", False),
        nodes_used=fields.whole("nodes_used"),
        max_utilisation=fields.number("max_utilisation"),
        assignment=assignment,
        notes=as_texts(fields.values.get("notes", []), "notes", fields.faults),
        constraints=tuple(_constraints(fields)),
        rows_per_second=fields.optional_number("rows_per_second"),
    )
