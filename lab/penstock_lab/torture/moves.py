"""Jobs that go over to another plan while they run: eight times, and a hundred times a minute under load.

Sources give their rows on a schedule that no move changes, so what a move holds up has to be worked off behind it.
Deaths on the way are in `killed_moves.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from penstock_lab.torture.jobs import Shape
from penstock_lab.torture.load import MEMORY_GROWTH_MAX, grown
from penstock_lab.torture.processes import held
from penstock_lab.torture.trial import Broken, Trial, Unmet

MOVES = 8
PAUSE_SECONDS = 0.3  # at most, between two moves
A_MINUTE = 100  # moves
QUICK_SECONDS = 6.0
OFTEN = Shape(rows=125, pace_s=0.05)  # 10,000 rows a second of four sources


def moved(trial: Trial) -> None:
    """Tasks of a job that has rows to work on move to and fro."""
    trial.begin()
    trial.at_work()
    stood = []
    for _ in range(MOVES):
        stood.append(a_move(trial))
        trial.linger(PAUSE_SECONDS)
    trial.row.figures["stood_s"] = max(stood)
    if trial.job.recoveries:
        msg = f"a move without a fault cost {trial.job.recoveries} recoveries: {trial.job.notes}"
        raise Broken(msg)
    trial.finish()


def a_move(trial: Trial) -> float:
    """Move some task to another worker, one without tasks or not; for how long the job stood."""
    job = trial.job
    task = trial.choose.choice(sorted(job.worker_of))
    target = trial.choose.choice([worker for worker in range(len(job.workers)) if worker != job.worker_of[task]])
    crossing = job.move(task, target)
    trial.note(f"{task} to worker {target}: {crossing.note}")
    return crossing.seconds


def often(trial: Trial) -> None:
    """A hundred moves a minute under load: nothing is lost, and nobody's memory grows."""
    seconds = 60.0 * trial.minutes or QUICK_SECONDS
    trial.shape, trial.sink, trial.interval_s = (
        Shape(4, int(seconds / OFTEN.pace_s), OFTEN.rows, OFTEN.pace_s),
        "parquet",
        1.0,
    )
    trial.begin()
    trial.at_work()
    stood: list[float] = []
    samples: list[float] = []
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        due = began + len(stood) * 60.0 / A_MINUTE
        time.sleep(max(0.0, due - now))
        stood.append(a_move(trial))
        samples.append(float(sum(held(pid).memory_bytes for pid in (os.getpid(), *trial.pids()))))
    took = time.monotonic() - began
    growth = grown(samples)
    trial.row.figures |= {"stood_s": max(stood), "moves_a_minute": 60 * len(stood) / took, "memory_growth": growth}
    if trial.job.recoveries:
        msg = f"moves without a fault cost {trial.job.recoveries} recoveries: {trial.job.notes}"
        raise Broken(msg)
    trial.finish()
    if growth > MEMORY_GROWTH_MAX and trial.minutes:
        msg = f"memory grew by {growth:.1%}"
        raise Broken(msg)
    if len(stood) < A_MINUTE * took / 60 / 2:
        msg = f"there was time for {len(stood)} moves in {took:.0f} s: the machine does too much else"
        raise Unmet(msg)


TRIALS: Mapping[str, Callable[[Trial], None]] = {"moved": moved, "moved-often": often}
