"""check_plan: the certificate. It believes nothing that a scheduler says and recomputes everything from the inputs.

Every task is placed once, on a node that exists, in a worker that the node has a slot for; no node carries more load
or memory, sends or receives more than it can; no worker's tasks load it beyond its one thread, but for a task that is
alone; every constraint holds; and every figure that the plan states is true.
It reads topology and profile for itself (`_read`) and shares no code with `optimise` or with the task graph that the
optimisers work on, so that a mistake there cannot hide here. What it cannot check is that a lower bound is true: that
is the scheduler's claim, of which its consistency with the cost is checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, SLOTS_MAX, Cluster
from penstock.model.constraint_check import constraint_violations
from penstock.model.kinds import require_cluster, require_kind, require_profile
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.task_id import TaskId, tasks_of_operator
from penstock.model.topology import OperatorGraph, Placeable, graph_of

TOLERANCE = 1e-9  # relative: sums of floats taken in another order differ by this much and no more
BOUND_TOLERANCE = 1e-6  # relative: how near a bound must come to a cost to prove it


@dataclass(frozen=True)
class _Needs:
    """What the tasks need and send, straight from the files."""

    load: dict[str, float]
    memory_mb: dict[str, float]
    traffic: list[tuple[list[str], list[str], NDArray[np.float64]]]  # senders, receivers, rate of each pair


def check_plan(
    graph: OperatorGraph | Placeable, cluster: Cluster, plan: Plan, profile: Profile | None = None
) -> list[str]:
    """Every way in which the plan is wrong, one sentence each; empty when it holds."""
    require_cluster(cluster)
    require_kind(plan, Plan, "plan", "a penstock.Plan, such as penstock.read_plan('plan.json') returns")
    require_profile(profile)
    graph = graph_of(graph, plan.assignment)
    faults = graph.faults() + cluster.faults()
    if not faults and profile is not None:
        faults += profile.faults(graph)
    if faults:
        return faults
    needs = _read(graph, profile)
    faults = _assignment_faults(needs, cluster, plan)
    if faults:  # the rest would repeat these
        return faults
    faults += resource_faults(graph, cluster, plan, profile)
    faults += constraint_violations(graph, plan.assignment, cluster.tags)
    faults += _figure_faults(needs, cluster, plan)
    return faults


def _read(graph: OperatorGraph, profile: Profile | None) -> _Needs:
    load: dict[str, float] = {}
    memory: dict[str, float] = {}
    for operator in graph.operators:
        for i, (cpu, size) in enumerate(zip(operator.loads(), operator.memories_mb(), strict=True)):
            task = TaskId.of(operator.name, i)
            load[task], memory[task] = cpu, size
    tasks_of = {operator.name: tasks_of_operator(operator.name, operator.tasks) for operator in graph.operators}
    traffic = []
    for stream in graph.streams:
        pairs = (len(tasks_of[stream.source]), len(tasks_of[stream.target]))
        rate = np.broadcast_to(np.asarray(stream.rate, dtype=np.float64), pairs)
        if stream.grouping == "forward" and not isinstance(stream.rate, tuple):  # from each task to its like alone
            rate = np.where(np.eye(*pairs, dtype=bool), rate, 0.0)
        traffic.append((tasks_of[stream.source], tasks_of[stream.target], rate))
    if profile is not None:
        load.update({task: measured.load for task, measured in profile.tasks.items()})
        memory.update({t: m.memory_mb for t, m in profile.tasks.items() if m.memory_mb is not None})
        if profile.edges:
            traffic = [([e.source], [e.target], np.array([[e.rate]])) for e in profile.edges]
    return _Needs(load, memory, traffic)


def _exceeds(amount: float, limit: float) -> bool:
    return amount > limit * (1 + TOLERANCE)


def _assignment_faults(needs: _Needs, cluster: Cluster, plan: Plan) -> list[str]:
    if plan.assignment and not any(task in plan.assignment for task in needs.load):
        ours, theirs = next(iter(needs.load)), next(iter(plan.assignment))
        return [f"the plan is one of another topology: it places {theirs!r} and others, but not {ours!r} nor any other"]
    faults = [f"task {task!r} is not placed" for task in needs.load if task not in plan.assignment]
    strays = sorted(task for task in plan.assignment if task not in needs.load)
    faults += [f"task {task!r} is placed but the topology has no such task" for task in strays]
    # Slots that the cluster does not state are a default for schedulers that fill slots, not a limit of the node.
    slots = {node.name: SLOTS_MAX if node.slots is None else node.slots for node in cluster.nodes}
    for task, (node, worker) in plan.assignment.items():
        if node not in slots:
            faults.append(f"task {task!r} is on node {node!r}, which the cluster lacks")
        elif not isinstance(worker, int) or not 0 <= worker < slots[node]:
            faults.append(f"task {task!r} is in worker {worker} of node {node!r}, which has {slots[node]} slots")
    return faults


def resource_faults(
    graph: OperatorGraph, cluster: Cluster, plan: Plan, profile: Profile | None = None
) -> Iterator[str]:
    """Every node of which a complete assignment asks more CPU, memory or bandwidth than it has."""
    needs = _read(graph, profile)
    number = {node.name: k for k, node in enumerate(cluster.nodes)}
    sent, received = np.zeros(len(number)), np.zeros(len(number))
    for senders, receivers, rate in needs.traffic:
        out = np.array([number[plan.assignment[task].node] for task in senders])
        into = np.array([number[plan.assignment[task].node] for task in receivers])
        crossing = np.where(out[:, None] != into[None, :], rate, 0.0)
        np.add.at(sent, out, crossing.sum(axis=1))
        np.add.at(received, into, crossing.sum(axis=0))
    load, memory = _per_node(needs.load, plan), _per_node(needs.memory_mb, plan)
    for k, node in enumerate(cluster.nodes):
        if _exceeds(carried := load.get(node.name, 0.0), node.capacity):
            yield f"node {node.name!r} carries load {carried:g} but its capacity is {node.capacity:g}"
        if node.memory_mb is not None and _exceeds(held := memory.get(node.name, 0.0), node.memory_mb):
            yield f"node {node.name!r} holds {held:g} MB but its memory is {node.memory_mb:g} MB"
        if node.bandwidth_mbps is not None:
            limit = node.bandwidth_mbps * BYTES_PER_SECOND_PER_MBPS
            for verb, amount in (("sends", sent[k]), ("receives", received[k])):
                if _exceeds(float(amount), limit):
                    yield f"node {node.name!r} {verb} {amount:g} B/s but its bandwidth is {limit:g} B/s"
    yield from _worker_faults(needs, cluster, plan)


def _worker_faults(needs: _Needs, cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Every worker whose tasks together need more than one thread can do; one task alone cannot be shared out."""
    limits = {node.name: node.worker_capacity for node in cluster.nodes}
    for slot, loads in sorted(_by_slot(needs, plan).items()):
        limit, carried = limits[slot.node], math.fsum(loads)
        if limit is not None and len(loads) > 1 and _exceeds(carried, limit):
            yield (
                f"worker {slot.worker} of node {slot.node!r} carries load {carried:g} in {len(loads)} tasks but one "
                f"worker carries at most {limit:g}; give these tasks more workers"
            )


