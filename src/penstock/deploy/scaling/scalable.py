"""What a running job can be told of its size: other numbers of tasks, replicas and workers."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.driver.options import JobOrder
from penstock.deploy.scaling.planned import fitting, fitting_placing, planned
from penstock.deploy.scaling.rules import scaled
from penstock.errors import InvalidInput
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.run.dataflow import Dataflow
from penstock.run.region.scale import region_of, region_to_scale

if TYPE_CHECKING:
    from penstock.deploy.driver.slots import Slots


class Scalable:
    """A job whose tasks and workers can become more or fewer while it runs."""

    name: str
    _order: JobOrder
    _attempts: Attempts
    _status: str
    _ended: threading.Event

    if TYPE_CHECKING:

        @property
        def dataflow(self) -> Dataflow:
            """What runs."""

        def slots_of_workers(self) -> Slots:
            """The workers as plans see them."""

        def profile(self) -> Profile:
            """What was measured."""

        def _plan_now(self) -> Plan:
            """The plan that is followed."""

    def scale(self, name: str, n: int) -> Crossing | None:
        """Give an operator n tasks, or have n replicas of a parallel region take part.

        An operator's tasks become more or fewer as `move` moves them: the job commits an epoch and its workers stand
        still for some 0.1 s. Operators that are joined task by task change together. State goes with its keys, and what
        sources have left is shared out anew. InvalidInput, before anything stands, where that cannot be.

        Of a region, `name` is its own or that of an operator in it. Replicas are 1 to what `parallel(n, at_most=m)` was
        given; the last to join is the first to leave. While the job recovers, this waits for the next attempt. None is
        returned then, since the region changes with its next sample.
        """
        if region_of(self._order.dataflow, name) is None:
            return self._scale_operator(name, n)
        region = region_to_scale(self._order.dataflow, name, n)
        self._require_running(f"region {region!r}")
        self._attempts.scale(region, n)
        return None

    def _scale_operator(self, name: str, tasks: int) -> Crossing:
        before = self.dataflow
        after = scaled(before, name, tasks)
        self._require_running(f"operator {name!r}")
        self._attempts.require_checkpoints(f"operator {name!r} keeps its tasks")
        plan, slots = self._plan_now(), self.slots_of_workers()
        profile = fitting(self._measured_so_far(), before, after)
        kept = {f"{spec.name}/{i}" for spec in after.operators for i in range(spec.tasks)} & plan.assignment.keys()
        stays = {task: slot for task, slot in plan.assignment.items() if task in kept}
        wishes = fitting_placing(self._order.placing, self._order.dataflow, after)
        wishes = wishes if profile is None else replace(wishes, profile=profile)
        found = planned(after, slots, wishes, stays, plan.constraints)
        return self._attempts.go_over(found.plan, profile)

    def _measured_so_far(self) -> Profile | None:
        """What the plan for other numbers is made from; None in the first interval."""
        try:
            return self.profile()
        except InvalidInput:
            return None

    def _require_running(self, who: str) -> None:
        if self._ended.is_set() or self._status == "stopping":
            msg = f"job {self.name!r} is {self._status}; {who} can be scaled only while the job runs"
            raise InvalidInput(msg)
