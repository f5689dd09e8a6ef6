"""Temporary folders of mode 0700 that do not outlive their process, even when it is killed.

The owner holds a lock on a file inside; the kernel drops the lock with the process. The next process that makes a
folder removes folders whose lock is free (`test_the_folder_of_a_dead_process_is_reaped_and_no_other`). Rejected:
process numbers in names, which are reused and mean nothing across containers that share a temporary folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

PREFIX = "penstock-"
LOCK = ".alive"


class PrivateFolder:
    """A folder for files of this process; removed by `remove`, with this object, or by the next process.

    `before` is called before the removal, to end processes that still write there.
    """

    def __init__(self, kind: str, before: Callable[[], None] = lambda: None) -> None:
        reap()
        self.path, descriptor = _made(kind)
        self._finalise = weakref.finalize(self, _remove, self.path, descriptor, os.getpid(), before)

    @property
    def alive(self) -> bool:
        """Whether the folder is still there."""
        return self._finalise.alive

    def remove(self) -> None:
        """Delete the folder and everything in it."""
        self._finalise()


def _made(kind: str) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock.

    Between making the lock file and locking it, another process may take the folder for a dead owner's and remove it.
    Then we get the lock of a file that has gone, and make another folder.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))  # mkdtemp makes it 0700
        try:
            descriptor = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if (path / LOCK).exists():
            return path, descriptor
        os.close(descriptor)


def _remove(path: Path, descriptor: int, owner: int, before: Callable[[], None]) -> None:
    if os.getpid() != owner:  # a fork of the owner ends, and the folder is not its own
        return
    try:
        before()
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def reap() -> None:
    """Remove folders of this user whose owner is dead."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            if lock.stat().st_uid != os.getuid():
                continue
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)
