"""What tests of the store share: whole epochs in a few words, and a store with some of them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from penstock.checkpoint.contract import Branch, Manifest, Part
from penstock.checkpoint.store import Store
from penstock.run.contract import Staged
from penstock.run.engine.epochs import TaskSnapshot

TOPOLOGY = "counts"


def snapshot(task: str, *, finished: bool = False, **state: bytes) -> TaskSnapshot:
    return TaskSnapshot(task, finished, state)


def manifest(
    epoch: int,
    parts: Sequence[Part],
    attempt: int = 1,
    *,
    is_last: bool = False,
    tasks: Mapping[str, int] | None = None,
    line: tuple[Branch, ...] = (),
) -> Manifest:
    return Manifest(epoch, attempt, TOPOLOGY, tasks or {"op": 2}, tuple(parts), is_last, written_us=epoch, line=line)


def a_part(worker: int = 0, path: str = "parts/00000001/00000001-00000.part", staged: Sequence[Staged] = ()) -> Part:
    """One that no store has written."""
    return Part(worker, path, 7, "0" * 64, ("op/0",), (), tuple(staged))


def committed(store: Store, attempt: int, epoch: int, workers: int = 2, *, line: tuple[Branch, ...] = ()) -> Manifest:
    """An epoch, from its parts to its manifest."""
    parts = [
        store.write_part(attempt, epoch, worker, [snapshot(f"op/{worker}", n=state_of(epoch, worker))])
        for worker in range(workers)
    ]
    whole = manifest(epoch, parts, attempt, line=line)
    store.commit(whole)
    return whole


def state_of(epoch: int, worker: int) -> bytes:
    return f"epoch {epoch} of worker {worker}, and what compresses: ".encode() + b"." * 100


def flip(path: Path, byte: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(bytes(data))


class _Kept(io.BytesIO):
    """A file that is there when it has been closed, as on an object store."""

    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()


class Memory(fs.FileSystemHandler):  # type: ignore[misc] # of pyarrow
    """Files in memory; a file system that knows folders, and does not move a file onto another."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()

    def get_type_name(self) -> str:
        return "memory"

    def normalize_path(self, path: str) -> str:
        return path.strip("/")

    def _info(self, path: str) -> fs.FileInfo:
        path = path.strip("/")
        if path in self.files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.files[path]), mtime=0)
        return fs.FileInfo(path, fs.FileType.Directory if path in self.folders else fs.FileType.NotFound)

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = selector.base_dir.strip("/")
        if folder not in self.folders:
            if selector.allow_not_found and folder not in self.files:
                return []
            raise FileNotFoundError(folder)
        inside = [path for path in {*self.files, *self.folders} if path.startswith(f"{folder}/")]
        return [self._info(p) for p in inside if selector.recursive or "/" not in p.removeprefix(f"{folder}/")]

    def create_dir(self, path: str, recursive: bool) -> None:
        steps = path.strip("/").split("/")
        self.folders.update("/".join(steps[: n + 1]) for n in range(len(steps)))

    def delete_dir(self, path: str) -> None:
        path = path.strip("/")
        if path not in self.folders:
            raise FileNotFoundError(path)
        self.delete_dir_contents(path)
        self.folders.discard(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        path = path.strip("/")
        for gone in [found for found in self.files if found.startswith(f"{path}/")]:
            del self.files[gone]
        self.folders = {found for found in self.folders if not found.startswith(f"{path}/")}

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        if path.strip("/") not in self.files:
            raise FileNotFoundError(path)
        del self.files[path.strip("/")]

    def move(self, src: str, dest: str) -> None:
        src, dest = src.strip("/"), dest.strip("/")
        if dest in self.files or dest in self.folders:
            raise FileExistsError(dest)
        self.files[dest] = self.files.pop(src)

    def copy_file(self, src: str, dest: str) -> None:
        self.files[dest.strip("/")] = self.files[src.strip("/")]

    def open_input_stream(self, path: str) -> pa.NativeFile:
        if path.strip("/") not in self.files:
            raise FileNotFoundError(path)
        return pa.PythonFile(io.BytesIO(self.files[path.strip("/")]), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        if path.strip("/").rpartition("/")[0] not in {"", *self.folders}:
            raise FileNotFoundError(path)
        return pa.PythonFile(_Kept(self.files, path.strip("/")), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        raise NotImplementedError


class Bucket(Memory):
    """An object store: names with slashes and no folders, and nothing that is moved."""

    def get_type_name(self) -> str:
        return "bucket"

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        folder = f"{selector.base_dir}/"
        names = {path.removeprefix(folder).split("/")[0] for path in self.files if path.startswith(folder)}
        found = [self._info(folder + name) for name in names]
        return [i if i.type == fs.FileType.File else fs.FileInfo(i.path, fs.FileType.Directory) for i in found]

    def create_dir(self, path: str, recursive: bool) -> None:
        raise AssertionError(path)

    def move(self, src: str, dest: str) -> None:
        raise AssertionError(dest)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        return pa.PythonFile(_Kept(self.files, path), mode="w")


HOW = ("not done", "done", "half")  # what becomes of a change that is refused


class Refusing(Memory):
    """Counts what changes files, and refuses one of these changes."""

    def refuse(self, at: int, how: str) -> None:
        """The change of this number from now on; 0: none."""
        self.changes, self.at, self.how = 0, at, how

    changes, at, how = 0, 0, ""

    def change(self, act: Callable[[], object], half: Callable[[], object] = lambda: None) -> None:
        self.changes += 1
        if self.changes != self.at:
            act()
            return
        if self.how != "not done":
            (act if self.how == "done" else half)()
        msg = "no answer"
        raise OSError(msg)


class _Given(io.BytesIO):
    """A file that is there when it has been closed, which may be refused."""

    def __init__(self, disk: Refusing, path: str) -> None:
        super().__init__()
        self._disk, self._path = disk, path

    def close(self) -> None:
        if not self.closed:
            files, path, data = self._disk.files, self._path, self.getvalue()
            super().close()
            self._disk.change(lambda: files.update({path: data}), lambda: files.update({path: data[: len(data) // 2]}))


def refusing(kind: type[Memory]) -> type[Refusing]:
    """Such a file system that refuses."""

    class Found(Refusing, kind):  # type: ignore[misc, valid-type] # any of them
        def delete_file(self, path: str) -> None:
            if path.strip("/") not in self.files:
                raise FileNotFoundError(path)
            self.change(lambda: kind.delete_file(self, path))

        def move(self, src: str, dest: str) -> None:
            self.change(lambda: kind.move(self, src, dest))

        def copy_file(self, src: str, dest: str) -> None:
            self.change(lambda: kind.copy_file(self, src, dest))

        def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
            return pa.PythonFile(_Given(self, path.strip("/")), mode="w")

    return Found


@contextmanager
def recorded_calls(root: Path) -> Iterator[list[tuple[str, str]]]:
    """What is asked of the operating system, in order, and done: the call, and where beneath a folder."""
    seen: list[tuple[str, str]] = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "replace", "rename", "unlink", "mkdir")}

    def recorded(name: str) -> Callable[..., object]:
        def call(*given: object) -> object:
            path = os.readlink(f"/proc/self/fd/{given[0]}") if name == "fsync" else str(given[-1])
            seen.append((name, "unfinished" if path.endswith(".writing") else os.path.relpath(path, root)))
            return real[name](*given)

        return call

    try:
        for name in real:
            setattr(os, name, recorded(name))
        yield seen
    finally:
        for name, function in real.items():
            setattr(os, name, function)
