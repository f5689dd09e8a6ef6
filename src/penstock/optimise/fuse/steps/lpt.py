"""LPT: Basic COLA's scheduler (paper 004, section 2.2). Largest worker first, to the node it fills least.

A worker goes to the node with the least (used + SIZE) / capacity. Among nodes of equal capacity that is the least
used one, so each capacity has a heap and the heaps' heads are compared; equals go to the first node of the file.
"""

from __future__ import annotations

import heapq

import numpy as np

from penstock.model.taskgraph import Floats, Ints


def lpt(sizes: Floats, capacity: Floats, used: Floats | None = None) -> Ints:
    """A node for each worker; `used` is what is on the nodes already."""
    begun = [0.0] * len(capacity) if used is None else used.tolist()
    heaps = {c: [(begun[k], k) for k in np.flatnonzero(capacity == c).tolist()] for c in np.unique(capacity).tolist()}
    for waiting in heaps.values():
        heapq.heapify(waiting)
    host: Ints = np.zeros(len(sizes), dtype=np.int32)
    order = np.argsort(-sizes, kind="stable")
    only = next(iter(heaps.values())) if len(heaps) == 1 else None
    for worker, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        heap = only or heaps[min(heaps, key=lambda c: ((heaps[c][0][0] + size) / c, heaps[c][0][1]))]
        amount, k = heap[0]
        heapq.heapreplace(heap, (amount + size, k))
        host[worker] = k
    return host


def utilisations(sizes: Floats, host: Ints, capacity: Floats) -> Floats:
    """How full each node is."""
    found: Floats = np.bincount(host, sizes, minlength=len(capacity)) / capacity
    return found
