"""`penstock checkpoint` over real stores, and the options of `run` beside it: what they print, how they complain."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import cli
from penstock.checkpoint.contract import Manifest
from penstock.checkpoint.inspection import next_step
from penstock.checkpoint.store import Store
from penstock.deploy.driver.options import CHECKPOINT_INTERVAL_S_MAX, CHECKPOINT_INTERVAL_S_MIN, JobOptions
from penstock.errors import CheckpointDamaged, InvalidInput
from penstock.run.contract import BEFORE_TIME_US, END_OF_TIME_US, Staged
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.operators.sinks.staged import PartName

Run = Callable[..., tuple[int, str, str]]
TASKS = {"rows": 2, "count": 1}
NEW_YEAR_US = 1_767_225_600_000_000


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def invoke(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, words)])
        status = cli.run_command()
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return invoke


def engine(out_us: int) -> bytes:
    return json.dumps({"out": [out_us, False]}).encode()


def snapshots(epoch: int) -> list[TaskSnapshot]:
    staged = (Staged("out", f"/there/part-{epoch}.parquet", 10 * epoch, 999),)
    return [
        TaskSnapshot("rows/0", False, {"taken": str(1000 * epoch).encode(), "engine": engine(NEW_YEAR_US)}),
        TaskSnapshot("rows/1", True, {"taken": b"77"}),
        TaskSnapshot("count/0", False, {"fold": b"x" * 500, "engine": engine(BEFORE_TIME_US)}, staged),
    ]


def commit(store: Store, attempt: int, epoch: int, *, is_last: bool = False) -> Manifest:
    part = store.write_part(attempt, epoch, 0, snapshots(epoch))
    manifest = Manifest(epoch, attempt, "words", TASKS, (part,), is_last, written_us=NEW_YEAR_US)
    store.commit(manifest)
    return manifest


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three epochs of one attempt, the second of which is a savepoint."""
    made = Store(str(tmp_path / "kept"))
    attempt = made.claim("words")
    for epoch in (1, 2, 3):
        manifest = commit(made, attempt, epoch)
        if epoch == 2:
            made.savepoint("before", manifest)
    return made


def part_of(store: Store, epoch: int) -> Path:
    return Path(store.root) / store.manifest(epoch).parts[0].path


# -- what is told ----------------------------------------------------------------------------------------------------


def test_list_tells_epochs_and_savepoints(run: Run, store: Store) -> None:
    status, out, err = run("checkpoint", "list", store.root)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == ["epoch", "1", "2", "3", "before"]
    assert "2026-01-01 00:00:00 UTC" in lines[1]
    assert "savepoint of epoch 2" in lines[4]
    assert lines[-1] == "words: 3 epochs and 1 savepoint; running the job again goes on from the last sound epoch"
    document = json.loads(run("checkpoint", "list", store.root, "--format", "json")[1])
    assert [row["epoch"] for row in document["epochs"]] == [1, 2, 3]
    (saved,) = document["savepoints"]
    assert (saved["name"], saved["epoch"], saved["attempt"], saved["tasks"]) == ("before", 2, 1, 3)
    assert saved["bytes"] == part_of(store, 2).stat().st_size
    assert not saved["over"]


def test_list_says_that_a_job_is_over(run: Run, store: Store) -> None:
    commit(store, 1, 4, is_last=True)
    out = run("checkpoint", "list", store.root)[1]
    assert out.splitlines()[-1].endswith("the job is over, and running it again shows its answer")
    assert "the job is over" in next(line for line in out.splitlines() if line.startswith("4"))


