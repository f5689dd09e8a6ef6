"""What runs in Spark's Python worker: say hello, wait for the deployment, run the Penstock worker, say goodbye.

Spark keeps its Python processes for later tasks, so nothing may stay attached: every socket, thread and descriptor is
closed in `finally`, and entry asserts that no other job is inside. When the daemon dies it sends SIGHUP, whose default
would end the process without `finally`; here it raises `Interrupted` instead, and so does SIGINT, so that a user's own
`sys.exit()` or KeyboardInterrupt can be told from them. Spark itself kills with SIGKILL, which is why the driver asks
over the control line first.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pyarrow as pa

from penstock.deploy.binding import sized
from penstock.deploy.control import DriverLine
from penstock.deploy.messages import Fault, Hello
from penstock.deploy.tagged import Splitter
from penstock.errors import InternalError
from penstock.run.channel.socket import listen
from penstock.run.contract import Interrupted
from penstock.run.dataflow import Dataflow
from penstock.run.host import boot_id, namespaces
from penstock.run.operators.sinks import SETTING_DELIVER, SETTING_JOB
from penstock.run.operators.sources import SETTING_INPUTS
from penstock.run.worker import Cancelled, Deployment, TaskFault, Worker

STATUS_SCHEMA = "worker int, status string"
INPUT_BATCHES = 4  # of a DataFrame, read ahead of the worker
MESSAGE_CHARACTERS_MAX = 20_000
TRACE_CHARACTERS_MAX = 200_000

_inside = threading.Lock()  # held while a job runs in this process


class WorkerFailed(Exception):
    """Ends a Spark task whose input has not been read to its end; the driver knows the reason already."""


@dataclass(frozen=True)
class WorkerCall:
    """Everything that a worker needs to know before it can call the driver; Spark's closure carries it."""

    job: str
    dataflow: Dataflow
    location: str
    key: bytes = field(repr=False)
    loopback: bool  # executors live in the driver's process
    frames: tuple[str, ...] = ()  # the operators that read what Spark hands in; several of them read tagged rows

    def on_partition(self, _: Iterable[object]) -> Iterator[tuple[int, str]]:
        """For `rdd.barrier().mapPartitions`: sources read for themselves."""
        yield run_worker(self, None)

    def on_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow(barrier=True)`: a source reads this partition of a DataFrame."""
        pulled = PulledInput(batches)
        worker, status = run_worker(self, pulled)
        if status != "finished" and not pulled.ended:
            raise WorkerFailed(status)
        pulled.drain()
        yield pa.RecordBatch.from_pydict({"worker": pa.array([worker], pa.int32()), "status": [status]})


class PulledInput:
    """Batches that a thread pulls from Spark, so that the worker's loop never waits; None says "nothing yet"."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._queue: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(INPUT_BATCHES)
        self._thread = threading.Thread(target=self._pull, args=(batches,), name="penstock-input", daemon=True)
        self.ended = False
        self._thread.start()

    def _pull(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                self._queue.put(batch)
            self._queue.put(None)
        except BaseException as error:  # it is raised again where it is read
            self._queue.put(error)

    def __iter__(self) -> PulledInput:
        return self

    def __next__(self) -> pa.RecordBatch | None:
        if self.ended:
            raise StopIteration
        try:
            return self._took(self._queue.get_nowait())
        except queue.Empty:
            return None

    def _took(self, entry: pa.RecordBatch | BaseException | None) -> pa.RecordBatch:
        if entry is None:
            self.ended = True
            raise StopIteration
        if isinstance(entry, BaseException):
            self.ended = True
            raise entry
        return entry

    def drain(self) -> None:
        """Read and forget the rest: Spark reads its own marks from the same stream after us."""
        while not self.ended:
            with contextlib.suppress(StopIteration):
                self._took(self._queue.get())
        self._thread.join()


def run_worker(call: WorkerCall, pulled: PulledInput | None) -> tuple[int, str]:
    """Run one worker of a job to its end; its number and how it ended."""
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    infos = context.getTaskInfos()
    me = context.partitionId()
    if not _inside.acquire(blocking=False):
        msg = f"process {os.getpid()} still runs another job"
        raise InternalError(msg)
    before = _raise_on_signals()
    try:
        return me, _serve(call, me, [info.address for info in infos], pulled)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _inside.release()


def _serve(call: WorkerCall, me: int, addresses: list[str], pulled: PulledInput | None) -> str:
    line = DriverLine(call.location, call.key, me)
    listener = None
    try:
        listener = listen("127.0.0.1" if call.loopback else own_address(addresses[me], call.location))
        deployment = line.hello(_hello(me, addresses, listener))
        if deployment is None:
            status = "cancelled"
        else:
            line.start()
            status = _work(call, me, deployment, line, listener, pulled)
        line.done(status)
        return status
    finally:
        if listener is not None:
            listener.close()
        line.close()


def _work(
    call: WorkerCall,
    me: int,
    deployment: Deployment,
    line: DriverLine,
    listener: socket.socket,
    pulled: PulledInput | None,
) -> str:
    settings = {SETTING_INPUTS: _inputs(call.frames, pulled), SETTING_DELIVER: line.deliver, SETTING_JOB: call.job}
    node = deployment.workers[me].node
    try:
        dataflow = sized(call.dataflow, len(deployment.workers))
        Worker(dataflow, deployment, me, line, settings).run(listener, call.key)
        line.flush()
    except Cancelled:
        return "cancelled"
    except Exception as error:  # every failure is reported, and one of ours as well
        line.fault(_fault(error, me, node))
        return "failed"
    return "finished"


def _inputs(frames: tuple[str, ...], pulled: PulledInput | None) -> dict[str, Iterator[pa.RecordBatch | None]]:
    """What each operator that reads a DataFrame is handed."""
    if pulled is None:
        return {}
    if len(frames) == 1:
        return {frames[0]: pulled}
    splitter = Splitter(pulled, len(frames))
    return {name: splitter.reader(number) for number, name in enumerate(frames)}


def _fault(error: Exception, me: int, node: str) -> Fault:
    """A user's failure, a vanished peer, or a failure of this worker itself."""
    # A send inside a task's `emit` may find the peer gone, and a peer that gave up before we called it refuses the
    # call; neither is a failure of this worker. A user's function may lose connections of its own.
    if isinstance(error, ConnectionError):
        return Fault(me, "peer", _short(str(error)), node=node, lost=getattr(error, "worker", None))
    trace = error.trace if isinstance(error, TaskFault) else "".join(traceback.format_exception(error))
    task = error.task if isinstance(error, TaskFault) else ""
    message = str(error) if isinstance(error, TaskFault) else f"{type(error).__name__}: {error}"
    kind = "task" if isinstance(error, TaskFault) else "worker"
    return Fault(me, kind, _short(message), task, node, trace[-TRACE_CHARACTERS_MAX:])


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else message[:MESSAGE_CHARACTERS_MAX] + " ..."


def _hello(me: int, addresses: list[str], listener: socket.socket) -> Hello:
    host, port = listener.getsockname()[:2]
    return Hello(
        worker=me,
        workers=len(addresses),
        address=addresses[me],
        host=host,
        port=port,
        pid=os.getpid(),
        ppid=os.getppid(),
        boot_id=boot_id(),
        ipc=namespaces(),
        python=platform.python_version(),
        pyarrow=pa.__version__,
        memory_mb=available_memory_mb(),
    )


def own_address(spark_address: str, location: str) -> str:
    """The executor's own address: as Spark has it or, where that is loopback only, as the way to the driver has it."""
    host = spark_address.rpartition(":")[0] or spark_address
    with contextlib.suppress(OSError):
        found = socket.gethostbyname(host)
        driver = location.removeprefix("grpc://").rpartition(":")[0]
        if not found.startswith("127.") or socket.gethostbyname(driver).startswith("127."):
            return found
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # connecting a datagram socket sends nothing
            probe.connect((driver, 9))
            return str(probe.getsockname()[0])
    return host.strip("[]")


def available_memory_mb() -> float:
    """Memory that the machine can still give."""
    with contextlib.suppress(OSError, ValueError):
        for text in Path("/proc/meminfo").read_text().splitlines():
            if text.startswith("MemAvailable:"):
                return int(text.split()[1]) / 1024
    return float("inf") if sys.platform != "linux" else 0.0


def _raise_on_signals() -> dict[signal.Signals, signal._HANDLER]:
    """From now on hang-ups and interrupts raise Interrupted; what was done about them before."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():  # then nobody can be told
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGHUP, signal.SIGINT)}
