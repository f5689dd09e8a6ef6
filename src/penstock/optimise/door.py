"""`place`: the one way from a topology and a cluster to a certified Plan.

The scheduler decides, the door measures its time, computes every figure, and lets nothing out that `check_plan`
refuses. A plan that overloads a node (even, flink and ols look at slots, not at capacity) is an error by default,
because nobody should deploy it; a comparison asks for it with `allow_overload` and shows how full the node would be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from penstock.errors import InternalError, InvalidInput, NoPlanFound, UnhonouredConstraints
from penstock.model.check import check_plan, resource_faults
from penstock.model.cluster import Cluster
from penstock.model.constraint_check import constraint_violations
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.contract import Options, Placement, Problem
from penstock.optimise.objective import max_utilisation, node_cost, worker_cost
from penstock.optimise.place import find_scheduler
from penstock.optimise.workers import split_by_kway


def place(
    graph: OperatorGraph,
    cluster: Cluster,
    scheduler: str = "best",
    *,
    profile: Profile | None = None,
    options: Options | None = None,
    allow_overload: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """A certified plan by the named scheduler; raises a UserError that says why when there is none."""
    row = find_scheduler(scheduler)
    options = options or Options()
    row.require_known(options.settings)
    if faults := options.faults():
        raise InvalidInput(faults)
    problem = sound_problem(graph, cluster, profile)
    if graph.constraints:
        from penstock.optimise.fuse.feasibility import require_no_clash

        require_no_clash(problem, stream_cost=0.0)
    schedule = row.load()
    row.prepare(options)
    began = clock()
    placement = schedule(problem, options)
    worker, notes = placement.worker, placement.notes
    if worker is None:
        worker, capped = split_by_kway(problem, placement.node, options)
        notes += capped
    if graph.constraints and "constraints" not in row.looks_at:
        told = f"{scheduler!r} does not look at constraints; that this plan keeps all {len(graph.constraints)} is luck"
        notes += (told,)
    plan = make_plan(problem, scheduler, options.seed, clock() - began, placement, worker, notes)
    return _certified(graph, cluster, plan, profile, allow_overload)


def sound_problem(graph: OperatorGraph, cluster: Cluster, profile: Profile | None) -> Problem:
    """The problem, or InvalidInput or Infeasible with everything that can be seen to be wrong with it."""
    graph.validated()
    cluster.validated()
    if profile is not None:
        profile.validated(graph)
    problem = Problem(TaskGraph.expand(graph, profile), cluster, graph.constraints)
    if faults := problem.node_name_faults():
        raise InvalidInput(faults)
    problem.require_plausible()
    return problem


def compare(
    graph: OperatorGraph,
    cluster: Cluster,
    schedulers: Sequence[str],
    *,
    profile: Profile | None = None,
    options: Options | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[list[Plan], dict[str, str]]:
    """A plan by each scheduler, overloaded ones included, and a reason for each that found none.

    What is wrong with the input itself is raised, not repeated once per scheduler.
    """
    plans: list[Plan] = []
    failures: dict[str, str] = {}
    for done, name in enumerate(schedulers):
        progress(done, len(schedulers), name)
        try:
            plans.append(place(graph, cluster, name, profile=profile, options=options, allow_overload=True))
        except (NoPlanFound, UnhonouredConstraints) as error:
            failures[name] = str(error)
    progress(len(schedulers), len(schedulers), "")
    return plans, failures


def make_plan(
    problem: Problem,
    scheduler: str,
    seed: int,
    seconds: float,
    placement: Placement,
    worker: Ints,
    notes: tuple[str, ...],
) -> Plan:
    """A Plan with every figure computed from the placement."""
    names = [node.name for node in problem.cluster.nodes]
    where = zip(placement.node.tolist(), worker.tolist(), strict=True)
    return Plan(
        scheduler=scheduler,
        seed=seed,
        seconds=seconds,
        cost=node_cost(problem, placement.node),
        inter_worker_cost=worker_cost(problem, placement.node, worker),
        lower_bound=placement.lower_bound,
        proved_optimal=placement.proved_optimal,
        nodes_used=len(np.unique(placement.node)),
        max_utilisation=max_utilisation(problem, placement.node),
        assignment={task: Slot(names[k], w) for task, (k, w) in zip(problem.graph.ids, where, strict=True)},
        notes=notes,
    )


def _certified(
    graph: OperatorGraph,
    cluster: Cluster,
    plan: Plan,
    profile: Profile | None,
    allow_overload: bool,
) -> Plan:
    """The plan, if its certificate holds; with overload allowed, also one that is short of a resource, saying so."""
    faults = check_plan(graph, cluster, plan, profile)
    if not faults:
        return plan
    if broken := constraint_violations(graph, plan.assignment):
        if "constraints" in find_scheduler(plan.scheduler).looks_at:
            msg = f"scheduler {plan.scheduler!r} made a plan that breaks {broken[0]}; please report this"
            raise InternalError(msg)
        raise UnhonouredConstraints(plan.scheduler, broken)
    if set(find_scheduler(plan.scheduler).looks_at) >= {"cpu", "memory", "bandwidth"}:
        msg = f"scheduler {plan.scheduler!r} made a plan that fails its certificate: {faults[0]}; please report this"
        raise InternalError(msg)
    # One node may be short of CPU, of memory and of bandwidth at once, so the sentences are counted and not the nodes.
    if allow_overload and len(faults) == len(list(resource_faults(graph, cluster, plan, profile))):
        return replace(plan, faults=tuple(faults), proved_optimal=False)
    msg = f"scheduler {plan.scheduler!r} found no plan that fits: {faults[0]}; try --scheduler best, or add nodes"
    raise NoPlanFound(msg)
