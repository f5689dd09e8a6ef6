"""Moves and swaps that cut traffic and keep the balance, after Kernighan and Lin; TurboStream's option.

A task moves to the node that it talks to most when that lowers the traffic between nodes and the node stays within its
share of the load; where there is no room it changes places with a task there, if the exchange lowers the traffic.
Passes over all tasks go on until one changes nothing. Every change lowers the traffic, so the result is never worse
than the start (`test_every_plan_is_complete_and_repeats_and_swaps_never_cost`).
Kernighan and Lin's own tentative sequences of worsening swaps were left out: this is an extra, not the product's best.
"""

from __future__ import annotations

import numpy as np

from penstock.model.taskgraph import Floats, Ints, TaskGraph

PASSES_MAX = 4
MATES_MAX = 32  # tasks of the other node that are tried for an exchange
GAIN_MIN = 1e-9  # relative to all traffic: rounding must not look like progress


def improved(graph: TaskGraph, node: Ints, slots: Ints, factor: float) -> Ints:
    """The assignment after passes of moves and swaps; no node ends above (1 + factor) of its share if it was below."""
    exchange = _Exchange(graph, node, slots, factor)
    for _ in range(PASSES_MAX):
        changed = [exchange.try_task(task) for task in range(graph.task_count)]
        if not any(changed):
            break
    return exchange.node


class _Exchange:
    def __init__(self, graph: TaskGraph, node: Ints, slots: Ints, factor: float) -> None:
        self.graph = graph
        self.node = node.copy()
        self.count = len(slots)
        self.filled = np.bincount(node, graph.load, minlength=self.count)
        share = graph.load.sum() * slots / slots.sum()
        self.limit = np.maximum(share * (1 + factor), self.filled)
        self.gain_min = GAIN_MIN * max(graph.total_rate, 1e-300)

    def _traffic(self, task: int) -> Floats:
        """Traffic of a task with each node."""
        adjacency = self.graph.adjacency
        row = slice(adjacency.start[task], adjacency.start[task + 1])
        return np.bincount(self.node[adjacency.neighbour[row]], adjacency.weight[row], self.count).astype(np.float64)

    def try_task(self, task: int) -> bool:
        """Whether the task found a better place."""
        own = int(self.node[task])
        traffic = self._traffic(task)
        gain = traffic - traffic[own]
        other = int(np.argmax(gain))
        if gain[other] <= self.gain_min:
            return False
        if self.filled[other] + self.graph.load[task] <= self.limit[other]:
            self._move(task, other)
            return True
        mate = self._mate(task, other, float(gain[other]))
        if mate is None:
            return False
        self._move(task, other)
        self._move(mate, own)
        return True

    def _mate(self, task: int, other: int, gain: float) -> int | None:
        """The task on the other node whose exchange with this one saves most, if any saves anything and fits."""
        adjacency, load, own = self.graph.adjacency, self.graph.load, int(self.node[task])
        row = slice(adjacency.start[task], adjacency.start[task + 1])
        between = dict(zip(adjacency.neighbour[row].tolist(), adjacency.weight[row].tolist(), strict=True))
        best, saved = None, self.gain_min
        for mate in np.flatnonzero(self.node == other)[:MATES_MAX].tolist():
            shift = load[task] - load[mate]
            if self.filled[other] + shift > self.limit[other] or self.filled[own] - shift > self.limit[own]:
                continue
            traffic = self._traffic(mate)
            saves = gain + float(traffic[own] - traffic[other]) - 2 * between.get(mate, 0.0)
            if saves > saved:
                best, saved = mate, saves
        return best

    def _move(self, task: int, node: int) -> None:
        self.filled[self.node[task]] -= self.graph.load[task]
        self.filled[node] += self.graph.load[task]
        self.node[task] = node
