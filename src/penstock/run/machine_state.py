"""What a machine remembers of a task and of an edge between two events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.run.contract import BEFORE_TIME_US
from penstock.run.instructions import TaskLayout


@dataclass(slots=True)
class TaskState:
    """One task: what waits for it, and what it waits for."""

    layout: TaskLayout
    inputs: list[int]
    outputs: list[int]
    open_inputs: int
    inbox: deque[tuple[int, object, int, int]] = field(default_factory=deque)  # edge, payload, bytes, rows
    blocked: int = 0  # outputs at or above their window; of a selective task only the one that it wants
    blocked_since_us: int = 0
    blocked_us: int = 0  # how long it has been unable to run for want of credit
    queued: bool = False  # in the ready heap
    run_at_us: int = 0  # inbox entries before this time are held, unless they are many
    inbox_rows: int = 0
    watermark_us: int = BEFORE_TIME_US
    told_us: int = BEFORE_TIME_US
    wake_at_us: int | None = None
    woken: bool = False  # since its last run: now data goes first, whenever it wants to be woken again
    poll_at_us: int | None = None  # sources: not before this time
    source_ended: bool = False
    wanted: int | None = None  # selective tasks: the output for which data waits inside the task
    credited: bool = False  # selective tasks: credit has come while it was blocked, for whichever output
    finished: bool = False


@dataclass(slots=True)
class HeldBatches:
    """What waits to be sent on one edge to another worker."""

    send_at_us: int
    payloads: list[object] = field(default_factory=list)
    rows: int = 0
    size: int = 0  # bytes that count as sent
    watermark_us: int | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """How full the machine is; every queue is bounded and this shows it."""

    queued_batches: int
    queued_bytes: int
    unfinished_tasks: int
    blocked_tasks: int


def may_run(task: TaskState) -> bool:
    """A blocked task does not run, unless it decides itself what it waits for."""
    return not task.blocked or task.layout.selective


def times_of(task: TaskState) -> list[int]:
    """Every time at which a task wants something."""
    held_until = task.run_at_us if task.inbox and task.run_at_us and task.wanted is None else None
    return [at for at in (task.wake_at_us, task.poll_at_us, held_until) if at is not None]
