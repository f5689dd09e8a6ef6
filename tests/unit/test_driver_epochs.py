"""The driver's side of epochs without workers: what errors of the store and of sinks leave, and what users are told."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from publication_kit import SINK, TASKS, seen, staged

import penstock as ps
from penstock.checkpoint import files
from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.publication import ParquetPublication
from penstock.deploy.attempt import epoch_thread, epochs
from penstock.deploy.attempt.epoch_thread import AttemptEpochs
from penstock.deploy.attempt.epochs import CheckpointOrder, DriverEpochs
from penstock.deploy.attempt.recovery import cause_of
from penstock.deploy.driver.rendezvous import Roll, wait_until
from penstock.errors import (
    CheckpointDamaged,
    InternalError,
    InvalidInput,
    JobFailed,
    PenstockError,
    StaleAttempt,
    StoreUnusable,
)
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.operators.sinks.folder import Folder
from penstock.run.operators.sinks.staged import PartName

PATIENCE_S = 30.0
THREAD = "penstock-epochs"
SHOWN = Counter({1: 3 * TASKS})


def numbers(task: int, tasks: int) -> Iterator[dict[str, int]]:
    yield {"epoch": 1, "n": 1}


class Kit:
    """A job with one worker, which hands over what a test says."""

    def __init__(self, root: Path) -> None:
        self.out, self.root, self.roll = root / "out", root / "kept", Roll()
        self.epochs = self.opened()

    def opened(self, savepoint: str | None = None) -> DriverEpochs:
        top = ps.Topology("one")
        top.source("numbers", ps.io.generator(numbers, "epoch bigint, n bigint")).sink(SINK, ps.io.parquet(self.out))
        found = DriverEpochs(CheckpointOrder(str(self.root), interval_s=1000.0, savepoint=savepoint), top.build())
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
        self.epochs.kept(0, Report(attempt, epoch, part, (2,)))
        assert self.epochs.state_bytes == {"numbers/0": 2}

    @property
    def staging(self) -> Folder:
        return Folder(str(self.out)).inner("_staging")

    def savepoint(self, name: str) -> Asked:
        return Asked(lambda: self.epochs.savepoint(name, PATIENCE_S))

    def commits(self, epoch: int) -> None:
        """An epoch, from the wish for it to its end."""
        asked = self.savepoint(f"of-{epoch}")
        self.await_epoch(epoch)
        self.hands_over(epoch, rows_of=epoch)
        assert isinstance(asked.told(), Manifest)
        assert wait_until(lambda: seen(self.out)[epoch] > 0, PATIENCE_S)

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


def test_a_shown_file_that_is_gone_at_the_end_ends_the_job_and_nothing_is_removed(kit: Kit) -> None:
    """The log of what is shown goes at the end: nobody would ever miss the rows."""
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    assert kit.epochs.is_over
    gone = next(kit.out.glob("part-*"))
    copy = kit.root / "copy"
    gone.rename(copy)
    before = sorted(kit.out.rglob("*"))
    said = "sink 'out' has shown its rows, and it is gone; put back what is"
    for epochs_of in (lambda: kit.epochs, kit.opened):  # and when it is started again
        epochs = epochs_of()
        with pytest.raises(CheckpointDamaged, match=said) as told:
            epochs.finish()
        assert told.value.path == str(gone)
    assert set(before) <= set(kit.out.rglob("*"))
    copy.rename(gone)
    again = kit.opened()
    again.finish()
    assert seen(kit.out) == SHOWN
    assert not (kit.out / "_spark_metadata").exists()


def test_the_answer_of_a_job_that_was_over_is_compared_with_what_it_showed(kit: Kit) -> None:
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    kit.epochs.finish()
    (kit.out / "notes.parquet").write_bytes(b"another's")
    again = kit.opened()
    again.require_as_shown()
    part = sorted(kit.out.glob("part-*"))[1]
    data = part.read_bytes()
    part.write_bytes(data[:40] + bytes([data[40] ^ 1]) + data[41:])
    with pytest.raises(CheckpointDamaged, match="does not match its checksum; put it back from a copy") as told:
        again.require_as_shown()
    assert told.value.path == str(part)
    part.unlink()
    again.require_as_shown()  # what its user does with whole files is nobody's business


def test_a_job_that_has_finished_removes_nothing_of_a_later_attempt(kit: Kit) -> None:
    kit.begin()
    kit.hands_over(None, rows_of=1)
    kit.epochs.end()
    later = kit.opened()
    staged(kit.staging, 2, later.attempt, later.store.token())
    with pytest.raises(StaleAttempt, match="attempt 2 has taken over"):
        kit.epochs.finish()
    assert len(kit.staging.names()) == TASKS


@pytest.mark.parametrize("where", ["before it shows", "before the log", "within the log"])
def test_a_driver_that_was_taken_over_shows_nothing_that_was_taken_back(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It stands still with an epoch that is committed and not shown, while another begins at a savepoint of before."""
    kit.begin()
    kit.commits(1)
    publication = kit.epochs._publications[SINK]
    assert isinstance(publication, ParquetPublication)
    place: dict[str, tuple[Any, str]] = {
        "before it shows": (kit.epochs, "_publish"),
        "before the log": (publication._log, "add"),
        "within the log": (publication._log, "_write"),
    }
    whose, name = place[where]
    stands, goes_on, real = threading.Event(), threading.Event(), getattr(whose, name)

    def stopped(*given: object) -> None:
        stands.set()
        assert goes_on.wait(PATIENCE_S)
        real(*given)

    monkeypatch.setattr(whose, name, stopped)
    asked = kit.savepoint("second")
    kit.await_epoch(2)
    kit.hands_over(2, rows_of=2)
    assert isinstance(asked.told(), Manifest)
    assert stands.wait(PATIENCE_S)
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.1)
    is_back = False
    with suppress(StoreUnusable):  # the lock is held by a process that stands still
        is_back = kit.opened("of-1").last_epoch == 1
    goes_on.set()
    kit.epochs.end()
    assert isinstance(kit.epochs.error, StaleAttempt) == is_back == (where == "before it shows")
    assert kit.opened().last_epoch == (1 if is_back else 2)
    assert seen(kit.out) == (SHOWN if is_back else SHOWN + Counter({2: 3 * TASKS}))


