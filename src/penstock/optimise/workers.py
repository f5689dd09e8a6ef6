"""Second level: the tasks of a node are shared out to w = ceil(t / T) workers by k-way partition (paper 000, 4.5).

When the node has fewer slots than that, w is capped at the slots, and a worker then holds more than T tasks (open point
decided). METIS parts above the limit are repaired. Loads are not looked at here; where a worker would carry more than
one thread, `seats` shares the node's tasks out anew. So what the plan says of capped nodes is read off its last workers
(`test_a_node_that_got_more_workers_is_not_called_capped`).
"""

from __future__ import annotations

import math

import numpy as np

from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Options, Problem
from penstock.optimise.steps.kway import kway, repaired, without_gaps

SLOTS_NOTE = "fewer slots than workers: "


def slots_note(problem: Problem, node: Ints, worker: Ints, options: Options) -> tuple[str, ...]:
    """One sentence about nodes whose workers hold more tasks than asked for want of slots; none without any."""
    few = options.tasks_per_worker
    seats, held = np.unique(np.stack([node, worker]), axis=1, return_counts=True)
    workers = np.bincount(seats[0], minlength=problem.node_count)
    tasks = np.bincount(node, minlength=problem.node_count)
    most = np.zeros(problem.node_count, dtype=np.int64)
    np.maximum.at(most, seats[0], held)
    capped = (-(-tasks // few) > problem.slots) & (workers <= problem.slots) & (most > few)
    if not capped.any():
        return ()
    k = int(np.argmax(np.where(capped, most, 0)))
    others = int(capped.sum()) - 1
    more = "" if not others else f" (and so on {others} more node{'' if others == 1 else 's'})"
    return (
        f"{SLOTS_NOTE}node {problem.cluster.nodes[k].name!r} would need {math.ceil(tasks[k] / few)} for {tasks[k]} "
        f"tasks but has {problem.slots[k]}, so workers there hold up to {most[k]} tasks instead of {few}{more}",
    )


def worker_count(tasks: int, slots: int, tasks_per_worker: int) -> int:
    """Workers for a node's tasks, within its slots."""
    return min(math.ceil(tasks / tasks_per_worker), slots)


def split_by_kway(problem: Problem, node: Ints, options: Options) -> Ints:
    """Worker number of each task."""
    worker = np.zeros(problem.task_count, dtype=np.int32)
    order = np.argsort(node, kind="stable")
    bounds = np.searchsorted(node[order], np.arange(problem.node_count + 1))
    ones = np.ones(problem.task_count)
    for k in range(problem.node_count):
        tasks = order[bounds[k] : bounds[k + 1]]
        slots = int(problem.slots[k])
        w = worker_count(len(tasks), slots, options.tasks_per_worker)
        if w <= 1 and len(tasks) <= options.tasks_per_worker:
            continue
        part = kway(problem.graph, tasks, w, options.seed)
        size_max = max(options.tasks_per_worker, math.ceil(len(tasks) / w))
        part = repaired(problem.graph, tasks, part, ones, [size_max] * w)
        worker[tasks] = without_gaps(part)
    return worker
