"""Files of rows with checksums: no flipped bit of a sink's file or of a spooled DataFrame goes unnoticed."""

from __future__ import annotations

import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from flow_kit import Recorder, opened
from publication_kit import SCHEMA, SINK, STORE, manifest_of, staged

from penstock.checkpoint import input_files
from penstock.checkpoint.inspection import verified
from penstock.checkpoint.publication import CollectPublication
from penstock.checkpoint.store import Store
from penstock.deploy.driver.outcome import Reports, judge
from penstock.deploy.results import dataframes
from penstock.deploy.worker import main
from penstock.errors import CheckpointDamaged
from penstock.run.contract import SourceTask
from penstock.run.engine.faults import TaskFault
from penstock.run.operators import summed
from penstock.run.operators.sinks.folder import Folder
from penstock.run.operators.sinks.staged import PartName
from penstock.run.operators.sources.spooled import SETTING_SPOOLED, DataFrameSource
from penstock.run.operators.summed import InputDamaged, SummedFile

FLIPS = 300


def flipped(path: Path, count: int) -> Iterator[int]:
    """A file with one bit changed, again and again; whole in the end."""
    whole, rng = path.read_bytes(), random.Random(7)
    for _ in range(count):
        data, at = bytearray(whole), rng.randrange(len(whole))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        yield at
    path.write_bytes(whole)


# -- files of sinks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_every_flipped_bit_of_a_sink_s_file_is_noticed_before_and_after_it_is_shown(tmp_path: Path, kind: str) -> None:
    store = str(tmp_path / "staged")
    publication = CollectPublication(str(tmp_path / "results"), SINK, store, STORE)
    publication.resume(None)
    found = staged(Folder(store), 1, 1, STORE, kind)
    for publish in (False, True):
        if publish:
            publication.publish(manifest_of(1, 1, found))
        folder = publication.folder if publish else Folder(store)
        (name, *_) = names = folder.names()
        assert len(names) == len(found)
        part = PartName.read(name)
        assert part is not None
        assert part.fault(folder) is None
        path = Path(folder.at(name))
        assert all(part.fault(folder) == f"{path} does not match its checksum" for _ in flipped(path, FLIPS))
        path.write_bytes(path.read_bytes()[:-1])
        assert part.fault(folder) == f"{path} does not match its checksum"
        path.unlink()
        assert str(part.fault(folder)).startswith(f"{path} cannot be read: ")
        found = staged(Folder(store), 1, 1, STORE, kind)


def shown(root: Path) -> CollectPublication:
    store = Store(str(root))
    store.claim("words")
    publication = CollectPublication(store.results(), SINK, store.staging(), store.token())
    publication.resume(None)
    publication.publish(manifest_of(1, 1, staged(Folder(store.staging()), 1, 1, store.token())))
    return publication


def test_damaged_rows_are_not_handed_to_the_user(tmp_path: Path) -> None:
    publication = shown(tmp_path / "kept")
    dataframes._require_whole(publication)
    path = Path(publication.files()[-1])
    for _ in flipped(path, 5):
        with pytest.raises(CheckpointDamaged, match="does not match its checksum; restore the file from") as caught:
            dataframes._require_whole(publication)
        assert caught.value.path == str(path)


def test_collected_rows_that_are_gone_are_missed(tmp_path: Path) -> None:
    publication = shown(tmp_path / "kept")
    store = Store(str(tmp_path / "kept"))
    second = staged(Folder(store.staging()), 2, 1, store.token())
    publication.publish(replace(manifest_of(2, 1, second), shown={SINK: 4}))
    dataframes._require_whole(publication)
    Path(publication.files()[1]).unlink()
    with pytest.raises(CheckpointDamaged, match=r"is damaged: it has 3 of 4 files of collected rows; restore the file"):
        dataframes._require_whole(publication)


# -- spooled DataFrames ------------------------------------------------------------------------------------------------


def spooled(folder: Path, rows: int = 400, inside: str = "00000001-5f3a9c01") -> tuple[SummedFile, ...]:
    """As Spark writes them, and listed."""
    (folder / inside).mkdir(parents=True)
    for number in range(2):
        numbers = pa.array(range(number * rows, (number + 1) * rows), pa.int64())
        table = pa.table([pa.array([0] * rows, pa.int64()), numbers], schema=SCHEMA)
        pq.write_table(table, folder / inside / f"part-{number}.snappy.parquet", row_group_size=150)
    (folder / inside / "_SUCCESS").touch()
    files = input_files.settled(str(folder), inside)
    input_files.keep_list(str(folder), files)
    return files


def read(files: tuple[SummedFile, ...]) -> list[tuple[object, ...]]:
    out = Recorder()
    task = opened(lambda: DataFrameSource(SCHEMA), rows_max=64, **{SETTING_SPOOLED: {"op": files}})
    assert isinstance(task, SourceTask)
    while not task.poll(10**12, out).ended:
        pass
    return out.rows()


def answer(files: tuple[SummedFile, ...], rows: list[tuple[object, ...]]) -> str:
    try:
        return "the same rows" if read(files) == rows else "other rows"
    except InputDamaged as damaged:
        return damaged.path


