"""The store: attempts that take over, epochs that count or do not, and what stays when others go."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from store_kit import (
    HOW,
    TOPOLOGY,
    Bucket,
    Memory,
    committed,
    flip,
    manifest,
    recorded_calls,
    refusing,
    snapshot,
    state_of,
)

from penstock.checkpoint import files, manifests, store
from penstock.checkpoint.contract import Manifest, Part
from penstock.checkpoint.store import Store
from penstock.errors import CheckpointDamaged, InvalidInput, StaleAttempt, StoreUnusable
from penstock.run.contract import Staged
from penstock.run.engine.epochs import TaskSnapshot

PATIENCE_S = 30.0


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """Three epochs of the first attempt."""
    found = Store(str(tmp_path / "kept"))
    assert found.claim(TOPOLOGY) == 1
    for epoch in (1, 2, 3):
        committed(found, 1, epoch)
    return found


def at(found: Store, path: str) -> Path:
    return Path(found.root) / path


def paths(found: Store) -> set[str]:
    root = Path(found.root)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


# -- epochs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_what_is_committed_is_there_for_the_next_attempt(kind: str, tmp_path: Path) -> None:
    filesystem = None if kind == "local" else fs.PyFileSystem(Memory())
    root = str(tmp_path) if kind == "local" else "root"
    first = Store(root, filesystem)
    assert first.topology() is None
    assert first.latest() is None
    attempt = first.claim(TOPOLOGY)
    assert first.latest() is None  # claimed, and nothing committed
    wholes = [committed(first, attempt, epoch) for epoch in (1, 2)]
    second = Store(root, filesystem)
    assert second.topology() == TOPOLOGY
    assert second.claim(TOPOLOGY) == attempt + 1
    assert second.latest() == wholes[-1]
    assert (second.epochs(), second.numbers(), second.notes) == (wholes, [1, 2], ())
    for worker, part in enumerate(wholes[-1].parts):
        assert second.read_part(part) == [snapshot(f"op/{worker}", n=state_of(2, worker))]


def test_a_part_is_told_with_everything_that_a_manifest_says_of_it(tmp_path: Path) -> None:
    found = Store(str(tmp_path))
    staged = Staged("out", "/x/part", 3, 99)
    given_ = [TaskSnapshot("a/0", True, {}, (staged,)), snapshot("b/0", n=b"1")]
    part = found.write_part(found.claim(TOPOLOGY), None, 7, given_)
    assert (part.worker, part.path, part.staged) == (7, "parts/00000001/ended-00007.part", (staged,))
    assert (part.tasks, part.finished) == (("a/0", "b/0"), ("a/0",))
    assert part.size == at(found, part.path).stat().st_size
    assert [replace(given_[0], staged=()), given_[1]] == found.read_part(part)  # what was staged is in the manifest


def test_parts_are_on_the_disk_before_they_are_told_of(tmp_path: Path) -> None:
    found = Store(str(tmp_path))
    attempt = found.claim(TOPOLOGY)
    with recorded_calls(tmp_path) as calls:
        part = found.write_part(attempt, 1, 0, [snapshot("op/0", n=b"1")])
    assert calls[-2:] == [("fsync", part.path), ("fsync", "parts/00000001")]


def test_an_epoch_that_is_sound_is_not_committed_again(kept: Store) -> None:
    before = at(kept, "manifests/00000003.json").read_bytes()
    with pytest.raises(StaleAttempt, match=r"00000003.json is there already; attempt 1 cannot commit it again"):
        kept.commit(replace(kept.manifest(3), written_us=77))
    assert at(kept, "manifests/00000003.json").read_bytes() == before


def test_what_nobody_could_read_is_not_committed(kept: Store) -> None:
    with pytest.raises(InvalidInput, match="epoch 4 cannot be committed: it has two parts of one worker"):
        kept.commit(manifest(4, [*kept.manifest(3).parts, *kept.manifest(2).parts]))
    assert kept.numbers() == [1, 2, 3]


# -- damage ------------------------------------------------------------------------------------------------------------


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def turn_into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def turn_into_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: list[Callable[[Path], None]] = [
    cut,
    grow,
    turn_into_a_folder,
    turn_into_a_pipe,
    Path.unlink,
    lambda path: flip(path, 40),
    lambda path: os.truncate(path, 0),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("what", ["manifest", "part"])
def test_the_epoch_before_a_damaged_one_is_used_and_told(
    kept: Store, damage: Callable[[Path], None], what: str
) -> None:
    before, last = kept.manifest(2), kept.manifest(3)
    path = "manifests/00000003.json" if what == "manifest" else last.parts[1].path
    damage(at(kept, path))
    assert kept.latest() == before
    if what == "manifest" and damage is Path.unlink:  # then it was never committed, as far as anybody can tell
        assert kept.notes == ()
        return
    (note,) = kept.notes
    assert note.startswith(f"epoch 3 is damaged: {at(kept, path)} ")
    assert note.endswith("; epoch 2 is used")
    if what == "part":
        assert kept.verify(last) == [note.removeprefix("epoch 3 is damaged: ").removesuffix("; epoch 2 is used")]
        with pytest.raises(CheckpointDamaged) as damaged:
            kept.read_part(last.parts[1])
        assert damaged.value.path == str(at(kept, path))


def test_where_every_epoch_is_damaged_a_person_decides(kept: Store) -> None:
    for epoch in (1, 2, 3):
        cut(at(kept, kept.manifest(epoch).parts[0].path))
    with pytest.raises(CheckpointDamaged) as damaged:
        kept.latest()
    assert damaged.value.path == kept.root
    assert damaged.value.fault.startswith("none of its 3 epochs is sound; epoch 3 is damaged: ")
    assert "give an empty folder to begin anew" in damaged.value.advice


def test_a_manifest_under_the_name_of_another_epoch_is_damage(kept: Store) -> None:
    shutil.copy(at(kept, "manifests/00000002.json"), at(kept, "manifests/00000003.json"))
    assert kept.latest() == kept.manifest(2)
    assert "it is the manifest of epoch 2, under another name" in kept.notes[0]


def test_a_damaged_epoch_is_committed_anew_in_its_place(kept: Store) -> None:
    cut(at(kept, kept.manifest(3).parts[0].path))
    again = Store(kept.root)
    attempt = again.claim(TOPOLOGY)
    assert again.latest() == kept.manifest(2)
    anew = committed(again, attempt, 3)
    assert again.latest() == anew
    assert (again.notes, anew.attempt) == ((), 2)


def damaged_behind_the_first(kept: Store) -> Store:
    """Another attempt goes on from epoch 1, because 2 and 3 cannot be read just then."""
    for epoch in (2, 3):
        flip(at(kept, kept.manifest(epoch).parts[0].path), 40)
    again = Store(kept.root)
    attempt = again.claim(TOPOLOGY)
    assert again.latest() == kept.manifest(1)
    again.begin(attempt, kept.manifest(1))
    committed(again, attempt, 2)
    return again


def test_an_epoch_before_which_an_attempt_began_anew_does_not_count_again(kept: Store) -> None:
    lost = kept.manifest(3)
    again = damaged_behind_the_first(kept)
    flip(at(kept, lost.parts[0].path), 40)  # the disk gives back what was written
    assert again.verify(lost) == []
    found = again.latest()
    assert found is not None
    assert (found.epoch, found.attempt, again.notes) == (2, 2, ())
    assert again.numbers() == [1, 2]
    committed(again, 2, 3)  # nobody stands in its way


def test_a_part_that_is_away_for_a_moment_locks_nobody_out(kept: Store) -> None:
    part = at(kept, kept.manifest(3).parts[0].path)
    part.rename(part.with_suffix(".away"))
    again = Store(kept.root)
    attempt = again.claim(TOPOLOGY)
    last = again.latest()
    assert last is not None
    again.begin(attempt, last)
    part.with_suffix(".away").rename(part)
    found = again.latest()
    assert found is not None
    assert found.epoch == 2
    committed(again, attempt, 3)
    assert [each.attempt for each in Store(kept.root).epochs()] == [1, 1, 2]


def test_what_an_earlier_attempt_puts_there_late_makes_room_for_the_current_one(kept: Store) -> None:
    """On object stores nothing keeps it from that."""
    at(kept, "manifests/00000004.json").write_bytes(
        manifests.encode(manifest(4, [kept.write_part(1, 4, 0, [snapshot("op/0")])]))
    )
    attempt = kept.claim(TOPOLOGY)
    assert committed(kept, attempt, 4) == kept.manifest(4)
    with pytest.raises(StaleAttempt, match="is there already"):
        kept.commit(replace(kept.manifest(4), written_us=77))


def test_an_epoch_that_was_given_up_does_not_come_back_with_the_power(kept: Store) -> None:
    second = kept.manifest(2)
    attempt = kept.claim(TOPOLOGY)
    with recorded_calls(Path(kept.root)) as calls:
        kept.begin(attempt, second)
    assert calls.index(("unlink", "manifests/00000003.json")) < len(calls) - 1
    assert calls[-1] == ("fsync", "manifests")


@pytest.mark.parametrize("what", ["manifest", "part"])
def test_a_fault_that_may_pass_is_no_damage(kept: Store, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = "manifests/00000003.json" if what == "manifest" else kept.manifest(3).parts[0].path, files.os.open

    def opened(given: str, *flags: int) -> int:
        if given.endswith(path):
            raise OSError(errno.EIO, "Input/output error")
        return real(given, *flags)

    with monkeypatch.context() as failing:
        failing.setattr(files.os, "open", opened)
        with pytest.raises(StoreUnusable, match="Input/output error; try again, and if it stays so remove that file"):
            kept.latest()
    found = kept.latest()
    assert found is not None
    assert found.epoch == 3


def test_no_damaged_epoch_is_kept_in_place_of_a_sound_one(kept: Store) -> None:
    again = damaged_behind_the_first(kept)
    again.keep(1)
    found = again.latest()
    assert found is not None
    assert (found.epoch, found.attempt) == (2, 2)


# -- attempts ----------------------------------------------------------------------------------------------------------


def test_an_attempt_that_was_taken_over_commits_nothing_more(kept: Store) -> None:
    late = kept.write_part(1, 4, 0, [snapshot("op/0")])
    assert Store(kept.root).claim(TOPOLOGY) == 2
    for refused in (lambda: kept.require_current(1), lambda: kept.commit(manifest(4, [late]))):
        with pytest.raises(StaleAttempt, match=r"attempt 2 has taken over the checkpoints in .*; attempt 1 ends here"):
            refused()
    assert kept.numbers() == [1, 2, 3]


@pytest.mark.parametrize("filesystem", [None, fs.LocalFileSystem()])
def test_a_job_whose_folder_was_removed_is_told_so(kept: Store, filesystem: fs.FileSystem | None) -> None:
    shutil.rmtree(kept.root)
    same = Store(kept.root, filesystem)
    with pytest.raises(CheckpointDamaged, match="does not know attempt 1: the folder was removed or replaced"):
        same.require_current(1)
    with pytest.raises(StoreUnusable, match="does not show the claim of attempt 1 here"):
        same.write_part(1, 4, 0, [])


def test_parts_without_a_claim_are_not_taken_for_a_new_attempt_s(kept: Store) -> None:
    kept.write_part(1, 4, 0, [])
    shutil.copytree(at(kept, "parts/00000001"), at(kept, "parts/00000009"))
    assert kept.claim(TOPOLOGY) == 10


def test_old_claims_go_and_the_number_goes_on(tmp_path: Path) -> None:
    found = Store(str(tmp_path))
    claims = [found.claim(TOPOLOGY) for _ in range(store.ATTEMPTS_KEPT + 5)]
    assert claims == [*range(1, store.ATTEMPTS_KEPT + 6)]
    assert len(list((tmp_path / "attempts").iterdir())) == store.ATTEMPTS_KEPT


CLAIMS = """
import sys
from penstock.checkpoint.store import Store
store = Store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(*(store.claim("counts") for _ in range(8)))
"""


def test_claims_of_several_processes_side_by_side_are_all_told_apart(tmp_path: Path) -> None:
    begin = [sys.executable, "-c", CLAIMS, str(tmp_path)]
    running = [subprocess.Popen(begin, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        claims = [[int(word) for word in process.communicate(timeout=PATIENCE_S)[0].split()] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait(PATIENCE_S)
    assert sorted(number for claim in claims for number in claim) == [*range(1, 25)]
    assert all(claim == sorted(claim) for claim in claims)


def test_another_topology_s_folder_is_refused(kept: Store) -> None:
    with pytest.raises(InvalidInput, match="has checkpoints of topology 'counts', not of 'other'; give each job"):
        kept.claim("other")
    assert kept.claim(TOPOLOGY) == 2  # the other one has claimed nothing


@pytest.mark.parametrize("name", ["", "x" * 5_000])
def test_a_name_that_no_manifest_takes_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="not 1 to 4,096"):
        Store(str(tmp_path)).claim(name)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_word_on_whose_the_folder_is_is_damage(kept: Store) -> None:
    flip(at(kept, "job.json"), 20)
    said = r"job.json is damaged: its .* bytes do not match their checksum; put it back from a copy of the folder"
    with pytest.raises(CheckpointDamaged, match=said):
        kept.claim(TOPOLOGY)
    assert kept.latest() == kept.manifest(3)


def test_a_commit_waits_for_a_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Store(str(tmp_path)), Store(str(tmp_path))
    attempt = first.claim(TOPOLOGY)
    committed(first, attempt, 1)
    part = first.write_part(attempt, 2, 0, [snapshot("op/0")])
    waits, claiming, ended = threading.Event(), threading.Event(), []
    real_flock, real_create = fcntl.flock, files.LocalFiles.create

    def flock(lock: int, kind: int) -> None:
        try:
            real_flock(lock, kind)
        except BlockingIOError:
            waits.set()
            raise

    def create(self: files.LocalFiles, path: str, data: bytes) -> None:
        if path == "attempts/00000002.json":
            claiming.set()
            assert waits.wait(PATIENCE_S), "the commit did not wait"
            assert not (tmp_path / "manifests" / "00000002.json").exists()
        real_create(self, path, data)

    def commit() -> None:
        assert claiming.wait(PATIENCE_S)
        try:
            first.commit(manifest(2, [part], attempt))
        except StaleAttempt as stale:
            ended.append(str(stale))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    monkeypatch.setattr(files.LocalFiles, "create", create)
    thread = threading.Thread(target=commit)
    thread.start()
    assert second.claim(TOPOLOGY) == 2
    thread.join(PATIENCE_S)
    assert ended == [f"attempt 2 has taken over the checkpoints in {tmp_path}; attempt 1 ends here"]
    assert second.numbers() == [1]
    assert store.JOB in {path.name for path in tmp_path.iterdir()}


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_the_newest_are_kept_and_nothing_that_they_or_savepoints_name_goes(kept: Store) -> None:
    kept.savepoint("before", kept.manifest(1))
    kept.write_part(1, 4, 0, [snapshot("op/0")])  # of the epoch under way
    ended = kept.write_part(1, None, 1, [snapshot("op/1", finished=True)])  # may be named by an epoch to come
    at(kept, "parts/notes.txt").write_text("somebody else's")
    at(kept, "parts/00000001/notes.txt").write_text("somebody else's")
    at(kept, "manifests/00000009.json.0a0b0c0d.writing").write_text("of a driver that was killed")
    before = paths(kept)
    kept.keep(1)
    of_2 = {f"parts/00000001/00000002-{worker:05d}.part" for worker in range(2)}
    unfinished = "manifests/00000009.json.0a0b0c0d.writing"
    assert before - paths(kept) == {"manifests/00000001.json", "manifests/00000002.json", unfinished, *of_2}
    assert kept.verify(kept.saved("before")) == kept.verify(kept.manifest(3)) == []
    assert at(kept, ended.path).exists()


def test_folders_of_earlier_attempts_go_with_their_last_part(kept: Store) -> None:
    late = kept.write_part(1, 4, 0, [snapshot("op/0")])
    again = Store(kept.root)
    attempt = again.claim(TOPOLOGY)
    again.keep(2)
    assert not at(kept, late.path).exists()  # nobody can commit it any more
    assert at(kept, "parts/00000001").exists()
    for epoch in (4, 5):
        committed(again, attempt, epoch)
    again.keep(2)
    assert not at(kept, "parts/00000001").exists()
    assert again.numbers() == [4, 5]


def test_a_file_that_cannot_be_removed_keeps_no_other_file(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, real = kept.manifest(1).parts[0].path, files.LocalFiles.remove

    def remove(self: files.LocalFiles, path: str) -> None:
        if path == stuck:
            raise PermissionError(errno.EACCES, "Permission denied")
        real(self, path)

    monkeypatch.setattr(files.LocalFiles, "remove", remove)
    with pytest.raises(StoreUnusable, match="Permission denied"):
        kept.keep(1)
    left = {path for path in paths(kept) if path.startswith(("manifests/", "parts/"))}
    assert left == {"manifests/00000003.json", stuck, *(part.path for part in kept.manifest(3).parts)}


def test_an_epoch_that_cannot_be_removed_keeps_its_parts(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first, real = kept.manifest(1), files.LocalFiles.remove

    def remove(self: files.LocalFiles, path: str) -> None:
        if path == "manifests/00000001.json":
            raise OSError(errno.EIO, "Input/output error")
        real(self, path)

    monkeypatch.setattr(files.LocalFiles, "remove", remove)
    with pytest.raises(StoreUnusable, match="Input/output error"):
        kept.keep(1)
    assert kept.numbers() == [1, 3]
    assert kept.verify(first) == []
    monkeypatch.undo()
    kept.keep(1)
    assert {path for path in paths(kept) if path.startswith("parts/")} == {p.path for p in kept.manifest(3).parts}


def test_before_the_first_epoch_nothing_goes(tmp_path: Path) -> None:
    found = Store(str(tmp_path))
    part = found.write_part(found.claim(TOPOLOGY), 1, 0, [])
    found.keep(1)
    assert at(found, part.path).exists()
    with pytest.raises(InvalidInput, match="0 epochs cannot be kept; keep 1 or more"):
        found.keep(0)


STEPS = st.lists(
    st.sampled_from(["claim", "part", "commit", "commit", "ended", "savepoint", "keep 1", "keep 3"]), max_size=25
)


@given(STEPS)
def test_whatever_happens_what_is_named_stays_whole(steps: list[str]) -> None:
    found = Store("root", fs.PyFileSystem(Memory()))
    attempt, epoch, last, is_over = found.claim(TOPOLOGY), 0, None, False
    saved: dict[str, Manifest] = {}
    pending: list[Part] = []  # handed over by workers, for the epoch under way
    for step in steps:
        if step == "claim":
            attempt, pending, is_over = found.claim(TOPOLOGY), [], False
        elif step in {"part", "ended"} and not pending:
            is_over = step == "ended"  # its part counts for every epoch to come
            which = None if is_over else epoch + 1
            pending = [found.write_part(attempt, which, 0, [snapshot("op/0")])]
        elif step == "commit":
            last = manifest(epoch + 1, [*pending, found.write_part(attempt, epoch + 1, 1, [])], attempt)
            found.commit(last)
            epoch, pending = epoch + 1, pending if is_over else []
        elif step == "savepoint" and last is not None:
            if found.numbers()[-1:] == [last.epoch]:
                name = f"s{len(saved)}"
                found.savepoint(name, last)
                saved[name] = last
        elif step.startswith("keep"):
            found.keep(int(step[-1]))
            assert len(found.numbers()) <= int(step[-1])
        assert found.latest() == last
        assert found.notes == ()
        assert {name: replace(found.saved(name), name=None) for name in saved} == saved
        assert [fault for whole in found.savepoints() for fault in found.verify(whole)] == []
        assert [found.read_part(part) for part in pending] == [[snapshot("op/0")]] * len(pending)


# -- savepoints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-a", "a b", "x" * 101, "a\0"])
def test_a_savepoint_s_name_is_a_plain_word(kept: Store, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a savepoint; use 1 to 100 letters"):
        kept.savepoint(name, kept.manifest(3))
    assert kept.savepoint_names() == []


@pytest.mark.parametrize("name", ["12", "0", "00000003"])
def test_a_savepoint_is_not_called_like_an_epoch(kept: Store, name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"'{name}' cannot name a savepoint, because .* as in 'v{name}'"):
        kept.savepoint(name, kept.manifest(3))
    kept.savepoint(f"v{name}", kept.manifest(3))


def test_a_savepoint_is_written_once(kept: Store) -> None:
    kept.savepoint("a", kept.manifest(2))
    with pytest.raises(InvalidInput, match=r"savepoint 'a' is there already .*; choose another name"):
        kept.savepoint("a", kept.manifest(3))
    assert (kept.saved("a").epoch, kept.saved("a").name) == (2, "a")
    with pytest.raises(InvalidInput, match="has no savepoint 'b'; known: a"):
        kept.saved("b")


def test_no_savepoint_is_made_of_parts_that_are_gone(kept: Store) -> None:
    last = kept.manifest(3)
    at(kept, last.parts[0].path).unlink()
    with pytest.raises(CheckpointDamaged, match="it is not there as it was written"):
        kept.savepoint("a", last)
    assert kept.savepoint_names() == []


def test_a_savepoint_whose_making_was_interrupted_is_told_and_can_be_made(kept: Store) -> None:
    at(kept, "savepoints/a").mkdir(parents=True)
    assert (kept.savepoint_names(), kept.savepoints()) == (["a"], [])
    with pytest.raises(CheckpointDamaged):
        kept.saved("a")
    kept.savepoint("a", kept.manifest(3))
    assert kept.saved("a").epoch == 3


def test_a_damaged_savepoint_can_be_put_back(kept: Store) -> None:
    """Whether it was damaged before this driver or under its eyes; and what comes later is removed as ever."""
    kept.savepoint("a", kept.manifest(1))
    kept.savepoint("b", kept.manifest(2))
    whole = {name: at(kept, f"savepoints/{name}/manifest.json").read_bytes() for name in "ab"}
    flip(at(kept, "savepoints/a/manifest.json"), 40)
    kept.keep(3)
    flip(at(kept, "savepoints/b/manifest.json"), 40)
    assert set(kept.saved_parts.faults) == {"a"}
    for epoch in range(4, 9):
        committed(kept, 1, epoch)
        kept.keep(1)
    assert set(kept.saved_parts.faults) == {"a", "b"}
    assert paths(kept) >= {part.path for part in kept.manifest(8).parts}
    for name in "ab":
        at(kept, f"savepoints/{name}/manifest.json").write_bytes(whole[name])
        assert kept.verify(kept.saved(name)) == []
    left = {int(path[-14:-11]) for path in paths(kept) if path.endswith(".part")}
    assert left == {1, 2, 3, 4, 8}  # 4 was there when the second damage was seen
    kept.keep(1)
    assert {int(path[-14:-11]) for path in paths(kept) if path.endswith(".part")} == {1, 2, 8}
    assert kept.saved_parts.faults == {}


def test_a_savepoint_is_read_when_it_has_changed_and_not_at_every_epoch(
    kept: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, read = files.LocalFiles.reader, list[str]()

    def noted(self: files.LocalFiles, path: str) -> AbstractContextManager[BinaryIO]:
        read.append(path)
        return reader(self, path)

    monkeypatch.setattr(files.LocalFiles, "reader", noted)
    saved = "savepoints/a/manifest.json"
    kept.savepoint("a", kept.manifest(1))
    for _ in range(3):
        kept.keep(3)
    assert read.count(saved) == 1
    shutil.rmtree(at(kept, "savepoints/a"))
    Store(kept.root).savepoint("a", kept.manifest(2))  # by another process
    kept.keep(1)
    assert read.count(saved) == 2
    assert kept.verify(kept.saved("a")) == []
    assert "parts/00000001/00000001-00000.part" not in paths(kept)


def test_a_savepoint_under_the_name_of_another_is_damage(kept: Store) -> None:
    kept.savepoint("a", kept.manifest(3))
    shutil.copytree(at(kept, "savepoints/a"), at(kept, "savepoints/b"))
    with pytest.raises(CheckpointDamaged, match="under another name"):
        kept.saved("b")


# -- what is replaced beyond local disks -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Memory, Bucket])
@pytest.mark.parametrize("how", HOW)
def test_an_epoch_to_which_the_job_goes_back_is_there_whatever_is_refused(
    kind: type[Memory], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest of the last sound epoch is written anew, and no other is left to go on from."""
    monkeypatch.setattr(files, "OBJECT_STORES", {"py::bucket"})

    def begun(refuses_at: int) -> int:
        disk = refusing(kind)()
        found = Store("root", fs.PyFileSystem(disk))
        first = found.claim(TOPOLOGY)
        for epoch in (3, 4):
            committed(found, first, epoch)
        damaged = next(path for path in disk.files if path.endswith("00000004-00000.part"))
        disk.files[damaged] = b"x" + disk.files[damaged][1:]
        second, last = found.claim(TOPOLOGY), found.latest()
        assert last is not None
        disk.refuse(refuses_at, how)
        with contextlib.suppress(StoreUnusable):
            found.begin(second, last)
        disk.refuse(0, how)
        again = Store("root", fs.PyFileSystem(disk))
        sound = again.latest()
        assert sound is not None
        assert sound.epoch == 3
        assert again.begin(again.claim(TOPOLOGY), sound).epoch == 3
        assert (again.numbers(), again.latest()) == ([3], again.manifest(3))
        return disk.changes

    for refuses_at in range(1, begun(0) + 1):
        begun(refuses_at)


