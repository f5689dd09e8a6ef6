"""FuseGraph: what the fusion methods work on, and SIZE as in formula (1) of paper 004.

Vertices are tasks, or tasks that share a worker anyway (colocated ones, and COLA's super-operators); edges carry what
a stream costs in CPU where it leaves a worker, at each of its ends:

    SIZE(S) = sum of w_v over S + sum of w_e over edges with exactly one end in S

`w_e` is the stream's rate times `stream_cost`, the CPU that one unit of rate costs at each end: the mean of sending and
receiving, because the paper has one figure for both. It is 1 where rates are given in CPU, as in the paper. A partition
is an array with a worker number for each vertex, without gaps.
Allowed nodes and node labels of a vertex are those of its whole site, because the site moves as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.communication import StreamCost
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import Classes, Flags, Rules


@dataclass(frozen=True, eq=False)
class FuseGraph:
    """Vertices with loads, edges with CPU costs, and the rules over them."""

    load: Floats
    memory_mb: Floats
    u: Longs
    v: Longs
    weight: Floats  # CPU at each end of the edge when it is cut
    allowed: Flags  # (vertices, nodes)
    worker_label: Longs  # (rows, vertices)
    node_label: Longs  # (rows, vertices)
    site: Longs
    named: Flags
    mirrors: tuple[Longs, ...]  # each (groups, positions)
    vertex_of: Longs  # of each task
    capacity: Floats
    memory_limit: Floats
    slots: Longs  # as stated; a very large number where the cluster states none
    worker_limit: Floats  # SIZE that a worker of each node carries; infinite where workers have threads enough

    @property
    def count(self) -> int:
        """Number of vertices."""
        return len(self.load)

    @cached_property
    def degree(self) -> Floats:
        """Weight of each vertex's edges."""
        n = self.count
        found = np.bincount(self.u, self.weight, minlength=n) + np.bincount(self.v, self.weight, minlength=n)
        return found.astype(np.float64)

    @cached_property
    def shared_sites(self) -> Longs:
        """Vertices whose site has others."""
        return np.flatnonzero(np.bincount(self.site)[self.site] > 1)

    def sizes(self, part: Longs) -> Floats:
        """SIZE of each worker."""
        count = int(part.max(initial=-1)) + 1
        a, b = part[self.u], part[self.v]
        crossing = a != b
        weight = self.weight[crossing]
        found = np.bincount(part, self.load, minlength=count)
        found += np.bincount(a[crossing], weight, minlength=count) + np.bincount(b[crossing], weight, minlength=count)
        return found.astype(np.float64)

    @property
    def limits_workers(self) -> bool:
        """Whether a worker of some node is one thread."""
        return bool(np.isfinite(self.worker_limit).any())

    def with_threads_enough(self) -> FuseGraph:
        """The same graph where a worker carries whatever its node does."""
        return replace(self, worker_limit=np.full(len(self.capacity), math.inf))

    def carried(self, part: Longs) -> Flags:
        """Which workers a worker of each node carries, (workers, nodes). A vertex alone cannot be divided: it may."""
        alone = np.bincount(part) <= 1
        found: Flags = np.logical_or(self.sizes(part)[:, None] <= self.worker_limit[None, :], alone[:, None])
        return found

    def keeps_worker_limits(self, part: Longs, host: Ints) -> bool:
        """Whether a worker of its node carries every worker."""
        return not self.limits_workers or bool(self.carried(part)[np.arange(len(host)), host].all())

    def memories(self, part: Longs) -> Floats:
        """Memory of each worker."""
        return np.bincount(part, self.memory_mb).astype(np.float64)

    def communication(self, part: Longs) -> float:
        """C as in (iv): every cut edge counts at both of its ends."""
        return 2.0 * float(self.weight[part[self.u] != part[self.v]].sum())

    def between(self, part: Longs) -> dict[tuple[int, int], float]:
        """Weight of the edges between each joined pair of workers, smaller number first."""
        a, b = part[self.u], part[self.v]
        crossing = a != b
        low, high = np.minimum(a, b)[crossing], np.maximum(a, b)[crossing]
        count = int(part.max(initial=0)) + 1
        key, at = np.unique(low * count + high, return_inverse=True)
        weight = np.bincount(at, self.weight[crossing], minlength=len(key))
        return {(int(k) // count, int(k) % count): float(w) for k, w in zip(key, weight, strict=True)}

    def contracted(self, label: Longs) -> FuseGraph:
        """This graph with the vertices of each label (0, 1, ... without gaps) made one."""
        count = int(label.max(initial=-1)) + 1
        a, b = label[self.u], label[self.v]
        crossing = a != b
        low, high = np.minimum(a, b)[crossing], np.maximum(a, b)[crossing]
        key, at = np.unique(low * count + high, return_inverse=True)
        allowed = np.ones((count, self.allowed.shape[1]), dtype=bool)
        np.logical_and.at(allowed, label, self.allowed)
        named = np.zeros(count, dtype=bool)
        np.logical_or.at(named, label, self.named)
        return FuseGraph(
            load=np.bincount(label, self.load, minlength=count).astype(np.float64),
            memory_mb=np.bincount(label, self.memory_mb, minlength=count).astype(np.float64),
            u=key // count,
            v=key % count,
            weight=np.bincount(at, self.weight[crossing], minlength=len(key)).astype(np.float64),
            allowed=allowed,
            worker_label=_joined_labels(self.worker_label, label, count),
            node_label=_joined_labels(self.node_label, label, count),
            site=_joined_sites(self.site, label, count),
            named=named,
            mirrors=tuple(np.unique(label[mirror], axis=1) for mirror in self.mirrors),
            vertex_of=label[self.vertex_of],
            capacity=self.capacity,
            memory_limit=self.memory_limit,
            slots=self.slots,
            worker_limit=self.worker_limit,
        )


def _joined_labels(rows: Longs, label: Longs, count: int) -> Longs:
    found = np.full((len(rows), count), -1, dtype=np.int64)
    for row, joined in zip(rows, found, strict=True):
        np.maximum.at(joined, label, row)
    return found


def _joined_sites(site: Longs, label: Longs, count: int) -> Longs:
    """Sites of the new vertices: vertices made one bring their sites together."""
    classes = Classes(int(site.max(initial=-1)) + 1)
    first: dict[int, int] = {}
    for s, vertex in zip(site.tolist(), label.tolist(), strict=True):
        classes.join(s, first.setdefault(vertex, s))
    return classes.labels()[np.array([first[vertex] for vertex in range(count)], dtype=np.int64)]


SLOTS_UNSTATED = 1 << 40


def fuse_graph(problem: Problem, rules: Rules, stream_cost: StreamCost = 1.0) -> FuseGraph:
    """The blocks of a problem's tasks with their rules; `rules.impossible` must be empty."""
    graph, n = problem.graph, problem.task_count
    per_site = np.ones((int(rules.site.max()) + 1, problem.node_count), dtype=bool)
    np.logical_and.at(per_site, rules.site, rules.allowed)
    node_label = _joined_labels(rules.node_label, rules.site, len(per_site))[:, rules.site]
    tasks = FuseGraph(
        load=graph.load,
        memory_mb=graph.memory_mb,
        u=graph.source.astype(np.int64),
        v=graph.target.astype(np.int64),
        weight=graph.rate * stream_cost,
        allowed=per_site[rules.site],
        worker_label=rules.worker_label,
        node_label=node_label.reshape(len(rules.node_label), n),
        site=rules.site,
        named=rules.named,
        mirrors=rules.mirrors,
        vertex_of=np.arange(n, dtype=np.int64),
        capacity=problem.capacity,
        memory_limit=problem.memory_mb,
        slots=np.array([SLOTS_UNSTATED if k.slots is None else k.slots for k in problem.cluster.nodes], dtype=np.int64),
        worker_limit=problem.worker_capacity,
    )
    return tasks.contracted(rules.block)


def numbered(part: Longs) -> Longs:
    """The same partition with workers numbered without gaps."""
    return np.unique(part, return_inverse=True)[1].astype(np.int64)
