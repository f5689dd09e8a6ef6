"""Replicas of a parallel region on workers of their own, whatever a scheduler says. Pure.

Schedulers save traffic and fill nodes up to their capacity; a worker is a slot to them, not a thread. Two replicas on
one worker take turns, and the region is no faster than with one. So a plan that a scheduler made is changed where
replicas meet: the one with the higher number goes to a worker without any, on its own node if there is one, to that
with the fewest tasks otherwise. All operators of one replica stay together, as they only send to each other. Plans that
users give are left as they are.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from penstock.model.plan import Plan, Slot
from penstock.run.dataflow import Dataflow

NOTE = "replicas of parallel regions were spread over workers, because those that share one take turns"


def spread(plan: Plan, dataflow: Dataflow, workers_on: Mapping[str, int]) -> Plan:
    """The plan with every replica of a region on another worker, as far as there are any; figures are not redone."""
    assignment = dict(plan.assignment)
    for region, replicas in dataflow.regions().items():
        chain = [
            operator.name
            for operator in dataflow.operators
            if operator.region is not None and (operator.region.region, operator.region.role) == (region, "replica")
        ]
        taken: set[Slot] = set()
        for i in range(replicas):
            slot = _free_slot(assignment, assignment[f"{chain[0]}/{i}"], taken, workers_on)
            taken.add(slot)
            assignment |= {f"{name}/{i}": slot for name in chain}
    if assignment == dict(plan.assignment):
        return plan
    return dataclasses.replace(plan, assignment=assignment, notes=(*plan.notes, NOTE))


def _free_slot(assignment: Mapping[str, Slot], wanted: Slot, taken: set[Slot], workers_on: Mapping[str, int]) -> Slot:
    if wanted not in taken:
        return wanted
    tasks_on = Counter(assignment.values())
    free = [Slot(node, w) for node, count in workers_on.items() for w in range(count) if Slot(node, w) not in taken]
    return min(free, key=lambda slot: (slot.node != wanted.node, tasks_on[slot], slot), default=wanted)
