"""`even`: Storm's default round-robin, which every paper measures first.

Slots are grouped by node, nodes ordered by their number of slots (descending, stable), then interleaved: the first
slot of every node, then the second of every node that has one, and so on. Task i goes to slot i mod n. It looks at no
load and no traffic, so its plan may overload a node.
"""

from __future__ import annotations

import numpy as np

from penstock.optimise.contract import Options, Placement, Problem


def interleaved_slots(problem: Problem) -> list[tuple[int, int]]:
    """(node, worker) pairs in the order in which Storm hands them out."""
    by_slots = sorted(range(problem.node_count), key=lambda node: -int(problem.slots[node]))
    found: list[tuple[int, int]] = []
    for worker in range(int(problem.slots.max())):
        found += [(node, worker) for node in by_slots if worker < problem.slots[node]]
        if len(found) >= problem.task_count:  # later slots stay empty
            break
    return found


def schedule(problem: Problem, options: Options) -> Placement:
    """Round-robin over the interleaved slots."""
    slots = np.array(interleaved_slots(problem), dtype=np.int32)
    chosen = slots[np.arange(problem.task_count) % len(slots)]
    return Placement(node=chosen[:, 0].copy(), worker=chosen[:, 1].copy())
