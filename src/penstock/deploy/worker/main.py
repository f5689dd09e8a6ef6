"""The program of Spark's Python worker: say hello, wait for the deployment, run the Penstock worker, say goodbye.

Spark keeps its Python processes for later tasks, so every socket, thread and descriptor is closed in `finally`, and a
process refuses to run two jobs at once. When the daemon dies it sends SIGHUP, whose default would end the process
without `finally`. Here SIGHUP and SIGINT raise `Interrupted`, which differs from a user's own `sys.exit()` or
KeyboardInterrupt (`test_a_signal_raises_interrupted_and_no_kind_of_exit`). Spark kills with SIGKILL, so the driver asks
over the control line first.
"""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.checkpoint.store import Store
from penstock.deploy.line.messages import OVER, TICKET_PROPERTY, Fault, Hello
from penstock.deploy.line.network import Network
from penstock.deploy.line.power import usable_cores, work_ms
from penstock.deploy.results.files import ResultFiles, ResultFolder
from penstock.deploy.session.closed import EVERY_ADDRESS
from penstock.deploy.worker.carried import Carried
from penstock.deploy.worker.control import SCHEME, DriverLine, Place
from penstock.deploy.worker.keeper import Keeper
from penstock.deploy.worker.node_tags import node_tags
from penstock.deploy.worker.pulled import InputLost, PulledInput
from penstock.deploy.worker.reachable import Probe, unseen
from penstock.deploy.worker.tagged import Splitter
from penstock.errors import InternalError
from penstock.run.build import own_build
from penstock.run.contract import SETTING_ATTEMPT, SETTING_STAGING, SETTING_STORE, Interrupted
from penstock.run.dataflow import as_placed, sized
from penstock.run.engine.faults import StateRefused
from penstock.run.engine.worker import Cancelled, Deployment, TaskFault, WentOver, Worker
from penstock.run.operators.sinks.plain import SETTING_DELIVER, SETTING_JOB
from penstock.run.operators.sources.generated import SETTING_INPUTS
from penstock.run.operators.sources.spooled import SETTING_SPOOLED
from penstock.run.operators.summed import InputDamaged, SummedFile
from penstock.run.transport.host import boot_id, namespaces
from penstock.run.transport.ports import NoPortLeft
from penstock.run.transport.socket import listen
from penstock.run.transport.tls.credentials import Credentials

if TYPE_CHECKING:
    from pyspark import TaskContext

STATUS_SCHEMA = "worker int, status string"
NOT_TWICE = "is not started twice"  # marks the error of a task's second attempt
LEAVE_SECONDS = 1.0  # how long a failed worker waits for Spark's next batch, after which it reads no more
MESSAGE_CHARACTERS_MAX = 20_000
TRACE_CHARACTERS_MAX = 200_000

_inside = threading.Lock()  # held while a job runs in this process


class WorkerFailed(Exception):
    """Ends the Spark task of a worker that has failed; the driver knows the reason already."""


