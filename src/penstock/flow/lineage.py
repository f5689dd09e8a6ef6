"""Whether each edge into an operator carries the rows of one source task, in order, or rows of several, mixed.

Event time that is made from rows needs unmixed edges. Two source tasks are rarely equally far, and in a mixture a late
row looks like a row that the slower source task has just brought. A task mixes rows when more than one edge leads into
it; an operator with state emits in an order of its own (`test_rows_that_others_have_mixed_get_no_event_time`).
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.contract import MAIN
from penstock.run.dataflow import FORWARD, OperatorSpec

Operators = Mapping[str, OperatorSpec]


def mixed_before(operators: Operators, name: str) -> tuple[str, str] | None:
    """The nearest operator before `name` whose tasks mix rows, and one that it reads; None where no edge is mixed.

    The operator itself may read several edges: it keeps a time for each.
    """
    spec = operators[name]
    if spec.stateful and spec.region is None:
        if carries_time(operators, name):  # then its time stays behind its input's
            return None
        several = sum(_edges_into_a_task(operators, spec)) > 1
        return (name, spec.inputs[0].operator) if several else _mixer(operators, spec.inputs[0].operator)
    if spec.region is not None:  # a merger restores its splitter's order, so it mixes no more than the splitter
        return _mixer(operators, name)
    return next((found for read in spec.inputs if (found := _mixer(operators, read.operator))), None)


def carries_time(operators: Operators, name: str) -> bool:
    """Whether event time comes in on every input of an operator, from wherever it was declared."""
    inputs = operators[name].inputs
    return bool(inputs) and all(
        read.output == MAIN
        and (operators[read.operator].event_time is not None or carries_time(operators, read.operator))
        for read in inputs
    )


def mixed_rows(operator: str, mixer: str, reads: str, *, ends: bool) -> str:
    """The error text for event time behind mixed rows."""
    otherwise = "; or leave lateness out, and windows close when the input ends" if ends else ""
    return (
        f"event_time of {operator!r} comes after {mixer!r}, each task of which mixes the rows of several tasks of "
        f"{reads!r}, and of those one is always behind; call event_time on {mixer!r} or before it, from where it goes "
        f"on through every operator that keeps the column, or give {reads!r} one task{otherwise}"
    )


def _mixer(operators: Operators, name: str) -> tuple[str, str] | None:
    spec = operators[name]
    if spec.role == "source" or (spec.stateful and spec.region is None):
        return None
    if spec.region is not None and spec.region.role != "splitter":
        return _mixer(operators, spec.inputs[0].operator)
    if sum(_edges_into_a_task(operators, spec)) > 1:
        return name, spec.inputs[0].operator
    return _mixer(operators, spec.inputs[0].operator)


def _edges_into_a_task(operators: Operators, spec: OperatorSpec) -> list[int]:
    """How many edges of each input lead into one task."""
    return [1 if read.grouping.kind == FORWARD else _tasks(operators[read.operator]) for read in spec.inputs]


def _tasks(spec: OperatorSpec) -> int:
    """A reader of a DataFrame has a task on every worker; their number is not known yet and may be above one."""
    return 2 if spec.one_per_worker else spec.tasks
