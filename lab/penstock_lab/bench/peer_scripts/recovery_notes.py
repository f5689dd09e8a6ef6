"""What the scripts that time recovery share: rows are noted in a file as they come out, and read by who kills.

A row has a number. A new row is one with a higher number than any that was noted before the kill: rows that come again
do not count. Every engine is given the same rate and the same time before the kill.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

ROWS_PER_SECOND = 1_000
BEFORE_S = 6.0  # between the first row and the kill
LIMIT_S = 90.0
NOTE = struct.Struct("<dq")  # seconds since 1970, highest number so far


def note(path, number):
    """A row of this number has come out; one write, so that notes of several processes stay whole."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, NOTE.pack(time.time(), number))
    finally:
        os.close(file)


def notes(path):
    """All notes so far."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return [NOTE.unpack_from(data, at) for at in range(0, len(data) // NOTE.size * NOTE.size, NOTE.size)]


def first_after(path, killed_at, highest):
    """When the first row came out that had not come before the kill; waits for it."""
    ends = time.time() + LIMIT_S
    while time.time() < ends:
        for at, number in notes(path):
            if at > killed_at and number > highest:
                return at
        time.sleep(0.005)
    sys.exit(f"no new row within {LIMIT_S:.0f} s of the kill")


def wait_for_rows(path, at_least_s):
    """Until rows have come out for so long."""
    ends = time.time() + LIMIT_S
    while time.time() < ends:
        found = notes(path)
        if found and time.time() - found[0][0] >= at_least_s:
            return
        time.sleep(0.02)
    sys.exit(f"no rows came out for {at_least_s:g} s within {LIMIT_S:.0f} s")


def killed(path, kill):
    """Wait, kill, and say how many seconds it took to the first new row."""
    wait_for_rows(path, BEFORE_S)
    kill()
    at = time.time()
    highest = max(number for when, number in notes(path) if when <= at)
    return at, highest


def session_of(leader):
    """Processes of the session that this process leads: Spark's Python daemon leaves the group, not the session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


def descendants(root, proc=Path("/proc")):
    """The parent of each process below this one."""
    parents = {}
    for entry in proc.iterdir():
        try:
            if entry.name.isdigit():
                # The name stands in brackets and may hold anything; what follows the last bracket is numbers.
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found, waiting = {}, [root]
    while waiting:
        above = waiting.pop()
        for pid, parent in parents.items():
            if parent == above and pid not in found:
                found[pid] = parent
                waiting.append(pid)
    return found


def end(process):
    """Kill a program and everything that it has started, as when its machine is lost."""
    for pid in session_of(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()


def restarted(script, folder):
    """Seconds from when `SCRIPT run FOLDER` and all that it started are killed to the first new row of its next run."""
    path, command = str(Path(folder, "notes")), [sys.executable, script, "run", folder]
    processes = [subprocess.Popen(command, start_new_session=True)]
    try:
        at, highest = killed(path, lambda: end(processes[0]))
        processes.append(subprocess.Popen(command, start_new_session=True))
        return first_after(path, at, highest) - at
    finally:
        end(processes[-1])
