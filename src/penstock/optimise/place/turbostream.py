"""`turbostream`: TurboStream's coarse-grained scheduler (paper 003: Wu et al., ICDCS 2018, section V).

Task consolidation (V.B, Algorithm 1) pairs each task with the unvisited neighbour that it talks to most and repeats
this on the parents, which gives a binary tree. Task assignment (V.C, Algorithm 2) splits the parents in two by a
breadth-first search from every starting task, keeps the split of least traffic among those that are balanced, and goes
on with both halves until each has one node. Inside a node tasks go to its workers round-robin, because the paper's
transport makes traffic there cheap. The method balances load and looks at no capacity, so its plan may overload a
node; the door reports that.

Settings: `task_num_threshold` (parents below which consolidation stops), `balance_factor` (0.05) and `kernighan_lin`
(false). Their meaning and what the paper leaves open are in docs/decisions/0034-published-schedulers.md.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.model.taskgraph import Ints, Longs, TaskGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.steps.kernighan_lin import improved
from penstock.optimise.steps.kway import induced

BALANCE_FACTOR = 0.05
PARENTS_PER_NODE = 10
PARENTS_MIN = 20
STEPS_MAX = 2_000_000  # visits of tasks and edges that one split may take over all its starts
LEVELS_MAX = 64
ROUNDING = 1e-12  # shares of a third added up in floats must still compare as thirds


@dataclass(frozen=True)
class Settings:
    """The scheduler's own parameters."""

    task_num_threshold: int
    balance_factor: float
    kernighan_lin: bool

    @classmethod
    def of(cls, options: Options, nodes: int) -> Settings:
        """Parameters asked for, or their defaults; InvalidInput for values that cannot be."""
        threshold = options.settings.get("task_num_threshold", max(PARENTS_MIN, PARENTS_PER_NODE * nodes))
        factor = options.settings.get("balance_factor", BALANCE_FACTOR)
        swaps = options.settings.get("kernighan_lin", False)
        if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
            msg = f"task_num_threshold is {threshold!r}; it must be a whole number, 1 or more"
            raise InvalidInput(msg)
        if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < 1:
            msg = f"balance_factor is {factor!r}; it must be above 0 and below 1"
            raise InvalidInput(msg)
        if not isinstance(swaps, bool):
            msg = f"kernighan_lin is {swaps!r}; it must be true or false"
            raise InvalidInput(msg)
        return cls(threshold, float(factor), swaps)


def schedule(problem: Problem, options: Options) -> Placement:
    """Consolidate, assign parents to nodes, and deal each node's tasks out to its workers."""
    settings = Settings.of(options, problem.node_count)
    smallest_share = problem.graph.load.sum() * problem.slots.min() / problem.slots.sum()
    weight_max = math.inf if "task_num_threshold" in options.settings else float(smallest_share)
    levels = consolidation_tree(problem.graph, settings.task_num_threshold, weight_max)
    node, all_starts = assign(levels[-1].graph, problem.slots, settings.balance_factor)
    for level in reversed(levels):
        if settings.kernighan_lin:
            node = improved(level.graph, node, problem.slots, settings.balance_factor)
        node = node[level.parent]
    if settings.kernighan_lin:
        node = improved(problem.graph, node, problem.slots, settings.balance_factor)
    note = "too many parents to start a split from each of them; starts were spaced evenly"
    return Placement(node, round_robin(node, problem.slots), notes=() if all_starts else (note,))


@dataclass(frozen=True, eq=False)
class Level:
    """One level of the tree: the parent of each task below, and the graph of the parents."""

    parent: Ints
    graph: TaskGraph


def consolidation_tree(graph: TaskGraph, threshold: int, weight_max: float = math.inf) -> list[Level]:
    """Levels of the binary tree from the tasks upwards: the first always, more while there are threshold parents."""
    levels: list[Level] = []
    while len(levels) < LEVELS_MAX and (not levels or graph.task_count >= threshold):
        parent = consolidated(graph)
        parents = graph.quotient(parent)
        if levels and (parents.task_count == graph.task_count or parents.load.max() > weight_max):
            break
        levels.append(Level(parent, parents))
        graph = parents
    return levels


