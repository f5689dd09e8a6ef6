"""Placements whose tasks fit the workers of their nodes, where the search for nodes found one whose tasks do not.

It happens only on nodes that state how many slots they have: large tasks may not pack into them although their sum
would. Then tasks are moved off the nodes that were crowded, and the search is asked again with less capacity on them,
from fresh seeds as long as that helps; what the other schedulers found and a packing into slots compete with its
answers, and on small problems a walk of moves and swaps ends the work. All of it ends with the deadline, except that a
placement with seats goes before it: where none was found yet, every step is done once. The first answer's bound stays
true: it is a bound on placements that need not fit workers. Rejected: workers as nodes of the native search, which
makes ten times as many of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import SEED_LIMIT, Deadline, Options, Placement, Problem
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.search import annealed
from penstock.optimise.seats import packs_at_once, seats_of, unseated

SEATS_SHARE = 0.3  # of theta, which whoever asks keeps for this where slots are stated
SHRINKING = (0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)  # of the capacity of a node that was crowded
PROVED = 1e-9
ROUND_SEED_STEP = 0x9E3779B1  # so that no two rounds draw from neighbouring seeds
SLOT_COMPARISONS_MAX = 50_000_000  # tasks x slots that the packing may look at
MOVE_CELLS_MAX = 20_000_000  # tasks x nodes
MOVE_TRIES = 50  # moves whose packing is looked at before one is made
TINY_LOAD = 1e-12
WALK_TASKS_MAX = 64
WALK_STEPS = 60  # for each task
COOLEST = 1e-3  # of the first temperature


def seatable(
    problem: Problem, options: Options, found: Placement, deadline: Deadline, seconds: float, also: Sequence[Ints] = ()
) -> Placement:
    """The placement, or the cheapest found whose tasks have seats; NoPlanFound where none was.

    `seconds` is what was kept for this: searches are as large as that says, and the deadline may cut them. `also` are
    dearer placements of the same search.
    """
    if not unseated(problem, found.node, options):
        return found
    seeking = _Seeking(problem, options, deadline, seconds)
    seeking.offer(also)
    seeking.offer(_moved_off(seeking, found.node))
    if not seeking.is_over:
        until = None if seeking.best is None else deadline
        seeking.offer([*annealed.others(problem, options, seconds, until), *_by_slots(problem)])
    _with_less(seeking, found.node)
    if problem.task_count <= WALK_TASKS_MAX and not seeking.is_over:
        seeking.offer(_walked(seeking, [found.node, *seeking.seen]))
    if seeking.best is None:
        k = unseated(problem, found.node, options)[0]
        node = problem.cluster.nodes[k]
        msg = (
            f"no placement of {problem.task_count} tasks on {problem.node_count} nodes was found whose tasks fit the "
            f"workers: the tasks of node {node.name!r}, one of the crowded ones, do not pack into its {node.slots} "
            f"slots, each of which carries {node.worker_capacity:g}; give it more slots, split large tasks, or add "
            "nodes"
        )
        raise NoPlanFound(msg)
    bound = min(found.lower_bound, seeking.cost)
    cut = (seeking.cut or deadline.remaining <= 0) and annealed.CUT_NOTE not in found.notes
    notes = (*found.notes, annealed.CUT_NOTE) if cut else found.notes
    is_proved = found.proved_optimal and seeking.cost - bound <= PROVED * seeking.cost
    return Placement(seeking.best, None, bound, is_proved, notes)


@dataclass(eq=False)
class _Seeking:
    """The cheapest placement with seats so far, and everything that was looked at."""

    problem: Problem
    options: Options
    deadline: Deadline
    seconds: float
    best: Ints | None = None
    cost: float = math.inf
    seen: list[Ints] = field(default_factory=list)
    cut: bool = False  # whether the clock cut one of the searches

    def offer(self, nodes: Sequence[Ints]) -> None:
        """Keep the cheapest of them that fits and whose tasks have seats."""
        self.seen += nodes
        for node in nodes:
            if not is_feasible(self.problem, node) or (cost := node_cost(self.problem, node)) >= self.cost:
                continue
            if not unseated(self.problem, node, self.options):
                self.best, self.cost = node, cost

    @property
    def is_over(self) -> bool:
        """Whether there is an answer and no time left for a better one."""
        return self.best is not None and self.deadline.remaining <= 0


def _with_less(seeking: _Seeking, crowded: Ints) -> None:
    """Offer the search's answers while crowded nodes have less and less, from fresh seeds while that helps."""
    rounds = 0
    while not seeking.is_over:
        before = seeking.cost
        seed = (seeking.options.seed + rounds * ROUND_SEED_STEP) % SEED_LIMIT
        _shrunk(seeking, crowded, seed)
        rounds += 1
        if seeking.cost >= before or seeking.deadline.remaining <= 0:
            return


