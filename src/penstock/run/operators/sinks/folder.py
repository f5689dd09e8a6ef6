"""A folder that `pyarrow.fs` reaches, by path or URI, and what makes its files last and appear whole.

On a local disk a file lasts when it and its folder have been synced, and appears whole by a rename. On an object store
a file is there, whole, when its stream has been closed. Other file systems (HDFS) rename. `pathlib` would know the
first kind only.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from penstock.errors import InvalidInput
from penstock.run.operators.sinks.uris import hadoop_uri, shown

PUTS_WHOLE = ("s3", "gcs", "abfs", "py::")  # a file appears when it is closed; renaming would copy it
STAGING = "_staging"  # below the folder of a sink: what no epoch has published yet; Spark passes over such names
STREAM_BYTES = 1 << 20  # gathered before they are written
REASON_MAX = 300  # characters of what a file system says
WITHOUT_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK})


class Folder:
    """One folder; names are relative to it and may have slashes."""

    def __init__(self, given: str, filesystem: fs.FileSystem | None = None) -> None:
        self.given = shown(given).rstrip("/") or given
        if filesystem is None:
            filesystem, given = _reached(given)
        self.filesystem, self.path = filesystem, given.rstrip("/") or given
        self.is_local = filesystem.type_name == "local"
        self.puts_whole = filesystem.type_name.startswith(PUTS_WHOLE)

    def __repr__(self) -> str:
        return f"Folder({self.given!r})"

    def inner(self, name: str) -> Folder:
        """A folder inside this one."""
        found = Folder(f"{self.path}/{name}", self.filesystem)
        found.given = f"{self.given}/{name}"
        return found

    def at(self, name: str) -> str:
        """What the file system calls a file."""
        return f"{self.path}/{name}"

    def named(self, name: str) -> str:
        """A file's path or URI, in the form in which the folder was given, without keys."""
        return f"{self.given}/{name}"

    def hadoop_uri(self, name: str) -> str:
        """A file's URI as Spark has it."""
        if self.is_local or "://" not in self.given:
            return "file://" + quote(self.at(name))
        return hadoop_uri(self.given, name)

    # -- looking -------------------------------------------------------------------------------------------------------

    def files(self, *, recursive: bool = False) -> list[fs.FileInfo]:
        """The files in it, in order; none where there is no such folder."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=recursive)
        found = [info for info in self.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
        return sorted(found, key=lambda info: str(info.path))

    def visible(self) -> list[fs.FileInfo]:
        """The files in it and below that Spark reads: it passes over names that begin with a dot or an underscore."""
        return [info for info in self.files(recursive=True) if _is_visible(info.path[len(self.path) :])]

    def names(self) -> list[str]:
        """The names of its files, in order."""
        return [info.base_name for info in self.files()]

    def file(self, name: str) -> fs.FileInfo | None:
        """A file of that name, if there is one."""
        info = self.filesystem.get_file_info(self.at(name))
        return info if info.type == fs.FileType.File else None

    def read(self, name: str) -> bytes:
        """The bytes of a small file."""
        with self.filesystem.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read())

    # -- changing ------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folder and those above it; on a local disk they last."""
        made, above = [self.path], os.path.dirname(self.path) or "/"
        while self.is_local and not os.path.isdir(above):
            made.append(above)
            above = os.path.dirname(above)
        self.filesystem.create_dir(self.path, recursive=True)
        if self.is_local:
            self.sync()
            for path in made:
                _sync(os.path.dirname(path) or "/")

    def write(self, name: str, data: bytes) -> None:
        """Make a file that appears whole and lasts; FileExistsError where one is there, as far as that can be seen.

        Where an object store was given all and answers with an error, the file may be there: it stays, because readers
        may have seen it (`test_a_put_whose_answer_is_lost_is_not_taken_back`).
        """
        hidden = name if self.puts_whole else f".{name}.{uuid4().hex[:8]}.writing"
        if self.file(name) is not None:
            raise FileExistsError(self.named(name))
        is_given = False
        try:
            with self.filesystem.open_output_stream(self.at(hidden)) as stream:
                stream.write(data)
                is_given = self.puts_whole
        except BaseException:
            if is_given:
                raise
            with contextlib.suppress(OSError, pa.ArrowException):  # closing has kept what there was room for
                self.filesystem.delete_file(self.at(hidden))
            raise
        if self.is_local:
            _sync(self.at(hidden))
            _appears(self.at(hidden), self.at(name))
        elif hidden != name:
            self.filesystem.move(self.at(hidden), self.at(name))
        self.sync()

    def lasting(self, name: str) -> int:
        """Have a file that was closed survive a loss of power; its size."""
        if self.is_local:
            _sync(self.at(name))
            self.sync()
        found = self.file(name)
        if found is None:
            raise FileNotFoundError(self.named(name))
        return int(found.size)

    def sync(self) -> None:
        """Have the names in it survive a loss of power."""
        if self.is_local:
            _sync(self.path)

    def move(self, name: str, into: Folder, as_name: str) -> None:
        """Move a file into another folder of the same file system; `sync` both when all are moved."""
        self.filesystem.move(self.at(name), into.at(as_name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(self.at(name))

    def remove_if_empty(self) -> None:
        """Remove the folder unless something is in it; on a store without folders there is nothing to remove."""
        if self.is_local:
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
        elif not self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True)):
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_dir(self.path)


def _reached(given: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and what it calls the folder."""
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(given)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).replace(given, shown(given)).split())[:REASON_MAX]
        msg = f"cannot use folder {shown(given)!r}: {reason}; give a path, or a URI that pyarrow knows"
        raise InvalidInput(msg) from None  # the error's own text may show a key
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _sync(path: str) -> None:
    with _opened(path) as descriptor:
        os.fsync(descriptor)


def _appears(hidden: str, path: str) -> None:
    """Give a file its name; unlike a rename, a link does not replace what another has written."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        os.unlink(hidden)
        raise
    except OSError as error:
        if error.errno not in WITHOUT_LINKS:
            raise
        os.rename(hidden, path)
    else:
        os.unlink(hidden)


def _is_visible(path: str) -> bool:
    return all(not name.startswith(".") and (not name.startswith("_") or "=" in name) for name in path.split("/"))


def short_name(text: str) -> str:
    """A name for a folder made of any text, the same every time."""
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
