"""Tasks of real jobs move while the others go on: what comes out, who goes on meanwhile, and what fails on the way."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import KEYS, ROWS, answer, await_epoch, await_recoveries, counts, kill, numbers, rows_of

import penstock as ps
from penstock.deploy import Job
from penstock.deploy.attempt.live import LiveMover
from penstock.deploy.attempt.moving import LiveMove, Phase, Step
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import JobFailed
from penstock.flow import io
from penstock.run.contract import TaskContext

PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def cancelled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that fails leaves no job behind for the next."""
    started: list[Job] = []
    begin = Job.begin

    def begun(job: Job) -> None:
        started.append(job)
        begin(job)

    monkeypatch.setattr(Job, "begin", begun)
    yield
    for job in started:
        job.cancel()


def start(spark: SparkSession, top: ps.Topology, tmp_path: Path, workers: int = 2) -> Job:
    job = top.start(spark, workers=workers, scheduler="even", checkpoint=tmp_path / "kept", checkpoint_interval_s=0.05)
    await_epoch(job, 2)
    return job


@pytest.mark.parametrize("sink", ["collect", "parquet"])
def test_a_task_goes_there_and_back_and_nothing_is_lost_or_comes_twice(
    spark: SparkSession, footprint: Footprint, tmp_path: Path, sink: str
) -> None:
    gate = tmp_path / "gate"
    top = counts(numbers(gate), io.collect() if sink == "collect" else io.parquet(tmp_path / "out"))
    job = start(spark, top, tmp_path)
    processes, source = [hello.pid for hello in job.workers], job.worker_of["numbers/0"]
    for turn in range(6):
        found = job.move("count/0", turn % 2)
        assert (found.moved, found.stood, found.attempt) == (("count/0",), "", 1)
        assert job.worker_of["count/0"] == turn % 2
    job.move("numbers", 1 - source)
    assert job.worker_of["numbers/0"] == 1 - source
    await_epoch(job, job.epoch + 1)
    assert (job.attempt, job.recoveries) == (1, 0)
    assert [hello.pid for hello in job.workers] == processes
    assert sum("while the others went on" in note for note in job.notes) == 7
    gate.touch()
    assert rows_of(job) == answer()
    told = {task: totals["tuples_in"] for task, totals in job.totals().items()}
    assert told["count/0"] + told["count/1"] == ROWS, (
        "what a task did between a report and its hand-over is told as well"
    )
    footprint.assert_gone()