@pytest.mark.parametrize(("which", "epoch"), [((), 3), (("2",), 2), (("before",), 2)])
def test_show_tells_what_an_epoch_holds(run: Run, store: Store, which: tuple[str, ...], epoch: int) -> None:
    status, out, err = run("checkpoint", "show", store.root, *which)
    assert (status, err) == (0, "")
    assert re.search(rf"rows/0 +{1000 * epoch:,} items taken", out)
    assert re.search(r"rows/1 +at its end", out)
    assert f"/there/part-{epoch}.parquet" in out
    document = json.loads(run("checkpoint", "show", store.root, *which, "--format", "json")[1])
    rows, count = document["operators"]
    assert (rows["name"], rows["tasks"], rows["finished"], rows["event_time"]) == (
        "rows",
        2,
        1,
        "2026-01-01 00:00:00 UTC",
    )
    assert rows["positions"] == {"rows/0": f"{1000 * epoch:,} items taken", "rows/1": "at its end"}
    assert count["state_bytes"] == 500 + len(engine(BEFORE_TIME_US))
    assert count["event_time"] is None
    assert document["staged"] == [
        {"sink": "out", "path": f"/there/part-{epoch}.parquet", "rows": 10 * epoch, "bytes": 999}
    ]


def test_event_time_at_its_end_is_told_in_words(run: Run, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.claim("words")
    part = store.write_part(1, 1, 0, [TaskSnapshot("rows/0", False, {"taken": b"1", "engine": engine(END_OF_TIME_US)})])
    store.commit(Manifest(1, 1, "words", {"rows": 1}, (part,)))
    document = json.loads(run("checkpoint", "show", tmp_path, "--format", "json")[1])
    assert document["operators"][0]["event_time"] == "the end"


def test_verify_reads_everything_and_says_which_epoch_would_be_used(run: Run, store: Store) -> None:
    status, out, err = run("checkpoint", "verify", store.root)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "the job would go on from epoch 3"
    assert json.loads(run("checkpoint", "verify", store.root, "--format", "json")[1])["sound"] is True


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "manifest"])
def test_verify_names_what_is_damaged_and_ends_with_1(run: Run, store: Store, damage: str) -> None:
    path = part_of(store, 3) if damage != "manifest" else Path(store.root) / "manifests" / "00000003.json"
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        flip(path)
    status, out, err = run("checkpoint", "verify", store.root)
    assert status == 1
    assert out.splitlines()[-1] == "the job would go on from epoch 2"
    (line,) = err.splitlines()
    assert line.startswith(f"penstock: {store.root} is damaged: epoch 3 is damaged: ")
    assert str(path) in line
    assert line.endswith("; the job would go on from epoch 2")
    status, out, _ = run("checkpoint", "verify", store.root, "--format", "json")
    document = json.loads(out)
    assert (status, document["used"], document["sound"]) == (1, 2, False)
    assert [bool(row["faults"]) for row in document["kept"]] == [False, False, True, False]


def test_verify_says_when_nothing_is_sound(run: Run, store: Store) -> None:
    for epoch in (1, 2, 3):
        flip(part_of(store, epoch))
    status, out, err = run("checkpoint", "verify", store.root)
    assert status == 1
    assert out.splitlines()[-1] == "no epoch is sound, so the job would not start"
    assert "epoch 1 and 3 more are" in err


def test_list_and_show_name_a_damaged_manifest(run: Run, store: Store) -> None:
    flip(Path(store.root) / "manifests" / "00000003.json")
    status, out, _ = run("checkpoint", "list", store.root)
    assert status == 0
    assert "damaged: " in next(line for line in out.splitlines() if line.startswith("3"))
    status, out, err = run("checkpoint", "show", store.root)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert "epoch 3 cannot be read" in err


# -- savepoints ------------------------------------------------------------------------------------------------------


def test_save_keeps_the_last_epoch_under_a_name(run: Run, store: Store) -> None:
    status, out, err = run("checkpoint", "save", store.root, "here")
    assert (status, err) == (0, "")
    assert out.startswith("epoch 3 is kept as 'here' until its folder ")
    store.keep(1)
    commit(store, 1, 4)
    store.keep(1)
    assert store.numbers() == [4]
    assert not store.verify(store.saved("here"))
    status, out, err = run("checkpoint", "save", store.root, "here")
    assert (status, out) == (2, "")
    assert err.startswith("penstock: savepoint 'here' is there already")


