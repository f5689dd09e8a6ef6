"""Random heterogeneous placement problems: unequal loads and rates on clusters of several node types.

A layered graph: operators of 1 to 8 tasks in about sqrt(operators) layers, each with 1 to 3 streams to operators of the
next layer or the one after. Loads and rates are lognormal; a stream joins all pairs of its tasks, as a shuffle does,
each pair with a rate of its own. Three to five node types in random numbers offer 1.2 to 1.6 times the load, and a mean
node holds 5 to 40 tasks. Arrays are made directly, because objects for 100,000 tasks take longer than placing them.
`VERSION` changes with every change of what a seed means: stored references hold for one version.
"""

from __future__ import annotations

import numpy as np

from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, Longs, TaskGraph
from penstock.optimise.contract import Problem

VERSION = 1
TASKS_PER_OPERATOR_MAX = 8
STREAM_ODDS = (0.55, 0.3, 0.15)  # of 1, 2 and 3 outgoing streams
LOAD_SIGMA = 0.6
RATE_SIGMA = 1.0


def random_problem(tasks: int, seed: int) -> Problem:
    """The instance of that size and seed."""
    random = np.random.default_rng([VERSION, tasks, seed])
    graph = random_graph(tasks, random)
    return Problem(graph, random_cluster(graph, random))


def random_graph(tasks: int, random: np.random.Generator) -> TaskGraph:
    """Layered operators with lognormal loads and rates."""
    counts = _operator_sizes(tasks, random)
    first = np.concatenate([[0], np.cumsum(counts)])
    source, target = _streams(len(counts), random)
    from_task, to_task = _pairs(first, counts, source, target)
    scale = np.repeat(random.lognormal(0.0, RATE_SIGMA, len(source)), counts[source] * counts[target])
    rate = scale * random.lognormal(0.0, RATE_SIGMA / 2, len(from_task))
    order = np.argsort(from_task * tasks + to_task, kind="stable")
    base = np.repeat(random.lognormal(0.0, LOAD_SIGMA, len(counts)), counts)
    return TaskGraph(
        operators=tuple(f"o{k}" for k in range(len(counts))),
        first_task=first,
        operator_of=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        load=base * random.lognormal(0.0, LOAD_SIGMA / 2, tasks),
        memory_mb=np.zeros(tasks),
        source=from_task[order].astype(np.int32),
        target=to_task[order].astype(np.int32),
        rate=rate[order],
        tuples=rate[order],  # synthetic: a unit of rate is a row, and each is a batch
        batches=rate[order],
    )


def random_cluster(graph: TaskGraph, random: np.random.Generator) -> Cluster:
    """Three to five node types whose capacities add up to 1.2 to 1.6 times the load."""
    total, largest = float(graph.load.sum()), float(graph.load.max())
    per_node = random.uniform(5.0, 40.0)  # tasks on a mean node
    types = int(random.integers(3, 6))
    wanted = random.uniform(1.2, 1.6) * total
    mean_capacity = wanted * per_node / graph.task_count
    weights = random.uniform(0.5, 2.0, types)
    relative = random.uniform(0.4, 1.8, types)
    capacities = np.maximum(mean_capacity * relative * weights.sum() / float(weights @ relative), 1.05 * largest)
    counts = np.maximum(1, np.rint(wanted * weights / (weights @ capacities))).astype(int)
    capacities *= wanted / float(counts @ capacities)  # rounding of the counts changed the sum
    capacities = np.maximum(capacities, 1.05 * largest)
    each = np.repeat(capacities, counts).tolist()
    return Cluster(tuple(Node(f"n{i}", capacity) for i, capacity in enumerate(each, start=1)))


def _operator_sizes(tasks: int, random: np.random.Generator) -> Longs:
    sizes = random.integers(1, TASKS_PER_OPERATOR_MAX + 1, tasks)
    ends = np.cumsum(sizes)
    used = int(np.searchsorted(ends, tasks))
    sizes = sizes[: used + 1]
    sizes[-1] -= int(ends[used]) - tasks
    return sizes.astype(np.int64)


def _streams(operators: int, random: np.random.Generator) -> tuple[Longs, Longs]:
    """(source, target) operators; layers hold consecutive operators, so every stream goes to a higher number."""
    width = max(2, round(operators**0.5))
    layer = np.arange(operators) // width
    streams = 1 + random.choice(len(STREAM_ODDS), operators, p=STREAM_ODDS)
    source = np.repeat(np.arange(operators), streams)
    # Most streams go to the next layer, some skip one.
    to_layer = layer[source] + 1 + (random.random(len(source)) < 0.2)
    low = to_layer * width
    inside = low < operators
    source, low = source[inside], low[inside]
    target = low + (random.random(len(source)) * (np.minimum(low + width, operators) - low)).astype(np.int64)
    key = np.unique(source * operators + target)
    return key // operators, key % operators


def _pairs(first: Longs, counts: Longs, source: Longs, target: Longs) -> tuple[Longs, Longs]:
    """All pairs of tasks of each stream's two operators."""
    sizes = counts[source] * counts[target]
    stream = np.repeat(np.arange(len(source)), sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    width = counts[target][stream]
    return first[source][stream] + within // width, first[target][stream] + within % width


def capacities(problem: Problem) -> Floats:
    """Node capacities without slack."""
    return np.array([node.capacity for node in problem.cluster.nodes])
