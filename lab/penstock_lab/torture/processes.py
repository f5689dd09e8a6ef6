"""What processes hold, as Linux tells: memory, descriptors, threads, segments and sockets; and a hand on those.

A socket of another process is taken by `pidfd_getfd` (Linux 5.6, the same user): what is written there comes from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from dataclasses import dataclass
from pathlib import Path

PIDFD_GETFD = 438  # the number of the system call, the same on every architecture
LISTENING, ESTABLISHED = "0A", "01"


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds; all 0 for one that is gone."""

    memory_bytes: int = 0
    descriptors: int = 0
    threads: int = 0
    segments: int = 0


@dataclass(frozen=True, slots=True)
class Connection:
    """One TCP socket of a process."""

    descriptor: int
    state: str
    local: tuple[str, int]
    remote: tuple[str, int]


def held(pid: int) -> Held:
    """What a process holds now."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        links = _links(pid)
        threads = len(os.listdir(f"/proc/{pid}/task"))
        segments = sum("memfd:penstock" in link for link in links.values())
        return Held(pages * os.sysconf("SC_PAGE_SIZE"), len(links), threads, segments)
    return Held()


def lowest_free(pid: int) -> int:
    """The number that the next descriptor of a process would have."""
    taken_now = _links(pid)
    return next(number for number in range(len(taken_now) + 1) if number not in taken_now)


def is_alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def connections(pid: int) -> list[Connection]:
    """The TCP sockets of a process, those that listen among them."""
    inodes = {link[8:-1]: number for number, link in _links(pid).items() if link.startswith("socket:[")}
    found = []
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes:
                found.append(Connection(inodes[words[9]], words[3], _address(words[1]), _address(words[2])))
    return found


def ports(pid: int) -> list[tuple[str, int]]:
    """Where a process listens."""
    return [each.local for each in connections(pid) if each.state == LISTENING]


def channels(one: int, other: int) -> list[Connection]:
    """The sockets of one process that lead to the other."""
    there = {(each.local, each.remote) for each in connections(other) if each.state == ESTABLISHED}
    return [each for each in connections(one) if (each.remote, each.local) in there and each.state == ESTABLISHED]


def taken(pid: int, descriptor: int) -> socket.socket:
    """A socket of another process, shared with it."""
    library = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        number = library.syscall(PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if number < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"pidfd_getfd: {os.strerror(error)}")
    return socket.socket(fileno=number)


def _links(pid: int) -> dict[int, str]:
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    return socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)
