"""How a worker ends before its time: a user's function failed, or the driver asked for it."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.model.task_id import TaskId
from penstock.run.engine.user_errors import user_fault


class TaskFault(PenstockError):
    """A user's function failed; names operator, task, worker and node, and keeps the user's traceback."""

    def __init__(self, task: str, worker: int, node: str, cause: BaseException, function: object = None) -> None:
        self.task, self.worker, self.node = task, worker, node
        fault = user_fault(cause, function)
        self.trace = fault.trace
        name = TaskId(task)
        super().__init__(
            f"operator {name.operator!r} (task {name.number}, worker {worker}, node {node!r}) failed: {fault}"
        )


class Cancelled(PenstockError):
    """The driver asked this worker to end at once."""
