"""The worker's end of the control line.

The worker's loop must never wait for the driver, so two threads do: one holds the long poll for commands and wakes the
loop through an eventfd, one sends rows. Metrics that find the sender's queue full are dropped and counted, for the next
interval tells more; results wait for room instead, which is how a slow driver slows the job down. When the driver
vanishes the worker is told to cancel: nothing would ever come after it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.deploy.messages import HEADER, Fault, Hello, decode, decode_deployment, encode, proof
from penstock.run.channel.protocol import PeerGone
from penstock.run.worker import Cancelled, Deployment

QUEUE_BATCHES = 32
METRICS_ROOM = 16  # metrics are set aside rather than let results wait behind them
METRICS_ASIDE = 256  # tables; beyond that the oldest is dropped and counted
CALL_SECONDS = 30.0
PIECE_BYTES = 16 << 20  # results are sent in pieces of at most about this size
ORDERS_POLLS_MAX = 120


class DriverGone(PeerGone):
    """The driver does not answer any more."""


class DriverLine:
    """One worker's connection to its driver; implements `penstock.run.worker.Control`."""

    def __init__(self, location: str, key: bytes, worker: int) -> None:
        self._key, self._worker = key, worker
        self._client = flight.FlightClient(location)
        self._numbers = {lane: itertools.count(1) for lane in ("talk", "poll", "data")}
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._waiting: deque[str] = deque()
        self._rows: queue.Queue[tuple[str, str, pa.RecordBatch] | None] = queue.Queue(QUEUE_BATCHES)
        self._broken: BaseException | None = None
        self._cancelled = False
        self._aside: deque[tuple[str, str, pa.RecordBatch]] = deque()
        self.metrics_dropped = 0
        self._threads: list[threading.Thread] = []

    # -- before and after the run ------------------------------------------------------------------------------------

    def hello(self, hello: Hello) -> Deployment | None:
        """Report for duty and wait for the deployment; None when the job has ended before it began."""
        self._act("talk", "hello", asdict(hello))
        for _ in range(ORDERS_POLLS_MAX):
            answer = self._act("talk", "orders", {})
            if answer.get("end"):
                return None
            if not answer.get("wait"):
                return decode_deployment(answer)
        msg = "the driver never sent a deployment"
        raise DriverGone(msg)

    def start(self) -> None:
        """Begin to listen for commands and to send rows."""
        for name, target in (("commands", self._listen), ("rows", self._send_rows)):
            thread = threading.Thread(target=target, name=f"penstock-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def flush(self) -> None:
        """Wait until every row has arrived at the driver; a driver that is gone or cancels ends the wait."""
        if len(self._threads) > 1:
            while self._aside:
                self._put(self._aside.popleft())
            self._put(None)
            while self._threads[1].is_alive():
                self._check()
                self._threads[1].join(0.1)
        if self._broken is not None:
            msg = f"rows did not reach the driver: {self._broken}"
            raise DriverGone(msg)

    def fault(self, fault: Fault) -> None:
        """Report why this worker gives up; a driver that is gone need not know."""
        with contextlib.suppress(flight.FlightError, OSError):
            self._act("talk", "fault", asdict(fault))

    def done(self, status: str) -> None:
        """Say goodbye."""
        with contextlib.suppress(flight.FlightError, OSError):
            self._act("talk", "done", {"status": status})

    def close(self) -> None:
        """Leave nothing behind: threads, connection, descriptor."""
        self._cancelled = True
        self._end_rows()
        for thread in self._threads:
            thread.join(CALL_SECONDS)
        self._client.close()
        os.close(self._event)

    def _end_rows(self) -> None:
        """Tell the sender that no more come; where it is so far behind that there is no room to say so, rows go."""
        while True:
            try:
                return self._rows.put_nowait(None)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._rows.get_nowait()

    # -- what the worker's loop uses ---------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when a command waits."""
        return self._event

    def commands(self) -> list[str]:
        """Commands that wait."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        found = []
        while self._waiting:
            found.append(self._waiting.popleft())
        return found

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log, or set them aside while the line is congested; never waits."""
        self._aside.extend(("metrics", name, batch) for name, batch in tables.items() if batch.num_rows)
        while self._aside and self._rows.qsize() < METRICS_ROOM:
            self._rows.put(self._aside.popleft())
        while len(self._aside) > METRICS_ASIDE:
            self._aside.popleft()
            self.metrics_dropped += 1

    def deliver(self, sink: str, batch: pa.RecordBatch) -> None:
        """Hand over rows of a collecting sink; waits for room."""
        pieces = max(1, -(-batch.nbytes // PIECE_BYTES))
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            self._put(("results", sink, batch.slice(start, rows)))

    def _put(self, entry: tuple[str, str, pa.RecordBatch] | None) -> None:
        while True:
            self._check()
            try:
                return self._rows.put(entry, timeout=0.1)
            except queue.Full:
                continue

    def _check(self) -> None:
        if self._cancelled:
            msg = f"worker {self._worker} was cancelled"
            raise Cancelled(msg)
        if self._broken is not None:
            msg = f"the driver takes no more rows: {self._broken}"
            raise DriverGone(msg)

    # -- threads -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        seen = 0
        while True:
            try:
                answer = self._act("poll", "commands", {"seen": seen})
            except (flight.FlightError, OSError):
                answer = {"commands": ["cancel"], "end": True}
            if answer["commands"]:
                seen += len(answer["commands"])
                self._cancelled |= "cancel" in answer["commands"]
                self._waiting.extend(answer["commands"])
                os.eventfd_write(self._event, 1)
            if answer["end"]:
                return

    def _send_rows(self) -> None:
        writers: dict[tuple[str, str], Any] = {}
        try:
            while (entry := self._rows.get()) is not None:
                kind, name, batch = entry
                if (kind, name) not in writers:
                    writers[kind, name] = self._open(kind, name, batch.schema)
                writers[kind, name].write_batch(batch)
            for writer in writers.values():
                writer.close()  # waits until the driver has taken everything
        except (flight.FlightError, OSError, pa.ArrowException) as error:
            self._broken = error

    def _open(self, kind: str, name: str, schema: pa.Schema) -> Any:  # noqa: ANN401 # Flight has no types
        descriptor = flight.FlightDescriptor.for_path(kind, name)
        writer, _ = self._client.do_put(descriptor, schema, self._options("data", "put", None))
        return writer

    def _act(self, lane: str, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        action = flight.Action(kind, encode(body))
        results = list(self._client.do_action(action, self._options(lane, "action", CALL_SECONDS)))
        return decode(results[0].body.to_pybytes())

    def _options(self, lane: str, method: str, seconds: float | None) -> Any:  # noqa: ANN401
        shown = proof(self._key, self._worker, lane, method, next(self._numbers[lane]))
        return flight.FlightCallOptions(timeout=seconds, headers=[(HEADER.encode(), shown.encode())])