# -- what cannot be used -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["", "nonsense://x", "a\0b"])
def test_what_is_no_path_is_told_with_what_would_be_one(root: str) -> None:
    with pytest.raises(StoreUnusable, match=r"cannot use .* for checkpoints: .*; give a path, or a URI that pyarrow"):
        Store(root)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnusable, match=r"cannot use .*file.* for checkpoints: .*; give a folder that can be"):
        Store(str(tmp_path / "file" / "kept")).claim(TOPOLOGY)


def test_a_store_that_another_holds_is_told(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.0)
    with files.LocalFiles(kept.root).alone(), pytest.raises(StoreUnusable, match="or end it if it"):
        kept.keep(1)


@pytest.mark.parametrize("what", ["part", "commit", "savepoint", "claim"])
def test_a_full_disk_is_told_and_what_was_there_stays(kept: Store, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of_4 = [kept.write_part(1, 4, 0, [snapshot("op/0", n=b"1")])]
    before, whole = paths(kept), manifest(4, parts_of_4)
    ways: dict[str, Callable[[], object]] = {
        "part": lambda: kept.write_part(1, 4, 1, [snapshot("op/1", n=b"1")]),
        "commit": lambda: kept.commit(whole),
        "savepoint": lambda: kept.savepoint("a", kept.manifest(3)),
        "claim": lambda: Store(kept.root).claim(TOPOLOGY),
    }

    def write(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(files.os, "write", write)
        with pytest.raises(StoreUnusable, match="No space left on device; give a folder that can be written and has"):
            ways[what]()
    assert paths(kept) == before
    assert kept.latest() == kept.manifest(3)
    ways[what]()  # there is room again
    assert paths(kept) > before


def test_a_disk_that_cannot_be_read_now_is_no_damage(kept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def reader(self: files.LocalFiles, path: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as closed:
        closed.setattr(files.LocalFiles, "reader", reader)
        for ask in (kept.latest, lambda: kept.manifest(3), kept.topology):
            with pytest.raises(StoreUnusable, match="Permission denied"):
                ask()
    with monkeypatch.context() as closed:
        closed.setattr(files.LocalFiles, "names", reader)
        with pytest.raises(StoreUnusable, match="Permission denied"):
            kept.latest()


def test_faults_of_arrow_s_file_systems_are_told_like_those_of_disks(tmp_path: Path) -> None:
    handler = Memory()
    found = Store("root", fs.PyFileSystem(handler))
    attempt = found.claim(TOPOLOGY)

    def gone(path: str, metadata: object) -> None:
        msg = "the bucket is gone"
        raise pa.ArrowException(msg)

    handler.open_output_stream = gone  # type: ignore[assignment]
    with pytest.raises(StoreUnusable, match="the bucket is gone; give a folder"):
        found.write_part(attempt, 1, 0, [])


def test_a_lock_that_is_a_folder_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    attempt = store.claim(TOPOLOGY)
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreUnusable, match=rf"{tmp_path}/lock is a folder where a file has to be; remove it"):
        committed(store, attempt, 1)