def _by_slot(needs: _Needs, plan: Plan) -> dict[Slot, list[float]]:
    found: dict[Slot, list[float]] = {}
    for task, load in needs.load.items():
        found.setdefault(plan.assignment[task], []).append(load)
    return found


def _per_node(needs: dict[str, float], plan: Plan) -> dict[str, float]:
    by_node: dict[str, list[float]] = {}
    for task, amount in needs.items():
        by_node.setdefault(plan.assignment[task].node, []).append(amount)
    return {node: math.fsum(amounts) for node, amounts in by_node.items()}


def _figure_faults(needs: _Needs, cluster: Cluster, plan: Plan) -> Iterator[str]:
    between_nodes, between_workers, total = _costs(needs, plan)
    load = _per_node(needs.load, plan)
    fullest = max(load.get(node.name, 0.0) / node.capacity for node in cluster.nodes)
    figures = {
        "cost": (plan.cost, between_nodes, total),
        "inter_worker_cost": (plan.inter_worker_cost, between_workers, total),
        "nodes_used": (plan.nodes_used, len(load), 1.0),
        "max_utilisation": (plan.max_utilisation, fullest, fullest),
    }
    for name, (stated, true, scale) in figures.items():
        if not abs(stated - true) <= TOLERANCE * scale:  # worded so that nan fails
            yield f"the plan states {name} {stated:g} but it is {true:g}"
    if not 0 <= plan.lower_bound <= plan.cost + TOLERANCE * total:
        yield f"the plan's lower bound {plan.lower_bound:g} is not between 0 and its cost {plan.cost:g}"
    elif plan.proved_optimal and plan.cost - plan.lower_bound > BOUND_TOLERANCE * plan.cost:
        yield f"the plan says it is proved optimal but cost {plan.cost:g} is above its lower bound {plan.lower_bound:g}"


def _costs(needs: _Needs, plan: Plan) -> tuple[float, float, float]:
    """Traffic between nodes, between workers of the same node, and of the whole topology."""
    nodes: dict[str, int] = {}
    slots: dict[tuple[str, int], int] = {}
    node_of = {task: nodes.setdefault(slot.node, len(nodes)) for task, slot in plan.assignment.items()}
    slot_of = {task: slots.setdefault(slot, len(slots)) for task, slot in plan.assignment.items()}
    between_nodes, between_slots, total = [0.0], [0.0], [0.0]
    for senders, receivers, rate in needs.traffic:
        for place, found in ((node_of, between_nodes), (slot_of, between_slots)):
            out, into = (np.array([place[task] for task in side]) for side in (senders, receivers))
            found.append(float(np.where(out[:, None] != into[None, :], rate, 0.0).sum()))
        total.append(float(rate.sum()))
    across = math.fsum(between_nodes)
    return across, math.fsum(between_slots) - across, math.fsum(total)
