"""The operating system that simulated processes see: calls that change files are steps at which a process can die.

The product's modules that touch files, clocks and threads are run as they are; while a simulation is under way, what
they call `os`, `fcntl`, `time`, `threading` and so on is this. Before each change the process may give its turn back,
and it may die before, in the middle (bytes that are written are cut there) or after. On an object store a file appears
whole when it is closed, and lasts. Rejected: files and clocks as arguments of all those modules, which would then be
shaped by their simulation; real folders, which cannot lose power.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import NoReturn, Protocol

import pyarrow as pa
from pyarrow import fs

from penstock.checkpoint import files, store
from penstock.deploy.attempt import epoch_thread, epochs
from penstock.run.operators.sinks import folder
from penstock_lab.simulate.actors import Actors, Condition, Killed, Lock, Process, Thread
from penstock_lab.simulate.disk import Disk, Node

BUCKET = "sim://"  # how the URIs of the simulated object store begin
BEFORE, AMID, AFTER = "before", "amid", "after"


class Fate(Protocol):
    """Who decides."""

    def dies(self, process: Process, what: str, path: str) -> str | None:
        """When the process dies at this change: BEFORE, AMID or AFTER it; None: it lives on."""

    def dead(self, process: Process) -> None:
        """It is dead now."""

    def changed(self, process: Process, what: str, path: str) -> None:
        """Something is otherwise on the disk."""

    def refuses(self, process: Process, what: str, path: str) -> tuple[str, OSError] | None:
        """Whether this change fails although everybody lives: when it does, and with what."""

    def refuses_to_read(self, process: Process, path: str, *, is_object: bool) -> OSError | None:
        """With what a look at this fails, if it does."""

    def rests(self) -> bool:
        """Whether others have their turn before the next step."""


class System:
    """What all processes of one simulation share."""

    def __init__(self, disk: Disk, actors: Actors, fate: Fate, clock: Callable[[], int]) -> None:
        self.disk, self.actors, self.clock = disk, actors, clock
        self._fate = fate
        self.inline: Process | None = None  # whose code runs in the scheduler's own thread
        self._names = 0
        self.locked_by: dict[str, Process] = {}

    @property
    def process(self) -> Process:
        """Whose code runs now."""
        found = self.inline if self.actors.running is None else self.actors.running.process
        if found is None:
            msg = "no simulated process runs"
            raise AssertionError(msg)
        return found

    @contextlib.contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        """The scheduler's thread is this process meanwhile."""
        before, self.inline = self.inline, process
        try:
            yield
        finally:
            self.inline = before

    def change(self, what: str, path: str, act: Callable[[], object], torn: Callable[[], object] | None = None) -> None:
        """One change, and what becomes of the process meanwhile."""
        self.look()
        process = self.process
        when = self._fate.dies(process, what, path)
        refused = None if when is not None else self._fate.refuses(process, what, path)
        if refused is not None:
            self._refused(process, what, path, (act, torn), refused)
        if when == AMID and torn is not None:
            torn()
        elif when != BEFORE:
            act()
        if when != BEFORE:
            self._fate.changed(process, what, path)
        if when is not None:
            self._fate.dead(process)
            raise Killed

    def _refused(
        self,
        process: Process,
        what: str,
        path: str,
        how: tuple[Callable[[], object], Callable[[], object] | None],
        refused: tuple[str, OSError],
    ) -> NoReturn:
        """The process lives on, and is told of an error."""
        act, torn = how
        when, error = refused
        if when == AMID and torn is not None:
            torn()
        elif when == AFTER:
            act()
        if when != BEFORE:
            self._fate.changed(process, what, path)
        raise error

    def read(self, path: str, *, is_object: bool = False) -> None:
        """Others may have their turn before this is looked at, and looking may fail."""
        self.look()
        error = self._fate.refuses_to_read(self.process, path, is_object=is_object)
        if error is not None:
            raise error

    def look(self) -> None:
        """Others may have their turn; the dead do nothing."""
        if self.process.is_dead:
            raise Killed
        if self.actors.running is not None and self._fate.rests():
            self.actors.pause()

    def token(self) -> str:
        """A new name, as if by chance."""
        self._names += 1
        return f"{self._names:08x}"


