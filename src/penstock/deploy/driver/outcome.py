"""What became of a job, judged once from everything that was reported. Pure.

One failure has many echoes: peers of a failed worker lose their connection, Spark aborts the stage. The first of these
that there is counts: a failure of the driver itself, the end of the JVM, the first failure of a user's function, a
failure of a worker itself, Spark's error where a worker lost its rows, workers that died without a word, a lost
connection, and last what Spark said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.deploy.driver.spark_words import brief, reason
from penstock.deploy.line.messages import Fault, Hello
from penstock.errors import CheckpointDamaged, InvalidInput, JobCancelled, JobFailed, PenstockError
from penstock.model.task_id import operator_of
from penstock.run.engine.worker import Deployment
from penstock.run.operators.summed import ADVICE

TASKS_SHOWN_MAX = 6
# What Spark says when a Python worker's process, or its executor, has ended under it.
CRASHED_IN_SPARK = (
    "Python worker exited unexpectedly",
    "EOFException",
    "ExecutorLostFailure",
    "Python worker failed to",
)
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
    workers: int = 0  # that were asked for
    given_up: str | None = None  # what the driver failed at
    jvm_ended: str | None = None  # how Spark's own process ended, if it did


def judge(reports: Reports) -> PenstockError | None:
    """The job's one error, or None when it finished."""
    first = next((fault for kind in ("task", "worker") for fault in reports.faults if fault.kind == kind), None)
    refused = next((fault.refused for fault in reports.faults if fault.refused), None)
    if reports.cancel_asked:
        # Workers that are cancelled in the middle of something may complain, which says nothing about the job.
        told = "" if first is None else f"; worker {first.worker} said meanwhile: {brief(first.message)}"
        return JobCancelled(f"topology {reports.topology!r} was cancelled{told}")
    if reports.given_up is not None:
        return JobFailed(f"topology {reports.topology!r}: {reports.given_up}")
    if reports.jvm_ended is not None:
        return JobFailed(f"topology {reports.topology!r}: {reports.jvm_ended}, and its workers with it")
    if refused is not None:
        return InvalidInput(f"topology {reports.topology!r}: {refused}")
    if first is not None:
        return _failed(reports, first)
    if reports.spark_error is not None:
        return _failed_in_spark(reports, reports.spark_error)
    if reports.faults:
        return _died(reports, lost) if (lost := _lost(reports)) else _failed(reports, reports.faults[0])
    return _unfinished(reports)


def _lost(reports: Reports) -> list[int]:
    """Workers that peers lost and that said nothing themselves; Spark may not have heard of it yet."""
    spoke = {fault.worker for fault in reports.faults if fault.lost != fault.worker} | reports.statuses.keys()
    lost = [fault.lost for fault in reports.faults if fault.lost is not None]
    return [worker for worker in dict.fromkeys(lost) if worker in reports.hellos and worker not in spoke]


def _unfinished(reports: Reports) -> JobFailed | None:
    """What is wrong although no worker complained: one did not finish, or did not say so."""
    unfinished = {worker: status for worker, status in reports.statuses.items() if status != "finished"}
    if unfinished or not reports.statuses:
        return JobFailed(f"topology {reports.topology!r} ended early: workers report {unfinished or 'nothing'}")
    if silent := sorted(set(reports.hellos) - set(reports.statuses)):
        return JobFailed(
            f"topology {reports.topology!r}: worker {silent[0]} ended without a word, and its rows with it; was its "
            "connection to the driver lost?",
            worker=silent[0],
        )
    return None


def _failed_in_spark(reports: Reports, said: str) -> PenstockError:
    """The error where Spark gave up and no worker reported a failure of its own."""
    if CANCELLED_IN_SPARK in said:
        # Ctrl-C in the driver makes pyspark cancel every job before this code hears of it.
        return JobCancelled(f"topology {reports.topology!r} was cancelled in Spark, by Ctrl-C or in its user interface")
    missing = [worker for worker in range(reports.workers) if worker not in reports.hellos]
    if missing and any(words in said for words in CRASHED_IN_SPARK):
        return _never_came(reports, missing)
    rows_lost = any(fault.kind == "input" for fault in reports.faults)  # then Spark says why
    if not rows_lost and (died := [worker for worker in reports.hellos if worker not in reports.statuses]):
        return _died(reports, died)
    if reports.faults and not rows_lost:
        return _failed(reports, reports.faults[0])
    return JobFailed(f"topology {reports.topology!r} failed in Spark: {reason(said)}")


def _failed(reports: Reports, fault: Fault) -> PenstockError:
    if fault.damaged is not None:
        return CheckpointDamaged(*fault.damaged, ADVICE)
    operator = operator_of(fault.task) or None
    node = fault.node or _node_of(reports, fault.worker)  # a thread of a worker's does not know where it is
    where = "" if operator else f"worker {fault.worker} (node {node!r}) failed: "
    failed = JobFailed(
        f"topology {reports.topology!r}: {where}{fault.message}",
        operator=operator,
        task=fault.task or None,
        worker=fault.worker,
        node=node or None,
        user_traceback=fault.trace,
    )
    if fault.kind == "task" and fault.trace:
        failed.add_note(fault.trace.rstrip())  # Python, notebooks and pytest print notes below the message
    return failed


def _died(reports: Reports, died: Sequence[int]) -> JobFailed:
    """Spark kills the other workers when one dies, so the ones that peers lost first are to blame."""
    blamed = [worker for worker in died if any(fault.lost == worker for fault in reports.faults)]
    worker = (blamed or list(died))[0]
    hello = reports.hellos[worker]
    deployment = reports.deployment
    node = _node_of(reports, worker)
    tasks = [task for task, runs_on in deployment.worker_of.items() if runs_on == worker] if deployment else []
    shown = ", ".join(tasks[:TASKS_SHOWN_MAX]) + (" ..." if len(tasks) > TASKS_SHOWN_MAX else "")
    said = "" if reports.spark_error is None else f". Spark says: {reason(reports.spark_error)}"
    return JobFailed(
        f"topology {reports.topology!r}: worker {worker} (pid {hello.pid}, node {node!r}) died without a word, with "
        f"tasks {shown or 'not yet given'}; it was killed, ran out of memory or crashed in native code, or its "
        f"connection to the driver was cut{said}",
        worker=worker,
        node=node,
    )


def _node_of(reports: Reports, worker: int) -> str:
    """Where a worker was: its node's name once there is a plan, else the executor's address."""
    places = () if reports.deployment is None else reports.deployment.workers
    address = reports.hellos[worker].address if worker in reports.hellos else ""
    return next((place.node for place in places if place.index == worker), address)


def _never_came(reports: Reports, missing: Sequence[int]) -> JobFailed:
    """The error where a worker ended before it said hello; the workers that came were sent home again."""
    who = f"worker {missing[0]}" if len(missing) == 1 else f"one of workers {', '.join(map(str, missing))}"
    return JobFailed(
        f"topology {reports.topology!r}: {who} ended before it said hello; it was killed, ran out of memory or crashed "
        f"while its Python started. Spark says: {brief(reports.spark_error or 'nothing')}",
        worker=missing[0] if len(missing) == 1 else None,
    )
