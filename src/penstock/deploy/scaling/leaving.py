"""Executors that Spark is to lose, and says so (decommissioned): their workers are let go before they are gone.

Spark's scheduler backend knows which executors are registered and take no task any more. Nothing announces that to
Python, so a thread asks, a call for each executor that has workers of the job. In their place come as many others as
there are slots for, in the same crossing; Spark starts none on what leaves. What cannot be done is logged, and
tried again. Rejected: a listener of Spark's events, for which the JVM would have to call Python back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.deploy.driver.facts import is_in_process, slots_now
from penstock.deploy.session import live_jobs
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.deploy.driver.job import Job

log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
AGAIN_SECONDS = 30.0  # after what could not be done
JOIN_SECONDS = 5.0
TASKS_LOOKED_AT = 10_000


class Leaving:
    """Looks at the executors of one job until it is closed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{job.id}-leaving", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        wait_s = LOOK_SECONDS
        while not self._over.wait(wait_s):
            wait_s = LOOK_SECONDS
            try:
                if self._job.status == "running" and (workers := self._job.workers_that_leave()):
                    crossing = self._job.replace_workers(workers)
                    log.info("job %r left executors that leave: %s", self._job.name, crossing.note)
            except PenstockError as error:
                wait_s = AGAIN_SECONDS
                log.warning("job %r has workers on an executor that is to leave: %s", self._job.name, error)
            except Exception as error:  # Spark's, py4j's, or a mistake of ours: no job ends for that
                wait_s = AGAIN_SECONDS
                log.debug("job %r: executors cannot be looked at: %r", self._job.name, error)


def leaving(job: Job, spark: SparkSession, *, goes_on: bool) -> list[Leaving]:
    """The one that looks, where executors can leave and the job can do without them."""
    return [Leaving(job)] if goes_on and not is_in_process(str(spark.sparkContext.master)) else []


def inactive_executors(spark: SparkSession) -> set[str]:
    """Executors that are registered and take no task any more; none where the master has another kind of backend."""
    java: Any = spark.sparkContext._jsc
    backend = java.sc().schedulerBackend()
    try:
        listed = backend.getExecutorIds()
    except Exception as error:  # py4j's, where there is no such method
        log.debug("executors cannot be listed: %r", error)
        return set()
    executors = [str(listed.apply(i)) for i in range(listed.size())]
    return {executor for executor in executors if not backend.isExecutorActive(executor)}


def executors_of_tasks(spark: SparkSession, groups: Sequence[str]) -> dict[int, str]:
    """By the number of each Spark task of these job groups: the executor that runs it."""
    context, found = spark.sparkContext, dict[int, str]()
    java: Any = context._jsc
    tracker, store = context.statusTracker(), java.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for group in groups for job in tracker.getJobIdsForGroup(group)]
    for stage in {stage for job in jobs if job is not None for stage in job.stageIds}:
        listed = store.taskList(stage, 0, TASKS_LOOKED_AT)
        tasks = [listed.apply(i) for i in range(listed.size())]
        found |= {int(task.taskId()): str(task.executorId()) for task in tasks}
    return found


def room_elsewhere(spark: SparkSession, leaving: int) -> int:
    """Slots of other executors for workers in the place of those that leave; one stays free."""
    taken = sum(live_jobs.workers_at_work().values()) - leaving  # Spark counts no slots of what leaves
    return max(0, min(leaving, slots_now(spark) - taken - 1))
