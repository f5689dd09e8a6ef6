"""Profile iterations: fuse, run, measure, fuse again, with capacities scaled by gamma (paper 004, section 4).

Costs are known from a run, and a run needs a fusion. The first run is unfused; its profile gives the first fusion,
which is run to measure again, and so on. Early profiles come from slow runs and understate costs, so capacities are
scaled by gamma: 0.5 in the first iteration, 0.1 more in each, 1.0 in the sixth. Running is the caller's: any
`run(plan) -> Profile`, or `run(plan) -> (Profile, throughput)` where the best throughput decides which plan is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import NoPlanFound, UserError
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.topology import OperatorGraph
from penstock.optimise.fuse.contract import FuseOptions
from penstock.optimise.fuse.door import fuse

GAMMAS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Run = Callable[[Plan], "Profile | tuple[Profile, float]"]


@dataclass(frozen=True)
class Iteration:
    """One run: `number` 0 is the unfused one. `throughput` is None where the caller measures none."""

    number: int
    gamma: float
    plan: Plan | None  # None where no fusion fitted the scaled capacities
    profile: Profile
    throughput: float | None
    note: str = ""


def iterate(
    graph: OperatorGraph,
    cluster: Cluster,
    run: Run,
    method: str = "cola",
    *,
    options: FuseOptions | None = None,
    gammas: Sequence[float] = GAMMAS,
) -> list[Iteration]:
    """Every iteration in order; an iteration that finds no fusion keeps the profile before it and says why."""
    plan = _first_plan(graph, cluster, options)
    profile, throughput = _measured(run(plan))
    done = [Iteration(0, 1.0, plan, profile, throughput)]
    for number, gamma in enumerate(gammas, start=1):
        try:
            plan = fuse(graph, scaled(cluster, gamma), method, profile=profile, options=options)
        except UserError as error:
            done.append(Iteration(number, gamma, None, profile, None, str(error)))
            continue
        # The plan's own figure is over the scaled capacities; a run has the real ones.
        plan = replace(plan, max_utilisation=plan.max_utilisation * gamma)
        profile, throughput = _measured(run(plan))
        done.append(Iteration(number, gamma, plan, profile, throughput))
    return done


def chosen(iterations: Sequence[Iteration]) -> Iteration:
    """The iteration to keep: the best throughput where it was measured, else the last with a plan."""
    with_plan = [iteration for iteration in iterations if iteration.plan is not None]
    measured = [iteration for iteration in with_plan if iteration.throughput is not None]
    if measured:
        return max(measured, key=lambda iteration: (iteration.throughput or 0.0, -iteration.number))
    return with_plan[-1]


def scaled(cluster: Cluster, gamma: float) -> Cluster:
    """The cluster with every node's CPU capacity scaled; memory and slots are not."""
    return Cluster(tuple(replace(node, capacity=node.capacity * gamma) for node in cluster.nodes))


def _first_plan(graph: OperatorGraph, cluster: Cluster, options: FuseOptions | None) -> Plan:
    """No fusion; where paying for every stream overloads the cluster, the best fusion for the declared costs."""
    try:
        return fuse(graph, cluster, "none", options=options)
    except NoPlanFound:
        return fuse(graph, cluster, "best", options=options)


def _measured(answer: Profile | tuple[Profile, float]) -> tuple[Profile, float | None]:
    return answer if isinstance(answer, tuple) else (answer, None)
