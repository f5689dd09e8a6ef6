"""`ischeduler`: I-Scheduler (paper 001: Eskandari, Mair, Huang, Eyers, FGCS 117, 2021, Algorithm 1), slips corrected.

The task graph is cut into k parts of roughly one node's size by k-way partition, some of the parts are fused into
single tasks, and the rest is cut again for the next smaller type of node, until at most phi vertices are left. Those
go to the exact solver. Where phi cannot be reached, or no time is allowed (theta 0), fusing goes on until nothing is
left, and every fused part goes to a node of the type that it was cut for. The second level is `workers.split_by_kway`.

    theta     seconds allowed for solving, 1 by default as in the paper's section 5; 0 is the heuristic alone
    phi       settings["phi"] overrides the threshold that `calibrate` finds for theta on this machine
    budget    settings["budget"]: seconds that may be spent, once, on measuring sizes for phi instead of extrapolating

The corrected slips and what the paper leaves open are in docs/decisions/0034-published-schedulers.md.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from penstock.errors import Infeasible, InvalidInput, NoPlanFound
from penstock.model.cluster import Cluster, Node
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Deadline, Options, Placement, Problem
from penstock.optimise.steps.calibrate import BUDGET_SECONDS_MAX, Solve, calibrated
from penstock.optimise.steps.growth import Threshold
from penstock.optimise.steps.kway import kway, repaired

THETA_DEFAULT = 1.0
SOLVER = "penstock.optimise.exact.solver"
REPAIRS_MAX = 40  # attempts to make every part fit, each with more additional parts than the last


@dataclass(frozen=True, slots=True)
class NodeType:
    """Nodes of one capacity: the paper's (c, q)."""

    capacity: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass of the loop at line 26, with the paper's names."""

    t: int
    f: int
    c: float
    q: int
    k: int
    alpha: int
    optimising: bool


@dataclass
class Fusion:
    """What the first level has fused so far."""

    left: Longs
    parts: list[Longs] = field(default_factory=list)
    node: list[int] = field(default_factory=list)  # the node of relative capacity for each part
    optimising: bool = True
    iterations: list[Iteration] = field(default_factory=list)

    def fuse(self, parts: list[Longs], nodes: Sequence[int]) -> None:
        """Make one vertex of each part's tasks."""
        self.parts += parts
        self.node += nodes
        self.left = np.setdiff1d(self.left, np.concatenate(parts), assume_unique=True)


def prepare(options: Options) -> None:
    """Find phi for this machine, once, before times are measured."""
    if _asked_phi(options) is None and _theta(options) > 0:
        _calibrated_phi(options)


def schedule(problem: Problem, options: Options) -> Placement:
    """Fuse, then solve or map; the worker level is left to the k-way split."""
    problem.require_plausible()
    asked = _asked_phi(options)
    if _theta(options) <= 0:
        return mapped(problem, first_level(problem, 0, options.seed))
    found = _calibrated_phi(options) if asked is None else Threshold(asked)
    placement = schedule_with(problem, found.phi, _theta(options), options.seed, _solver())
    return replace(placement, notes=(*placement.notes, found.note)) if found.note else placement


def _theta(options: Options) -> float:
    return THETA_DEFAULT if options.theta is None else options.theta


def _solver() -> Solve:
    """The exact solver; imported late because it is heavy and of no use to the heuristic."""
    solve: Solve = importlib.import_module(SOLVER).solve
    return solve


def _calibrated_phi(options: Options) -> Threshold:
    source = Path(str(importlib.import_module(SOLVER).__file__))
    native = Path(str(importlib.import_module("penstock._core").__file__))
    parts = [*source.parent.glob("*.py"), *source.parent.parent.glob("*.py")]
    return calibrated(_theta(options), _solver(), [native, *parts], budget=_budget(options))


def _budget(options: Options) -> float | None:
    asked = options.settings.get("budget")
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not 0 < asked <= BUDGET_SECONDS_MAX:
        msg = f"budget is {asked!r}; it must be a number of seconds above 0 and at most {BUDGET_SECONDS_MAX:g}"
        raise InvalidInput(msg)
    return float(asked)


