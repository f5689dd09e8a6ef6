"""A machine that fails its jobs: no descriptors, no memory files, clocks that jump, connections that are cut."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest import mock

from penstock.deploy.driver.rendezvous import ControlServer, wait_until
from penstock.deploy.line.sealed import LANES, Claim, Line
from penstock.run.transport.wire import Kind, pack
from penstock_lab.torture.jobs import Arrival, Numbered, released
from penstock_lab.torture.lines import clock_library
from penstock_lab.torture.processes import ESTABLISHED, channels, connections, held, lowest_free, taken
from penstock_lab.torture.trial import TYPED_SECONDS, Broken, Trial, Unmet

HOUR_S = 3600
CLOCK_NEAR_S = 60.0  # by which a worker's answer may be late
CLOCK_FILE = "clock"  # beside the trials' folders


def descriptors(trial: Trial) -> None:
    """A worker may open no further file: it cannot write its part of the next epoch."""
    trial.begin()
    trial.at_work()
    pid = trial.choose.choice(trial.pids())
    try:
        lowest = lowest_free(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, lowest))
        trial.says_why()
        released([pid])  # Spark gives it to the next attempt as it is
        if trial.job.error is not None:
            trial.begin()
        trial.finish()
    finally:
        released([pid])


def memory_files(trial: Trial) -> None:
    """Workers may make no file in memory of the size that a ring needs."""
    trial.transport = "auto"
    trial.gates.set(Arrival.NO_MEMORY_FILES)
    pids: list[int] = []
    try:
        trial.begin()
        pids = trial.pids()
        trial.at_work()
        if rings := sum(held(pid).segments for pid in pids):
            msg = f"{rings} rings are there, although no file in memory may be made"
            raise Unmet(msg)
        trial.gates.lift(Arrival.NO_MEMORY_FILES)
        for pid in trial.pids():  # files of the sink may be as long as they like again
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        trial.finish()
    finally:
        released(pids)


def cut(trial: Trial) -> None:
    """The connection of two workers is cut in the middle of a frame."""
    trial.transport = "socket"
    trial.begin()
    trial.at_work()
    trial.linger(2 * trial.interval_s)
    one, other = trial.choose.sample(trial.pids(), 2)
    found = channels(one, other)
    if not found:
        msg = "these two workers have no connection"
        raise Unmet(msg)
    body = trial.choose.choice((64, 640, 64_000))
    head = pack(Kind.DATA, trial.choose.randrange(4), 1, 1, body)
    with taken(one, trial.choose.choice(found).descriptor) as channel:
        with contextlib.suppress(BlockingIOError):
            channel.send(head[: trial.choose.choice((1, 17, len(head)))] + bytes(trial.choose.randrange(body)))
        channel.shutdown(socket.SHUT_RDWR)
    if not trial.ends_or_says_why():
        trial.begin()
    elif not trial.job.recoveries:
        msg = "the connection was not cut: the job went on without a recovery"
        raise Unmet(msg)
    trial.finish()


def line_cut(trial: Trial) -> None:
    """One of a worker's lines to its driver is cut and nothing else: the lane by turns, the rest by the seed."""
    lane = LANES[trial.row.seed % len(LANES)]
    trial.is_timed = True
    with drivers_ends() as lines:
        trial.begin()
    trial.at_work()
    trial.linger(2 * trial.interval_s)
    worker, is_ours = trial.choose.randrange(len(trial.pids())), trial.choose.random() < 0.5
    trial.note(f"{lane} of worker {worker}, cut in {'the worker' if is_ours else 'the driver'}")
    trial.await_(lambda: (worker, lane) in lines, f"a line {lane}")
    if is_ours:
        cut_at(trial.pids()[worker], lines[worker, lane].connection.getpeername())
    else:
        lines[worker, lane].break_off()
    epoch = trial.job.epoch
    if not trial.ends_or_says_why():
        trial.begin()
    elif not wait_until(lambda: trial.job.recoveries > 0, TYPED_SECONDS - trial.row.figures["to_answer_s"]):
        msg = f"line {lane} was cut at epoch {epoch}, and the job is at {trial.job.epoch} without a recovery"
        raise Broken(msg)
    trial.finish()


@contextlib.contextmanager
def drivers_ends() -> Iterator[dict[tuple[int, str], Line]]:
    """The driver's ends of the lines of an attempt that begins here, by worker and lane, as they are opened."""
    serve, found = ControlServer._serve, dict[tuple[int, str], Line]()

    def noted(server: ControlServer, claim: Claim, line: Line) -> None:
        found[claim.worker, claim.lane] = line
        serve(server, claim, line)

    with mock.patch.object(ControlServer, "_serve", noted):
        yield found


def cut_at(pid: int, local: tuple[str, int]) -> None:
    """The socket that a process has at this address is shut down."""
    for each in connections(pid):
        if each.local == local and each.state == ESTABLISHED:
            with taken(pid, each.descriptor) as end:
                end.shutdown(socket.SHUT_RDWR)
            return
    msg = f"process {pid} has no socket at {local}"
    raise Unmet(msg)


def clock(trial: Trial) -> None:
    """The workers' clocks jump by an hour, forward or back, and by the seed another time."""
    file = trial.folder.parent / CLOCK_FILE
    jumped(file, 0)
    try:
        trial.begin()
        trial.at_work()
        for _ in range(trial.choose.randint(1, 2)):
            hours = trial.choose.choice((-1, 1))
            jumped(file, hours * HOUR_S)
            trial.note(f"by {hours:+d} h")
            require_moved(trial, hours * HOUR_S)
            epoch = trial.job.epoch
            trial.await_(lambda: trial.job.epoch > epoch + 1, "epochs after the jump")  # noqa: B023 # awaited here
        if trial.choose.random() < 0.5:
            trial.note("then a worker is killed")
            trial.kill(trial.choose.choice(trial.pids()))
            trial.await_(lambda: trial.job.recoveries > 0, "a recovery")
        trial.finish()
    finally:
        jumped(file, 0)


def require_moved(trial: Trial, seconds: float) -> None:
    """Have a worker tell the time; Unmet where its clock is not as far off as it should be."""
    told = f"{Numbered.CLOCK}-told"
    trial.gates.lift(told)
    trial.gates.set(Numbered.CLOCK)
    trial.await_(lambda: trial.gates.is_there(told), "the time of a worker")
    off = (trial.gates.told(told) or 0.0) - time.time()
    if abs(off - seconds) > CLOCK_NEAR_S:
        msg = f"a worker's clock is {off:+.0f} s off, and not {seconds:+.0f} s"
        raise Unmet(msg)


def jumped(file: Path, seconds: int) -> None:
    """Set how far the clocks of those who look into this file are from the right time."""
    waiting = file.with_suffix(".next")
    waiting.write_text(f"{seconds:+d}s\n")
    waiting.replace(file)


def clock_settings(file: Path) -> Iterator[tuple[str, str]]:
    """What processes need in their surroundings so that a file moves their clock."""
    yield "LD_PRELOAD", str(clock_library())
    yield "FAKETIME_TIMESTAMP_FILE", str(file)
    yield "FAKETIME_NO_CACHE", "1"
    yield "FAKETIME_DONT_FAKE_MONOTONIC", "1"


TRIALS: Mapping[str, Callable[[Trial], None]] = {
    "descriptors": descriptors,
    "memory-files": memory_files,
    "socket-cut": cut,
    "line-cut": line_cut,
    "clock-1h": clock,
}
