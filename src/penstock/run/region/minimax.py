"""Minimax allocation: share R units out so that the largest predicted blocking is smallest (paper, section 5.2).

    >>> steep, flat = np.arange(1001) * 0.003, np.arange(1001) * 0.001
    >>> allocate([steep, flat])
    (250, 750)

Fox's greedy: start from the lower bounds and give one unit at a time to the connection whose function is smallest with
one unit more. For non-decreasing functions that is optimal. A heap makes it O(N + R log N). The faster schemes that the
paper names (Galil and Megiddo, Frederickson and Johnson) are not worth their code: a thousand units over 64 connections
take about a millisecond. Ties go to the connection with fewer units, then to the first, so that members of a cluster,
which share one function, end within one unit of each other (`test_ties_are_shared_evenly`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.run.region.contract import UNITS, Weights

Floats = npt.NDArray[np.float64]


def allocate(
    functions: Sequence[Floats], low: Sequence[int] | None = None, high: Sequence[int] | None = None
) -> Weights:
    """Weights between the bounds that add up to UNITS; the functions give values for 0 to UNITS units."""
    count = len(functions)
    least = [0] * count if low is None else list(low)
    most = [UNITS] * count if high is None else [min(UNITS, h) for h in high]
    _check_bounds(least, most)
    weights = list(least)
    heap = [(float(functions[j][weights[j] + 1]), weights[j], j) for j in range(count) if weights[j] < most[j]]
    heapq.heapify(heap)
    for _ in range(UNITS - sum(weights)):
        _, units, j = heap[0]
        weights[j] = units + 1
        if weights[j] < most[j]:
            heapq.heapreplace(heap, (float(functions[j][weights[j] + 1]), weights[j], j))
        else:
            heapq.heappop(heap)
    return tuple(weights)


def _check_bounds(least: Sequence[int], most: Sequence[int]) -> None:
    if any(not 0 <= a <= b for a, b in zip(least, most, strict=True)) or not sum(least) <= UNITS <= sum(most):
        msg = f"bounds from {list(least)} to {list(most)} leave no weights that add up to {UNITS}"
        raise ValueError(msg)


def around(current: Sequence[int], step: int) -> tuple[list[int], list[int]]:
    """Bounds m_j and M_j at most `step` units from the current weights."""
    return [max(0, w - step) for w in current], [min(UNITS, w + step) for w in current]
