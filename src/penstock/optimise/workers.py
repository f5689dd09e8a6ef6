"""Second level: the tasks of a node are shared out to w = ceil(t / T) workers by k-way partition (paper 000, 4.5).

When the node has fewer slots than that, w is capped at the slots and the plan says so: a worker then holds more than
T tasks (open point decided). METIS parts above the limit are repaired, never accepted.
"""

from __future__ import annotations

import math

import numpy as np

from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Options, Problem
from penstock.optimise.kway import kway, repaired


def worker_count(tasks: int, slots: int, tasks_per_worker: int) -> int:
    """Workers for so many tasks on a node with so many slots."""
    return min(math.ceil(tasks / tasks_per_worker), slots)


def split_by_kway(problem: Problem, node: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """Worker number of each task, and a note for each node whose workers were capped by its slots."""
    worker = np.zeros(problem.task_count, dtype=np.int32)
    notes: list[str] = []
    order = np.argsort(node, kind="stable")
    bounds = np.searchsorted(node[order], np.arange(problem.node_count + 1))
    ones = np.ones(problem.task_count)
    for k in range(problem.node_count):
        tasks = order[bounds[k] : bounds[k + 1]]
        slots = int(problem.slots[k])
        w = worker_count(len(tasks), slots, options.tasks_per_worker)
        if w <= 1 and len(tasks) <= options.tasks_per_worker:
            continue
        if (wanted := math.ceil(len(tasks) / options.tasks_per_worker)) > slots:
            name = problem.cluster.nodes[k].name
            notes.append(f"node {name!r} wants {wanted} workers for {len(tasks)} tasks but has {slots} slots")
        part = kway(problem.graph, tasks, w, options.seed)
        size_max = max(options.tasks_per_worker, math.ceil(len(tasks) / w))
        part = repaired(problem.graph, tasks, part, ones, [size_max] * w)
        worker[tasks] = _without_gaps(part)
    return worker, tuple(notes)


def _without_gaps(part: Ints) -> Ints:
    """Parts renumbered 0, 1, ... in order of their number: METIS may leave one empty."""
    return np.unique(part, return_inverse=True)[1].astype(np.int32)
