"""Files beneath a store's root: one contract over every kind of file system, and what a local disk adds."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from store_kit import HOW, Bucket, Memory, recorded_calls, refusing

from penstock.checkpoint import files as files_module
from penstock.checkpoint.files import Files, LocalFiles, RemoteFiles, files_at, folder_beneath, is_lost, reason_of

KINDS = ["path", "uri", "pyarrow", "subtree", "memory", "bucket"]
PATIENCE_S = 30.0


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    root = tmp_path / "ein Ordner"
    kind = request.param
    if kind == "path":
        return files_at(str(root))
    if kind == "uri":
        return files_at(root.as_uri())
    if kind == "pyarrow":
        return files_at(str(root), fs.LocalFileSystem())
    if kind == "subtree":
        return files_at("deep/er", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    if kind == "bucket":
        monkeypatch.setattr(files_module, "OBJECT_STORES", {"py::bucket"})
        return files_at("a bucket", fs.PyFileSystem(Bucket()))
    return files_at("root/folder", fs.PyFileSystem(Memory()))


class TestContract:
    """What the store asks of every file system."""

    @pytest.mark.parametrize("way", ["write", "create", "replace"])
    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 5000])
    def test_what_is_written_is_read(self, files: Files, way: str, data: bytes) -> None:
        getattr(files, way)("a/b/c.json", [data[:700], memoryview(data[700:])] if way == "write" else data)
        assert files.read("a/b/c.json", len(data)) == data
        assert files.size("a/b/c.json") == len(data)
        with files.reader("a/b/c.json") as file:
            assert b"".join(iter(lambda: file.read(4096), b"")) == data
        assert files.names("a/b") == ["c.json"]  # and nothing unfinished
        assert files.names("a") == ["b"]

    def test_buffers_of_arrow_are_written_as_they_are(self, files: Files) -> None:
        numbers = pa.array(range(1000), pa.int64()).buffers()[1]
        files.write("n", [numbers])
        assert files.read("n", 8000) == numbers.to_pybytes()

    def test_what_is_not_there_is_told_as_lost(self, files: Files) -> None:
        files.create("here", b"1")
        assert files.size("nothing") is None
        assert files.size("no/folder") is None
        assert files.names("no/folder") == []
        files.remove("nothing")
        files.remove_folder("nothing")
        for path in ("nothing", "no/folder"):
            with pytest.raises(OSError) as lost:  # noqa: PT011 # its kind is what is_lost says
                files.read(path, 10)
            assert is_lost(lost.value)

    def test_a_file_that_is_too_large_is_not_read(self, files: Files) -> None:
        files.create("a", b"12345")
        with pytest.raises(OSError, match="larger than 4 bytes") as large:
            files.read("a", 4)
        assert is_lost(large.value)

    @pytest.mark.parametrize("way", ["write", "create"])
    def test_the_first_of_two_stays(self, files: Files, way: str) -> None:
        getattr(files, way)("a/b", b"first" if way == "create" else [b"first"])
        with pytest.raises(FileExistsError):
            getattr(files, way)("a/b", b"second" if way == "create" else [b"second"])
        assert files.read("a/b", 10) == b"first"
        assert files.names("a") == ["b"]

    def test_replacing_leaves_the_last(self, files: Files) -> None:
        for data in (b"first", b"second"):
            files.replace("a/b", data)
        assert (files.read("a/b", 10), files.names("a")) == (b"second", ["b"])

    def test_nothing_is_left_of_what_could_not_be_written_to_its_end(self, files: Files) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"some"
            raise OSError(errno.ENOSPC, "no room")

        with pytest.raises(OSError, match="no room"):
            files.write("a/b", pieces())
        assert files.names("a") == []
        files.write("a/b", [b"again"])
        assert files.read("a/b", 10) == b"again"

    def test_names_are_in_order_and_removed_one_by_one(self, files: Files) -> None:
        for name in ("b", "a", "c", "d/e"):
            files.create(f"x/{name}", b"1")
        assert files.names("x") == ["a", "b", "c", "d"]
        files.remove("x/b")
        files.remove_folder("x")  # it is not empty
        assert files.names("x") == ["a", "c", "d"]
        for path in ("x/a", "x/c", "x/d/e"):
            files.remove(path)
        files.remove_folder("x/d")
        assert files.names("x") == []
        files.remove_folder("x")
        files.create("x/d/e", b"made again")
        assert files.read("x/d/e", 20) == b"made again"

    def test_a_folder_is_no_file(self, files: Files) -> None:
        files.create("a/b", b"1")
        assert files.size("a") is None
        with pytest.raises(OSError):  # noqa: PT011 # every file system has its own
            files.read("a", 10)

    def test_inside_alone_everything_can_be_done(self, files: Files) -> None:
        with files.alone():
            files.create("a", b"1")
        with files.alone():
            assert files.read("a", 1) == b"1"


@pytest.mark.parametrize("kind", [Memory, Bucket])
@pytest.mark.parametrize("how", HOW)
def test_what_is_replaced_counts_until_the_new_one_does(
    kind: type[Memory], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at each change of a file, and once more when it is tried again: what is read is one of the two, whole."""
    monkeypatch.setattr(files_module, "OBJECT_STORES", {"py::bucket"})

    def replaced(*refused: int) -> tuple[int, bytes]:
        disk = refusing(kind)()
        files = files_at("root", fs.PyFileSystem(disk))
        files.create("a/b.json", b"the old one")
        for at in refused:
            disk.refuse(at, how)
            try:
                files.replace("a/b.json", b"the new one, which is longer")
            except OSError:
                assert at
            found = files.read("a/b.json", 100)
            assert found in {b"the old one", b"the new one, which is longer"}
            assert files.size("a/b.json") == len(found)
            assert files.names("a")[:1] == ["b.json"]
            with pytest.raises(FileExistsError):
                files.create("a/b.json", b"another")
            assert files.read("a/b.json", 100) == found
        changes = disk.changes
        disk.refuse(0, how)
        files.remove("a/b.json")
        assert (files.size("a/b.json"), [path for path in disk.files if not path.endswith(".writing")]) == (None, [])
        return changes, found

    steps, new = replaced(0)
    assert new == b"the new one, which is longer"
    for first in range(1, steps + 1):
        assert replaced(first, 0)[1] == new
        for second in range(1, steps + 1):
            replaced(first, second)


