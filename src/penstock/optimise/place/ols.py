"""`ols`: the online scheduler of Aniello, Baldoni and Querzoni (DEBS 2013), the baseline of both Otago papers.

Tasks go to workers by task pairs, then workers to nodes by worker pairs (`pairwise`), heaviest traffic first. After
each phase empty workers, and then nodes short of the number to use, are filled by the cheapest moves. Parameters:

    workers      before it is capped by tasks and slots; default: the cluster's slots
    alfa, delta  0..1, tasks per worker and workers per node: 0, the default, is as even as can be
    beta         0..1, nodes to use: 1, the default, is as many as there are nodes or workers
    gamma        >= 1, worker load over the mean; unset, there is no limit
    improvement  0..100 per cent of traffic that the plan must save to be adopted; unset, every plan is
O(P S + M d + S E) for P pairs, S workers, E tasks, M moves of d neighbours. docs/decisions/0034-published-schedulers.md
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.errors import InvalidInput, NoPlanFound
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import SLACK, Options, Placement, Problem
from penstock.optimise.objective import node_cost
from penstock.optimise.place import even
from penstock.optimise.steps.pairwise import NoBin, PairwisePacking

Pairs = list[tuple[int, int, float]]


@dataclass(frozen=True)
class Parameters:
    """OLS's own settings, checked."""

    workers: int | None = None
    alfa: float = 0.0
    beta: float = 1.0
    delta: float = 0.0
    gamma: float | None = None
    improvement: float | None = None

    @classmethod
    def read(cls, options: Options) -> Parameters:
        """From `options.settings`; InvalidInput names every one that is out of range."""
        faults: list[str] = []
        values: dict[str, float] = {}
        for name, least, most in (
            ("workers", 1, math.inf),
            ("alfa", 0, 1),
            ("beta", 0, 1),
            ("delta", 0, 1),
            ("gamma", 1, math.inf),
            ("improvement", 0, 100),
        ):
            if (given := options.settings.get(name)) is None:
                continue
            whole = name == "workers"
            if not isinstance(given, int if whole else (int, float)) or isinstance(given, bool):
                faults.append(f"setting {name!r} is {given!r}; it must be a {'whole ' if whole else ''}number")
            elif not least <= given <= most or math.isinf(given):
                limits = f"{least} or more" if math.isinf(most) else f"between {least} and {most}"
                faults.append(f"setting {name!r} is {given:g}; it must be {limits}")
            else:
                values[name] = given
        if faults:
            raise InvalidInput(faults)
        return cls(**values)  # type: ignore[arg-type]  # workers was checked to be an int


def tasks_per_worker_max(tasks: int, workers: int, alfa: float) -> int:
    """The most tasks that a worker may hold."""
    least = math.ceil(tasks / workers)
    return least + math.ceil(alfa * ((tasks - workers + 1) - least))


def worker_load_max(total_load: float, workers: int, gamma: float | None) -> float:
    """The most load that a worker may hold; infinite when gamma is unset."""
    return math.inf if gamma is None else float(math.floor(gamma * total_load / workers))


def nodes_to_use(workers: int, nodes: int, beta: float) -> int:
    """Over how many nodes the workers are spread."""
    usable = min(nodes, workers)
    least = math.ceil(workers / usable)
    return min(usable, least + math.ceil(beta * (usable - least)))


def workers_per_node_max(workers: int, nodes_used: int, delta: float) -> int:
    """The most workers that a node may hold."""
    least = math.ceil(workers / nodes_used)
    return least + math.ceil(delta * ((workers - nodes_used + 1) - least))


def schedule(problem: Problem, options: Options, *, adds_node_load: bool = True) -> Placement:
    """OLS's plan, or the plan of `even` where OLS's does not save the improvement asked for."""
    parameters = Parameters.read(options)
    graph = problem.graph
    round_robin = even.schedule(problem, options)
    order = np.argsort(-graph.rate, kind="stable")
    pairs: Pairs = list(
        zip(graph.source[order].tolist(), graph.target[order].tolist(), graph.rate[order].tolist(), strict=True)
    )
    if not pairs:
        return round_robin
    name = "ols" if adds_node_load else "ols-as-shipped"
    workers = min(parameters.workers or problem.task_count, problem.task_count, int(problem.slots.sum()))
    worker_of = _tasks_to_workers(problem, parameters, workers, pairs, name)
    node_of, notes = _workers_to_nodes(problem, parameters, workers, worker_of, name, adds_node_load)
    plan = _seated(problem, worker_of, node_of, round_robin, notes)
    if parameters.improvement is None or _worth_adopting(problem, round_robin.node, plan.node, parameters.improvement):
        return plan
    note = f"the plan of 'even' is kept: OLS's does not save {parameters.improvement:g} % of its traffic"
    return Placement(round_robin.node, round_robin.worker, notes=(note,))


