"""The Spark action that holds a job's slots: one stage of ordinary tasks, one for each worker, in its own job group.

The tasks that read a DataFrame (`mapInArrow`) and those that read nothing (workers beyond its partitions) are one RDD,
so one stage runs them all; they meet over our own control line. Rejected: a barrier stage, which refuses `coalesce` and
`union` before it, so that every frame had to be shuffled to as many partitions as there are workers, and which can
neither grow nor start one task again. The price: Spark starts a failed task again where its master allows that. The new
attempt must end at once (`deploy/worker/main.py`), and what failed first is looked up in Spark's own records.

The number of partitions is asked of the RDD that runs, so a frame's own stages run once, also under adaptive execution.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from penstock.deploy.line.messages import TICKET_PROPERTY
from penstock.deploy.worker.main import NOT_TWICE, STATUS_SCHEMA, WorkerCall
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

CANCEL_SECONDS = 0.5
RECORDS_MILLISECONDS = 2_000  # for Spark's records to catch up with what has happened
TASKS_LOOKED_AT = 10_000


def map_in_arrow(frame: DataFrame, function: Callable[..., Any], schema: str) -> DataFrame:
    """`frame.mapInArrow(function, schema)`, also where pandas is not installed.

    PySpark asks for pandas at this door although nothing behind it does; where it is missing, the same three steps are
    taken without asking.
    """
    from pyspark.errors import PySparkImportError

    try:
        return frame.mapInArrow(function, schema)
    except PySparkImportError:
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
        from pyspark.sql.udf import _create_udf
        from pyspark.util import PythonEvalType

        udf = _create_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
        column: Any = udf(*[frame[name] for name in frame.columns])
        java: Any = frame._jdf
        return ClassicDataFrame(java.mapInArrow(column._jc, False, None), frame.sparkSession)


def runs_stages_first(frame: DataFrame) -> bool:
    """Whether Spark has to run other stages (a shuffle, a broadcast) before the first task of this frame can start."""
    java: Any = frame._jdf
    plan = str(java.queryExecution().executedPlan().toString())
    return plan.startswith("AdaptiveSparkPlan") or "Exchange" in plan  # adaptive plans are those with stages to adapt


@contextlib.contextmanager
def _packed(topology: str) -> Iterator[None]:
    """Say what it means when Spark cannot pack a user's function for its way to the workers."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "PicklingError":  # its module is not ours to import
            raise
        said = str(error).strip().splitlines()[0]
        msg = (
            f"topology {topology!r} cannot travel to the workers: {said[:300]}; a function of yours refers to what "
            "stays on the driver, such as spark, a DataFrame, a lock or an open file"
        )
        raise InvalidInput(msg) from None


