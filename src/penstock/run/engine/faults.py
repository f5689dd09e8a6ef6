"""How a worker ends before its time: a user's function failed, or the driver asked for it."""

from __future__ import annotations

from penstock.errors import InvalidInput, PenstockError
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


class StateRefused(InvalidInput):
    """A task cannot go on from the state that was kept: no other attempt can do better."""

    def __init__(self, operator: str, error: BaseException) -> None:
        why = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
        if repr(operator) not in why:  # else it tells all of it
            why = (
                f"operator {operator!r} cannot go on from the state that was kept of it: {why}; make the operator as "
                "it was, or begin in another checkpoint folder"
            )
        super().__init__(why)


class Cancelled(PenstockError):
    """The driver asked this worker to end at once."""


class WentOver(PenstockError):
    """The driver asked this worker to end at once and to come to the job's next attempt, in the same process."""
