"""Publication: whole epochs, each once, whatever died when. `tests/spark/test_published_rows.py` asks Spark itself."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from publication_kit import (
    ROWS,
    SCHEMA,
    SINK,
    STORE,
    TASKS,
    Died,
    Steps,
    manifest_of,
    seen,
    staged,
    watched,
    watched_folder,
    whole,
)
from pyarrow import fs
from store_kit import TOPOLOGY, Memory, manifest, recorded_calls, snapshot

from penstock.checkpoint import shown_log
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.publication import CollectPublication, ParquetPublication
from penstock.checkpoint.shown_log import Layout, ShownLog
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged, InternalError, InvalidInput, JobFailed
from penstock.run.contract import Staged
from penstock.run.operators.sinks.folder import STAGING, Folder
from penstock.run.operators.sinks.staged import PartName

EPOCHS = 3
FOREIGN = 7  # rows that somebody else has put into the folder


def put_foreign(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"epoch": [0] * FOREIGN, "n": [0] * FOREIGN}), folder / "somebody's.parquet")
    (folder / "_notes").write_text("somebody's")
    (folder / STAGING).mkdir(exist_ok=True)
    (folder / STAGING / "somebody's").write_text("as well")


class Reader:
    """Looks into a folder after every step: it sees whole epochs, and never fewer than it has seen."""

    def __init__(self, folder: Path, others: int) -> None:
        self.folder, self.others, self.most = folder, others, 0
        self.looks = 0

    def look(self) -> None:
        self.looks += 1
        found = seen(self.folder) if self.folder.is_dir() else Counter()
        epochs = max(found, default=0)
        assert found == whole(epochs, self.others), found
        assert epochs >= self.most, f"epoch {self.most} was there and is gone"
        self.most = epochs


def lives_until_done(root: Path, steps: Steps) -> None:
    """One process: takes the job over, shows what is committed, and goes on to its end."""
    with watched(steps):
        store = Store(str(root / "kept"))
        attempt = store.claim(TOPOLOGY)
        committed = store.latest()
        folder = watched_folder(root / "out", steps)
        publication = ParquetPublication(folder, SINK, store.token())
        publication.resume(committed)
        epoch = 0 if committed is None else committed.epoch
        while epoch < EPOCHS:
            epoch += 1
            files = staged(Folder(str(root / "out" / STAGING)), epoch, attempt, store.token())
            part = store.write_part(attempt, epoch, 0, [snapshot("op/0", n=b"1")])
            whole_part = type(part)(part.worker, part.path, part.size, part.checksum, part.tasks, (), files)
            committed = manifest(epoch, [whole_part], attempt, is_last=epoch == EPOCHS)
            store.commit(committed)
            publication.publish(committed)
            store.keep(2)
        publication.finish()


def left_of(root: Path) -> set[str]:
    return {path.name for path in (root / "out").rglob("*") if path.is_file()}


@pytest.mark.parametrize("others", [0, FOREIGN])
def test_whatever_dies_between_two_steps_readers_see_whole_epochs(
    others: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_log, "INTERVAL", 2)  # every second batch of the log repeats all

    def begun(name: str) -> tuple[Path, Reader]:
        root = tmp_path / name
        root.mkdir()
        if others:
            put_foreign(root / "out")
        return root, Reader(root / "out", others)

    root, reader = begun("whole")
    steps = Steps(look=reader.look)
    lives_until_done(root, steps)
    names = left_of(root)
    assert reader.most == EPOCHS
    for dies_at in range(1, steps.count + 1):
        root, reader = begun(str(dies_at))
        with pytest.raises(Died):
            lives_until_done(root, Steps(dies_at, reader.look))
        reader.look()
        lives_until_done(root, Steps(look=reader.look))
        assert seen(root / "out") == whole(EPOCHS, others)
        assert {_without_attempt(name) for name in left_of(root)} == {_without_attempt(name) for name in names}
        assert Store(str(root / "kept")).numbers()[-2:] == [EPOCHS - 1, EPOCHS]


def _without_attempt(name: str) -> str:
    return re.sub(r"-[0-9a-f]{16}-\d+-", "-", name)  # and without the store's token


def published(folder: Path, epochs: int, sink: str = SINK) -> ParquetPublication:
    """A publication that has shown so many epochs."""
    publication = ParquetPublication(str(folder), sink, STORE)
    publication.resume(None)
    for epoch in range(1, epochs + 1):
        publication.publish(of_epoch(folder, epoch))
    return publication


def of_epoch(folder: Path, epoch: int, attempt: int = 1) -> Manifest:
    return manifest_of(epoch, attempt, staged(Folder(str(folder / STAGING)), epoch, attempt, STORE))


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, and whether it is the same one as before."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize("others", [0, FOREIGN])
def test_publishing_again_changes_nothing(tmp_path: Path, others: int) -> None:
    if others:
        put_foreign(tmp_path)
    publication = published(tmp_path, 2)
    third = of_epoch(tmp_path, 3)
    publication.publish(third)
    before = listing(tmp_path)
    publication.publish(third)
    again = ParquetPublication(str(tmp_path), SINK, STORE)
    again.publish(third)
    again.resume(third)
    again.publish(third)
    assert listing(tmp_path) == before
    assert seen(tmp_path) == whole(3, others)


def test_foreign_files_stay_and_what_waits_for_nobody_goes(tmp_path: Path) -> None:
    put_foreign(tmp_path)
    other_store = staged(Folder(str(tmp_path / STAGING)), 9, 1, "0a0b0c0d0e0f0a0b")
    published(tmp_path, 2)
    left = of_epoch(tmp_path, 3).staged  # nobody has committed it
    publication = ParquetPublication(str(tmp_path), SINK, STORE)
    publication.resume(of_epoch(tmp_path, 2))
    assert not any(Path(one.path).exists() for one in left)
    publication.finish()
    assert all(Path(one.path).exists() for one in other_store)
    assert (tmp_path / STAGING / "somebody's").read_text() == "as well"
    assert (tmp_path / "_notes").read_text() == "somebody's"
    assert seen(tmp_path) == whole(2, FOREIGN)


def test_epochs_that_were_lost_are_taken_back(tmp_path: Path) -> None:
    publication = published(tmp_path, 3)
    second = of_epoch(tmp_path, 2)
    publication.resume(second)
    assert seen(tmp_path) == whole(2)
    publication.publish(of_epoch(tmp_path, 3, attempt=2))
    assert seen(tmp_path) == whole(3)
    publication.resume(None)
    assert seen(tmp_path) == whole(0)


def test_rows_that_cannot_be_read_just_now_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publication, second = published(tmp_path, 1), of_epoch(tmp_path, 2)

    def read(part: PartName, folder: Folder) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as refused:
        refused.setattr(PartName, "is_whole", read)
        for ask in (publication.compare, publication.publish):
            with pytest.raises(OSError, match="Stale file handle"):
                ask(second)
    publication.publish(second)
    assert seen(tmp_path) == whole(2)


def test_what_was_compared_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publication, second = published(tmp_path, 1), of_epoch(tmp_path, 2)
    publication.compare(second)
    monkeypatch.delattr(PartName, "is_whole")
    publication.publish(second)
    publication.compare(second)
    assert seen(tmp_path) == whole(2)


def test_rows_of_a_committed_epoch_that_are_gone_end_the_job(tmp_path: Path) -> None:
    publication = published(tmp_path, 1)
    second = of_epoch(tmp_path, 2)
    Path(second.staged[0].path).unlink()
    with pytest.raises(
        CheckpointDamaged, match=r"belongs to a committed epoch and is gone, .* put it back from a copy"
    ):
        publication.publish(second)
    with pytest.raises(JobFailed, match="names x/y, which is no file of sink 'out'"):
        publication.publish(manifest_of(3, 1, (Staged(SINK, "x/y", 1, 1),)))
    assert seen(tmp_path) == whole(1)


@pytest.mark.parametrize("is_crashed", [False, True])
def test_what_was_damaged_while_it_waited_is_not_shown(tmp_path: Path, is_crashed: bool) -> None:
    publication = published(tmp_path, 1)
    second = of_epoch(tmp_path, 2)
    path = Path(second.staged[1].path)
    path.write_bytes(path.read_bytes()[:-7])
    show = ParquetPublication(str(tmp_path), SINK, STORE).resume if is_crashed else publication.publish
    with pytest.raises(CheckpointDamaged, match="does not match its checksum; put it back from a copy") as caught:
        show(second)
    assert caught.value.path == str(path)
    assert seen(tmp_path) == whole(1)
    assert all(Path(one.path).exists() for one in second.staged)


def test_two_files_of_one_name_end_the_job_and_none_is_lost(tmp_path: Path) -> None:
    publication = published(tmp_path, 1)
    both = (*of_epoch(tmp_path, 2).staged, *of_epoch(tmp_path, 3).staged)
    with pytest.raises(InternalError, match=r"epoch 2 has two files of one task, part-00000-.*-00000003-.*parquet; "):
        publication.publish(manifest_of(2, 1, both))
    assert all(Path(one.path).exists() for one in both)
    assert seen(tmp_path) == whole(1)


def test_files_of_another_store_are_not_shown(tmp_path: Path) -> None:
    publication = published(tmp_path, 1)
    other = staged(Folder(str(tmp_path / STAGING)), 2, 1, "0a0b0c0d0e0f0a0b")
    with pytest.raises(JobFailed, match="which is no file of sink 'out'"):
        publication.publish(manifest_of(2, 1, other))


def test_rows_that_were_committed_elsewhere_are_told_with_both_folders(tmp_path: Path) -> None:
    was, here = tmp_path / "was", tmp_path / "here"
    published(was, 1)
    last = of_epoch(was, 2)
    moved = ParquetPublication(str(here), SINK, STORE)
    with pytest.raises(JobFailed) as caught:
        moved.resume(last)
    said = f"sink 'out' writes into {here}, and the rows that its job has committed were written into {was}: part-"
    assert str(caught.value).startswith(said)
    assert f"copy all of {was} but its _spark_metadata to {here}, or" in str(caught.value)
    assert not here.exists()  # nothing was begun there that would hide the copy
    shutil.copytree(was, here, ignore=shutil.ignore_patterns("_spark_metadata"))
    moved.resume(last)
    assert seen(here) == whole(2)
    moved.finish()
    assert seen(here) == whole(2)


def test_the_collected_rows_of_a_copied_store_are_taken_back_like_its_own(tmp_path: Path) -> None:
    """Parts are named after the store whose job has written them, and a copy lies elsewhere."""
    first, second = tmp_path / "first", tmp_path / "second"
    publication = CollectPublication(str(first / "results"), SINK, str(first / "staged"), STORE)
    publication.resume(None)
    epochs = [manifest_of(epoch, 1, staged(Folder(str(first / "staged")), epoch, 1, STORE)) for epoch in (1, 2, 3)]
    for epoch in epochs:
        publication.publish(epoch)
    shutil.copytree(first, second)
    copied = CollectPublication(str(second / "results"), SINK, str(second / "staged"), STORE)
    copied.resume(epochs[1])
    assert Counter(copied.table(SCHEMA)["epoch"].to_pylist()) == whole(2)
    assert Counter(publication.table(SCHEMA)["epoch"].to_pylist()) == whole(3)


def test_an_epoch_is_not_shown_half_where_another_job_has_ended_in_the_folder(tmp_path: Path) -> None:
    published(tmp_path, 1)
    steps = Steps()
    publication = ParquetPublication(watched_folder(tmp_path, steps), SINK, STORE)
    publication.resume(of_epoch(tmp_path, 1))
    second = of_epoch(tmp_path, 2)
    ShownLog(Folder(str(tmp_path))).remove()
    steps.look = Reader(tmp_path, 0).look
    with watched(steps):
        publication.publish(second)
    assert seen(tmp_path) == whole(2)


def test_rows_last_before_the_log_names_them(tmp_path: Path) -> None:
    publication = published(tmp_path, 1)
    second = of_epoch(tmp_path, 2)
    with recorded_calls(tmp_path) as calls:
        publication.publish(second)
    named = calls.index(("link", "_spark_metadata/2"))
    assert [call for call in calls[:named] if "unfinished" not in call] == [("fsync", "."), ("fsync", STAGING)]
    assert calls[named - 1] == ("fsync", "unfinished")


def test_what_another_has_shown_lasts_before_the_job_goes_on(tmp_path: Path) -> None:
    """It may have died between the name of its batch and the sync, and the epoch before the last is not shown again."""
    published(tmp_path, 1)
    with recorded_calls(tmp_path) as calls:
        ParquetPublication(str(tmp_path), SINK, STORE).resume(of_epoch(tmp_path, 1))
    assert ("fsync", "_spark_metadata") in calls


@pytest.mark.parametrize("depth", [1, 3])
def test_every_folder_that_is_made_lasts(tmp_path: Path, depth: int) -> None:
    deep = tmp_path.joinpath(*("abc"[:depth]))
    with recorded_calls(tmp_path) as calls:
        Folder(str(deep)).make()
    synced = {(tmp_path / path).resolve() for name, path in calls if name == "fsync"}
    assert synced == {deep, *deep.parents} - {*tmp_path.parents}


def test_a_full_disk_leaves_no_half_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publication = published(tmp_path, 1)
    second = of_epoch(tmp_path, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            publication.publish(second)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert seen(tmp_path) == whole(1)
    assert [name for name in left_of(tmp_path.parent / tmp_path.name) if name.endswith(".writing")] == []
    publication.publish(second)
    assert seen(tmp_path) == whole(2)


# -- collected rows ----------------------------------------------------------------------------------------------------


class _Lost:
    """An object store that takes a file and whose answer is lost."""

    type_name = "s3"

    def __init__(self) -> None:
        self._real = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[pa.NativeFile]:
        with self._real.open_output_stream(path) as stream:
            yield stream
        raise OSError(errno.ETIMEDOUT, "no answer")


def test_a_put_whose_answer_is_lost_is_not_taken_back(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), _Lost())
    with pytest.raises(OSError, match="no answer"):
        folder.write("0", b"v1")
    assert (tmp_path / "0").read_bytes() == b"v1"  # readers may have gone by it


def test_a_link_that_fails_does_not_become_a_rename_over_what_another_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(hidden: str, path: str) -> None:
        Path(path).write_bytes(b"another's")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="Input/output error"):
        Folder(str(tmp_path)).write("1", b"mine")
    assert (tmp_path / "1").read_bytes() == b"another's"


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_collected_rows_are_those_of_committed_epochs_in_the_order_of_each_task(tmp_path: Path, kind: str) -> None:
    waiting = Folder(str(tmp_path / "staged"))

    def of(epoch: int, attempt: int = 1) -> Manifest:
        return manifest_of(epoch, attempt, staged(waiting, epoch, attempt, STORE, kind))

    publication = CollectPublication(str(tmp_path / "results"), SINK, waiting.given, STORE)
    publication.resume(None)
    assert publication.table(SCHEMA).num_rows == 0
    for epoch in (1, 2, 10):
        publication.publish(of(epoch))
    publication.resume(of(2))  # the tenth was lost
    third = of(3, attempt=2)
    for _ in range(2):
        publication.publish(third)
    of(4)  # never committed
    publication.finish()
    rows = publication.table(SCHEMA)
    epochs = [epoch for _ in range(TASKS) for epoch in (1, 2, 3) for _ in range(ROWS)]
    assert (rows["epoch"].to_pylist(), rows.schema) == (epochs, SCHEMA)
    assert publication.is_parquet == (kind == "parquet")
    assert publication.size == sum(Path(path).stat().st_size for path in publication.files())
    assert not Path(waiting.given).exists()


# -- the log of what is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "latest", "read"),
    [
        ([], -1, []),
        (["_begun_by_penstock", ".0.x.writing", "x", "-1", "1x"], -1, []),
        (["0", "1"], 1, ["0", "1"]),
        ([*map(str, range(9)), "9.compact"], 9, ["9.compact"]),
        (["9.compact", "10", "11"], 11, ["9.compact", "10", "11"]),
        (["3", "9.compact", "19.compact", "20"], 20, ["19.compact", "20"]),
        (["3.compact", "7.compact", "8"], 8, ["7.compact", "8"]),  # of a query with an interval of four
        (["29.compact"], 29, ["29.compact"]),
    ],
)
def test_what_is_read_of_a_log(names: list[str], latest: int, read: list[str]) -> None:
    layout = Layout.of(names)
    assert (layout.latest, layout.read()) == (latest, read)


class Counted(Folder):
    """A folder in memory; counts the lines that are written into it, and knows how it is read."""

    def __init__(self) -> None:
        super().__init__("log", fs.PyFileSystem(Memory()))
        self.lines, self.longest = 0, 0
        self.found: dict[str, bytes] = {}

    def inner(self, name: str) -> Folder:
        return self

    def names(self) -> list[str]:
        return list(self.found)

    def write(self, name: str, data: bytes) -> None:
        if name in self.found:
            raise FileExistsError(name)
        count = data.count(b"\n")
        self.lines, self.longest = self.lines + count, max(self.longest, count)
        self.found[name] = data

    def read(self, name: str) -> bytes:
        return self.found[name]

    def remove(self, name: str) -> None:
        del self.found[name]

    def shown(self) -> list[str]:
        """What the last batch that repeats all says, and what those behind it say."""
        last = max((int(name.removesuffix(".compact")) for name in self.found if "." in name), default=-1)
        behind = sorted(int(name) for name in self.found if "." not in name and int(name) > last)
        read = [*([f"{last}.compact"] if last >= 0 else []), *map(str, behind)]
        assert len(behind) < shown_log.INTERVAL_MAX
        assert read == Layout.of(self.found).read()  # which derives the interval as Spark does
        return [line for name in read for line in self.found[name].decode().split("\n")[1:] if line]


def test_the_work_of_the_log_grows_with_what_is_shown() -> None:
    folder = Counted()
    log, said = ShownLog(folder), ['{"path":"file:///x/first"}']
    folder.write("0", f"v1\n{said[0]}".encode())
    batches = 3_000
    for n in range(1, batches):
        line = f'{{"path":"file:///x/{n}"}}'
        log.add([line])
        said.append(line)
        if n < 1_000 or n % 97 == 0:
            assert folder.shown() == said
    wholes = sum("." in name for name in folder.found)
    assert (wholes, len(folder.found) < 400) == (2, True)  # the others have been removed
    assert folder.lines < 18 * batches  # a tenth at a time it would be 150 for each
    log.replace(said[:5])
    assert folder.shown() == said[:5]
    log.add(said[5:7])
    assert folder.shown() == said[:7]


@pytest.mark.parametrize("text", [b"", b"v2\n", b"\xff\n"])
def test_a_log_that_cannot_be_read_is_told(tmp_path: Path, text: bytes) -> None:
    publication = published(tmp_path, 1)
    (tmp_path / "_spark_metadata" / "1").write_bytes(text)
    with pytest.raises(
        InvalidInput, match=r"_spark_metadata/1 cannot be read: .*: restore them, or write into another"
    ):
        publication.resume(None)


def test_a_log_that_a_streaming_query_has_begun_stays_its_own(tmp_path: Path) -> None:
    put_foreign(tmp_path)
    log = ShownLog(Folder(str(tmp_path)))
    log.begin([log.entry(info) for info in Folder(str(tmp_path)).visible()])
    (tmp_path / "_spark_metadata" / shown_log.BEGUN).unlink()
    publication = published(tmp_path, 2)
    publication.finish()
    assert seen(tmp_path) == whole(2, FOREIGN)
    assert "a streaming query has begun it" in publication.notes[0]


def test_a_shown_file_that_is_gone_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    publication = ParquetPublication(str(out), SINK, STORE)
    publication.resume(None)
    shown = [manifest_of(e, 1, staged(Folder(str(out / STAGING)), e, 1, STORE)) for e in (1, 2, 3)]
    for epoch in shown:
        publication.publish(epoch)
    publication.require_shown(shown[:2])
    first, second, *_ = sorted(path.name for path in out.glob("part-*"))
    put_foreign(out)
    (out / first).rename(tmp_path / first)
    said = rf"{re.escape(str(out / first))} is damaged: sink 'out' has shown its rows, and it is gone; put back what is"
    with pytest.raises(CheckpointDamaged, match=said):
        publication.require_shown([])  # by the log
    (out / second).rename(tmp_path / second)
    with pytest.raises(CheckpointDamaged, match="it is gone, and 1 more of its files; "):
        publication.require_shown(shown[:2])
    shutil.rmtree(out / "_spark_metadata")
    publication.require_shown([])  # as behind another job that has ended in this folder
    with pytest.raises(CheckpointDamaged, match="it is gone"):
        publication.require_shown(shown[:2])  # by the epochs that are kept