def test_all_tasks_leave_a_worker_and_come_back_to_it(
    spark: SparkSession, footprint: Footprint, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = start(spark, counts(numbers(gate)), tmp_path)
    for worker in (0, 1, 0):
        found = job.move(list(job.worker_of), worker)
        assert found.stood == ""
        assert {*job.worker_of.values()} == {worker}
        await_epoch(job, job.epoch + 2)
    gate.touch()
    assert rows_of(job) == answer()
    assert (job.attempt, job.recoveries) == (1, 0)
    footprint.assert_gone()


class Visits(ps.Stateful):
    """Counts what comes of each key."""

    schema = "k bigint, visits bigint"

    def on_row(self, key, row, state, timers, emit) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """One more."""
        state["visits"] = state.get("visits", 0) + 1

    def on_end(self, key, state, emit) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """So many."""
        emit((key, state["visits"]))


def test_windows_joins_and_states_of_users_move_with_what_they_know(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    top = ps.Topology("kinds")
    source = top.source("numbers", numbers(gate)).select("n", "k", "timestamp_micros(n * 1000000) as at")
    timed = source.event_time("at", "5 seconds")
    windows = timed.key_by("k").count(window=ps.tumbling("100 seconds"), name="windows", tasks=2)
    windows.sink("windows out", io.collect())
    source.key_by("k").process(Visits, name="visits", tasks=2).sink("visits out", io.collect())
    job = start(spark, top, tmp_path, workers=3)
    for turn, tasks in enumerate(("windows", "visits/1", ["windows/1", "visits"], "windows/0", "visits/0")):
        for target in range(3):
            worker = (turn + target) % 3
            named = [tasks] if isinstance(tasks, str) else tasks
            if any(at != worker for task, at in job.worker_of.items() if task in named or task.split("/")[0] in named):
                assert job.move(tasks, worker).stood == ""
                break
    gate.touch()
    result = job.result
    rows = [row.asDict() for row in result["windows out"].collect()]
    found = Counter({(row["window_start"].timestamp(), row["k"]): row["count"] for row in rows})
    assert found == Counter((n // 100 * 100.0, n % KEYS) for n in range(ROWS))
    visits = {row["k"]: row["visits"] for row in result["visits out"].collect()}
    assert visits == {key: len(range(key, ROWS, KEYS)) for key in range(KEYS)}
    assert (job.attempt, job.recoveries) == (1, 0)


class Seen:
    """Marks each row in a file, as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, row: ps.Row) -> tuple[int]:
        with self.path.open("ab") as file:
            file.write(b".")
        return (row.n,)


def test_others_go_on_while_the_state_of_a_task_is_held_back(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate, seen, let_go, holds = tmp_path / "gate", tmp_path / "seen", threading.Event(), threading.Event()
    kept = LiveMove.kept

    def held(move: LiveMove, *given: object) -> list[Step]:
        steps = kept(move, *given)  # type: ignore[arg-type]
        if move.phase is Phase.LANDING and not holds.is_set():
            holds.set()
            assert let_go.wait(PATIENCE_S)
        return steps

    monkeypatch.setattr(LiveMove, "kept", held)
    top = counts(numbers(gate))
    beside = top.source("beside", numbers(gate))
    beside.map(Seen(seen), "n bigint", name="seen").sink("beside out", io.collect())
    job = start(spark, top, tmp_path)
    mover = threading.Thread(target=job.move, args=("count/0", 1 - job.worker_of["count/0"]))
    mover.start()
    assert holds.wait(PATIENCE_S)
    before = seen.stat().st_size
    assert wait_until(lambda: seen.stat().st_size > before + 500, PATIENCE_S), "the chain beside it stands"
    assert mover.is_alive()
    let_go.set()
    mover.join(PATIENCE_S)
    gate.touch()
    assert sorted(tuple(row) for row in job.result["out"].collect()) == answer()
    assert sorted(row.n for row in job.result["beside out"].collect()) == list(range(ROWS))
    assert job.recoveries == 0


@pytest.mark.parametrize("who", ["where it was", "where it goes"])
@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.SWITCHING, Phase.LANDING])
def test_a_worker_that_dies_in_any_phase_costs_a_recovery_and_no_row(
    spark: SparkSession, footprint: Footprint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phase: Phase, who: str
) -> None:
    gate, turn, killed = tmp_path / "gate", LiveMover._turn, threading.Event()
    job = start(spark, counts(numbers(gate)), tmp_path)
    was = job.worker_of["count/0"]
    victim = was if who == "where it was" else 1 - was

    def killing(mover: LiveMover) -> None:
        if mover._move.phase is phase and not killed.is_set():
            killed.set()
            os.kill(job.workers[victim].pid, signal.SIGKILL)
        turn(mover)

    monkeypatch.setattr(LiveMover, "_turn", killing)
    try:
        job.move("count/0", 1 - was)
    except JobFailed as error:
        assert "did not go over to another plan" in str(error)  # noqa: PT017 # one of two that may be
    assert killed.is_set()
    await_recoveries(job, 1)
    await_epoch(job, job.epoch + 1)
    job.move("count/0", 1 - job.worker_of["count/0"])
    kill(job, job.worker_of["count/0"])
    await_recoveries(job, 2)
    gate.touch()
    assert rows_of(job) == answer()
    footprint.assert_gone()


class Picky(ps.Stateful):
    """Opens where it may."""

    schema = "k bigint, rows bigint"

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, context: TaskContext) -> None:
        """Once."""
        if self.path.exists():
            msg = "no room here"
            raise ValueError(msg)

    def on_row(self, key, row, state, timers, emit) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """One more."""
        state["rows"] = state.get("rows", 0) + 1

    def on_end(self, key, state, emit) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        """So many."""
        emit((key, state["rows"]))


def test_a_task_that_does_not_open_where_it_is_to_go_stays(spark: SparkSession, tmp_path: Path) -> None:
    gate, full = tmp_path / "gate", tmp_path / "full"
    top = ps.Topology("picky")
    source = top.source("numbers", numbers(gate))
    source.key_by("k").process(lambda: Picky(full), name="picky", tasks=2).sink("out", io.collect())
    job = start(spark, top, tmp_path)
    was = job.worker_of["picky/0"]
    full.touch()
    with pytest.raises(
        JobFailed, match=r"stays as it is, because its tasks cannot move: operator 'picky' \(task 0.*no room here"
    ):
        job.move("picky/0", 1 - was)
    assert job.worker_of["picky/0"] == was
    await_epoch(job, job.epoch + 2)
    full.unlink()
    assert job.move("picky/0", 1 - was).stood == ""
    gate.touch()
    assert rows_of(job) == [(key, len(range(key, ROWS, KEYS))) for key in range(KEYS)]
    assert (job.attempt, job.recoveries) == (1, 0)


def test_a_move_that_is_asked_for_at_once_waits_until_the_workers_have_met(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = counts(numbers(gate)).start(spark, workers=2, scheduler="even", checkpoint=tmp_path / "kept")
    assert job.move("count/0", 1 - job.worker_of["count/0"]).stood == ""
    gate.touch()
    assert rows_of(job) == answer()
    assert (job.attempt, job.recoveries) == (1, 0)


def test_what_cannot_move_alone_goes_over_with_all_and_says_why(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    top = ps.Topology("region")
    region = top.source("numbers", numbers(gate)).parallel(2)
    inside = region.map(lambda row: (row.n, row.k), "n bigint, k bigint")
    inside.merge().sink("out", io.collect())  # type: ignore[attr-defined] # a stream inside a region
    job = start(spark, top, tmp_path, workers=3)
    target = next(worker for worker in range(3) if worker != job.worker_of["numbers/0"])
    found = job.move("numbers", target)
    assert "all tasks stood because the job has a parallel region" in found.note
    gate.touch()
    assert [row.n for row in job.result.collect()] == list(range(ROWS))
