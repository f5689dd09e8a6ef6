"""Files beneath a store's root, each of which is there whole or not at all, and stays once its writing has returned.

On a local file system a file is written under another name, flushed to the disk and linked to its own name; then the
folder is flushed (`test_a_file_is_on_the_disk_before_its_name_is`). On an object store one put does all of this. Other
file systems that pyarrow reaches move a finished file to its name; whether it is on a disk by then is their affair.
Beyond local disks no call replaces a file for sure: some stores do not move onto a file, some empty the old object when
the new one is opened. So the old one lies aside as `NAME.before` meanwhile, and counts until that is removed
(`test_what_is_replaced_counts_until_the_new_one_does`).
Only local file systems let one process keep others out, so only there are two claims at the same moment told apart.
Rejected: pyarrow's own local file system, which can neither flush nor link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol, TypeAlias

import pyarrow as pa
from pyarrow import fs

UNFINISHED = ".writing"  # how the names of files end that are not there yet
BEFORE = ".before"  # and of those that count until what replaces them is whole
WRITTEN_ONCE = ".part"  # and of those that nobody replaces: there are many, and each look costs on an object store
LOCK = "lock"
LOCK_WAIT_S = 60.0  # a commit takes milliseconds; who goes on moves and removes files, and a driver waits 120 s for it
LOCK_RETRY_S = 0.01
OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
NAMES_MAX = 1_000_000  # in one folder
LOST = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.EFBIG})  # EIO may pass
UNABLE = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EMLINK})

Piece: TypeAlias = bytes | memoryview | pa.Buffer


class LockHeld(TimeoutError):
    """Another process has been inside for too long."""


class Files(Protocol):
    """What a store asks of a file system. Paths are relative to the root, with `/`; faults are OSErrors."""

    root: str

    def read(self, path: str, size_max: int) -> bytes:
        """All bytes of a file, which is no larger than this."""

    def reader(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file to be read from its beginning."""

    def size(self, path: str) -> int | None:
        """Bytes of a file; None: there is no such file."""

    def stamp(self, path: str) -> object:
        """What differs when a file has become another one; None where that cannot be told, or there is no file."""

    def names(self, folder: str) -> list[str]:
        """What lies in a folder; nothing, where there is no folder."""

    def write(self, path: str, pieces: Iterable[Piece]) -> None:
        """A new file, which counts only when another one names it: it may be there in part before this returns."""

    def create(self, path: str, data: bytes) -> None:
        """A new file, whole or not there; FileExistsError where there is one."""

    def replace(self, path: str, data: bytes) -> None:
        """A file in place of the one that is there, if any; where that fails the old one is there as it was."""

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, if it is empty."""

    def settle(self, folder: str) -> None:
        """Have the names in a folder last, whoever gave them: a process that did so may have died before that."""

    def alone(self) -> AbstractContextManager[None]:
        """Nobody else who asks for it is inside meanwhile, where the file system can say so."""


def files_at(root: str, filesystem: fs.FileSystem | None = None) -> Files:
    """The files beneath a path or URI; OSError, ValueError or pa.ArrowException where it cannot be reached."""
    if not root or "\0" in root:
        msg = "it is no path"
        raise ValueError(msg)
    if filesystem is None:
        if "://" not in root and not root.startswith("file:"):
            return LocalFiles(os.path.abspath(os.path.expanduser(root)))
        filesystem, base = fs.FileSystem.from_uri(root)
        if filesystem.type_name == "local":
            return LocalFiles(base)
        return RemoteFiles(filesystem, base, root)
    return RemoteFiles(filesystem, root, root)


class LocalFiles:
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._made: set[str] = set()

    def read(self, path: str, size_max: int) -> bytes:
        """All bytes of a file, which is no larger than this."""
        with self.reader(path) as file:
            return _limited(file.read(size_max + 1), size_max)

    @contextlib.contextmanager
    def reader(self, path: str) -> Iterator[BinaryIO]:
        """A file to be read; a pipe, at which reading would wait, is refused."""
        found = os.open(self._at(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(found).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            with open(found, "rb", buffering=0, closefd=False) as file:
                yield file
        finally:
            os.close(found)

    def size(self, path: str) -> int | None:
        """Bytes of a file; None: there is no such file."""
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def stamp(self, path: str) -> object:
        """Which file it is, and when it was changed."""
        try:
            found = os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""
        try:
            return _few(sorted(os.listdir(self._at(folder))), folder)
        except FileNotFoundError:
            return []

    def write(self, path: str, pieces: Iterable[Piece]) -> None:
        """A new file under its own name, flushed."""
        target = self._at(path)
        self._make(os.path.dirname(target))
        _write(target, pieces)
        self._flush(os.path.dirname(target))

    def create(self, path: str, data: bytes) -> None:
        """A new file, whole or not there."""
        with self._written(path, data) as (unfinished, target):
            try:
                os.link(unfinished, target)
            except FileExistsError:
                raise
            except OSError as error:
                if error.errno not in UNABLE:
                    raise
                if os.path.lexists(target):
                    raise FileExistsError(errno.EEXIST, "it is there already") from None
                os.replace(unfinished, target)

    def replace(self, path: str, data: bytes) -> None:
        """A file in place of another."""
        with self._written(path, data) as (unfinished, target):
            os.replace(unfinished, target)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, if it is empty."""
        self._made.discard(self._at(folder))
        try:
            os.rmdir(self._at(folder))
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST}:
                raise

    def settle(self, folder: str) -> None:
        """Have the names in a folder last, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._flush(self._at(folder))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A lock that ends with the process which holds it."""
        self._make(self.root)
        try:
            lock = os.open(self._at(LOCK), os.O_RDWR | os.O_CREAT, 0o666)
        except IsADirectoryError as error:
            told = f"{self._at(LOCK)} is a folder where a file has to be; remove it"
            raise OSError(error.errno, told) from None
        try:
            _take(lock)
            yield
        finally:
            os.close(lock)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[tuple[str, str]]:
        """A flushed file under another name in the same folder, which is gone in the end."""
        target = self._at(path)
        folder = os.path.dirname(target)
        unfinished = f"{target}.{secrets.token_hex(4)}{UNFINISHED}"
        self._make(folder)
        try:
            _write(unfinished, [data])
            yield unfinished, target
        finally:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        self._flush(folder)

    def _make(self, folder: str) -> None:
        """A folder that is there after a loss of power too, even if who made it died before that was sure."""
        if folder in self._made:
            return
        parent, is_there = os.path.dirname(folder), os.path.isdir(folder)
        if not is_there or folder.startswith(f"{self.root}/"):
            self._make(parent)
        if not is_there:
            with contextlib.suppress(FileExistsError):  # another process was first, or it is a file: the next call says
                os.mkdir(folder)
        try:
            self._flush(parent)
        except PermissionError:  # what is above the root may not be ours to read
            if not is_there:
                raise
        self._made.add(folder)

    @staticmethod
    def _flush(folder: str) -> None:
        found = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(found)
        finally:
            os.close(found)


