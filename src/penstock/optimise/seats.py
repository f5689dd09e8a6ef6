"""Seats: the workers of a node, each of which is one thread and carries no more than that.

Two tasks or more whose loads add up to more than a worker's capacity may not share it; one task alone may exceed it,
because it cannot be shared out (`check_plan` says the same in code of its own). A node without stated slots gets as
many workers as that takes. Where slots are stated, sharing a node's tasks out to them is a bin packing: greedy packings
first, then a search of limited length that goes through all of them on small nodes.

`narrowed` is what a node can carry at most through its slots, which schedulers are told as its capacity: they place on
nodes and know no workers. That is necessary, not sufficient: `unseated` names the nodes where no packing is found.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Options, Problem
from penstock.optimise.steps.kway import induced, kway, without_gaps

METIS_TASKS_MAX = 3_000  # of the whole problem, beyond which METIS node by node would take seconds
METIS_TRIES = 3  # numbers of workers, from the least that can do
PACKING_STEPS_MAX = 20_000  # of the search for a packing into stated slots
SEATS_NOTE = "a worker is one thread: "
BOTTLENECK_NOTE = "bottleneck: "


def has_stated_seats(problem: Problem) -> bool:
    """Whether some node has so many workers and no more, each of which is one thread: then a packing can fail."""
    return any(node.slots is not None and node.worker_capacity is not None for node in problem.cluster.nodes)


def narrowed(problem: Problem) -> Problem:
    """The problem with no node's capacity above what its slots carry: a thread each, or one task that needs more."""
    nodes = list(problem.cluster.nodes)
    load = np.sort(problem.graph.load)[::-1]
    known: dict[tuple[int, float], float] = {}
    for k, node in enumerate(nodes):
        limit = node.worker_capacity
        if node.slots is None or limit is None:
            continue
        key = (node.slots, limit)
        if key not in known:
            known[key] = node.slots * limit + float(np.maximum(0.0, load[: node.slots] - limit).sum())
        if known[key] < node.capacity:
            nodes[k] = replace(node, capacity=known[key])
    if nodes == list(problem.cluster.nodes):
        return problem
    return replace(problem, cluster=replace(problem.cluster, nodes=tuple(nodes)))


def seat_shortfalls(problem: Problem) -> list[str]:
    """Why the workers of a cluster cannot carry the tasks, where its nodes as such could."""
    small = narrowed(problem)
    if small is problem or problem.shortfalls() or not small.shortfalls():
        return []
    needed, offered = float(problem.graph.load.sum()), small.cluster.capacity
    return [
        f"the tasks need load {needed:g} in all but the workers for which the cluster's nodes have slots carry "
        f"{offered:g}: {SEATS_NOTE.removesuffix(': ')} (worker_capacity); give nodes more slots, or add nodes"
    ]


def crowded(problem: Problem, node: Ints, worker: Ints) -> Ints:
    """The nodes that have a worker with two tasks or more and more load than one worker carries."""
    most = int(worker.max()) + 1  # one number for both: searches ask this of every plan that they look at
    seats, seat = np.unique(node.astype(np.int64) * most + worker, return_inverse=True)
    load, tasks, at = np.bincount(seat, problem.graph.load), np.bincount(seat), seats // most
    over: Ints = np.unique(at[(tasks > 1) & (load > problem.worker_capacity[at])])
    return over


def seated(problem: Problem, node: Ints, worker: Ints, options: Options) -> tuple[Ints, tuple[str, ...]]:
    """The workers, with those of every crowded node chosen anew, and a note; a node stays as it is where none fit."""
    raised: list[tuple[str, int, int]] = []
    worker = worker.copy()
    for k in crowded(problem, node, worker).tolist():
        tasks = np.flatnonzero(node == k)
        part = seats_of(problem, k, tasks, options)
        if part is None:
            continue
        before = len(np.unique(worker[tasks]))
        worker[tasks] = part
        if (now := len(np.unique(part))) > before:
            raised.append((problem.cluster.nodes[k].name, before, now))
    return worker, _note(raised)


def _note(raised: list[tuple[str, int, int]]) -> tuple[str, ...]:
    if not raised:
        return ()
    name, before, now = max(raised, key=lambda node: node[2] - node[1])
    others = len(raised) - 1
    more = "" if not others else f", and {others} more node{'' if others == 1 else 's'} got more as well"
    return (
        f"{SEATS_NOTE}node {name!r} got {now} workers instead of {before}{more}, so that no worker of several tasks "
        "carries too much",
    )


def bottleneck_note(problem: Problem, node: Ints) -> tuple[str, ...]:
    """A sentence about tasks that are more than one worker can do even alone; none without any."""
    over = np.flatnonzero(problem.graph.load > problem.worker_capacity[node])
    if len(over) == 0:
        return ()
    load, limit = problem.graph.load[over], problem.worker_capacity[node[over]]
    t = over[int(np.argmax(load / limit))]
    stated = problem.cluster.nodes[int(node[t])].worker_capacity
    others = f" and {len(over) - 1} more" if len(over) > 1 else ""
    return (
        f"{BOTTLENECK_NOTE}{problem.graph.ids[t]!r}{others} alone {'are' if others else 'is'} more than a worker can "
        f"do: load {problem.graph.load[t]:g}, and one worker carries {stated:g}; split the operator into more tasks",
    )


