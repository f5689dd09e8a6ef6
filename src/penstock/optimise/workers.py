"""Second level: the tasks of a node are shared out to w = ceil(t / T) workers by k-way partition (paper 000, 4.5).

When the node has fewer slots than that, w is capped at the slots and the plan says so: a worker then holds more than
T tasks (open point decided). METIS parts above the limit are repaired. Loads are not looked at here; where a worker
would carry more than one thread, `seats` shares the node's tasks out anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Options, Problem
from penstock.optimise.steps.kway import kway, repaired, without_gaps

SLOTS_NOTE = "fewer slots than workers: "


def slots_note(wanting: Sequence[tuple[str, int, int]], tasks_per_worker: int) -> tuple[str, ...]:
    """One sentence about nodes (name, tasks, slots) whose workers hold more tasks than asked for; none without any."""
    if not wanting:
        return ()
    name, tasks, slots = max(wanting, key=lambda node: node[1] / node[2])
    others = f" and {len(wanting) - 1} more" if len(wanting) > 1 else ""
    return (
        f"{SLOTS_NOTE}node {name!r}{others} would need {math.ceil(tasks / tasks_per_worker)} for {tasks} tasks but has "
        f"{slots}, so workers there hold up to {math.ceil(tasks / slots)} tasks instead of {tasks_per_worker}",
    )


def worker_count(tasks: int, slots: int, tasks_per_worker: int) -> int:
    """Workers for a node's tasks, within its slots."""
    return min(math.ceil(tasks / tasks_per_worker), slots)


def split_by_kway(problem: Problem, node: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """Worker number of each task, and a note about nodes whose workers were capped by their slots."""
    worker = np.zeros(problem.task_count, dtype=np.int32)
    wanting: list[tuple[str, int, int]] = []
    order = np.argsort(node, kind="stable")
    bounds = np.searchsorted(node[order], np.arange(problem.node_count + 1))
    ones = np.ones(problem.task_count)
    for k in range(problem.node_count):
        tasks = order[bounds[k] : bounds[k + 1]]
        slots = int(problem.slots[k])
        w = worker_count(len(tasks), slots, options.tasks_per_worker)
        if w <= 1 and len(tasks) <= options.tasks_per_worker:
            continue
        if math.ceil(len(tasks) / options.tasks_per_worker) > slots:
            wanting.append((problem.cluster.nodes[k].name, len(tasks), slots))
        part = kway(problem.graph, tasks, w, options.seed)
        size_max = max(options.tasks_per_worker, math.ceil(len(tasks) / w))
        part = repaired(problem.graph, tasks, part, ones, [size_max] * w)
        worker[tasks] = without_gaps(part)
    return worker, slots_note(wanting, options.tasks_per_worker)
