"""Advanced COLA's scheduler: workers to nodes, the integer program (3)-(8) of paper 004, section 3.3, by HiGHS.

    minimise z,  z >= sum of SIZE x / capacity on each node (3);  x = 0 where not allowed (4);
    each worker on one node (7);  x binary (8)

Workers whose tasks must share a node become one unit before the program is made, which is (5) by substitution. Node
separations (6) are written with a flag for each node and label instead of a row for each pair: the same solutions, a
tighter relaxation, and linear in size. Memory adds a row for each node. LPT under the same rules comes first: it gives
the program its start, and where it comes within `NEAR` of what no schedule can beat the program is not asked.
The program stops at a number of branching nodes, not at a time, so that the same seed gives the same plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.contract import FULL
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.lpt import lpt, utilisations
from penstock.optimise.fuse.steps.programs import Rows, solved
from penstock.optimise.fuse.steps.rules import Classes, Flags

NEAR = 0.01  # relative distance to a bound at which a schedule is good enough
BRANCHES_MAX = 300
CELLS_MAX = 60_000  # units x nodes, beyond which LPT alone is asked
SECONDS_MAX = 5.0  # of one program: a cap far above what ordinary ones take


@dataclass(frozen=True, eq=False)
class Schedule:
    """A node for each worker, and how full the fullest node is."""

    host: Ints
    utilisation: float
    within_workers: bool = True  # whether each worker is one that a worker of its node carries

    @classmethod
    def of(cls, graph: FuseGraph, part: Longs, host: Ints) -> Schedule:
        """The schedule that puts workers there, with its figures."""
        used = float(utilisations(graph.sizes(part), host, graph.capacity).max())
        return cls(host, used, graph.keeps_worker_limits(part, host))

    @property
    def is_feasible(self) -> bool:
        """Whether every node can carry its workers, and each of these is no more than one thread does."""
        return self.utilisation <= FULL and self.within_workers


@dataclass(frozen=True, eq=False)
class Units:
    """Workers that must share a node, as one."""

    unit_of: Longs  # of each worker
    size: Floats
    memory_mb: Floats
    allowed: Flags  # (units, nodes)
    label: Longs  # (rows, units)
    torn: Flags  # units that no node may hold: no allowed node, or two labels in one row
    too_large: Flags  # units with a worker that is more than any worker allowed for it carries; splitting mends it


def units_of(graph: FuseGraph, part: Longs) -> Units:
    """The units of a partition."""
    workers = int(part.max()) + 1
    classes = Classes(workers)
    first: dict[int, int] = {}
    for vertex in graph.shared_sites.tolist():
        worker = int(part[vertex])
        classes.join(worker, first.setdefault(int(graph.site[vertex]), worker))
    unit_of = classes.labels()
    count = int(unit_of.max()) + 1
    at = unit_of[part]
    allowed = np.ones((count, len(graph.capacity)), dtype=bool)
    np.logical_and.at(allowed, at, graph.allowed)
    torn: Flags = np.logical_not(allowed.any(axis=1))
    label = np.full((len(graph.node_label), count), -1, dtype=np.int64)
    for row, joined in zip(graph.node_label, label, strict=True):
        np.maximum.at(joined, at, row)
        torn[at[(row >= 0) & (row != joined[at])]] = True
    too_large: Flags = np.zeros(count, dtype=bool)
    if graph.limits_workers:
        carried = allowed.copy()
        np.logical_and.at(carried, unit_of, graph.carried(part))
        too_large = np.logical_not(carried.any(axis=1))
        allowed[~too_large] = carried[~too_large]
    size = np.bincount(unit_of, graph.sizes(part), minlength=count)
    memory = np.bincount(unit_of, graph.memories(part), minlength=count)
    return Units(unit_of, size.astype(np.float64), memory.astype(np.float64), allowed, label, torn, too_large)


def schedule_workers(graph: FuseGraph, part: Longs, deadline: Deadline, *, ask: bool = True) -> Schedule | None:
    """The schedule of least utilisation found, or None when none keeps the rules; `ask` is whether HiGHS is asked."""
    units = units_of(graph, part)
    if units.torn.any():
        return None
    quick = by_lpt(graph, units)
    bound = utilisation_bound(graph, units)
    found = quick
    # Where no schedule is feasible, one that keeps the rules is enough.
    hopeless = quick is not None and (bound > FULL or bool(units.too_large.any()))
    near = quick is not None and _utilisation(graph, units, quick) <= bound * (1 + NEAR)
    if ask and not hopeless and not near and units.allowed.size <= CELLS_MAX:
        found = by_program(graph, units, quick, deadline)
    if found is None:
        return None
    return Schedule.of(graph, part, found[units.unit_of])


def _utilisation(graph: FuseGraph, units: Units, host: Ints) -> float:
    return float(utilisations(units.size, host, graph.capacity).max())


def utilisation_bound(graph: FuseGraph, units: Units) -> float:
    """No schedule of these units fills the fullest node less."""
    alone = np.where(units.allowed, units.size[:, None] / graph.capacity[None, :], math.inf).min(axis=1)
    return max(float(units.size.sum() / graph.capacity.sum()), float(alone.max()))


def by_lpt(graph: FuseGraph, units: Units) -> Ints | None:
    """Largest unit first to the node that it fills least among those that may hold it; None when one finds none."""
    return greedy(units, graph.capacity, graph.memory_limit)


def greedy(units: Units, capacity: Floats, memory_limit: Floats) -> Ints | None:
    """LPT under the rules. Units that a rule restricts go first, or they would find their nodes taken."""
    nodes = len(capacity)
    used, room = np.zeros(nodes), memory_limit * FULL
    taken = np.full((len(units.label), nodes), -1, dtype=np.int64)
    host: Ints = np.zeros(len(units.size), dtype=np.int32)
    free: Flags = np.logical_and(units.allowed.all(axis=1), (units.label < 0).all(axis=0))
    order = np.lexsort((-units.size, units.allowed.sum(axis=1), free))
    plain = np.zeros_like(free) if np.isfinite(memory_limit).any() else free
    for unit in order[~plain[order]].tolist():
        label = units.label[:, unit]
        clash = ((taken >= 0) & (label[:, None] >= 0) & (taken != label[:, None])).any(axis=0)
        fits = units.allowed[unit] & ~clash & (units.memory_mb[unit] <= room)
        if not fits.any():
            return None
        k = int(np.argmin(np.where(fits, (used + units.size[unit]) / capacity, math.inf)))
        host[unit] = k
        used[k] += units.size[unit]
        room[k] -= units.memory_mb[unit]
        taken[label >= 0, k] = label[label >= 0]
    host[plain] = lpt(units.size[plain], capacity, used)  # no rule concerns the rest, and plain LPT is much quicker
    return host


def by_program(graph: FuseGraph, units: Units, start: Ints | None, deadline: Deadline) -> Ints | None:
    """The integer program's schedule; the start where it finds no better one."""
    program = _Program(graph, units)
    cap = Deadline(min(deadline.at, deadline.clock() + SECONDS_MAX), deadline.clock)
    given = program.values(start) if start is not None else None
    answer = solved(
        program.rows(), program.cost(), program.upper(), program.whole(), cap,
        gap=NEAR / 2, branches_max=BRANCHES_MAX, start=given,
    )  # fmt: skip
    if answer.value is None:
        return start
    found = program.hosts(answer.value)
    if start is not None and _utilisation(graph, units, found) > _utilisation(graph, units, start):
        return start
    return found


