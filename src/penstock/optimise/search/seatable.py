"""Placements whose tasks fit the workers of their nodes, where the search for nodes found one whose tasks do not.

It happens only on nodes that state how many slots they have: large tasks may not pack into them although their sum
would. Then the search is asked again with less capacity on the nodes that were crowded; what the other schedulers found
and a packing into slots compete with its answers, and on small problems a walk of moves and swaps ends the work. The
first answer's bound stays true: it is a bound on placements that need not fit workers. Rejected: workers as nodes of
the native search, which makes ten times as many of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.errors import NoPlanFound, UserError
from penstock.model.taskgraph import Ints
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.objective import is_feasible, node_cost
from penstock.optimise.search import annealed
from penstock.optimise.seats import seats_of, unseated

SHRINKING = (0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5)  # of the capacity of a node that was crowded
PROVED = 1e-9
SLOT_COMPARISONS_MAX = 50_000_000  # tasks x slots that the packing may look at
WALK_TASKS_MAX = 64
WALK_STEPS = 60  # for each task
COOLEST = 1e-3  # of the first temperature


def seatable(problem: Problem, options: Options, found: Placement) -> Placement:
    """The placement, or the cheapest found whose tasks have seats; NoPlanFound where none was."""
    if not unseated(problem, found.node, options):
        return found
    theta = annealed.THETA_DEFAULT if options.theta is None else options.theta
    candidates = [*annealed.others(problem, options, theta), *_by_slots(problem)]
    smaller = _with_less(problem, options, found.node, theta)
    candidates += [placement.node for placement in smaller]
    holding = [node for node in candidates if _holds(problem, node, options)]
    if problem.task_count <= WALK_TASKS_MAX:
        holding += _walked(problem, options, [found.node, *candidates])
    if not holding:
        k = unseated(problem, found.node, options)[0]
        node = problem.cluster.nodes[k]
        msg = (
            f"no placement of {problem.task_count} tasks on {problem.node_count} nodes was found whose tasks fit the "
            f"workers: the tasks of node {node.name!r}, one of the crowded ones, do not pack into its {node.slots} "
            f"slots, each of which carries {node.worker_capacity:g}; give it more slots, split large tasks, or add "
            "nodes"
        )
        raise NoPlanFound(msg)
    cheapest = min(holding, key=lambda node: node_cost(problem, node))
    cost = node_cost(problem, cheapest)
    bound = min(found.lower_bound, cost)
    cut = any(annealed.CUT_NOTE in placement.notes for placement in smaller) and annealed.CUT_NOTE not in found.notes
    notes = (*found.notes, annealed.CUT_NOTE) if cut else found.notes
    return Placement(cheapest, None, bound, found.proved_optimal and cost - bound <= PROVED * cost, notes)


def _holds(problem: Problem, node: Ints, options: Options) -> bool:
    return is_feasible(problem, node) and not unseated(problem, node, options)


def _with_less(problem: Problem, options: Options, node: Ints, theta: float) -> list[Placement]:
    """The search's answers while nodes that its last answer crowded have less and less."""
    share = np.ones(problem.node_count)
    rounds = np.zeros(problem.node_count, dtype=int)
    found: list[Placement] = []
    for _ in SHRINKING:
        if not (full := unseated(problem, node, options)):
            break
        for k in full:
            share[k] = SHRINKING[min(rounds[k], len(SHRINKING) - 1)]
            rounds[k] += 1
        nodes = tuple(
            replace(n, capacity=n.capacity * part)
            for n, part in zip(problem.cluster.nodes, share.tolist(), strict=True)
        )
        smaller = replace(problem, cluster=replace(problem.cluster, nodes=nodes))
        try:
            found.append(annealed.find(smaller, replace(options, theta=theta / len(SHRINKING))))
        except UserError:
            break
        node = found[-1].node
    return found


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


def _walked(problem: Problem, options: Options, starts: list[Ints]) -> list[Ints]:
    """The cheapest placement with seats on a seeded walk of moves and swaps from the least bad start, if any."""
    walk = _Walk(problem, options)
    node = min(starts, key=walk.price).copy()
    price, best = walk.price(node), None
    least = price if walk.lacking(node) == 0.0 else math.inf
    best = node.copy() if math.isfinite(least) else None
    draw = np.random.default_rng(options.seed)
    steps = WALK_STEPS * problem.task_count
    for step in range(steps):
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
    return [] if best is None or not _holds(problem, best, options) else [best]


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
