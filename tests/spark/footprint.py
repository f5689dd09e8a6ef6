"""What a job may leave behind: threads, listening sockets, segments, temporary folders, here and in its workers."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

from penstock.deploy.private_folder import PREFIX
from penstock.deploy.rendezvous import wait_until


class Footprint:
    """What this process and its Spark workers hold besides what they held before."""

    def __init__(self) -> None:
        self._before = self._now()

    def assert_gone(self) -> None:
        """Fail unless sockets, threads and temporary folders of jobs disappear within seconds."""
        gone = wait_until(lambda: self._now() <= self._before, seconds=15.0)
        assert gone, f"left behind: {sorted(self._now() - self._before)}"

    def _now(self) -> set[str]:
        held = {f"thread {thread.name}" for thread in threading.enumerate() if thread.name.startswith("penstock")}
        held |= {f"folder {path}" for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*")}
        for pid in [os.getpid(), *python_workers()]:
            held |= {f"listening {pid} {port}" for port in _listening(pid)}
            held |= {f"segment {pid} {link}" for link in _open_files(pid) if "memfd:penstock" in link}
        return held


def python_workers() -> list[int]:
    """Processes below this one that PySpark's daemons have forked; the daemons themselves are Spark's own affair."""
    parent_of: dict[int, int] = {}
    daemons_and_workers: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent_of[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"penstock.deploy.daemon" in words:
                daemons_and_workers.add(int(entry.name))
    workers = [process for process in daemons_and_workers if parent_of[process] in daemons_and_workers]
    return [process for process in workers if _is_below(process, os.getpid(), parent_of)]


def _is_below(process: int, ancestor: int, parent_of: dict[int, int]) -> bool:
    while process in parent_of:
        process = parent_of[process]
        if process == ancestor:
            return True
    return False


def _open_files(pid: int) -> set[str]:
    """What a process's descriptors lead to."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found


def _listening(pid: int) -> set[int]:
    """Ports on which a process listens."""
    sockets = _open_files(pid)
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return set()
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
