"""The plan of a running job for other numbers of tasks or workers: who can stay stays.

What stays is pinned, so the fewest tasks move, and the job's scheduler decides on what is open, beside the job's own
constraints and those of its deployment. Where no plan has all of them stay, it places every task anew. Pure but for
the optimisers' clock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.adapt.contract import Look
from penstock.adapt.nearest import relabelled
from penstock.adapt.scene import Scene
from penstock.deploy.driver.binding import Certified, Placing, given, scene_of, scheduled, tasks_per_worker
from penstock.deploy.driver.slots import Slots
from penstock.deploy.scaling.rules import forward_streams
from penstock.errors import Infeasible, InvalidInput, NoPlanFound, UnhonouredConstraints
from penstock.model.constraints import Constraint, Pin
from penstock.model.plan import Slot
from penstock.model.profile import Profile
from penstock.model.rescaled import rescaled
from penstock.model.task_id import operator_of
from penstock.run.dataflow import Dataflow

EVEN = "even"


def planned(
    dataflow: Dataflow,
    slots: Slots,
    placing: Placing,
    kept: Mapping[str, Slot],
    constraints: tuple[Constraint, ...] = (),
) -> Certified:
    """A certified plan in which tasks stay in the slots that are given for them, if any plan has all of them there."""
    wishes = _for_all(dataflow, slots, placing)
    readers = {spec.name for spec in dataflow.operators if spec.one_per_worker}  # they are pinned anyway
    pins = tuple(Pin(task, *slot) for task, slot in kept.items() if operator_of(task) not in readers)
    try:
        return scheduled(dataflow, slots, wishes, constraints, pins)
    except (Infeasible, NoPlanFound, UnhonouredConstraints):
        if not pins:
            raise
        return scheduled(dataflow, slots, wishes, constraints)


def spread(
    dataflow: Dataflow,
    slots: Slots,
    placing: Placing,
    kept: Mapping[str, Slot],
    constraints: tuple[Constraint, ...] = (),
) -> Certified:
    """A certified plan over all workers, in which as many tasks stay in the slots given for them as its maker allows.

    Where the job's scheduler leaves a worker empty, which would end, `even` has the say. Of plans that differ by names
    of nodes and workers alone the nearest is taken.
    """
    wishes = _for_all(dataflow, slots, placing)
    for asked in (wishes, dataclasses.replace(wishes, scheduler=EVEN, fuse=None, settings={})):
        found = scheduled(dataflow, slots, asked, constraints)
        if len({*found.plan.assignment.values()}) == len(slots.node_of):
            return _nearest(found, dataflow, slots, asked, kept)
    msg = (
        f"no plan of {dataflow.name!r} has work for {len(slots.node_of)} workers under its constraints; ask for fewer, "
        "or give an operator more tasks"
    )
    raise InvalidInput(msg)


def _for_all(dataflow: Dataflow, slots: Slots, placing: Placing) -> Placing:
    """Wishes for a plan that uses every worker."""
    tasks, workers = sum(spec.tasks for spec in dataflow.operators), len(slots.node_of)
    return dataclasses.replace(placing, plan=None, tasks_per_worker=tasks_per_worker(tasks, workers))


def _nearest(
    found: Certified, dataflow: Dataflow, slots: Slots, placing: Placing, kept: Mapping[str, Slot]
) -> Certified:
    """The same plan under the names that keep most tasks where they are."""
    profile, constraints = placing.profile, found.plan.constraints
    graph, cluster, demands = scene_of(dataflow, slots, profile, constraints)
    present = {task: kept.get(task, slot) for task, slot in found.plan.assignment.items()}
    look = Look(0.0, graph, cluster, present, profile or Profile(), demands)
    scene = Scene.of(look, [found.plan.assignment])
    named = scene.assignment(relabelled(scene, scene.places(found.plan.assignment)))
    return given(dataflow, slots, dataclasses.replace(found.plan, assignment=named), profile)


def fitting(profile: Profile | None, before: Dataflow, after: Dataflow) -> Profile | None:
    """What was measured of a job with other numbers of tasks, for those that it is to have."""
    if profile is None:
        return None
    then, now = ({operator.name: operator.tasks for operator in each.operators} for each in (before, after))
    return rescaled(profile, then, now, forward_streams(after))


def fitting_placing(placing: Placing, before: Dataflow, after: Dataflow) -> Placing:
    """A job's wishes, with the profile that it was given made to fit."""
    profile = fitting(placing.profile, before, after)
    return placing if profile is placing.profile else dataclasses.replace(placing, profile=profile)
