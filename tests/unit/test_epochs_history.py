"""The driver's epochs over a real folder, where the disk or another job is not as it should be."""

from __future__ import annotations

import errno
import queue
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_kit import flip

import penstock as ps
from penstock.checkpoint.contract import ENDED, Manifest, Report
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.publication import ParquetPublication
from penstock.checkpoint.store import Store
from penstock.deploy.attempt.epochs import LOOKS_MAX, CheckpointOrder, DriverEpochs
from penstock.deploy.driver.rendezvous import wait_until
from penstock.errors import CheckpointDamaged, InvalidInput, StaleAttempt
from penstock.flow.schema import parse_schema
from penstock.run.contract import SETTING_ATTEMPT, SETTING_EPOCH, SETTING_STORE, TaskContext
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.operators.sinks.folder import STAGING, Folder
from penstock.run.operators.sinks.staged import EpochFiles

PATIENCE_S = 30.0
SCHEMA = parse_schema("n bigint")


def numbers(task: int, tasks: int) -> Iterator[dict[str, int]]:
    yield {"n": 1}


class Roll:
    """The workers of an attempt: one, which is told what the driver says to all."""

    def __init__(self) -> None:
        self.heard: queue.Queue[str] = queue.Queue()

    def begin_epoch(self, epoch: int) -> None:
        self.heard.put(f"epoch {epoch}")

    def cancel(self) -> None:
        self.heard.put("cancel")

    def hears(self) -> str:
        return self.heard.get(timeout=PATIENCE_S)


class Job:
    """A job with a Parquet sink: its driver's side, and a worker that hands over what it is told to."""

    def __init__(self, root: Path, out: Path, savepoint: str | None = None) -> None:
        self.out = out
        top = ps.Topology("job")
        top.source("n", ps.io.generator(numbers, "n bigint")).sink("out", ps.io.parquet(str(out)))
        self.epochs = DriverEpochs(CheckpointOrder(str(root), 0.02, savepoint=savepoint), top.build())
        self.roll = Roll()

    def open(self) -> Job:
        self.epochs.open()
        return self

    def begin(self) -> None:
        self.roll = Roll()
        self.epochs.begin(self.roll, {"n/0": 0}, 1)  # type: ignore[arg-type] # as a roll

    def hands_over(self, *rows: int, is_last: bool = False) -> str:
        """An epoch with these rows; what the worker hears next."""
        began = self.epochs.last_epoch + 1
        if not is_last:
            assert self.roll.hears() == f"epoch {began}"
        settings = {SETTING_EPOCH: began, SETTING_ATTEMPT: self.epochs.attempt}
        settings |= {SETTING_STORE: self.epochs.store.token()}
        files = EpochFiles(
            Folder(str(self.out / STAGING)), TaskContext("out", 0, 1, settings=settings), SCHEMA, "parquet"
        )
        files.add(pa.record_batch([pa.array(rows, pa.int64())], schema=SCHEMA))
        epoch = ENDED if is_last else began
        found = [TaskSnapshot("n/0", is_last, {}, tuple(each.finish() for each in files.stage(began)))]
        part = self.epochs.store.write_part(self.epochs.attempt, epoch, 0, found)
        self.epochs.kept(0, Report(self.epochs.attempt, epoch, part))
        if is_last:
            self.epochs.end()
            self.epochs.finish()
            return "finished"
        word = self.roll.hears()
        self.roll.heard.put(word)  # it is what begins the next
        return word

    def again(self) -> None:
        self.epochs.end()
        self.epochs.again()
        self.begin()

    def sees(self) -> list[int]:
        paths = list(self.out.glob("*.parquet"))
        return sorted(row for path in paths for row in pq.read_table(path)["n"].to_pylist())


# -- a commit that fails, and is there all the same --------------------------------------------------------------------