def replaced(system: System) -> contextlib.AbstractContextManager[None]:
    """The product's modules see the simulated system meanwhile."""
    seen = Os(system)
    clock = SimpleNamespace(
        monotonic=lambda: system.clock() / 1e6,
        monotonic_ns=lambda: system.clock() * 1000,
        time_ns=lambda: system.clock() * 1000,
        sleep=lambda seconds: system.actors.wait(lambda: False, seconds),
    )
    arrow = SimpleNamespace(
        FileSystem=SimpleNamespace(from_uri=lambda uri: _filesystem(system, uri)),
        FileSelector=fs.FileSelector,
        FileType=fs.FileType,
    )
    tokens = SimpleNamespace(token_hex=lambda size: system.token().zfill(2 * size))
    threads = SimpleNamespace(
        Condition=lambda: Condition(system.actors),
        Thread=lambda target, name, args=(), daemon=True: Thread(system.actors, target, args, name),
    )
    return _patched(
        {
            files: {"os": seen, "fcntl": Locks(system, seen), "time": clock, "fs": arrow, "secrets": tokens}
            | {"open": seen.fdopen, "threading": SimpleNamespace(Lock=lambda: Lock(system.actors))},
            folder: {"os": seen, "fs": arrow, "uuid4": lambda: SimpleNamespace(hex=system.token())},
            store: {"time": clock, "secrets": tokens},
            epochs: {"threading": threads},
            epoch_thread: {"time": clock, "threading": threads},
        }
    )


@contextlib.contextmanager
def _patched(names: Mapping[ModuleType, Mapping[str, object]]) -> Iterator[None]:
    before = {
        module: {name: vars(module)[name] for name in there if name in vars(module)} for module, there in names.items()
    }
    try:
        for module, there in names.items():
            vars(module).update(there)
        yield
    finally:
        for module, there in names.items():
            for name in there:
                del vars(module)[name]
            vars(module).update(before[module])


def _filesystem(system: System, uri: str) -> tuple[ArrowFiles, str]:
    return ArrowFiles(system, is_local=not uri.startswith(BUCKET)), "/" + uri.removeprefix(BUCKET).lstrip("/")


