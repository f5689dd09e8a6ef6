"""One trial: a job in its surroundings, the moments that it shows, and what is left of it in its sink.

Moments are conditions of the job (its epoch, its status, files in its store, who has said hello), awaited with a limit.
What the seed chooses beside: sink, transport, how often epochs come, who is hit, and how long after the moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.attempt.attempt import Attempt
from penstock.deploy.driver.rendezvous import Roll, wait_until
from penstock.deploy.session import live_jobs
from penstock.errors import InternalError, PenstockError
from penstock.flow import io
from penstock.run.operators.sinks.staged import PartName
from penstock_lab.torture import checker
from penstock_lab.torture.contract import BROKEN, HELD, VOID, Row, is_clean
from penstock_lab.torture.jobs import COUNTED, Gates, Numbered, Schedule, Shape, keyed, on_time_at, region, timed

MOMENT_SECONDS = 30.0
END_SECONDS = 60.0
CHECK_SECONDS = 300.0
TYPED_SECONDS = 10.0  # from a fault to a typed error, where that is the promise
GIVEN_UP_SECONDS = 60.0  # until a job that says that it tries again has recovered or given up
LOOK_SECONDS = 0.002
WORKERS = 3


class Unmet(Exception):
    """The moment that a trial waits for never came."""


class Broken(Exception):
    """A promise was not kept."""


class Trial:
    """One job, one seed."""

    def __init__(self, spark: Any, line: str, seed: int, folder: Path) -> None:  # noqa: ANN401 # a SparkSession, or None
        self.spark, self.row = spark, Row(line, seed)
        self.choose = random.Random(f"{line} {seed}")  # noqa: S311 - the same trial for the same seed
        self.folder, self.out, self.kept = folder, folder / "out", folder / "kept"
        self.gates, self.shape = Gates(str(folder / "gates")), Shape()
        self.schedule: Schedule | None = None  # of the job that was begun last
        Path(self.gates.folder).mkdir(parents=True, exist_ok=True)
        self.sink = self.choose.choice(("parquet", "parquet", "parquet", "collect"))
        self.transport = self.choose.choice(("auto", "auto", "socket"))
        self.interval_s = self.choose.choice((0.1, 0.2, 0.4))
        self.silence_s = 10.0
        self.is_region = False
        self.is_timed = False  # whether rows have times, so that sources keep pace with each other
        self.minutes = 0.0  # of lines that take as long as they are told; 0: as long as the short form does
        self._job: Job | None = None
        self._struck: Attempt | None = None  # the attempt that was under way at the last kill
        self._failed: Exception | None = None  # of a start beside the trial

    # -- the job -------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """The job, as soon as there is one."""
        if self._job is None:
            msg = "the job never began"
            raise Unmet(msg)
        return self._job

    def topology(self) -> ps.Topology:
        """What runs."""
        sink = io.collect() if self.sink == "collect" else io.parquet(self.out)
        self.schedule = Schedule(self.shape, time.time())
        if self.is_region:
            return region(self.gates, self.schedule, sink)
        return (timed if self.is_timed else keyed)(self.gates, self.schedule, sink)

    def begin(self, workers: int = WORKERS) -> Job:
        """Start the job, or start it again from what it has kept."""
        return self.begin_topology(self.topology(), workers)

    def begin_topology(self, topology: ps.Topology, workers: int = WORKERS) -> Job:
        """Start another job than the usual ones."""
        self._job = topology.start(
            self.spark,
            workers=workers,
            scheduler="even",
            checkpoint=self.kept,
            checkpoint_interval_s=self.interval_s,
            transport=self.transport,
            silence_s=self.silence_s,
        )
        return self._job

    def begin_beside(self) -> Job:
        """Start the job in a thread; it is there before its workers are."""
        known = set(live_jobs.besides())

        def start() -> None:
            try:
                self.begin()
            except Exception as error:
                self._failed = error

        threading.Thread(target=start, daemon=True).start()
        self.await_(lambda: bool(set(live_jobs.besides()) - known) or self._failed is not None, "the job's start")
        if self._failed is not None:
            raise self._failed
        self._job = next(iter(set(live_jobs.besides()) - known))
        return self._job

    @property
    def roll(self) -> Roll:
        """Who has come to the attempt that is under way."""
        return self.job._attempts.now.roll

    @property
    def epoch_under_way(self) -> int | None:
        """The epoch that workers were told of and that is not committed, if any."""
        told = self.roll.epoch
        return told if told > self.job.epoch else None

    def await_(self, condition: Callable[[], bool], what: str, seconds: float = MOMENT_SECONDS) -> None:
        """Until it holds; Unmet where it does not in time, Broken where the job has failed meanwhile."""
        latest = time.monotonic() + seconds
        while not condition():
            job = self._job
            if job is not None and job.error is not None and job.status == "failed":
                msg = f"while waiting for {what}: {type(job.error).__name__}: {job.error}"
                raise Broken(msg)
            if time.monotonic() > latest:
                msg = f"{what} did not come within {seconds:g} s; {job!r}"
                raise Unmet(msg)
            time.sleep(LOOK_SECONDS)

    def await_epoch(self, epoch: int) -> None:
        """Until this epoch is committed."""
        self.await_(lambda: self.job.epoch >= epoch, f"epoch {epoch}")

    def at_work(self) -> None:
        """Until the job is at work and has committed at least two epochs since."""
        self.await_epoch(2)

    def linger(self, seconds: float) -> None:
        """A moment that the seed chooses within so many seconds."""
        time.sleep(self.choose.uniform(0.0, seconds))

    def pids(self) -> list[int]:
        """The workers' processes, by their number."""
        return [hello.pid for hello in self.job.workers]

    def kill(self, *pids: int) -> float:
        """End processes at once; when that was."""
        self._struck = self.job._attempts.now
        at = time.monotonic()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return at

    def note(self, text: str) -> None:
        """Keep a word for whoever reads the row."""
        self.row.notes.append(text)

    # -- recovery ------------------------------------------------------------------------------------------------------

    def recovered(self, since: float, recoveries: int = 1) -> None:
        """Await that the job has gone on, its first new rows, its full rate; keep how long each took since a kill."""
        at = time.time() - (time.monotonic() - since)
        for stage, is_there in self._stages():
            self.await_(lambda: is_there() or self.job.recoveries >= recoveries, stage)  # noqa: B023 # awaited here
            self.row.figures[stage] = time.monotonic() - since
        self.await_(lambda: self.job.recoveries >= recoveries, "a recovery")
        self.row.figures["to_work_s"] = time.monotonic() - since
        if self.sink == "parquet":
            attempt = self.job.attempt
            self.await_(lambda: self._newest_shown() >= attempt, "the first new rows at the sink")
            self.row.figures["to_rows_s"] = time.monotonic() - since
        if self.schedule is not None and not self.is_region:
            self.await_(lambda: self._on_time_since(at) is not None or self._is_drained, "rows on their schedule")
            if (on_time := self._on_time_since(at)) is not None:
                self.row.figures["to_rate_s"] = on_time - at

    def _stages(self) -> Iterator[tuple[str, Callable[[], bool]]]:
        """What a recovery goes through, as far as it can be seen; of a job that had begun and lost one attempt."""
        struck, attempts = self._struck, self.job._attempts
        if struck is None or attempts.now is not struck or self.job.status == "starting":
            return
        yield "noticed_s", lambda: bool(struck.roll.faults) or attempts.now is not struck
        yield "claimed_s", lambda: attempts.now is not struck
        yield "hello_s", lambda: bool(attempts.now.roll.hellos)
        yield "hellos_s", lambda: len(attempts.now.roll.hellos) >= attempts.now.workers_asked

    def _on_time_since(self, at: float) -> float | None:
        """When rows of every source had come through on their schedule again; None while they have not."""
        found = [told for source in range(self.shape.sources) if (told := on_time_at(self.gates, source, at))]
        return max(found) if len(found) == self.shape.sources else None

    @property
    def _is_drained(self) -> bool:
        """Whether the schedule has ended, so that no row can be on it any more."""
        return self.schedule is not None and time.time() > self.schedule.last

    def _newest_shown(self) -> int:
        """The latest attempt whose rows readers of the sink's folder see."""
        with contextlib.suppress(OSError):
            parts = [PartName.read(name, "out") for name in os.listdir(self.out)]
            return max((part.attempt for part in parts if part is not None), default=0)
        return 0

    # -- the end -------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let the rest flow, await the end, and have the sink checked."""
        self.gates.set(Numbered.GO)
        self.ended()
        self.check()

    def ended(self, seconds: float = END_SECONDS) -> None:
        """Until the job has ended well; Broken where it fails or does not end."""
        try:
            is_over = self.job.wait(seconds)
        except PenstockError as error:
            msg = f"the job ended with {type(error).__name__}: {error}"
            raise Broken(msg) from error
        if not is_over:
            msg = f"the job did not end within {seconds:g} s: {self.job!r}"
            raise Broken(msg)
        self.row.figures["recoveries"] = self.job.recoveries
        self.row.notes += [note for note in self.job.notes if "went on" in note]

    def says_why(self) -> None:
        """Await a typed error or a recovery, of a job that cannot go on as it is; else Broken.

        A job that tries again for longer than the limit has to say within it what it tries, and to end or recover then.
        """
        began, job = time.monotonic(), self.job
        is_told = wait_until(lambda: bool(job.error or job.recoveries or tries_again(job)), TYPED_SECONDS)
        self.row.figures["to_answer_s"] = time.monotonic() - began
        is_told = is_told and wait_until(lambda: job.error is not None or job.recoveries > 0, GIVEN_UP_SECONDS)
        self.row.figures["to_end_s"] = time.monotonic() - began
        if not is_told or isinstance(job.error, InternalError):
            msg = f"within {TYPED_SECONDS:g} s came {job.error or 'neither an error nor a recovery'}: {job!r}"
            raise Broken(msg)
        self.note(f"{type(job.error).__name__}: {job.error}" if job.error else job.notes[-1])

    def ends_or_says_why(self, seconds: float = TYPED_SECONDS) -> bool:
        """Whether the job goes on; a typed error within the limit is fine too, silence or another error is not."""
        began = time.monotonic()
        before = self.job.epoch
        wait_until(lambda: self.job.error is not None or self.job.epoch > before + 1, seconds)
        self.row.figures["to_answer_s"] = time.monotonic() - began
        if (error := self.job.error) is not None:
            if isinstance(error, InternalError):
                msg = f"a bug of ours: {error}"
                raise Broken(msg)
            self.note(f"{type(error).__name__}: {error}")
            return False
        if self.job.epoch <= before + 1:
            msg = f"neither an error nor an epoch within {seconds:g} s: {self.job!r}"
            raise Broken(msg)
        return True

    def check(self) -> None:
        """Have the independent checker read the sink."""
        folder = self.out
        if self.sink == "collect":
            folder = self.folder / "collected"
            folder.mkdir()
            pq.write_table(self.job.result.toArrow(), folder / "part-0.parquet")
        sources = 1 if self.is_region else self.shape.sources
        self.row.counts = checked(folder, [self.shape.rows_each] * sources, is_counted=not self.is_region)
        if not is_clean(self.row.counts):
            msg = "the checker found faults"
            raise Broken(msg)


