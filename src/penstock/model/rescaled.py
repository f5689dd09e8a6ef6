"""A profile for other numbers of tasks: what operators have measured, shared evenly among the tasks that are to come.

How keys will lie is not known, and how far tasks will be apart is what a plan decides; so loads and rates are even, and
what depends on distance, or says how sure a figure is, is left out. Rejected: to plan from declared figures, which
forget what a job is really like.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product

from penstock.model.profile import EdgeProfile, Profile, TaskProfile
from penstock.model.task_id import TaskId, operator_of, tasks_of_operator

Pair = tuple[str, str]


def rescaled(
    profile: Profile, before: Mapping[str, int], after: Mapping[str, int], forward: Collection[Pair] = ()
) -> Profile:
    """The profile of a job whose operators had `before` tasks and are to have `after`.

    `forward` are the pairs of operators of which task i sends to task i.

        >>> one = Profile({"count/0": TaskProfile(0.6)}, (EdgeProfile("in/0", "count/0", 300.0),))
        >>> two = rescaled(one, {"in": 1, "count": 1}, {"in": 1, "count": 2})
        >>> two.tasks["count/1"].load, [(edge.target, edge.rate) for edge in two.edges]
        (0.3, [('count/0', 150.0), ('count/1', 150.0)])
    """
    changed = {operator for operator, tasks in after.items() if before.get(operator, tasks) != tasks}
    if not changed:
        return profile
    tasks = {task: found for task, found in profile.tasks.items() if operator_of(task) not in changed}
    for operator in [operator for operator in after if operator in changed]:
        tasks |= _shared(profile, operator, before[operator], after[operator])
    flows: dict[Pair, list[EdgeProfile]] = defaultdict(list)
    for edge in profile.edges:
        flows[operator_of(edge.source), operator_of(edge.target)].append(edge)
    edges: list[EdgeProfile] = []
    for pair, found in flows.items():
        edges += found if changed.isdisjoint(pair) else _spread(pair, found, after, is_forward=pair in forward)
    return replace(profile, tasks=tasks, edges=tuple(edges))


def _shared(profile: Profile, operator: str, before: int, after: int) -> dict[str, TaskProfile]:
    """The tasks of one operator, alike; none where nothing was measured of it."""
    found = [profile.tasks[task] for task in tasks_of_operator(operator, before) if task in profile.tasks]
    if not found:
        return {}
    factor = before / len(found) / after  # tasks that were not measured are taken for the mean of those that were
    memory = [task.memory_mb for task in found if task.memory_mb is not None]
    took = [task.execute_us for task in found if task.execute_us is not None]
    alike = TaskProfile(
        load=sum(task.load for task in found) * factor,
        memory_mb=sum(memory) * factor if len(memory) == len(found) else None,
        execute_us=sum(took) / len(took) if took else None,
    )
    return dict.fromkeys(tasks_of_operator(operator, after), alike)


def _spread(pair: Pair, found: list[EdgeProfile], after: Mapping[str, int], *, is_forward: bool) -> list[EdgeProfile]:
    """The edges between two operators, alike."""
    sources, targets = (range(after[operator]) for operator in pair)
    ends = [(i, i) for i in sources] if is_forward else list(product(sources, targets))
    rate, tuples = sum(edge.rate for edge in found), [edge.tuples for edge in found if edge.tuples is not None]
    each = sum(tuples) / len(ends) if len(tuples) == len(found) else None
    return [EdgeProfile(TaskId.of(pair[0], i), TaskId.of(pair[1], j), rate / len(ends), each) for i, j in ends]
