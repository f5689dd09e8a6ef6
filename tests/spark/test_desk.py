"""The desk: a job that is looked at, moved and stopped by another process of its user, by the command line itself."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from footprint import Footprint
from pyspark.sql import SparkSession
from recovery_kit import KEYS, PATIENCE_S, answer, await_epoch, counts, numbers, rows_of

from penstock.cli.running.jobs import GENTLE_SECONDS
from penstock.deploy import Job
from penstock.deploy.desk import desk
from penstock.deploy.desk.caller import ask
from penstock.deploy.desk.cards import Card, cards, cards_folder, find, new_key, put
from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.line.door import Door
from penstock.deploy.line.messages import encode
from penstock.deploy.line.sealed import WORDS, Claim, Line, open_line
from penstock.errors import InvalidInput, JobFailed
from penstock.run.transport.socket import listen

PENSTOCK = (sys.executable, "-c", "from penstock.cli import main; main()")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Iterator[Job]:
    found = counts(numbers(tmp_path / "gate")).start(
        spark,
        workers=2,
        scheduler="even",
        checkpoint=tmp_path / "kept",
        checkpoint_interval_s=0.05,
        interval_s=0.1,
    )
    assert wait_until(lambda: bool(cards()), PATIENCE_S)
    yield found
    found.cancel()
    assert not cards()


def penstock(*words: str, code: int = 0) -> str:
    done = subprocess.run([*PENSTOCK, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_a_job_is_shown_moved_replanned_and_stopped_from_another_process(job: Job) -> None:
    assert job.id in penstock("jobs")
    seen = json.loads(penstock("show", "counts", "--format", "json"))
    assert (seen["id"], seen["status"], len(seen["workers"])) == (job.id, "running", 2)
    await_epoch(job, 2)
    target = 1 - job.worker_of["numbers/0"]
    assert "1 task moved" in penstock("move", job.id[:5], "count", str(target))
    assert job.worker_of["count/0"] == job.worker_of["count/1"] == target
    await_epoch(job, job.epoch + 2)
    assert "would move" in penstock("replan", "counts", "--scheduler", "ffd")
    assert job.moves == 1
    assert "went over to another plan" in penstock("replan", "counts", "--scheduler", "even", "--apply")
    assert job.moves > 1
    assert "worker is 7; the job has workers 0 to 1" in penstock("move", "counts", "count", "--to", "7", code=2)
    assert "no task is named; name the job, tasks and then" in penstock("move", "counts", "count", code=2)
    assert "worker is 'one'; name the job" in penstock("move", "counts", "count", "one", code=2)
    assert "ends when all has flowed out" in penstock("stop")
    assert job.wait(PATIENCE_S)
    assert len(rows_of(job)) == KEYS  # of the rows until then


def test_a_jobs_tasks_and_workers_are_made_more_and_fewer_from_another_process(job: Job) -> None:
    await_epoch(job, 2)
    assert "'count' has 5 tasks instead of 2, 0 tasks moved" in penstock("scale", "counts", "count", "5")
    assert job.worker_of.keys() == {"numbers/0", *(f"count/{number}" for number in range(5))}
    await_epoch(job, job.epoch + 1)
    assert "3 workers instead of 2" in penstock("workers", "counts", "3")
    told = json.loads(penstock("workers", "counts", "1", "--format", "json"))
    assert (told["workers"], len(job.workers)) == (1, 1)
    assert told["note"] == job.notes[-1]
    assert "has 1 workers already" in penstock("workers", "counts", "1", code=2)
    assert "all workers of job 'counts' are on node" in penstock("drain", "counts", job.places[0].node, code=2)
    assert "cannot have 3 tasks instead of 1: which rows" in penstock("scale", "counts", "numbers", "3", code=2)
    assert job.recoveries == 0


def test_a_card_is_for_its_user_alone_and_goes_with_its_job(footprint: Footprint, job: Job) -> None:
    (path,) = cards_folder().glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    (card,) = cards()
    assert card.key not in repr(card)
    with pytest.raises(JobFailed, match="does not answer"):
        ask(replace(card, key=new_key()), "show")
    with pytest.raises(InvalidInput, match="unknown call 'kill'"):
        ask(card, "kill")
    with socket.create_connection((card.host, card.port)) as stranger:
        stranger.sendall(b"x" * 200)
    assert ask(card, "show")["status"] == "running"
    job.cancel()
    footprint.assert_gone()
    assert not path.exists()
    with pytest.raises(JobFailed, match="does not answer"):
        ask(card, "show")
    with pytest.raises(InvalidInput, match="no job of yours runs"):
        find(None)


def test_a_card_of_a_process_that_has_died_is_removed() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(PATIENCE_S)
    path = put(Card("dead", "words", "127.0.0.1", 1, new_key(), pid=child.pid))
    (path.parent / "torn.json").write_text('{"penstock": 1, "id"')
    alive = put(Card("live", "words", "127.0.0.1", 1, new_key(), pid=os.getpid()))
    put(Card("live too", "words", "127.0.0.1", 1, new_key(), pid=os.getpid()))
    assert {card.id for card in cards()} == {"live", "live too"}
    assert not path.exists()
    with pytest.raises(InvalidInput, match="2 jobs can be meant by job 'words'"):
        find("words")
    alive.unlink()
    assert find("words").id == "live too"


def test_life_is_judged_only_by_those_who_can_tell() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(PATIENCE_S)
    here = Card("here", "words", "127.0.0.1", 1, new_key(), pid=child.pid)
    told = {
        "contained": replace(here, id="contained", processes="pid:[1]"),
        "elsewhere": replace(here, id="elsewhere", boot_id="another", machine="another"),
        "rebooted": replace(here, id="rebooted", boot_id="another", pid=os.getpid()),
        "unknown": replace(here, id="unknown", boot_id="another", machine=""),
        "apart": replace(here, id="apart", network="net:[1]", pid=os.getpid()),
    }
    paths = {name: put(card) for name, card in told.items()}
    assert [card.id for card in cards()] == ["contained"]
    assert {name for name, path in paths.items() if path.exists()} == told.keys() - {"rebooted"}


def test_cards_that_others_could_have_written_are_not_believed(tmp_path: Path) -> None:
    folder = cards_folder()
    good = put(Card("good", "words", "127.0.0.1", 1, new_key()))
    opened = put(Card("opened", "words", "127.0.0.1", 1, new_key()))
    opened.chmod(0o644)
    os.mkfifo(folder / "pipe.json")
    away = tmp_path / "away.json"
    good.rename(away)
    (folder / "link.json").symlink_to(away)
    assert cards() == []
    away.rename(good)
    assert [card.id for card in cards()] == ["good"]
    folder.chmod(0o755)
    with pytest.raises(InvalidInput, match="not a folder that is yours alone"):
        cards()
    with pytest.raises(InvalidInput, match="not a folder that is yours alone"):
        put(Card("late", "words", "127.0.0.1", 1, new_key()))
    for word in ("", " "):
        with pytest.raises(InvalidInput, match="the job's name is empty"):
            find(word)


def test_answers_of_another_version_are_told_in_a_line() -> None:
    key, listener = new_key(), listen("127.0.0.1")

    def serve(_: Claim, line: Line) -> None:
        line.receive({WORDS: 1 << 20}, PATIENCE_S)
        line.send(WORDS, encode({"answer": {"id": "x", "workers": []}}))

    door = Door(listener, lambda _: bytes.fromhex(key), serve, 4)
    try:
        put(Card("other", "words", "127.0.0.1", listener.getsockname()[1], key))
        assert "other" in penstock("jobs")
        said = penstock("show", code=1)
        assert len(said.splitlines()) == 1
        assert "does it run another version of Penstock?" in said
        assert len(penstock("move", "words", "a", "--to", "0", code=1).splitlines()) == 1
    finally:
        door.close(PATIENCE_S)


def test_a_list_of_jobs_does_not_wait_for_each_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for number in range(8):
            put(Card(f"silent {number}", "words", "127.0.0.1", silent.getsockname()[1], new_key()))
        began = time.monotonic()
        assert penstock("jobs").count("does not answer") == 8
        assert time.monotonic() - began < 8 * GENTLE_SECONDS


def test_a_job_runs_without_a_card_where_none_can_be_put_or_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gate").touch()

    def homeless() -> Path:
        msg = "Could not determine home directory."
        raise RuntimeError(msg)

    unlink = Path.unlink

    def stuck(path: Path, *, missing_ok: bool = False) -> None:
        if path.parent.name == "jobs":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr("penstock.deploy.desk.cards.cards_folder", homeless)
        assert rows_of(counts(numbers(tmp_path / "gate")).start(spark, workers=2)) == answer()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", stuck)
        assert rows_of(counts(numbers(tmp_path / "gate")).start(spark, workers=2)) == answer()


def test_calls_that_nobody_foresaw_are_refused_in_words(job: Job) -> None:
    (card,) = cards()
    for number in (10**400, 1e300, 0.5, True, float("nan")):
        with pytest.raises(InvalidInput, match="whole number is wanted"):
            ask(card, "scale", name="count", count=number)
    found = object.__new__(desk.Desk)
    found._job = job
    assert "please report this" in str(found._answer(b"[" * 500_000)["refused"])


def test_a_caller_that_says_nothing_does_not_keep_others_out(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "CALL_SECONDS", 0.5)
    (card,) = cards()
    key = bytes.fromhex(card.key)
    idle = [open_line((card.host, card.port), key, 0, desk.LANE, PATIENCE_S) for _ in range(desk.CALLERS_MAX)]

    def is_answered() -> bool:
        with contextlib.suppress(JobFailed):
            return bool(ask(card, "show")["status"] == "running")
        return False

    try:
        assert wait_until(is_answered, PATIENCE_S)
    finally:
        for line in idle:
            line.close()


def test_the_desk_is_on_loopback_and_stop_starts_one_thread(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    (card,) = cards()
    assert card.host == "127.0.0.1"
    over, calls = threading.Event(), []

    def stop() -> None:
        calls.append(1)
        over.wait(PATIENCE_S)

    monkeypatch.setattr(job, "stop", stop)
    for _ in range(5):
        assert ask(card, "stop")["status"] == "stopping"
    over.set()
    assert len(calls) == 1
