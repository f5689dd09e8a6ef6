"""check_plan: the certificate. It believes nothing that a scheduler says and recomputes everything from the inputs.

Every task is placed once, on a node that exists, in a worker that the node has a slot for; no node carries more load
or memory, sends or receives more than it can; every constraint holds; and every figure that the plan states is true.
It shares no code with `optimise`, so that a mistake there cannot hide here.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np

from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, Cluster
from penstock.model.constraints import Apart, Constraint, Dedicated, Replicas, Resource, Together, names_in, tasks_named
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import OperatorGraph

TOLERANCE = 1e-9  # relative: sums of floats taken in another order differ by this much and no more
COST_TOLERANCE = 1e-6


def check_plan(graph: OperatorGraph, cluster: Cluster, plan: Plan, profile: Profile | None = None) -> list[str]:
    """Every way in which the plan is wrong, one sentence each; empty when it holds."""
    tasks = TaskGraph.expand(graph, profile)
    faults = _assignment_faults(tasks, cluster, plan)
    if faults:  # the rest would only repeat these
        return faults
    faults += resource_faults(tasks, cluster, plan)
    faults += constraint_violations(graph, plan.assignment)
    faults += _figure_faults(tasks, cluster, plan)
    return faults


def _exceeds(amount: float, limit: float) -> bool:
    return amount > limit * (1 + TOLERANCE)


def _assignment_faults(tasks: TaskGraph, cluster: Cluster, plan: Plan) -> list[str]:
    wanted, given = set(tasks.ids), set(plan.assignment)
    faults = [f"task {task!r} is not placed" for task in tasks.ids if task not in given]
    faults += [f"task {task!r} is placed but the topology has no such task" for task in sorted(given - wanted)]
    slots = {node.name: node.workers_max for node in cluster.nodes}
    for task, (node, worker) in plan.assignment.items():
        if node not in slots:
            faults.append(f"task {task!r} is on node {node!r}, which the cluster lacks")
        elif not 0 <= worker < slots[node]:
            faults.append(f"task {task!r} is in worker {worker} of node {node!r}, which has {slots[node]} slots")
    return faults


def resource_faults(tasks: TaskGraph, cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Every node of which a complete assignment asks more CPU, memory or bandwidth than it has."""
    load: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, list[float]] = defaultdict(list)
    for i, task in enumerate(tasks.ids):
        load[plan.assignment[task].node].append(float(tasks.load[i]))
        memory[plan.assignment[task].node].append(float(tasks.memory_mb[i]))
    number = {node.name: k for k, node in enumerate(cluster.nodes)}
    place = np.array([number[plan.assignment[task].node] for task in tasks.ids], dtype=np.int64)
    crossing = place[tasks.source] != place[tasks.target]
    sent = np.bincount(place[tasks.source[crossing]], tasks.rate[crossing], minlength=len(number))
    received = np.bincount(place[tasks.target[crossing]], tasks.rate[crossing], minlength=len(number))
    for k, node in enumerate(cluster.nodes):
        if _exceeds(carried := math.fsum(load[node.name]), node.capacity):
            yield f"node {node.name!r} carries load {carried:g} but its capacity is {node.capacity:g}"
        if node.memory_mb is not None and _exceeds(held := math.fsum(memory[node.name]), node.memory_mb):
            yield f"node {node.name!r} holds {held:g} MB but its memory is {node.memory_mb:g} MB"
        if node.bandwidth_mbps is not None:
            limit = node.bandwidth_mbps * BYTES_PER_SECOND_PER_MBPS
            for verb, amount in (("sends", sent[k]), ("receives", received[k])):
                if _exceeds(float(amount), limit):
                    yield f"node {node.name!r} {verb} {amount:g} B/s but its bandwidth is {limit:g} B/s"


def _figure_faults(tasks: TaskGraph, cluster: Cluster, plan: Plan) -> Iterator[str]:
    where = [plan.assignment[task] for task in tasks.ids]
    between_nodes: list[float] = []
    between_workers: list[float] = []
    for a, b, rate in zip(tasks.source.tolist(), tasks.target.tolist(), tasks.rate.tolist(), strict=True):
        if where[a].node != where[b].node:
            between_nodes.append(rate)
        elif where[a].worker != where[b].worker:
            between_workers.append(rate)
    load: dict[str, float] = defaultdict(float)
    for i, slot in enumerate(where):
        load[slot.node] += tasks.load[i]
    figures = {
        "cost": (plan.cost, math.fsum(between_nodes)),
        "inter_worker_cost": (plan.inter_worker_cost, math.fsum(between_workers)),
        "nodes_used": (plan.nodes_used, len({slot.node for slot in where})),
        "max_utilisation": (plan.max_utilisation, max(load[node.name] / node.capacity for node in cluster.nodes)),
    }
    for name, (stated, true) in figures.items():
        if not abs(stated - true) <= COST_TOLERANCE * max(1.0, abs(true)):  # worded so that nan fails
            yield f"the plan states {name} {stated:g} but it is {true:g}"
    if not plan.lower_bound <= plan.cost + COST_TOLERANCE * max(1.0, plan.cost):
        yield f"the plan's lower bound {plan.lower_bound:g} is above its cost {plan.cost:g}"
    if plan.proved_optimal and plan.gap > COST_TOLERANCE:
        yield f"the plan says it is proved optimal but cost {plan.cost:g} is above its lower bound {plan.lower_bound:g}"


def constraint_violations(graph: OperatorGraph, assignment: Mapping[str, Slot]) -> list[str]:
    """Every constraint that a complete assignment breaks, one sentence each."""
    tasks_of = {operator.name: operator.tasks for operator in graph.operators}
    faults: list[str] = []
    for position, constraint in enumerate(graph.constraints):
        slots = {n: [assignment[task] for task in tasks_named(n, tasks_of) or ()] for n in names_in(constraint)}
        broken = _broken(constraint, slots, assignment, tasks_of)
        faults += [f"constraint {position} ({constraint.type}): {fault}" for fault in broken]
    return faults


def _broken(
    constraint: Constraint, slots: Mapping[str, list[Slot]], assignment: Mapping[str, Slot], tasks_of: Mapping[str, int]
) -> Iterator[str]:
    match constraint:
        case Resource(operator=name, nodes=nodes):
            for stray in sorted({slot.node for slot in slots[name]} - set(nodes)):
                yield f"{name!r} runs on {stray!r}, which is not among {', '.join(nodes)}"
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
        case Replicas(groups=groups, isomorphic=isomorphic):
            yield from _broken_replicas(groups, isomorphic, assignment, tasks_of)


def _place(slot: Slot, where: str) -> tuple[str, int]:
    return (slot.node, slot.worker if where == "worker" else -1)


def _show(place: tuple[str, int]) -> str:
    return repr(place[0]) if place[1] < 0 else f"{place[1]} of {place[0]!r}"


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
