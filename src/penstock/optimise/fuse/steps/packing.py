"""Whether sites (tasks that share a node) can be put on nodes at all: a greedy try, then an integer program by HiGHS.

    x[site, node] binary, each site on one node; a flag for each node and label, at most one label of a row on a node;
    CPU and memory of each node limit what is on it

Streams that the rules cut for certain weigh on their ends; on small cases the program also counts every stream whose
ends are on different nodes, which is what SIZE is when workers of a node are one. Both leave costs out and add none, so
a refusal is a proof (`test_clashes_of_random_constraints_are_true_and_minimal`). Where there are more streams and no
node can hold a connected part of the graph, each node pays for one of the cheapest streams, because some stream leaves
it. Sites beyond the largest may be shared out in parts, which is quick and keeps refusals true; all of them with the
same labels and allowed nodes are one heap of load and one of memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.taskgraph import Floats, Longs
from penstock.optimise.communication import StreamCost
from penstock.optimise.contract import Deadline, Problem
from penstock.optimise.fuse.contract import FULL
from penstock.optimise.fuse.steps.assign import Units, greedy
from penstock.optimise.fuse.steps.programs import Rows, Solution, solved
from penstock.optimise.fuse.steps.rules import Flags, Rules

WHOLE_CELLS_MAX = 1_500  # sites x nodes that are whole in the program; the others may be shared out in parts
CELLS_MAX = 100_000  # beyond, nothing is asked
STREAM_CELLS_MAX = 1_000  # (sites + streams) x nodes to which every stream is counted
BRANCHES_MAX = 2_000
TINY = 1e-9  # of a capacity: what is left of a node that streams would fill
SECONDS_EACH = 10.0  # a cap for busy machines; ordinary programs end in hundredths


@dataclass(frozen=True, eq=False)
class Sites:
    """Sites with what they need, and the streams between them."""

    problem: Problem
    load: Floats
    certain: Floats  # CPU for streams that are cut whatever happens
    memory_mb: Floats
    allowed: Flags  # (sites, nodes)
    label: Longs  # (rows, sites)
    source: Longs  # of streams between sites that may or may not be cut
    target: Longs
    weight: Floats

    @classmethod
    def of(cls, problem: Problem, rules: Rules, stream_cost: StreamCost) -> Sites:
        """The sites of some rules."""
        graph, site = problem.graph, rules.site
        count = int(site.max()) + 1
        allowed = np.ones((count, problem.node_count), dtype=bool)
        np.logical_and.at(allowed, site, rules.allowed)
        label = np.full((len(rules.node_label), count), -1, dtype=np.int64)
        for row, joined in zip(rules.node_label, label, strict=True):
            np.maximum.at(joined, site, row)
        a, b, weight = graph.source, graph.target, graph.rate * stream_cost
        apart = ~(allowed[site[a]] & allowed[site[b]]).any(axis=1)
        for row in (*rules.worker_label, *label[:, site]):
            apart |= (row[a] >= 0) & (row[b] >= 0) & (row[a] != row[b])
        ends = np.concatenate([site[a[apart]], site[b[apart]]])
        certain = np.bincount(ends, np.tile(weight[apart], 2), minlength=count)
        open_ended = ~apart & (site[a] != site[b])
        return cls(
            problem=problem,
            load=np.bincount(site, graph.load, minlength=count).astype(np.float64),
            certain=certain.astype(np.float64),
            memory_mb=np.bincount(site, graph.memory_mb, minlength=count).astype(np.float64),
            allowed=allowed,
            label=label,
            source=site[a[open_ended]],
            target=site[b[open_ended]],
            weight=weight[open_ended],
        )

    @property
    def cells(self) -> int:
        """Sites times nodes."""
        return int(self.allowed.size)

    def packs_without_streams(self, deadline: Deadline) -> bool:
        """False when it is proved that the loads cannot be shared out."""
        return self._greedy(self.load) or self._possible(self.load, deadline)

    def packs_with_streams(self, deadline: Deadline) -> bool:
        """False when it is proved that loads and the streams that are cut cannot be carried."""
        need = self.load + self.certain
        few = (len(self.load) + len(self.weight)) * self.problem.node_count <= STREAM_CELLS_MAX
        if few and len(self.weight):
            return self._possible(need, deadline, with_streams=True)
        least = self.least_streams
        if not least and not self.certain.any():
            return True
        sites = self._with_less(least)
        return sites._greedy(need) or sites._possible(need, deadline)

    @cached_property
    def least_streams(self) -> float:
        """What streams take of any node that holds a site, at least: 0 where a node may hold all that is connected."""
        if not len(self.weight) or float(self.weight.min()) <= 0:
            return 0.0
        need = self.load + self.certain
        component = _components(len(need), self.source, self.target)
        smallest = float(np.bincount(component, need)[np.unique(component)].min())
        return float(self.weight.min()) if smallest > float(self.problem.capacity.max()) * FULL else 0.0

    def _with_less(self, amount: float) -> Sites:
        """The same sites on nodes that have less to give."""
        nodes = [
            replace(node, capacity=max(node.capacity - amount / FULL, TINY * node.capacity))
            for node in self.problem.cluster.nodes
        ]
        return replace(self, problem=replace(self.problem, cluster=Cluster(tuple(nodes))))

    def _greedy(self, need: Floats) -> bool:
        """Whether LPT packs the sites; it finds most packings that there are."""
        count, problem = len(need), self.problem
        torn = np.zeros(count, dtype=bool)
        units = Units(np.arange(count, dtype=np.int64), need, self.memory_mb, self.allowed, self.label, torn, torn)
        host = greedy(units, problem.capacity, problem.memory_mb)
        if host is None:
            return False
        used = np.bincount(host, need, minlength=problem.node_count)
        return bool((used <= problem.capacity * FULL).all())

    def _possible(self, need: Floats, deadline: Deadline, *, with_streams: bool = False) -> bool:
        """Whether the program has a solution, is too large to be asked, or did not end in time."""
        if self.cells > CELLS_MAX or deadline.remaining <= 0:
            return True
        return self._answer(need, deadline, with_streams).status != "infeasible"

    def placed(self, deadline: Deadline) -> Longs | None:
        """A node for each site that carries loads and the streams that are cut, where the case is small enough."""
        if (len(self.load) + len(self.weight)) * self.problem.node_count > STREAM_CELLS_MAX or not len(self.weight):
            return None
        value = self._answer(self.load + self.certain, deadline, True).value
        if value is None:
            return None
        found: Longs = value[: self.cells].reshape(self.allowed.shape).argmax(axis=1).astype(np.int64)
        return found

    def _answer(self, need: Floats, deadline: Deadline, with_streams: bool) -> Solution:
        if with_streams:
            return self._asked(need, np.ones(len(need), dtype=bool), deadline, with_streams=True)
        sites, whole = self._heaped(need)
        return sites._asked(sites.load, whole, deadline, with_streams=False)

    def _asked(self, need: Floats, whole_sites: Flags, deadline: Deadline, *, with_streams: bool) -> Solution:
        count, nodes = self.allowed.shape
        rows = Rows()
        columns = self.add_labels(rows)
        leaving = columns
        if with_streams:
            columns += len(self.weight) * nodes
        self.add_limits(rows, need, leaving if with_streams else None)
        whole = np.ones(columns, dtype=bool)
        whole[leaving:] = False
        whole[: count * nodes] = np.repeat(whole_sites, nodes)
        upper = np.ones(columns)
        upper[: count * nodes] = self.allowed.ravel()
        cap = Deadline.after(min(SECONDS_EACH, deadline.remaining))
        return solved(rows, np.zeros(columns), upper, whole, cap, branches_max=BRANCHES_MAX)

    def add_limits(self, rows: Rows, need: Floats, leaving: int | None = None) -> None:
        """Each site on one node, CPU and memory of each node; `leaving` is the first flag of streams that count."""
        problem, (count, nodes) = self.problem, self.allowed.shape
        for k in range(nodes):
            cells = np.arange(count) * nodes + k
            share = need / (problem.capacity[k] * FULL)
            if leaving is None:
                rows.add(-math.inf, 1.0, cells, share)
            else:
                cut = leaving + np.arange(len(self.weight)) * nodes + k
                paid = self.weight / (problem.capacity[k] * FULL)
                rows.add(-math.inf, 1.0, np.concatenate([cells, cut]), np.concatenate([share, paid]))
                self._add_cut_flags(rows, k, leaving)
            if math.isfinite(problem.memory_mb[k]):
                rows.add(-math.inf, 1.0, cells, self.memory_mb / (problem.memory_mb[k] * FULL))
        for site in range(count):
            rows.add(1.0, 1.0, site * nodes + np.arange(nodes), np.ones(nodes))

    def set_labels(self, value: Floats, where: Longs) -> None:
        """Raise the flags of the labels that stand on each node."""
        nodes, columns = self.problem.node_count, self.cells
        for row in self.label:
            values = np.unique(row[row >= 0])
            for site in np.flatnonzero(row >= 0).tolist():
                value[columns + int(where[site]) * len(values) + int(np.searchsorted(values, row[site]))] = 1.0
            columns += nodes * len(values)

    def add_labels(self, rows: Rows) -> int:
        """Flags for labels on nodes, after the x; the number of columns then."""
        nodes = self.problem.node_count
        columns = self.cells
        for row in self.label:
            values = np.unique(row[row >= 0]).tolist()
            for k in range(nodes):
                flags = columns + k * len(values) + np.arange(len(values))
                rows.add(-math.inf, 1.0, flags, np.ones(len(values)))
                for flag, value in zip(flags.tolist(), values, strict=True):
                    for site in np.flatnonzero(row == value).tolist():
                        rows.add(-math.inf, 0.0, np.array([site * nodes + k, flag]), np.array([1.0, -1.0]))
            columns += nodes * len(values)
        return columns

    def _add_cut_flags(self, rows: Rows, k: int, leaving: int) -> None:
        """A stream is cut at node k when exactly one of its ends is there."""
        nodes = self.problem.node_count
        for e, (a, b) in enumerate(zip(self.source.tolist(), self.target.tolist(), strict=True)):
            for here, there in ((a, b), (b, a)):
                ends = np.array([here * nodes + k, there * nodes + k, leaving + e * nodes + k])
                rows.add(-math.inf, 0.0, ends, np.array([1.0, -1.0, -1.0]))

    def _heaped(self, need: Floats) -> tuple[Sites, Flags]:
        """The sites with the freest and smallest in heaps, where there are too many, and which of them are whole."""
        tied = (self.label >= 0).any(axis=0) | ~self.allowed.all(axis=1)
        order = np.lexsort((-need, ~tied))
        most = max(1, WHOLE_CELLS_MAX // self.problem.node_count)
        single, rest = np.sort(order[:most]), np.sort(order[most:])
        if not len(rest):
            return replace(self, load=need), np.ones(len(need), dtype=bool)
        kinds = np.concatenate([self.label[:, rest], self.allowed[rest].T.astype(np.int64)])
        _, first, heap = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
        load, memory = (np.bincount(heap.reshape(-1), amount[rest]) for amount in (need, self.memory_mb))
        nothing = np.zeros(len(first))
        chosen = np.concatenate([single, rest[first], rest[first]])  # load and memory of a heap part ways
        heaped = replace(
            self,
            load=np.concatenate([need[single], load, nothing]),
            memory_mb=np.concatenate([self.memory_mb[single], nothing, memory]),
            allowed=self.allowed[chosen],
            label=self.label[:, chosen],
        )
        return heaped, np.arange(len(chosen)) < len(single)


def _components(count: int, source: Longs, target: Longs) -> Longs:
    """For each site the lowest that streams connect it with; labels spread along streams and along each other."""
    label: Longs = np.arange(count, dtype=np.int64)
    while True:
        before = label.copy()
        lower = np.minimum(label[source], label[target])
        np.minimum.at(label, source, lower)
        np.minimum.at(label, target, lower)
        label = label[label]
        if (label == before).all():
            return label
