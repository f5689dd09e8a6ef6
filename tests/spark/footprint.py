"""What a job may leave behind: threads, listening sockets, segments, temporary folders, here and in its workers."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

from penstock.deploy.driver.rendezvous import wait_until
from penstock.deploy.session.private_folder import PREFIX


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
            held |= {f"segment {pid} {link}" for link in open_files(pid) if "memfd:penstock" in link}
        return held


def python_workers() -> list[int]:
    """Processes below this one that PySpark's daemons have forked; the daemons themselves are Spark's own affair."""
    parents = _parents()
    daemons_and_workers = {
        process for process in below(os.getpid()) if b"penstock.deploy.worker.daemon" in words(process)
    }
    return [process for process in daemons_and_workers if parents.get(process) in daemons_and_workers]


def below(ancestor: int) -> list[int]:
    """Children of a process, their children, and so on."""
    parents = _parents()
    return [process for process in parents if _is_below(process, ancestor, parents)]


def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def words(pid: int) -> list[bytes]:
    """The command line of a process; none of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def _is_below(process: int, ancestor: int, parent_of: dict[int, int]) -> bool:
    while process in parent_of:
        process = parent_of[process]
        if process == ancestor:
            return True
    return False


def open_files(pid: int) -> set[str]:
    """What a process's descriptors lead to."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(entry.readlink()))
    return found


def _listening(pid: int) -> set[int]:
    """Ports on which a process listens."""
    sockets = open_files(pid)
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return set()
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
