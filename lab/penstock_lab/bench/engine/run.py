"""A dataflow on worker processes of this machine, timed without Spark's start-up.

The processes run the same `Worker` over the same rings or sockets as in a Spark job. Time counts from when all workers
are connected and ready until the last one has finished.
"""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Any

import pyarrow as pa

from penstock.errors import InternalError
from penstock.model.task_id import operator_of
from penstock.run.contract import END_OF_TIME_US
from penstock.run.dataflow import Dataflow
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings
from penstock.run.transport.host import own_identity
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.socket import listen

LIMIT_SECONDS = 300.0
METERED = ("tasks", "edges", "workers")

Row = dict[str, Any]


@dataclass(frozen=True)
class Timed:
    """What one run took."""

    seconds: float
    cpu_seconds: float
    tuples_in: Mapping[str, int]  # by operator
    answers: tuple[object, ...] = ()  # what `at_end` said in each worker
    balance: tuple[dict[str, object], ...] = ()  # decisions of splitters, as rows of the metric log
    metered: Mapping[str, list[Row]] = field(default_factory=dict)  # rows of the metric log, by table
    running_cpu_s: float = 0.0  # of all processes, from when their tasks are opened; connecting is left out


class _Recorder:
    """Keeps the metric rows of one worker instead of sending them to a driver."""

    def __init__(self) -> None:
        self._quiet, self._never = multiprocessing.Pipe()
        self.tuples_in: dict[str, int] = {}
        self.balance: list[Row] = []
        self.metered: dict[str, list[pa.RecordBatch]] = {table: [] for table in METERED}

    def fileno(self) -> int:
        """Not readable: no commands come in a benchmark."""
        return self._quiet.fileno()

    def commands(self) -> list[str]:
        """None."""
        return []

    def over(self) -> None:
        """Nobody asks for that here."""

    def moves(self, said: Mapping[str, object]) -> None:
        """Nor for this."""

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        """Sources do not wait for other workers in a benchmark."""
        return dict.fromkeys(floors, END_OF_TIME_US)

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Add up what matters to a benchmark."""
        for row in tables["tasks"].to_pylist():
            operator = operator_of(row["task"])
            self.tuples_in[operator] = self.tuples_in.get(operator, 0) + row["tuples_in"]
        for table, batches in self.metered.items():
            batches.append(tables[table])  # as it is: turning it into rows would count as the worker's CPU
        if "balance" in tables:
            self.balance += tables["balance"].to_pylist()

    def rows(self) -> dict[str, list[Row]]:
        """What the meters said, afterwards."""
        return {table: [row for batch in found for row in batch.to_pylist()] for table, found in self.metered.items()}


class _Clocked(Worker):
    """A worker that notes the CPU time of its process when it has met the others."""

    opened_at_cpu_s = 0.0

    def open(self) -> None:
        """Note it."""
        self.opened_at_cpu_s = time.process_time()
        super().open()


def timed_run(
    dataflow: Dataflow,
    worker_of: Mapping[str, int],
    settings: RunSettings | None = None,
    at_end: Callable[[], object] = lambda: None,
) -> Timed:
    """Run to the end on one forked process for each worker in `worker_of`; `at_end` is called in each."""
    count = max(worker_of.values()) + 1
    context = multiprocessing.get_context("fork")
    listeners = [listen("127.0.0.1") for _ in range(count)]
    here = own_identity()
    places = tuple(WorkerPlace(w, "local", "127.0.0.1", s.getsockname()[1], here) for w, s in enumerate(listeners))
    deployment = Deployment("bench", places, worker_of, settings or RunSettings())
    key, ready = secrets.token_bytes(32), context.Barrier(count)
    pipes = [context.Pipe(duplex=False) for _ in range(count)]

    def body(w: int, barrier: Barrier, pipe: Connection) -> None:
        recorder = _Recorder()
        worker = _Clocked(dataflow, deployment, w, recorder, {"deliver": lambda name, batch: None, "job": "bench"})
        barrier.wait()
        began = time.monotonic()
        worker.run(listeners[w], key)
        ended, used = time.monotonic(), time.process_time()
        running = used - worker.opened_at_cpu_s
        pipe.send((began, ended, used, recorder.tuples_in, at_end(), recorder.balance, recorder.rows(), running))

    processes = [context.Process(target=body, args=(w, ready, pipes[w][1])) for w in range(count)]
    for process in processes:
        process.start()
    for listener in listeners:
        listener.close()  # the workers have them now
    answers = []
    for process, (reader, _) in zip(processes, pipes, strict=True):
        wait([reader, process.sentinel], LIMIT_SECONDS)
        if not reader.poll():
            msg = f"a benchmark worker {_silence(process)}"
            for other in processes:
                other.kill()
            raise InternalError(msg)
        answers.append(reader.recv())
    for process in processes:
        process.join()
    tuples: dict[str, int] = {}
    for _, _, _, counted, *_ in answers:
        for operator, rows in counted.items():
            tuples[operator] = tuples.get(operator, 0) + rows
    return Timed(
        max(a[1] for a in answers) - min(a[0] for a in answers),
        sum(a[2] for a in answers),
        tuples,
        tuple(a[4] for a in answers),
        tuple(row for a in answers for row in a[5]),
        {table: [row for a in answers for row in a[6][table]] for table in METERED},
        sum(a[7] for a in answers),
    )


def _silence(process: BaseProcess) -> str:
    """Why there is no answer."""
    process.join(1.0)  # the pipe may end a moment before the status is known
    if process.exitcode is None:
        return f"gave no answer within {LIMIT_SECONDS:g} s"
    return f"ended with status {process.exitcode} and no answer; what it raised is on stderr"