@dataclass(frozen=True)
class WorkerCall:
    """Everything that a worker needs to know before it can call the driver; Spark's closure carries it."""

    job: str
    dataflow: Carried
    workers: int  # in all; a worker's number is that of its Spark task, behind those that were there before
    location: str
    loopback: bool  # executors live in the driver's process
    frames: tuple[str, ...] = ()  # the operators that read DataFrames; where there are several, rows are tagged
    results: ResultFolder = field(default_factory=lambda: ResultFolder("", {}))
    probes: tuple[Probe, ...] = ()  # files that the worker must see
    spooled: Mapping[str, tuple[SummedFile, ...]] = field(default_factory=dict)  # by source: rows of DataFrames
    network: Network = field(default_factory=Network)
    first: int = 0  # the number of the first worker that this call is for

    def on_partition(self, _: Iterable[object]) -> Iterator[tuple[int, str]]:
        """For `rdd.mapPartitions`: a worker whose sources read for themselves, or that has no part of a DataFrame."""
        yield run_worker(self, None)

    def on_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: a worker that is handed a partition of a DataFrame."""
        _first_attempt()  # before anything is read
        pulled = PulledInput(batches)
        worker, status = run_worker(self, pulled)
        if not pulled.leave(None if status == "finished" else LEAVE_SECONDS):
            raise WorkerFailed(status)
        yield pa.RecordBatch.from_pydict({"worker": pa.array([worker], pa.int32()), "status": [status]})


def run_worker(call: WorkerCall, pulled: PulledInput | None) -> tuple[int, str]:
    """Run one worker of a job to its end; its number and how it ended."""
    context = _first_attempt()
    me = call.first + context.partitionId()
    if not _inside.acquire(blocking=False):
        msg = f"process {os.getpid()} still runs another job"
        raise InternalError(msg)
    before = _raise_on_signals()
    try:
        ticket = bytes.fromhex(context.getLocalProperty(TICKET_PROPERTY) or "")
        return me, _serve(call, me, Place(call.location, ticket), context.taskAttemptId(), pulled)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _inside.release()


def _first_attempt() -> TaskContext:
    """This Spark task; raises where Spark starts a failed one again, whose rows the other workers have lost."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        msg = "a worker was started outside of a Spark task"
        raise InternalError(msg)
    if context.attemptNumber() > 0:
        msg = f"worker {context.partitionId()} {NOT_TWICE} (attempt {context.attemptNumber()})"
        raise WorkerFailed(msg)
    return context


def _serve(call: WorkerCall, me: int, place: Place, attempt: int, pulled: PulledInput | None) -> str:
    """One attempt at the job after the other, as long as each hands its workers over to the next."""
    power_ms, then = work_ms(), place
    while True:
        status, found = _serve_attempt(call, me, then, attempt, power_ms, pulled)
        if found is None:
            return status
        then, me = found, me if found.worker is None else found.worker


def _serve_attempt(
    call: WorkerCall, me: int, place: Place, attempt: int, power_ms: float, pulled: PulledInput | None
) -> tuple[str, Place | None]:
    """How it ended for this worker, and where the next attempt is, if it is to come over to that."""
    credentials = call.network.credentials()
    line = DriverLine(place, me, credentials)
    listener = None
    try:
        listener, unfit = _listener(call)
        deployment = line.hello(_hello(call, me, listener, attempt, power_ms, unfit))
        if deployment is None or unfit:
            status = "cancelled"
        else:
            line.start()
            status = _work(call, me, deployment, line, listener, pulled, credentials)
        if status != OVER:  # that it has said
            line.done(status)
        return status, line.next if status == OVER else None
    finally:
        if listener is not None:
            listener.close()
        line.close()


def _listener(call: WorkerCall) -> tuple[socket.socket, str]:
    """Where the other workers call this one, and why they cannot, if so: then it listens for the hello's sake alone."""
    host = "127.0.0.1" if call.loopback else own_address(call.location)
    try:
        return listen(host, call.network.data), ""
    except NoPortLeft as error:
        return listen(host), error.strerror or str(error)


def _work(
    call: WorkerCall,
    me: int,
    deployment: Deployment,
    line: DriverLine,
    listener: socket.socket,
    pulled: PulledInput | None,
    credentials: Credentials | None,
) -> str:
    files = ResultFiles(call.results, me)

    def deliver(sink: str, batch: pa.RecordBatch) -> None:
        (files if sink in call.results.schemas else line).deliver(sink, batch)

    settings = {SETTING_INPUTS: _inputs(call.frames, pulled), SETTING_DELIVER: deliver, SETTING_JOB: call.job}
    node, keeper = deployment.workers[me].node, None
    try:
        if (checkpoint := deployment.checkpoint) is not None:
            keeper = Keeper(checkpoint, me, line.kept, line.unkept, lambda: line.is_cancelled, line.wake)
            line.still_s = keeper.still_s
            settings |= {SETTING_STAGING: Store(checkpoint.root).staging(), SETTING_ATTEMPT: checkpoint.attempt}
            settings |= {SETTING_STORE: checkpoint.token, SETTING_SPOOLED: call.spooled}
        dataflow = as_placed(sized(call.dataflow.fresh(), len(deployment.workers)), deployment.worker_of)
        worker = Worker(
            dataflow, deployment, me, line, settings, epochs=keeper, credentials=credentials, at_work=line.at_work
        )
        line.busy_s = worker.busy_s
        worker.run(listener, line.data_key)
        files.finish()
        line.flush()
    except Cancelled:
        return "cancelled"
    except WentOver:
        return OVER
    except Exception as error:  # every failure is reported, also a bug of ours
        line.fault(_fault(error, me, node))
        return "failed"
    finally:
        files.close()
        if keeper is not None:
            keeper.close()
    return "finished"


