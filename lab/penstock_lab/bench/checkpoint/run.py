"""A dataflow on worker processes of this machine, with epochs: the product's workers, keepers, coordinator and store.

What a Spark job adds around them is left out: its start and control line, which it has without checkpoints too, and
what checkpoints cost at sinks that keep rows, which stage a file for each epoch and have it published by the driver;
the sinks here keep none. The pause is what the loop of a worker spends at a marker: a step that saves a task, and each
slice that is written behind it.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from penstock.checkpoint.contract import Manifest, Report
from penstock.checkpoint.coordinator import Coordinator, Whole
from penstock.checkpoint.store import Store
from penstock.deploy.worker.keeper import Keeper
from penstock.errors import InternalError
from penstock.model.task_id import operator_of
from penstock.run.contract import END_OF_TIME_US, SETTING_EPOCH
from penstock.run.dataflow import Dataflow
from penstock.run.engine.epochs import epoch_command
from penstock.run.engine.worker import Checkpoint, Deployment, Worker
from penstock.run.machine.instructions import Done, Instruction, Snapshot, Wait
from penstock.run.transport.host import own_identity
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.socket import listen

LIMIT_SECONDS = 300.0
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch, as the driver saw it."""

    began_ns: int  # since 1970
    committed_ns: int
    size: int  # bytes of all parts

    @property
    def seconds(self) -> float:
        """From the driver's word to the manifest."""
        return (self.committed_ns - self.began_ns) / 1e9


@dataclass(slots=True)
class Watched:
    """What one run showed."""

    seconds: float = 0.0
    tuples_in: dict[str, int] = field(default_factory=dict)  # by operator
    epochs: list[Epoch] = field(default_factory=list)
    pauses_ms: list[float] = field(default_factory=list)  # one for each epoch: the longest step that saved a task
    slices_ms: list[float] = field(default_factory=list)  # the longest slice of each epoch
    restore_s: float = 0.0
    peak_mb: float = 0.0  # memory of the largest worker
    answers: list[Any] = field(default_factory=list)


class _Line:
    """A worker's line to the process that plays the driver: words come in, reports and the last answer go out."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.tuples_in: dict[str, int] = {}

    def fileno(self) -> int:
        return self.pipe.fileno()

    def commands(self) -> list[str]:
        found = []
        while self.pipe.poll():
            found.append(self.pipe.recv())
        return found

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        for row in tables["tasks"].to_pylist():
            operator = operator_of(row["task"])
            self.tuples_in[operator] = self.tuples_in.get(operator, 0) + row["tuples_in"]

    def over(self) -> None:
        """Nobody asks for that here."""

    def moves(self, said: Mapping[str, object]) -> None:
        """Nor for this."""

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        return dict.fromkeys(floors, END_OF_TIME_US)


class _Timed(Worker):
    """A worker that times what it does at markers."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401 - as the worker's own
        super().__init__(*given, **named)
        self.pauses_ms: dict[int, float] = {}
        self.slices_ms: dict[int, float] = {}
        self.restore_s = 0.0

    def open(self) -> None:
        """Time the restore."""
        began = time.perf_counter()
        super().open()
        self.restore_s = time.perf_counter() - began

    def step(self, now_us: int) -> Wait | Done | None:
        """Time the slice that a step begins with."""
        if self._snapshots is not None and self._snapshots.writes:
            began = time.perf_counter()
            self._snapshots.write(self._now_us)
            self._note(self.slices_ms, self.machine.epoch, began)
        return super().step(now_us)

    def _seldom(self, instruction: Instruction, now_us: int) -> None:
        if not isinstance(instruction, Snapshot):
            return super()._seldom(instruction, now_us)
        began = time.perf_counter()
        super()._seldom(instruction, now_us)
        return self._note(self.pauses_ms, instruction.epoch, began)

    @staticmethod
    def _note(longest_ms: dict[int, float], epoch: int, began: float) -> None:
        longest_ms[epoch] = max(longest_ms.get(epoch, 0.0), 1e3 * (time.perf_counter() - began))


