"""Workers of one job as threads of this process, with real sockets or rings between them."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from penstock.run.dataflow import Dataflow
from penstock.run.engine.epochs import Epochs
from penstock.run.engine.pace import Floors, pace_speakers
from penstock.run.engine.worker import Deployment, Worker
from penstock.run.engine.worker_share import RunSettings, task_ids
from penstock.run.transport.host import own_identity
from penstock.run.transport.links import WorkerPlace
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.socket import listen

PATIENCE_SECONDS = 60.0


class LocalControl:
    """A driver's line without a driver: commands by a call, metrics into a list."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._commands: list[str] = []
        self.tables: list[Mapping[str, pa.RecordBatch]] = []
        self.pace: Callable[[Mapping[int, int]], Mapping[int, int]] | None = None
        self.heard = threading.Event()  # a command has been taken by the worker's own thread

    def fileno(self) -> int:
        return self._read

    def say(self, command: str) -> None:
        self._commands.append(command)
        os.write(self._write, b"!")

    def commands(self) -> list[str]:
        os.read(self._read, 4096)
        taken, self._commands = self._commands, []
        self.heard.set()
        return taken

    def over(self) -> None:
        """Nobody asks for that here."""

    def moves(self, said: Mapping[str, object]) -> None:
        """Nor for this."""

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        return {} if self.pace is None else self.pace(floors)

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        self.tables.append(tables)

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class LocalJob:
    """A dataflow spread over so many workers; `worker_of` maps task ids, or a rule gives the worker of a task."""

    def __init__(
        self,
        dataflow: Dataflow,
        workers: int,
        worker_of: Mapping[str, int] | Callable[[str], int] | None = None,
        settings: RunSettings | None = None,
        deliver: Callable[[str, pa.RecordBatch], None] | None = None,
        epochs: Callable[[int], Epochs] | None = None,
        told: Mapping[str, object] | None = None,
    ) -> None:
        tasks = task_ids(dataflow)
        rule = worker_of if callable(worker_of) else None
        default = {task: i % workers for i, task in enumerate(tasks)}
        given = {task: rule(task) for task in tasks} if rule else dict(worker_of or default)  # type: ignore[call-overload]
        listeners = [listen("127.0.0.1") for _ in range(workers)]
        here = own_identity()
        places = tuple(WorkerPlace(w, f"n{w}", "127.0.0.1", s.getsockname()[1], here) for w, s in enumerate(listeners))
        deployment = Deployment("test", places, given, settings or RunSettings())
        self.delivered: dict[str, list[pa.RecordBatch]] = {}
        self.errors: list[BaseException | None] = [None] * workers
        self.controls = [LocalControl() for _ in range(workers)]
        floors, lock = Floors(pace_speakers(dataflow, given)), threading.Lock()

        def pace(worker: int, said: Mapping[int, int]) -> Mapping[int, int]:
            with lock:
                return floors.exchange(worker, said)

        for w, control in enumerate(self.controls):
            control.pace = partial(pace, w)
        key = secrets.token_bytes(32)
        take = deliver or (lambda name, batch: self.delivered.setdefault(name, []).append(batch))
        sink = {"deliver": take, "job": "test", **(told or {})}
        try:
            self.workers = [
                Worker(dataflow, deployment, w, self.controls[w], sink, epochs=None if epochs is None else epochs(w))
                for w in range(workers)
            ]
        except BaseException:
            for open_one in (*listeners, *self.controls):
                open_one.close()
            raise

        def target(w: int) -> None:
            try:
                self.workers[w].run(listeners[w], key)
            except BaseException as error:
                self.errors[w] = error

        self.threads = [threading.Thread(target=target, args=(w,), daemon=True) for w in range(workers)]

    def start(self) -> LocalJob:
        for thread in self.threads:
            thread.start()
        return self

    def join(self) -> LocalJob:
        for thread in self.threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), f"no end after {PATIENCE_SECONDS} s: {[e for e in self.errors if e]}"
        for control in self.controls:
            control.close()
        return self

    def run(self) -> LocalJob:
        self.start().join()
        # A worker that dies takes its peers with it; the first cause is what its caller wants to see.
        found = sorted((e for e in self.errors if e is not None), key=lambda error: isinstance(error, PeerGone))
        if found:
            raise found[0]
        return self

    def rows(self, sink: str) -> list[dict[str, object]]:
        return [row for batch in self.delivered.get(sink, ()) for row in batch.to_pylist()]
