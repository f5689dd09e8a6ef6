"""What trials look at themselves: a line is held only where what it is about has come to pass."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from penstock.deploy.attempt.going import Going
from penstock.deploy.driver.rendezvous import Roll
from penstock.deploy.line import sealed
from penstock.deploy.line.door import Door
from penstock.errors import InternalError, JobFailed
from penstock.run.transport.handshake import OPENING, PROOF_BYTES, WELCOME, Handshake
from penstock.run.transport.socket import listen
from penstock.run.transport.wire import Kind, pack, write_image
from penstock_lab.torture import damage, floods, killed_moves, kills, programs, surroundings
from penstock_lab.torture import trial as trial_room
from penstock_lab.torture.contract import BROKEN, HELD, VOID
from penstock_lab.torture.jobs import Counting, Gates, Schedule, Shape, on_time_at
from penstock_lab.torture.processes import Held
from penstock_lab.torture.trial import Broken, Trial, Unmet, judged

WORDS = pa.record_batch({"w": pa.array(["a", None, "stream of words"])})


def framed(rows: int = 3) -> bytes:
    image = write_image(WORDS).to_pybytes()
    return pack(Kind.DATA, 3, rows, 7, len(image)) + image


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (framed(), "sound"),
        (framed() + pack(Kind.END, 1), "sound"),
        (framed()[:-1], "cut"),
        (b"", "cut"),
        (pack(Kind.END, floods.EDGES), "refused"),  # the head, which the core reads
        (framed(rows=4), "refused"),
        (framed().replace(b"stream", b"str\xffam"), "unsound"),
    ],
)
def test_a_changed_frame_is_read_by_a_workers_own_channel(data: bytes, found: str) -> None:
    assert floods.outcome(data, WORDS.schema) == found


def test_frames_are_counted_by_what_became_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floods, "FRAMES", 300)
    trial = Trial(None, "mutated-frames", 1, tmp_path)
    floods.frames(trial)
    assert trial.row.figures["tried"] == 300
    assert all(trial.row.figures[name] > 0 for name in ("refused", "unsound"))


# -- phases of a move ------------------------------------------------------------------------------------------------


class Mover:
    """Calls by which phases are known."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def ask(self) -> None:
        self.done.append("ask")

    def go(self) -> None:
        self.done.append("go")


@pytest.mark.parametrize(
    ("phase", "order"),
    [
        (killed_moves.Phase("", Mover, "go", is_before=True), ["strike", "go", "ask", "go"]),
        (killed_moves.Phase("", Mover, "go", is_before=False), ["go", "strike", "ask", "go"]),
        (killed_moves.Phase("", Mover, "go", is_before=True, behind=(Mover, "ask")), ["go", "ask", "strike", "go"]),
    ],
)
def test_a_death_comes_once_in_its_phase(phase: killed_moves.Phase, order: list[str]) -> None:
    mover = Mover()
    with killed_moves.striking(phase, lambda: mover.done.append("strike")) as has_struck:
        assert not has_struck.is_set()
        mover.go()
        mover.ask()
        mover.go()
        assert has_struck.is_set()
    mover.go()
    assert mover.done == [*order, "go"]


