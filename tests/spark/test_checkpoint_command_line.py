"""`penstock run --checkpoint` when its driver is killed: the same command again answers as Spark SQL does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.apps import routes
from penstock.apps.trips import Trips
from penstock.deploy.driver.rendezvous import wait_until
from penstock_lab.same_rows import row_differences

PATIENCE_S = 120.0
# The trips of `penstock run routes`, which wait in the middle until a file is there.
HELD = """
import time
from pathlib import Path

from penstock.apps import routes
from penstock.apps.trips import Trips

GATE = str(Path(__file__).parent / "gate")


class Held(Trips):
    def __call__(self, task, tasks):
        for number, batch in enumerate(super().__call__(task, tasks)):
            while number == 3 and not Path(GATE).exists():
                yield None
            yield batch


def topology():
    return routes.build(Held())
"""
SAME = ("--workers", "3", "--checkpoint", "kept", "--checkpoint-interval", "0.05", "--format", "json")


class Folder:
    """Where a user works, and the programs that are started there; each leads a group of processes of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        command = [sys.executable, "-m", "penstock", *words]
        pipe = subprocess.PIPE
        begun = subprocess.Popen(
            command, cwd=self.path, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        self.started.append(begun)
        return begun

    def run(self, *words: str) -> dict[str, Any]:
        begun = self.start(*words)
        out, err = begun.communicate(timeout=PATIENCE_S)
        assert begun.returncode == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    def epochs(self) -> int:
        return len(list(self.path.glob("kept/manifests/*.json")))

    def is_left(self) -> bool:
        return any(_lives(begun.pid) for begun in self.started)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "held.py").write_text(HELD)
    found = Folder(tmp_path)
    yield found
    for begun in found.started:
        if begun.poll() is None:
            begun.kill()
            begun.wait()
        for pipe in (begun.stdout, begun.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def differences(spark: SparkSession) -> Callable[[Path], list[str]]:
    """How a folder's rows differ from what Spark SQL answers to the same question."""

    def of(answer: Path) -> list[str]:
        trips = [batch for task in range(routes.TASKS["source"]) for batch in Trips()(task, routes.TASKS["source"])]
        spark.createDataFrame(pa.Table.from_batches(trips)).createOrReplaceTempView("trips")
        return list(row_differences(spark.read.parquet(str(answer)), spark.sql(routes.answer_sql("trips"))))

    return of


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_a_driver_that_is_killed_is_started_again_with_the_same_command(
    folder: Folder, differences: Callable[[Path], list[str]]
) -> None:
    command = ("run", "held.py:topology", *SAME)
    first = folder.start(*command)
    assert wait_until(lambda: folder.epochs() >= 2 or first.poll() is not None, PATIENCE_S)
    assert first.poll() is None, first.communicate()[1]
    saved = folder.run("checkpoint", "save", "kept", "halfway", "--format", "json")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (folder.path / "gate").touch()

    again = folder.run(*command, "--output", "answer")
    assert differences(folder.path / "answer") == []
    assert again["tuples_read"] < Trips().count  # it did not begin anew
    assert (again["attempt"], again["recoveries"], again["moves"]) == (2, 0, 0)
    assert again["epoch"] > saved["epoch"]

    from_savepoint = folder.run(*command, "--from", "halfway", "--output", "answer from halfway")
    assert differences(folder.path / "answer from halfway") == []
    assert from_savepoint["attempt"] == 3
    assert from_savepoint["tuples_read"] >= again["tuples_read"]
    assert folder.run("checkpoint", "verify", "kept", "--format", "json")["sound"]
    assert wait_until(lambda: not folder.is_left(), PATIENCE_S), "the driver that was killed left processes behind"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_command_that_is_told_to_end_says_how_to_go_on(folder: Folder, number: signal.Signals, status: int) -> None:
    """As supervisors and people do it."""
    begun = folder.start("run", "held.py:topology", *SAME)
    assert wait_until(lambda: folder.epochs() >= 2 or begun.poll() is not None, PATIENCE_S)
    begun.send_signal(number)
    out, err = begun.communicate(timeout=PATIENCE_S)
    assert (begun.returncode, out) == (status, "")
    last = err.splitlines()[-1]
    assert last.startswith("penstock: stopped; run the same command to go on from epoch "), err
    assert wait_until(lambda: not folder.is_left(), PATIENCE_S)


@pytest.mark.parametrize("spark", ["local[8]"], indirect=True)
def test_a_driver_that_is_killed_while_it_writes_the_answer_is_started_again_with_the_same_command(
    folder: Folder, differences: Callable[[Path], list[str]]
) -> None:
    command = ("run", "held.py:topology", *SAME, "--output", "answer")
    (folder.path / "gate").touch()
    first = folder.start(*command)
    assert wait_until(lambda: (folder.path / ".answer.writing").exists() or first.poll() is not None, PATIENCE_S)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not (folder.path / "answer").exists()

    again = folder.run(*command)
    assert differences(folder.path / "answer") == []
    assert again["tuples_read"] == 0  # the job was over
    assert not (folder.path / ".answer.writing").exists()

    third = folder.start(*command)
    assert "--output is answer, which is there already" in third.communicate(timeout=PATIENCE_S)[1]
    assert third.returncode == 2