class _Program:
    """Columns: z, then x by unit and node, then a flag by row, node and label."""

    def __init__(self, graph: FuseGraph, units: Units) -> None:
        self.graph, self.units = graph, units
        self.count, self.nodes = units.allowed.shape
        self.flags: dict[tuple[int, int], int] = {}  # (row, label) -> first of its columns, one for each node
        at = 1 + self.count * self.nodes
        for r, row in enumerate(units.label):
            for label in np.unique(row[row >= 0]).tolist():
                self.flags[r, label] = at
                at += self.nodes
        self.columns = at

    def x(self, unit: int) -> Longs:
        """Columns of one unit, a node each."""
        return np.arange(1 + unit * self.nodes, 1 + (unit + 1) * self.nodes, dtype=np.int64)

    def rows(self) -> Rows:
        """(3), (6), (7) and memory; (4) is in the upper limits."""
        rows = Rows()
        for k in range(self.nodes):
            cells = 1 + np.arange(self.count) * self.nodes + k
            share = self.units.size / self.graph.capacity[k]
            rows.add(-math.inf, 0.0, np.concatenate([[0], cells]), np.concatenate([[-1.0], share]))
            if np.isfinite(self.graph.memory_limit[k]):
                rows.add(-math.inf, 1.0, cells, self.units.memory_mb / self.graph.memory_limit[k])
        for unit in range(self.count):
            rows.add(1.0, 1.0, self.x(unit), np.ones(self.nodes))
        for r, row in enumerate(self.units.label):
            starts = [first for (owner, _), first in self.flags.items() if owner == r]
            if len(starts) < 2:
                continue
            for k in range(self.nodes):
                rows.add(-math.inf, 1.0, np.array(starts) + k, np.ones(len(starts)))
            for unit in np.flatnonzero(row >= 0).tolist():
                first = self.flags[r, int(row[unit])]
                for k in range(self.nodes):
                    rows.add(-math.inf, 0.0, np.array([self.x(unit)[k], first + k]), np.array([1.0, -1.0]))
        return rows

    def cost(self) -> Floats:
        """The first column, z, costs; no other does."""
        return np.where(np.arange(self.columns) == 0, 1.0, 0.0)

    def upper(self) -> Floats:
        """1, but for z and for nodes that are not allowed."""
        found = np.ones(self.columns)
        found[0] = math.inf
        found[1 : 1 + self.count * self.nodes] = self.units.allowed.ravel()
        return found

    def whole(self) -> Flags:
        """All but z."""
        return np.arange(self.columns) > 0

    def values(self, host: Ints) -> Floats:
        """The columns' values for a schedule."""
        value = np.zeros(self.columns)
        value[0] = _utilisation(self.graph, self.units, host)
        for unit, k in enumerate(host.tolist()):
            value[self.x(unit)[k]] = 1.0
            for r, row in enumerate(self.units.label):
                if row[unit] >= 0:
                    value[self.flags[r, int(row[unit])] + k] = 1.0
        return value

    def hosts(self, value: Floats) -> Ints:
        """The schedule that the columns' values say."""
        cells = value[1 : 1 + self.count * self.nodes].reshape(self.count, self.nodes)
        found: Ints = cells.argmax(axis=1).astype(np.int32)
        return found
