"""Any placement that fits, where the searches for a good one found none: first fit that goes back, within a limit.

Blocks (tasks that share a worker) are seated heaviest first, each where it adds least traffic between nodes among the
workers that have room and that no rule forbids; where none is left, the one before is seated elsewhere. Small cases are
gone through whole. It looks at CPU, memory, slots and all rules but mirrors; the certificate looks at everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import Flags, Rules

STEPS_MAX = 20_000  # seats tried: half a second at most

Seat = tuple[int, int]  # a node's number and a worker's number on it


def packed(problem: Problem, rules: Rules, steps: int = STEPS_MAX) -> tuple[Ints, Ints] | None:
    """Node and worker of each task, or None where none was found in that many steps."""
    search = _Packing(problem, rules)
    tried = [search.seats(0)]  # of each block that is seated, and of the next, what is still to be tried
    while tried and steps > 0:
        seat = next(tried[-1], None)
        if seat is None:
            tried.pop()
            if tried:
                search.unseat()
            continue
        steps -= 1
        search.seat(seat)
        if len(search.seat_of) == len(search.blocks):
            break
        tried.append(search.seats(len(search.seat_of)))
    if len(search.seat_of) < len(search.blocks):
        return None
    node, worker = np.empty((2, problem.task_count), dtype=np.int32)
    for tasks, (k, w) in zip(search.blocks, search.seat_of, strict=True):
        node[tasks], worker[tasks] = k, w
    return node, worker


@dataclass
class _Worker:
    """What sits in one worker so far."""

    labels: Longs
    load: float = 0.0


@dataclass
class _Packing:
    """Blocks in the order in which they are seated, and the seats of the first few of them."""

    problem: Problem
    rules: Rules
    blocks: list[Longs] = field(init=False)
    seat_of: list[Seat] = field(default_factory=list)
    workers: dict[Seat, _Worker] = field(default_factory=dict)
    was: list[_Worker | None] = field(default_factory=list)  # the worker of each seated block before it came
    node: Longs = field(init=False)  # of each task, -1 where it is not seated yet

    def __post_init__(self) -> None:
        block, load = self.rules.block, self.problem.graph.load
        members = [np.flatnonzero(block == b) for b in range(int(block.max()) + 1)]
        self.blocks = sorted(members, key=lambda tasks: (-float(load[tasks].sum()), int(tasks[0])))
        self.node = np.full(self.problem.task_count, -1, dtype=np.int64)

    def seat(self, seat: Seat) -> None:
        """Seat the next block there."""
        tasks = self.blocks[len(self.seat_of)]
        before = self.workers.get(seat)
        labels = self.rules.worker_label[:, tasks].max(axis=1, initial=-1)
        held = _Worker(np.full_like(labels, -1)) if before is None else before
        load = held.load + float(self.problem.graph.load[tasks].sum())
        self.workers[seat] = _Worker(np.maximum(held.labels, labels), load)
        self.node[tasks] = seat[0]
        self.seat_of.append(seat)
        self.was.append(before)

    def unseat(self) -> None:
        """Take the last block back."""
        seat, before = self.seat_of.pop(), self.was.pop()
        self.node[self.blocks[len(self.seat_of)]] = -1
        if before is None:
            del self.workers[seat]
        else:
            self.workers[seat] = before

    def seats(self, position: int) -> Iterator[Seat]:
        """Seats that would do for a block, the cheapest first; of a node's empty workers one, as they are all alike."""
        tasks = self.blocks[position]
        allowed, traffic = self._nodes(tasks), self._traffic(tasks)
        found = [seat for k in np.flatnonzero(allowed).tolist() for seat in self._workers_of(k, tasks)]
        return iter(sorted(found, key=lambda seat: (-traffic[seat[0]], seat)))

    def _nodes(self, tasks: Longs) -> Flags:
        """Nodes with room for the block on which no rule forbids it."""
        graph, problem, rules = self.problem.graph, self.problem, self.rules
        here = self.node >= 0
        at, count = self.node[here], problem.node_count
        fits: Flags = np.logical_and.reduce(rules.allowed[tasks], axis=0)
        for needs, limit in ((graph.load, problem.capacity), (graph.memory_mb, problem.memory_mb)):
            fits = fits & (np.bincount(at, needs[here], minlength=count) + needs[tasks].sum() <= limit)
        site = here & np.isin(rules.site, rules.site[tasks])
        if site.any():
            fits = fits & (np.arange(count) == self.node[site][0])
        for row in rules.node_label:
            own = row[tasks].max()
            if own >= 0:
                fits[self.node[here & (row >= 0) & (row != own)]] = False
        return fits

    def _workers_of(self, k: int, tasks: Longs) -> Iterator[Seat]:
        labels = self.rules.worker_label[:, tasks].max(axis=1, initial=-1)
        load, limit = float(self.problem.graph.load[tasks].sum()), self.problem.worker_capacity[k]
        pin, empty = int(self.rules.pinned[tasks].max()), False
        for w in range(int(self.problem.workers_limit[k])) if pin < 0 else (pin,):
            there = self.workers.get((k, w))
            if there is None:
                empty = empty or pin < 0
                if len(tasks) == 1 or load <= limit:
                    yield k, w
                if empty:
                    return
            elif (
                there.load + load <= limit
                and not ((there.labels >= 0) & (labels >= 0) & (there.labels != labels)).any()
            ):
                yield k, w

    def _traffic(self, tasks: Longs) -> Floats:
        """Rates to what is seated on each node."""
        adjacency, found = self.problem.graph.adjacency, np.zeros(self.problem.node_count)
        for t in tasks.tolist():
            row = slice(adjacency.start[t], adjacency.start[t + 1])
            at = self.node[adjacency.neighbour[row]]
            found += np.bincount(at[at >= 0], adjacency.weight[row][at >= 0], minlength=len(found))
        return found
