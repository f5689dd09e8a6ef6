"""The driver's side of epochs without workers: what errors of the store and of sinks leave, and what users are told."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from publication_kit import SINK, TASKS, seen, staged

import penstock as ps
from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator
from penstock.deploy.attempt import epoch_thread
from penstock.deploy.attempt.epoch_thread import AttemptEpochs
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.deploy.driver.rendezvous import Roll, wait_until
from penstock.errors import InternalError, InvalidInput, JobFailed, PenstockError, StaleAttempt, StoreUnusable
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.operators.sinks.folder import Folder

PATIENCE_S = 30.0
SHOWN = Counter({1: 3 * TASKS})


def numbers(task: int, tasks: int) -> Iterator[dict[str, int]]:
    yield {"epoch": 1, "n": 1}


class Kit:
    """A job with one worker, which hands over what a test says."""

    def __init__(self, root: Path) -> None:
        self.out, self.root, self.roll = root / "out", root / "kept", Roll()
        self.epochs = self.opened()

    def opened(self) -> DriverEpochs:
        top = ps.Topology("one")
        top.source("numbers", ps.io.generator(numbers, "epoch bigint, n bigint")).sink(SINK, ps.io.parquet(self.out))
        found = DriverEpochs(CheckpointOrder(str(self.root), interval_s=1000.0), top.build())
        found.open()
        return found

    def begin(self) -> None:
        self.roll = Roll()
        self.epochs.begin(self.roll, {"numbers/0": 0}, 1)

    def hands_over(self, epoch: int | None, rows_of: int | None = None) -> None:
        """Of an epoch, or of its end, the rows of one that it has staged."""
        attempt, state = self.epochs.attempt, TaskSnapshot("numbers/0", epoch is None, {"engine": b"{}"}, ())
        part = self.epochs.store.write_part(attempt, epoch, 0, [state])
        if rows_of is not None:
            part = replace(part, staged=staged(self.staging, rows_of, attempt, self.epochs.store.token()))
        self.epochs.kept(0, Report(attempt, epoch, part))

    @property
    def staging(self) -> Folder:
        return Folder(str(self.out)).inner("_staging")

    def savepoint(self, name: str) -> Asked:
        return Asked(lambda: self.epochs.savepoint(name, PATIENCE_S))

    def await_epoch(self, epoch: int) -> None:
        with self.roll.changed:
            assert self.roll.changed.wait_for(lambda: self.roll.epoch >= epoch, PATIENCE_S)


class Asked(threading.Thread):
    """A user who waits for a savepoint."""

    def __init__(self, ask: Callable[[], Manifest]) -> None:
        super().__init__(daemon=True)
        self._ask = ask
        self.answer: Manifest | InvalidInput | None = None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self._ask()
        except InvalidInput as error:
            self.answer = error

    def told(self) -> Manifest | InvalidInput:
        self.join(PATIENCE_S)
        assert self.answer is not None
        return self.answer


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    kit = Kit(tmp_path)
    yield kit
    kit.epochs.end()


def failing_moves(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> None:
    """The disk of the sink fails at some moves of a file, which are counted from 1."""
    move, count = Folder.move, 0

    def moved(folder: Folder, name: str, into: Folder, as_name: str) -> None:
        nonlocal count
        count += into.path != folder.path  # a file that gets its sum stays where it is
        if into.path != folder.path and fails(count):
            raise OSError(5, "Input/output error")
        move(folder, name, into, as_name)

    monkeypatch.setattr(Folder, "move", moved)


# -- the last epoch ----------------------------------------------------------------------------------------------------


def test_what_is_committed_and_not_shown_stays_until_it_is(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_moves(monkeypatch, lambda count: 2 <= count <= 3)
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    assert kit.epochs.is_over
    assert "sink 'out' cannot show the rows of epoch 1" in str(kit.epochs.error)
    with pytest.raises(JobFailed, match=r"Input/output error. They are kept"):
        kit.epochs.finish()
    assert len(kit.staging.names()) == TASKS - 1
    kit.epochs.finish()
    assert seen(kit.out) == SHOWN
    assert kit.epochs.committed is not None
    assert kit.epochs.committed.shown == {SINK: TASKS}
    assert not (kit.out / "_staging").exists()
    kit.epochs.finish()  # once more changes nothing
    assert seen(kit.out) == SHOWN


def test_a_job_that_has_finished_removes_nothing_of_a_later_attempt(kit: Kit) -> None:
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    later = kit.opened()
    staged(kit.staging, 2, later.attempt, later.store.token())
    with pytest.raises(StaleAttempt, match="attempt 2 has taken over"):
        kit.epochs.finish()
    assert len(kit.staging.names()) == TASKS


class Scripted:
    """A condition at which something happens instead of waiting."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def notify_all(self) -> None: ...

    def wait_for(self, _: Callable[[], bool], __: float) -> None:
        next(self._steps)()