class RemoteFiles:
    """Whatever else pyarrow reaches."""

    def __init__(self, filesystem: fs.FileSystem, base: str, root: str) -> None:
        self.root = root
        self._fs, self._base = filesystem, base.rstrip("/")
        self._puts = filesystem.type_name in OBJECT_STORES
        self._made: set[str] = set()
        self._alone = threading.Lock()

    def read(self, path: str, size_max: int) -> bytes:
        """All bytes of a file, which is no larger than this."""
        with self.reader(path) as file:
            return _limited(file.read(size_max + 1), size_max)

    def reader(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file to be read from its beginning."""
        stream: AbstractContextManager[BinaryIO]
        if _is_replaced(path):
            with contextlib.suppress(FileNotFoundError):
                stream = self._fs.open_input_stream(self._at(path + BEFORE), compression=None)
                return stream
        stream = self._fs.open_input_stream(self._at(path), compression=None)
        return stream

    def size(self, path: str) -> int | None:
        """Bytes of a file; None: there is no such file."""
        info = self._found(path)
        return int(info.size) if info.type == fs.FileType.File else None

    def stamp(self, path: str) -> object:
        """Its size, and when it was put there, where the store says so."""
        info = self._found(path)
        return (info.size, info.mtime_ns) if info.type == fs.FileType.File and info.mtime_ns else None

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""
        found = self._fs.get_file_info(fs.FileSelector(self._at(folder), allow_not_found=True))
        return _few(sorted({info.base_name.removesuffix(BEFORE) for info in found}), folder)

    def write(self, path: str, pieces: Iterable[Piece]) -> None:
        """A new file, under its own name."""
        self._require_none(path)
        self._make(self._at(path))
        self._put(self._at(path), pieces)

    def create(self, path: str, data: bytes) -> None:
        """A new file, whole or not there; of two at the same moment neither is refused."""
        self._require_none(path)
        target = self._at(path)
        self._make(target)
        if self._puts:
            self._put(target, [data])
            return
        with self._unfinished(target, data) as unfinished:
            self._fs.move(unfinished, target)

    def replace(self, path: str, data: bytes) -> None:
        """A file in place of another, which lies aside and counts until the last step: the removal of that."""
        if self._found(path).type == fs.FileType.NotFound:
            self.create(path, data)
            return
        target, before = self._at(path), self._at(path + BEFORE)
        if self._puts:
            if not self._is_there(before):
                self._fs.copy_file(target, before)
            with self._fs.open_output_stream(target, compression=None) as stream:  # what is left of it does not count
                stream.write(data)
        else:
            with self._unfinished(target, data) as unfinished:
                if not self._is_there(before):
                    self._fs.move(target, before)
                elif self._is_there(target):  # of a replacement that was not done
                    self._fs.delete_file(target)
                self._fs.move(unfinished, target)
        self._fs.delete_file(before)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there: what counts goes last."""
        for each in (path, path + BEFORE) if _is_replaced(path) else (path,):
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_file(self._at(each))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder, if it is empty."""
        self._made.discard(self._at(folder))
        if not self._puts and not self.names(folder):
            with contextlib.suppress(FileNotFoundError):
                self._fs.delete_dir(self._at(folder))

    def settle(self, folder: str) -> None:
        """What is there lasts, as far as can be known."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Other processes cannot be kept out; other threads of this one are."""
        with self._alone:
            yield

    def _at(self, path: str) -> str:
        return "/".join(part for part in (self._base, path) if part)

    def _make(self, target: str) -> None:
        folder = target.rpartition("/")[0]
        if folder and not self._puts and folder not in self._made:
            self._fs.create_dir(folder, recursive=True)
            self._made.add(folder)

    def _found(self, path: str) -> fs.FileInfo:
        """What counts under a name."""
        if _is_replaced(path) and (before := self._fs.get_file_info(self._at(path + BEFORE))).type == fs.FileType.File:
            return before
        return self._fs.get_file_info(self._at(path))

    def _is_there(self, target: str) -> bool:
        return bool(self._fs.get_file_info(target).type != fs.FileType.NotFound)

    def _require_none(self, path: str) -> None:
        if self._found(path).type != fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, "it is there already")

    @contextlib.contextmanager
    def _unfinished(self, target: str, data: bytes) -> Iterator[str]:
        """A whole file under another name in the same folder, to be moved; gone where that fails."""
        unfinished = f"{target}.{secrets.token_hex(4)}{UNFINISHED}"
        self._put(unfinished, [data])
        try:
            yield unfinished
        except BaseException:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._fs.delete_file(unfinished)
            raise

    def _put(self, target: str, pieces: Iterable[Piece]) -> None:
        """A file where none is; nothing is left of it where that fails."""
        try:
            with self._fs.open_output_stream(target, compression=None) as stream:
                for piece in pieces:
                    stream.write(piece)
        except BaseException:
            with contextlib.suppress(OSError, pa.ArrowException):  # closing has put what was written
                self._fs.delete_file(target)
            raise


