"""`fuse`: the one way from a topology and a cluster to a certified Plan in which workers are chosen as well as nodes.

Constraints that clash are refused first, with a minimal set of them. The method decides; the door keeps stated slots,
measures, computes every figure and lets nothing out that `check_plan` refuses. A plan's `cost` and `inter_worker_cost`
are in rates, as everywhere; together they are the total cut. Its notes state U and C of the paper, which count streams
as CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import InternalError, InvalidInput, NoPlanFound, PenstockError, UnhonouredConstraints
from penstock.model.cluster import Cluster
from penstock.model.constraints import Constraint
from penstock.model.kinds import require_cluster, require_kind, require_profile
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.taskgraph import Longs
from penstock.model.topology import OperatorGraph, Placeable, graph_of
from penstock.optimise.certificate import certify, demanding, make_plan, sound_problem
from penstock.optimise.communication import rates_are_cpu
from penstock.optimise.contract import Placement
from penstock.optimise.fuse.contract import FULL, Case, Fused, FuseOptions, Method, find_method
from penstock.optimise.fuse.steps.feasibility import require_no_clash
from penstock.optimise.fuse.steps.fuse_graph import FuseGraph, fuse_graph
from penstock.optimise.fuse.steps.lpt import utilisations
from penstock.optimise.fuse.steps.postprocess import within_slots
from penstock.optimise.fuse.steps.rules import compile_rules
from penstock.optimise.fuse.steps.workers import numbers_on_nodes, pinned_workers
from penstock.optimise.meet import keeps, met
from penstock.optimise.objective import is_feasible

NEXT_TO_NOTHING = 1e-3  # of the tasks' load: what streams come to where declared rates are no bytes of anything
UNMEASURED_NOTE = "nothing is measured: streams count as next to nothing; a profile of a run says what they cost"
MOVED_NOTE = "moved to other workers to keep constraints and slots"


@dataclass(frozen=True)
class Figures:
    """The paper's figures of a plan."""

    utilisation: float  # U: the fullest node, streams counted
    communication: float  # C: each cut stream at both of its ends
    largest_worker: float  # SIZE
    workers: int
    objective: float  # f(U, C)
    alone: tuple[tuple[str, float, float], ...]  # tasks that alone are more than a worker carries: id, SIZE, limit
    overfull: tuple[tuple[str, float, float], ...]  # tasks of workers that could be divided and are more, the same