def fails_behind(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The file is there, and its folder could not be synced; once."""
    real, left = LocalFiles.create, [1]

    def create(files: LocalFiles, given: str, data: bytes) -> None:
        real(files, given, data)
        if given == path and left:
            left.pop()
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalFiles, "create", create)


@pytest.mark.parametrize("is_another", [False, True])
def test_a_commit_that_fails_and_is_there_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_another: bool
) -> None:
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    job.hands_over(1)
    fails_behind(monkeypatch, "manifests/00000002.json")
    assert job.hands_over(2) == "cancel"
    assert (job.epochs.last_epoch, job.epochs.store.numbers()) == (1, [1, 2])
    if is_another:  # another driver, after this one has died
        job.epochs.end()
        job = Job(tmp_path / "kept", tmp_path / "out").open()
        job.begin()
    else:
        job.again()
    assert (job.epochs.last_epoch, job.epochs.error) == (2, None)
    assert job.hands_over(3) == "epoch 4"
    job.hands_over(4, is_last=True)
    assert job.sees() == [1, 2, 3, 4]
    assert job.epochs.is_over


def test_what_cannot_be_removed_is_told_once_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalFiles.remove

    def remove(files: LocalFiles, path: str) -> None:
        if path.endswith("-00000.part"):
            raise PermissionError(errno.EACCES, "Permission denied")
        real(files, path)

    monkeypatch.setattr(LocalFiles, "remove", remove)
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    for n in range(6):
        assert job.hands_over(n) == f"epoch {n + 2}"
    (note,) = job.epochs.notes
    assert "stays for now" in note
    assert "Permission denied" in note
    job.epochs.end()


# -- several jobs and folders ------------------------------------------------------------------------------------------


def finished(root: Path, out: Path, *rows: int) -> Job:
    job = Job(root, out).open()
    job.begin()
    job.hands_over(*rows, is_last=True)
    return job


def test_a_job_leaves_alone_what_another_with_a_folder_of_the_same_path_has_shown(tmp_path: Path) -> None:
    finished(tmp_path / "kept", tmp_path / "out", 1, 2, 3)
    shutil.rmtree(tmp_path / "kept")  # as on another machine
    job = finished(tmp_path / "kept", tmp_path / "out", 10)
    assert job.sees() == [1, 2, 3, 10]


def test_a_folder_that_was_moved_is_still_that_of_the_same_job(tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    job.hands_over(1)
    job.epochs.store.savepoint("first", job.epochs.store.manifest(1))
    job.hands_over(2)
    job.epochs.end()
    (tmp_path / "kept").rename(tmp_path / "moved")
    moved = Job(tmp_path / "there" / ".." / "moved", tmp_path / "out", "first").open()
    assert moved.sees() == [1]
    assert isinstance(moved.epochs._publications["out"], ParquetPublication)


def test_a_savepoint_that_is_refused_takes_nothing_over(tmp_path: Path) -> None:
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    for n, name in enumerate(("first", "second"), start=1):
        job.hands_over(n)
        job.epochs.store.savepoint(name, job.epochs.store.manifest(n))
    job.epochs.end()
    back = Job(tmp_path / "kept", tmp_path / "out", "first").open()
    back.begin()
    assert back.hands_over(20) == "epoch 3"
    assert back.sees() == [1, 20]
    with pytest.raises(InvalidInput, match="'second', epoch 2, is of a history that the job has left"):
        Job(tmp_path / "kept", tmp_path / "out", "second").open()
    assert back.hands_over(30) == "epoch 4"
    back.epochs.end()
    assert back.sees() == [1, 20, 30]


# -- starts that are refused -------------------------------------------------------------------------------------------


def loses_a_shown_file(job: Job) -> None:
    min(job.out.glob("part-*")).unlink()


def damages_the_savepoint(job: Job) -> None:
    flip(Path(job.epochs.store.root) / job.epochs.store.saved("first").parts[0].path, 40)


@pytest.mark.parametrize(
    ("savepoint", "spoil", "said"),
    [
        (None, loses_a_shown_file, "sink 'out' has shown its rows, and it is gone"),
        ("first", loses_a_shown_file, "sink 'out' has shown its rows, and it is gone"),
        ("first", damages_the_savepoint, "savepoints/first/manifest.json is damaged: .* does not match its checksum"),
    ],
)
def test_a_start_that_is_refused_leaves_the_job_that_runs_there_alone(
    tmp_path: Path, savepoint: str | None, spoil: Callable[[Job], None], said: str
) -> None:
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    job.hands_over(1)
    job.epochs.store.savepoint("first", job.epochs.store.manifest(1))
    job.hands_over(2)
    spoil(job)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(CheckpointDamaged, match=said):
        Job(tmp_path / "kept", tmp_path / "out", savepoint).open()
    assert sorted(path for path in tmp_path.rglob("*")) == before
    assert job.hands_over(3) == "epoch 4"
    job.epochs.end()
    assert job.epochs.error is None


@pytest.mark.parametrize("looks", [1, LOOKS_MAX])
def test_a_job_that_commits_while_another_looks_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """What was about to be read has been removed by then; the first look, or all of them, are of no use."""
    job = Job(tmp_path / "kept", tmp_path / "out").open()
    job.begin()
    job.hands_over(1)
    real, epochs = Store.verify, job.epochs

    def verify(store: Store, manifest: Manifest) -> list[str]:
        if store is not epochs.store and epochs.last_epoch <= 4 * looks:
            for row in range(epochs.last_epoch + 1, epochs.last_epoch + 5):  # three are kept
                job.hands_over(row)
            assert wait_until(lambda: len(store.numbers()) == 3, PATIENCE_S)
        return real(store, manifest)

    monkeypatch.setattr(Store, "verify", verify)
    later = Job(tmp_path / "kept", tmp_path / "out").open()
    assert later.epochs.last_epoch == epochs.last_epoch == 1 + 4 * looks
    assert later.sees() == list(range(1, 2 + 4 * looks))
    epochs.end()


def test_what_is_overwritten_goes_when_nothing_refuses_the_job_any_more(tmp_path: Path) -> None:
    root, cleared = tmp_path / "kept", list[str]()

    def clear() -> None:
        assert Store(str(root)).token()  # behind the claim
        cleared.append("now")

    def cut_short() -> None:
        raise OSError(errno.EIO, "Input/output error")

    other = Store(str(root))
    other.claim("another")
    with pytest.raises(InvalidInput, match="has checkpoints of topology 'another'"):
        Job(root, tmp_path / "out").epochs.open(clear)
    shutil.rmtree(root)
    with pytest.raises(OSError, match="Input/output error"):
        Job(root, tmp_path / "out").epochs.open(cut_short)
    assert cleared == []
    Job(root, tmp_path / "out").epochs.open(clear)  # nobody has begun the job
    assert cleared == ["now"]
    Job(root, tmp_path / "out").epochs.open(clear)
    assert cleared == ["now"]


def test_a_driver_that_was_taken_over_before_it_began_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, cleared = tmp_path / "kept", list[str]()
    first, claim = Job(root, tmp_path / "out"), Store.claim

    def stands_still(store: Store, topology: str) -> int:
        attempt = claim(store, topology)
        monkeypatch.undo()
        Job(root, tmp_path / "out").epochs.open(lambda: cleared.append("second"))
        return attempt

    monkeypatch.setattr(Store, "claim", stands_still)
    with pytest.raises(StaleAttempt, match="attempt 2 has taken over"):
        first.epochs.open(lambda: cleared.append("first"))
    assert cleared == ["second"]
