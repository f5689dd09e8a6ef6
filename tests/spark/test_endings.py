"""How jobs end when nobody asks politely: hung workers, an interrupted driver, a killed driver."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint, below
from pyspark.sql import SparkSession

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.driver import job
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line.messages import Hello
from penstock.deploy.session.private_folder import reap
from penstock.errors import JobFailed
from penstock.flow import io

SCRIPT = """
import sys
import penstock as ps
from penstock.deploy import local_session

def numbers(index, tasks):
    while True:
        yield (1,)
        yield None

spark = local_session("local[3]", java_options="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
top = ps.Topology("endless")
top.source("numbers", ps.io.generator(numbers, "n bigint", bounded=False)).sink("out", ps.io.collect(), tasks=1)
job = top.start(spark, scheduler="even", workers=2)
print(*[worker.pid for worker in job.workers], flush=True)
job.wait()
"""


OWN_ERROR = SCRIPT.replace("workers=2)", "workers=2, checkpoint='CK', checkpoint_interval_s=0.05)").replace(
    "job.wait()", "while job.epoch < 3:\n    job.wait(0.05)\nraise ValueError('of the script')"
)


@contextlib.contextmanager
def started(folder: Path, script: str = SCRIPT) -> Iterator[subprocess.Popen[str]]:
    """A driver with an endless job; killed when the block fails, or leaving the block would wait for its end."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment.pop("SPARK_HOME", None)
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        try:
            yield driver
        except BaseException:
            driver.kill()
            raise


def test_a_worker_that_does_not_obey_is_killed_by_spark(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"

    def hang(index: int, tasks: int) -> Iterator[tuple[int]]:
        yield (1,)
        inside.touch()
        time.sleep(3600)

    monkeypatch.setattr(job, "OBEY_SECONDS", 0.2)
    top = ps.Topology("hangs")
    top.source("numbers", io.generator(hang, "n bigint")).sink("out", io.collect(), tasks=1)
    hung = top.start(spark, scheduler="even", workers=2)
    assert wait_until(inside.exists, seconds=60)
    hung.cancel()
    assert hung.status == "cancelled"
    assert wait_until(lambda: not any(Path(f"/proc/{w.pid}").exists() for w in _hung_workers(hung)), seconds=30)
    footprint.assert_gone()


def _hung_workers(hung: Job) -> list[Hello]:
    return [worker for worker in hung.workers if worker.worker == hung.worker_of["numbers/0"]]


def test_a_failure_on_a_frame_is_one_error_too(spark: SparkSession, footprint: Footprint) -> None:
    top = ps.Topology("frame")
    rows = top.source("rows", io.dataframe(spark.range(100_000)))
    rows.map(lambda row: (1 // (row.id - 5),), "n bigint", name="divide").sink("out", io.collect())
    with pytest.raises(JobFailed, match="ZeroDivisionError") as caught:
        top.run(spark, scheduler="even", workers=2)
    assert caught.value.operator == "divide"
    footprint.assert_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_a_driver_that_goes_takes_everything_along(number: signal.Signals, tmp_path: Path) -> None:
    with started(tmp_path) as driver:
        assert driver.stdout is not None
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2, driver.communicate()[1]
        driver.send_signal(number)
        _, said = driver.communicate(timeout=60)
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), seconds=30)
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in said
    else:  # nobody was left to clean up; the next one to come does
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path))
            reap()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("penstock")] == []


def test_a_script_that_raises_tells_its_own_error_and_its_job_does_not_try_to_recover(tmp_path: Path) -> None:
    """Spark was ended under the job, which went on to its second and third attempt while the interpreter shut down."""
    with started(tmp_path, OWN_ERROR.replace("CK", str(tmp_path / "kept"))) as driver:
        _, said = driver.communicate(timeout=120)
    assert driver.returncode == 1
    assert said.rstrip().endswith("ValueError: of the script"), said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("penstock")] == []


def test_a_killed_jvm_is_named_and_no_worker_is_blamed(tmp_path: Path) -> None:
    with started(tmp_path) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline()
        (jvm,) = [pid for pid in below(driver.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
        os.kill(jvm, signal.SIGKILL)
        _, said = driver.communicate(timeout=120)
    assert f"JobFailed: topology 'endless': Spark's JVM ended (pid {jvm}, signal 9), and its workers with it" in said
    assert "Py4J" not in said
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("penstock")] == []


def test_a_job_that_fails_leaves_no_part_of_its_files(spark: SparkSession, tmp_path: Path) -> None:
    written = tmp_path / "written"

    def numbers(index: int, tasks: int) -> Iterator[tuple[int] | None]:
        if index == 0:
            yield (1,)
            return
        while not list(written.glob("part-*")):  # the other task has finished
            yield None
        msg = "the second task fails"
        raise ValueError(msg)

    top = ps.Topology("halved")
    top.source("numbers", io.generator(numbers, "n bigint"), tasks=2).sink("out", io.parquet(written))
    with pytest.raises(JobFailed, match="the second task fails"):
        top.run(spark, workers=2)
    assert list(written.iterdir()) == []
