"""What a job may leave behind: threads, listening sockets, temporary folders."""

from __future__ import annotations

import os
import threading
from pathlib import Path

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
        held |= {f"folder {path}" for path in Path("/tmp").glob("penstock-results-*")}  # noqa: S108
        for pid in [os.getpid(), *python_workers()]:
            held |= {f"listening {pid} {port}" for port in _listening(pid)}
        return held


def python_workers() -> list[int]:
    """Processes forked from PySpark's daemons; the daemons themselves are Spark's own affair."""
    daemons_and_workers: dict[int, int] = {}  # process -> parent
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"penstock.deploy.daemon" in words:
                daemons_and_workers[int(entry.name)] = parent
    return [process for process, parent in daemons_and_workers.items() if parent in daemons_and_workers]


def _listening(pid: int) -> set[int]:
    """Ports on which a process listens."""
    try:
        sockets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return set()
    rows = [line.split() for line in lines]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
