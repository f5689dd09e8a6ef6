"""What happens to a folder that has files when a parquet sink is about to write into it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.deploy.driver.folders import clear, overwritten, require_apart
from penstock.deploy.driver.submit import files_read
from penstock.errors import InvalidInput
from penstock.flow import io
from penstock.flow.topology import Topology
from penstock.run.endpoints import SinkFacts

SCHEMA = pa.schema({"n": pa.int64()})


def sink(path: Path, **options: str) -> tuple[str, SinkFacts]:
    return "out", io.parquet(str(path), **options).facts  # type: ignore[arg-type]


def used(path: Path, *names: str) -> Path:
    path.mkdir(exist_ok=True)
    for name in names or ("part-00000-out-1.parquet",):
        (path / name).write_bytes(b"kept")
    return path


@pytest.mark.parametrize("mode", ["error", "errorifexists", "append", "overwrite"])
def test_no_folder_and_an_empty_one_are_fine_in_every_mode(tmp_path: Path, mode: str) -> None:
    overwritten([sink(tmp_path, mode=mode), sink(tmp_path / "new", mode=mode)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_refused_unless_somebody_said_what_to_do_with_them(tmp_path: Path) -> None:
    first, second = used(tmp_path / "a"), used(tmp_path / "b", "notes.txt")
    said = r"sink 'out' writes into .*/a, which holds 'part-00000-out-1.parquet' already; .*mode='append' or .*; .*/b"
    with pytest.raises(InvalidInput, match=said):
        overwritten([sink(first), sink(second, mode="errorifexists")])
    overwritten([sink(first, mode="append"), sink(second, mode="append")])
    assert len(list(first.iterdir())) == len(list(second.iterdir())) == 1


def test_overwriting_removes_what_a_parquet_writer_leaves_and_nothing_else(tmp_path: Path) -> None:
    ours = used(tmp_path / "ours", "part-0.parquet", "_SUCCESS", "._SUCCESS.crc", ".part-1.parquet.writing")
    foreign = used(tmp_path / "foreign", "part-0.parquet", "thesis.tex")
    with pytest.raises(InvalidInput, match=re.escape("'thesis.tex' in it is no Parquet writer's file")):
        overwritten([sink(ours, mode="overwrite"), sink(foreign, mode="overwrite")])
    assert len(list(ours.iterdir())) == 4  # nothing is removed before everything has been looked at
    clear(overwritten([sink(ours, mode="overwrite")]))
    assert list(ours.iterdir()) == []
    (tmp_path / "deep" / "year=2024").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="'year=2024' in it is no Parquet writer's file"):
        overwritten([sink(tmp_path / "deep", mode="overwrite")])


def test_a_job_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    folder = used(tmp_path / "data", "b.parquet")
    top = Topology("again")
    read = top.source("in", io.files(str(folder), schema="t timestamp")).event_time("t")
    read.sink("out", io.parquet(str(folder), mode="overwrite"))
    flow = top.build()
    with pytest.raises(InvalidInput, match=r"but the job reads 'b.parquet' in it; name another folder"):
        overwritten([sink(folder, mode="overwrite")], lambda: files_read(flow, {}))
    assert (folder / "b.parquet").exists()


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_file_is_no_folder(tmp_path: Path, mode: str) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InvalidInput, match="which is a file; name a folder"):
        overwritten([sink(tmp_path / "file", mode=mode)])


def test_a_mode_that_nobody_knows_is_refused_when_the_sink_is_named() -> None:
    with pytest.raises(InvalidInput, match="mode of a parquet sink is 'ignore'; it is 'error' or 'append' or 'over"):
        io.parquet("out", mode="ignore")


def named(**folders: str) -> list[tuple[str, SinkFacts]]:
    return [(name, SinkFacts(folder=folder, mode="append")) for name, folder in folders.items()]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("/x/out", "/x/out", "sink 'a' and sink 'b' are given the same folder, /x/out; give each one of its own"),
        ("/x/out", "/x/more/../out/", "are given the same folder"),
        ("s3://bucket/out?region=r", "s3://bucket/out/", "are given the same folder"),
        ("/x out", "file:///x%20out", "are given the same folder"),
        ("/x/out/b", "/x/out", "sink 'a' has the folder /x/out/b, which lies in that of sink 'b', /x/out; put one"),
        ("/x/out", "/x/out/b", "sink 'b' has the folder /x/out/b, which lies in that of sink 'a', /x/out; put one"),
        ("/x", "/", "sink 'a' has the folder /x, which lies in that of sink 'b', /;"),
        ("s3://bucket", "s3://bucket/out", "sink 'b' has the folder s3://bucket/out, which lies in that of sink 'a'"),
    ],
)
def test_two_sinks_do_not_write_into_one_folder(a: str, b: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        require_apart(named(a=a, b=b), None)


def test_a_sink_and_a_checkpoint_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for out, said in (("kept", "same folder"), ("link", "same folder"), ("kept/out", "lies in that of the checkpoint")):
        with pytest.raises(InvalidInput, match=said):
            require_apart(named(a=str(tmp_path / out)), str(tmp_path / "kept"))
    with pytest.raises(InvalidInput, match=r"the checkpoint has the folder .*/kept, which lies in that of sink 'a'"):
        require_apart(named(a=str(tmp_path)), str(tmp_path / "kept"))


def test_folders_beside_each_other_and_sinks_without_one_are_fine(tmp_path: Path) -> None:
    collecting = [(name, io.collect().facts) for name in ("d", "e")]
    sinks = [*named(a="/x/out", b="/x/out2", c="s3://bucket/x/out"), *collecting]
    require_apart(sinks, "/x/kept")
    require_apart(sinks, None)
