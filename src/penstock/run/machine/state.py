"""What a machine remembers of a task and of an edge between two events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.run.contract import BEFORE_TIME_US
from penstock.run.machine.instructions import EdgeLayout, TaskLayout, WorkerLayout

InboxEntry = tuple[int, object, int, int]  # edge, payload, bytes, rows; a mark has its time in place of rows
MARK = object()  # payloads of inbox entries that are no data
END = object()


@dataclass(slots=True)
class Moment:
    """The time of the event or instruction at hand; all parts of a machine share one."""

    us: int = 0


@dataclass(slots=True)
class TaskState:
    """One task: what waits for it, and what it waits for."""

    layout: TaskLayout
    inputs: list[int]
    outputs: list[int]
    open_inputs: int
    inbox: deque[InboxEntry] = field(default_factory=deque)
    blocked: int = 0  # outputs at or above their window; for a selective task the one that it wants counts alone
    blocked_since_us: int = 0
    blocked_us: int = 0  # how long it has been unable to run for want of credit
    queued: bool = False  # in the ready heap
    run_at_us: int = 0  # inbox entries before this time are held, unless they are many
    inbox_rows: int = 0
    watermark_us: int = BEFORE_TIME_US
    told_us: int = BEFORE_TIME_US
    latest_us: int = BEFORE_TIME_US  # the last watermark before the end of time
    is_idle: bool = False  # all inputs that have not ended are idle
    told_idle: bool = False
    wake_at_us: int | None = None
    woken: bool = False  # since its last run: data goes first now, whatever time it asks for next
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
    idle: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Statistics:
    """How full the machine is; every queue is bounded and this shows it."""

    queued_batches: int
    queued_bytes: int
    unfinished_tasks: int
    blocked_tasks: int


def tasks_of(layout: WorkerLayout) -> list[TaskState]:
    """The tasks of a worker before anything has come in."""
    tasks = [TaskState(task, [], [], 0) for task in layout.tasks]
    for e, edge in enumerate(layout.edges):
        if edge.source is not None:
            tasks[edge.source].outputs.append(e)
        if edge.target is not None:
            tasks[edge.target].inputs.append(e)
            tasks[edge.target].open_inputs += 1
    return tasks


def direct_target(layout: WorkerLayout, edge: EdgeLayout) -> int | None:
    """The task that may be given a batch of this edge at once, without its inbox; None: there is none.

    A slice from elsewhere has to be put together first, one for a merger may have to wait for its turn, and one whose
    credit tells how busy a replica is has to be seen waiting.
    """
    waits = edge.after_run or (edge.slice_bytes_min and edge.source is None)
    merges = edge.target is not None and layout.tasks[edge.target].merges
    return None if waits or merges else edge.target


def may_run(task: TaskState) -> bool:
    """A blocked task does not run, unless it decides itself what it waits for."""
    return not task.blocked or task.layout.selective


def times_of(task: TaskState) -> list[int]:
    """Every time at which a task wants something."""
    held_until = task.run_at_us if task.inbox and task.run_at_us and task.wanted is None else None
    return [at for at in (task.wake_at_us, task.poll_at_us, held_until) if at is not None]
