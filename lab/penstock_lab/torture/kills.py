"""Processes that die: one worker at each stage of its life, two at once, an executor, and a worker that stands still.

Each function is one line's trial: it starts the job, awaits the moment, kills, and awaits that the job has gone on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping

from penstock.deploy.driver.facts import slots_now
from penstock.deploy.driver.rendezvous import wait_until
from penstock_lab.torture.jobs import Arrival, Counting, Numbered
from penstock_lab.torture.processes import channels, is_alive
from penstock_lab.torture.trial import Broken, Trial, Unmet

STOPPED_SECONDS = 10.0
SHORT_SILENCE_S, LONG_SILENCE_S = 3.0, 30.0  # behind which a stopped worker has been replaced, and has not
LEAVES_SECONDS = 10.0  # that one which was replaced has after waking
SLOTS_SECONDS = 60.0
EXECUTOR_SLOTS = 6


def starting(trial: Trial) -> None:
    """A worker dies when the job's functions reach it, before it has said a word."""
    trial.gates.set(Arrival.DIES)
    job = trial.begin_beside()
    trial.await_(lambda: not trial.gates.is_there(Arrival.DIES), "a worker's start")
    at = time.monotonic()
    trial.await_(lambda: job.status == "running", "the job's start")
    trial.recovered(at)
    trial.finish()


def rendezvous(trial: Trial) -> None:
    """A worker that has said hello dies while another is still on its way."""
    trial.gates.set(Arrival.WAITS)
    job = trial.begin_beside()
    held = f"{Arrival.WAITS}-held"
    trial.await_(lambda: bool(trial.gates.standing(held)) and bool(trial.roll.hellos), "a hello while another waits")
    if len(trial.roll.hellos) == 3:
        msg = "all had said hello"
        raise Unmet(msg)
    at = trial.kill(trial.choose.choice([hello.pid for hello in trial.roll.hellos.values()]))
    trial.gates.lift(held)
    trial.await_(lambda: job.status == "running", "the job's start")
    trial.recovered(at)
    trial.finish()


def steady(trial: Trial) -> None:
    """A worker dies at work, at any moment between two epochs."""
    trial.begin()
    trial.at_work()
    trial.linger(2 * trial.interval_s)
    trial.recovered(trial.kill(trial.choose.choice(trial.pids())))
    trial.finish()


def checkpoint(trial: Trial) -> None:
    """A worker dies while an epoch is under way: markers wait behind a source, or parts are being written."""
    job = trial.begin()
    trial.at_work()
    if trial.choose.random() < 0.5:
        trial.note("while markers are on their way")
        trial.gates.set(Numbered.HOLD)
        trial.await_(lambda: trial.epoch_under_way is not None, "an epoch under way")
        trial.await_(lambda: bool(trial.gates.standing(Numbered.HOLD)), "a source that stands")
        trial.linger(0.05)
    else:
        trial.note("while parts are written")
        parts = trial.kept / "parts"
        epoch = job.epoch

        def is_written() -> bool:
            return any(int(path.name[:8]) > epoch for path in parts.glob("*/0*.part*"))

        trial.await_(is_written, "a part of an epoch that is not committed")
    at = trial.kill(trial.choose.choice(trial.pids()))
    trial.gates.lift(Numbered.HOLD)
    trial.recovered(at)
    trial.finish()


def recovery(trial: Trial) -> None:
    """A worker dies, and one of the attempt that takes over dies as well, before or soon after it is at work."""
    job = trial.begin()
    trial.at_work()
    before = job.attempt
    at = trial.kill(trial.choose.choice(trial.pids()))
    trial.await_(lambda: job.attempt > before and bool(trial.roll.hellos), "a hello of the next attempt")
    trial.linger(0.3)
    trial.kill(trial.choose.choice([hello.pid for hello in trial.roll.hellos.values()]))
    trial.await_(lambda: job.attempt > before + 1, "an attempt after that")
    trial.recovered(at)
    trial.finish()


def rebalance(trial: Trial) -> None:
    """A worker of a parallel region dies while replicas leave and join."""
    trial.is_region = True
    job = trial.begin()
    trial.at_work()
    for replicas in (1, 2) * trial.choose.randint(1, 3):
        job.scale("share", replicas)
        trial.linger(0.3)
    job.scale("share", trial.choose.choice((1, 2)))
    trial.linger(0.05)
    trial.recovered(trial.kill(trial.choose.choice(trial.pids())))
    trial.finish()


def closing(trial: Trial) -> None:
    """A worker dies when the sources have ended and the job is about to; one that has handed over all is not missed."""
    trial.gates.set(Counting.HOLD)
    trial.begin()
    trial.at_work()
    trial.gates.set(Numbered.GO)
    trial.await_(lambda: bool(trial.gates.standing(Counting.HOLD)), "the end of the input")
    trial.linger(0.1)
    trial.kill(trial.choose.choice(trial.pids()))
    trial.gates.lift(Counting.HOLD)
    trial.finish()


def both_ends(trial: Trial) -> None:
    """Two workers with a channel between them die at once."""
    trial.begin()
    trial.at_work()
    trial.linger(2 * trial.interval_s)
    trial.recovered(trial.kill(*trial.choose.sample(trial.pids(), 2)))
    trial.finish()


def executor(trial: Trial) -> None:
    """An executor's JVM dies, with every worker below it."""
    trial.await_(lambda: slots_now(trial.spark) >= EXECUTOR_SLOTS, "all executors", SLOTS_SECONDS)
    job = trial.begin()
    trial.at_work()
    trial.linger(2 * trial.interval_s)
    pid = int(trial.choose.choice(job.workers).address.rpartition(":")[2])
    trial.recovered(trial.kill(pid))
    trial.finish()


def stopped(trial: Trial) -> None:
    """A worker stands still for ten seconds and wakes: with an even seed it has been replaced and must have no part."""
    is_replaced = trial.row.seed % 2 == 0
    trial.silence_s = SHORT_SILENCE_S if is_replaced else LONG_SILENCE_S
    trial.note(f"a silence of {trial.silence_s:g} s is allowed")
    trial.begin()
    trial.at_work()
    pid = trial.choose.choice(trial.pids())
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(STOPPED_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    if trial.job.recoveries != int(is_replaced):
        msg = f"{trial.job.recoveries} recoveries of {STOPPED_SECONDS:g} s, where {trial.silence_s:g} s are allowed"
        raise Broken(msg)
    if is_replaced and not wait_until(lambda: not has_part(trial, pid), LEAVES_SECONDS):
        msg = f"process {pid} was replaced, and has a part in the job {LEAVES_SECONDS:g} s after waking"
        raise Broken(msg)
    epoch = trial.job.epoch
    trial.await_(lambda: trial.job.epoch > epoch, "an epoch after waking")
    trial.finish()


def has_part(trial: Trial, pid: int) -> bool:
    """Whether a process runs the job, or has a line to those that do."""
    others = (os.getpid(), *trial.pids())
    return is_alive(pid) and (pid in others or any(channels(pid, other) for other in others))


TRIALS: Mapping[str, Callable[[Trial], None]] = {
    "killed-starting": starting,
    "killed-rendezvous": rendezvous,
    "killed-steady": steady,
    "killed-checkpoint": checkpoint,
    "killed-recovery": recovery,
    "killed-rebalance": rebalance,
    "killed-closing": closing,
    "killed-both-ends": both_ends,
    "killed-executor": executor,
    "stopped-10s": stopped,
}
