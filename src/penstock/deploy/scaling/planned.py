"""The plan of a running job for other numbers of tasks or workers: who can stay stays.

What stays is pinned, so the fewest tasks move, and the job's scheduler decides on what is open, beside the job's own
constraints and those of its deployment. Where no plan has all of them stay, it places every task anew. Pure but for
the optimisers' clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.deploy.driver.binding import Certified, Placing, scheduled, tasks_per_worker
from penstock.deploy.driver.slots import Slots
from penstock.deploy.scaling.rules import forward_streams
from penstock.errors import Infeasible, NoPlanFound, UnhonouredConstraints
from penstock.model.constraints import Constraint, Pin
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.rescaled import rescaled
from penstock.run.dataflow import Dataflow


def planned(
    dataflow: Dataflow,
    slots: Slots,
    placing: Placing,
    kept: Mapping[str, Slot],
    constraints: tuple[Constraint, ...] = (),
) -> Certified:
    """A certified plan in which tasks stay in the slots that are given for them, if any plan has all of them there."""
    tasks = [(spec, i) for spec in dataflow.operators for i in range(spec.tasks)]
    per_worker = tasks_per_worker(len(tasks), len(slots.node_of))
    wishes = dataclasses.replace(placing, plan=None, tasks_per_worker=per_worker)
    readers = {spec.name for spec in dataflow.operators if spec.one_per_worker}  # they are pinned anyway
    own = {f"{spec.name}/{i}" for spec, i in tasks if spec.name not in readers}
    pins = tuple(Pin(task, *slot) for task, slot in kept.items() if task in own)
    try:
        return scheduled(dataflow, slots, wishes, constraints, pins)
    except (Infeasible, NoPlanFound, UnhonouredConstraints):
        if not pins:
            raise
        return scheduled(dataflow, slots, wishes, constraints)


def fitting(profile: Profile | None, before: Dataflow, after: Dataflow) -> Profile | None:
    """What was measured of a job with other numbers of tasks, for those that it is to have."""
    if profile is None:
        return None
    then, now = ({o.name: o.tasks for o in each.operators if not o.one_per_worker} for each in (before, after))
    return rescaled(profile, then, now, forward_streams(after))


def fitting_placing(placing: Placing, before: Dataflow, after: Dataflow) -> Placing:
    """A job's wishes, with the profile that it was given made to fit."""
    profile = fitting(placing.profile, before, after)
    return placing if profile is placing.profile else dataclasses.replace(placing, profile=profile)
