"""`fuse`: the one way from a topology and a cluster to a certified Plan in which workers are chosen, not only nodes.

Constraints that clash are refused first, with a minimal set of them. The method decides; the door keeps stated slots,
measures, computes every figure and lets nothing out that `check_plan` refuses. A plan's `cost` and `inter_worker_cost`
are in rates, as everywhere; together they are the total cut. Its notes state U and C of the paper, which count streams
as CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import InternalError, InvalidInput, NoPlanFound, UnhonouredConstraints
from penstock.model.check import check_plan
from penstock.model.cluster import Cluster
from penstock.model.constraint_check import constraint_violations
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.taskgraph import Ints, Longs
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Placement
from penstock.optimise.door import make_plan, sound_problem
from penstock.optimise.fuse.contract import FULL, Case, Fused, FuseOptions, find_method
from penstock.optimise.fuse.feasibility import require_no_clash
from penstock.optimise.fuse.fuse_graph import FuseGraph, fuse_graph
from penstock.optimise.fuse.lpt import utilisations
from penstock.optimise.fuse.postprocess import within_slots
from penstock.optimise.fuse.rules import compile_rules


@dataclass(frozen=True)
class Figures:
    """The paper's figures of a plan."""

    utilisation: float  # U: the fullest node, streams counted
    communication: float  # C: each cut stream at both of its ends
    largest_worker: float  # SIZE
    workers: int
    objective: float  # f(U, C)


def fuse(
    graph: OperatorGraph,
    cluster: Cluster,
    method: str = "best",
    *,
    profile: Profile | None = None,
    options: FuseOptions | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """A certified plan by the named method; raises a UserError that says why when there is none."""
    row = find_method(method)
    case = prepared(graph, cluster, profile, options)
    decide = row.load()
    began = clock()
    require_no_clash(case.problem, case.stream_cost)
    fused = within_stated_slots(case, decide(case))
    seconds = clock() - began
    node, worker = fused.host[fused.worker].astype(np.int32), _numbers_on_nodes(fused.host)[fused.worker]
    figures = figures_of(case, fused)
    notes = (*fused.notes, _told(case, figures), *_told_stream_cost(case))
    plan = make_plan(case.problem, method, case.options.seed, seconds, Placement(node), worker, notes)
    return _certified(graph, cluster, plan, profile, figures)


def prepared(
    graph: OperatorGraph, cluster: Cluster, profile: Profile | None = None, options: FuseOptions | None = None
) -> Case:
    """The case, or InvalidInput with everything that is wrong with the input."""
    options = options or FuseOptions()
    if faults := options.faults():
        raise InvalidInput(faults)
    return Case(sound_problem(graph, cluster, profile), options)


def within_stated_slots(case: Case, fused: Fused) -> Fused:
    """The decision with no more workers on a node than it states slots."""
    graph = task_level(case)
    if (np.bincount(fused.host, minlength=len(graph.slots)) <= graph.slots).all():
        return fused
    names = [node.name for node in case.problem.cluster.nodes]
    part, host = within_slots(graph, fused.worker, fused.host, names)
    return replace(fused, worker=part, host=host)


def _numbers_on_nodes(host: Ints) -> Ints:
    """Each worker's number on its node."""
    local: Ints = np.zeros(len(host), dtype=np.int32)
    for k in np.unique(host).tolist():
        here = np.flatnonzero(host == k)
        local[here] = np.arange(len(here))
    return local


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
    return Figures(used, communication, float(sizes.max()), len(fused.host), case.objective(used, communication))


def _told(case: Case, figures: Figures) -> str:
    workers = "1 worker" if figures.workers == 1 else f"{figures.workers} workers"
    return (
        f"{workers}, the largest of SIZE {figures.largest_worker:.4g}; with streams counted as CPU the fullest node is "
        f"at {100 * figures.utilisation:.4g} %, C {figures.communication:.6g}, f(U, C) {figures.objective:.6g}"
    )


def _told_stream_cost(case: Case) -> tuple[str, ...]:
    """What streams were taken to cost, where nobody stated it and it is not 1."""
    if case.options.stream_cost is not None or case.stream_cost == 1.0:
        return ()
    load = float(case.problem.graph.load.sum())
    share = f"{100 * case.unfused / load:.3g} % of the tasks' load" if load > 0 else f"{case.unfused:.3g}"
    return (
        f"rates are too large to be CPU, so a unit of rate is taken to cost {case.stream_cost:.4g} CPU at each end of "
        f"a stream between workers: all streams together {share}; --stream-cost states what it really costs",
    )


def _certified(graph: OperatorGraph, cluster: Cluster, plan: Plan, profile: Profile | None, figures: Figures) -> Plan:
    """The plan, if its certificate holds and no node pays for more streams than it has room for."""
    faults = check_plan(graph, cluster, plan, profile)
    if broken := constraint_violations(graph, plan.assignment) if len(faults) else []:
        if find_method(plan.scheduler).honours_constraints:
            msg = f"method {plan.scheduler!r} made a plan that breaks {broken[0]}; please report this"
            raise InternalError(msg)
        raise UnhonouredConstraints(plan.scheduler, broken, kind="method", better="--method best")
    other = "" if plan.scheduler == "best" else "try --method best, "
    if faults:
        msg = (
            f"method {plan.scheduler!r} found no plan that fits: {faults[0]}; {other}add nodes, or give the tasks less"
        )
        raise NoPlanFound(msg)
    if figures.utilisation > FULL:
        msg = (
            f"method {plan.scheduler!r} found no plan that fits: with streams counted as CPU the fullest node would be "
            f"at {100 * figures.utilisation:.4g} %; {other}add nodes, or lower --stream-cost"
        )
        raise NoPlanFound(msg)
    return plan
