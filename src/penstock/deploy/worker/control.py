"""The worker's end of the control line.

The worker's loop must not wait for commands, so threads do, each with a line of its own. One holds the long poll for
commands and wakes the loop through an eventfd; it asks several times a second, which says that the process is there
(`deploy/attempt/silence.py`). One sends rows. Where sources keep pace with other workers, a third asks how far those
are. Metrics that find the sender's queue full are set aside; where many wait, intervals are joined, so the log is
coarser but every count arrives (`test_metrics_behind_many_results_are_late_but_not_lost`). Results wait for room, so a
slow driver slows the job down. When the driver vanishes, the worker cancels itself
(`test_a_worker_cancels_itself_when_its_driver_is_gone`). When one line breaks alone, the loop is woken and ends by an
error: what goes over the others would look like a job that is well
(`test_a_worker_one_of_whose_lanes_breaks_ends_with_the_reason`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.checkpoint.contract import Report
from penstock.deploy.line.messages import (
    TEXT_BYTES_MAX,
    Fault,
    Hello,
    decode,
    decode_deployment,
    encode,
    encode_report,
    encode_rows,
)
from penstock.deploy.line.sealed import (
    END,
    LANES,
    METRICS,
    RESULTS,
    WORDS,
    Line,
    LineBroken,
    derive,
    open_line,
    veiled,
)
from penstock.run.engine.meters import joined
from penstock.run.engine.worker import Cancelled, Deployment
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.tls.credentials import Credentials, TlsRefused

SCHEME = "tcp://"
QUEUE_BATCHES = 32
METRICS_ROOM = 16  # metrics are set aside rather than let results wait behind them
METRICS_ASIDE = 256  # tables; beyond that intervals are joined
CALL_SECONDS = 600.0  # a driver may be stopped for a while; of one that has died the kernel tells at once
JOIN_SECONDS = 30.0
CUT_OFF_SECONDS = 30.0  # after which a driver's machine that acknowledges nothing has vanished
PIECE_BYTES = 16 << 20  # results are sent in pieces of at most about this size
ORDERS_POLLS_MAX = 120
OPENINGS_MAX = 40  # strangers may crowd the driver's door
OPENING_PAUSE_SECONDS = 0.05


class DriverGone(PeerGone):
    """The driver does not answer any more."""


class Place(NamedTuple):
    """Where the driver takes calls of one attempt's workers, and what lets one say hello there."""

    location: str
    ticket: bytes
    worker: int | None = None  # what this one is called there, where that was told


