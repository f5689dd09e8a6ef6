"""`flink`: slot sharing with balanced tasks (FLIP-370, `taskmanager.load-balance.mode: tasks`).

All operators form one slot sharing group, so there are as many slots as the widest operator has tasks, and no slot
holds two tasks of one operator. Tasks to slots: task i of every widest operator goes to slot i; the tasks of all other
operators go round-robin over the slots, each operator starting where the one before it stopped. Slots to nodes: slots
by number of tasks, descending, each to the node with fewest tasks so far that has a slot free. A slot is a worker.

From FLIP-370 and Flink's page on it: both phases. Derived: ties go to the lower slot number and to the first node of
the file; "tasks so far" counts this topology alone; nodes with unequal slots are simply full at different times.

It counts tasks and sees no load, so its plan may overload a node. O(t + s log s + s log n) for t tasks, s slots and n
nodes. Raises NoPlanFound when the widest operator has more tasks than the cluster has slots, as Flink would not start.
"""

from __future__ import annotations

import heapq

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.optimise.contract import Options, Placement, Problem


def share_slots(graph: TaskGraph) -> Ints:
    """Slot of each task."""
    sizes = np.diff(graph.first_task).tolist()
    widest = max(sizes)
    slot = np.empty(graph.task_count, dtype=np.int32)
    turn = 0
    for first, size in zip(graph.first_task[:-1].tolist(), sizes, strict=True):
        start = 0 if size == widest else turn
        slot[first : first + size] = (start + np.arange(size)) % widest
        turn = turn if size == widest else (turn + size) % widest
    return slot


def spread_slots(tasks_in_slot: list[int], slots_of_node: list[int]) -> tuple[list[int], list[int]]:
    """(node, worker on it) of each slot: the fullest slot first, to the node with fewest tasks."""
    node_of, worker_of = [0] * len(tasks_in_slot), [0] * len(tasks_in_slot)
    fewest = [(0, node, 0) for node in range(len(slots_of_node))]  # tasks, node, workers: already a heap
    for slot in sorted(range(len(tasks_in_slot)), key=lambda s: -tasks_in_slot[s]):
        tasks, node, workers = heapq.heappop(fewest)
        node_of[slot], worker_of[slot] = node, workers
        if workers + 1 < slots_of_node[node]:
            heapq.heappush(fewest, (tasks + tasks_in_slot[slot], node, workers + 1))
    return node_of, worker_of


def schedule(problem: Problem, options: Options) -> Placement:
    """Tasks to shared slots, then slots to nodes, both by number of tasks."""
    graph = problem.graph
    sizes = np.diff(graph.first_task)
    offered = int(problem.slots.sum())
    if sizes.max() > offered:
        widest = int(np.argmax(sizes))
        msg = (
            f"scheduler 'flink' needs a slot for each task of operator {graph.operators[widest]!r}, {sizes[widest]} "
            f"in all, but the cluster has {offered}; lower its tasks, raise slots, or try --scheduler best"
        )
        raise NoPlanFound(msg)
    slot = share_slots(graph)
    node_of, worker_of = spread_slots(np.bincount(slot).tolist(), problem.slots.tolist())
    return Placement(node=np.array(node_of, np.int32)[slot], worker=np.array(worker_of, np.int32)[slot])
