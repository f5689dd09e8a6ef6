"""Iterations that ended in the same plan: their runs are runs of one plan, and what they differ by is noise. Pure.

Two plans are the same when the same tasks share the same workers of the same nodes, whatever the workers' numbers. All
of their runs count together: the median is the plan's throughput, and how far they are apart says what differences
between plans mean. Rejected: choosing between such iterations, which crowns the luckiest run of a plan.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from penstock.model.plan import Plan, Slot
from penstock.optimise.fuse.steps.profile_iterations import Iteration

Shape = frozenset[tuple[str, frozenset[str]]]


def shape_of(plan: Plan) -> Shape:
    """Which tasks share a worker of which node; equal for plans that differ in the numbers of workers alone."""
    held: dict[Slot, set[str]] = {}
    for task, slot in plan.assignment.items():
        held.setdefault(slot, set()).add(task)
    return frozenset((slot.node, frozenset(tasks)) for slot, tasks in held.items())


def spread_of(throughputs: Sequence[float]) -> float:
    """Largest less least, as a share of the median; 0 where there is no median to compare with."""
    middle = statistics.median(throughputs)
    return (max(throughputs) - min(throughputs)) / middle if middle > 0 else 0.0


def pooled(done: Sequence[Iteration]) -> list[Iteration]:
    """The iterations in their order, each with the throughput and the spread of all runs of its plan."""
    earliest: dict[Shape, Iteration] = {}
    runs: dict[Shape, list[float]] = {}
    shapes = [None if i.measured is None else shape_of(i.measured.plan) for i in done]
    for iteration, shape in zip(done, shapes, strict=True):
        if shape is not None and iteration.measured is not None:
            earliest.setdefault(shape, iteration)
            runs.setdefault(shape, []).extend(iteration.measured.runs)
    found = []
    for iteration, shape in zip(done, shapes, strict=True):
        if shape is None or iteration.measured is None or not (all_runs := runs[shape]):
            found.append(iteration)
            continue
        together = replace(iteration.measured, throughput=statistics.median(all_runs), spread=spread_of(all_runs))
        first = earliest[shape]
        found.append(replace(iteration, measured=together, same_as=None if first is iteration else first.step))
    return found


def noise(done: Sequence[Iteration]) -> float | None:
    """The largest spread between runs of one plan, among pooled iterations; None where each plan ran once."""
    count: dict[Shape, int] = {}
    for iteration in done:
        if iteration.measured is not None:
            shape = shape_of(iteration.measured.plan)
            count[shape] = count.get(shape, 0) + len(iteration.measured.runs)
    spreads = [
        i.measured.spread
        for i in done
        if i.measured is not None and i.measured.spread is not None and count[shape_of(i.measured.plan)] > 1
    ]
    return max(spreads, default=None)