@pytest.mark.parametrize("epochs", [2, 100])
def test_save_keeps_another_epoch_where_the_job_removes_the_one_that_it_reads(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    job, numbers, verify = Store(store.root), iter(range(4, 4 + epochs)), Store.verify

    def goes_on(asked: Store, manifest: Manifest) -> list[str]:
        faults = verify(asked, manifest)
        for epoch in numbers:
            commit(job, 1, epoch)
            job.keep(1)
            break
        return faults

    monkeypatch.setattr(Store, "verify", goes_on)
    status, out, err = run("checkpoint", "save", store.root, "here")
    if epochs == 2:
        assert (status, err, out[:15]) == (0, "", "epoch 5 is kept")
        assert not verify(store, store.saved("here"))
    else:
        assert (status, out) == (2, "")
        assert "go faster than one can be read; have the job keep one itself" in err


def test_a_rewind_makes_a_savepoint_the_last_epoch(store: Store) -> None:
    manifest, note = store.rewind(1, store.saved("before"))
    assert store.numbers() == [1, 2]
    assert store.latest() == manifest
    assert manifest.name is None
    assert note == (
        "the job begins at savepoint 'before', epoch 2; epoch 3, and what sinks had shown behind it, are taken back"
    )
    again = store.claim("words")
    commit(store, again, 3)
    assert [each.attempt for each in store.epochs()] == [1, 1, 2]


def test_a_rewind_brings_back_an_epoch_that_is_not_kept_any_more(store: Store) -> None:
    store.keep(1)
    store.rewind(1, store.saved("before"))
    assert store.numbers() == [2]
    assert not store.verify(store.manifest(2))


def test_a_rewind_that_is_cut_short_leaves_an_epoch_that_was_the_last_one_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in (4, 5):
        commit(store, 1, epoch)
    store.keep(3)
    left: list[list[int]] = []
    remove = store._files.remove

    def watched(path: str) -> None:
        left.append(store.numbers())
        remove(path)

    monkeypatch.setattr(store._files, "remove", watched)
    store.rewind(1, store.saved("before"))
    assert left == [[2, 3, 4, 5], [2, 3, 4], [2, 3]]  # a crash before each removal


def test_a_damaged_savepoint_is_refused_and_changes_nothing(store: Store) -> None:
    flip(part_of(store, 2))
    with pytest.raises(
        CheckpointDamaged, match=r"savepoints/before/manifest.json is damaged: .* not match its checksum"
    ):
        store.require_sound(store.saved("before"))
    assert store.numbers() == [1, 2, 3]
    with pytest.raises(InvalidInput, match="has no savepoint 'after'; known: before"):
        store.saved("after")


# -- complaints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [("list",), ("show",), ("verify",), ("save",)])
def test_a_folder_without_checkpoints_is_a_mistake(run: Run, tmp_path: Path, verb: tuple[str]) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    why = {"absent": "does not exist", "file": "is a file", "empty": "has no checkpoints: there is no job.json in it"}
    for folder, said in why.items():
        words = ("checkpoint", *verb, tmp_path / folder, *(("name",) if verb == ("save",) else ()))
        status, out, err = run(*words)
        assert (status, out, len(err.splitlines())) == (2, "", 1)
        assert f"{tmp_path / folder} {said}; give the folder" in err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "checkpoint is given nothing to do; write checkpoint list DIR"),
        (("destroy", "DIR"), "No such command 'destroy'"),
        (("show", "DIR", "7"), "has no epoch or savepoint '7'; it has epochs 1, 2, 3, savepoints before"),
        (("show", "DIR", "²"), "has no epoch or savepoint '²'"),
        (("save", "DIR", "../up"), "'../up' cannot name a savepoint; use 1 to 100 letters"),
        (("save", "DIR", "12"), "'12' cannot name a savepoint, because it is an epoch's number too"),
        (("save", "DIR"), "Missing argument 'NAME'"),
        (("list", "ftp://there"), "cannot use 'ftp://there' for checkpoints"),
    ],
)
def test_other_mistakes_are_one_line(run: Run, store: Store, words: tuple[str, ...], said: str) -> None:
    status, out, err = run("checkpoint", *(store.root if word == "DIR" else word for word in words))
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert said in err


