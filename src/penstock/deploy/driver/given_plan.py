"""A plan that the caller gives: whether it is one of this topology, and which nodes of Spark's stand for its own. Pure.

The plan's nodes are matched to real ones: each needs a node with workers enough on which every constraint of the plan
allows its tasks. A node keeps its name where it can; otherwise the neediest chooses first and takes the largest, and
gives way along an augmenting path where another could go nowhere else (Kuhn's matching). Rejected: matching by numbers
of workers alone, which put an operator that is restricted to one node on another.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.deploy.driver.slots import Slots
from penstock.errors import InvalidInput
from penstock.model.constraints import Constraint, Resource, tasks_named
from penstock.model.plan import Plan, Slot
from penstock.model.task_id import operator_of, tasks_of_operator
from penstock.run.dataflow import Dataflow

NAMES_SHOWN_MAX = 4
NEXT_STEP = "make one for it (penstock place, Job.replan), or leave plan= out and let scheduler= place the tasks"


def require_own_plan(dataflow: Dataflow, plan: Plan) -> None:
    """Refuse a plan of another topology, or of this one with other numbers of tasks.

    Operators that read a DataFrame have a task on every worker, however many there are, and a plan need not place them.
    """
    wanted = {t for o in dataflow.operators if not o.one_per_worker for t in tasks_of_operator(o.name, o.tasks)}
    given = set(placed_tasks(dataflow, plan))
    missing, extra = sorted(wanted - given), sorted(given - wanted)
    if not missing and not extra:
        return
    strange, lacking = _operators(extra) - _operators(wanted), _operators(missing) - _operators(given)
    if strange or lacking:
        told = [f"it places {_listed(strange)}, which {dataflow.name!r} does not have"] if strange else []
        told += [f"it does not know {_listed(lacking)} of {dataflow.name!r}"] if lacking else []
        msg = f"the plan is of another topology: {' and '.join(told)}; {NEXT_STEP}"
    else:
        told = [f"has no place for task {missing[0]!r}"] if missing else []
        told += [f"places {extra[0]!r}, which is not there"] if extra else []
        msg = f"the plan is for other numbers of tasks than {dataflow.name!r} has: it {' and '.join(told)}; {NEXT_STEP}"
    raise InvalidInput(msg)


def placed_tasks(dataflow: Dataflow, plan: Plan) -> dict[str, Slot]:
    """Where the plan has the tasks that it decides on: all but those that read a DataFrame."""
    readers = {operator.name for operator in dataflow.operators if operator.one_per_worker}
    return {task: slot for task, slot in plan.assignment.items() if operator_of(task) not in readers}


def matched(
    assignment: Mapping[str, Slot],
    workers_on: Mapping[str, int],
    constraints: Sequence[Constraint] = (),
    tasks_of: Mapping[str, int] | None = None,
) -> dict[Slot, Slot]:
    """For each slot that a plan uses the real one that stands for it; InvalidInput where there is no matching."""
    used: dict[str, set[int]] = defaultdict(set)
    for slot in assignment.values():
        used[slot.node].add(slot.worker)
    limits = _limits(assignment, constraints, tasks_of or {})
    needs = {name: Need(name, len(workers), tuple(limits.get(name, ()))) for name, workers in used.items()}
    name_of = _names(needs, workers_on)
    found: dict[Slot, Slot] = {}
    for name, workers in used.items():
        real = name_of[name]
        as_they_are = real == name and max(workers) < workers_on[real] and min(workers) >= 0
        for number, worker in enumerate(sorted(workers)):
            found[Slot(name, worker)] = Slot(real, worker if as_they_are else number)
    return found


@dataclass(frozen=True, slots=True)
class Need:
    """A node of a plan: how many workers it uses, and the constraints that say which nodes its tasks may be on."""

    name: str
    workers: int
    limits: tuple[tuple[int, Resource], ...]  # with their positions

    def allows(self, node: str) -> bool:
        """Whether every constraint lists the node."""
        return all(node in limit.nodes for _, limit in self.limits)


def _limits(
    assignment: Mapping[str, Slot], constraints: Sequence[Constraint], tasks_of: Mapping[str, int]
) -> dict[str, list[tuple[int, Resource]]]:
    """The constraints on nodes that tasks of each node of the plan are under."""
    found: dict[str, list[tuple[int, Resource]]] = defaultdict(list)
    for position, constraint in enumerate(constraints):
        if isinstance(constraint, Resource):
            tasks = tasks_named(constraint.operator, tasks_of) or ()
            for node in {assignment[task].node for task in tasks if task in assignment}:
                found[node].append((position, constraint))
    return found


def _names(needs: Mapping[str, Need], workers_on: Mapping[str, int]) -> dict[str, str]:
    """A real node for each node of the plan."""
    if all(need.workers <= workers_on.get(name, 0) and need.allows(name) for name, need in needs.items()):
        return {name: name for name in needs}
    largest = sorted(workers_on, key=lambda name: (-workers_on[name], name))
    wanted = sorted(needs.values(), key=lambda need: (-need.workers, need.name))
    can = {need.name: _fitting(need, largest, workers_on) for need in wanted}
    holder: dict[str, str] = {}  # by real node
    for need in wanted:
        if not _give(need.name, can, holder, set()):
            raise InvalidInput(_why_not(need, wanted, workers_on))
    return {planned: real for real, planned in holder.items()}


def _fitting(need: Need, nodes: Sequence[str], workers_on: Mapping[str, int]) -> list[str]:
    """Real nodes that can stand for it, one of its own name first."""
    found = [node for node in nodes if need.workers <= workers_on[node] and need.allows(node)]
    return sorted(found, key=lambda node: node != need.name)


def _give(planned: str, can: Mapping[str, list[str]], holder: dict[str, str], seen: set[str]) -> bool:
    """Give the plan's node a real one: a free one, or one whose holder can go elsewhere."""
    for real in can[planned]:
        if real not in holder:
            holder[real] = planned
            return True
    for real in can[planned]:
        if real not in seen:
            seen.add(real)
            if _give(holder[real], can, holder, seen):
                holder[real] = planned
                return True
    return False