class DriverLine:
    """One worker's connection to its driver; implements `penstock.run.engine.control.Control`."""

    def __init__(self, place: Place, worker: int, credentials: Credentials | None = None) -> None:
        self._credentials = credentials
        self._key, self._worker = place.ticket, worker  # after hello, the key is this worker's own
        host, _, port = place.location.removeprefix(SCHEME).rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._lines: dict[str, Line] = {}
        self._turns = {lane: threading.Lock() for lane in LANES}  # a call has its answer before the next
        self.data_key = b""  # the key that workers prove to each other; it comes with the deployment
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._event_lock, self._is_closed = threading.Lock(), False
        self._waiting: deque[str] = deque()
        self._rows: queue.Queue[tuple[str, str, pa.RecordBatch] | None] = queue.Queue(QUEUE_BATCHES)
        self._broken: DriverGone | None = None  # why the loop cannot go on: a lane of a thread has broken
        self._cancelled = False
        self._aside: deque[tuple[str, str, pa.RecordBatch]] = deque()
        self._said: queue.SimpleQueue[Mapping[str, object] | None] = queue.SimpleQueue()  # of moves
        self._compares_pace = self._speaks_of_moves = False
        self._floors: Mapping[int, int] = {}
        self._others: Mapping[int, int] = {}
        self._pace_due = threading.Event()
        self._threads: list[threading.Thread] = []
        self.busy_s: Callable[[], float] = lambda: 0.0  # for how long the loop has been in one call
        self.next: Place | None = None  # where to go over to
        self.still_s: Callable[[], float] = lambda: 0.0  # for how long what keeps epochs has made no step

    # -- before and after the run ------------------------------------------------------------------------------------

    def hello(self, hello: Hello) -> Deployment | None:
        """Report for duty and wait for the deployment; None when the job has ended before it began."""
        answer = self._call("talk", "hello", asdict(hello))
        if answer.get("end"):
            return None
        self._key = veiled(bytes.fromhex(answer["key"]), derive(self._lines["talk"].key, "worker key"))
        for _ in range(ORDERS_POLLS_MAX):
            answer = self._call("talk", "orders", {})
            if answer.get("end"):
                return None
            if not answer.get("wait"):
                self.data_key = veiled(bytes.fromhex(answer["data_key"]), derive(self._key, "data key"))
                return decode_deployment(answer)
        msg = "the driver never sent a deployment"
        raise DriverGone(msg)

    def start(self) -> None:
        """Begin to listen for commands and to send rows."""
        self._start_thread("commands", self._listen)
        self._start_thread("rows", self._send_rows)

    def _start_thread(self, name: str, target: Callable[[], None]) -> None:
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
        self._check()  # its thread also ends where the driver has given up and cancels

    def kept(self, report: Report) -> None:
        """Say that this worker's part of an epoch is kept; called by the keeper's thread alone."""
        self._ask("keep", encode_report(report))

    def unkept(self, message: str, refused: str = "") -> None:
        """Say that a part of an epoch could not be kept, and wake the loop; called by the keeper's thread alone.

        Not over the lane of `kept`: what could not be told there could not be complained of either. `refused`: why no
        other attempt could keep it.
        """
        self.fault(Fault(self._worker, "worker", message, refused=refused))
        self.wake()

    @property
    def is_cancelled(self) -> bool:
        """Whether this worker has been told to end at once."""
        return self._cancelled

    def fault(self, fault: Fault) -> None:
        """Report why this worker gives up; where the driver has gone, do nothing."""
        with contextlib.suppress(OSError):
            self._call("talk", "fault", asdict(fault))

    def at_work(self) -> None:
        """Say that all connections are there, and the state is restored."""
        self._call("talk", "at work", {})

    def done(self, status: str) -> None:
        """Say goodbye."""
        with contextlib.suppress(OSError):
            self._call("talk", "done", {"status": status})

    def close(self) -> None:
        """Leave nothing behind: threads, connection, descriptor."""
        self._cancelled = True
        self._pace_due.set()
        self._said.put(None)
        self._end_rows()
        for line in list(self._lines.values()):
            line.break_off()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        for lane, line in self._lines.items():
            with self._turn(lane, JOIN_SECONDS):  # the keeper's thread is none of ours
                line.close()
        with self._event_lock:
            self._is_closed = True
            os.close(self._event)

    @contextlib.contextmanager
    def _turn(self, lane: str, seconds: float = -1) -> Iterator[None]:
        """The lane is this thread's alone, or the time is over."""
        is_mine = self._turns[lane].acquire(timeout=seconds)
        try:
            yield
        finally:
            if is_mine:
                self._turns[lane].release()

    def wake(self) -> None:
        """Have the loop look."""
        with self._event_lock:
            if not self._is_closed:  # its number may be another file's by then
                os.eventfd_write(self._event, 1)

    def _breaks(self, what: str, error: Exception) -> None:
        """A lane that the worker cannot do without has broken: the loop ends by this."""
        if not self._cancelled:
            self._broken = self._broken or DriverGone(f"{what}: {error}")
            self.wake()

    def _end_rows(self) -> None:
        """Tell the sender that no more rows come; where its queue is full, drop waiting rows to make room."""
        while True:
            try:
                return self._rows.put_nowait(None)
            except queue.Full:
                with contextlib.suppress(queue.Empty):
                    self._rows.get_nowait()

    # -- called by the worker's loop ---------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Readable when a command waits, or there is something to be looked at."""
        return self._event

    def commands(self) -> list[str]:
        """Commands that wait; DriverGone where rows or the pace of sources do not reach the driver any more."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        found = []
        while self._waiting:
            found.append(self._waiting.popleft())
        if self._broken is not None and "cancel" not in found:
            raise self._broken
        return found

    def over(self) -> None:
        """Wait until all workers stand still; `next` is where to go then, with what lets this one in, or None: home."""
        self.flush()
        answer = self._call("talk", "over", {})
        if answer.get("home"):  # the job goes on without this one
            return
        if "next" not in answer:
            msg = f"worker {self._worker} was to go over to another attempt, and there is none"
            raise Cancelled(msg)
        pad = derive(self._key, "next ticket")
        self.next = Place(str(answer["next"]), veiled(bytes.fromhex(answer["ticket"]), pad), int(answer["worker"]))

    def metrics(self, tables: Mapping[str, pa.RecordBatch]) -> None:
        """Hand over rows of the metric log, or set them aside while the line is congested; never waits."""
        self._aside.extend(("metrics", name, batch) for name, batch in tables.items() if batch.num_rows)
        while self._aside and self._rows.qsize() < METRICS_ROOM:
            self._rows.put(self._aside.popleft())
        if len(self._aside) > METRICS_ASIDE:
            self._join_aside()

    def _join_aside(self) -> None:
        """Make one interval of every two that wait."""
        waiting: dict[str, list[pa.RecordBatch]] = {}
        for _, name, batch in self._aside:
            waiting.setdefault(name, []).append(batch)
        self._aside = deque(
            ("metrics", name, joined(name, batches[i : i + 2]))
            for name, batches in waiting.items()
            for i in range(0, len(batches), 2)
        )

    def moves(self, said: Mapping[str, object]) -> None:
        """Say how far this worker is with a move; a few words for each, so nothing bounds those that wait."""
        self._said.put(said)
        if not self._speaks_of_moves:
            self._speaks_of_moves = True
            self._start_thread("moves", self._speak_of_moves)

    def keep_pace(self, floors: Mapping[int, int]) -> Mapping[int, int]:
        """Tell the driver how far this worker's sources are; returns the driver's last word on the others."""
        self._floors = floors
        self._pace_due.set()
        if not self._compares_pace:
            self._compares_pace = True
            self._start_thread("pace", self._compare_pace)
        return self._others

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
            raise self._broken

    # -- threads -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        heard = {"seen": 0, "epoch": 0}
        while True:
            try:
                self._expect_acknowledgement()
                told = {"busy_s": self.busy_s(), "still_s": self.still_s()}
                answer = self._call("poll", "commands", {**heard, **told})
            except OSError:
                answer = {**heard, "commands": ["cancel"], "end": True}
            heard = {name: answer[name] for name in heard}
            if answer["commands"]:
                self._cancelled |= "cancel" in answer["commands"]
                self._waiting.extend(answer["commands"])
                self.wake()
            if answer["end"] or self._cancelled:  # after a cancel nothing else matters, and `close` waits for this
                return

    def _expect_acknowledgement(self) -> None:
        """Have this lane end where the driver's machine is out of reach; one that is stopped acknowledges still."""
        if "poll" not in self._lines and hasattr(socket, "TCP_USER_TIMEOUT"):
            option = (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(CUT_OFF_SECONDS * 1000))
            self._line("poll").connection.setsockopt(*option)

    def _compare_pace(self) -> None:
        try:
            while self._pace_due.wait() and not self._cancelled:
                self._pace_due.clear()
                said = {str(group): time_us for group, time_us in self._floors.items()}
                heard = self._call("pace", "pace", {"floors": said})["floors"]
                self._others = {int(group): time_us for group, time_us in heard.items()}
        except OSError as error:  # with this lane alone gone, sources here and elsewhere would wait for ever
            self._breaks("the pace of sources cannot be compared with other workers", error)

    def _speak_of_moves(self) -> None:
        try:
            while (said := self._said.get()) is not None:
                self._call("talk", "moves", said)
        except OSError as error:
            self._breaks("the driver cannot be told of a move", error)

    def _send_rows(self) -> None:
        try:
            line = self._line("data")
            line.connection.settimeout(None)  # a slow driver slows the job down
            while (entry := self._rows.get()) is not None:
                kind, name, batch = entry
                line.send(RESULTS if kind == "results" else METRICS, *encode_rows(name, batch))
            line.send(END)
            line.receive({END: 0})  # the driver answers when it has taken everything
        except (OSError, ValueError, pa.ArrowException) as error:
            self._breaks("rows do not reach the driver", error)

    def _call(self, lane: str, kind: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Ask the driver; DriverGone when it does not answer, or refuses."""
        return self._ask(lane, encode({**body, "call": kind}))

    def _ask(self, lane: str, call: bytes) -> dict[str, Any]:
        with self._turn(lane):
            line = self._line(lane)
            line.connection.settimeout(CALL_SECONDS)
            line.send(WORDS, call)
            _, data = line.receive({WORDS: TEXT_BYTES_MAX})
        answer = decode(data)
        if "refused" in answer:
            raise DriverGone(str(answer["refused"]))
        return answer

    def _unless_closed(self, line: Line) -> Line:
        """A line that was opened while `close` broke off the others is broken off too."""
        if self._cancelled:
            line.break_off()
        return line

    def _line(self, lane: str) -> Line:
        """This lane's line, opened when it is first needed; the driver's door may be crowded for a while."""
        if lane in self._lines:
            return self._lines[lane]
        why: OSError | None = None
        for _ in range(OPENINGS_MAX):
            if self._cancelled:
                break
            try:
                self._lines[lane] = open_line(
                    self._address, self._key, self._worker, lane, CALL_SECONDS, self._credentials
                )
            except (LineBroken, ConnectionResetError, BrokenPipeError) as error:
                why = error
                time.sleep(OPENING_PAUSE_SECONDS)
            except TlsRefused as error:
                why = error
                break
            else:
                return self._unless_closed(self._lines[lane])
        msg = f"the driver at {self._address[0]}:{self._address[1]} did not let worker {self._worker} in: {why}"
        raise DriverGone(msg)
