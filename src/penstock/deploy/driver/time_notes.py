"""What a job has to say about rows that were late or set aside, sources without rows, windows that wait. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from penstock.deploy.metrics.sums import Sums
from penstock.model.task_id import TaskId, operator_of, tasks_of_operator
from penstock.run.contract import ERRORS, LATE, LATE_RIGHT
from penstock.run.dataflow import Dataflow, OperatorSpec
from penstock.run.operators.late import shown_time
from penstock.run.operators.times import UNITS_US

FUNCTIONS = frozenset({"map", "flat_map", "map_batches", "process"})  # kinds of operators that run a user's function
AHEAD_US = UNITS_US["hour"]  # event time this far ahead of the clock is some row's mistake


def time_notes(dataflow: Dataflow, sums: Sums, now_us: int) -> tuple[str, ...]:
    """One sentence for each thing that a user would want to know."""
    return (*_waiting(dataflow), *lost_notes(dataflow, sums, now_us), *_idle(dataflow, sums))


def lost_notes(dataflow: Dataflow, sums: Sums, now_us: int) -> tuple[str, ...]:
    """Of these sentences, those about rows that no stream reads: late ones, and those whose function raised."""
    return (*_late_notes(dataflow, sums, now_us), *_quarantine_notes(dataflow, sums))


def late_rows(sums: Sums) -> Counter[str]:
    """Late rows of each operator that had any."""
    found: Counter[str] = Counter()
    for task, counts in sums.tasks.items():
        if counts["late"]:
            found[operator_of(task)] += counts["late"]
    return found


def _waiting(dataflow: Dataflow) -> Iterator[str]:
    for operator in dataflow.operators:
        if operator.event_time is not None and operator.event_time.lateness_us is None:
            yield (
                f"event time of {operator.name!r} comes from rows in no known order, so its windows close when the "
                "input ends; event_time right behind the source, or with a lateness, closes them as time goes on"
            )


def _late_notes(dataflow: Dataflow, sums: Sums, now_us: int) -> Iterator[str]:
    late = late_rows(sums)
    for operator in dataflow.operators:
        outputs = [output for output in (LATE, LATE_RIGHT) if output in operator.outputs]
        unread = [output for output in outputs if _is_unread(dataflow, operator, output)]
        if late[operator.name] and unread:
            all_of_them = "" if unread == outputs else " on both sides"  # they are counted together
            names = " and ".join(f".{output}" for output in unread)
            yield (
                f"{late[operator.name]:,} rows were late{all_of_them} and nobody reads {names} of {operator.name!r}"
                f"{_stood(operator, sums, now_us)}{_may_have_changed(dataflow, operator)}"
            )


def _quarantine_notes(dataflow: Dataflow, sums: Sums) -> Iterator[str]:
    for operator in dataflow.operators:
        tasks = tasks_of_operator(operator.name, operator.tasks)
        rows = sum(sums.tasks[task]["quarantined"] for task in tasks if task in sums.tasks)
        if rows and _is_unread(dataflow, operator, ERRORS):
            yield f"{rows:,} rows failed in {operator.name!r} and were dropped: nobody reads its .errors"


def _is_unread(dataflow: Dataflow, operator: OperatorSpec, output: str) -> bool:
    read = any(r.operator == operator.name and r.output == output for o in dataflow.operators for r in o.inputs)
    return not read and all(sink.output != output for sink in operator.sinks)


def _may_have_changed(dataflow: Dataflow, operator: OperatorSpec) -> str:
    """Names a user's function before the operator: event time goes on behind it, whatever it made of the column."""
    reached, functions = [read.operator for read in operator.inputs], []
    while reached:
        before = dataflow.operator(reached.pop())
        if before.event_time is None:
            reached += [read.operator for read in before.inputs]
            functions += [before.name] if before.kind in FUNCTIONS else []
    if not functions:
        return ""
    named = " and ".join(repr(name) for name in sorted(functions))
    return f"; where {named} changed the column of event time, write event_time again behind it"


def _stood(operator: OperatorSpec, sums: Sums, now_us: int) -> str:
    """How far event time had come, and whether a row from the future is the likely reason."""
    known = [sums.watermarks_us.get(TaskId.of(operator.name, i)) for i in range(operator.tasks)]
    newest = max((us for us in known if us is not None), default=None)
    if newest is None:
        return "; rows without a time count as late"  # nothing else is known
    ahead = ", ahead of the clock: a row from the future makes all others late" if newest > now_us + AHEAD_US else ""
    return f"; event time there had come to {shown_time(newest)}{ahead}; rows without a time count as late too"


def _idle(dataflow: Dataflow, sums: Sums) -> Iterator[str]:
    sources = {operator.name for operator in dataflow.operators if operator.role == "source"}
    tasks = sorted(task for task, newest in sums.newest.items() if newest["idle"] and operator_of(task) in sources)
    if tasks:
        yield (
            f"source task{'s' if len(tasks) > 1 else ''} {', '.join(map(repr, tasks[:5]))}"
            f"{f' and {len(tasks) - 5} more' if len(tasks) > 5 else ''} had no rows for a while: event time goes on "
            "without them; idle= of the source says after how long"
        )