def test_the_calls_by_which_phases_are_known_are_there() -> None:
    for phase in killed_moves.PHASES.values():
        for where, name in [(phase.where, phase.name), *([] if phase.behind is None else [phase.behind])]:
            assert callable(getattr(where, name))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_move_that_does_not_come_by_its_phase_is_void(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(None, "killed-move-told", 1, tmp_path)
    job = SimpleNamespace(worker_of={"a/0": 0}, workers=[0, 1, 2], attempt=1, recoveries=1, epoch=1)

    def move(task: str, target: int) -> SimpleNamespace:
        job.worker_of = {task: target if is_there else 0}
        job.attempt = 2
        Roll().over_to(Going("", b"", {}))
        return SimpleNamespace(note="moved")

    job.move = move
    trial._job = job  # type: ignore[assignment]
    for name in ("begin", "at_work", "finish", "await_"):
        monkeypatch.setattr(trial, name, lambda *_: None)
    monkeypatch.setattr(trial, "pids", lambda: [0, 0, 0])
    monkeypatch.setattr(killed_moves, "a_move", lambda _: 0.0)
    monkeypatch.setattr(killed_moves.os, "kill", lambda *_: None)  # type: ignore[attr-defined]
    with judged(trial):
        killed_moves.worker("told", trial)
    assert trial.row.verdict == (HELD if is_there else BROKEN), trial.row
    trial = Trial(None, "killed-move-over", 1, tmp_path / "other")
    trial._job = job  # type: ignore[assignment]
    for name in ("begin", "at_work", "finish", "await_"):
        monkeypatch.setattr(trial, name, lambda *_: None)
    monkeypatch.setattr(trial, "pids", lambda: [0, 0, 0])
    with judged(trial):
        killed_moves.worker("over", trial)
    assert (trial.row.verdict, trial.row.error) == (VOID, "the move did not come by Attempt.meet")


# -- strangers -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Somebody who takes one call and answers like this."""
    listener = listen("127.0.0.1")

    def take() -> None:
        caller, _ = listener.accept()
        with caller:
            answer(caller)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        thread.join()
        listener.close()


def test_a_false_key_is_turned_away_by_the_drivers_door() -> None:
    listener = listen("127.0.0.1")
    address = listener.getsockname()
    door = Door(listener, lambda claim: None, lambda claim, line: None, 1)
    try:
        assert floods.to_driver(address) == floods.BY_DRIVER
    finally:
        door.close(5.0)


def test_a_driver_that_proves_itself_to_anybody_is_found_out() -> None:
    def careless(caller: socket.socket) -> None:
        caller.sendall(sealed.greeting())
        floods.heard(caller, sealed.OPENING_BYTES)
        caller.sendall(bytes(32))

    with answering(careless) as address:
        assert floods.to_driver(address) == floods.LET_IN


@pytest.mark.parametrize(("last", "found"), [(b"", floods.BY_WORKER), (WELCOME, floods.LET_IN)])
def test_a_worker_that_welcomes_anybody_is_found_out(last: bytes, found: str) -> None:
    def worker(caller: socket.socket) -> None:
        caller.sendall(Handshake(1, b"key", first=False).opening)
        floods.heard(caller, OPENING.size + PROOF_BYTES)
        caller.sendall(bytes(PROOF_BYTES) + last)

    with answering(worker) as address:
        assert floods.to_worker(address) == found


def test_more_than_any_caller_is_told_is_being_let_in() -> None:
    for told, is_in in ((0, False), (floods.TOLD_BYTES, False), (floods.TOLD_BYTES + 1, True)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(bytes(told))
            assert floods.is_let_in(ours) == is_in


# -- moments that never came -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moved", [0, 3600])
def test_a_clock_that_did_not_move_is_void(moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(None, "clock-1h", 1, tmp_path)
    monkeypatch.setattr(trial, "await_", lambda *_: trial.gates.tell("what-time-told", time.time() + moved))
    with contextlib.nullcontext() if moved else pytest.raises(Unmet, match=r"0 s off, and not \+3600 s"):
        surroundings.require_moved(trial, 3600)


def test_rings_that_are_there_all_the_same_are_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(None, "memory-files", 1, tmp_path)
    for name in ("begin", "at_work", "finish"):
        monkeypatch.setattr(trial, name, lambda: None)
    monkeypatch.setattr(trial, "pids", lambda: [0])
    monkeypatch.setattr(surroundings, "released", lambda pids: None)
    monkeypatch.setattr(surroundings, "held", lambda pid: Held(segments=1))
    with judged(trial):
        surroundings.memory_files(trial)
    assert (trial.row.verdict, trial.row.error[:17]) == (VOID, "1 rings are there")


def test_a_program_that_was_done_before_it_was_killed_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(None, "killed-driver", 1, tmp_path)
    monkeypatch.setattr(trial, "choose", SimpleNamespace(choice=lambda given: given[-1], uniform=lambda *_: 0.0))
    trial.gates.at(programs.PIDS).write_text("[]")
    trial.gates.set(programs.DONE)
    for epoch in (1, 2):
        (trial.kept / "manifests").mkdir(parents=True, exist_ok=True)
        (trial.kept / "manifests" / f"{epoch:08d}.json").touch()
    lasting = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(programs, "started", lambda order: subprocess.Popen(lasting))
    with judged(trial):
        programs.driver(trial)
    assert trial.row.verdict == VOID
    assert "had done its work when it was to be killed" in trial.row.error


# -- full rate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind_s", "is_on_time"), [(0.0, True), (60.0, False)])
def test_the_rate_is_full_when_rows_come_on_their_schedule(behind_s: float, is_on_time: bool, tmp_path: Path) -> None:
    gates, began = Gates(str(tmp_path)), time.time()
    counting = Counting(gates, Schedule(Shape(), began - behind_s))
    counting.on_row(2, SimpleNamespace(n=0), {}, None, lambda row: None)
    assert (on_time_at(gates, 2, began - 1.0) is not None) == is_on_time
    assert on_time_at(gates, 1, began - 1.0) is None
    assert on_time_at(gates, 2, time.time() + 1.0) is None  # told before the kill


def test_changes_are_those_of_the_seed() -> None:
    assert floods.changed(random.Random(1), framed()) == floods.changed(random.Random(1), framed())


# -- rows beside the epochs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (JobFailed("part-1.parquet does not match its checksum"), None),
        (JobFailed("something is damaged"), "part-1.parquet was damaged, and what came is JobFailed"),
        (InternalError("part-1.parquet"), "what came is InternalError"),
        (ValueError("part-1.parquet"), "what came is ValueError"),
    ],
)
def test_an_error_has_to_name_the_damaged_file(error: Exception, why: str | None, tmp_path: Path) -> None:
    trial = Trial(None, "results-damaged", 1, tmp_path)
    with contextlib.nullcontext() if why is None else pytest.raises(Broken, match=why):
        damage.require_named(trial, error, tmp_path / "part-1.parquet")


def test_a_process_that_was_replaced_has_no_part_without_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(None, "stopped-10s", 2, tmp_path)
    monkeypatch.setattr(trial, "pids", lambda: [os.getpid()])
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as other:
        assert not kills.has_part(trial, other.pid)
        monkeypatch.setattr(trial, "pids", lambda: [other.pid])
        assert kills.has_part(trial, other.pid)
        other.kill()
    assert not kills.has_part(trial, other.pid)
    listener = listen("127.0.0.1")
    with listener, socket.create_connection(listener.getsockname()), listener.accept()[0]:
        monkeypatch.setattr(trial, "pids", list)
        assert kills.has_part(trial, os.getpid())


@pytest.mark.parametrize(
    ("error", "recoveries", "why"),
    [
        (JobFailed("no space"), 0, None),
        (None, 1, None),
        (None, 0, "neither an error nor a recovery"),
        (InternalError("a bug"), 0, "a bug"),
    ],
)
def test_a_job_that_says_nothing_in_time_is_broken(
    error: Exception | None, recoveries: int, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_room, "TYPED_SECONDS", 0.01)
    trial = Trial(None, "disk-full", 1, tmp_path)
    trial._job = SimpleNamespace(error=error, recoveries=recoveries, notes=["it went on"])  # type: ignore[assignment]
    with contextlib.nullcontext() if why is None else pytest.raises(Broken, match=why):
        trial.says_why()