def folder_beneath(root: str, folder: str) -> str:
    """The path or URI of a folder beneath a root; what a URI asks for behind `?` stays behind."""
    if "://" not in root:
        return os.path.join(root, folder)
    place, question, settings = root.partition("?")
    return f"{place.rstrip('/')}/{folder}{question}{settings}"


def _write(target: str, pieces: Iterable[Piece]) -> None:
    """A new file of these pieces, flushed; nothing is left of it where that fails."""
    made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            for piece in pieces:
                left = memoryview(piece).cast("B")
                while left:
                    left = left[os.write(made, left) :]
            os.fsync(made)
        finally:
            os.close(made)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(target)
        raise


def _take(lock: int) -> None:
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                msg = f"another process has held its lock for {LOCK_WAIT_S:.0f} s"
                raise LockHeld(errno.ETIMEDOUT, msg) from None
            time.sleep(LOCK_RETRY_S)
        except OSError as error:
            if error.errno not in UNABLE:
                raise
            return  # a mounted file system without locks: names that exist once are what is left
        else:
            return


def _is_replaced(path: str) -> bool:
    return not path.endswith(WRITTEN_ONCE)


def _limited(data: bytes, size_max: int) -> bytes:
    if len(data) > size_max:
        raise OSError(errno.EFBIG, f"it is larger than {size_max:,} bytes")
    return data


def _few(names: list[str], folder: str) -> list[str]:
    if len(names) > NAMES_MAX:
        raise OSError(errno.EFBIG, f"{folder} holds {len(names):,} files, more than {NAMES_MAX:,}")
    return names


def is_lost(error: BaseException | None) -> bool:
    """The file itself is gone or broken; anything else may be otherwise in a moment."""
    return isinstance(error, FileNotFoundError) or (isinstance(error, OSError) and error.errno in LOST)


def reason_of(error: BaseException | None) -> str:
    """What a file system says went wrong, as one short line."""
    text: Any = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:300]


def advice_on(error: BaseException, *, reads: bool) -> str:
    """What its user can do about it."""
    if isinstance(error, LockHeld):
        return "one that goes on from there may need so long for many files: try again, or end it if it stands still"
    if reads and isinstance(error, OSError) and error.errno == errno.EIO:
        return "try again, and if it stays so remove that file: the epoch before it is used then"
    return "give a folder that can be written and has room"
