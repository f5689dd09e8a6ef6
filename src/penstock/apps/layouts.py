"""The micro-benchmarks of both Otago papers (000 and 001, section 5): linear, diamond and star with N tasks in all.

Load 1 per task and rate 1 per pair of communicating tasks, as published. N grows by operators of two tasks, so it is
even; the papers run 10 to 32 on the two clusters of their Table 3.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import InvalidInput
from penstock.model.cluster import Cluster
from penstock.model.topology import TASKS_MAX, Operator, OperatorGraph, Stream

PUBLISHED_SIZES = tuple(range(10, 33, 2))


def published_clusters() -> dict[str, Cluster]:
    """Table 3 of both papers."""
    return {
        "homogeneous": Cluster.uniform([(10, 4.0)]),
        "heterogeneous": Cluster.uniform([(3, 6.0), (3, 4.0), (4, 2.0)]),
    }


def linear(tasks: int) -> OperatorGraph:
    """Operators of two tasks in a row."""
    count = _operators("linear", tasks, fixed=0, least=2)
    operators = tuple(Operator(f"o{i}", 2, source=i == 1) for i in range(1, count + 1))
    streams = tuple(Stream(f"o{i}", f"o{i + 1}") for i in range(1, count))
    return OperatorGraph(f"linear:{tasks}", operators, streams)


def diamond(tasks: int) -> OperatorGraph:
    """A source of four tasks, operators of two in the middle, a sink of four."""
    count = _operators("diamond", tasks, fixed=8, least=1)
    middle = [f"m{i}" for i in range(1, count + 1)]
    operators = (Operator("source", 4, source=True), *(Operator(name, 2) for name in middle), Operator("sink", 4))
    streams = (*(Stream("source", name) for name in middle), *(Stream(name, "sink") for name in middle))
    return OperatorGraph(f"diamond:{tasks}", operators, streams)


def star(tasks: int) -> OperatorGraph:
    """Sources of two tasks into one operator of four, and from there into sinks of two, added alternately."""
    count = _operators("star", tasks, fixed=4, least=2)
    sources = [f"source{i}" for i in range(1, (count + 1) // 2 + 1)]
    sinks = [f"sink{i}" for i in range(1, count // 2 + 1)]
    operators = (
        *(Operator(name, 2, source=True) for name in sources),
        Operator("centre", 4),
        *(Operator(name, 2) for name in sinks),
    )
    streams = (*(Stream(name, "centre") for name in sources), *(Stream("centre", name) for name in sinks))
    return OperatorGraph(f"star:{tasks}", operators, streams)


LAYOUTS: dict[str, Callable[[int], OperatorGraph]] = {"linear": linear, "diamond": diamond, "star": star}


def _operators(layout: str, tasks: int, fixed: int, least: int) -> int:
    """How many operators of two tasks the layout adds to its fixed ones."""
    smallest = fixed + 2 * least
    if tasks < smallest or tasks % 2 or tasks > TASKS_MAX:
        msg = f"{layout}:{tasks} is not possible; N must be even, from {smallest} to {TASKS_MAX}"
        raise InvalidInput(msg)
    return (tasks - fixed) // 2
