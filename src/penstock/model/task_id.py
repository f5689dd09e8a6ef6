"""TaskId: the name of one task, `parse/3` for task 3 of operator `parse`, and the one place that takes it apart.

A task's name is a string everywhere people see it: in plans, profiles, metrics, errors and pictures. TaskId is that
string with its two parts, so it is a key of every mapping that holds plain names. Rejected: a pair of operator and
index, which would have to become a string again at every file, wire and message.

    >>> TaskId.of("parse", 3), TaskId("parse/3").operator, TaskId("parse/3").number
    ('parse/3', 'parse', 3)
"""

from __future__ import annotations

SEPARATOR = "/"


class TaskId(str):
    """One task of an operator, by name."""

    __slots__ = ()

    @classmethod
    def of(cls, operator: str, index: int) -> TaskId:
        """The name of an operator's task."""
        return cls(f"{operator}{SEPARATOR}{index}")

    @property
    def operator(self) -> str:
        """The operator's name; empty where this is no task's name."""
        return self.rpartition(SEPARATOR)[0]

    @property
    def number(self) -> int:
        """Which of the operator's tasks."""
        return int(self.rpartition(SEPARATOR)[2])


def operator_of(task: str) -> str:
    """The operator of a task whose name comes from a file, a metric row or a message."""
    return TaskId(task).operator


def tasks_of_operator(operator: str, tasks: int) -> list[str]:
    """Every task of an operator, in order."""
    return [TaskId.of(operator, i) for i in range(tasks)]
