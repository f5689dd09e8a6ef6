"""A look in arrays: the problem with the limits of this moment, the rules, what plans cost, and where tasks are now.

A starved task takes all that its worker has and would take more, so its measured load says too little: plans are priced
and made as if it filled its worker (`demanded`). Certificates are made with what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from penstock.adapt.contract import Assignment, Look, Move
from penstock.adapt.speeds import SPEED_MIN, as_measured, slow_workers
from penstock.errors import InvalidInput
from penstock.model.plan import Slot
from penstock.model.profile import Profile, TaskProfile
from penstock.model.taskgraph import Floats, Ints, TaskGraph
from penstock.optimise.certificate import demanding
from penstock.optimise.contract import SLACK, Problem
from penstock.optimise.fuse.steps.rules import Rules, compile_rules
from penstock.optimise.meet import keeps
from penstock.optimise.objective import is_feasible
from penstock.optimise.search.pressure import Pricing
from penstock.optimise.seats import crowded

Places = tuple[Ints, Ints]  # node and worker of each task


@dataclass(frozen=True, eq=False)
class Scene:
    """What plans are judged by at one look."""

    look: Look
    problem: Problem
    rules: Rules | None
    pricing: Pricing
    present: Places
    slow: Floats  # what a slow worker carries, infinite elsewhere; by seat

    @classmethod
    def of(cls, look: Look, others: Iterable[Assignment] = (), stretch: float = 1.0) -> Scene:
        """For the present plan and others, on a cluster that is stretched by a factor."""
        whole = demanding(look.graph, look.demands)
        tasks = TaskGraph.expand(whole, demanded(look))
        problem = Problem(tasks, as_measured(look, stretch), whole.constraints)
        real = problem if stretch == 1.0 else replace(problem, cluster=as_measured(look))  # prices know no stretch
        present = _places(problem, look.assignment)
        seats = _seats(look, problem, others)
        pricing = Pricing.of(real, seats, look.usable_share)
        pricing = replace(pricing, declared=False, thread=_threads(look, real, pricing))
        rules = compile_rules(problem) if problem.constraints else None
        return cls(look, problem, rules, pricing, present, _slow_limits(look, problem, seats, stretch))

    def places(self, assignment: Assignment) -> Places:
        """A plan as the arrays have it."""
        return _places(self.problem, assignment)

    def assignment(self, places: Places) -> dict[str, Slot]:
        """The arrays as a plan has them."""
        names = [node.name for node in self.problem.cluster.nodes]
        where = zip(self.problem.graph.ids, places[0].tolist(), places[1].tolist(), strict=True)
        return {task: Slot(names[k], w) for task, k, w in where}

    def moved(self, places: Places) -> Ints:
        """The tasks that are elsewhere now."""
        apart = (places[0] != self.present[0]) | (places[1] != self.present[1])
        return np.flatnonzero(apart).astype(np.int32)

    def moves(self, places: Places) -> tuple[Move, ...]:
        """The same, in words of plans."""
        target = self.assignment(places)
        ids = self.problem.graph.ids
        return tuple(Move(ids[t], self.look.assignment[ids[t]], target[ids[t]]) for t in self.moved(places).tolist())

    def holds(self, places: Places) -> bool:
        """Whether every limit and every constraint is kept."""
        node, worker = places
        return (
            bool((worker < self.problem.workers_limit[node]).all())
            and is_feasible(self.problem, node)
            and not len(crowded(self.problem, node, worker))
            and self._slow_are_spared(node, worker)
            and (self.rules is None or keeps(self.rules, node, worker))
        )

    def _slow_are_spared(self, node: Ints, worker: Ints) -> bool:
        seat = node.astype(np.int64) * self.pricing.seats + worker
        load = np.bincount(seat, self.problem.graph.load, minlength=len(self.slow))
        return not ((load > self.slow) & (np.bincount(seat, minlength=len(self.slow)) > 1)).any()

    @cached_property
    def state(self) -> Floats:
        """Bytes of state of each task; 0 where nobody knows of any."""
        return np.array([self.look.state_bytes.get(task, 0.0) for task in self.problem.graph.ids])


def demanded(look: Look) -> Profile:
    """The profile, with the loads that starved tasks would have if their workers were theirs."""
    if not look.starved:
        return look.profile
    loads = {task: measured.load for task, measured in look.profile.tasks.items()}
    limit = {node.name: node.worker_capacity or node.capacity for node in look.cluster.nodes}
    raised = dict(look.profile.tasks)
    for task in sorted(look.starved & loads.keys()):
        slot = look.assignment[task]
        others = sum(load for other, load in loads.items() if other != task and look.assignment[other] == slot)
        wanted = max(loads[task], limit[slot.node] - others)
        raised[task] = replace(look.profile.tasks[task], load=wanted)
    return replace(look.profile, tasks=raised)


def relative_spread(measured: TaskProfile | None, unknown: float) -> float:
    """The spread of a load as a share of it."""
    if measured is None or measured.spread is None or measured.load <= 0:
        return unknown
    return measured.spread / measured.load


def _places(problem: Problem, assignment: Assignment) -> Places:
    number = {node.name: k for k, node in enumerate(problem.cluster.nodes)}
    lost = [task for task in problem.graph.ids if task not in assignment or assignment[task].node not in number]
    if lost:
        msg = f"task {lost[0]!r} is on no node of the cluster (nor are {len(lost) - 1} more); look again later"
        raise InvalidInput(msg)
    slots = [assignment[task] for task in problem.graph.ids]
    node = np.array([number[slot.node] for slot in slots], dtype=np.int32)
    return node, np.array([slot.worker for slot in slots], dtype=np.int32)


def _seats(look: Look, problem: Problem, others: Iterable[Assignment]) -> int:
    """Workers of a node: all that a plan uses, and as many more as tasks could be put into."""
    used = 1 + max(slot.worker for plan in (look.assignment, *others) for slot in plan.values())
    stated = max((node.slots or 1 for node in problem.cluster.nodes), default=1)
    return max(used, min(stated, problem.task_count + len(look.speed)))


def _threads(look: Look, problem: Problem, pricing: Pricing) -> Floats:
    """What each seat can do: what its node says, slow ones by their own speed, and no more than is left to them."""
    thread = pricing.thread.copy()
    number = {node.name: k for k, node in enumerate(look.cluster.nodes)}
    for slot, able in look.able.items():
        if slot.node in number and slot.worker < pricing.seats:
            node, seat = look.cluster.nodes[number[slot.node]], number[slot.node] * pricing.seats + slot.worker
            thread[seat] = min(thread[seat], (node.worker_capacity or node.capacity) * max(SPEED_MIN, able))
    for k, w, carried in _slow_seats(look, problem):
        if w < pricing.seats:
            thread[k * pricing.seats + w] = min(thread[k * pricing.seats + w], carried)
    return thread


def _slow_limits(look: Look, problem: Problem, seats: int, stretch: float) -> Floats:
    limits = np.full(problem.node_count * seats, np.inf)
    for k, w, carried in _slow_seats(look, problem):
        if w < seats:
            limits[k * seats + w] = carried * stretch * (1 + SLACK)
    return limits


def _slow_seats(look: Look, problem: Problem) -> list[tuple[int, int, float]]:
    """Node and number of each slow worker, and what it carries."""
    number = {node.name: k for k, node in enumerate(problem.cluster.nodes)}
    whole = {node.name: node.worker_capacity or node.capacity for node in look.cluster.nodes}
    return [
        (number[slot.node], slot.worker, whole[slot.node] * speed)
        for slot, speed in slow_workers(look).items()
        if slot.node in number
    ]