def _asked_phi(options: Options) -> int | None:
    asked = options.settings.get("phi")
    if asked is not None and (budget := options.settings.get("budget")) is not None:
        msg = (
            f"budget is {budget!r} beside phi {asked!r}: it is for measuring phi, which is given; leave one of them out"
        )
        raise InvalidInput(msg)
    if asked is None or (isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0):
        return asked
    msg = f"phi is {asked!r}; it must be a whole number of tasks, 0 or more"
    raise InvalidInput(msg)


def schedule_with(problem: Problem, phi: int, theta: float, seed: int, solve: Solve) -> Placement:
    """The first level for a known phi; falls back to the heuristic with a note."""
    try:
        fusion = first_level(problem, phi, seed)
        if fusion.optimising:
            placement = solved(problem, fusion, Deadline.after(theta), seed, solve)
            told = f"phi {phi}: {len(fusion.parts)} parts fused, {len(fusion.left)} tasks left single for the solver"
            return replace(placement, notes=(*placement.notes, told))
        return mapped(problem, fusion)
    except (NoPlanFound, Infeasible) as refused:
        if phi == 0:
            raise
        placement = mapped(problem, first_level(problem, 0, seed))
        return Placement(placement.node, notes=(f"fell back to the heuristic for phi {phi}: {refused}",))


def node_types(problem: Problem) -> list[NodeType]:
    """Types of nodes, largest first; capacities contain the slack."""
    capacities = sorted(set(problem.capacity.tolist()), reverse=True)
    return [NodeType(c, tuple(np.flatnonzero(problem.capacity == c).tolist())) for c in capacities]


def first_level(problem: Problem, phi: int, seed: int) -> Fusion:
    """Lines 22 to 47: cut and fuse, one type of node after the other, until phi vertices or no tasks are left."""
    fusion = Fusion(left=np.arange(problem.task_count), optimising=phi > 0)
    types = node_types(problem)
    waiting = deque(types)
    while waiting:
        kind = waiting.popleft()
        t, f = len(fusion.left), len(fusion.parts)
        if t == 0 or t + f <= phi:
            return fusion
        k = max(1, math.ceil(problem.graph.load[fusion.left].sum() / kind.capacity))
        if k == 1:
            fusion.iterations.append(Iteration(t, f, kind.capacity, len(kind.nodes), 1, 1, fusion.optimising))
            fusion.fuse([fusion.left], kind.nodes[:1])
            return fusion
        if fusion.optimising and (k > phi or _tasks_per_part(problem, fusion.left, kind.capacity) <= 1):
            fusion.optimising, phi = False, 0
        alpha = _cut_and_fuse(problem, fusion, kind, k, phi, waiting[0].capacity if waiting else 0.0, seed)
        if fusion.optimising and alpha < len(kind.nodes):
            waiting.appendleft(NodeType(kind.capacity, kind.nodes[alpha:]))
    if len(fusion.left) and len(fusion.left) + len(fusion.parts) > phi:
        _refuse(problem, fusion, types)
    return fusion


def _tasks_per_part(problem: Problem, left: Longs, capacity: float) -> int:
    """The paper's c where it counts tasks."""
    mean = float(problem.graph.load[left].mean())
    return math.floor(capacity / mean) if mean > 0 else len(left)


def _cut_and_fuse(
    problem: Problem, fusion: Fusion, kind: NodeType, k: int, phi: int, next_capacity: float, seed: int
) -> int:
    """Lines 36 to 46; the number of parts fused."""
    t, f = len(fusion.left), len(fusion.parts)
    parts = cut(problem, fusion.left, k, kind.capacity, seed)
    wanted = len(parts)
    if fusion.optimising:
        wanted = math.ceil((t + f - phi) / (_tasks_per_part(problem, fusion.left, kind.capacity) - 1))
    alpha = min(wanted, len(kind.nodes), len(parts))
    fusion.iterations.append(Iteration(t, f, kind.capacity, len(kind.nodes), k, alpha, fusion.optimising))
    order = _by_worth(problem, parts, math.inf if fusion.optimising else next_capacity)
    fusion.fuse(order[:alpha], kind.nodes[:alpha])
    return alpha


