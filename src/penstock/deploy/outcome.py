"""What became of a job, judged once from everything that was reported. Pure.

One failure has many echoes: peers of a failed worker lose their connection, Spark aborts the stage. The first failure
of a user's function counts, else a failure of a worker itself, else the workers that died without a word, else a lost
connection, else what Spark said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.deploy.messages import Fault, Hello
from penstock.errors import JobCancelled, JobFailed, PenstockError
from penstock.run.worker import Deployment

TASKS_SHOWN_MAX = 6
SPARK_CHARACTERS_MAX = 600
CANCELLED_IN_SPARK = "[SPARK_JOB_CANCELLED]"


@dataclass(frozen=True)
class Reports:
    """Everything that is known when Spark's action has ended."""

    topology: str
    hellos: Mapping[int, Hello]
    statuses: Mapping[int, str]
    faults: Sequence[Fault]
    deployment: Deployment | None
    spark_error: str | None  # what Spark raised
    cancel_asked: bool


def judge(reports: Reports) -> PenstockError | None:
    """The job's one error, or None when it finished."""
    first = next((fault for kind in ("task", "worker") for fault in reports.faults if fault.kind == kind), None)
    if reports.cancel_asked:
        # Workers that are torn apart in the middle of something may complain; whoever cancelled wanted that.
        told = "" if first is None else f"; worker {first.worker} said meanwhile: {brief(first.message)}"
        return JobCancelled(f"topology {reports.topology!r} was cancelled{told}")
    if first is not None:
        return _failed(reports, first)
    if reports.spark_error is not None and CANCELLED_IN_SPARK in reports.spark_error:
        # Ctrl-C in the driver makes pyspark cancel every job before anybody here is told.
        return JobCancelled(f"topology {reports.topology!r} was cancelled in Spark, by Ctrl-C or in its user interface")
    died = [worker for worker in reports.hellos if worker not in reports.statuses]
    if died and reports.spark_error is not None:
        return _died(reports, died)
    if reports.faults:
        return _failed(reports, reports.faults[0])
    if reports.spark_error is not None:
        return JobFailed(f"topology {reports.topology!r} failed in Spark: {brief(reports.spark_error)}")
    unfinished = {worker: status for worker, status in reports.statuses.items() if status != "finished"}
    if unfinished or not reports.statuses:
        return JobFailed(f"topology {reports.topology!r} ended early: workers report {unfinished or 'nothing'}")
    return None


def _failed(reports: Reports, fault: Fault) -> JobFailed:
    operator = fault.task.rpartition("/")[0] or None
    where = "" if operator else f"worker {fault.worker} (node {fault.node!r}) failed: "
    return JobFailed(
        f"topology {reports.topology!r}: {where}{fault.message}",
        operator=operator,
        task=fault.task or None,
        worker=fault.worker,
        node=fault.node or None,
        user_traceback=fault.trace,
    )


def _died(reports: Reports, died: Sequence[int]) -> JobFailed:
    """Spark kills the others when one dies, so those that a peer lost first are to blame."""
    blamed = [worker for worker in died if any(fault.lost == worker for fault in reports.faults)]
    worker = (blamed or list(died))[0]
    hello = reports.hellos[worker]
    deployment = reports.deployment
    node = deployment.workers[worker].node if deployment else hello.address
    tasks = [task for task, runs_on in deployment.worker_of.items() if runs_on == worker] if deployment else []
    shown = ", ".join(tasks[:TASKS_SHOWN_MAX]) + (" ..." if len(tasks) > TASKS_SHOWN_MAX else "")
    return JobFailed(
        f"topology {reports.topology!r}: worker {worker} (pid {hello.pid}, node {node!r}) died without a word, with "
        f"tasks {shown or 'not yet given'}; it was killed, ran out of memory or crashed in native code. "
        f"Spark says: {brief(reports.spark_error or 'nothing')}",
        worker=worker,
        node=node,
    )


def brief(text: str) -> str:
    """The lines of a Java error that say something."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    return " ".join(lines)[:SPARK_CHARACTERS_MAX]