def test_what_is_to_be_shown_is_read_while_nobody_has_to_wait(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    is_whole, reads = PartName.is_whole, list[str]()

    def read(part: PartName, folder: Folder) -> bool:
        with LocalFiles(str(kit.root)).alone():
            reads.append(str(part))
        return is_whole(part, folder)

    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.0)
    monkeypatch.setattr(PartName, "is_whole", read)
    with monkeypatch.context() as fails:
        failing_moves(fails, lambda count: count in {1, 2})
        kit.begin()
        kit.hands_over(None, rows_of=1)
        kit.epochs.end()
        assert isinstance(kit.epochs.error, JobFailed)
        kit.epochs._is_finished = False
        with pytest.raises(JobFailed):
            kit.epochs.finish()
    assert kit.opened().is_over
    assert seen(kit.out) == SHOWN
    assert len(reads) == 3 * TASKS  # by the attempt, by its end, and by the next driver: once each time


def test_a_file_that_a_later_driver_has_taken_back_is_no_damage(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.begin()
    kit.commits(1)
    is_whole = PartName.is_whole

    def taken_back(part: PartName, folder: Folder) -> bool:
        monkeypatch.undo()
        kit.opened("of-1")
        return is_whole(part, folder)

    monkeypatch.setattr(PartName, "is_whole", taken_back)
    asked = kit.savepoint("second")
    kit.await_epoch(2)
    kit.hands_over(2, rows_of=2)
    assert isinstance(asked.told(), Manifest)
    kit.epochs.end()
    assert isinstance(kit.epochs.error, StaleAttempt)


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


def test_a_checkpoint_folder_that_was_removed_ends_the_job_at_once(kit: Kit) -> None:
    """A worker fails first, because its part cannot be written; no other attempt will find the folder."""
    kit.begin()
    shutil.rmtree(kit.root)
    kit.epochs.end()
    with pytest.raises(CheckpointDamaged, match="removed while the job ran, and all its epochs with it; put") as told:
        kit.epochs.again()
    assert cause_of(told.value, ()) is None
    assert not kit.root.exists()


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


def test_a_savepoint_is_kept_before_later_epochs_have_it_removed(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks may be slow: by the time that it goes on, other epochs have come and gone."""
    save = kit.epochs.store.savepoint

    def slow(name: str, manifest: Manifest, *attempt: int) -> None:
        if threading.current_thread().name != THREAD:
            for epoch in range(2, 6):
                with kit.epochs._changed:
                    is_there = kit.epochs._at_work.ask()  # type: ignore[union-attr] # it has begun
                kit.await_epoch(epoch)
                kit.hands_over(epoch)
                with kit.epochs._changed:
                    assert kit.epochs._changed.wait_for(is_there, PATIENCE_S)
        save(name, manifest, *attempt)

    monkeypatch.setattr(kit.epochs.store, "savepoint", slow)
    kit.begin()
    kit.commits(1)
    assert kit.epochs.store.saved("of-1").epoch == 1


def test_a_savepoint_that_cannot_be_written_ends_nothing_but_itself(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.begin()
    kit.commits(1)
    again = kit.savepoint("of-1")
    kit.await_epoch(2)
    kit.hands_over(2)
    assert "savepoint 'of-1' is there already" in str(again.told())
    kit.commits(3)
    assert kit.epochs.error is None


def test_a_savepoint_that_does_not_come_to_its_end_is_told(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, save = threading.Event(), kit.epochs.store.savepoint

    def stands(name: str, manifest: Manifest, attempt: int) -> None:
        assert goes_on.wait(PATIENCE_S)
        save(name, manifest, attempt)

    monkeypatch.setattr(kit.epochs.store, "savepoint", stands)
    monkeypatch.setattr(epochs, "STILL_SECONDS", 0.01)
    kit.begin()
    asked = kit.savepoint("late")
    kit.await_epoch(1)
    kit.hands_over(1)
    assert "does not answer, and savepoint 'late' may be there later" in str(asked.told())
    goes_on.set()
    kit.epochs.end()
    assert kit.epochs.store.saved("late").epoch == 1


def test_a_damaged_savepoint_is_told_once(kit: Kit) -> None:
    kit.begin()
    kit.commits(1)
    (kit.root / "savepoints" / "of-1" / "manifest.json").write_bytes(b"{}")
    for epoch in (2, 3, 4):
        kit.commits(epoch)
    kit.epochs.end()
    (note,) = [note for note in kit.epochs.notes if "savepoint 'of-1' is damaged" in note]
    assert "put back from a copy" in note


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
