"""What `penstock run` counts and says, and what a job says that does not end; with a job that is scripted."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from store_kit import TOPOLOGY, committed

import penstock as ps
from penstock import deploy
from penstock.apps import find_topology, routes
from penstock.checkpoint.store import Store
from penstock.cli import run as run_verb
from penstock.cli import run_command
from penstock.deploy.driver import job as job_module
from penstock.deploy.driver import submit
from penstock.deploy.driver.job import Job
from penstock.deploy.driver.standstill import Standing, standstill
from penstock.deploy.metrics.metric_log import MetricLog
from penstock.deploy.metrics.sums import Sums
from penstock.deploy.session.closed import OPEN_NOTE
from penstock.errors import InvalidInput
from penstock.model.taskgraph import TaskGraph
from penstock.run.engine.meters import TABLES

ASKED_AT = 1000.0


class ScriptedJob:
    """Workers begin four seconds after they were asked for; a look takes a fifth of a second."""

    name, plan, notes, late_rows = "ticks", None, (), {"count": 3}
    worker_of, places = {"r/0": 0}, (SimpleNamespace(index=0, node="n1"),)
    recoveries, attempt, epoch, moves = 0, 1, 0, 0

    def __init__(self) -> None:
        self.now, self.stopped_at = ASKED_AT, 0.0

    @property
    def worked(self) -> tuple[float, float] | None:
        return (ASKED_AT + 4, self.now) if self.now >= ASKED_AT + 5 else None  # the first report comes a second later

    @property
    def rows_read(self) -> int:
        return int(100 * max(0.0, self.now - ASKED_AT - 4))

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def stop(self) -> None:
        self.stopped_at = self.now

    def latency_us(self, fraction: float) -> int:
        return 1500

    def sums(self) -> Sums:
        return Sums()


def test_the_duration_and_the_rate_count_from_when_workers_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job: Any = ScriptedJob()
    looks: list[float] = []
    monkeypatch.setattr(submit, "time", SimpleNamespace(time=lambda: job.now))
    submit.follow(job, 2.0, lambda: looks.append(job.now))
    assert job.stopped_at == pytest.approx(ASKED_AT + 6, abs=submit.LOOK_SECONDS)
    summary = run_verb.summarise(job, ASKED_AT, 3)
    assert summary["start_seconds"] == pytest.approx(4.0)
    assert summary["tuples_per_second"] == pytest.approx(100, rel=0.02)
    run_verb._print(job, summary, {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("ticks: 2")
    assert first.endswith("/s) after 4.0 s of starting, on 1 worker of 1 node")
    assert second == "latency from source to sink: p50 1.5 ms, p99 1.5 ms"
    assert third == "between nodes: 0 B/s"


def test_under_the_stages_it_says_that_they_are_no_parts_of_the_latency(capsys: pytest.CaptureFixture[str]) -> None:
    """Batches wait 200 ms in a queue, and those whose rows reach the sink do not: both figures are true."""
    job: Any = ScriptedJob()
    job.now = ASKED_AT + 6
    stage = {"operator": "count", "execute_ms": 1.0, "transport_ms": 1.0, "queue_ms": 204.0}
    run_verb._print(job, run_verb.summarise(job, ASKED_AT, 3) | {"latency": [stage]}, {})
    lines = capsys.readouterr().out.splitlines()
    assert "204.000" in lines[4]
    assert " ".join(lines[5:7]).startswith("means over all batches into a stage")
    run_verb._print(job, run_verb.summarise(job, ASKED_AT, 3), {})
    assert "means over" not in capsys.readouterr().out


def test_after_failures_it_says_which_count_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that a worker had read and not reported when it died are in no figure; rows in sinks are counted there."""
    job: Any = ScriptedJob()
    job.now = ASKED_AT + 6
    job.recoveries, job.epoch = 3, 9
    run_verb._print(job, run_verb.summarise(job, ASKED_AT, 100_000), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ticks: at least 200 rows in ")
    assert lines[-1] == "it went on after 3 failures, at epoch 9 now; its sinks hold 100,000 rows"
    run_verb._print(job, run_verb.summarise(job, ASKED_AT, 0), {})  # sinks that keep nothing
    assert capsys.readouterr().out.splitlines()[-1] == "it went on after 3 failures, at epoch 9 now"


# -- a run that is interrupted -----------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """What `penstock run` meets while its job runs."""
    raised: list[BaseException] = []

    def start(topology: object, spark: object, options: object) -> None:
        raise raised[0]

    monkeypatch.setattr(deploy, "local_session", lambda master: None)
    monkeypatch.setattr(deploy, "start_topology", start)
    return raised


def said_by_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["penstock", "run", "routes", *words])
    return run_command(), capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(
    interrupted: list[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted.append(KeyboardInterrupt())
    assert said_by_run(monkeypatch, capsys) == (130, "penstock: stopped\n")
    kept = ("--checkpoint", str(tmp_path))
    anew = "penstock: stopped; run the same command to begin again: there was no epoch yet\n"
    assert said_by_run(monkeypatch, capsys, *kept) == (130, anew)
    store = Store(str(tmp_path))
    committed(store, store.claim(TOPOLOGY), 4)
    on = "penstock: stopped; run the same command to go on from epoch 4\n"
    assert said_by_run(monkeypatch, capsys, *kept) == (130, on)
    on = "penstock: stopped; run the same command without --from to go on from epoch 4\n"
    assert said_by_run(monkeypatch, capsys, *kept, "--from", "before") == (130, on)


def test_a_jvm_that_ends_while_the_answer_is_read_is_told_in_one_line(
    interrupted: list[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted.append(ConnectionRefusedError(111, "Connection refused"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        jvm.kill()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
    store = Store(str(tmp_path))
    store.commit(dataclasses.replace(committed(store, store.claim(TOPOLOGY), 4), epoch=5, is_last=True))
    ended = f"penstock: Spark's JVM ended (pid {jvm.pid}, signal 9); "
    over = f"{ended}the job is over; run the same command to see its answer\n"
    assert said_by_run(monkeypatch, capsys, "--checkpoint", str(tmp_path)) == (1, over)
    assert said_by_run(monkeypatch, capsys) == (1, f"{ended}run the same command again\n")
    interrupted[:] = [RuntimeError("of another kind")]
    with pytest.raises(RuntimeError, match="of another kind"):
        said_by_run(monkeypatch, capsys)


# -- savepoints --------------------------------------------------------------------------------------------------------


def test_a_savepoint_that_cannot_be_is_refused_before_an_epoch_is_waited_for() -> None:
    job: Any = object.__new__(Job)
    job.name, job._ended = "words", threading.Event()
    asked: list[str] = []

    def savepoint(name: str, timeout: float) -> SimpleNamespace:
        asked.append(name)
        return SimpleNamespace(epoch=7)

    job._epochs = SimpleNamespace(store=SimpleNamespace(root="/my kept"), savepoint=savepoint)
    for name, why in ((5, "give a text"), (None, "give a"), ("12", "an epoch's number too"), ("a b", "use 1 to 100")):
        with pytest.raises(InvalidInput, match=f"cannot name a savepoint.* {why}"):
            job.savepoint(name)
    assert job.savepoint("before") == 7
    job._ended.set()
    with pytest.raises(InvalidInput, match=r"job 'words' is over, .*`penstock checkpoint save '/my kept' z` keeps"):
        job.savepoint("z")
    assert asked == ["before"]


def test_run_tells_at_its_end_which_rows_went_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who calls `run` gets rows and no job, so its notes would be lost with it."""
    top = ps.Topology("words")
    rows = top.source("rows", ps.io.generator(lambda task, tasks: [], "at timestamp, n bigint")).event_time("at")
    rows.key_by("n").count(window=ps.tumbling("1 s"), name="count").sink("out", ps.io.collect())
    log = MetricLog("j")
    row = dict.fromkeys(TABLES["tasks"].names, 0) | {
        "task": "count/0",
        "node": "n1",
        "idle": False,
        "ended": False,
        "late": 1204,
    }
    job: Any = object.__new__(Job)
    job.name, job._status, job._error, job._log = "words", "finished", None, log
    job._order = SimpleNamespace(dataflow=top.build(), notes=("of no importance",))
    job._bound_notes, job._epochs, job._attempts = (), None, SimpleNamespace(notes=())
    job._watched = SimpleNamespace(all=())
    job._results = SimpleNamespace(frames=lambda: {"out": "rows"})
    job._ended = threading.Event()
    job._ended.set()
    monkeypatch.setattr(submit, "start_topology", lambda topology, spark, options: job)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        assert top.run(None) == "rows"
        assert caplog.records == []  # no row was late
        log.take(0, "tasks", pa.RecordBatch.from_pylist([row], TABLES["tasks"]))
        assert top.run(None) == "rows"
    (record,) = caplog.records
    assert record.getMessage().startswith("job 'words': 1,204 rows were late and nobody reads .late of 'count'; event")
    caplog.clear()
    monkeypatch.setattr(submit, "_told_open", set())
    job._log, job._order.notes = MetricLog("k"), (OPEN_NOTE,)
    session = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1"))
    assert [top.run(session), top.run(session)] == ["rows"] * 2
    assert [record.getMessage() for record in caplog.records] == [f"job 'words': {OPEN_NOTE}"]  # once


def test_workers_that_never_report_do_not_keep_a_job_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    job: Any = ScriptedJob()
    looks: list[float] = []
    monkeypatch.setattr(ScriptedJob, "worked", None)
    monkeypatch.setattr(submit, "time", SimpleNamespace(time=lambda: job.now))
    submit.follow(job, 2.0, lambda: looks.append(job.now))
    late = ASKED_AT + submit.START_SECONDS_MAX + 2
    assert looks[-1] == job.stopped_at
    assert job.stopped_at == pytest.approx(late, abs=submit.LOOK_SECONDS)


def test_an_applications_program_and_graph_declare_the_same_loads() -> None:
    program, graph = routes.build().build().graph(), find_topology("routes")
    assert {o.name: o.loads() for o in program.operators} == {o.name: o.loads() for o in graph.operators}
    assert TaskGraph.expand(program).load.sum() == pytest.approx(TaskGraph.expand(graph).load.sum())


def test_a_load_that_is_declared_counts_until_it_is_measured() -> None:
    top = ps.Topology("words")
    top.source("rows", ps.io.rate(1, rows=3), tasks=2).sink("out", ps.io.discard())
    top.declare("rows", load=0.25)
    assert top.build().graph().operators[0].loads() == (0.25, 0.25)
    for name, load, said in (("rows", -1, "load of 'rows' is -1"), ("row", 1, "unknown operator 'row'; known: rows")):
        with pytest.raises(InvalidInput, match=said):
            top.declare(name, load)


# -- a job that does not end -----------------------------------------------------------------------------------------

HANGS = Standing(1, 4242, "n1", ("parse/0", "count/1"), 7.0, {"parse/0": 3, "count/1": 0})
DRAINS = dataclasses.replace(HANGS, worker=0, silent_s=0.4)


def test_a_silent_worker_is_named_with_its_tasks() -> None:
    assert standstill("words", 5.0, [DRAINS, HANGS], 1.0) == (
        "job 'words' is still stopping after 5 s: worker 1 (pid 4242, node 'n1'), which runs parse/0, count/1, has "
        "said nothing for 7 s; a function there may not return, and job.cancel() ends it without its result"
    )
    many = dataclasses.replace(HANGS, worker=2, tasks=[f"a/{i}" for i in range(20)], silent_s=9.0)
    text = standstill("words", 5.0, [HANGS, many], 1.0)
    assert "a/5 and 14 more tasks" in text
    assert "(1 more are silent too)" in text


def test_a_job_that_drains_says_what_it_waits_for() -> None:
    assert "3 batches wait for 'parse/0'; it ends when they are done" in standstill("words", 5.0, [DRAINS], 1.0)
    idle = dataclasses.replace(DRAINS, queued={})
    assert standstill("words", 5.0, [idle, idle], 1.0).startswith("job 'words' is still stopping after 5 s: 2 workers")


@pytest.mark.parametrize("hangs", [True, False])
def test_stopping_speaks_up_once_when_it_takes_long(
    hangs: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(job_module, "STOP_QUIET_SECONDS", 0.0)
    ended = threading.Event()
    job: Any = object.__new__(Job)
    job.name, job._status, job._ended, job._error = "words", "running", ended, None
    job._order = SimpleNamespace(settings=SimpleNamespace(interval_s=1.0))
    job._results = SimpleNamespace(frames=lambda: {"out": "rows"})
    commands: list[str] = []
    job._attempts = SimpleNamespace(stop=lambda: commands.append("stop"))
    if hangs:
        job._standing = lambda: ended.set() or [HANGS]  # it lets go once somebody has been told
    else:
        job._attempts.stop = lambda: (commands.append("stop"), ended.set())
    with caplog.at_level(logging.WARNING, logger="penstock"):
        assert job.stop() == "rows"
    assert commands == ["stop"]
    assert [record.getMessage() for record in caplog.records] == (
        [standstill("words", 0.0, [HANGS], 1.0)] if hangs else []
    )
