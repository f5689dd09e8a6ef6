"""Candidates: what the job's scheduler would do with what was measured. The one part of this room that searches.

The scheduler's name, settings and seed stay from look to look. `best` is asked under both of its goals: under
throughput it spreads work further than a job that is not busy needs, and under bytes not far enough for one that is.
Where nothing fits, capacities are stretched step by step, as a job does at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.adapt.contract import AdaptSettings, Candidate, Look, Offer
from penstock.adapt.scene import demanded
from penstock.adapt.speeds import as_offered
from penstock.errors import Infeasible, NoPlanFound, UnhonouredConstraints
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import TaskGraph
from penstock.optimise.certificate import demanding
from penstock.optimise.contract import GOALS, Options, Problem
from penstock.optimise.door import place
from penstock.optimise.stretch import least_stretch

STRETCHES = (1.0, 1.1, 1.3, 2.0)  # beyond what is needed by arithmetic


def candidates(look: Look, settings: AdaptSettings) -> Offer:
    """The plans of the settings' scheduler for this look; takes its theta for each."""
    both = settings.scheduler == "best" and "goal" not in settings.scheduler_settings
    asked: list[Mapping[str, object]] = [{"goal": goal} for goal in GOALS] if both else [{}]
    made: list[Candidate] = []
    refusal = ""
    for own in asked:
        found = _candidate(look, settings, {**own, **settings.scheduler_settings})
        if isinstance(found, Candidate):
            made.append(found)
        else:
            refusal = found
    return Offer(tuple(made), refusal if not made else "")


def _candidate(look: Look, settings: AdaptSettings, own: Mapping[str, object]) -> Candidate | str:
    """A plan on the cluster as it is or, where that has none, stretched; else why there is none."""
    profile, cluster = demanded(look), as_offered(look)
    options = Options(settings.seed, settings.theta, settings.tasks_per_worker, own, usable_share=look.usable_share)
    refusal = ""
    for factor in _factors(look, cluster):
        try:
            plan = place(
                look.graph,
                _stretched(cluster, factor),
                settings.scheduler,
                profile=profile,
                options=options,
                demands=look.demands,
                meet=True,
            )
        except (NoPlanFound, Infeasible, UnhonouredConstraints) as error:
            refusal = str(error)
        else:
            return Candidate(plan, factor)
    return refusal


def _factors(look: Look, cluster: Cluster) -> list[float]:
    whole = demanding(look.graph, look.demands)
    problem = Problem(TaskGraph.expand(whole, demanded(look)), cluster, whole.constraints)
    needed = max(1.0, least_stretch(problem))
    return [needed * stretch for stretch in STRETCHES]


def _stretched(cluster: Cluster, factor: float) -> Cluster:
    """The cluster with all that its nodes and workers carry multiplied."""
    nodes = (
        replace(
            node,
            capacity=node.capacity * factor,
            worker_capacity=None if node.worker_capacity is None else node.worker_capacity * factor,
        )
        for node in cluster.nodes
    )
    return Cluster(tuple(nodes))