def unseated(problem: Problem, node: Ints, options: Options) -> list[int]:
    """Nodes whose tasks no packing was found for; only stated slots can be too few."""
    counts = np.bincount(node, minlength=problem.node_count)
    stated = [k for k, n in enumerate(problem.cluster.nodes) if n.slots is not None and n.worker_capacity is not None]
    return [
        k
        for k in stated
        if counts[k] > problem.workers_limit[k] and seats_of(problem, k, np.flatnonzero(node == k), options) is None
    ]


def seats_of(problem: Problem, k: int, tasks: Longs, options: Options) -> Ints | None:
    """A worker for each of a node's tasks, T tasks each as far as slots allow; None where none was found."""
    load, limit = problem.graph.load[tasks], float(problem.worker_capacity[k])
    most, few = int(problem.workers_limit[k]), options.tasks_per_worker
    if len(tasks) <= 1:
        return np.zeros(len(tasks), dtype=np.int32)
    if problem.task_count <= METIS_TASKS_MAX:
        least = max(-(-len(tasks) // few), _least(load, limit))
        for w in range(least, min(most, len(tasks), least + METIS_TRIES - 1) + 1):
            part = kway(problem.graph, tasks, w, options.seed, np.maximum(problem.graph.load, 1e-9))
            if _keeps(part, load, limit, few):
                return without_gaps(part)
    for size in (few, len(tasks)):
        part = _by_traffic(problem, tasks, load, limit, size)
        if part.max() < most:
            return part
    return packed(load, limit, most)


def _least(load: Floats, limit: float) -> int:
    """Workers that the tasks need by arithmetic: one for each that exceeds a worker, and enough for the rest."""
    large = load > limit
    return max(1, int(large.sum()) + int(np.ceil(float(load[~large].sum()) / limit - 1e-9)))


def _keeps(part: Ints, load: Floats, limit: float, size: int) -> bool:
    tasks, carried = np.bincount(part), np.bincount(part, load)
    return bool(((tasks <= 1) | ((carried <= limit) & (tasks <= size))).all())


def _by_traffic(problem: Problem, tasks: Longs, load: Floats, limit: float, size: int) -> Ints:
    """The heaviest task first, each to the worker with room with which it talks most, then to the fullest."""
    start, neighbour, rate = induced(problem.graph, tasks)
    part = np.full(len(tasks), -1, dtype=np.int32)
    carried: list[float] = []
    held: list[int] = []
    for t in np.argsort(-load, kind="stable").tolist():
        near: dict[int, float] = {}
        for other, flow in zip(neighbour[start[t] : start[t + 1]].tolist(), rate[start[t] : start[t + 1]], strict=True):
            if (there := int(part[other])) >= 0:
                near[there] = near.get(there, 0.0) + float(flow)
        fitting = [w for w in range(len(carried)) if held[w] < size and carried[w] + load[t] <= limit]
        if fitting:
            seat = max(fitting, key=lambda w: (near.get(w, 0.0), carried[w]))
        else:
            seat = len(carried)
            carried.append(0.0)
            held.append(0)
        part[t] = seat
        carried[seat] += float(load[t])
        held[seat] += 1
    return part


def packed(load: Floats, limit: float, workers: int) -> Ints | None:
    """A worker for each load within the limit, one alone excepted, by a search through first fits decreasing."""
    order = np.argsort(-load, kind="stable")
    alone = int((load > limit).sum())
    if alone > workers or (alone == workers and alone < len(load)):
        return None
    part = np.zeros(len(load), dtype=np.int32)
    part[order[:alone]] = np.arange(alone)
    rest, bins = order[alone:].tolist(), workers - alone
    carried, steps = np.zeros(bins), 0
    tried: list[list[int]] = [_choices(carried, load[rest[0]], limit)] if rest else []
    chosen: list[int] = []
    while len(chosen) < len(rest):  # depth first; at each depth the workers that are left to try
        if steps >= PACKING_STEPS_MAX or not tried:
            return None
        steps += 1
        depth = len(chosen)
        if not tried[-1]:
            tried.pop()
            if chosen:
                carried[chosen.pop()] -= load[rest[depth - 1]]
            continue
        w = tried[-1].pop(0)
        carried[w] += load[rest[depth]]
        chosen.append(w)
        if depth + 1 < len(rest):
            tried.append(_choices(carried, load[rest[depth + 1]], limit))
    part[rest] = np.asarray(chosen, dtype=np.int32) + alone
    return part


def packs_at_once(load: Floats, limit: float, workers: int) -> bool:
    """Whether the first descent of `packed` ends: the heaviest load first, each to the fullest worker with room."""
    carried: list[float] = []
    for each in np.sort(load)[::-1].tolist():
        fitting = [w for w, amount in enumerate(carried) if amount + each <= limit]
        if fitting:
            carried[max(fitting, key=carried.__getitem__)] += each
        else:
            carried.append(each)
    return len(carried) <= workers


def _choices(carried: Floats, load: float, limit: float) -> list[int]:
    """Workers with room, the fullest first; of equally full ones a single one."""
    levels, first = np.unique(carried, return_index=True)
    return [int(w) for level, w in zip(levels[::-1], first[::-1], strict=True) if level + load <= limit]
