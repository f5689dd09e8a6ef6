"""Which operators of a running job can have another number of tasks, and which change with them. Pure.

State is shared out by key, and a source's rows by what is left of them (`Task.put_states`), so an operator has to have
one of the two, or nothing to share. Task i of a FORWARD stream sends to task i, so operators that it joins change
together. All that is known beforehand is refused here, before anything stands still. What only a state itself can tell
is refused by the worker that is given it, and ends the job as it would at a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.errors import InvalidInput
from penstock.flow.lineage import mixed_before
from penstock.model.constraints import names_in, tasks_named
from penstock.run.dataflow import FORWARD, Dataflow, Input, OperatorSpec
from penstock.run.engine.worker_share import EdgeNumbers, job_streams

ORDERED = "so its tasks stay as many as they are"
BY_TURNS = {"shuffle", "local-or-shuffle", "partial-key"}  # groupings by which a row's task follows from its sender


def scaled(dataflow: Dataflow, operator: str, tasks: int) -> Dataflow:
    """The dataflow in which an operator, and those that change with it, have so many tasks; InvalidInput otherwise."""
    specs = {spec.name: spec for spec in dataflow.operators}
    if operator not in specs:
        raise InvalidInput.unknown_name(kind="operator or parallel region", name=operator, known=_names(dataflow))
    numbers = EdgeNumbers(len(job_streams(dataflow)))
    if isinstance(tasks, bool) or not isinstance(tasks, int) or not 1 <= tasks <= numbers.tasks_max:
        msg = f"operator {operator!r} was asked for {tasks!r} tasks; it can have 1 to {numbers.tasks_max}"
        raise InvalidInput(msg)
    together = [name for name in specs if name in _joined(dataflow, operator)]
    for name in together:
        if (why := _why_not(specs, specs[name], tasks)) is not None:
            with_it = "" if name == operator else f", and {operator!r} changes with it (task i sends to task i)"
            msg = (
                f"{specs[name].role} {name!r} cannot have {tasks} tasks instead of {specs[name].tasks}: {why}{with_it}"
            )
            raise InvalidInput(msg)
    changed = (replace(spec, tasks=tasks) if spec.name in together else spec for spec in dataflow.operators)
    after = replace(dataflow, operators=tuple(changed))
    _require_names(after, operator, tasks)
    _require_order(dataflow, after, operator, tasks)
    require_numbers(dataflow, after)
    return after


def require_numbers(before: Dataflow, after: Dataflow) -> None:
    """Refuse other numbers of tasks where a sink tells rows by task and sequence, and would have them from other tasks.

    It has had rows behind the epoch from which the job goes on. They come again, and under other numbers they are
    there twice.
    """
    then = {spec.name: spec.tasks for spec in before.operators}
    changed = [spec.name for spec in after.operators if spec.tasks != then.get(spec.name, spec.tasks)]
    elsewhere = set(changed)  # operators of which a row may meet another task than before
    dealt = set(changed)  # those, and all that read them
    for spec in after.operators:  # what is read comes before its reader
        for read in spec.inputs:
            if read.operator in dealt:
                dealt.add(spec.name)
            if read.operator in dealt and (read.grouping.kind in BY_TURNS or _keeps_task(read, elsewhere)):
                elsewhere.add(spec.name)
        numbering = [spec.name] if spec.sink.numbers else [sink.name for sink in spec.sinks if sink.facts.numbers]
        if spec.name in elsewhere and numbering:
            msg = (
                f"operator {changed[0]!r} cannot have other numbers of tasks: callback sink {numbering[0]!r} asks for "
                "`sequence`, and rows that it has had would come again from other tasks under other numbers; have it "
                "tell rows by a key of their own, and not ask for `sequence`"
            )
            raise InvalidInput(msg)


def _keeps_task(read: Input, elsewhere: set[str]) -> bool:
    """Whether rows that other tasks send come to other tasks for it."""
    return read.grouping.kind == FORWARD and read.operator in elsewhere


def forward_streams(dataflow: Dataflow) -> frozenset[tuple[str, str]]:
    """The pairs of operators of which task i sends to task i alone."""
    kinds: dict[tuple[str, str], set[str]] = {}
    for spec in dataflow.operators:
        for read in spec.inputs:
            kinds.setdefault((read.operator, spec.name), set()).add(read.grouping.kind)
    return frozenset(pair for pair, found in kinds.items() if found == {FORWARD})


def _joined(dataflow: Dataflow, operator: str) -> set[str]:
    """The operator and all that FORWARD streams join to it, on either side."""
    found, news = {operator}, [operator]
    pairs = [(read.operator, spec.name) for spec, read in _reads(dataflow) if read.grouping.kind == FORWARD]
    while news:
        name = news.pop()
        for pair in pairs:
            if name in pair:
                news += [other for other in pair if other not in found]
                found.update(pair)
    return found


def _reads(dataflow: Dataflow) -> Iterator[tuple[OperatorSpec, Input]]:
    return ((spec, read) for spec in dataflow.operators for read in spec.inputs)


def _why_not(specs: Mapping[str, OperatorSpec], spec: OperatorSpec, tasks: int) -> str | None:
    """What keeps one operator from having another number of tasks, and what to do instead."""
    if spec.tasks == tasks:
        return "it has that many already"
    if spec.region is not None:
        return f"it is part of parallel region {spec.region.region!r}; scale the region: it has replicas"
    if spec.one_per_worker:
        return "it reads a DataFrame, with a task on every worker; give the job more or fewer workers"
    if spec.source.by_task:
        return "which rows a task of a generator yields follows from how many there are; scale what reads it"
    kinds = {read.grouping.kind for read in spec.inputs}
    if "direct" in kinds:
        return f"a function of yours chooses its tasks by number (direct), {ORDERED}; read it by fields() or shuffle()"
    if kinds == {"global"} and tasks > 1:
        return (
            "all of its rows go to its first task (global); read it by fields() or shuffle(), or with tasks= at first"
        )
    if spec.state is not None:
        return _state_misfit(spec, tasks)
    return None


def _state_misfit(spec: OperatorSpec, tasks: int) -> str | None:
    """Why its state cannot be shared out: it has to lie where the rows of its keys go."""
    for read, keys in zip(spec.inputs, spec.state.keys if spec.state is not None else (), strict=False):
        kind = read.grouping.kind
        if kind == "partial-key":
            return f"with partial_key() the state of each key is in two tasks, {ORDERED}; key it by fields()"
        if kind == "fields" and set(read.grouping.columns) == set(keys):
            continue
        if kind == "global" or (kind in {"shuffle", "local-or-shuffle"} and not keys):
            continue
        return f"its rows come by {kind!r} and its state lies by {', '.join(keys) or 'no key'}; key it by fields()"
    if not any(spec.state.keys if spec.state is not None else ()) and tasks > 1 and spec.tasks == 1:
        return "it has no keys: one task sees all rows; key it by something"
    return None


def _require_names(after: Dataflow, operator: str, tasks: int) -> None:
    """Refuse a number with which a constraint speaks of a task that is not there any more."""
    tasks_of = {spec.name: spec.tasks for spec in after.operators}
    for constraint in after.constraints:
        for name in names_in(constraint):
            if tasks_named(name, tasks_of) is None:
                msg = (
                    f"operator {operator!r} cannot have {tasks} tasks: a {constraint.type} constraint names {name!r}; "
                    "leave that task there, or name operators in constraints"
                )
                raise InvalidInput(msg)


def _require_order(before: Dataflow, after: Dataflow, operator: str, tasks: int) -> None:
    """Refuse a number with which event time would be made of rows that several tasks have mixed."""
    then, now = ({spec.name: spec for spec in each.operators} for each in (before, after))
    for spec in after.operators:
        if spec.event_time is None or spec.event_time.lateness_us is None or mixed_before(then, spec.name) is not None:
            continue
        if (mixed := mixed_before(now, spec.name)) is not None:
            msg = (
                f"operator {operator!r} cannot have {tasks} tasks: {mixed[0]!r} would mix the rows of several tasks of "
                f"{mixed[1]!r}, and {spec.name!r} makes event time of them behind it; call event_time before that"
            )
            raise InvalidInput(msg)


def _names(dataflow: Dataflow) -> list[str]:
    return [*dataflow.regions(), *(spec.name for spec in dataflow.operators if spec.region is None)]