def _inputs(frames: tuple[str, ...], pulled: PulledInput | None) -> dict[str, Iterator[pa.RecordBatch | None]]:
    """The input of each operator that reads a DataFrame."""
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
    if isinstance(error, InputLost):
        return Fault(me, "input", _short(str(error)), node=node)
    if isinstance(error, ConnectionError):
        return Fault(me, "peer", _short(str(error)), node=node, lost=getattr(error, "worker", None))
    trace = error.trace if isinstance(error, TaskFault) else "".join(traceback.format_exception(error))
    task = error.task if isinstance(error, TaskFault) else ""
    message = str(error) if isinstance(error, TaskFault) else f"{type(error).__name__}: {error}"
    kind = "task" if isinstance(error, TaskFault) else "worker"
    certain = error.__cause__ if isinstance(error, TaskFault) else error
    refused = str(certain) if isinstance(certain, StateRefused) else getattr(error, "refused", "")
    told = trace[-TRACE_CHARACTERS_MAX:]
    return Fault(me, kind, _short(message), task, node, told, damaged=_damaged(error), refused=_short(refused))


def _damaged(error: Exception) -> tuple[str, str] | None:
    """The file of a source that is not as it was written, and what is wrong with it."""
    cause = error.__cause__ if isinstance(error, TaskFault) else None
    return (cause.path, cause.fault) if isinstance(cause, InputDamaged) else None


def _short(message: str) -> str:
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else message[:MESSAGE_CHARACTERS_MAX] + " ..."


def _hello(call: WorkerCall, me: int, listener: socket.socket, attempt: int, power_ms: float, unfit: str) -> Hello:
    host, port = listener.getsockname()[:2]
    return Hello(
        worker=me,
        workers=call.workers,
        address=f"{host}:{executor_pid()}",
        host=host,
        port=port,
        pid=os.getpid(),
        ppid=os.getppid(),
        boot_id=boot_id(),
        ipc=namespaces(),
        python=platform.python_version(),
        pyarrow=pa.__version__,
        memory_mb=available_memory_mb(),
        attempt=attempt,
        unseen=unseen(call.probes),
        cores=usable_cores(),
        work_ms=power_ms,
        tags=_tags(),
        host_cores=float(os.cpu_count() or 0),
        build=own_build(),
        unfit=unfit,
    )


def _tags() -> tuple[str, ...]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return node_tags(() if context is None else context.resources(), os.environ)


def executor_pid() -> int:
    """The process of the executor: the JVM above this process and the daemon that forked it."""
    # The parent's number would not do: workers that read a DataFrame have another daemon than the rest.
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return os.getppid()


def own_address(location: str) -> str:
    """Where other workers reach this one: Spark's configured address, or this end of the route to the driver.

    An address that means all of the machine's is nobody's to call, and would let callers in from every network.
    """
    if (told := os.environ.get("SPARK_LOCAL_IP")) and told not in EVERY_ADDRESS:
        return told
    driver = location.removeprefix(SCHEME).rpartition(":")[0].strip("[]")
    with contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(driver, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:  # connecting a datagram socket sends nothing
            probe.connect(address)
            return str(probe.getsockname()[0])
    return socket.gethostname()


def available_memory_mb() -> float:
    """Memory that the machine can still give."""
    with contextlib.suppress(OSError, ValueError):
        for text in Path("/proc/meminfo").read_text().splitlines():
            if text.startswith("MemAvailable:"):
                return int(text.split()[1]) / 1024
    return float("inf") if sys.platform != "linux" else 0.0


def _raise_on_signals() -> dict[signal.Signals, signal._HANDLER]:
    """Make SIGHUP and SIGINT raise Interrupted; returns the former handlers."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGHUP, signal.SIGINT)}
