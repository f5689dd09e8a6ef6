"""What runs inside a worker: tasks that turn batches into batches, and sources that produce them.

A task is called and returns soon: it is given batches, watermarks and the time, sees no socket, and emits into
`Outputs`. So every operator is tested by calling it, and runs in simulation unchanged
(`tests/unit/test_simulated_workers.py`). Two tasks look at a clock of their own accord: a generator source, so that it
gives out in time what a slow function has made, and a splitter, which meters its own waiting by the worker's clock.
State is an object that can be taken, moved and put, because tasks will move between workers while a job runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.model.task_id import TaskId
from penstock.run.columns.unwritten import State

MAIN = "out"  # the output that every operator has
LATE = "late"  # rows behind the watermark
LATE_RIGHT = "late_right"  # the same of a join's second stream, whose columns differ
ERRORS = "errors"  # rows whose function raised, where `on_error="quarantine"`

# A watermark W promises that no later row of the main output is older than W. Rows of the time W itself may still come
# and are not late: what waits for a moment to be over waits for a watermark behind it.
END_OF_TIME_US = (1 << 62) - 1  # the watermark of a stream that has ended
BEFORE_TIME_US = -(1 << 62)
IDLE_US = 1 << 62  # in place of a watermark: nothing comes here for now, so time need not wait for this output
SETTING_EPOCH = "epoch"  # the number of the epoch that rows belong to first; missing: the job has no checkpoints
SETTING_STAGING = "staging"  # under checkpoints: folder (path or URI) for rows of sinks that have none of their own
SETTING_STORE = "store"  # under checkpoints: the token of the job's store, part of the names of staged files
SETTING_ATTEMPT = "attempt"  # under checkpoints: which attempt at the job this is; part of the names of staged files
BATCH_BYTES_MAX = 16 << 20  # batches are joined, gathered and cut towards no more than this; a single row may be larger


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Which task this is, and where it runs."""

    operator: str
    index: int
    tasks: int
    worker: int = 0
    node: str = "local"
    rows_max: int = 4096  # batches are cut and merged towards this many rows
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`operator/index`, as in plans and metrics."""
        return TaskId.of(self.operator, self.index)


class Interrupted(BaseException):
    """A signal tells this process to end. Its handler raises this wherever the process is: it is no task's failure.

    `sys.exit()` or KeyboardInterrupt in a user's function is a failure of that function; so the two are told apart.
    """


class Outputs(Protocol):
    """Where a task's results go; the worker routes them."""

    def emit(self, batch: pa.RecordBatch, output: str = MAIN) -> None:
        """Send rows to every reader of this output."""

    def watermark(self, time_us: int) -> None:
        """Promise that no later row of the main output is older than this event time, until IDLE_US: none at all."""

    def arrived(self, rows: int) -> None:
        """Say that so many rows have reached the end of their way, at a sink inside the task; latency is metered."""


class Staged(NamedTuple):
    """A file that a sink has finished and that nobody sees before its epoch is committed."""

    sink: str
    path: str  # where it lies, as the driver can open it
    rows: int
    size: int  # bytes

    def finish(self) -> Staged:
        """It is finished."""
        return self


class Staging(Protocol):
    """A file that a sink has handed over at a marker, and whose end is still to be written: the slow part."""

    def finish(self) -> Staged:
        """Close the file, so that it lasts; called beside the worker's loop, and touches nothing of the task's."""


Owns = Callable[[pa.RecordBatch, Sequence[str]], "npt.NDArray[np.bool_]"]  # rows, key columns -> which are this task's


class Task(ABC):
    """One instance of an operator. Subclasses say what to do with rows; the other defaults pass everything on."""

    def open(self, context: TaskContext) -> None:
        """Called once, in the worker, before anything else."""
        self.context = context

    @abstractmethod
    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Rows have arrived on input `port`."""

    def advance(self, watermark_us: int, out: Outputs) -> None:
        """Event time has moved on all inputs; what is passed on must not overtake what is still held back."""
        out.watermark(watermark_us)

    def idle(self, out: Outputs) -> None:
        """Nothing comes in on any input for now; event time may go on without this task until it advances again."""
        out.watermark(IDLE_US)

    def observed_us(self) -> int | None:
        """Where event time is told by rows: the watermark of the input edge whose batch was just processed, if any."""
        return None

    def wake_at(self) -> int | None:
        """Processing time (microseconds) at which `wake` is wanted, if any."""
        return None

    def wake(self, now_us: int, out: Outputs) -> None:  # noqa: B027 - nothing to do is a fine default
        """The time asked for has come."""

    def finish(self, out: Outputs) -> None:  # noqa: B027 - nothing to do is a fine default
        """All inputs have ended and been processed: emit what is still held back."""

    def close(self) -> None:  # noqa: B027 - nothing to do is a fine default
        """Release files and connections; called once, also after an error."""

    def take_state(self) -> Mapping[str, State]:
        """Everything that the task knows, by name: bytes, or what becomes bytes later (Arrow IPC or JSON, no pickle).

        The task goes on at once: what it gives must not change with it.
        """
        return {}

    def put_state(self, state: Mapping[str, bytes]) -> None:  # noqa: B027 - nothing to do is a fine default
        """Continue from what `take_state` gave, in bytes."""

    def put_states(self, states: Sequence[Mapping[str, bytes]], owns: Owns) -> None:
        """Continue from what all tasks of this operator gave when they were others in number.

        Keyed state goes by `owns`, which says which rows have keys of this task. A task without state takes nothing.
        """
        if any(states):
            msg = (
                f"operator {self.context.operator!r} has state that cannot be shared out to other tasks; "
                f"restore it with {len(states)} tasks"
            )
            raise InvalidInput(msg)

    def stage(self, epoch: int) -> Sequence[Staging]:
        """An epoch ends here: hand over what has been written since the last one; what its commit is to publish."""
        return ()


class Polled(NamedTuple):
    """What a source says after it was asked for more."""

    ended: bool = False
    wait_until_us: int | None = None  # nothing before this processing time; None: ask again at once


MORE = Polled()
ENDED = Polled(ended=True)


class SourceTask(Task):
    """A task without inputs, which is asked for batches whenever its outputs have room."""

    @abstractmethod
    def poll(self, now_us: int, out: Outputs) -> Polled:
        """Emit a batch or so, soon, and do not wait here."""

    def tells_time(self, column: str) -> bool:
        """Ask for exact watermarks of a column; True: the source knows what is still to come, and tells them itself."""
        return False

    def due_us(self) -> int | None:
        """Processing time at which the next row was due; None for a source that has no schedule to fall behind.

        Latency counts from there: rows that wait for a slow job before they are even made have waited all the same.
        """
        return None

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Sources have no inputs."""
        raise AssertionError

    def stop(self) -> None:
        """The job is being drained: the next poll answers ENDED."""
        self.stopped = True


Build = Callable[[], Task]  # an operator's factory; it travels in Spark's closure and is called in the worker
