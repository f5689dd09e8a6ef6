"""Whether an assignment keeps the constraints of its topology, and which it breaks; part of the certificate."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from penstock.model.constraints import (
    Apart,
    Constraint,
    Dedicated,
    Jobs,
    Pin,
    Replicas,
    Resource,
    Together,
    has_tags,
    names_in,
    tasks_named,
)
from penstock.model.plan import Slot
from penstock.model.topology import OperatorGraph

NO_TAGS: Mapping[str, Collection[str]] = {}


def constraint_violations(
    graph: OperatorGraph, assignment: Mapping[str, Slot], tags: Mapping[str, Collection[str]] = NO_TAGS
) -> list[str]:
    """Every constraint that a complete assignment breaks, one sentence each; `tags` are those of the nodes."""
    tasks_of = {operator.name: operator.tasks for operator in graph.operators}
    faults: list[str] = []
    for position, constraint in enumerate(graph.constraints):
        slots = {n: [assignment[task] for task in tasks_named(n, tasks_of) or ()] for n in names_in(constraint)}
        broken = _broken(constraint, slots, assignment, tasks_of, tags)
        faults += [f"constraint {position} ({constraint.type}): {fault}" for fault in broken]
    return faults


def _broken(
    constraint: Constraint,
    slots: Mapping[str, list[Slot]],
    assignment: Mapping[str, Slot],
    tasks_of: Mapping[str, int],
    tags: Mapping[str, Collection[str]],
) -> Iterator[str]:
    match constraint:
        case Resource(operator=name):
            yield from _broken_resource(constraint, {slot.node for slot in slots[name]}, tags)
        case Together(where=where, operators=names):
            places = {_place(slot, where) for name in names for slot in slots[name]}
            if len(places) > 1:
                yield f"{', '.join(names)} must share one {where} but use {len(places)}"
        case Apart(where=where, operators=names):
            for a, b in itertools.combinations(names, 2):
                if shared := {_place(slot, where) for slot in slots[a]} & {_place(slot, where) for slot in slots[b]}:
                    yield f"{a!r} and {b!r} share {where} {_show(min(shared))}"
        case Dedicated(where=where, operator=name):
            own = set(tasks_named(name, tasks_of) or ())
            mine = {_place(assignment[task], where) for task in own}
            for task, slot in assignment.items():
                if task not in own and _place(slot, where) in mine:
                    yield f"{task!r} shares {where} {_show(_place(slot, where))} with {name!r}"
        case Pin(operator=name, node=node, worker=worker):
            for slot in sorted(set(slots[name]) - {Slot(node, worker)}):
                yield f"{name!r} runs in worker {_show(slot)} and not in worker {_show((node, worker))}"
        case Replicas(groups=groups, isomorphic=isomorphic):
            yield from _broken_replicas(groups, isomorphic, assignment, tasks_of)
        case Jobs(groups=groups):
            yield from _shared_workers(groups, slots)


def _broken_resource(constraint: Resource, used: Collection[str], tags: Mapping[str, Collection[str]]) -> Iterator[str]:
    for node in sorted(used):
        if constraint.nodes and node not in constraint.nodes:
            yield f"{constraint.operator!r} runs on {node!r}, which is not among {', '.join(constraint.nodes)}"
        elif not has_tags(constraint, node, tags):
            yield f"{constraint.operator!r} runs on {node!r}, which lacks one of the tags {', '.join(constraint.tags)}"


def _place(slot: Slot, where: str) -> tuple[str, int]:
    return (slot.node, slot.worker if where == "worker" else -1)


def _show(place: tuple[str, int]) -> str:
    return repr(place[0]) if place[1] < 0 else f"{place[1]} of {place[0]!r}"


def _shared_workers(groups: tuple[tuple[str, ...], ...], slots: Mapping[str, list[Slot]]) -> Iterator[str]:
    used = [{slot for name in group for slot in slots[name]} for group in groups]
    for a, b in itertools.combinations(range(len(groups)), 2):
        if shared := used[a] & used[b]:
            yield f"jobs {a} and {b} share worker {_show(_place(min(shared), 'worker'))}"


def _broken_replicas(
    groups: tuple[tuple[str, ...], ...], isomorphic: bool, assignment: Mapping[str, Slot], tasks_of: Mapping[str, int]
) -> Iterator[str]:
    members = [[task for name in group for task in tasks_named(name, tasks_of) or ()] for group in groups]
    group_of = {task: g for g, tasks in enumerate(members) for task in tasks}
    nodes = [{assignment[task].node for task in tasks} for tasks in members]
    for a, b in itertools.combinations(range(len(groups)), 2):
        if shared := nodes[a] & nodes[b]:
            yield f"groups {a} and {b} share node {min(shared)!r}"
    held: dict[Slot, set[int | None]] = defaultdict(set)
    for task, slot in assignment.items():
        held[slot].add(group_of.get(task))
    for slot, kinds in held.items():
        if len(kinds) > 1:
            yield f"worker {slot.worker} of {slot.node!r} mixes a group with tasks outside it"
    if isomorphic:
        shapes = {_shape([assignment[task] for task in tasks]) for tasks in members}
        if len(shapes) > 1:
            yield "the groups are isomorphic but are cut into workers differently"


def _shape(slots: list[Slot]) -> tuple[int, ...]:
    """The partition of positions into workers, with workers numbered by first appearance."""
    numbers: dict[Slot, int] = {}
    return tuple(numbers.setdefault(slot, len(numbers)) for slot in slots)
