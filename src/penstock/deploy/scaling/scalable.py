"""What a running job can be told of its size: other numbers of tasks, replicas and workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.deploy.attempt.crossing import Crossing
from penstock.deploy.attempt.series import Attempts
from penstock.deploy.driver.binding import Placing
from penstock.deploy.driver.facts import gather_facts
from penstock.deploy.driver.options import JobOrder
from penstock.deploy.line.messages import Hello
from penstock.deploy.scaling.leaving import executors_of_tasks, inactive_executors, room_elsewhere
from penstock.deploy.scaling.planned import fitting, fitting_placing, planned, spread
from penstock.deploy.scaling.room import numbered_anew, require_room, who_leaves, workers_of_node
from penstock.deploy.scaling.rules import require_numbers, scaled
from penstock.deploy.session import live_jobs
from penstock.errors import InvalidInput
from penstock.model.plan import Plan
from penstock.model.profile import Profile
from penstock.model.task_id import TaskId
from penstock.run.dataflow import Dataflow, as_placed, sized
from penstock.run.region.scale import region_of, region_to_scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.deploy.driver.slots import Slots


class Scalable:
    """A job whose tasks and workers can become more or fewer while it runs."""

    name: str
    workers: tuple[Hello, ...]
    _spark: SparkSession
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

        @property
        def worker_of(self) -> Mapping[str, int]:
            """Which worker runs which task."""

        def _slots_of(self, hellos: Sequence[Hello]) -> Slots:
            """Workers as plans see them."""

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

    def add_workers(self, n: int = 1, *, take_last_slot: bool = False) -> Crossing:
        """Let n more workers join, while the job runs, where Spark has slots for them; tasks are spread over all.

        The job goes on until they are there and have a plan; then it goes over to that as by `move`. NotEnoughSlots,
        with numbers, where there is no room.
        """
        self._require_running("its workers")
        self._attempts.require_checkpoints("it keeps the workers that it has")
        facts = gather_facts(self._spark, n if isinstance(n, int) else 1, live_jobs.workers_at_work)

        def nobody_leaves() -> tuple[int, ...]:
            held, tasks = len(self.workers), len(self.worker_of)
            require_room(facts, self.name, held, n, tasks=tasks, take_last_slot=take_last_slot)
            return ()

        return self._resize(nobody_leaves, n)

    def remove_workers(self, n: int = 1) -> Crossing:
        """Go on with n workers less: those with the fewest tasks leave, and give their slots back."""
        return self._let_go(lambda: who_leaves(self.worker_of, len(self.workers), n, self.name))

    def drain(self, node: str) -> Crossing:
        """Go on without the workers of a node, which is to leave; `job.places` and `penstock show` name the nodes."""
        return self._let_go(
            lambda: workers_of_node(node, self.slots_of_workers().node_of, self.name), is_about_node=True
        )

    def workers_that_leave(self) -> tuple[int, ...]:
        """Workers on executors of which Spark says that they are to leave."""
        if not (gone := inactive_executors(self._spark)):
            return ()
        executor_of = executors_of_tasks(self._spark, self._attempts.now.action.groups)
        return tuple(hello.worker for hello in self.workers if executor_of.get(hello.attempt) in gone)

    def replace_workers(self, workers: Sequence[int]) -> Crossing:
        """Go on without these, and with as many others as there are slots for elsewhere."""
        attempt, joining = self._attempts.now, room_elsewhere(self._spark, len(workers))

        def still_there() -> Sequence[int]:
            if self._attempts.now is not attempt:
                msg = f"job {self.name!r} has gone on with other workers meanwhile"
                raise InvalidInput(msg)
            return workers

        return self._resize(still_there, joining, anew=False)

    def _let_go(self, leaving: Callable[[], Sequence[int]], *, is_about_node: bool = False) -> Crossing:
        self._require_running("its workers")
        self._attempts.require_checkpoints("it keeps the workers that it has")
        return self._resize(leaving, 0, anew=not is_about_node)

    def _resize(self, leaving: Callable[[], Sequence[int]], joining: int, *, anew: bool = True) -> Crossing:
        """Go on with other workers; what the others do not have to take stays where it is."""
        number_of: dict[int, int] = {}

        def who_stays() -> list[int]:
            number_of.update(numbered_anew(len(self.workers), leaving()))
            if not number_of and not joining:
                msg = f"all workers of job {self.name!r} would leave, and Spark has no slot for others"
                raise InvalidInput(msg)
            after = sized(self._order.dataflow, len(number_of) + joining)
            require_numbers(self.dataflow, as_placed(after, self.worker_of))
            return sorted(number_of)

        def plan_of(hellos: Sequence[Hello]) -> tuple[Plan, Profile | None]:
            before, worker_of, plan = self.dataflow, dict(self.worker_of), self._plan_now()
            program = sized(self._order.dataflow, len(hellos))
            after, slots = as_placed(program, worker_of), self._slots_of(hellos)
            profile = fitting(self._measured_so_far(), before, after)
            stays = {task: slots.slot(number_of[at]) for task, at in worker_of.items() if at in number_of}
            make = spread if joining and len(number_of) == len(self.workers) else planned
            wishes = _with(profile, fitting_placing(self._order.placing, program, after))
            return make(after, slots, wishes, stays, plan.constraints).plan, profile

        return self._attempts.resize(who_stays, joining, plan_of, anew=anew)

    def _scale_operator(self, name: str, tasks: int) -> Crossing:
        scaled(self.dataflow, name, tasks)
        self._require_running(f"operator {name!r}")

        def plan_now() -> tuple[Plan, Profile | None]:
            before, plan, slots = self.dataflow, self._plan_now(), self.slots_of_workers()
            after = scaled(before, name, tasks)
            profile = fitting(self._measured_so_far(), before, after)
            there = {TaskId.of(spec.name, i) for spec in after.operators for i in range(spec.tasks)}
            stays = {task: slot for task, slot in plan.assignment.items() if task in there}
            program = sized(self._order.dataflow, len(self.workers))
            wishes = _with(profile, fitting_placing(self._order.placing, program, after))
            return planned(after, slots, wishes, stays, plan.constraints).plan, profile

        return self._attempts.rescale(plan_now)

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


def _with(profile: Profile | None, placing: Placing) -> Placing:
    """Wishes with what was measured, where anything was."""
    return placing if profile is None else replace(placing, profile=profile)
