"""Drivers that are killed or stopped, as processes of their own: what is left, and what the same program does next."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from footprint import below
from recovery_kit import PATIENCE_S, answer

from penstock.checkpoint.store import Store
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.session.private_folder import reap

GONE_SECONDS = 5.0  # after which nothing of a killed driver is left
SCRIPT = """
import sys
from pathlib import Path
from penstock.deploy import local_session
from recovery_kit import counts, numbers, rows_of

master, folder, silence_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
spark = local_session(master, java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
job = counts(numbers(folder / "gate")).start(
    spark, workers=2, checkpoint=folder / "kept", checkpoint_interval_s=0.05, silence_s=silence_s
)
print([worker.pid for worker in job.workers], flush=True)
print((job.attempt, rows_of(job), job.recoveries), flush=True)
"""


@contextmanager
def driver(folder: Path, master: str = "local[3]", silence_s: float = 10.0) -> Iterator[subprocess.Popen[str]]:
    """The same program with the same checkpoint folder, each time."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(Path(__file__).parent)}
    environment.pop("SPARK_HOME", None)
    words = [sys.executable, "-c", SCRIPT, master, str(folder), str(silence_s)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def said(process: subprocess.Popen[str]) -> object:
    """The next line of a driver."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return ast.literal_eval(line)


def await_epoch(folder: Path, epoch: int) -> None:
    """Until this epoch is committed."""
    store = Store(str(folder / "kept"))
    assert wait_until(lambda: max([0, *store.numbers()]) >= epoch, PATIENCE_S)


def none_runs(pids: Sequence[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("master", ["local[3]", "local-cluster[1,3,1024]"])
def test_a_killed_driver_leaves_nothing_and_the_same_program_goes_on(tmp_path: Path, master: str) -> None:
    shared = set(os.listdir("/dev/shm"))  # noqa: S108 # looked at, not written to
    with driver(tmp_path, master) as first:
        said(first)
        await_epoch(tmp_path, 3)
        everything = below(first.pid)
        first.kill()
        first.wait()
        assert wait_until(lambda: none_runs(everything), GONE_SECONDS)
    assert not {name for name in set(os.listdir("/dev/shm")) - shared if "penstock" in name}  # noqa: S108 # likewise
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        reap()  # as the next session does
    (tmp_path / "gate").touch()
    with driver(tmp_path, master) as again:
        said(again)
        assert said(again) == (2, answer(), 0)


def test_a_driver_that_was_stopped_for_longer_than_its_workers_may_be_goes_on(tmp_path: Path) -> None:
    with driver(tmp_path, silence_s=2.0) as process:
        said(process)
        await_epoch(tmp_path, 2)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: False, 4.0)  # twice the limit
        process.send_signal(signal.SIGCONT)
        last = max(Store(str(tmp_path / "kept")).numbers())
        await_epoch(tmp_path, last + 2)
        (tmp_path / "gate").touch()
        assert said(process) == (1, answer(), 0)