def _why_not(need: Need, wanted: Sequence[Need], workers_on: Mapping[str, int]) -> str:
    """Which constraint or number stands in the way, and what to do about it."""
    given = ", ".join(f"{name!r} with {_workers(count)}" for name, count in list(workers_on.items())[:NAMES_SHOWN_MAX])
    tied = [other for other in wanted if other.limits]
    if need.limits or tied:
        at = need if need.limits else tied[0]
        position, limit = at.limits[0]
        only = ", ".join(map(repr, limit.nodes)) or f"a node with tag {' and '.join(map(repr, limit.tags))}"
        return (
            f"the plan has {limit.operator!r} on node {at.name!r}, where it needs {_workers(at.workers)}, and "
            f"constraint {position} (resource) allows it only on {only}; Spark gave nodes {given}, of which no choice "
            "keeps that; run it where such a node is (node='host' names nodes by their hosts), or make a plan without "
            "the constraint"
        )
    shape = "+".join(str(other.workers) for other in wanted)
    largest = sorted(workers_on.values(), reverse=True)
    return (
        f"the plan needs workers {shape} on {len(wanted)} nodes but Spark gave {'+'.join(map(str, largest))} on "
        f"{len(largest)}; make a plan for that, or pass scheduler= instead of plan="
    )


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _operators(tasks: Iterable[str]) -> set[str]:
    return {operator_of(task) for task in tasks}


def grouped(plan: Plan, slots: Slots) -> Plan | None:
    """The plan with each of its workers' tasks together on a worker that is there; None where there are too few.

    For a job that goes on: Spark may have put its new workers on other nodes than the plan names. Workers of one node
    stay on one as far as there is room.
    """
    used: dict[str, set[Slot]] = defaultdict(set)
    for slot in plan.assignment.values():
        used[slot.node].add(slot)
    if sum(map(len, used.values())) > len(slots.node_of):
        return None
    free = {node: list(workers) for node, workers in slots.workers_on.items()}
    real: dict[Slot, Slot] = {}
    for node in sorted(used, key=lambda name: (-len(used[name]), name)):
        home = node
        for slot in sorted(used[node]):
            if not free.get(home):
                home = max(free, key=lambda name: len(free[name]))
            real[slot] = slots.slot(free[home].pop(0))
    return dataclasses.replace(plan, assignment={task: real[slot] for task, slot in plan.assignment.items()})


def moved_plan(plan: Plan, tasks: str | Sequence[str], worker: int, slots: Slots) -> Plan:
    """The plan with these tasks, or all of these operators, on a worker of the job."""
    names = [tasks] if isinstance(tasks, str) else list(tasks) if isinstance(tasks, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        msg = f"tasks is {tasks!r}; give the name of a task or an operator, or a list of such names"
        raise InvalidInput(msg)
    workers = len(slots.node_of)
    if isinstance(worker, bool) or not isinstance(worker, int) or not 0 <= worker < workers:
        msg = f"worker is {worker!r}; the job has workers 0 to {workers - 1}"
        raise InvalidInput(msg)
    known = {operator_of(task) for task in plan.assignment}
    for name in names:
        if name not in plan.assignment and name not in known:
            raise InvalidInput.unknown_name(kind="task or operator", name=name, known=sorted(known))
    slot, wanted = slots.slot(worker), set(names)
    moved = {task: slot for task in plan.assignment if task in wanted or operator_of(task) in wanted}
    return dataclasses.replace(plan, assignment={**plan.assignment, **moved})


def _listed(names: set[str]) -> str:
    shown = ", ".join(map(repr, sorted(names)[:NAMES_SHOWN_MAX]))
    return f"{shown} and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else shown
