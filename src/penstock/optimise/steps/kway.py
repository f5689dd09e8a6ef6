"""The door to METIS: k-way partitions of task graphs into roughly equal parts, the papers' second-level tool.

METIS counts in integers and treats balance as a wish. Here rates and loads are scaled to integers, and `repaired`
moves tasks out of parts that are above a hard limit, each time by the cheapest move, because both Otago papers state
limits (T tasks a worker, c a node) that METIS may miss by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Floats, Ints, Longs, TaskGraph

EDGE_SCALE_MAX = 1_000_000  # the heaviest edge becomes this integer
VERTEX_SCALE_MAX = 10_000
RECURSIVE_PARTS_MAX = 8  # METIS's own advice: recursive bisection cuts better for few parts, k-way scales


def kway(graph: TaskGraph, tasks: Sequence[int] | Longs, parts: int, seed: int, weight: Floats | None = None) -> Ints:
    """Part number (0 .. parts - 1) of each of `tasks`, by METIS on the sub-graph that they induce.

    `weight` balances the parts (per task of the graph; default 1 each). Parts may come out empty or uneven.
    """
    import pymetis  # 0.3 s that commands without partitions need not wait

    chosen = np.asarray(tasks, dtype=np.int64)
    count = len(chosen)
    if parts <= 1 or count <= 1:
        return np.zeros(count, dtype=np.int32)
    if parts >= count:
        return np.arange(count, dtype=np.int32)
    start, neighbour, rate = induced(graph, chosen)
    scale = EDGE_SCALE_MAX / rate.max() if len(rate) else 1.0
    vertex = None
    if weight is not None:
        heaviest = max(float(weight[chosen].max()), 1e-300)
        vertex = np.maximum(1, np.rint(weight[chosen] * (VERTEX_SCALE_MAX / heaviest))).astype(int).tolist()
    _, membership = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(start.tolist(), neighbour.tolist()),
        vweights=vertex,
        eweights=np.maximum(1, np.rint(rate * scale)).astype(int).tolist(),
        recursive=parts <= RECURSIVE_PARTS_MAX,
        options=pymetis.Options(seed=seed % (1 << 31)),
    )
    return np.asarray(membership, dtype=np.int32)


def induced(graph: TaskGraph, chosen: Longs) -> tuple[Longs, Longs, Floats]:
    """Compressed rows of the sub-graph on `chosen`, with its vertices renumbered 0, 1, ... in that order."""
    adjacency = graph.adjacency
    number = np.full(graph.task_count, -1, dtype=np.int64)
    number[chosen] = np.arange(len(chosen))
    lengths = (adjacency.start[chosen + 1] - adjacency.start[chosen]).astype(np.int64)
    first = np.repeat(adjacency.start[chosen] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    at = first + np.arange(int(lengths.sum()))
    neighbour = number[adjacency.neighbour[at]]
    inside = neighbour >= 0
    row = np.repeat(np.arange(len(chosen)), lengths)[inside]
    start = np.zeros(len(chosen) + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=len(chosen)), out=start[1:])
    return start, neighbour[inside], adjacency.weight[at][inside]


def repaired(
    graph: TaskGraph, tasks: Sequence[int] | Longs, part: Ints, weight: Floats, limit: Sequence[float] | Floats
) -> Ints:
    """`part` with every part at or below its limit: while one is above, its cheapest task moves to a part with room.

    `weight` is per task of the graph, `limit` per part. Cheapest: least internal traffic lost over traffic gained.
    Raises NoPlanFound when no single move helps.
    """
    chosen = np.asarray(tasks, dtype=np.int64)
    start, neighbour, rate = induced(graph, chosen)
    own = weight[chosen]
    limits = np.asarray(limit, dtype=np.float64)
    part = part.copy()
    filled = np.bincount(part, own, minlength=len(limits))
    while True:
        above = np.flatnonzero(filled > limits)
        if len(above) == 0:
            return part
        crowded = int(above[np.argmax((filled - limits)[above])])
        best: tuple[float, int, int] | None = None
        for task in np.flatnonzero(part == crowded).tolist():
            room = np.flatnonzero(filled + own[task] <= limits)
            if len(room) == 0 or own[task] <= 0:
                continue
            row = slice(start[task], start[task + 1])
            traffic = np.bincount(part[neighbour[row]], rate[row], minlength=len(limits))
            target = int(room[np.argmax(traffic[room])])
            move = (float(traffic[crowded] - traffic[target]), task, target)
            best = move if best is None else min(best, move)
        if best is None:
            msg = (
                f"a part of weight {filled[crowded]:g} is above its limit {limits[crowded]:g} and no other "
                f"part has room for any of its tasks; try --scheduler best"
            )
            raise NoPlanFound(msg)
        _, task, target = best
        filled[crowded] -= own[task]
        filled[target] += own[task]
        part[task] = target


def without_gaps(part: Ints) -> Ints:
    """Parts renumbered 0, 1, ... in order of their number: METIS may leave one empty."""
    return np.unique(part, return_inverse=True)[1].astype(np.int32)
