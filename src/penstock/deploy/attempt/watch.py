"""The watch over the workers of one attempt: a thread that looks, and tells of who is silent or does not come back.

`silence.py` and `slow_epochs.py` decide; this is their shell. What they find becomes a line of the log and a note on
the job, which name the worker, its process, its node, its tasks and since when. A worker that is lost becomes a fault
of the attempt, like one that died: with checkpoints another attempt takes its place, and nothing that it does on waking
reaches anybody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.checkpoint.coordinator import Awaited
from penstock.deploy.attempt.epoch_thread import now_us
from penstock.deploy.attempt.silence import (
    LOOK_SECONDS,
    STILL_SECONDS_MIN,
    STILL_SILENCES,
    Change,
    Watch,
    still_seconds,
)
from penstock.deploy.attempt.slow_epochs import EpochWatch, SlowEpoch
from penstock.deploy.driver.rendezvous import Roll
from penstock.deploy.driver.standstill import tasks_shown
from penstock.deploy.line.messages import Fault, Hello
from penstock.run.engine.worker import Deployment
from penstock.run.transport.host import boot_id, namespaces

log = logging.getLogger(__name__)
NOTES_MAX = 20  # of what is over
WORKERS_SHOWN_MAX = 3
JOIN_SECONDS = 2.0


class Notes:
    """What is told of the workers of one job: what there is at the moment, and the last of what is over."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._now: dict[tuple[int | None, str], str] = {}
        self._over: deque[str] = deque(maxlen=NOTES_MAX)

    @property
    def all(self) -> tuple[str, ...]:
        """A sentence each."""
        with self._lock:
            return (*self._over, *self._now.values())

    def put(self, worker: int | None, about: str, text: str) -> None:
        """Something has begun, or is told in other words; None: not with one worker."""
        with self._lock:
            is_new = (worker, about) not in self._now
            self._now[worker, about] = text
        if is_new:
            log.warning("job %r: %s", self._job, text)

    def over(self, worker: int | None, about: str, text: str) -> None:
        """It has ended."""
        with self._lock:
            self._now.pop((worker, about), None)
            self._over.append(text)
        log.warning("job %r: %s", self._job, text)

    def drop(self, worker: int, about: str) -> None:
        """It is told elsewhere."""
        with self._lock:
            self._now.pop((worker, about), None)

    def end(self) -> None:
        """The attempt is over: what there was goes to what has been."""
        with self._lock:
            self._over.extend(self._now.values())
            self._now.clear()


