"""The driver's end of the control line: an Arrow Flight server that workers call, for one job.

Workers call, the driver answers: executors reach the driver in every way that Spark is deployed, the other direction
often not. Commands therefore wait in long polls. Words are JSON actions, rows are Arrow streams. Spark's own
`barrier()` and `allGather()` would do for the rendezvous, at one second each.

The state is a `Roll` behind one lock and can be tested without a network; the server only carries calls to it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.deploy.messages import BATCH_BYTES_MAX, HEADER, REPORT_BYTES_MAX, Doorkeeper, Fault, Hello, decode, encode
from penstock.errors import InvalidInput
from penstock.run.region.membership import scale_command

POLL_SECONDS = 5.0  # a long poll is answered at least this often
FAULTS_MAX = 1000
COMMANDS_MAX = 10_000  # every worker is told each of them; only who scales in a loop gives so many
SHUTDOWN_SECONDS = 5.0

TakeBatch = Callable[[int, str, str, pa.RecordBatch], None]  # worker, kind ("results", "metrics"), name, rows


@dataclass
class Roll:
    """Who has come, what they were told, what they reported. Every method may be called from any thread."""

    hellos: dict[int, Hello] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)  # worker -> how it ended
    faults: list[Fault] = field(default_factory=list)
    _orders: dict[str, object] | None = None
    _commands: list[str] = field(default_factory=list)
    _closed: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    # -- workers -----------------------------------------------------------------------------------------------------

    def hello(self, hello: Hello) -> None:
        """A worker has arrived."""
        with self.changed:
            self.hellos[hello.worker] = hello
            self.changed.notify_all()

    def orders(self, timeout: float) -> dict[str, object]:
        """The deployment, once there is one; `{"wait": true}` when the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: self._orders is not None or self.ending, timeout)
            if self.ending:
                return {"end": True}
            return self._orders or {"wait": True}

    def commands(self, worker: int, seen: int, timeout: float) -> dict[str, object]:
        """Commands after the first `seen`; returns early when the worker is done."""
        with self.changed:
            self.changed.wait_for(
                lambda: len(self._commands) > seen or worker in self.statuses or self._closed, timeout
            )
            if worker in self.statuses:
                return {"commands": [], "end": True}
            return {"commands": self._commands[seen:] + (["cancel"] if self._closed else []), "end": self._closed}

    def fault(self, fault: Fault) -> None:
        """A worker has failed; the others follow at once, or they would wait for it."""
        with self.changed:
            if len(self.faults) < FAULTS_MAX:
                self.faults.append(fault)
            self._commands.append("cancel")
            self.changed.notify_all()

    def done(self, worker: int, status: str) -> None:
        """A worker has ended and handed over everything."""
        with self.changed:
            self.statuses[worker] = status
            self.changed.notify_all()

    # -- the driver --------------------------------------------------------------------------------------------------

    def wait_for_all(self, stop: Callable[[], bool], timeout: float | None) -> bool:
        """Whether all workers have arrived; gives up when `stop` says so or the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: self._complete() or stop() or self.ending, timeout)
            return self._complete()

    @property
    def ending(self) -> bool:
        """Whether workers have been told to end at once."""
        return self._closed or "cancel" in self._commands

    def _complete(self) -> bool:
        return bool(self.hellos) and len(self.hellos) == next(iter(self.hellos.values())).workers

    def publish(self, orders: Mapping[str, object]) -> None:
        """Let the workers begin."""
        with self.changed:
            self._orders = dict(orders)
            self.changed.notify_all()

    def command(self, word: str) -> None:
        """Tell every worker: `stop`, `cancel` or `scale COUNT REGION`."""
        with self.changed:
            self._commands.append(word)
            self.changed.notify_all()

    def scale(self, region: str, replicas: int) -> None:
        """Tell every worker how many replicas a region is to have; InvalidInput when they end or heard too much."""
        with self.changed:
            if self.ending:  # they would not hear it any more, and the caller would take silence for consent
                msg = (
                    f"region {region!r} cannot be scaled to {replicas}: the job was cancelled or has failed, and its "
                    "workers have been told to end; start it again"
                )
                raise InvalidInput(msg)
            if len(self._commands) >= COMMANDS_MAX:
                msg = (
                    f"region {region!r} cannot be scaled: the job has had {len(self._commands)} commands; the limit is "
                    f"{COMMANDS_MAX}; start it again with the replicas that it needs"
                )
                raise InvalidInput(msg)
            self.command(scale_command(region, replicas))

    def awaken(self) -> None:
        """Let waiting threads look again: something outside has changed."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """Release everyone who waits."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Refuses every call without a fresh proof of the job's key."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper, self._lock = doorkeeper, threading.Lock()

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> _Caller:  # noqa: ANN401 # Flight has no types
        shown = headers.get(HEADER, [""])[0]
        method = {flight.FlightMethod.DO_ACTION: "action", flight.FlightMethod.DO_PUT: "put"}.get(info.method)
        with self._lock:
            worker = None if method is None else self._doorkeeper.admits(str(shown), method)
        if worker is None:
            msg = "the caller has not shown that it belongs to this job"
            raise flight.FlightUnauthenticatedError(msg)
        return _Caller(worker)


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Which worker a call comes from."""

    def __init__(self, worker: int) -> None:
        self.worker = worker


class ControlServer(flight.FlightServerBase):  # type: ignore[misc]
    """Carries calls to the Roll and rows to `take`; bound to one address, at a port that the kernel picks."""

    def __init__(self, host: str, key: bytes, workers_max: int, take: TakeBatch) -> None:
        self.roll = Roll()
        self._take = take
        location = f"grpc://[{host}]:0" if ":" in host else f"grpc://{host}:0"
        super().__init__(location, middleware={"gate": _Gate(Doorkeeper(key, workers_max))})

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:  # noqa: ANN401
        """`hello`, `orders`, `commands`, `fault` and `done`."""
        worker = context.get_middleware("gate").worker
        try:
            answer = self._answer(worker, action.type, decode(action.body.to_pybytes(), REPORT_BYTES_MAX))
        except (ValueError, TypeError, KeyError) as error:
            msg = f"worker {worker} sent a malformed {action.type!r}: {error}"
            raise flight.FlightServerError(msg) from error
        yield flight.Result(pa.py_buffer(encode(answer)))

    def _answer(self, worker: int, kind: str, body: dict[str, Any]) -> dict[str, object]:
        match kind:
            case "hello":
                self.roll.hello(Hello(**{**body, "worker": worker}))
            case "orders":
                return self.roll.orders(POLL_SECONDS)
            case "commands":
                return self.roll.commands(worker, int(body["seen"]), POLL_SECONDS)
            case "fault":
                self.roll.fault(Fault(**{**body, "worker": worker}))
            case "done":
                self.roll.done(worker, str(body["status"]))
            case _:
                msg = "unknown action"
                raise ValueError(msg)
        return {}

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ANN401
        """Rows of a collecting sink or of the metric log."""
        worker = context.get_middleware("gate").worker
        kind, name = (part.decode() for part in descriptor.path)
        for chunk in reader:
            if chunk.data.nbytes > BATCH_BYTES_MAX:
                msg = f"worker {worker} sent a batch of {chunk.data.nbytes} bytes; the limit is {BATCH_BYTES_MAX}"
                raise flight.FlightServerError(msg)
            self._take(worker, kind, name, chunk.data)

    def end(self) -> None:
        """Release every caller and close the port; a caller that does not go does not hold us up for long."""
        self.roll.close()
        closer = threading.Thread(target=self._shut, name="penstock-control-close", daemon=True)
        closer.start()
        closer.join(SHUTDOWN_SECONDS)

    def _shut(self) -> None:
        with contextlib.suppress(Exception):
            self.shutdown()


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Look again and again until the condition holds or the time is over; for what Spark does not announce."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True