def cut(problem: Problem, left: Longs, k: int, capacity: float, seed: int) -> list[Longs]:
    """The tasks left in k parts that fit the capacity, or in more where unequal loads cannot be repaired otherwise."""
    load = problem.graph.load
    heaviest = left[np.argmax(load[left])]
    if load[heaviest] > capacity:
        msg = (
            f"task {problem.graph.ids[heaviest]!r} of load {load[heaviest]:g} is left for nodes of capacity "
            f"{capacity:g} because I-Scheduler gave the larger ones to other tasks; try --scheduler best"
        )
        raise NoPlanFound(msg)
    weight: Floats | None = None if (load[left] == load[left[0]]).all() else load
    part = kway(problem.graph, left, k, seed, weight)
    for _ in range(REPAIRS_MAX):
        try:
            part = repaired(problem.graph, left, part, load, np.full(k, capacity))
        except NoPlanFound:
            k = min(len(left), k + max(1, k // 16))
            continue
        return [left[part == number] for number in np.unique(part).tolist()]
    return [np.array([task]) for task in left.tolist()]  # one task each always fits


def _by_worth(problem: Problem, parts: list[Longs], next_capacity: float) -> list[Longs]:
    """Parts that cannot wait for the next type of node first, then by internal traffic, then by load."""
    graph = problem.graph
    label: Ints = np.full(problem.task_count, -1, dtype=np.int32)
    for number, part in enumerate(parts):
        label[part] = number
    inside = (label[graph.source] == label[graph.target]) & (label[graph.source] >= 0)
    traffic = np.bincount(label[graph.source[inside]], graph.rate[inside], minlength=len(parts))
    load = np.array([graph.load[part].sum() for part in parts])
    waits = np.array([graph.load[part].max() <= next_capacity for part in parts])
    return [parts[number] for number in np.lexsort((-load, -traffic, waits)).tolist()]


def solved(problem: Problem, fusion: Fusion, deadline: Deadline, seed: int, solve: Solve) -> Placement:
    """SOLVE_MODEL: the solver places fused parts and single tasks; its proof holds if nothing was fused."""
    label: Longs = np.empty(problem.task_count, dtype=np.int64)
    for number, part in enumerate(fusion.parts):
        label[part] = number
    label[fusion.left] = len(fusion.parts) + np.arange(len(fusion.left))
    nodes = tuple(Node(node.name, node.capacity) for node in problem.cluster.nodes)
    reduced = Problem(problem.graph.quotient(label), Cluster(nodes))
    reduced.require_plausible()
    answer = solve(reduced, deadline, seed)
    node = answer.node[label].astype(np.int32)
    if fusion.parts:
        return Placement(node, notes=answer.notes)
    return Placement(node, lower_bound=answer.lower_bound, proved_optimal=answer.proved_optimal, notes=answer.notes)


def mapped(problem: Problem, fusion: Fusion) -> Placement:
    """DIRECT_MAPPING: each fused part on a node of the type that it was cut for."""
    node: Ints = np.full(problem.task_count, -1, dtype=np.int32)
    for part, place in zip(fusion.parts, fusion.node, strict=True):
        node[part] = place
    return Placement(node)


def _refuse(problem: Problem, fusion: Fusion, types: list[NodeType]) -> None:
    left = fusion.left
    msg = (
        f"I-Scheduler used up all {len(types)} types of nodes ({problem.node_count} nodes) and {len(left)} tasks of "
        f"load {problem.graph.load[left].sum():g} are left over, {problem.graph.ids[left[0]]!r} first: its "
        f"k-way parts are smaller than the nodes; add nodes, or try --scheduler best"
    )
    raise NoPlanFound(msg)
