"""What a deployment demands of a plan, as constraints that schedulers see and `check_plan` checks. Pure.

A DataFrame's rows are handed to every worker by Spark, so task i of its reader is pinned to worker i. Two replicas of a
parallel region on one worker take turns, and the region is no faster than with one, so replicas are kept in workers of
their own; all operators of one replica share a worker, because they send to each other alone. Where there are fewer
workers than replicas, as many replicas are apart as there are workers, and the others may be anywhere: every worker has
one, and which of them takes a second one is for traffic to decide.

Pins hold for every plan. Separations hold for plans that a scheduler makes; a plan that a user gives may put replicas
together. Both are held by tests/unit/test_plan_road.py.
"""

from __future__ import annotations

import dataclasses

from penstock.deploy.driver.slots import Slots
from penstock.model.constraints import Apart, Constraint, Pin, Resource, Together
from penstock.model.task_id import TaskId, tasks_of_operator
from penstock.model.topology import OperatorGraph
from penstock.run.dataflow import Dataflow


def pins(dataflow: Dataflow, slots: Slots) -> tuple[Pin, ...]:
    """Task i of every operator that reads a DataFrame in worker i."""
    return tuple(
        Pin(TaskId.of(operator.name, i), *slots.slot(i))
        for operator in dataflow.operators
        if operator.one_per_worker
        for i in range(operator.tasks)
    )


def replicas_apart(dataflow: Dataflow, workers: int) -> tuple[Constraint, ...]:
    """Replicas of each region in workers of their own, as far as there are workers, each with all of its operators."""
    found: list[Constraint] = []
    for region, replicas in dataflow.regions().items():
        chain = [
            operator.name
            for operator in dataflow.operators
            if operator.region is not None and (operator.region.region, operator.region.role) == (region, "replica")
        ]
        if len(chain) > 1:
            found += [Together("worker", tuple(TaskId.of(name, i) for name in chain)) for i in range(replicas)]
        if (apart := min(replicas, workers)) > 1:
            found.append(Apart("worker", tuple(tasks_of_operator(chain[0], apart))))
    return tuple(found)


def among(graph: OperatorGraph, slots: Slots) -> OperatorGraph:
    """The graph with nodes that Spark did not give left out of what a constraint allows, as long as one is left."""
    return dataclasses.replace(graph, constraints=tuple(_among(constraint, slots) for constraint in graph.constraints))


def _among(constraint: Constraint, slots: Slots) -> Constraint:
    if not isinstance(constraint, Resource):
        return constraint
    here = tuple(name for name in constraint.nodes if name in slots.counts)
    return dataclasses.replace(constraint, nodes=here) if here else constraint
