"""Temporary folders of mode 0700 that do not outlive their process, even when it is killed.

The owner holds a lock on a file inside for as long as it lives; the kernel drops it with the process. Whoever makes the
next folder removes those whose lock nobody holds. Rejected: process numbers in names, which are reused and mean
nothing across containers that share a temporary folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "penstock-"
LOCK = ".alive"


class PrivateFolder:
    """A folder for files of this process; removed by `remove`, with this object, or by the next process."""

    def __init__(self, kind: str) -> None:
        reap()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))  # mkdtemp makes it 0700
        descriptor = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._finalise = weakref.finalize(self, _remove, self.path, descriptor)

    @property
    def alive(self) -> bool:
        """Whether the folder is still there."""
        return self._finalise.alive

    def remove(self) -> None:
        """Delete the folder and everything in it."""
        self._finalise()


def _remove(path: Path, descriptor: int) -> None:
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
