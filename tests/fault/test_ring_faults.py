"""Either end of a ring dies, at each named point and at random: the other goes on, nothing torn, nothing lost.

The work is done by a C++ program (core/tests) with kill points compiled in; `make soak` runs it for 100,000 kills and
`make sanitise` under the sanitisers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".build" / "ring" / "faults"
POINTS = (
    *("claimed", "registered", "reserve_begun", "reserved", "flush_marked", "advanced", "copying", "filled"),
    *("described", "published", "woken", "delivered", "slot_freed", "released", "parked", "restarted"),
)
pytestmark = pytest.mark.xdist_group("ring-faults")  # one build, and no fight over the cores


@pytest.fixture(scope="session")
def program() -> Path:
    made = subprocess.run(
        ["make", "-s", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return PROGRAM


def run(program: Path, *words: object) -> str:
    done = subprocess.run([str(program), *map(str, words)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_point_of_the_program_is_tried_here(program: Path) -> None:
    assert run(program, "points").split() == list(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_a_named_point_harms_nobody_else(program: Path, point: str) -> None:
    assert "100 deaths, none lost or torn" in run(program, "kill", point, 100, 1)


@pytest.mark.parametrize("point", ["reserved", "copying", "described"])
def test_a_stopped_producer_holds_the_others_up_no_longer_than_until_it_is_replaced(program: Path, point: str) -> None:
    assert "20 stops, 20 held the others up until then, none lost or torn" in run(program, "stop", point, 20, 1)


def test_random_kills_of_either_end(program: Path) -> None:
    assert "none lost or torn" in run(program, "random", 500, 1)


def test_producers_and_releases_on_many_threads(program: Path) -> None:
    assert "none lost or torn" in run(program, "threads", 1, 1)


def test_mutated_segments_end_in_typed_errors(program: Path) -> None:
    assert "3000 mutated segments" in run(program, "fuzz", 3000, 1)


PAIR = """
import sys
from penstock.run.transport.links import Links, Transport, WorkerPlace
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.socket import listen
import pyarrow as pa
me, key = int(sys.argv[1]), sys.argv[2].encode()
batch = pa.record_batch({"bytes": [bytes(4000)]})
listener = listen("127.0.0.1")
print(listener.getsockname()[1], flush=True)
ports = [int(word) for word in sys.stdin.readline().split()]
places = [WorkerPlace(w, "n", "127.0.0.1", port, "here") for w, port in enumerate(ports)]
links = Links(me, 1, {0: 1 - me}, {0: 1 - me}, Transport("ring"))
links.open(listener, places, key)
print("open", flush=True)
try:
    while True:
        if not links.statistics()[1 - me][1].bytes_waiting:
            links.send_batch(0, batch, 0)
        links.wait(0.001)
except PeerGone:
    sys.exit(3)
"""


def segments_of(process: int) -> set[int]:
    """Inodes of the ring segments that a process holds open or maps."""
    found = set()
    try:
        for link in Path(f"/proc/{process}/fd").iterdir():
            if "penstock-ring" in os.readlink(link):
                found.add(link.stat().st_ino)
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            if "penstock-ring" in line:
                found.add(int(line.split()[4]))
    except OSError:
        pass  # it has ended, or belongs to another user
    return found


def read(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def write(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_killed_pairs_leave_nothing_behind() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    made: set[int] = set()
    for turn in range(2):
        key = f"key {os.getpid()} {turn}"
        words = [sys.executable, "-c", PAIR]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        first, second = (subprocess.Popen([*words, me, key], text=True, **pipes) for me in "01")
        ports = " ".join(read(process).strip() for process in (first, second))
        for process in (first, second):
            write(process, ports + "\n")
        assert read(first) == read(second) == "open\n"
        assert len(segments_of(first.pid)) == 2  # its own and the peer's
        assert segments_of(first.pid) == segments_of(second.pid)
        made |= segments_of(first.pid)
        victim, other = (first, second) if turn % 2 else (second, first)
        victim.send_signal(signal.SIGKILL)
        assert victim.wait(60) == -signal.SIGKILL
        assert other.wait(60) == 3  # PeerGone: the other end has noticed and given up
        for process in (first, second):
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
    held = {inode for process in os.listdir("/proc") if process.isdigit() for inode in segments_of(int(process))}
    assert not made & held
    assert len(os.listdir("/proc/self/fd")) == descriptors
