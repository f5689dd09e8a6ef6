"""Random application graphs of 50 to 200 tasks, made the way that the papers' applications are: synthetic.

Sources emit tuples; every later operator reads one or two of the operators just before it through a grouping, and
sends on a share of what it read. Rates and loads follow from that flow, as in `penstock.apps.applications`: a pair's
rate is bytes per second (whole ones), a task's load is proportional to what it reads. Tasks behind a shuffle share
evenly. Tasks behind keys get what their keys bring, which is unequal, and so are their loads and what they send. Two to
four types of nodes offer 1.2 to 1.6 times the load. A seed means the same problem until `VERSION` changes.
"""

from __future__ import annotations

import numpy as np

from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, TaskGraph
from penstock.model.topology import Operator, OperatorGraph, Stream
from penstock.optimise.contract import Problem

VERSION = 1
TASKS_MIN, TASKS_MAX = 50, 200
OPERATOR_TASKS_MIN, OPERATOR_TASKS_MAX = 2, 16
GROUPINGS, ODDS = ("shuffle", "fields", "forward"), (0.45, 0.4, 0.15)
SOURCE_ODDS = 0.1  # of a further source
JOIN_ODDS = 0.25  # of an operator that reads two streams
BACK = 3  # an operator reads some of this many operators before it
KEY_SKEW = 12.0  # of the Dirichlet distribution of keys over tasks: shares differ by about 30 %
SOURCE_BYTES, SOURCE_SIGMA = 1e7, 0.5  # per second, in all
CPU_SIGMA = 0.5
LOAD_MEAN = 0.5  # cores of a mean task
LOAD_MIN = 0.02
TASKS_PER_NODE = (4.0, 16.0)


def application(seed: int) -> Problem:
    """The application of that seed on the cluster of that seed."""
    random = np.random.default_rng([VERSION, seed])
    tasks = int(random.integers(TASKS_MIN, TASKS_MAX + 1))
    graph = TaskGraph.expand(application_graph(f"application:{seed}", tasks, random))
    return Problem(graph, application_cluster(graph, random))


def application_graph(name: str, tasks: int, random: np.random.Generator) -> OperatorGraph:
    """Operators in the order of the flow, with `tasks` tasks in all."""
    sizes: list[int] = []
    streams: list[Stream] = []
    sends: list[Floats] = []  # bytes per second of each task of an operator, on each stream that leaves it
    loads: list[Floats] = []
    while (left := tasks - sum(sizes)) > 0:
        inputs = _inputs(len(sizes), random)
        grouping = str(random.choice(GROUPINGS, p=ODDS)) if inputs else ""
        size = min(left, int(random.integers(OPERATOR_TASKS_MIN, OPERATOR_TASKS_MAX + 1)))
        if grouping == "forward" and sizes[inputs[0]] <= left:
            size, inputs = sizes[inputs[0]], inputs[:1]
        elif grouping == "forward":
            grouping = "shuffle"
        reads = np.zeros(size) if inputs else np.full(size, random.lognormal(np.log(SOURCE_BYTES), SOURCE_SIGMA) / size)
        for source in inputs:
            rate = _rates(sends[source], size, grouping, random)
            streams.append(Stream(f"o{source}", f"o{len(sizes)}", grouping, tuple(map(tuple, rate.tolist()))))
            reads += rate.sum(axis=0)
        sizes.append(size)
        sends.append(reads * random.uniform(0.2, 1.1))
        loads.append(reads * random.lognormal(0.0, CPU_SIGMA))
    sources = set(range(len(sizes))) - {int(stream.target[1:]) for stream in streams}
    scale = LOAD_MEAN / float(np.concatenate(loads).mean())
    operators = tuple(
        Operator(
            f"o{k}",
            size,
            tuple(np.maximum(LOAD_MIN, (loads[k] * scale).round(3)).tolist()),
            source=k in sources,
        )
        for k, size in enumerate(sizes)
    )
    return OperatorGraph(name, operators, tuple(streams))


def application_cluster(graph: TaskGraph, random: np.random.Generator) -> Cluster:
    """Two to four types of nodes of whole cores, in random numbers, that offer 1.2 to 1.6 times the load."""
    wanted = float(graph.load.sum()) * random.uniform(1.2, 1.6)
    mean = float(graph.load.mean()) * random.uniform(*TASKS_PER_NODE)
    least = float(np.ceil(graph.load.max()))
    kinds = np.maximum(least, np.rint(mean * random.uniform(0.4, 1.8, int(random.integers(2, 5)))))
    capacities: list[float] = []
    while sum(capacities) < wanted:
        capacities.append(float(random.choice(kinds)))
    return Cluster(tuple(Node(f"n{k}", capacity) for k, capacity in enumerate(capacities, start=1)))


def _inputs(number: int, random: np.random.Generator) -> list[int]:
    """The operators that a new one reads; none for a source."""
    if number == 0 or random.random() < SOURCE_ODDS:
        return []
    near = np.arange(max(0, number - BACK), number)
    count = 2 if len(near) > 1 and random.random() < JOIN_ODDS else 1
    return sorted(random.choice(near, count, replace=False).tolist())


def _rates(sends: Floats, receivers: int, grouping: str, random: np.random.Generator) -> Floats:
    """Whole bytes per second of each pair of tasks."""
    if grouping == "forward":
        return np.diag(sends).round()
    share = (
        random.dirichlet(np.full(receivers, KEY_SKEW)) if grouping == "fields" else np.full(receivers, 1 / receivers)
    )
    return np.outer(sends, share).round()
