"""`cola`: Advanced COLA (paper 004, section 3): the four phases of Figure 4, under all constraints, minimising f(U, C).

    pre-processor   Lemma 1 on unconstrained vertices; a worker for each replica, for each dedicated operator, and one
                    for the rest; isomorphic replicas are cut by the averages of their costs
    phase 1         split workers that hold what must be apart
    phase 2         split until the integer program finds a schedule that keeps the rules
    phase 3         split until no node is overloaded, and no worker is more than its thread carries
    phase 4         split on while C <= (1 + T) c, keeping the best f(U, C)
    post-processor  greedy merges that stay feasible

What the paper leaves open, and where this differs from it, is in docs/decisions/0018-fusion.md.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import NoPlanFound
from penstock.model.taskgraph import Longs
from penstock.optimise.contract import Deadline
from penstock.optimise.fuse.cola_basic import largest_divisible
from penstock.optimise.fuse.contract import Case, Fused
from penstock.optimise.fuse.fint import merge_one
from penstock.optimise.fuse.steps.assign import Schedule, schedule_workers, units_of
from penstock.optimise.fuse.steps.averages import averaged
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph
from penstock.optimise.fuse.steps.partition import Partitioner
from penstock.optimise.fuse.steps.postprocess import greedily_merged
from penstock.optimise.fuse.steps.preprocess import glued
from penstock.optimise.fuse.steps.quick_schedule import quick_schedule
from penstock.optimise.fuse.steps.workers import (
    conflicting,
    first_partition,
    keeps_rules,
    members,
    pairs_to_part,
    split_worker,
)

THETA_DEFAULT = 300.0


def fuse(case: Case) -> Fused:
    """Pre-processor, four phases, post-processor."""
    options = case.options
    search = Search(case, glued(case.graph), options.cut or "leighton-rao", case.deadline(THETA_DEFAULT))
    part = phase_1(search, first_partition(search.graph))
    part, schedule = phase_2(search, part)
    part, schedule = phase_3(search, part, schedule)
    part, schedule = phase_4(search, part, schedule)
    part, schedule = post_processed(search, part, schedule)
    return Fused(part[search.graph.vertex_of], schedule.host)


class Search:
    """One run: the graph, its partitioner and what every phase asks."""

    def __init__(self, case: Case, graph: FuseGraph, cut: str, deadline: Deadline) -> None:
        self.case, self.graph, self.deadline = case, graph, deadline
        options = case.options
        known = case.splits.setdefault(f"{cut} {'ruled' if case.problem.constraints else 'free'}", {})
        self.partitioner = Partitioner(averaged(graph), cut, options.epsilon, options.seed, deadline, known)

    def split(self, part: Longs, vertices: Longs, parted: bool = False) -> Longs:
        """The partition with a worker split in two."""
        self.case.require_time()
        pairs = pairs_to_part(self.graph, vertices) if parted else None
        return split_worker(self.graph, part, vertices, self.partitioner.split(vertices, pairs))

    def schedule(self, part: Longs) -> Schedule | None:
        """The integer program's schedule."""
        return schedule_workers(self.graph, part, self.deadline)

    def score(self, part: Longs, schedule: Schedule) -> tuple[float, float]:
        """f(U, C), then U."""
        return self.case.score(schedule.utilisation, self.graph.communication(part))


def phase_1(search: Search, part: Longs) -> Longs:
    """Split workers that hold what must be apart."""
    waiting = members(part)
    while waiting:
        vertices = waiting.pop()
        if len(np.unique(part[vertices])) > 1 or not conflicting(search.graph, vertices).any():
            continue  # its image was split already, or nothing in it clashes
        part = search.split(part, vertices, parted=True)
        waiting += [np.flatnonzero(part == w) for w in np.unique(part[vertices]).tolist()]
    for vertices in members(part):  # images of what was split may still clash where their own rules differ
        if conflicting(search.graph, vertices).any():
            return phase_1(search, part)
    return part