class Os:
    """The module `os`, as far as it is called."""

    O_RDONLY, O_WRONLY, O_RDWR = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
    O_CREAT, O_EXCL, O_NONBLOCK, O_DIRECTORY = os.O_CREAT, os.O_EXCL, os.O_NONBLOCK, os.O_DIRECTORY

    def __init__(self, system: System) -> None:
        self._system, self._disk = system, system.disk
        self.opened: dict[int, tuple[Node, str]] = {}
        self._last = 2
        self.path = SimpleNamespace(
            **{name: getattr(posixpath, name) for name in ("abspath", "expanduser", "join", "dirname", "basename")},
            isdir=lambda path: (node := self._disk.find(path)) is not None and node.entries is not None,
            lexists=lambda path: self._disk.find(path) is not None,
        )

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # nobody is kept out
        """A descriptor."""
        node = self._disk.find(path)
        if flags & os.O_CREAT and (node is None or flags & os.O_EXCL):
            self._system.change("make", path, lambda: self._disk.make_file(path))
        node = self._disk.at(path)
        if flags & os.O_DIRECTORY and node.entries is None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        self._last += 1
        self.opened[self._last] = node, path
        return self._last

    def close(self, descriptor: int) -> None:
        """Done; a lock goes with it."""
        _, path = self.opened.pop(descriptor)
        self._system.locked_by.pop(f"{path}:{descriptor}", None)

    def fdopen(self, descriptor: int, *_: object, **__: object) -> io.BytesIO:
        """To be read."""
        node, path = self.opened[descriptor]
        self._system.read(path)
        if node.entries is not None:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return io.BytesIO(bytes(node.data))

    def fstat(self, descriptor: int) -> SimpleNamespace:
        """Size and kind."""
        return _stat(self.opened[descriptor][0])

    def stat(self, path: str) -> SimpleNamespace:
        """Size and kind."""
        return _stat(self._disk.at(path))

    def listdir(self, path: str) -> list[str]:
        """The names in a folder."""
        self._system.read(path)
        return list(self._disk.folder(path))

    def write(self, descriptor: int, data: memoryview) -> int:
        """All of it, unless the process dies meanwhile."""
        node, path = self.opened[descriptor]
        given = bytes(data)
        self._system.change(
            "write", path, lambda: node.data.extend(given), lambda: node.data.extend(given[: len(given) // 2])
        )
        return len(given)

    def fsync(self, descriptor: int) -> None:
        """A file's bytes last, or the names in a folder."""
        node, path = self.opened[descriptor]
        self._system.change("sync", path, lambda: _sync(self._disk, node))

    def link(self, source: str, target: str) -> None:
        """Another name."""
        self._system.change("link", target, lambda: self._disk.link(source, target))

    def replace(self, source: str, target: str) -> None:
        """A new name."""
        self._system.change("rename", target, lambda: self._disk.rename(source, target))

    rename = replace

    def unlink(self, path: str) -> None:
        """Take a name away."""
        self._disk.at(path)
        self._system.change("remove", path, lambda: self._disk.remove(path))

    def mkdir(self, path: str) -> None:
        """A folder."""
        self._system.change("make", path, lambda: self._disk.make_folder(path))

    def rmdir(self, path: str) -> None:
        """Take an empty folder away."""
        self._disk.folder(path)
        self._system.change("remove", path, lambda: self._disk.remove(path))


def _sync(disk: Disk, node: Node) -> None:
    if node.entries is None:
        node.synced = bytes(node.data)
    else:
        disk.sync_names(node)


def _stat(node: Node) -> SimpleNamespace:
    kind = stat.S_IFREG if node.entries is None else stat.S_IFDIR
    return SimpleNamespace(st_size=len(node.data), st_mode=kind, st_ino=node.number, st_mtime_ns=0, st_ctime_ns=0)


class Locks:
    """The module `fcntl`: a lock ends with its descriptor, and with its process."""

    LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB

    def __init__(self, system: System, seen: Os) -> None:
        self._system, self._os = system, seen

    def flock(self, descriptor: int, _: int) -> None:
        """Take it, or BlockingIOError."""
        held, path = self._system.locked_by, self._os.opened[descriptor][1]
        self._system.look()
        for key in [key for key, process in held.items() if process.is_dead]:
            del held[key]
        if any(key.startswith(f"{path}:") for key in held):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        held[f"{path}:{descriptor}"] = self._system.process


class _Put:
    """A file that is being written; it is there, or grows, when it is closed."""

    def __init__(self, done: Callable[[bytes], None]) -> None:
        self._data, self._done = bytearray(), done
        self.closed = False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """More bytes."""
        self._data += memoryview(data)
        return len(memoryview(data))

    def flush(self) -> None:
        """Later."""

    def close(self) -> None:
        """Now."""
        if not self.closed:
            self.closed = True
            self._done(bytes(self._data))

    def __enter__(self) -> _Put:
        """Nothing is written before the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """As Arrow's streams do, whatever has happened."""
        self.close()


class ArrowFiles:
    """`pyarrow.fs.FileSystem`, as far as it is called: this machine's disk, or an object store."""

    def __init__(self, system: System, *, is_local: bool) -> None:
        self._system, self._disk, self._is_local = system, system.disk, is_local
        self.type_name = "local" if is_local else "s3"

    def get_file_info(self, asked: str | fs.FileSelector) -> fs.FileInfo | list[fs.FileInfo]:
        """One path, or what lies in a folder."""
        self._system.read(asked if isinstance(asked, str) else asked.base_dir, is_object=not self._is_local)
        if isinstance(asked, str):
            return self._info(asked)
        found = [self._info(f"{asked.base_dir}/{name}") for name in self._disk.names(asked.base_dir)]
        if asked.recursive:
            below = [info.path for info in found if info.type == fs.FileType.Directory]
            selectors = [fs.FileSelector(path, recursive=True) for path in below]
            found += [info for selector in selectors for info in self.get_file_info(selector)]
        return found

    def _info(self, path: str) -> fs.FileInfo:
        node = self._disk.find(path)
        if node is None:
            return fs.FileInfo(path, type=fs.FileType.NotFound)
        if node.entries is not None:
            return fs.FileInfo(path, type=fs.FileType.Directory)
        return fs.FileInfo(path, type=fs.FileType.File, size=len(node.data), mtime_ns=self._system.clock() * 1000)

    def open_input_stream(self, path: str, **_: object) -> io.BytesIO:
        """To be read."""
        self._system.read(path, is_object=not self._is_local)
        node = self._disk.at(path)
        if node.entries is not None:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        return io.BytesIO(bytes(node.data))

    open_input_file = open_input_stream

    def open_output_stream(self, path: str, **_: object) -> _Put:
        """To be written."""
        if not self._is_local:
            return _Put(lambda data: self._put(path, data))
        if self._disk.find(path) is None:
            self._system.change("make", path, lambda: self._disk.make_file(path))
        node = self._disk.at(path)
        return _Put(lambda data: self._write(path, node, data))

    def _write(self, path: str, node: Node, data: bytes) -> None:
        def now(given: bytes) -> None:
            node.data[:] = given

        self._system.change("write", path, lambda: now(data), lambda: now(data[: len(data) // 2]))

    def _put(self, path: str, data: bytes) -> None:
        def now() -> None:
            self._make_above(path)
            node = Node()
            node.data[:] = data
            node.synced = data
            if self._disk.find(path) is not None:
                self._disk.remove(path)
            self._disk.name(path, node)
            self._lasts(path)

        self._system.change("put", path, now, lambda: None)

    def _make_above(self, path: str) -> None:
        above = posixpath.dirname(path)
        if self._disk.find(above) is None:
            self._make_above(above)
            self._disk.make_folder(above)
            self._lasts(above)

    def _lasts(self, path: str) -> None:
        if not self._is_local:
            self._disk.sync_names(self._disk.at(posixpath.dirname(path)))

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """A folder and those above it; an object store has none."""
        missing = [path] if self._disk.find(path) is None else []
        while missing and recursive and self._disk.find(above := posixpath.dirname(missing[-1])) is None:
            missing.append(above)
        for found in reversed(missing):
            self._system.change("make", found, partial(self._made, found))

    def _made(self, path: str) -> None:
        self._disk.make_folder(path)
        self._lasts(path)

    def delete_file(self, path: str) -> None:
        """Take a file away; FileNotFoundError."""
        self._disk.at(path)
        self._system.change("remove", path, lambda: self._removed(path))

    def _removed(self, path: str) -> None:
        self._disk.remove(path)
        self._lasts(path)

    def delete_dir(self, path: str) -> None:
        """Take a folder away, and what is in it first."""
        for name in list(self._disk.folder(path)):
            below = f"{path}/{name}"
            (self.delete_file if self._disk.at(below).entries is None else self.delete_dir)(below)
        self._system.change("remove", path, lambda: self._removed(path))

    def move(self, source: str, target: str) -> None:
        """A new name; on an object store a copy, and then the old one goes."""
        self._disk.at(source)
        if self._is_local:
            self._system.change("rename", target, lambda: self._disk.rename(source, target))
        else:
            self.copy_file(source, target)
            self.delete_file(source)

    def copy_file(self, source: str, target: str) -> None:
        """The same bytes under another name, which an object store does by itself."""
        self._put(target, bytes(self._disk.at(source).data))
