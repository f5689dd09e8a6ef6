"""A second certificate of plans, from the files' own words with plain loops.

`penstock.model.check` is the first. This one shares no code with it or with any optimiser but the names of tasks, so
that a mistake in the model cannot hide in both. `cheapest` is the oracle for small problems: it tries every assignment.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from penstock.model.cluster import Cluster, Node
from penstock.model.plan import Plan
from penstock.model.task_id import TaskId
from penstock.model.topology import OperatorGraph

SLACK = 1e-6
BYTES_PER_MBIT = 125_000

Rates = Mapping[tuple[str, str], float]


def task_rates(graph: OperatorGraph) -> dict[tuple[str, str], float]:
    """The rate between every pair of tasks that a stream joins."""
    size = {operator.name: operator.tasks for operator in graph.operators}
    between: dict[tuple[str, str], float] = defaultdict(float)
    for stream in graph.streams:
        for i, j in itertools.product(range(size[stream.source]), range(size[stream.target])):
            if stream.grouping == "forward" and i != j:  # from each task to its like alone
                continue
            rate = stream.rate[i][j] if isinstance(stream.rate, tuple) else stream.rate
            between[TaskId.of(stream.source, i), TaskId.of(stream.target, j)] += rate
    return dict(between)


def certificate_faults(graph: OperatorGraph, cluster: Cluster, plan: Plan) -> list[str]:
    """What is wrong with a plan: every task placed once, every limit kept, every figure true."""
    load: dict[str, float] = {TaskId.of(o.name, i): value for o in graph.operators for i, value in enumerate(o.loads())}
    memory: dict[str, float] = {
        TaskId.of(o.name, i): value for o in graph.operators for i, value in enumerate(o.memories_mb())
    }
    if sorted(plan.assignment) != sorted(load):
        return [f"the plan places {sorted(plan.assignment)} but the tasks are {sorted(load)}"]
    nodes = {node.name: node for node in cluster.nodes}
    lost = [
        f"{task} is on worker {slot.worker} of {slot.node}"
        for task, slot in plan.assignment.items()
        if slot.node not in nodes or not 0 <= slot.worker < (nodes[slot.node].slots or len(load))
    ]
    if lost:
        return lost
    rates = task_rates(graph)
    shortages = (fault for node in cluster.nodes for fault in _node_faults(node, plan, load, memory, rates))
    return [*shortages, *_figure_faults(plan, rates)]


def _node_faults(
    node: Node, plan: Plan, load: Mapping[str, float], memory: Mapping[str, float], rates: Rates
) -> Iterator[str]:
    here = {task for task, slot in plan.assignment.items() if slot.node == node.name}
    if sum(load[task] for task in here) > node.capacity + SLACK:
        yield f"{node.name} carries more load than its {node.capacity:g}"
    if node.worker_capacity is not None:
        beside: dict[int, list[float]] = defaultdict(list)
        for task in here:
            beside[plan.assignment[task].worker].append(load[task])
        for worker, loads in beside.items():
            if len(loads) > 1 and sum(loads) > node.worker_capacity + SLACK:
                yield f"worker {worker} of {node.name} carries more load than its {node.worker_capacity:g}"
    if node.memory_mb is not None and sum(memory[task] for task in here) > node.memory_mb + SLACK:
        yield f"{node.name} holds more than its {node.memory_mb:g} MB"
    if node.bandwidth_mbps is not None:
        limit = node.bandwidth_mbps * BYTES_PER_MBIT + SLACK
        crossing = {ends: rate for ends, rate in rates.items() if (ends[0] in here) != (ends[1] in here)}
        if sum(rate for (source, _), rate in crossing.items() if source in here) > limit:
            yield f"{node.name} sends more than its {node.bandwidth_mbps:g} Mbit/s"
        if sum(rate for (_, target), rate in crossing.items() if target in here) > limit:
            yield f"{node.name} receives more than its {node.bandwidth_mbps:g} Mbit/s"


def _figure_faults(plan: Plan, rates: Rates) -> Iterator[str]:
    at = plan.assignment
    cost = sum(rate for (a, b), rate in rates.items() if at[a].node != at[b].node)
    if not same(plan.cost, cost):
        yield f"the plan says that it costs {plan.cost:g} between nodes; it costs {cost:g}"
    beside = {ends for ends in rates if at[ends[0]].node == at[ends[1]].node}
    inside = sum(rates[a, b] for a, b in beside if at[a].worker != at[b].worker)
    if not same(plan.inter_worker_cost, inside):
        yield f"the plan says that it costs {plan.inter_worker_cost:g} between workers; it costs {inside:g}"
    if not 0 <= plan.lower_bound <= plan.cost + SLACK:
        yield f"the plan's lower bound {plan.lower_bound:g} is above its cost {plan.cost:g}"
    if plan.proved_optimal and not same(plan.lower_bound, plan.cost):
        yield f"the plan says it is optimal but its bound is {plan.lower_bound:g} and its cost {plan.cost:g}"


def same(one: float, other: float) -> bool:
    """Whether two figures agree, but for rounding."""
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=SLACK)


def cheapest(graph: OperatorGraph, cluster: Cluster) -> float | None:
    """The least cost of all assignments to nodes that keep every limit, or None when there is none: by trying all."""
    loads = [(o.name, i, value) for o in graph.operators for i, value in enumerate(o.loads())]
    memories = [value for o in graph.operators for value in o.memories_mb()]
    number: dict[str, int] = {TaskId.of(name, i): k for k, (name, i, _) in enumerate(loads)}
    edges = [(number[a], number[b], rate) for (a, b), rate in task_rates(graph).items()]
    best: float | None = None
    for nodes in itertools.product(range(len(cluster.nodes)), repeat=len(loads)):
        if not _fits(cluster, nodes, [load for _, _, load in loads], memories, edges):
            continue
        cost = math.fsum(rate for a, b, rate in edges if nodes[a] != nodes[b])
        best = cost if best is None else min(best, cost)
    return best


def _fits(
    cluster: Cluster,
    nodes: Sequence[int],
    loads: Sequence[float],
    memories: Sequence[float],
    edges: Sequence[tuple[int, int, float]],
) -> bool:
    for k, node in enumerate(cluster.nodes):
        here = [t for t, at in enumerate(nodes) if at == k]
        if math.fsum(loads[t] for t in here) > node.capacity * (1 + 1e-9):
            return False
        if node.slots is not None and node.worker_capacity is not None:
            limit = node.worker_capacity * (1 + 1e-9)
            if not _packs(sorted((loads[t] for t in here), reverse=True), [[] for _ in range(node.slots)], limit):
                return False
        if node.memory_mb is not None and math.fsum(memories[t] for t in here) > node.memory_mb * (1 + 1e-9):
            return False
        if node.bandwidth_mbps is not None:
            limit = node.bandwidth_mbps * BYTES_PER_MBIT * (1 + 1e-9) + 1e-9
            if math.fsum(rate for a, b, rate in edges if nodes[a] == k != nodes[b]) > limit:
                return False
            if math.fsum(rate for a, b, rate in edges if nodes[b] == k != nodes[a]) > limit:
                return False
    return True


def _packs(loads: Sequence[float], workers: list[list[float]], limit: float) -> bool:
    """Whether the loads can be shared out so that no worker has two or more beyond the limit: by trying all ways."""
    if not loads:
        return True
    tried: set[tuple[float, ...]] = set()
    for worker in workers:
        if tuple(worker) in tried or (worker and math.fsum(worker) + loads[0] > limit):
            continue
        tried.add(tuple(worker))
        worker.append(loads[0])
        packs = _packs(loads[1:], workers, limit)
        worker.pop()
        if packs:
            return True
    return False