def phase_2(search: Search, part: Longs) -> tuple[Longs, Schedule]:
    """Split until a schedule keeps the rules."""
    while (schedule := search.schedule(part)) is None:
        units = units_of(search.graph, part)
        torn = np.flatnonzero(units.torn[units.unit_of])
        vertices = largest_divisible(search.graph, part, torn) if len(torn) else None
        if vertices is None:
            vertices = largest_divisible(search.graph, part)
        if vertices is None:
            msg = (
                f"method 'cola' split everything into {search.graph.count} workers and found no schedule that keeps "
                f"the constraints and the nodes' memory; try --method best, add nodes, or drop a constraint"
            )
            raise NoPlanFound(msg)
        part = search.split(part, vertices)
    return part, schedule


def phase_3(search: Search, part: Longs, schedule: Schedule) -> tuple[Longs, Schedule]:
    """Split until no node and no worker is overloaded."""
    while not schedule.is_feasible:
        vertices = largest_divisible(search.graph, part)
        if vertices is None:
            return _from_below(search, part, schedule)
        after = search.split(part, vertices)
        schedule = search.schedule(after) or _inherited(search.graph, part, after, schedule)
        part = after
    return part, schedule


def _from_below(search: Search, part: Longs, schedule: Schedule) -> tuple[Longs, Schedule]:
    """Merge the heaviest pairs until no node is overloaded, where paying for every stream overloads one."""
    for _ in range(search.graph.count):
        search.case.require_time()
        merged = merge_one(search.graph, part, must_stay=False)
        if merged is None:
            break
        part = merged[0]
        if merged[1] is not None:
            return part, merged[1]
    msg = (
        f"method 'cola' split everything into {search.graph.count} workers, with the fullest node at "
        f"{100 * schedule.utilisation:.4g} %, and merging the heaviest streams did not help; try --method best, add "
        "nodes, or lower --stream-cost"
    )
    raise NoPlanFound(msg)


def _inherited(graph: FuseGraph, before: Longs, after: Longs, schedule: Schedule) -> Schedule:
    """Validity persists (section 3.3): where no schedule was found, new workers stay where they came from."""
    host = schedule.host[before[np.unique(after, return_index=True)[1]]]
    return Schedule.of(graph, after, host)


def phase_4(search: Search, part: Longs, schedule: Schedule) -> tuple[Longs, Schedule]:
    """Split on while C stays within the threshold, and keep the best."""
    options = search.case.options
    if options.threshold == 0:
        return part, schedule
    best, best_score = (part, schedule), search.score(part, schedule)
    if options.objective is None and options.balance == 0.0:
        return best
    first = search.graph.communication(part)
    while search.deadline.remaining > 0:
        vertices = largest_divisible(search.graph, part)
        if vertices is None:
            break
        part = search.split(part, vertices)
        first = first or search.graph.communication(part)
        if search.graph.communication(part) > (1.0 + options.threshold) * first:
            break
        found = search.schedule(part)
        if found is not None and found.is_feasible and search.score(part, found) < best_score:
            best, best_score = (part, found), search.score(part, found)
    return best


def post_processed(search: Search, part: Longs, schedule: Schedule) -> tuple[Longs, Schedule]:
    """Greedy merges that stay feasible and do not raise f."""
    graph = search.graph
    standing = [(part, schedule)]

    def accept(after: Longs, pairs: list[tuple[int, int]]) -> Schedule | None:
        if search.case.is_late:
            return None
        before, at = standing[0]
        score = search.score(before, at)
        best: Schedule | None = None
        for found in (*_staying(graph, before, at, after, pairs), quick_schedule(graph, after)):
            if found is None or not found.is_feasible:
                continue
            if search.score(after, found) <= score and (best is None or found.utilisation < best.utilisation):
                best = found
        if best is not None:
            standing[0] = (after, best)
        return best

    return greedily_merged(graph, part, schedule, accept)


def _staying(
    graph: FuseGraph, before: Longs, at: Schedule, after: Longs, pairs: list[tuple[int, int]]
) -> list[Schedule]:
    """Schedules in which every worker stays, and merged ones are on the node of the first, or of the second."""
    found: list[Schedule] = []
    representative = np.unique(after, return_index=True)[1]
    for keep in (0, 1):
        host_of = at.host.copy()
        for pair in pairs:
            host_of[list(pair)] = at.host[pair[keep]]
        host = host_of[before[representative]]
        if keeps_rules(graph, after, host):
            found.append(Schedule.of(graph, after, host))
    return found