def test_no_flipped_bit_of_a_spooled_file_gets_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are small here, so that a file has many: some of them, such as the first bytes, nobody reads."""
    monkeypatch.setattr(summed, "CHUNK_BYTES", 512)
    files = spooled(tmp_path / "input" / "words")
    rows = read(files)
    assert len(rows) == 800
    told = Counter(answer(files, rows) for _ in flipped(Path(files[1].path), FLIPS))
    assert {*told} <= {files[1].path, "the same rows"}
    assert told[files[1].path] > FLIPS * 0.9
    assert read(files) == rows


def test_a_spooled_file_that_is_cut_or_gone_is_damaged(tmp_path: Path) -> None:
    files = spooled(tmp_path / "input" / "words")
    path = Path(files[0].path)
    os.truncate(path, files[0].size - 1)
    with pytest.raises(CheckpointDamaged, match="do not match their checksum"):
        read(files)
    path.unlink()
    with pytest.raises(CheckpointDamaged, match="it is not there"):
        read(files)


def test_a_reader_gives_the_bytes_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summed, "CHUNK_BYTES", 7)
    path, rng = tmp_path / "bytes", random.Random(3)
    for size in (1, 6, 7, 8, 100):
        data = rng.randbytes(size)
        path.write_bytes(data)
        reader = summed.SummedReader(SummedFile.of(str(path)))
        for _ in range(200):
            begin, count = rng.randrange(size + 3), rng.randrange(-1, size + 3)
            reader.seek(begin)
            assert reader.read(count) == (data[begin:] if count < 0 else data[begin : begin + count])
            assert reader.tell() == max(begin, min(size, begin + count) if count >= 0 else max(size, begin))


def test_the_list_is_written_when_the_files_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files = spooled(tmp_path / "input" / "words")
    names = [os.path.basename(file.path) for file in files]
    listing = synced.index(next(name for name in synced if name.startswith(input_files.LIST)))
    assert listing > max(map(synced.index, [*names, "00000001-5f3a9c01", "words"]))
    assert synced[-1] == "words"  # the folder, with the list's name
    assert input_files.listed(str(tmp_path / "input" / "words")) == files


def test_a_folder_counts_by_its_list_alone(tmp_path: Path) -> None:
    folder = tmp_path / "input" / "words"
    spooled(folder)
    path = folder / input_files.LIST
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"part-0", b"part-9"))
    with pytest.raises(CheckpointDamaged, match="do not match their checksum"):
        input_files.listed(str(folder))
    path.unlink()
    assert input_files.listed(str(folder)) is None  # Spark's `_SUCCESS` is still there


def test_files_beside_their_list_as_an_earlier_version_had_them_are_read(tmp_path: Path) -> None:
    files = spooled(tmp_path / "words", inside="")
    assert {os.path.dirname(file.path) for file in files} == {f"{tmp_path}/words"}
    assert input_files.listed(str(tmp_path / "words")) == files


def test_a_job_ends_with_the_file_s_name_and_not_after_ten_attempts() -> None:
    fault = TaskFault("words/0", 1, "n1", error := InputDamaged("/kept/input/words/part-0", "it is not there"))
    fault.__cause__ = error
    told = json.loads(json.dumps(main._fault(fault, 1, "n1").damaged))
    reported = main.Fault(1, "task", "words failed", "words/0", "n1", damaged=told)
    judged = judge(Reports("words", {}, {}, [reported], None, None, cancel_asked=False))
    assert type(judged) is CheckpointDamaged  # the name that the guide has
    assert (judged.path, judged.fault) == ("/kept/input/words/part-0", "it is not there")
    fault.__cause__ = CheckpointDamaged("/kept/parts/1", "flipped")  # a part: the epoch before may be whole
    assert main._fault(fault, 1, "n1").damaged is None


# -- `penstock checkpoint verify` --------------------------------------------------------------------------------------


def collected(root: Path) -> Path:
    return Path(shown(root).files()[0])


def waiting(root: Path) -> Path:
    shown(root)
    store = Store(str(root))
    return Path(staged(Folder(store.staging()), 2, 1, store.token())[0].path)


def input_of_spark(root: Path) -> Path:
    shown(root)
    return Path(spooled(root / "input" / "words")[0].path)


def list_of_input(root: Path) -> Path:
    shown(root)
    spooled(root / "input" / "words")
    return root / "input" / "words" / input_files.LIST


@pytest.mark.parametrize("made", [collected, waiting, input_of_spark, list_of_input])
def test_verify_reads_rows_too(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    path = made(tmp_path / "kept")
    store = Store(str(tmp_path / "kept"))
    assert verified(store).rows == []
    for _ in flipped(path, 5):
        found = verified(store)
        assert found.document()["sound"] is False
        assert [str(path) in fault for fault in found.rows] == [True]
    assert verified(store).damaged == []


def test_verify_misses_collected_rows_of_a_job_that_is_over(tmp_path: Path) -> None:
    publication = shown(tmp_path / "kept")
    store = Store(str(tmp_path / "kept"))
    attempt = store.claim("words")
    store.commit(replace(manifest_of(1, attempt, ()), topology="words", is_last=True, shown={SINK: 2}))
    assert verified(store).rows == []
    Path(publication.files()[0]).unlink()
    assert verified(store).rows == [f"{publication.folder.given} has 1 of 2 files of collected rows"]


def test_sums_are_crcs_in_a_fixed_order_of_bytes(tmp_path: Path) -> None:
    """They are kept in files: another machine has to find the same."""
    (tmp_path / "x").write_bytes(b"penstock")
    assert SummedFile.of(str(tmp_path / "x")).sums == struct.pack("<I", 0xAF16E2EC)
