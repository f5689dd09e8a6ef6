"""What to say of a job that was told to stop and goes on: which worker holds it up, and with what. Pure.

A worker whose function does not return reports nothing any more; a worker that drains goes on reporting what waits in
its queues. So silence is the sign of a function that hangs, and a queue is the sign of rows that are on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.deploy.line.messages import Hello
from penstock.run.transport.links import WorkerPlace

TASKS_SHOWN_MAX = 6


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker that has not ended."""

    worker: int
    pid: int
    node: str
    tasks: Sequence[str]
    silent_s: float  # since its last report
    queued: Mapping[str, int]  # task -> batches that waited for it then


def standing(
    there: Iterable[Hello],
    places: Sequence[WorkerPlace],
    worker_of: Mapping[str, int],
    newest: Mapping[str, Mapping[str, Any]],
    silent_s: Mapping[int, float],
) -> list[Standing]:
    """Of the workers that have not said goodbye those with tasks, with their silence and what waits in their queues."""
    found = []
    for hello in there:
        tasks = [task for task, worker in worker_of.items() if worker == hello.worker]
        queued = {task: int(newest[task]["queue_batches"]) for task in tasks if task in newest}
        if tasks:
            node = places[hello.worker].node
            found.append(Standing(hello.worker, hello.pid, node, tasks, silent_s[hello.worker], queued))
    return found


def standstill(name: str, seconds: float, standing: Sequence[Standing], interval_s: float) -> str:
    """One line about a job that is still stopping after `seconds`."""
    head = f"job {name!r} is still stopping after {seconds:.0f} s"
    ends = "job.cancel() ends it without its result"
    silent = [worker for worker in standing if worker.silent_s > 2 * interval_s]
    if silent:
        one = max(silent, key=lambda worker: worker.silent_s)
        others = f" ({len(silent) - 1} more are silent too)" if len(silent) > 1 else ""
        return (
            f"{head}: worker {one.worker} (pid {one.pid}, node {one.node!r}), which runs {tasks_shown(one.tasks)}, has "
            f"said nothing for {one.silent_s:.0f} s{others}; a function there may not return, and {ends}"
        )
    waiting = {task: batches for worker in standing for task, batches in worker.queued.items() if batches}
    if waiting:
        task = max(waiting, key=lambda task: waiting[task])
        return f"{head}: {waiting[task]} batches wait for {task!r}; it ends when they are done, and {ends}"
    return f"{head}: {len(standing)} workers still run; {ends}"


def tasks_shown(tasks: Sequence[str]) -> str:
    """The first of some tasks, for a message."""
    more = f" and {len(tasks) - TASKS_SHOWN_MAX} more tasks" if len(tasks) > TASKS_SHOWN_MAX else ""
    return ", ".join(tasks[:TASKS_SHOWN_MAX]) + more
