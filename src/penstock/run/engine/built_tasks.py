"""The tasks of one worker as their operators make them; a user's class may fail here as anywhere else.

What a task raises becomes a `TaskFault`, which names the task and the user's function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from penstock.model.task_id import TaskId, operator_of
from penstock.run.contract import Interrupted, Outputs, Task, TaskContext
from penstock.run.dataflow import Dataflow, OperatorSpec
from penstock.run.engine.faults import TaskFault
from penstock.run.machine.moves import put


class Made(NamedTuple):
    """A task as its operator makes it."""

    name: str
    spec: OperatorSpec
    task: Task


class Gone(Task):
    """In the place of a task that works elsewhere by now."""

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Nothing comes in any more."""
        raise AssertionError


class BuiltTasks:
    """The tasks of one worker as their operators make them; a user's class may fail here as anywhere else."""

    def __init__(self, dataflow: Dataflow, names: Sequence[str], worker: int, node: str) -> None:
        self._dataflow, self._worker, self._node = dataflow, worker, node
        made = [self.make(name) for name in names]
        self.names = [one.name for one in made]
        self.specs = [one.spec for one in made]
        self.tasks = [one.task for one in made]

    def make(self, name: str) -> Made:
        """One task."""
        spec = self._dataflow.operator(operator_of(name))
        try:
            return Made(name, spec, spec.build())
        except Interrupted:
            raise
        except BaseException as error:
            raise self._fault(name, None, error) from error  # a task that is being made is not there yet

    def put(self, t: int, made: Made) -> None:
        """A task has this number from now on."""
        put(self.names, t, made.name)
        put(self.specs, t, made.spec)
        put(self.tasks, t, made.task)

    def open(self, t: int, rows_max: int, settings: Mapping[str, object]) -> None:
        """Open a task, in the worker's own thread."""
        self.open_made(Made(self.names[t], self.specs[t], self.tasks[t]), rows_max, settings)

    def open_made(self, made: Made, rows_max: int, settings: Mapping[str, object]) -> None:
        """The same for one that may have no number yet."""
        spec, index = made.spec, TaskId(made.name).number
        made.task.open(TaskContext(spec.name, index, spec.tasks, self._worker, self._node, rows_max, settings))

    def fault(self, t: int, error: BaseException) -> TaskFault:
        """What a task raised, with the task's name and the user's function, where there is one."""
        return self._fault(self.names[t], self.tasks[t], error)

    def made_fault(self, made: Made, error: BaseException) -> TaskFault:
        """The same for one that may have no number yet."""
        return self._fault(made.name, made.task, error)

    def _fault(self, name: str, task: object, error: BaseException) -> TaskFault:
        while (inner := getattr(task, "inner", None)) is not None:  # event time and sinks are wrapped around a task
            task = inner
        function = getattr(task, "function", None) or getattr(task, "user", None)
        return TaskFault(name, self._worker, self._node, error, function)
