"""Random topologies, clusters and profiles, as Hypothesis strategies and as seeded functions.

    >>> from hypothesis import given
    >>> from penstock.optimise.door import place
    >>> @given(instances())
    ... def test_my_scheduler(instance):
    ...     graph, cluster = instance
    ...     place(graph, cluster, "mine")

What is drawn is sound (`faults()` is empty) and without constraints, and is meant to be awkward: operators in no
particular order of the file, several components, more than one stream between a pair, tasks of no load, streams of no
rate, streams from each task to its like, loads per task, rates per pair, nodes that just suffice.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from penstock.model.cluster import BYTES_PER_SECOND_PER_MBPS, Cluster, Node
from penstock.model.costs import DISTANCES
from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.task_id import TaskId
from penstock.model.taskgraph import TaskGraph
from penstock.model.topology import Load, Operator, OperatorGraph, Rate, Stream

# Quarters add up exactly, which finds ties and exact fits; other floats find rounding.
AMOUNTS = st.one_of(st.just(0.0), st.just(1.0), st.integers(1, 12).map(lambda n: n / 4), st.floats(0.01, 3.0))
WORKER_CAPACITIES = st.sampled_from((1.0, None, 1.5, 0.5))
TIGHTNESS = st.sampled_from((1.0, 1.05, 1.2, 1.5, 2.0, 4.0))


@st.composite
def topologies(draw: st.DrawFn, max_operators: int = 5, max_tasks: int = 12) -> OperatorGraph:
    """A random directed acyclic operator graph with limits on its operators and on its tasks in all."""
    count = draw(st.integers(1, min(max_operators, max_tasks)))
    sizes: list[int] = []
    for k in range(count):
        left = max_tasks - sum(sizes) - (count - k - 1)  # each later operator needs one
        sizes.append(draw(st.integers(1, min(left, 4))))
    operators = [
        Operator(f"o{k}", size, load=draw(_per_task(size)), memory_mb=draw(_memory(size)))
        for k, size in enumerate(sizes)
    ]
    pairs = list(itertools.combinations(range(count), 2))
    joined = draw(st.lists(st.sampled_from(pairs), max_size=2 * count)) if pairs else []
    streams = [draw(_streams(f"o{a}", f"o{b}", sizes[a], sizes[b])) for a, b in joined]
    return OperatorGraph("random", tuple(draw(st.permutations(operators))), tuple(streams))


def _per_task(size: int) -> st.SearchStrategy[Load]:
    return st.one_of(AMOUNTS, st.lists(AMOUNTS, min_size=size, max_size=size).map(tuple))


def _memory(size: int) -> st.SearchStrategy[Load]:
    some = st.integers(1, 16).map(lambda n: 64.0 * n)
    return st.one_of(st.just(0.0), some, st.lists(some, min_size=size, max_size=size).map(tuple))


@st.composite
def _streams(draw: st.DrawFn, source: str, target: str, rows: int, columns: int) -> Stream:
    """A stream between all pairs of tasks or, where the operators are alike, perhaps from each task to its like."""
    if rows == columns and draw(st.booleans()):
        along = draw(st.lists(AMOUNTS, min_size=rows, max_size=rows))
        matrix = tuple(tuple(rate if i == j else 0.0 for j in range(rows)) for i, rate in enumerate(along))
        return Stream(source, target, "forward", draw(AMOUNTS | st.just(matrix)))
    return Stream(source, target, rate=draw(_rates(rows, columns)))


def _rates(rows: int, columns: int) -> st.SearchStrategy[Rate]:
    row = st.lists(AMOUNTS, min_size=columns, max_size=columns).map(tuple)
    return st.one_of(AMOUNTS, st.lists(row, min_size=rows, max_size=rows).map(tuple))


@st.composite
def clusters(
    draw: st.DrawFn, for_load: OperatorGraph | float, max_nodes: int = 5, *, cpu_only: bool = False
) -> Cluster:
    """Heterogeneous nodes whose capacity in all suffices for a graph, or for an amount of load; sometimes by a hair.

    The largest task of a graph fits some node. Slots, workers, racks, memory and bandwidth are limited now and then,
    all but racks possibly too tightly for any plan; `cpu_only` leaves memory and bandwidth out.
    """
    tasks = TaskGraph.expand(for_load) if isinstance(for_load, OperatorGraph) else None
    load = float(tasks.load.sum()) if tasks is not None else float(for_load)  # type: ignore[arg-type]
    largest = float(tasks.load.max()) if tasks is not None else 0.0
    shares = draw(st.lists(st.integers(1, 6), min_size=1, max_size=max_nodes))
    offered = max(load, 0.5) * draw(TIGHTNESS)
    capacities = [offered * share / sum(shares) for share in shares]
    roomiest = capacities.index(max(capacities))
    capacities[roomiest] = max(capacities[roomiest], largest)
    memory = bandwidth = None
    if tasks is not None and not cpu_only:
        held, sent = float(tasks.memory_mb.sum()), tasks.total_rate
        memory = draw(st.none() | TIGHTNESS.map(lambda tight: max(64.0, held * tight)))
        bandwidth = draw(st.none() | st.sampled_from((0.3, 0.6, 1.0)).map(lambda part: max(1e-3, sent * part)))
    few_slots = st.none() | st.integers(1, 4)
    nodes = [
        Node(
            f"n{k}",
            capacity,
            memory_mb=None if memory is None else memory * share / sum(shares),
            bandwidth_mbps=None if bandwidth is None else bandwidth / BYTES_PER_SECOND_PER_MBPS,
            slots=draw(few_slots),
            rack=draw(st.sampled_from(("r1", "r2"))),
            worker_capacity=draw(WORKER_CAPACITIES),
        )
        for k, (capacity, share) in enumerate(zip(capacities, shares, strict=True))
    ]
    return Cluster(tuple(draw(st.permutations(nodes))))


@st.composite
def profiles(draw: st.DrawFn, graph: OperatorGraph) -> Profile:
    """Measurements of some tasks and, perhaps, of some pairs of tasks that a stream joins."""
    ids = TaskGraph.expand(graph).ids
    loads = st.builds(TaskProfile, load=AMOUNTS, memory_mb=st.none() | st.just(64.0))
    tasks = draw(st.dictionaries(st.sampled_from(ids), loads, max_size=len(ids)))
    size = {operator.name: operator.tasks for operator in graph.operators}
    pairs = [
        (TaskId.of(stream.source, i), TaskId.of(stream.target, j))
        for stream in graph.streams
        for i in range(size[stream.source])
        for j in range(size[stream.target])
        if stream.grouping != "forward" or i == j
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=len(pairs))) if pairs else []
    return Profile(tasks, tuple(EdgeProfile(a, b, draw(AMOUNTS)) for a, b in chosen))


@st.composite
def counted_profiles(draw: st.DrawFn, graph: OperatorGraph) -> Profile:
    """A profile some of whose pairs also say rows, batches and CPU at a distance, as a metered run does."""
    plain = draw(profiles(graph))
    some = st.none() | AMOUNTS
    counted = [
        replace(
            edge,
            tuples=draw(some),
            batches=draw(some),
            distance=draw(st.sampled_from((None, *DISTANCES))),
            send_cpu=draw(some),
            receive_cpu=draw(some),
        )
        for edge in plain.edges
    ]
    return replace(plain, edges=tuple(counted))


@st.composite
def instances(
    draw: st.DrawFn, max_operators: int = 5, max_tasks: int = 12, max_nodes: int = 5, *, cpu_only: bool = False
) -> tuple[OperatorGraph, Cluster]:
    """A topology and a cluster for it."""
    graph = draw(topologies(max_operators, max_tasks))
    return graph, draw(clusters(graph, max_nodes, cpu_only=cpu_only))


def random_topology(
    seed: int, operators: int = 10, tasks_per_operator: int = 4, streams_per_operator: int = 2
) -> OperatorGraph:
    """The same topology for the same seed: unequal loads and rates, each operator fed by a few earlier ones."""
    rng = np.random.default_rng(seed)
    made: list[Operator] = []
    streams: list[Stream] = []
    for k in range(operators):
        loads = tuple(rng.uniform(0.2, 1.0, tasks_per_operator).tolist())
        made.append(Operator(f"o{k}", tasks_per_operator, load=loads, source=k == 0))
        earlier = rng.choice(k, size=min(k, streams_per_operator), replace=False).tolist() if k else []
        for source in sorted(earlier):
            rates = rng.uniform(0.0, 10.0, (tasks_per_operator, tasks_per_operator))
            streams.append(Stream(f"o{source}", f"o{k}", rate=tuple(map(tuple, rates.tolist()))))
    return OperatorGraph(f"random:{seed}", tuple(made), tuple(streams))


def random_cluster(seed: int, graph: OperatorGraph, fill: float = 0.75) -> Cluster:
    """The same cluster for the same seed: nodes of capacity 4, 8 or 16, until the graph fills them to `fill`."""
    rng = np.random.default_rng(seed)
    wanted = math.fsum(load for operator in graph.operators for load in operator.loads()) / fill
    capacities: list[float] = []
    while not capacities or math.fsum(capacities) < wanted:
        capacities.append(float(rng.choice((4.0, 8.0, 16.0))))
    return Cluster(tuple(Node(f"n{k}", capacity) for k, capacity in enumerate(capacities, start=1)))
