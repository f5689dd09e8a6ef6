"""A placement changed until it keeps the constraints: the step for schedulers that do not look at any.

Blocks (tasks that share a worker) get seats, which are the workers of a node. A site (tasks that share a node) stays
where the scheduler put most of it, as long as rules and limits allow it, and every block keeps its worker where no rule
forbids that seat and its worker carries it. A block that cannot stay takes the seat with the fewest tasks among those
that carry it; a site that cannot stay goes to the node with which it talks most. Forced sites go first, so that the
others see what is left.

A block with a label in one row finds a seat in any order, because a row has at most one label for each seat of the
cluster (tests/unit/test_meet.py). Rejected: merging workers pair by pair, which can end with three that clash in turn.
Where rules overlap the step may fail, and then the certificate refuses the plan (decision 30).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from penstock.model.cluster import SLOTS_MAX
from penstock.model.taskgraph import Floats, Ints, Longs
from penstock.optimise.contract import Problem
from penstock.optimise.fuse.steps.rules import Flags, Rules

Seat = tuple[int, int]  # a node's number and a worker's number on it


def met(problem: Problem, rules: Rules, node: Ints, worker: Ints) -> tuple[Ints, Ints]:
    """Node and worker of each task, with as many constraints kept as the step can keep."""
    seating = _Seating.of(problem, rules, node, worker)
    for site in seating.order().tolist():
        seating.place(site)
    return seating.node, seating.worker


def keeps(rules: Rules, node: Ints, worker: Ints) -> bool:
    """Whether every task is where the rules allow it; limits of nodes are not looked at."""
    seat = np.unique(np.stack([node, worker]), axis=1, return_inverse=True)[1].reshape(-1)
    return (
        bool(rules.allowed[np.arange(len(node)), node].all())
        and _one_each(rules.site, node)
        and _one_each(rules.block, seat)
        and all(_one_label(row, node) for row in rules.node_label)
        and all(_one_label(row, seat) for row in rules.worker_label)
        and bool(((rules.pinned < 0) | (rules.pinned == worker)).all())
        and all(len({_shape(seat[group]) for group in mirror}) == 1 for mirror in rules.mirrors)
    )


def _one_each(group: Longs, place: Ints | Longs) -> bool:
    """Whether all members of a group are in one place."""
    first = np.unique(group, return_index=True)[1]
    return bool((place == place[first][group]).all())


def _one_label(row: Longs, place: Ints | Longs) -> bool:
    """Whether no place holds two labels."""
    highest = np.full(int(place.max()) + 1, -1, dtype=np.int64)
    np.maximum.at(highest, place, row)
    return not ((row >= 0) & (row != highest[place])).any()


def _shape(seats: Longs) -> tuple[int, ...]:
    """How a group is cut into workers, with workers numbered by first appearance."""
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(seat, len(numbers)) for seat in seats.tolist())


@dataclass(eq=False)
class _Seating:
    """Which tasks sit where, while sites are placed one after the other."""

    problem: Problem
    rules: Rules
    node: Ints  # of each task: where it wants to be until it is placed, and where it is then
    worker: Ints
    tasks_of: list[Longs]  # of each site
    allowed: Flags  # (sites, nodes)
    load: Floats  # of each site
    memory: Floats
    used: Floats  # by node, with the sites that want to be there and are not placed yet
    held: Floats
    limit: Floats  # a node may stay as full as the scheduler left it
    room: Floats
    crowd: Counter[Seat]  # tasks at each seat, with those that want to be there and are not placed yet
    burden: defaultdict[Seat, float]  # their load
    node_labels: Longs  # (rows, nodes)
    seat_labels: dict[Seat, Longs] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, rules: Rules, node: Ints, worker: Ints) -> _Seating:
        """No site placed yet."""
        graph, nodes, count = problem.graph, problem.node_count, int(rules.site.max()) + 1
        allowed = np.ones((count, nodes), dtype=bool)
        np.logical_and.at(allowed, rules.site, rules.allowed)
        order = np.argsort(rules.site, kind="stable")
        used, held = (_summed(node, needs, nodes) for needs in (graph.load, graph.memory_mb))
        seating = cls(
            problem=problem,
            rules=rules,
            node=node.astype(np.int32),
            worker=worker.astype(np.int32),
            tasks_of=np.split(order, np.searchsorted(rules.site[order], np.arange(1, count))),
            allowed=allowed,
            load=_summed(rules.site, graph.load, count),
            memory=_summed(rules.site, graph.memory_mb, count),
            used=used,
            held=held,
            limit=np.maximum(used, problem.capacity),
            room=np.maximum(held, problem.memory_mb),
            crowd=Counter(),
            burden=defaultdict(float),
            node_labels=np.full((len(rules.node_label), nodes), -1, dtype=np.int64),
        )
        seating._seat_count(np.arange(len(node)), 1)
        return seating

    def order(self) -> Longs:
        """Pinned sites, then those that few nodes may hold, then those that keep away from others, then the rest."""
        rules, count = self.rules, len(self.tasks_of)
        pinned, labelled = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        np.logical_or.at(pinned, rules.site, rules.pinned >= 0)
        for row in (*rules.worker_label, *rules.node_label):
            np.logical_or.at(labelled, rules.site, row >= 0)
        return np.lexsort((np.arange(count), ~labelled, self.allowed.sum(axis=1), ~pinned))

    def place(self, site: int) -> None:
        """Seat all blocks of the site on the first node that takes them; it stays where it is if none does."""
        tasks = self.tasks_of[site]
        home = int(np.bincount(self.node[tasks]).argmax())
        self._leave(tasks)
        for k in self._nodes(site, tasks, home):
            seats = self._seats(tasks, k)
            if seats is not None:
                self._sit(tasks, seats)
                return
        self._sit(tasks, list(zip(self.node[tasks].tolist(), self.worker[tasks].tolist(), strict=True)))

    def _nodes(self, site: int, tasks: Longs, home: int) -> list[int]:
        """Nodes that rules leave to the site, its own first if there is room, then by traffic; full ones come last."""
        label = self.rules.node_label[:, tasks].max(axis=1, initial=-1)[:, None]
        clash = ((self.node_labels >= 0) & (label >= 0) & (self.node_labels != label)).any(axis=0)
        fits = (self.used + self.load[site] <= self.limit) & (self.held + self.memory[site] <= self.room)
        adjacency, traffic = self.problem.graph.adjacency, np.zeros(self.problem.node_count)
        for t in tasks.tolist():
            row = slice(adjacency.start[t], adjacency.start[t + 1])
            traffic += np.bincount(self.node[adjacency.neighbour[row]], adjacency.weight[row], minlength=len(traffic))
        away = np.arange(len(traffic)) != home
        ranked = np.lexsort((self.used / self.problem.capacity, -traffic, away, ~fits))
        return [k for k in ranked.tolist() if self.allowed[site, k] and not clash[k]]

    def _seats(self, tasks: Longs, k: int) -> list[Seat] | None:
        """A seat on the node for each task, block by block; None where a block finds none."""
        found: dict[int, Seat] = {}
        taken: dict[Seat, Longs] = {}
        joined: Counter[Seat] = Counter()  # tasks and load of this site's blocks that have found a seat
        loaded: defaultdict[Seat, float] = defaultdict(float)
        for block in dict.fromkeys(self.rules.block[tasks].tolist()):
            own = tasks[self.rules.block[tasks] == block]
            label = self.rules.worker_label[:, own].max(axis=1, initial=-1)
            load = float(self.problem.graph.load[own].sum())

            def carries(seat: Seat, count: int = len(own), load: float = load) -> bool:
                tasks, burden = self.crowd[seat] + joined[seat], self.burden[seat] + loaded[seat]
                return tasks + count == 1 or burden + load <= self.problem.worker_capacity[seat[0]]

            seat = self._seat(own, label, k, taken, carries)
            if seat is None:
                return None
            found[block] = seat
            joined[seat] += len(own)
            loaded[seat] += load
            taken[seat] = np.maximum(taken.get(seat, self._labels(seat)), label)
        return [found[block] for block in self.rules.block[tasks].tolist()]

    def _seat(
        self, own: Longs, label: Longs, k: int, taken: dict[Seat, Longs], carries: Callable[[Seat], bool]
    ) -> Seat | None:
        """A seat that no label forbids; where all of them would carry too much, the first of those all the same."""
        stated = self.problem.cluster.nodes[k].slots
        pin = int(self.rules.pinned[own].max())
        if pin >= 0:
            wanted = [(k, pin)]
        else:
            few = int(self.problem.slots[k]) if stated is None else stated
            first = int(self.worker[own[0]])
            at_home = [(k, first)] if int(self.node[own[0]]) == k and first < (stated or SLOTS_MAX) else []
            wanted = at_home + sorted(((k, w) for w in range(few)), key=lambda seat: (self.crowd[seat], seat))
            if stated is None:  # slots that the cluster does not state are no limit: there is room for one more worker
                known = [w for at, w in (*self.seat_labels, *taken, *self.crowd) if at == k]
                wanted.append((k, 1 + max(known, default=few - 1)))
        free = [seat for seat in wanted if not _clash(taken.get(seat, self._labels(seat)), label)]
        return next((seat for seat in free if carries(seat)), free[0] if free else None)

    def _labels(self, seat: Seat) -> Longs:
        return self.seat_labels.get(seat, np.full(len(self.rules.worker_label), -1, dtype=np.int64))

    def _leave(self, tasks: Longs) -> None:
        self._count(tasks, -1)

    def _sit(self, tasks: Longs, seats: list[Seat]) -> None:
        self.node[tasks], self.worker[tasks] = zip(*seats, strict=True)
        self._count(tasks, 1)
        for t, seat in zip(tasks.tolist(), seats, strict=True):
            self.seat_labels[seat] = np.maximum(self._labels(seat), self.rules.worker_label[:, t])
            self.node_labels[:, seat[0]] = np.maximum(self.node_labels[:, seat[0]], self.rules.node_label[:, t])

    def _count(self, tasks: Longs, sign: int) -> None:
        graph, at = self.problem.graph, self.node[tasks]
        np.add.at(self.used, at, sign * graph.load[tasks])
        np.add.at(self.held, at, sign * graph.memory_mb[tasks])
        self._seat_count(tasks, sign)

    def _seat_count(self, tasks: Longs, sign: int) -> None:
        load = self.problem.graph.load
        for t, k, w in zip(tasks.tolist(), self.node[tasks].tolist(), self.worker[tasks].tolist(), strict=True):
            self.crowd[k, w] += sign
            self.burden[k, w] += sign * float(load[t])


def _clash(one: Longs, other: Longs) -> bool:
    """Whether two seats' labels forbid to make them one."""
    return bool(((one >= 0) & (other >= 0) & (one != other)).any())


def _summed(place: Ints | Longs, needs: Floats, count: int) -> Floats:
    return np.bincount(place, needs, minlength=count).astype(np.float64)