class Watchman:
    """Looks after the workers of one attempt until it is told to end."""

    def __init__(
        self,
        roll: Roll,
        hellos: Sequence[Hello],
        deployment: Deployment,
        limit_s: float,
        notes: Notes,
        job: str,
        awaited: Callable[[], Awaited | None],
    ) -> None:
        """`awaited` tells which epoch is under way, and for whom it waits."""
        self._awaited, self._epochs = awaited, EpochWatch()
        self._roll, self._hellos, self._deployment = roll, {hello.worker: hello for hello in hellos}, deployment
        self._limit_s, self._notes = limit_s, notes
        self._watch = Watch(len(hellos), limit_s, time.monotonic())
        self._used: dict[int, int] = {}  # processor time of the workers that were quiet at the last look
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"penstock-{job}-watch", daemon=True)
        self._thread.start()

    def moved(self, deployment: Deployment) -> None:
        """Tasks are elsewhere."""
        self._deployment = deployment

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECONDS) and not self._roll.ending:
            there = [worker for worker in self._hellos if worker not in self._roll.statuses]
            computing = self._computing(self._watch.quiet)
            for change in self._watch.look(time.monotonic(), self._roll.beats, there, computing):
                self._tell(change)
            for slow in self._epochs.look(now_us(), self._awaited()):
                self._tell_epoch(slow)
        self._notes.end()

    def _computing(self, quiet: Sequence[int]) -> list[int]:
        """Of workers on this machine those that have used the processor since the last look; of others nobody knows."""
        used = {w: ticks for w in quiet if (ticks := _ticks(self._hellos[w])) is not None}
        before, self._used = self._used, used
        return [worker for worker, ticks in used.items() if ticks > before.get(worker, ticks)]

    def _tell(self, change: Change) -> None:
        worker, who = change.worker, self._who(change.worker)
        since = _clock(time.time() - change.seconds)
        match change.kind:
            case "silent":
                left = f"it is given {self._limit_s:g} s"
                self._notes.put(worker, "silent", f"{who} has been silent since {since}; {left}")
            case "spoke":
                self._notes.over(worker, "silent", f"{who} was silent for {change.seconds:.1f} s from {since} on")
            case "busy":
                what = "a function there may not return; the job waits for it"
                self._notes.put(worker, "busy", f"{who} has been in one call since {since}: {what}")
            case "free":
                self._notes.over(worker, "busy", f"{who} was in one call for {change.seconds:.0f} s or more")
            case "still":
                limit = f"it is given {still_seconds(self._limit_s):g} s without a step"
                what = "a write to the checkpoint folder, or to that of a sink, has not returned"
                self._notes.put(
                    worker, "still", f"{who} has stood still in keeping an epoch since {since}: {what}; {limit}"
                )
            case "stirs":
                stood = f"{who} stood still in keeping an epoch for {change.seconds:.0f} s or more"
                self._notes.over(worker, "still", stood)
            case "stuck":
                self._notes.drop(worker, "still")
                self._roll.fault(self._stuck(change, since))
            case "lost":  # what comes of that is told as the attempt's failure
                self._notes.drop(worker, "silent")
                self._roll.fault(self._fault(change, since))

    def _fault(self, change: Change, since: str) -> Fault:
        hello, place = self._hellos[change.worker], self._deployment.workers[change.worker]
        message = (
            f"its process (pid {hello.pid}), with tasks {self._tasks(change.worker)}, has said nothing since {since}, "
            f"for {change.seconds:.1f} s; silence_s is {self._limit_s:g}. It is stopped, or a function there lets no "
            "other thread of Python run and cannot be seen to compute: raise silence_s where that takes its time"
        )
        return Fault(change.worker, "worker", message, node=place.node, lost=change.worker)

    def _stuck(self, change: Change, since: str) -> Fault:
        hello, place = self._hellos[change.worker], self._deployment.workers[change.worker]
        message = (
            f"its process (pid {hello.pid}) could not keep its part of an epoch: a write to the checkpoint folder, or "
            f"to that of a sink, has not returned since {since}, for {change.seconds:.0f} s; the limit is "
            f"{still_seconds(self._limit_s):g} s, {STILL_SILENCES} times silence_s or {STILL_SECONDS_MIN:g} s. "
            "See whether that folder answers on this worker's machine, and raise silence_s where it needs longer"
        )
        return Fault(change.worker, "worker", message, node=place.node)

    def _tell_epoch(self, slow: SlowEpoch) -> None:
        epoch, workers = slow.awaited.epoch, slow.awaited.workers
        since = _clock(time.time() - slow.seconds)
        if slow.kind == "over":
            took = f"epoch {epoch} took {slow.seconds:.0f} s from {since} on"
            self._notes.over(None, "epoch", f"{took}; it waited for {self._shown(workers)}")
            return
        why = "a task there has not come to its marker, or its part is not written"
        if not workers:
            why = "a write to the checkpoint folder, or to that of a sink, has not returned"
        text = f"epoch {epoch} began at {since} and is not committed: it waits for {self._shown(workers)}; {why}"
        self._notes.put(None, "epoch", text)

    def _shown(self, workers: Sequence[int]) -> str:
        """The first of some workers; where there are none, an epoch is in the driver's hands."""
        if not workers:
            return "the driver, which writes its manifest and shows its rows"
        more = f" and {len(workers) - WORKERS_SHOWN_MAX} more workers" if len(workers) > WORKERS_SHOWN_MAX else ""
        return " ".join(self._who(worker) for worker in workers[:WORKERS_SHOWN_MAX]).rstrip(",") + more

    def _who(self, worker: int) -> str:
        hello, node = self._hellos[worker], self._deployment.workers[worker].node
        return f"worker {worker} (pid {hello.pid}, node {node!r}), which runs {self._tasks(worker)},"

    def _tasks(self, worker: int) -> str:
        return tasks_shown([task for task, runs_on in self._deployment.worker_of.items() if runs_on == worker])


def _ticks(hello: Hello) -> int | None:
    """The processor time that a process has used, in ticks of its machine's clock; None where it is not one of ours."""
    if (hello.boot_id, hello.ipc) != (boot_id(), namespaces()):
        return None
    try:
        words = Path(f"/proc/{hello.pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])
    except (OSError, ValueError, IndexError):
        return None


def _clock(time_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(time_s))
