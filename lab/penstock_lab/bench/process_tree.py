"""CPU time of this process and everything below it: Spark's JVM and its Python workers, ours among them.

On a shared machine, wall time depends on other load; CPU time does not. It is read from Linux's /proc, where processes
that have ended count with the parent that waited for them. On other systems there is no figure.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PROCESSES_MAX = 100_000


def tree_cpu_seconds(proc: Path = Path("/proc")) -> float | None:
    """User and system time so far; None where there is no /proc."""
    if not (proc / "self" / "stat").exists():
        return None
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in list(proc.glob("[0-9]*"))[:PROCESSES_MAX]:
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        # The name of a process stands in brackets and may hold anything; what follows the last bracket is numbers.
        fields = text.rpartition(")")[2].split()
        pid = int(folder.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(ticks[pid] for pid in below(os.getpid(), parents) if pid in ticks) / os.sysconf("SC_CLK_TCK")


def parents_of(proc: Path = Path("/proc")) -> dict[int, int]:
    """The parent of each process that lives."""
    found: dict[int, int] = {}
    for folder in list(proc.glob("[0-9]*"))[:PROCESSES_MAX]:
        with contextlib.suppress(OSError):
            found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def below(root: int, parents: dict[int, int]) -> set[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = {root}, [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found
