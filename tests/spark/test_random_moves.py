"""Random jobs on real workers, moved at random times: answers are those of their numbers, nothing is out of order.

`HYPOTHESIS_PROFILE=explore` tries other jobs than those of every run, `PENSTOCK_MOVED_JOBS=200` so many.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count

import pytest
from hypothesis import event, given, note, settings
from pyspark.sql import SparkSession
from random_moves import Change, MovedJob, moved_jobs
from recovery_kit import PATIENCE_S, await_epoch, await_recoveries, kill

from penstock.deploy import Job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import InvalidInput
from penstock.model.task_id import operator_of

JOBS = int(os.environ.get("PENSTOCK_MOVED_JOBS", "12"))
WORKERS_MAX = 4
here = pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
folders = count()


def one_moves(job: Job, change: Change) -> None:
    """A task goes to another worker."""
    tasks = sorted(job.worker_of)
    move(job, [tasks[change.which % len(tasks)]], change.where)


def an_operator_moves(job: Job, change: Change) -> None:
    """All tasks of an operator go to one worker, which has some of them already or none."""
    names = sorted({operator_of(task) for task in job.worker_of})
    name = names[change.which % len(names)]
    move(job, [task for task in job.worker_of if operator_of(task) == name], change.where)


def move(job: Job, tasks: list[str], where: int) -> None:
    """Tasks go to a worker where not all of them are already; the job says that they are there."""
    there = {job.worker_of[task] for task in tasks}
    targets = [worker for worker in range(len(job.workers)) if there != {worker}]
    if not targets:  # one worker has all
        return
    target = targets[where % len(targets)]
    crossing = job.move(tasks, target)
    assert {job.worker_of[task] for task in tasks} == {target}
    note(f"{tasks} to worker {target}: {crossing.note}")


def planned_anew(job: Job, change: Change) -> None:
    """The job follows what a scheduler makes of its measurements, as soon as there are any."""

    def is_followed() -> bool:
        try:
            job.replan(("ffd", "even", "best")[change.which % 3], apply=True)
        except InvalidInput as error:
            if "measured nothing" in str(error):
                return False
            assert "nothing moves" in str(error)  # noqa: PT017 # the scheduler's answer may be what there is
        return True

    assert wait_until(is_followed, PATIENCE_S)


def one_dies(job: Job, change: Change) -> None:
    """A worker is killed."""
    before = job.recoveries
    kill(job, change.where % len(job.workers))
    await_recoveries(job, before + 1)


def other_tasks(job: Job, change: Change) -> None:
    """An operator gets another number of tasks, where it can have that."""
    names = sorted({operator_of(task) for task in job.worker_of} - {"numbers"})
    name, tasks = names[change.which % len(names)], 1 + change.where % 4
    before = dict(job.worker_of)
    try:
        job.scale(name, tasks)
    except InvalidInput as error:
        assert f"cannot have {tasks} tasks" in str(error)  # noqa: PT017 # its rows or its state allow no other
        assert dict(job.worker_of) == before
        event("other tasks are refused")
    else:
        assert Counter(map(operator_of, job.worker_of))[name] == tasks
        note(f"{name} with {tasks} tasks")


def other_workers(job: Job, change: Change) -> None:
    """A worker joins, or one leaves."""
    workers = len(job.workers)
    if workers == 1 or (workers < WORKERS_MAX and change.which % 2):
        job.add_workers()
    else:
        job.remove_workers()
    assert abs(len(job.workers) - workers) == 1
    note(f"{len(job.workers)} workers instead of {workers}")


KINDS: Mapping[str, Callable[[Job, Change], None]] = {
    "one moves": one_moves,
    "an operator moves": an_operator_moves,
    "planned anew": planned_anew,
    "other tasks": other_tasks,
    "other workers": other_workers,
    "one dies": one_dies,
}


def rows_of(job: Job) -> dict[str, Counter[tuple[object, ...]]]:
    """What came out, by sink."""
    return {name: Counter(tuple(row) for row in frame.collect()) for name, frame in job.results.items()}


@here
@settings(max_examples=JOBS)
@given(moved=moved_jobs(tuple(KINDS)))
def test_whatever_moves_whenever_the_answer_is_the_same(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, moved: MovedJob
) -> None:
    folder = tmp_path_factory.mktemp(f"moved{next(folders)}")
    gate = folder / "gate"
    job = moved.topology(gate, folder / "out").start(
        spark,
        workers=moved.workers,
        scheduler="even",
        checkpoint=folder / "kept",
        checkpoint_interval_s=0.05,
        interval_s=0.1,
        transport=moved.transport,
    )
    with job:
        await_epoch(job, 1)
        for change in moved.changes:
            await_epoch(job, job.epoch + change.epochs)
            event(change.kind)
            KINDS[change.kind](job, change)
        gate.touch()
        found = rows_of(job)
    expected = moved.answers()
    assert {name: (rows - expected[name], expected[name] - rows) for name, rows in found.items()} == {
        name: (Counter(), Counter()) for name in expected
    }
    assert job.recoveries == sum(change.kind == "one dies" for change in moved.changes)