def _shrunk(seeking: _Seeking, node: Ints, seed: int) -> None:
    problem, share = seeking.problem, np.ones(seeking.problem.node_count)
    steps = np.zeros(problem.node_count, dtype=int)
    asked = replace(seeking.options, seed=seed, theta=seeking.seconds / len(SHRINKING))
    for _ in SHRINKING:
        if seeking.is_over or not (full := unseated(problem, node, seeking.options)):
            return
        for k in full:
            share[k] = SHRINKING[min(steps[k], len(SHRINKING) - 1)]
            steps[k] += 1
        nodes = tuple(
            replace(n, capacity=n.capacity * part)
            for n, part in zip(problem.cluster.nodes, share.tolist(), strict=True)
        )
        smaller = replace(problem, cluster=replace(problem.cluster, nodes=nodes))
        try:
            found = annealed.find(smaller, asked)
        except UserError:
            return
        seeking.cut |= annealed.CUT_NOTE in found.notes
        node = found.node
        seeking.offer([node, *_moved_off(seeking, node)])


def _moved_off(seeking: _Seeking, node: Ints) -> list[Ints]:
    """The placement with tasks moved from crowded nodes to others, least traffic for the load first; if that ends."""
    problem, options = seeking.problem, seeking.options
    graph, count = problem.graph, problem.node_count
    if problem.task_count * count > MOVE_CELLS_MAX:
        return []
    node, adjacency = node.copy(), graph.adjacency
    row = np.repeat(np.arange(problem.task_count), np.diff(adjacency.start))
    near = np.zeros((problem.task_count, count))  # traffic of each task with each node
    np.add.at(near, (row, node[adjacency.neighbour]), adjacency.weight)
    used = np.bincount(node, graph.load, minlength=count).astype(np.float64)
    held = np.bincount(node, graph.memory_mb, minlength=count).astype(np.float64)
    for k in unseated(problem, node, options):
        while not _fits(problem, k, tasks := np.flatnonzero(node == k)):
            if seeking.is_over or (move := _cheapest_move(problem, node, k, near[tasks], used, held)) is None:
                return []
            t, j = move
            node[t] = j
            for at, sign in ((k, -1.0), (j, 1.0)):
                used[at] += sign * graph.load[t]
                held[at] += sign * graph.memory_mb[t]
                ends = slice(adjacency.start[t], adjacency.start[t + 1])
                np.add.at(near[:, at], adjacency.neighbour[ends], sign * adjacency.weight[ends])
    return [node]


def _cheapest_move(
    problem: Problem, node: Ints, k: int, near: Floats, used: Floats, held: Floats
) -> tuple[int, int] | None:
    """A task of node k and another node that has room and a seat for it, or None."""
    graph, tasks = problem.graph, np.flatnonzero(node == k)
    fits = used[None, :] + graph.load[tasks][:, None] <= problem.capacity[None, :]
    fits &= held[None, :] + graph.memory_mb[tasks][:, None] <= problem.memory_mb[None, :]
    fits[:, k] = False
    worth = (near[:, [k]] - near) / np.maximum(graph.load[tasks], TINY_LOAD)[:, None]
    order = np.argsort(np.where(fits, worth, math.inf), axis=None, kind="stable")
    for cell in order[: min(MOVE_TRIES, int(fits.sum()))].tolist():
        at, j = divmod(cell, problem.node_count)
        there = np.append(np.flatnonzero(node == j), tasks[at])
        if _fits(problem, j, there):
            return int(tasks[at]), j
    return None


def _fits(problem: Problem, k: int, tasks: Longs) -> bool:
    """Whether a quick packing finds seats for tasks on a node: this is asked of every move, and a search takes long."""
    most = int(problem.workers_limit[k])
    return len(tasks) <= most or packs_at_once(problem.graph.load[tasks], float(problem.worker_capacity[k]), most)