@pytest.mark.parametrize("kind", [Memory, Bucket])
def test_what_counts_still_goes_last(kind: type[Memory], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "OBJECT_STORES", {"py::bucket"})
    disk = refusing(kind)()
    files = files_at("root", fs.PyFileSystem(disk))
    files.create("a.json", b"old")
    disk.refuse(3 if kind is Bucket else 4, "not done")  # the removal of the old one
    with pytest.raises(OSError, match="no answer"):
        files.replace("a.json", b"new")
    disk.refuse(2, "not done")
    with pytest.raises(OSError, match="no answer"):
        files.remove("a.json")
    assert files.read("a.json", 10) == b"old"
    files.replace("a.json", b"newer")
    assert files.read("a.json", 10) == b"newer"


def test_a_uri_that_is_local_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    assert isinstance(files_at((tmp_path / "a b").as_uri()), LocalFiles)
    assert files_at((tmp_path / "a b").as_uri()).root == str(tmp_path / "a b")
    assert isinstance(files_at("x", fs.PyFileSystem(Memory())), RemoteFiles)


def test_a_path_from_where_the_job_began_is_made_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert files_at("kept").root == str(tmp_path / "kept")
    assert files_at("~/kept").root == str(tmp_path / "home" / "kept")


@pytest.mark.parametrize("root", ["", "a\0b", "nonsense://x", "file://not a uri"])
def test_what_is_no_path_is_refused(root: str) -> None:
    with pytest.raises((OSError, ValueError, pa.ArrowException)):
        files_at(root)


def test_what_a_uri_asks_for_stays_behind_the_folder() -> None:
    assert folder_beneath("s3://bucket/a/?region=eu&x=1", "parts/b") == "s3://bucket/a/parts/b?region=eu&x=1"
    assert folder_beneath("/a/b?c", "d") == "/a/b?c/d"  # a name may have a question mark


def test_reasons_are_one_short_line() -> None:
    assert reason_of(OSError(errno.ENOSPC, "No space\n left")) == "No space left"
    assert reason_of(ValueError()) == "ValueError"
    assert len(reason_of(ValueError("x" * 1000))) == 300


# -- of local disks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "named"), [("create", "link"), ("replace", "replace")])
def test_a_file_is_on_the_disk_before_its_name_is(way: str, named: str, tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    with recorded_calls(tmp_path) as calls:
        getattr(files, way)("a/b", b"whole")
    folder = [("fsync", ".."), ("mkdir", "a"), ("fsync", ".")]  # the root's own name lasts too, whoever gave it
    assert calls == [*folder, ("fsync", "unfinished"), (named, "a/b"), ("unlink", "unfinished"), ("fsync", "a")]
    assert (tmp_path / "a" / "b").read_bytes() == b"whole"


def test_a_large_file_and_every_folder_above_it_are_on_the_disk_when_writing_returns(tmp_path: Path) -> None:
    with recorded_calls(tmp_path) as calls:
        LocalFiles(str(tmp_path)).write("a/b/c", [b"whole"])
    made = [("fsync", ".."), ("mkdir", "a"), ("fsync", "."), ("mkdir", "a/b"), ("fsync", "a")]
    assert calls == [*made, ("fsync", "a/b/c"), ("fsync", "a/b")]


def test_where_there_are_no_links_a_file_gets_its_name_by_a_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    files = LocalFiles(str(tmp_path))
    files.create("a", b"first")
    with pytest.raises(FileExistsError):
        files.create("a", b"second")
    assert (files.names(""), files.read("a", 10)) == (["a"], b"first")


def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(OSError, match="not a regular file") as pipe:
        LocalFiles(str(tmp_path)).read("a", 10)
    assert is_lost(pipe.value)


@pytest.fixture
def least_room() -> Iterator[None]:
    """No file may grow beyond a thousand bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("way", ["write", "create", "replace"])
def test_nothing_is_left_where_there_is_no_room(tmp_path: Path, least_room: None, way: str) -> None:
    files = LocalFiles(str(tmp_path))
    files.create("a/old", b"stays")
    data = b"x" * 5000
    with pytest.raises(OSError) as full:  # noqa: PT011 # its number is asked for
        getattr(files, way)("a/new", [data[:900], data] if way == "write" else data)
    assert full.value.errno == errno.EFBIG
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["old"]


def test_a_lock_that_is_held_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "LOCK_WAIT_S", 0.0)
    files = LocalFiles(str(tmp_path))
    with files.alone(), pytest.raises(TimeoutError, match="another process has held it"), files.alone():
        pytest.fail("two are inside")
    with files.alone():
        pass


HOLDER = """
import sys
from penstock.checkpoint.files import LocalFiles
with LocalFiles(sys.argv[1]).alone():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_ends_with_the_process_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    files = LocalFiles(str(tmp_path))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with monkeypatch.context() as patch:
            patch.setattr(files_module, "LOCK_WAIT_S", 0.0)
            with pytest.raises(TimeoutError), files.alone():
                pytest.fail("two are inside")
    finally:
        holder.kill()
        holder.communicate(timeout=PATIENCE_S)
    with files.alone():
        files.create("a", b"1")