def test_an_attempts_end_is_waited_for_as_long_as_files_move(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []

    def attempt_with(*steps: Callable[[], object]) -> AttemptEpochs:
        scripted: Any = Scripted(*steps)
        coordinator = Coordinator(1, 1, 0, 1, 0)
        made = AttemptEpochs(1, coordinator, Roll(), {}, "one", lambda manifest, then: None, scripted)
        monkeypatch.setattr(made, "_thread", SimpleNamespace(join=lambda: None))
        return made

    def ends() -> None:
        slow.has_ended = True

    slow = attempt_with(*[lambda: moved.append(1)] * 5, ends)
    assert slow.await_end(lambda: len(moved))
    assert not attempt_with(lambda: moved.append(1), lambda: None).await_end(lambda: len(moved))


def test_no_attempt_follows_one_whose_thread_does_not_end(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, keep = threading.Event(), kit.epochs.store.keep

    def stands(count: int) -> None:
        assert goes_on.wait(PATIENCE_S)
        keep(count)

    monkeypatch.setattr(kit.epochs.store, "keep", stands)
    monkeypatch.setattr(epoch_thread, "STILL_SECONDS", 0.01)
    kit.begin()
    kit.hands_over(None, rows_of=1)
    assert wait_until(lambda: kit.epochs.is_over, PATIENCE_S)
    kit.epochs.end()
    for refused in (kit.epochs.again, kit.epochs.finish):
        with pytest.raises(JobFailed, match=r"has not answered for .* attempt 1 cannot be ended") as caught:
            refused()
        assert caught.value is kit.epochs.stuck
    assert kit.epochs.attempt == 1
    goes_on.set()
    at_work = kit.epochs._at_work
    assert at_work is not None
    assert wait_until(lambda: at_work.has_ended, PATIENCE_S)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_what_could_not_be_shown_is_shown_by_the_next_attempt(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_moves(monkeypatch, lambda count: count == 2)
    kit.begin()
    asked = kit.savepoint("first")
    kit.await_epoch(1)
    kit.hands_over(1, rows_of=1)
    asked.told()
    kit.epochs.end()
    assert isinstance(kit.epochs.error, JobFailed)
    kit.epochs.again()
    assert (kit.epochs.attempt, kit.epochs.last_epoch, kit.epochs.error) == (2, 1, None)
    assert seen(kit.out) == SHOWN


def test_an_epoch_whose_commit_seemed_to_fail_is_found_by_the_next_attempt(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = kit.epochs.store.commit

    def unsure(manifest: Manifest) -> None:
        commit(manifest)
        msg = "the folder could not be synced"
        raise StoreUnusable(msg)

    monkeypatch.setattr(kit.epochs.store, "commit", unsure)
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    assert (kit.epochs.last_epoch, str(kit.epochs.error)) == (0, "the folder could not be synced")
    kit.epochs.again()
    assert kit.epochs.is_over
    assert seen(kit.out) == SHOWN


@pytest.mark.parametrize(
    ("error", "kind", "words", "level"),
    [
        (OSError(28, "No space left on device"), JobFailed, "sink 'out' cannot show .* No space left", logging.WARNING),
        (KeyError("out"), InternalError, "the driver's side of epochs failed: KeyError: 'out'", logging.ERROR),
    ],
)
def test_what_ends_epochs_is_told_with_its_cause(
    kit: Kit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    kind: type[PenstockError],
    words: str,
    level: int,
) -> None:
    def fails(_: Manifest) -> None:
        raise error

    monkeypatch.setattr(kit.epochs._publications[SINK], "publish", fails)
    kit.begin()
    kit.hands_over(None)
    kit.epochs.end()
    found = kit.epochs.error
    assert isinstance(found, kind)
    with pytest.raises(kind, match=words):
        raise found
    assert found.__cause__ is error
    (line,) = [record for record in caplog.records if record.name == epoch_thread.__name__]
    assert (line.levelno, bool(line.exc_info)) == (level, True)
    assert kit.roll.ending
    assert kit.roll.given_up is None  # that is about results that found no room
    monkeypatch.undo()


def test_old_epochs_that_cannot_be_removed_now_are_no_failure(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        msg = "permission denied"
        raise StoreUnusable(msg)

    monkeypatch.setattr(kit.epochs.store, "keep", fails)
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    assert (kit.epochs.error, kit.epochs.is_over) == (None, True)


# -- savepoints --------------------------------------------------------------------------------------------------------


def test_a_savepoint_is_an_epoch_that_begins_behind_the_call(kit: Kit) -> None:
    kit.begin()
    first = kit.savepoint("first")
    kit.await_epoch(1)
    second = kit.savepoint("second")
    at_work = kit.epochs._at_work
    assert at_work is not None
    assert wait_until(lambda: at_work._asked == 2, PATIENCE_S)
    kit.hands_over(1)
    found = first.told()
    assert isinstance(found, Manifest)
    assert found.epoch == 1
    kit.await_epoch(2)
    assert second.is_alive()
    kit.hands_over(2)
    found = second.told()
    assert isinstance(found, Manifest)
    assert found.epoch == 2


def test_the_last_epoch_answers_everybody_who_waits_for_a_savepoint(kit: Kit) -> None:
    kit.begin()
    first = kit.savepoint("first")
    kit.await_epoch(1)
    kit.hands_over(None)
    found = first.told()
    assert isinstance(found, Manifest)
    assert found.is_last


def test_a_savepoint_says_why_there_is_none(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="the job is recovering or ends, and no epoch can begin"):
        kit.epochs.savepoint("early")
    kit.begin()
    with pytest.raises(InvalidInput, match="no epoch that began with this call was committed within 0 s"):
        kit.epochs.savepoint("hasty", 0)
    waits = kit.savepoint("late")
    kit.await_epoch(1)
    kit.epochs.end()
    assert "attempt 1 has ended before the epoch was there" in str(waits.told())
    with pytest.raises(InvalidInput, match="the job is recovering"):
        kit.epochs.savepoint("later")
    kit.epochs.again()
    kit.begin()
    waits = kit.savepoint("broken")
    kit.await_epoch(1)

    def fails(_: Manifest) -> None:
        msg = "the disk is gone"
        raise StoreUnusable(msg)

    monkeypatch.setattr(kit.epochs.store, "commit", fails)
    kit.hands_over(1)
    told = waits.told()
    assert "epochs cannot go on, so there is no savepoint 'broken': the disk is gone" in str(told)
    assert isinstance(told, InvalidInput)
    assert isinstance(told.__cause__, StoreUnusable)