def consolidated(graph: TaskGraph) -> Ints:
    """Algorithm 1, lines 2 to 20: the parent of each task, numbered in the order in which they are made."""
    adjacency = graph.adjacency
    parent: Ints = np.full(graph.task_count, -1, dtype=np.int32)
    made = 0
    for task in range(graph.task_count):
        if parent[task] >= 0:
            continue
        row = slice(adjacency.start[task], adjacency.start[task + 1])
        unvisited = parent[adjacency.neighbour[row]] < 0
        parent[task] = made
        if unvisited.any():  # the first unvisited in descending order of traffic is the heaviest unvisited
            heaviest = np.argmax(np.where(unvisited, adjacency.weight[row], -1.0))
            parent[adjacency.neighbour[row][heaviest]] = made
        made += 1
    return parent


def assign(graph: TaskGraph, slots: Ints, factor: float) -> tuple[Ints, bool]:
    """Node of each parent by repeated halving, and whether every split tried all starting tasks."""
    node: Ints = np.zeros(graph.task_count, dtype=np.int32)
    all_starts = True
    waiting = [(np.arange(graph.task_count), np.arange(len(slots)))]
    while waiting:
        tasks, nodes = waiting.pop()
        if len(tasks) == 0:
            continue
        if len(nodes) == 1:
            node[tasks] = nodes[0]
            continue
        half = math.ceil(len(nodes) / 2)
        target = float(slots[nodes[:half]].sum() / slots[nodes].sum())
        splitting = Split(graph, tasks, target, factor)
        gathered = splitting.best()
        all_starts &= splitting.starts == len(tasks)
        waiting.append((tasks[~gathered], nodes[half:]))
        waiting.append((tasks[gathered], nodes[:half]))
    return node, all_starts


class Split:
    """Algorithm 2 on some of the graph's tasks, which are renumbered 0, 1, ... in here."""

    def __init__(self, graph: TaskGraph, tasks: Longs, target: float, factor: float) -> None:
        self.target, self.factor = target, factor
        start, neighbour, rate = induced(graph, tasks)
        self.neighbours = [neighbour[start[i] : start[i + 1]].tolist() for i in range(len(tasks))]
        self.row, self.column, self.rate = np.repeat(np.arange(len(tasks)), np.diff(start)), neighbour, rate
        weight = graph.load[tasks]
        if weight.sum() <= 0:  # nothing to balance but numbers
            weight = np.ones(len(tasks))
        self.share: list[float] = (weight / weight.sum()).tolist()
        self.starts = min(len(tasks), max(1, STEPS_MAX // (len(tasks) + len(neighbour))))

    def best(self) -> NDArray[np.bool_]:
        """The tasks of the first half: least traffic among balanced splits, else the best balanced."""
        chosen: tuple[tuple[float, float], NDArray[np.bool_]] | None = None
        count = len(self.share)
        for start in np.unique(np.linspace(0, count - 1, self.starts).astype(np.int64)).tolist():
            gathered, balance = self.gather(start)
            off = abs(balance - self.target)
            key = (0.0 if off < self.factor else round(off / ROUNDING) * ROUNDING, self.cut(gathered))
            if chosen is None or key < chosen[0]:
                chosen = (key, gathered)
        if chosen is None:
            return np.zeros(count, dtype=bool)
        return chosen[1]

    def gather(self, start: int) -> tuple[NDArray[np.bool_], float]:
        """Lines 5 to 25: breadth-first from one task, taking each that brings the balance nearer to the target."""
        gathered = np.zeros(len(self.share), dtype=bool)
        visited = bytearray(len(self.share))
        visited[start] = 1
        queue = deque([start])
        balance, lowest = 0.0, 0
        while queue and balance < self.target - ROUNDING:
            task = queue.popleft()
            if abs(balance + self.share[task] - self.target) < abs(balance - self.target) - ROUNDING:
                gathered[task] = True
                balance += self.share[task]
                for neighbour in self.neighbours[task]:
                    if not visited[neighbour]:
                        visited[neighbour] = 1
                        queue.append(neighbour)
            if not queue and abs(balance - self.target) > self.factor:
                lowest = visited.find(0, lowest)
                if lowest < 0:
                    break
                visited[lowest] = 1
                queue.append(lowest)
        return gathered, balance

    def cut(self, gathered: NDArray[np.bool_]) -> float:
        """Traffic between the two halves; each edge appears in both directions."""
        return float(self.rate[gathered[self.row] != gathered[self.column]].sum()) / 2


def round_robin(node: Ints, slots: Ints) -> Ints:
    """Worker of each task: the tasks of a node in order, over its worker slots."""
    worker: Ints = np.zeros(len(node), dtype=np.int32)
    for k in np.unique(node).tolist():
        tasks = np.flatnonzero(node == k)
        worker[tasks] = np.arange(len(tasks)) % slots[k]
    return worker