def tries_again(job: Job) -> bool:
    """Whether a job that recovers says what it has failed with and that it tries again."""
    return any(note.startswith("the job is recovering: tried again") for note in job.notes)


def checked(folder: Path, rows: Sequence[int], *, is_counted: bool) -> dict[str, int]:
    """What the checker, a process of its own that sees nothing of this package, has found in a folder."""
    words = [str(folder), "--rows", ",".join(map(str, rows)), *(["--counted", COUNTED] if is_counted else [])]
    command = [sys.executable, "-I", checker.__file__, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECK_SECONDS)  # noqa: S603
    try:
        found: dict[str, int] = json.loads(done.stdout)
    except ValueError:
        msg = f"the checker could not read {folder}: {(done.stderr or done.stdout).strip()[-400:]}"
        raise Broken(msg) from None
    return found


@contextlib.contextmanager
def judged(trial: Trial) -> Iterator[None]:
    """Run a trial in this block: its row says what became of it, whatever it raises, and its job is gone."""
    row, began = trial.row, time.monotonic()
    try:
        yield
        row.verdict = HELD
    except Unmet as unmet:
        row.verdict, row.error = VOID, str(unmet)
    except Broken as broken:
        row.verdict, row.error = BROKEN, str(broken)
    except Exception as error:  # of the product's or of the trial's: both are to be looked into
        row.verdict, row.error = BROKEN, f"{type(error).__name__}: {error}"
    finally:
        row.notes.insert(0, f"sink {trial.sink}, transport {trial.transport}, epochs every {trial.interval_s:g} s")
        row.seconds = round(time.monotonic() - began, 3)
        row.figures = {name: round(value, 4) for name, value in row.figures.items()}
        if trial._job is not None:
            with contextlib.suppress(Exception):
                trial._job.cancel()
