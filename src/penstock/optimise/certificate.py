"""From a decision to a certified Plan: the problem made sound, every figure computed, and `check_plan` asked.

`place`, `fuse` and a job that follows a given plan all end in `certify`, so one function says which plans may leave
(tests/unit/test_plan_road.py). Each caller brings the words for a refusal: a scheduler that promised to keep
constraints and did not has a fault of ours, a user's plan that breaks one has a fault of the user's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from penstock.errors import Infeasible, InvalidInput, PenstockError
from penstock.model.check import check_plan, resource_faults
from penstock.model.cluster import Cluster
from penstock.model.constraint_check import constraint_violations
from penstock.model.constraints import OF_DEPLOYMENTS, Constraint
from penstock.model.plan import Plan, Slot
from penstock.model.profile import Profile
from penstock.model.task_id import tasks_of_operator
from penstock.model.taskgraph import Ints, TaskGraph
from penstock.model.topology import OperatorGraph
from penstock.optimise.calibrated_costs import known_costs
from penstock.optimise.contract import Placement, Problem
from penstock.optimise.objective import max_utilisation, node_cost, worker_cost
from penstock.optimise.seats import seat_shortfalls


class Refusals(Protocol):
    """The errors for a plan that fails its certificate, in the words of its maker."""

    def broken(self, constraints: list[str]) -> PenstockError:
        """For a plan that breaks constraints."""

    def refused(self, faults: list[str]) -> PenstockError:
        """For a plan with any other fault."""


def sound_problem(graph: OperatorGraph, cluster: Cluster, profile: Profile | None, *, short: bool = False) -> Problem:
    """The problem, or InvalidInput or Infeasible with everything that can be seen to be wrong with it.

    A `short` one may lack resources: it is for schedulers that do not look at them, where an overload is asked for.
    """
    graph.validated()
    cluster.validated()
    if profile is not None:
        profile.validated(graph)
    problem = Problem(TaskGraph.expand(graph, profile, known_costs()), cluster, graph.constraints)
    if faults := problem.node_name_faults():
        raise InvalidInput(faults)
    if short:
        return problem
    problem.require_plausible()
    if faults := seat_shortfalls(problem):
        raise Infeasible("; ".join(faults))
    return problem


def demanding(graph: OperatorGraph, demands: tuple[Constraint, ...]) -> OperatorGraph:
    """The graph with the constraints of a deployment beside its own."""
    return replace(graph, constraints=(*graph.constraints, *demands)) if demands else graph


def make_plan(
    problem: Problem,
    scheduler: str,
    seed: int,
    seconds: float,
    placement: Placement,
    worker: Ints,
    notes: tuple[str, ...],
    constraints: tuple[Constraint, ...] = (),
) -> Plan:
    """A Plan with every figure computed from the placement; of the constraints it records all but a deployment's.

    Worker numbers belong to one deployment, so a pin says nothing to the next one.
    """
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
        constraints=tuple(constraint for constraint in constraints if not isinstance(constraint, OF_DEPLOYMENTS)),
    )


def certify(
    graph: OperatorGraph,
    cluster: Cluster,
    plan: Plan,
    profile: Profile | None,
    refusals: Refusals,
    *,
    allow_overload: bool = False,
) -> Plan:
    """The plan, if its certificate holds; with overload allowed, also one that is short of a resource, saying so."""
    faults = check_plan(graph, cluster, plan, profile)
    if not faults:
        return plan if profile is None else replace(plan, rows_per_second=profile.rows_per_second)
    whole = all(t in plan.assignment for o in graph.operators for t in tasks_of_operator(o.name, o.tasks))
    if whole and (broken := constraint_violations(graph, plan.assignment, cluster.tags)):
        raise refusals.broken(broken)
    # One node may be short of CPU, of memory and of bandwidth at once, so the sentences are counted and not the nodes.
    if allow_overload and len(faults) == len(list(resource_faults(graph, cluster, plan, profile))):
        return replace(plan, faults=tuple(faults), proved_optimal=False)
    raise refusals.refused(faults)