def fuse(
    graph: OperatorGraph | Placeable,
    cluster: Cluster,
    method: str = "best",
    *,
    profile: Profile | None = None,
    options: FuseOptions | None = None,
    demands: tuple[Constraint, ...] = (),
    meet: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """A certified plan by the named method; raises a UserError that says why when there is none.

    `demands` are constraints of a deployment, as `place` takes them. With `meet` the answer of a method that looks at
    no constraint is changed until it keeps them, as a job asks for.
    """
    require_kind(method, str, "method", "the name of one, such as 'best'")
    row = find_method(method)
    require_cluster(cluster)
    require_profile(profile)
    wanted = "a penstock.FuseOptions, such as penstock.FuseOptions(balance=0.2)"
    require_kind(options, FuseOptions | None, "options", wanted)
    graph = graph_of(graph, () if profile is None else profile.tasks)
    whole = demanding(graph, demands)
    case = prepared(whole, cluster, profile, options)
    row.require_read(case.options)
    decide = row.load()
    began = clock()
    require_no_clash(case.problem, case.stream_cost)
    fused = within_stated_slots(case, decide(case))
    if meet and whole.constraints and not row.honours_constraints:
        fused = seated(case, fused) or fused
    seconds = clock() - began
    pinned = pinned_workers(fused.worker, compile_rules(case.problem).pinned)
    placement = Placement(fused.host[fused.worker].astype(np.int32))
    worker = numbers_on_nodes(fused.host, pinned)[fused.worker]
    figures, refusals = figures_of(case, fused), MethodRefusals(row)
    notes = (*fused.notes, _told(case, figures), *_told_alone(figures), *_told_stream_cost(case, profile))
    seed = case.options.seed
    plan = make_plan(case.problem, method, seed, seconds, placement, worker, notes, graph.constraints)
    plan = replace(plan, max_utilisation=plan.max_utilisation * case.options.gamma)  # of what nodes really have
    plan = certify(whole, cluster, plan, profile, refusals)
    refusals.require_room(figures)
    return plan


def prepared(
    graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None, options: FuseOptions | None = None
) -> Case:
    """The case, or InvalidInput with everything that is wrong with the input."""
    options = options or FuseOptions()
    if faults := options.faults():
        raise InvalidInput(faults)
    return Case(sound_problem(graph, scaled(cluster, options.gamma), profile), options)


def scaled(cluster: Cluster, gamma: float) -> Cluster:
    """The cluster with the CPU of every node and of its workers scaled; memory and slots are not."""
    if gamma == 1.0:
        return cluster
    return Cluster(
        tuple(
            replace(
                node,
                capacity=node.capacity * gamma,
                worker_capacity=None if node.worker_capacity is None else node.worker_capacity * gamma,
            )
            for node in cluster.nodes
        )
    )


def within_stated_slots(case: Case, fused: Fused) -> Fused:
    """The decision with no more workers on a node than it states slots."""
    graph = task_level(case)
    if (np.bincount(fused.host, minlength=len(graph.slots)) <= graph.slots).all():
        return fused
    names = [node.name for node in case.problem.cluster.nodes]
    try:
        part, host = within_slots(graph, fused.worker, fused.host, names)
    except NoPlanFound:
        if (moved := seated(case, fused)) is not None:
            return moved
        raise
    return replace(fused, worker=part, host=host)


def seated(case: Case, fused: Fused) -> Fused | None:
    """The decision with tasks moved to other workers, and nodes, until it keeps rules and slots; None where it cannot.

    The step that schedulers use which look at no constraint: it counts no streams, so what they take is looked at
    afterwards.
    """
    problem, rules = case.problem, compile_rules(case.problem)
    number = numbers_on_nodes(fused.host, pinned_workers(fused.worker, rules.pinned))
    before = fused.host[fused.worker], number[fused.worker]
    node, worker = met(problem, rules, *before)
    slots = np.array([math.inf if k.slots is None else k.slots for k in problem.cluster.nodes])
    if not keeps(rules, node, worker) or (worker >= slots[node]).any() or not is_feasible(problem, node):
        return None
    seats, part = np.unique(np.stack([node, worker]), axis=1, return_inverse=True)
    moved = int(((node != before[0]) | (worker != before[1])).sum())
    told = f"{moved} task{'' if moved == 1 else 's'} {MOVED_NOTE}"
    return Fused(part.reshape(-1).astype(np.int64), seats[0].astype(np.int32), (*fused.notes, told))


def task_level(case: Case) -> FuseGraph:
    """The graph of single tasks, with the rules' labels but without its blocks."""
    rules = compile_rules(case.problem)
    apart = replace(rules, block=np.arange(case.problem.task_count, dtype=np.int64))
    return fuse_graph(case.problem, apart, case.stream_cost)


def figures_of(case: Case, fused: Fused) -> Figures:
    """The paper's figures, over single tasks: what is glued together has no stream that is cut."""
    graph = task_level(case)
    part: Longs = fused.worker
    sizes = graph.sizes(part)
    used = float(utilisations(sizes, fused.host, graph.capacity).max())
    communication = graph.communication(part)
    over: dict[bool, list[tuple[str, float, float]]] = {True: [], False: []}
    limit, block = graph.worker_limit[fused.host], compile_rules(case.problem).block
    for worker in np.flatnonzero(sizes > limit * FULL).tolist():
        tasks = np.flatnonzero(part == worker)
        row = case.problem.graph.ids[int(tasks[0])], float(sizes[worker]), float(limit[worker])
        over[len(np.unique(block[tasks])) == 1].append(row)
    return Figures(
        used,
        communication,
        float(sizes.max()),
        len(fused.host),
        case.objective(used, communication),
        tuple(over[True]),
        tuple(over[False]),
    )


def _told(case: Case, figures: Figures) -> str:
    workers = "1 worker" if figures.workers == 1 else f"{figures.workers} workers"
    return (
        f"{workers}, the largest of SIZE {figures.largest_worker:.4g}; with streams counted as CPU the fullest node is "
        f"at {100 * figures.utilisation:.4g} %, C {figures.communication:.6g}, f(U, C) {figures.objective:.6g}"
    )


def _told_alone(figures: Figures) -> tuple[str, ...]:
    """Tasks that cannot be divided and are more than their worker carries."""
    if not figures.alone:
        return ()
    task, size, limit = figures.alone[0]
    more = f" and {len(figures.alone) - 1} more" if len(figures.alone) > 1 else ""
    return (
        f"{task!r}{more} alone is of SIZE {size:.4g}, more than the {limit:.4g} that a worker carries (it is one "
        "thread), so it will be slower than it was measured; split its operator into more tasks",
    )


def _told_stream_cost(case: Case, profile: Profile | None) -> tuple[str, ...]:
    """What streams were taken to cost, where the caller did not state it and rates are not CPU themselves."""
    graph = case.problem.graph
    if case.options.stream_cost is not None or rates_are_cpu(graph):
        return ()
    load = float(graph.load.sum())
    if (profile is None or not profile.edges) and case.unfused <= NEXT_TO_NOTHING * load:
        return (f"{UNMEASURED_NOTE} (until then: {graph.costs.origin}); --stream-cost states another cost",)
    share = f"{100 * case.unfused / load:.3g} % of the tasks' load" if load > 0 else f"{case.unfused:.3g}"
    measured = "; first of all what the profile measured at that distance" if graph.measured else ""
    return (
        f"rates are bytes and not CPU, so a stream between workers costs CPU for its batches, rows and bytes "
        f"({graph.costs.origin}{measured}): all streams together {share}; --stream-cost states another cost",
    )


@dataclass(frozen=True)
class MethodRefusals:
    """What is said of a method whose plan fails its certificate."""

    row: Method

    @property
    def other(self) -> str:
        """The method that may do better."""
        return "" if self.row.name == "best" else "try --method best, "

    def broken(self, constraints: list[str]) -> PenstockError:
        """A method that honours constraints keeps them: breaking one is our bug."""
        if self.row.honours_constraints:
            msg = f"method {self.row.name!r} made a plan that breaks {constraints[0]}; please report this"
            return InternalError(msg)
        return UnhonouredConstraints(self.row.name, constraints, kind="method", better="--method best")

    def refused(self, faults: list[str]) -> PenstockError:
        """No method looks at bandwidth, so a plan that exceeds it is no bug."""
        return NoPlanFound(
            f"method {self.row.name!r} found no plan that fits: {faults[0]}; {self.other}add nodes, or give the tasks "
            "less"
        )

    def require_room(self, figures: Figures) -> None:
        """Raise NoPlanFound where a node or a worker pays for more streams than it carries; certificates do not."""
        if figures.overfull:
            task, size, limit = figures.overfull[0]
            msg = (
                f"method {self.row.name!r} found no plan that fits: with streams counted as CPU the worker of {task!r} "
                f"would be of SIZE {size:.4g}, and one worker carries {limit:.4g}; {self.other}add nodes, or lower "
                "--stream-cost"
            )
            raise NoPlanFound(msg)
        if figures.utilisation > FULL:
            msg = (
                f"method {self.row.name!r} found no plan that fits: with streams counted as CPU the fullest node would "
                f"be at {100 * figures.utilisation:.4g} %; {self.other}add nodes, or lower --stream-cost"
            )
            raise NoPlanFound(msg)