def _by_slots(problem: Problem) -> list[Ints]:
    """First fits decreasing over slots: by load alone, and by traffic among the slots with room."""
    found = [_packed(problem, talkative=talkative) for talkative in (False, True)]
    return [node for node in found if node is not None]


def _packed(problem: Problem, *, talkative: bool) -> Ints | None:
    graph, count = problem.graph, problem.node_count
    slots = np.minimum(problem.workers_limit, problem.task_count)
    if float(slots.sum()) * problem.task_count > SLOT_COMPARISONS_MAX:
        return None
    of_slot = np.repeat(np.arange(count), slots)
    limit, carried = problem.worker_capacity[of_slot], np.zeros(len(of_slot))
    tasks, used, held = np.zeros(len(of_slot), dtype=int), np.zeros(count), np.zeros(count)
    node = np.full(problem.task_count, -1, dtype=np.int32)
    adjacency = graph.adjacency
    for t in np.argsort(-graph.load, kind="stable").tolist():
        need = graph.load[t]
        fits = (tasks == 0) | (carried + need <= limit)
        fits &= (used + need <= problem.capacity)[of_slot]
        fits &= (held + graph.memory_mb[t] <= problem.memory_mb)[of_slot]
        fitting = np.flatnonzero(fits)
        if len(fitting) == 0:
            return None
        near = np.zeros(count)
        if talkative:
            row = slice(adjacency.start[t], adjacency.start[t + 1])
            known = node[adjacency.neighbour[row]] >= 0
            np.add.at(near, node[adjacency.neighbour[row]][known], adjacency.weight[row][known])
        best = fitting[np.lexsort((-carried[fitting], -near[of_slot[fitting]]))[0]]
        k = of_slot[best]
        node[t] = k
        carried[best] += need
        tasks[best] += 1
        used[k] += need
        held[k] += graph.memory_mb[t]
    return node


def _walked(seeking: _Seeking, starts: list[Ints]) -> list[Ints]:
    """The cheapest placement with seats on a seeded walk of moves and swaps from the least bad start, if any."""
    problem, options = seeking.problem, seeking.options
    walk = _Walk(problem, options)
    node = min(starts, key=walk.price).copy()
    price, best = walk.price(node), None
    least = price if walk.lacking(node) == 0.0 else math.inf
    best = node.copy() if math.isfinite(least) else None
    draw = np.random.default_rng(options.seed)
    steps = WALK_STEPS * problem.task_count
    for step in range(steps):
        if seeking.is_over:
            break
        after = node.copy()
        t = int(draw.integers(problem.task_count))
        if draw.random() < 0.5:
            after[t] = draw.integers(problem.node_count)
        else:
            u = int(draw.integers(problem.task_count))
            after[t], after[u] = node[u], node[t]
        then = walk.price(after)
        heat = walk.unit * COOLEST ** (step / steps)
        if then <= price or draw.random() < math.exp((price - then) / heat):
            node, price = after, then
            if price < least and walk.lacking(node) == 0.0:
                least, best = price, node.copy()
    return [] if best is None else [best]


@dataclass(eq=False)
class _Walk:
    """What a placement costs where a shortage of anything costs more than all traffic."""

    problem: Problem
    options: Options
    known: dict[tuple[int, bytes], float] = field(default_factory=dict)
    unit: float = 1.0

    def __post_init__(self) -> None:
        rates = self.problem.graph.rate
        self.unit = float(rates.mean()) if len(rates) and rates.sum() > 0 else 1.0

    def price(self, node: Ints) -> float:
        """Traffic between nodes, and a step and a slope for what is lacking."""
        return node_cost(self.problem, node) + self.unit * 20.0 * self.lacking(node)

    def lacking(self, node: Ints) -> float:
        """How much the nodes lack, in shares of what they have; 0 exactly where everything fits."""
        found = 0.0 if is_feasible(self.problem, node) else 1.0
        load = np.bincount(node, self.problem.graph.load, minlength=self.problem.node_count)
        found += float(np.maximum(0.0, load / self.problem.capacity - 1.0).sum())
        for k in np.flatnonzero(np.bincount(node, minlength=self.problem.node_count) > self.problem.workers_limit):
            tasks = np.flatnonzero(node == k)
            key = (int(k), tasks.tobytes())
            if key not in self.known:
                seats = seats_of(self.problem, int(k), tasks, self.options)
                self.known[key] = 0.0 if seats is not None else 1.0
            found += self.known[key]
        return found