def _tasks_to_workers(problem: Problem, parameters: Parameters, workers: int, pairs: Pairs, name: str) -> Longs:
    """Phase 1: the worker of each task, -1 for tasks in no pair."""
    graph = problem.graph
    load_max = worker_load_max(float(graph.load.sum()), workers, parameters.gamma) * (1 + SLACK)
    count_max = tasks_per_worker_max(graph.task_count, workers, parameters.alfa)
    packing = PairwisePacking(graph.load, np.full(workers, load_max), np.full(workers, count_max))
    packing.join(pairs)
    try:
        packing.pack(pairs)
    except NoBin as none:
        msg = (
            f"scheduler {name!r} found no worker for task {graph.ids[none.item]!r} of load {graph.load[none.item]:g}: "
            f"with gamma {parameters.gamma} a worker takes load {load_max:g}; raise gamma or leave it out"
        )
        raise NoPlanFound(msg) from none
    packing.fill_empty(workers)
    return np.array(packing.bin_of, dtype=np.int64)


def _workers_to_nodes(
    problem: Problem, parameters: Parameters, workers: int, worker_of: Longs, name: str, adds_node_load: bool
) -> tuple[Longs, tuple[str, ...]]:
    """Phase 2: the node of each worker, -1 for empty workers."""
    graph = problem.graph
    used = np.unique(worker_of[worker_of >= 0])
    wanted = nodes_to_use(workers, problem.node_count, parameters.beta)
    count_max, notes = _seats(problem, len(used), workers_per_node_max(workers, wanted, parameters.delta))
    load: Floats = np.bincount(worker_of[worker_of >= 0], graph.load[worker_of >= 0], minlength=workers).astype(float)
    packing = PairwisePacking(load, problem.capacity, count_max, adds_load=adds_node_load)
    pairs = _worker_pairs(problem, worker_of, workers)
    packing.join(pairs)
    try:
        packing.pack(pairs)
        for worker in used.tolist():
            if packing.bin_of[worker] < 0:
                packing.place_alone(worker)
    except NoBin as none:
        raise _no_node(problem, packing, load, none.item, count_max, name) from none
    packing.fill_empty(wanted)
    return np.array(packing.bin_of, dtype=np.int64), notes


def _worker_pairs(problem: Problem, worker_of: Longs, workers: int) -> Pairs:
    """Pairs of workers with what they exchange in both directions, heaviest first."""
    graph = problem.graph
    ends = np.stack([worker_of[graph.source], worker_of[graph.target]])
    low, high = ends.min(axis=0), ends.max(axis=0)
    apart = low != high
    key, position = np.unique(low[apart] * workers + high[apart], return_inverse=True)
    traffic = np.bincount(position, graph.rate[apart], minlength=len(key))
    order = np.argsort(-traffic, kind="stable")
    first, second = np.divmod(key[order], workers)
    return list(zip(first.tolist(), second.tolist(), traffic[order].tolist(), strict=True))


def _seats(problem: Problem, workers: int, per_node: int) -> tuple[Longs, tuple[str, ...]]:
    """The most workers on each node; `per_node` is raised until all workers have a seat somewhere."""
    slots = problem.slots.astype(np.int64)
    enough = per_node
    while int(np.minimum(slots, enough).sum()) < workers:  # ends: there are at least as many slots as workers
        enough += 1
    note = f"up to {enough} workers on a node instead of {per_node}: the nodes have unequal slots"
    return np.minimum(slots, enough), (note,) if enough > per_node else ()


def _no_node(
    problem: Problem, packing: PairwisePacking, load: Floats, worker: int, count_max: Longs, name: str
) -> NoPlanFound:
    room = np.where(packing.count < count_max, problem.capacity - packing.load, -1.0)
    best = int(np.argmax(room))
    left = f"load {max(0.0, room[best]):g} on {problem.cluster.nodes[best].name!r}" if room[best] >= 0 else "no slot"
    return NoPlanFound(
        f"scheduler {name!r} found no node for a worker of load {load[worker]:g}; the most that is left is {left}; "
        f"set more workers, raise delta, or try --scheduler best"
    )


def _seated(
    problem: Problem, worker_of: Longs, node_of: Longs, round_robin: Placement, notes: tuple[str, ...]
) -> Placement:
    """Nodes and workers counted from 0 on each node; tasks that OLS did not place keep their place of `even`."""
    assert round_robin.worker is not None  # noqa: S101 - `even` always decides workers
    seat = np.zeros(len(node_of), dtype=np.int32)
    taken = np.zeros(problem.node_count, dtype=np.int32)
    for worker, node in enumerate(node_of.tolist()):
        if node >= 0:
            seat[worker] = taken[node]
            taken[node] += 1
    placed = worker_of >= 0
    where: Ints = np.where(placed, node_of[worker_of], round_robin.node).astype(np.int32)
    return Placement(where, np.where(placed, seat[worker_of], round_robin.worker).astype(np.int32), notes=notes)


def _worth_adopting(problem: Problem, current: Ints, new: Ints, improvement: float) -> bool:
    """Whether the new plan relieves an overloaded node or saves the percentage of inter-node traffic."""
    before = np.bincount(current, problem.graph.load, minlength=problem.node_count)
    after = np.bincount(new, problem.graph.load, minlength=problem.node_count)
    relieved = (before > problem.capacity) & (after < before)
    return bool(relieved.any()) or node_cost(problem, new) <= node_cost(problem, current) * (1 - improvement / 100)