def watched_run(
    dataflow: Dataflow,
    worker_of: Mapping[str, int],
    root: Path | None,
    interval_s: float = 1.0,
    restore: int | None = None,
    at_end: Callable[[], object] = lambda: None,
) -> Watched:
    """Run to the end on one forked process for each worker; `root` is the store, None: no checkpoints."""
    count = max(worker_of.values()) + 1
    context = multiprocessing.get_context("fork")
    listeners = [listen("127.0.0.1") for _ in range(count)]
    here = own_identity()
    places = tuple(WorkerPlace(w, "local", "127.0.0.1", s.getsockname()[1], here) for w, s in enumerate(listeners))
    store = None if root is None else Store(str(root))
    attempt = 0 if store is None else store.claim(dataflow.name)
    committed = restore or 0
    checkpoint = None if store is None else Checkpoint(store.root, attempt, committed + 1, restore)
    deployment = Deployment("bench", places, worker_of, checkpoint=checkpoint)
    key, ready = secrets.token_bytes(32), context.Barrier(count)
    pipes = [context.Pipe() for _ in range(count)]

    def body(w: int) -> None:
        line = _Line(pipes[w][1])
        settings: dict[str, object] = {"deliver": lambda name, batch: None, "job": "bench"}
        keeper = None
        if checkpoint is not None:
            settings[SETTING_EPOCH] = checkpoint.first
            keeper = Keeper(checkpoint, w, line.pipe.send, _unkept, lambda: False)
        worker = _Timed(dataflow, deployment, w, line, settings, epochs=keeper)
        ready.wait()
        began = time.monotonic()
        worker.run(listeners[w], key)
        line.pipe.send(
            {
                "time": (began, time.monotonic()),
                "tuples": line.tuples_in,
                "pauses": list(worker.pauses_ms.values()),
                "slices": list(worker.slices_ms.values()),
                "restore": worker.restore_s,
                "peak": _peak_mb(),
                "answer": at_end(),
            }
        )
        os._exit(0)  # nothing of the benchmark's own process is to be torn down here

    processes = [context.Process(target=body, args=(w,)) for w in range(count)]
    for process in processes:
        process.start()
    for listener in listeners:
        listener.close()  # the workers have them now
    for _, theirs in pipes:
        theirs.close()
    driver = _Driver(dataflow, worker_of, store, attempt, committed, interval_s, [ours for ours, _ in pipes])
    try:
        answers = driver.run()
    finally:
        for process in processes:
            process.kill()
            process.join()
    found = Watched(epochs=driver.epochs, answers=[answer["answer"] for answer in answers])
    found.seconds = max(a["time"][1] for a in answers) - min(a["time"][0] for a in answers)
    found.pauses_ms = [pause for a in answers for pause in a["pauses"]]
    found.slices_ms = [longest for a in answers for longest in a["slices"]]
    found.restore_s = max(a["restore"] for a in answers)
    found.peak_mb = max(a["peak"] for a in answers)
    for answer in answers:
        for operator, rows in answer["tuples"].items():
            found.tuples_in[operator] = found.tuples_in.get(operator, 0) + rows
    return found


def _unkept(why: str, refused: str) -> None:
    raise InternalError(why)


def _peak_mb() -> float:
    """The most memory that this process has had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


class _Driver:
    """The driver's side: the product's coordinator and store, over pipes."""

    def __init__(
        self,
        dataflow: Dataflow,
        worker_of: Mapping[str, int],
        store: Store | None,
        attempt: int,
        committed: int,
        interval_s: float,
        pipes: list[Connection],
    ) -> None:
        self._dataflow, self._worker_of, self._store, self._attempt = dataflow, worker_of, store, attempt
        self._pipes = pipes
        self._coordinator = Coordinator(attempt, len(pipes), committed, int(interval_s * 1e6), _now_us())
        self._began_ns = 0
        self.epochs: list[Epoch] = []

    def run(self) -> list[dict[str, Any]]:
        """Begin and commit epochs until every worker has given its answer."""
        answers: dict[Connection, dict[str, Any]] = {}
        ends = time.monotonic() + LIMIT_SECONDS
        while len(answers) < len(self._pipes):
            if time.monotonic() > ends:
                msg = f"a benchmark worker gave no answer within {LIMIT_SECONDS:.0f} s"
                raise InternalError(msg)
            self._begin()
            left = [pipe for pipe in self._pipes if pipe not in answers]
            for pipe in wait(left, self._patience_s()):
                said = _said(cast("Connection", pipe))
                if isinstance(said, Report):
                    self._commit(self._coordinator.reported(said))
                else:
                    answers[cast("Connection", pipe)] = said
        return [answers[pipe] for pipe in self._pipes]

    def _patience_s(self) -> float:
        wakes_us = None if self._store is None else self._coordinator.wakes_at()
        return LOOK_SECONDS if wakes_us is None else min(LOOK_SECONDS, max(0.0, (wakes_us - _now_us()) / 1e6))

    def _begin(self) -> None:
        epoch = None if self._store is None else self._coordinator.begins(_now_us())
        if epoch is not None:
            self._began_ns = time.time_ns()
            for pipe in self._pipes:
                try:
                    pipe.send(epoch_command(epoch))
                except OSError:
                    continue  # it has ended just now

    def _commit(self, whole: Whole | None) -> None:
        if whole is None or self._store is None:
            return
        tasks = {operator.name: operator.tasks for operator in self._dataflow.operators}
        now_us = time.time_ns() // 1000
        self._store.commit(
            Manifest(
                whole.epoch,
                self._attempt,
                self._dataflow.name,
                tasks,
                whole.parts,
                whole.is_last,
                dict(self._worker_of),
                now_us,
            )
        )
        if not whole.is_last:
            size = sum(part.size for part in whole.parts)
            self.epochs.append(Epoch(self._began_ns, time.time_ns(), size))
        self._store.keep(3)
        self._commit(self._coordinator.committed(whole.epoch, _now_us()))


def _said(pipe: Connection) -> Any:  # noqa: ANN401 - a report, or the last answer
    try:
        return pipe.recv()
    except EOFError:
        msg = "a benchmark worker ended without an answer"
        raise InternalError(msg) from None


def _now_us() -> int:
    return time.monotonic_ns() // 1000