def test_verify_reads_the_epochs_beside_a_damaged_job_file_and_says_what_comes_of_it(run: Run, store: Store) -> None:
    job = Path(store.root) / "job.json"
    job.write_bytes(job.read_bytes()[:10])
    for verb in ("list", "show"):
        assert run("checkpoint", verb, store.root)[0] == 0
    assert run("checkpoint", "list", store.root)[1].splitlines()[-1].startswith("words: 3 epochs")
    status, out, err = run("checkpoint", "verify", store.root)
    assert status == 1
    assert [line.split()[:2] for line in out.splitlines()[1:4]] == [["epoch", str(n)] for n in (1, 2, 3)]
    (line,) = err.splitlines()
    assert f"job.json is damaged: {job}: it is cut off or overwritten: 10 bytes do not end in a checksum; " in line
    assert line.endswith("; the job would go on from epoch 3, once job.json is put back from a copy of the folder")
    document = json.loads(run("checkpoint", "verify", store.root, "--format", "json")[1])
    assert (document["job"].startswith(str(job)), document["used"], document["sound"]) == (True, 3, False)


@pytest.mark.parametrize(
    ("file", "ending"),
    [
        ("shapes/00000001.json", "the job would not start from epoch 3: put it back from a copy of the folder; or"),
        ("attempts/00000001.json", "the job would go on from epoch 3"),
        ("committed.json", "the job would go on from epoch 3"),
    ],
)
def test_verify_reads_what_lies_beside_the_epochs(run: Run, store: Store, file: str, ending: str) -> None:
    store.record.keep_shape(1, {"sources": {}, "operators": {}, "sinks": {}})
    path = Path(store.root) / file
    assert run("checkpoint", "verify", store.root)[0] == 0
    flip(path)
    status, out, err = run("checkpoint", "verify", store.root)
    assert (status, len(err.splitlines())) == (1, 1)
    assert f"a file beside the epochs is damaged: {path}: it" in err
    assert ending in " ".join(out.split())
    (fault,) = json.loads(run("checkpoint", "verify", store.root, "--format", "json")[1])["words"]
    assert fault.startswith(f"{path}: it")


def test_verify_says_that_a_job_is_over(run: Run, store: Store) -> None:
    commit(store, 1, 4, is_last=True)
    status, out, _ = run("checkpoint", "verify", store.root)
    assert (status, out.splitlines()[-1]) == (0, "the job is over, and running it again shows its answer")
    assert json.loads(run("checkpoint", "verify", store.root, "--format", "json")[1])["over"] is True


def test_verify_promises_nothing_of_a_job_whose_rows_are_damaged(run: Run, store: Store) -> None:
    folder = Path(store.staging())
    folder.mkdir(parents=True)
    (folder / str(PartName(0, "out", store.token(), 1, 4, "arrow", "00000000"))).write_bytes(b"rows")
    status, out, err = run("checkpoint", "verify", store.root)
    assert (status, "a file of rows is damaged: " in err) == (1, True)
    assert out.splitlines()[-1].endswith("and end where it meets a damaged file of rows: put that back from a copy")
    commit(store, 1, 4, is_last=True)
    out = run("checkpoint", "verify", store.root)[1]
    assert out.splitlines()[-1].startswith("the job is over; put what is named of its rows back from a copy before you")


