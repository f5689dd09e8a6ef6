"""Jobs over rings whose workers are killed, again and again, and what is left of them: `killed_jobs.py COUNT SEED`.

Each job is a circle of word counts on three forked worker processes. One of them is killed with SIGKILL: by itself at
a row, a batch, before it connects, when it says goodbye, or at a step of a switch-over to a larger ring, or by this
process after a random time. The others must end within the limit, and say that their peer has gone unless they had
finished before it mattered. Inboxes begin so small that they grow in every job.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import secrets
import select
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock import _core
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock.run.transport import door, inbox, links, ring
from penstock.run.transport.growth import GrowthLimits
from penstock.run.transport.host import own_identity
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.socket import listen

WORKERS = 3
LINES = 2_000
LIMIT_SECONDS = 60.0
PATIENCE_SECONDS = 3.0  # for a peer that never connects; a job has more
GROWS = GrowthLimits(bytes_max=1 << 17, messages_min=1, obstacles_min=1, looks_between=1)
INBOX_BYTES = 8 * 1024
# Steps of a switch-over: what the worker that grows does, then what a peer does that follows.
SWITCH_POINTS = ("next_made", "offered", "before_given_up", "next_taken", "moved", "written_next")
POINTS = ("connect", "row", "batch", "goodbye", "outside", *SWITCH_POINTS)


@dataclass(frozen=True)
class Death:
    """Who is killed and when; `at` counts rows or batches, or is the share of a short time."""

    victim: int
    point: str
    at: int


def left_behind() -> dict[str, int]:
    """Segments, processes and descriptors that this process and its children hold."""
    children = [p for p in Path("/proc").glob("[0-9]*") if _parent(p) == os.getpid()]
    mine = [Path("/proc/self"), *children]
    open_files = [link for process in mine for link in _links(process)]
    return {
        "segments": sum("memfd:" in link for link in open_files),
        "processes": len(children),
        "descriptors": len(open_files),
    }


def _parent(process: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return -1


def _links(process: Path) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dataflow(death: Death) -> Dataflow:
    """Every worker sends to every other; the functions of the victim kill it."""
    left = [death.at]

    def met(point: str, worker: int) -> None:
        if death.point == point and death.victim == worker:
            left[0] -= 1
            if left[0] <= 0:
                _die()

    def lines(task: int, tasks: int) -> Iterator[tuple[str]]:
        for i in range(task, LINES, tasks):
            met("row", task)
            yield (f"w{i % 50} w{i % 7} w{i % 11}",)

    def kept(batch: pa.RecordBatch) -> None:
        met("batch", int(os.environ["PENSTOCK_TEST_WORKER"]))

    top = ps.Topology("killed")
    words = top.source("lines", ps.io.generator(lines, "line string"), tasks=WORKERS).split("line", tasks=WORKERS)
    words.key_by("word").count(tasks=WORKERS, emit="each").sink("out", ps.io.callback(kept), tasks=WORKERS)
    return top.build()


def _die_on_the_way(death: Death) -> None:
    """Let this process die at one of the first times that it reaches a step of a switch-over."""
    first = 2 if death.point == "next_made" else 1  # the inbox to begin with is made by the same function
    times_left = Counter({death.point: first + death.at % 3})

    def dies_after(room: object, name: str, point: str) -> None:
        plain = getattr(room, name)

        def dies(*words: object, **named: object) -> object:
            answer = plain(*words, **named)
            times_left[point] -= answer != 0  # a mark or a batch that found no space has not been written
            if point == death.point and times_left[point] <= 0:
                _die()
            if point == "moved" and answer and death.point == "written_next":
                dies_after(_core, "ring_send_image", "written_next")
                dies_after(_core, "ring_send_batch", "written_next")
            return answer

        setattr(room, name, dies)

    dies_after(inbox, "_reader", "next_made")
    dies_after(inbox.Inbox, "_give_up", "before_given_up")
    dies_after(ring.RingChannel, "invite", "offered")
    dies_after(ring, "take", "next_taken")
    dies_after(ring.RingChannel, "_move_to", "moved")


def run_job(death: Death) -> Counter[str]:
    """How each worker ended: `finished`, `peer` (gone), `killed`, or the name of another error."""
    dataflow = _dataflow(death)
    context = multiprocessing.get_context("fork")
    listeners = [listen("127.0.0.1") for _ in range(WORKERS)]
    here = own_identity()
    places = tuple(WorkerPlace(w, "n", "127.0.0.1", s.getsockname()[1], here) for w, s in enumerate(listeners))
    place = {task: int(task.rpartition("/")[2]) for task in task_ids(dataflow)}
    settings = RunSettings(rows_max=50, window_bytes=20_000, transport="ring")
    deployment = Deployment("killed", places, place, settings)
    key = secrets.token_bytes(32)

    def body(w: int, pipe: Connection) -> None:
        for other in (listener for o, listener in enumerate(listeners) if o != w):
            other.close()  # or a dead worker's door would stay open in the others
        links.CONNECT_SECONDS = door.HANDSHAKE_SECONDS = PATIENCE_SECONDS
        os.environ["PENSTOCK_TEST_WORKER"] = str(w)
        worker = Worker(dataflow, deployment, w)
        if w == death.victim and death.point == "connect":
            _die()
        worker._links._transport = links.Transport("ring", INBOX_BYTES, GROWS)
        if w == death.victim and death.point in SWITCH_POINTS:
            _die_on_the_way(death)
        if w == death.victim and death.point == "goodbye":
            worker._links.say_goodbye = lambda listen: _die()  # type: ignore[method-assign] # the moment before
        try:
            worker.run(listeners[w], key)
        except ConnectionError:
            pipe.send("peer")
        except BaseException as error:
            pipe.send(f"{type(error).__name__}: {error}")
        else:
            pipe.send("finished")

    pipes = [context.Pipe(duplex=False) for _ in range(WORKERS)]
    processes = [context.Process(target=body, args=(w, pipes[w][1])) for w in range(WORKERS)]
    try:
        for process in processes:
            process.start()
        for listener in listeners:
            listener.close()
        if death.point == "outside":
            select.select([], [], [], death.at / 20_000)
            os.kill(processes[death.victim].pid or 0, signal.SIGKILL)
        return Counter(_ending(process, pipe[0]) for process, pipe in zip(processes, pipes, strict=True))
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()
        for pipe in pipes:
            pipe[0].close()
            pipe[1].close()


def _ending(process: multiprocessing.process.BaseProcess, pipe: Connection) -> str:
    process.join(LIMIT_SECONDS)
    if process.exitcode is None:
        return "hangs"
    if pipe.poll(0):
        return str(pipe.recv())
    return "killed" if process.exitcode == -signal.SIGKILL else f"exit {process.exitcode}"


def any_death(chance: random.Random) -> Death:
    """A random way to go."""
    # Peers of one that never connects wait for it for a while, so that is the rarest.
    point = chance.choices(POINTS, weights=(1, 6, 6, 6, 6, *(3 for _ in SWITCH_POINTS)))[0]
    return Death(chance.randrange(WORKERS), point, chance.randrange(1, 25 if point == "batch" else 600))


def main(count: int, seed: int) -> int:
    """So many killed jobs; tells how workers ended and what is left; 0 when nothing is, and everybody ended well."""
    chance = random.Random(seed)
    run_job(any_death(chance))  # whatever is made once
    before, endings = left_behind(), Counter[str]()
    for _ in range(count):
        endings += run_job(any_death(chance))
    after = left_behind()
    sys.stdout.write(f"{count} jobs, workers {dict(endings)}, left before {before}, after {after}\n")
    good = set(endings) <= {"finished", "peer", "killed"} and before == after
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
