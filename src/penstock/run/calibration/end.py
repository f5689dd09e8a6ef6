"""One end of the stream that is measured: a process that runs a worker for each case and says what CPU that took.

    python -P -m penstock.run.calibration.end     a line of JSON for each case on stdin, and one answer on stdout

The worker is the real one, with its loop, its machine, its meters and its links, so what is measured is what a job
pays. A source emits like batches over and over, and a task takes it and does nothing. CPU is that of the process
from the moment at which the task is opened, when the workers have met, until it is closed. What arrives is read once,
because the first reader of what another core has written pays for that.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pyarrow as pa

from penstock.model.costs import DISTANCES
from penstock.run.calibration.cases import READING
from penstock.run.contract import ENDED, Outputs, Polled, SourceTask, Task, TaskContext
from penstock.run.dataflow import FORWARD, Dataflow, Grouping, Input, OperatorSpec
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings
from penstock.run.transport.host import own_identity
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.socket import listen

HOST = "127.0.0.1"
LINE_BYTES = 64
DIFFERENT = 8  # batches that take turns
GAP_US = 100  # between two batches: a stream that keeps up finds its receiver at rest and has to wake it
SOURCE, TAKER = "source/0", "taker/0"


class Clock:
    """CPU of this process between the first opening and the last closing of a task."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.ended = 0.0

    def open(self) -> None:
        """A task is opened."""
        self.began = time.process_time() if self.began is None else self.began

    def close(self) -> None:
        """A task is closed."""
        self.ended = time.process_time()

    @property
    def seconds(self) -> float:
        """What was taken."""
        return 0.0 if self.began is None else self.ended - self.began


class Repeating(SourceTask):
    """Emits so many batches, a few different ones by turns: none of a job's is still in the nearest cache."""

    def __init__(self, batches: Sequence[pa.RecordBatch], count: int, clock: Clock, *, reads: bool) -> None:
        self._batches, self._left, self._clock, self._reads = batches, count, clock, reads

    def open(self, context: TaskContext) -> None:
        """Begin to count CPU."""
        super().open(context)
        self._clock.open()

    def poll(self, now_us: int, out: Outputs) -> Polled:
        """One batch."""
        batch = self._batches[self._left % len(self._batches)]
        if self._reads:
            read(batch)
        out.emit(batch)
        self._left -= 1
        return Polled(wait_until_us=now_us + GAP_US) if self._left else ENDED

    def close(self) -> None:
        """Count no more CPU."""
        self._clock.close()


class Taking(Task):
    """Reads batches and does nothing more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def open(self, context: TaskContext) -> None:
        """Begin to count CPU."""
        super().open(context)
        self._clock.open()

    def process(self, batch: pa.RecordBatch, port: int, out: Outputs) -> None:
        """Read it."""
        read(batch)

    def close(self) -> None:
        """Count no more CPU."""
        self._clock.close()


def read(batch: pa.RecordBatch) -> None:
    """Look at each cache line of the batch."""
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is not None:
                np.frombuffer(buffer, np.uint8)[::LINE_BYTES].max(initial=0)


def batch_of(size: int, rows: int) -> pa.RecordBatch:
    """So many rows of a number and a text, about so many bytes in all."""
    text = "x" * max(0, size // rows - 12)  # 8 bytes for the number, 4 for the text's offset
    return pa.record_batch({"number": pa.array(range(rows), pa.int64()), "text": pa.array([text] * rows)})


def flow_of(batches: Sequence[pa.RecordBatch], count: int, clock: Clock, *, taken: bool, reads: bool) -> Dataflow:
    """A source, and a task that takes what it emits."""
    source = OperatorSpec(
        "source",
        "source",
        lambda: Repeating(batches, count, clock, reads=reads),
        outputs={"out": batches[0].schema},
        role="source",
    )
    read = Input("source", grouping=Grouping(FORWARD))
    taker = OperatorSpec("taker", "taker", lambda: Taking(clock), inputs=(read,))
    return Dataflow("calibration", (source, taker) if taken else (source,))


class Asked(TypedDict):
    """What the parent asks for."""

    size: int
    rows: int
    batches: int
    distance: str  # call, ring or socket; or the source is alone, READING each batch or not (NOTHING)


class Told(TypedDict):
    """What an end must know of both."""

    ports: list[int]
    me: int
    key: str


def run_case(asked: Asked, told: Told, listener: socket.socket) -> float:
    """One worker's part of a case; the CPU seconds that it took."""
    clock, taken = Clock(), asked["distance"] in DISTANCES
    batches = [batch_of(asked["size"], asked["rows"]) for _ in range(DIFFERENT)]
    flow = flow_of(batches, asked["batches"], clock, taken=taken, reads=asked["distance"] == READING)
    worker_of = {SOURCE: 0, **({TAKER: len(told["ports"]) - 1} if taken else {})}
    here = own_identity()
    places = tuple(WorkerPlace(w, "here", HOST, port, here) for w, port in enumerate(told["ports"]))
    settings = RunSettings(transport="ring" if asked["distance"] == "ring" else "socket")
    worker = Worker(flow, Deployment("calibration", places, worker_of, settings), told["me"])
    worker.run(listener, bytes.fromhex(told["key"]))
    return clock.seconds


def main() -> None:
    """Answer cases until stdin ends: first with a port, then, told both ports and a key, with the CPU taken."""
    for line in sys.stdin:
        asked: Asked = json.loads(line)
        listener = listen(HOST)
        _say({"port": listener.getsockname()[1]})
        told: Told = json.loads(sys.stdin.readline())
        try:
            _say({"cpu": run_case(asked, told, listener)})
        except Exception as error:  # one distance's trouble must not end the others
            listener.close()
            _say({"failure": " ".join(str(error).split())})


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