class Action:
    """A stage on its way."""

    def __init__(
        self,
        spark: SparkSession,
        call: WorkerCall,
        frame: DataFrame | None,
        ticket: bytes,
        *,
        on_change: Callable[[], None],
        number: int = 1,
        joins: bool = False,
    ) -> None:
        """`frame` has at most as many partitions as the call has workers; `on_change`: it was launched, or it ended.

        `number` is that of the attempt at the job: each has a job group of its own, and each action that `joins` one.
        """
        self._spark, self._call, self._ticket, self._on_change = spark, call, ticket, on_change
        with _packed(call.dataflow.name):
            self._mapped = None if frame is None else map_in_arrow(frame, call.on_batches, STATUS_SCHEMA)
        self.waits_for_stages = self._mapped is not None and runs_stages_first(self._mapped)
        self.workers = call.workers - call.first
        self.group = f"penstock-{call.job}" + (f"-{number}" if number > 1 else "")
        if joins:  # others may have tried to join the same attempt
            self.group += f"-joins-{secrets.token_hex(4)}"
        self.error: Exception | None = None
        self.reason: str | None = None  # of the error, in words
        self.cancelled = self.is_submitted = False
        self._launched, self._ended = threading.Event(), threading.Event()

    def start(self) -> None:
        """Submit the stage."""
        from pyspark import InheritableThread

        thread = InheritableThread(target=self._run, name=self.group, session=self._spark)
        thread.daemon = True
        self.is_submitted = True
        thread.start()

    def tell(self, on_change: Callable[[], None]) -> None:
        """Whom to tell from now on: the workers of an attempt have gone over to the next."""
        self._on_change = on_change

    @property
    def groups(self) -> tuple[str, ...]:
        """Its job group."""
        return (self.group,)

    @property
    def reads(self) -> bool:
        """Whether Spark hands rows of a DataFrame in."""
        return self._mapped is not None

    @property
    def launched(self) -> bool:
        """Whether the tasks themselves have been submitted: whatever Spark had to do before is done."""
        return self._launched.is_set()

    @property
    def ended(self) -> bool:
        """Whether Spark is done with it."""
        return self._ended.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Whether it has ended within `seconds`."""
        return self._ended.wait(seconds)

    def cancel(self, seconds: float) -> None:
        """Let Spark kill the workers (SIGKILL, a few seconds later); returns when it is done, or after `seconds`."""
        self.cancelled = True
        deadline = time.monotonic() + seconds
        while not self._ended.is_set() and time.monotonic() < deadline:
            # Spark forgets what it was told about a stage that is not submitted yet.
            with contextlib.suppress(Exception):  # without a JVM the workers are dead already
                self._spark.sparkContext.cancelJobGroup(self.group)
            self._ended.wait(CANCEL_SECONDS)

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self.group, f"Penstock {self._call.dataflow.name}")
            self._hand_out_ticket()
            with _packed(self._call.dataflow.name):
                tasks = self._tasks()
            self._launched.set()
            self._on_change()
            tasks.count()
        except Exception as error:  # Spark's, py4j's or ours: the job's outcome tells them apart
            self.error, self.reason = error, self._told(str(error))
        finally:
            self._ended.set()
            self._on_change()

    def _hand_out_ticket(self) -> None:
        """Tell the ticket to the tasks of this stage, and nobody else.

        Event logs black out a secret of a task only where Spark's own configuration has the name as well
        (`test_no_key_of_a_job_is_shown_anywhere`).
        """
        context = self._spark.sparkContext
        java: Any = context._jsc
        java.sc().conf().set(TICKET_PROPERTY, "told to tasks alone")
        context.setLocalProperty(TICKET_PROPERTY, self._ticket.hex())

    def _tasks(self) -> Any:  # noqa: ANN401 # an RDD of the JVM
        """As many tasks as there are workers: readers of the frame's partitions first, the others after them."""
        context, workers = self._spark.sparkContext, self.workers
        readers = None if self._mapped is None else self._mapped._jdf.javaToPython()  # runs the frame's own stages
        others = workers - (0 if readers is None else readers.getNumPartitions())
        if others == 0:
            return readers
        rest = context.parallelize(range(others), others).mapPartitions(self._call.on_partition)._jrdd
        return rest if readers is None else readers.union(rest)

    def _told(self, said: str) -> str:
        """What Spark said; where that is about a second attempt or our own end of it, why the first task failed."""
        if NOT_TWICE not in said and not self.cancelled:
            return said
        with contextlib.suppress(Exception):  # records of the JVM, which may be gone as well
            if (first := first_failure(self._spark.sparkContext, self.group)) is not None:
                return first
        return "its tasks were ended because one of them had failed" if self.cancelled else said


def first_failure(context: SparkContext, group: str) -> str | None:
    """What the first task of a job group failed with, as Spark recorded it; killed tasks are echoes and left out."""
    scala: Any = context._jsc.sc()
    scala.listenerBus().waitUntilEmpty(RECORDS_MILLISECONDS)
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    failures: list[tuple[int, str]] = []
    for stage in {stage for job in jobs if job is not None for stage in job.stageIds}:
        listed = scala.statusStore().taskList(stage, 0, TASKS_LOOKED_AT)
        tasks = [listed.apply(i) for i in range(listed.size())]
        failed = [task for task in tasks if str(task.status()) == "FAILED" and int(task.attempt()) == 0]
        failures += [(int(task.taskId()), str(task.errorMessage().get())) for task in failed]
    return min(failures)[1] if failures else None