def test_a_damaged_job_file_without_an_epoch_is_damage_too(run: Run, tmp_path: Path) -> None:
    Store(str(tmp_path)).claim("words")
    flip(tmp_path / "job.json")
    assert run("checkpoint", "list", tmp_path)[1].splitlines()[-1].startswith("a topology unknown: 0 epochs")
    status, _, err = run("checkpoint", "verify", tmp_path)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "job.json is damaged" in err
    assert err.endswith("; put it back from a copy: the job would not start\n")


def test_what_the_same_command_does_next_follows_from_the_last_epoch(store: Store, tmp_path: Path) -> None:
    assert next_step(str(tmp_path / "none")) == "run the same command to begin again: there was no epoch yet"
    assert next_step(store.root) == "run the same command to go on from epoch 3"
    commit(store, 1, 4, is_last=True)
    assert next_step(store.root) == "the job is over; run the same command to see its answer"


@pytest.mark.parametrize("words", [(), ("checkpoint",)])
def test_lists_of_verbs_say_whole_sentences(run: Run, words: tuple[str, ...]) -> None:
    status, out, _ = run(*words, "--help")
    assert status == 0
    assert "..." not in out.replace("[ARGS]...", "")
    assert "Commands:" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--checkpoint-interval", "0"), "checkpoint_interval_s is 0"),
        (("--checkpoint-interval", "-1"), "checkpoint_interval_s is -1"),
        (("--checkpoint-interval", "nan"), "checkpoint_interval_s is nan"),
        (("--checkpoint-interval", "often"), "'often' is not a number"),
        (("--checkpoint-interval", "1e9"), "checkpoint_interval_s is 1000000000.0; give a number from 0.02"),
        (("--checkpoint-interval", "1"), "checkpoint_interval_s is 1.0, and no checkpoint folder is given"),
        (("--checkpoint", ""), "checkpoint is ''; give the path or URI of a folder"),
        (("--silence", "1"), "silence_s is 1.0; give a number from 2"),
        (("--silence", "long"), "'long' is not a number"),
        (("--from", "before"), "from_savepoint is 'before', and no checkpoint folder is given"),
    ],
)
def test_run_refuses_options_that_make_no_sense(run: Run, options: tuple[str, ...], said: str) -> None:
    status, out, err = run("run", "routes", *options)
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert said in err


def test_the_help_of_run_names_the_limits_of_its_interval(run: Run) -> None:
    least, most = CHECKPOINT_INTERVAL_S_MIN, CHECKPOINT_INTERVAL_S_MAX
    assert f"Time between two epochs, {least:g} to {most:g}." in " ".join(run("run", "--help")[1].split())


def test_a_home_folder_is_meant_by_its_sign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    order = JobOptions(checkpoint="~/kept").checkpoint_order
    assert order is not None
    assert order.root == str(tmp_path / "kept")


CLASHES = """
import penstock as ps

def two():
    top = ps.Topology("two")
    rows = top.source("rows", ps.io.rate(1, rows=3))
    rows.where("value > 1").sink("a", ps.io.parquet("out"))
    rows.where("value < 1").sink("b", ps.io.parquet("out/"))
    return top

def one():
    top = ps.Topology("one")
    top.source("rows", ps.io.rate(1, rows=3)).sink("a", ps.io.parquet("kept/out"))
    return top
"""


def test_folders_that_clash_are_told_before_spark_is_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clashes.py").write_text(CLASHES)
    at = f"{tmp_path}/out"
    status, out, err = run("run", "clashes.py:two")
    assert (status, out) == (2, "")
    assert err == f"penstock: sink 'a' and sink 'b' are given the same folder, {at}; give each one of its own\n"
    status, out, err = run("run", "clashes.py:one", "--checkpoint", "kept")
    assert (status, out) == (2, "")
    assert f"sink 'a' has the folder {tmp_path}/kept/out, which lies in that of the checkpoint, {tmp_path}/kept;" in err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["clashes.py"]
