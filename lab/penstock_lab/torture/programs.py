"""A driver that dies, at some moment or in a phase of a move: a program of its own runs the job and is killed -9.

Then the same program is started again.

    python -m penstock_lab.torture.programs ORDER.json

The program writes down which processes its workers are, so that the trial can see them end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq

from penstock.deploy import local_session
from penstock_lab.torture.contract import is_clean
from penstock_lab.torture.jobs import Numbered
from penstock_lab.torture.killed_moves import PHASES, dies
from penstock_lab.torture.processes import is_alive
from penstock_lab.torture.trial import LOOK_SECONDS, Broken, Trial, Unmet, checked

PROGRAM = "penstock_lab.torture.programs"
MASTER = "local[4]"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
START_SECONDS, END_SECONDS, LEAVE_SECONDS = 90.0, 90.0, 5.0
LIMIT_SECONDS = 300.0
PIDS, DONE = "workers.json", "done.json"
MOVES = "dies-in-a-move-"  # the gate of a phase; who claims it dies


def driver(trial: Trial) -> None:
    """The driver is killed at a moment that the seed chooses, and the program started again."""
    order = ordered(trial)
    when = trial.choose.choice(("before the first epoch", "at work", "at work", "closing"))
    trial.note(f"killed {when}")
    first = started(order)
    try:
        awaited(lambda: trial.gates.is_there(PIDS), first, "the job's start")
        if when != "before the first epoch":
            awaited(lambda: len(list(trial.kept.glob("manifests/*.json"))) > 1, first, "two epochs")
            trial.linger(2 * trial.interval_s)
        if when == "closing":
            trial.gates.set(Numbered.GO)
            trial.linger(0.4)
    finally:
        first.kill()
        first.wait()
    goes_on(trial, order, first)


def in_a_move(trial: Trial) -> None:
    """The driver dies in a phase of a move; one phase after the other, seed by seed."""
    phase = sorted(PHASES)[trial.row.seed % len(PHASES)]
    trial.note(f"killed in a move: {PHASES[phase].about}")
    trial.gates.set(f"{MOVES}{phase}")
    order = ordered(trial)
    first = started(order)
    try:
        first.wait(START_SECONDS)
    except subprocess.TimeoutExpired:
        msg = f"the driver did not come to this phase within {START_SECONDS:g} s"
        raise Unmet(msg) from None
    finally:
        first.kill()
        first.wait()
    goes_on(trial, order, first)


def ordered(trial: Trial) -> Path:
    """What the program is told."""
    order = trial.folder / "order.json"
    order.write_text(json.dumps({"seed": trial.row.seed, "folder": str(trial.folder), "line": trial.row.line}))
    return order


def goes_on(trial: Trial, order: Path, first: subprocess.Popen[bytes]) -> None:
    """The workers end with their driver; started again, the program ends well, and the rows are all there once."""
    killed = time.monotonic()
    if first.returncode != -signal.SIGKILL or trial.gates.is_there(DONE):
        msg = f"the program had done its work when it was to be killed; it ended with {first.returncode}"
        raise Unmet(msg)
    pids: list[int] = json.loads(trial.gates.at(PIDS).read_text())
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() - killed > LEAVE_SECONDS:
            msg = f"workers were there {LEAVE_SECONDS:g} s after their driver: {list(filter(is_alive, pids))}"
            raise Broken(msg)
        time.sleep(LOOK_SECONDS)
    trial.row.figures["workers_gone_s"] = time.monotonic() - killed
    trial.gates.set(Numbered.GO)
    again = started(order)
    try:
        again.wait(START_SECONDS + END_SECONDS)
    except subprocess.TimeoutExpired:
        msg = "the program that was started again did not end"
        raise Broken(msg) from None
    finally:
        again.kill()
        again.wait()
    trial.row.figures["again_s"] = time.monotonic() - killed
    if again.returncode or not trial.gates.is_there(DONE):
        msg = f"the program that was started again ended with {again.returncode}"
        raise Broken(msg)
    trial.row.notes += json.loads(trial.gates.at(DONE).read_text())["notes"]
    folder = trial.out if trial.sink == "parquet" else trial.folder / "collected"
    trial.row.counts = checked(folder, [trial.shape.rows_each] * trial.shape.sources, is_counted=True)
    if not is_clean(trial.row.counts):
        msg = "the checker found faults"
        raise Broken(msg)


def started(order: Path) -> subprocess.Popen[bytes]:
    """The program."""
    return subprocess.Popen([sys.executable, "-m", PROGRAM, str(order)], stdout=subprocess.DEVNULL)  # noqa: S603


def awaited(condition: Callable[[], bool], program: subprocess.Popen[bytes], what: str) -> None:
    """Until it holds, as long as the program lives."""
    latest = time.monotonic() + START_SECONDS
    while not condition():
        if program.poll() is not None:
            msg = f"the program ended with {program.returncode} before {what}"
            raise Broken(msg)
        if time.monotonic() > latest:
            msg = f"{what} did not come within {START_SECONDS:g} s"
            raise Unmet(msg)
        time.sleep(LOOK_SECONDS)


def main(words: list[str]) -> int:
    """The program: the job of a trial, to its end."""
    order = json.loads(Path(words[0]).read_text())
    trial = Trial(local_session(MASTER, java_options=JAVA), order["line"], order["seed"], Path(order["folder"]))
    job = trial.begin()
    waiting = trial.gates.at(f".{PIDS}")
    waiting.write_text(json.dumps(trial.pids()))
    waiting.replace(trial.gates.at(PIDS))
    for phase in PHASES:
        if trial.gates.claimed(f"{MOVES}{phase}"):
            dies(trial, phase)
    job.wait(LIMIT_SECONDS)
    if trial.sink == "collect":
        folder = trial.folder / "collected"
        folder.mkdir(exist_ok=True)
        pq.write_table(job.result.toArrow(), folder / "part-0.parquet")
    trial.gates.at(DONE).write_text(json.dumps({"notes": list(job.notes)}))
    return 0


TRIALS: Mapping[str, Callable[[Trial], None]] = {"killed-driver": driver, "killed-move-driver": in_a_move}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
