"""Pressure: how busy the busiest part of a plan is. What comes first where a job is to be fast.

A worker is one thread, so a plan is as fast as its most loaded worker, and a node's workers share its cores. Loads are
relative to what each can do and contain what communication costs at the distance that the plan gives it. A job's nodes
keep a fifth back, as in the papers, and its threads do not, so that fifth is given back here (`Options.usable_share`).
A worker without a capacity of its own has threads enough: it can do what its node can.

Declared loads say how tasks compare and may be wrong for each operator alone. Where nothing was measured, each operator
is therefore also looked at as if it were the only one that counts, and those pressures are added up: an even spread of
sources and of keyed tasks. Where loads were measured, pressures below EASY are equal, and little work stays together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.model.costs import DISTANCES
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.communication import RING, SOCKET, stream_ends
from penstock.optimise.contract import Problem

STEP = 1e-3  # relative: pressures that differ by less are equal, and traffic decides
EASY = 0.1  # of what a worker can do: less is no pressure, and a stream may grow tenfold before it is felt
PRESSURE_NOTE = "goal throughput: "
SPREAD_CELLS_MAX = 4_000_000  # operators x workers


class Price(NamedTuple):
    """What a plan costs where throughput counts, what matters most first."""

    level: int  # the pressure in steps of STEP
    spread: float  # pressures of single operators, added up; 0 where loads were measured
    communication: float  # CPU of all streams
    between_nodes: float  # bytes
    between_workers: float


@dataclass(frozen=True, eq=False)
class Pricing:
    """A problem's arrays as prices need them: `seats` workers on every node, more than any plan uses."""

    problem: Problem
    seats: int
    send: Floats  # (distances, edges)
    receive: Floats
    thread: Floats  # of every seat
    cores: Floats  # of every node
    declared: bool
    edges: Longs  # their numbers, in order

    @classmethod
    def of(cls, problem: Problem, seats: int, usable_share: float = 1.0) -> Pricing:
        """For plans with at most so many workers on a node, whose capacity is this share of its cores."""
        nodes = problem.cluster.nodes
        ends = [stream_ends(problem.graph, distance) for distance in DISTANCES]
        cores = np.array([node.capacity for node in nodes]) / usable_share
        stated = [node.worker_capacity for node in nodes]
        thread = [whole if own is None else own for own, whole in zip(stated, cores.tolist(), strict=True)]
        operators = len(problem.graph.operators)
        return cls(
            problem=problem,
            seats=seats,
            send=np.stack([send for send, _ in ends]),
            receive=np.stack([receive for _, receive in ends]),
            thread=np.repeat(np.array(thread), seats),
            cores=cores,
            declared=not problem.graph.counted and operators * len(nodes) * seats <= SPREAD_CELLS_MAX,
            edges=np.arange(len(problem.graph.source)),
        )

    def price(self, node: Ints, worker: Ints) -> Price:
        """What this plan costs."""
        return self.priced(node, worker)[0]

    def pressure(self, node: Ints, worker: Ints) -> float:
        """Load of the most loaded worker or node, relative to what it can do."""
        return self.priced(node, worker)[1]

    def priced(self, node: Ints, worker: Ints) -> tuple[Price, float]:
        """The price, and the pressure that it was made from."""
        graph, nodes = self.problem.graph, self.problem.node_count
        a, b = graph.source, graph.target
        seat = node.astype(np.int64) * self.seats + worker
        from_seat, to_seat = seat[a], seat[b]
        apart = (from_seat != to_seat).astype(np.int64) + (node[a] != node[b])  # CALL, RING or SOCKET, which count up
        sending, receiving = self.send[apart, self.edges], self.receive[apart, self.edges]
        count = nodes * self.seats
        load = np.bincount(seat, graph.load, minlength=count).astype(np.float64, copy=False)
        load += np.bincount(from_seat, sending, minlength=count) + np.bincount(to_seat, receiving, minlength=count)
        pressure = self._pressure(load)
        price = Price(
            level=self._level(pressure),
            spread=round(self._spread(seat, count), 9) if self.declared else 0.0,
            communication=round(float(sending.sum() + receiving.sum()), 12),
            between_nodes=float(graph.rate[apart == SOCKET].sum()),
            between_workers=float(graph.rate[apart == RING].sum()),
        )
        return price, pressure

    def least(self) -> float:
        """A bound: all work over all there is, the heaviest task, and the lightest tasks that some worker must hold."""
        load, fastest = self.problem.graph.load, float(self.thread.max())
        offered = np.minimum(self.cores, self.thread.reshape(-1, self.seats).sum(axis=1)).sum()
        workers = int(np.minimum(self.problem.workers_limit, self.seats).sum())
        together = float(np.sort(load)[: -(-len(load) // workers)].sum())
        return max(float(load.sum() / offered), float(load.max()) / fastest, together / fastest)

    def least_level(self) -> int:
        """The bound as a level."""
        return self._level(self.least())

    def _level(self, pressure: float) -> int:
        return _level(max(pressure, EASY) if self.problem.graph.counted else pressure)

    def _pressure(self, load: Floats) -> float:
        on_node = load.reshape(-1, self.seats).sum(axis=1) / self.cores
        return max(float((load / self.thread).max()), float(on_node.max()))

    def _spread(self, seat: Longs, count: int) -> float:
        graph, operators = self.problem.graph, len(self.problem.graph.operators)
        key = graph.operator_of.astype(np.int64) * count + seat
        load = np.bincount(key, graph.load, minlength=operators * count).reshape(operators, -1, self.seats)
        threads = (load / self.thread.reshape(-1, self.seats)).max(axis=(1, 2))
        return float(np.maximum(threads, (load.sum(axis=2) / self.cores).max(axis=1)).sum())


def _level(pressure: float) -> int:
    """The pressure in steps, so that order does not hang on the last digit of a sum."""
    return int(np.rint(np.log(max(pressure, 1e-300)) / np.log1p(STEP)))
