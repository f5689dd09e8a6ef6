"""The driver's end of the control line: what workers call, for one job, over lines that `door` and `sealed` keep shut.

Workers call, the driver answers: executors reach the driver in every way that Spark is deployed, the other direction
often not. Commands therefore wait in long polls. Words are JSON, rows are Arrow streams. Spark's own `barrier()` and
`allGather()` would do for the rendezvous, at one second each.

The state is a `Roll` behind one lock, which is tested without a network; the server carries calls to it.
"""

from __future__ import annotations

import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.checkpoint.contract import Report
from penstock.deploy.attempt.going import Going
from penstock.deploy.attempt.silence import Beat, beat_seconds
from penstock.deploy.attempt.twice import came_back, one_too_many
from penstock.deploy.line.door import Door
from penstock.deploy.line.messages import (
    BATCH_BYTES_MAX,
    KEPT_BYTES_MAX,
    OVER,
    REPORT_BYTES_MAX,
    Fault,
    Hello,
    decode,
    decode_report,
    decode_rows,
    encode,
)
from penstock.deploy.line.network import Network
from penstock.deploy.line.sealed import (
    END,
    KEY_BYTES,
    LANES,
    METRICS,
    RESULTS,
    WORDS,
    Claim,
    Line,
    LineBroken,
    LineEnded,
    derive,
    is_proved,
    veiled,
)
from penstock.errors import InvalidInput
from penstock.run.engine.epochs import epoch_command
from penstock.run.engine.pace import Floors
from penstock.run.region.membership import scale_command
from penstock.run.transport.ports import NoPortLeft
from penstock.run.transport.socket import listen

POLL_SECONDS = 5.0  # a long poll for orders is answered at least this often; that for commands with each beat
FAULTS_MAX = 1000
COMMANDS_MAX = 10_000  # every worker is told each of them; scaling in a loop alone gives this number
SHUTDOWN_SECONDS = 5.0
OVER_SECONDS = 10.0  # how long workers may take to stand still: a function may be at a long batch
STEP_SECONDS = 0.5  # how late an interrupt can be seen
LIVE_LANES = ("talk", "poll")  # whose end says that the process has gone; at that of another it may say why itself
MESSAGE_SECONDS = 120.0  # from a message's first byte to its last: a worker may be stopped for a while

TakeBatch = Callable[[int, str, str, pa.RecordBatch], None]  # worker, kind ("results", "metrics"), name, rows
TakeReport = Callable[[int, Report], None]  # worker, its word that its part of an epoch is kept


@dataclass
class Roll:
    """The workers: which have come, what they were told and reported. Every method may be called from any thread."""

    hellos: dict[int, Hello] = field(default_factory=dict)
    statuses: dict[int, str] = field(default_factory=dict)  # worker -> how it ended
    faults: list[Fault] = field(default_factory=list)
    beats: dict[int, Beat] = field(default_factory=dict)  # worker -> its last word that its process is there
    at_work: set[int] = field(default_factory=set)  # workers that have their connections and their state
    gone: set[int] = field(default_factory=set)  # workers whose line has ended without a goodbye
    given_up: str | None = None  # why the driver itself could not go on
    epoch: int = 0  # the last that has begun; who hears late needs no other
    _orders: dict[str, object] | None = None
    _commands: list[str] = field(default_factory=list)
    _cancelled: bool = False
    _floors: Floors | None = None
    _closed: bool = False
    _next: Going | None = None  # where the next attempt's workers are awaited
    workers: int | None = None  # that are awaited; None: as many as the first of them was told
    changed: threading.Condition = field(default_factory=threading.Condition)
    moves: Callable[[int, Mapping[str, Any]], None] = lambda worker, said: None  # told how far workers are with a move

    # -- workers -----------------------------------------------------------------------------------------------------

    def hello(self, hello: Hello) -> dict[str, object]:
        """A worker has arrived: `{}` to stay, `{"end": true}` to go home, `{"refused": why}` where it has no place.

        Each number is given once. Spark may start a task anew, and before the work begins its new attempt takes the
        place of the old one. Two processes of one attempt are one too many, and then no rows can be trusted.
        """
        with self.changed:
            earlier = self.hellos.get(hello.worker)
            if earlier is None or (hello.attempt > earlier.attempt and self._orders is None):
                self.hellos[hello.worker] = hello
                self.changed.notify_all()
                return {}
            anew = hello.attempt > earlier.attempt
            refusal = (came_back if anew else one_too_many)(earlier, hello)
            if not self.ending and earlier.process != hello.process:
                self.fault(Fault(hello.worker, "worker", refusal, lost=hello.worker))
            return {"end": True} if anew else {"refused": refusal}

    def is_here(self, hello: Hello) -> bool:
        """Whether this very process holds its number; one that was replaced does not."""
        return self.hellos.get(hello.worker) == hello

    def orders(self, hello: Hello, timeout: float) -> dict[str, object]:
        """The deployment, once there is one; `{"wait": true}` when the time is over, `{"end": true}` to go home."""
        with self.changed:
            self.changed.wait_for(lambda: self._orders is not None or self.ending or not self.is_here(hello), timeout)
            if self.ending or not self.is_here(hello):
                return {"end": True}
            return self._orders or {"wait": True}

    def commands(
        self, worker: int, seen: int, epoch: int, timeout: float, beat: Beat | None = None
    ) -> dict[str, object]:
        """Commands after the first `seen`, and the last epoch unless it is `epoch`; what to ask with the next time.

        Returns early when the worker is done. To ask is a sign of life.
        """
        with self.changed:
            self.beats[worker] = beat or Beat()
            self.changed.wait_for(
                lambda: len(self._commands) > seen or self.epoch > epoch or worker in self.statuses or self.ending,
                timeout,
            )
            words: list[str] = []
            if worker not in self.statuses:
                words = self._commands[seen:]
                words += [epoch_command(self.epoch)] if self.epoch > epoch else []
                words += ["cancel"] if self.ending else []
            is_over = self._closed or worker in self.statuses
            return {"commands": words, "seen": len(self._commands), "epoch": self.epoch, "end": is_over}

    def pace(self, worker: int, floors: Mapping[str, int]) -> dict[str, object]:
        """How far the sources of the other workers are, in exchange for how far this one's are."""
        with self.changed:
            if self._floors is None:
                return {"floors": {}}
            heard = self._floors.exchange(worker, {int(group): int(time_us) for group, time_us in floors.items()})
        return {"floors": {str(group): time_us for group, time_us in heard.items()}}

    def fault(self, fault: Fault) -> None:
        """A worker has failed; the others follow at once, or they would wait for it."""
        with self.changed:
            if len(self.faults) < FAULTS_MAX:
                self.faults.append(fault)
            self.cancel()

    def lost(self, hello: Hello, lane: str = "talk") -> None:
        """A worker's line has ended without a goodbye: it has died, and Spark will say so later.

        Or the line has broken alone. No job does without any of its lanes: without `keep` its epochs are never whole,
        without `pace` sources elsewhere wait, without `data` rows do not come. So the end of each is the worker's.
        """
        with self.changed:
            if not self.is_here(hello) or hello.worker in self.statuses or self._closed:
                return
            if lane in LIVE_LANES:
                self.gone.add(hello.worker)
                self.changed.notify_all()
            if not self.ending:
                gone = f"{hello.process} has closed its line to the driver ({lane}) without a goodbye"
                self.fault(Fault(hello.worker, "peer", gone, lost=hello.worker))

    def misheard(self, hello: Hello, lane: str, error: Exception) -> None:
        """What a worker said could not be taken, so that its line has to end."""
        with self.changed:
            if self.is_here(hello) and not self.ending:
                said = f"the driver could not take what its line ({lane}) brought: {error}"
                self.fault(Fault(hello.worker, "worker", said))

    def give_up(self, reason: str) -> None:
        """The driver cannot go on, so every worker has to end."""
        with self.changed:
            self.given_up = self.given_up or reason
            self.cancel()

    def begins(self, worker: int) -> None:
        """A worker has its connections and its state."""
        with self.changed:
            self.at_work.add(worker)
            self.changed.notify_all()

    def done(self, worker: int, status: str) -> None:
        """A worker has ended and handed over everything."""
        with self.changed:
            if self._floors is not None:
                self._floors.left(worker)
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
        return self._closed or self._cancelled

    @property
    def is_explained(self) -> bool:
        """Whether it is known what a failure came from: peers of a worker that fails hear of it before we do."""
        if any(fault.kind in {"task", "worker"} for fault in self.faults):
            return True
        lost = {fault.lost for fault in self.faults if fault.lost is not None}
        heard = self.statuses.keys() | self.gone
        return heard >= self.hellos.keys() or (bool(self.faults) and heard >= lost)

    def _complete(self) -> bool:
        return bool(self.hellos) and len(self.hellos) == (self.workers or next(iter(self.hellos.values())).workers)

    def publish(self, orders: Mapping[str, object], floors: Floors | None = None) -> None:
        """Let the workers begin; `floors` is for those whose sources keep pace with each other."""
        with self.changed:
            self._floors = floors
            self._orders = dict(orders)
            self.changed.notify_all()

    def command(self, word: str) -> None:
        """Tell every worker: `stop` or `scale COUNT REGION`."""
        with self.changed:
            self._commands.append(word)
            self.changed.notify_all()

    def cancel(self) -> None:
        """Tell every worker to end at once."""
        with self.changed:
            self._cancelled = True
            self.changed.notify_all()

    def over_to(self, going: Going) -> None:
        """Tell every worker to stand still, and then where to go."""
        with self.changed:
            self._next = going
            self.command(OVER)

    def stands_still(self, worker: int, timeout: float) -> Going | None:
        """A worker is ready to go over; where to, once all are, or None where nothing comes of it in time."""
        with self.changed:
            self.done(worker, OVER)
            self.changed.wait_for(lambda: self.are_over or self.has_parted or self.ending, timeout)
            return self._next if self.are_over else None

    def stay(self) -> None:
        """Nothing comes of going over: a worker that stands still later is told to end."""
        self._next = None

    @property
    def has_parted(self) -> bool:
        """Whether a worker has ended by itself, so that not all can stand still any more."""
        return any(status != OVER for status in self.statuses.values())

    @property
    def late(self) -> tuple[int, ...]:
        """Workers that have neither ended nor stand still."""
        return tuple(sorted(self.hellos.keys() - self.statuses.keys()))

    @property
    def are_over(self) -> bool:
        """Whether every worker stands still, ready to come to the next attempt."""
        return len(self.statuses) == len(self.hellos) and {*self.statuses.values()} == {OVER}

    def begin_epoch(self, epoch: int) -> None:
        """Tell every worker that an epoch begins."""
        with self.changed:
            self.epoch = epoch
            self.changed.notify_all()

    def scale(self, region: str, replicas: int) -> None:
        """Tell every worker how many replicas a region is to have; InvalidInput when they end or heard too much."""
        with self.changed:
            if self.ending:  # workers would not hear it any more, and the caller would take silence for consent
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
        """Release every waiting thread."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()


class ControlServer:
    """Carries calls to the Roll and rows to `take`; bound to one address, at a port of the network's.

    A worker shows the job's ticket to say hello; what it gets in return opens its other lanes and, with its orders, its
    connections to other workers. So the ticket alone, once its number has said hello, opens nothing.
    """

    def __init__(
        self,
        host: str,
        ticket: bytes,
        workers_max: int,
        take: TakeBatch,
        kept: TakeReport | None = None,
        network: Network = Network(),  # noqa: B008 # frozen
    ) -> None:
        """`kept` is told of parts of epochs; ValueError from it refuses the call. None: the job has no checkpoints."""
        self.roll = Roll()
        self._ticket, self._workers_max, self._take, self._kept = ticket, workers_max, take, kept
        self._secret = secrets.token_bytes(KEY_BYTES)
        credentials = network.credentials()
        listener = _listener(host, network)
        self.port: int = listener.getsockname()[1]
        self._door = Door(listener, self._key_of, self._serve, len(LANES) * workers_max, credentials)

    def end(self) -> None:
        """Release every caller and close the port; a caller that does not go does not hold us up for long."""
        self.roll.close()
        self._door.close(SHUTDOWN_SECONDS)

    def data_key(self) -> bytes:
        """What the workers prove to each other; every attempt at the job has another server, and so another secret."""
        return derive(self._secret, "data")

    def _key_of(self, claim: Claim) -> bytes | None:
        hello = self.roll.hellos.get(claim.worker)
        if not 0 <= claim.worker < self._workers_max or (claim.lane != "talk" and hello is None):
            return None
        key = self._ticket if claim.lane == "talk" or hello is None else self._worker_key(hello)
        return key if is_proved(claim, key) else None

    def _worker_key(self, hello: Hello) -> bytes:
        return derive(self._secret, "worker", hello.worker, hello.attempt, hello.pid)

    def _serve(self, claim: Claim, line: Line) -> None:
        if claim.lane == "data":
            self._take_rows(claim.worker, line)
        else:
            self._answer_calls(claim, line)

    def _answer_calls(self, claim: Claim, line: Line) -> None:
        """Answer one call after the other until the worker hangs up."""
        known: list[Hello] = [] if claim.lane == "talk" else [self.roll.hellos[claim.worker]]
        try:
            self._answer_each(claim, line, known)
        except OSError as error:
            if known and isinstance(error, LineBroken) and not isinstance(error, LineEnded):
                self.roll.misheard(known[0], claim.lane, error)
            elif known:
                self.roll.lost(known[0], claim.lane)
            raise

    def _answer_each(self, claim: Claim, line: Line, known: list[Hello]) -> None:
        """Until the line breaks; `known` is told of the worker that has said hello."""
        size_max = KEPT_BYTES_MAX if claim.lane == "keep" else REPORT_BYTES_MAX
        while True:
            _, body = line.receive({WORDS: size_max}, MESSAGE_SECONDS)
            hello = known[0] if known else None
            try:
                call = decode(body, size_max)
                kind = str(call.pop("call"))
                if kind == "hello" and hello is None:
                    arrived = Hello.told({**call, "worker": claim.worker})
                    answer = self._admit(arrived, line)
                    known += [arrived] if "key" in answer else []
                elif kind == "orders" and hello is not None:
                    answer = self._orders(hello)
                else:
                    answer = self._answer(hello, kind, call)
            except (ValueError, TypeError, KeyError) as error:
                answer = {"refused": f"worker {claim.worker} sent a malformed call: {error}"}
            line.send(WORDS, encode(answer))

    def _admit(self, hello: Hello, line: Line) -> dict[str, object]:
        pad = derive(line.key, "worker key")
        return self.roll.hello(hello) or {"key": veiled(self._worker_key(hello), pad).hex()}

    def _answer(self, hello: Hello | None, kind: str, call: dict[str, Any]) -> dict[str, object]:
        if hello is None or not self.roll.is_here(hello):
            msg = f"{kind!r} of a process that has no place in this job"
            raise ValueError(msg)
        match kind:
            case "commands":
                beat = Beat(float(call.get("busy_s", 0.0)), float(call.get("still_s", 0.0)))
                seen, epoch = int(call["seen"]), int(call["epoch"])
                return self.roll.commands(hello.worker, seen, epoch, beat_seconds(self._workers_max), beat)
            case "pace":
                return self.roll.pace(hello.worker, call["floors"])
            case "fault":
                self.roll.fault(Fault(**{**call, "worker": hello.worker}))
            case "kept" if self._kept is not None:
                self._kept(hello.worker, decode_report(call))
            case "at work":
                self.roll.begins(hello.worker)
            case "done":
                self.roll.done(hello.worker, str(call["status"]))
            case "over":
                return self._sent_over(hello)
            case "moves":
                self.roll.moves(hello.worker, call)
            case _:
                msg = f"there is no call {kind!r}"
                raise ValueError(msg)
        return {}

    def _sent_over(self, hello: Hello) -> dict[str, object]:
        """Where a worker that stands still is to go; empty where it is to end."""
        going = self.roll.stands_still(hello.worker, OVER_SECONDS)
        return {} if going is None else going.answer(hello.worker, self._worker_key(hello))

    def _orders(self, hello: Hello) -> dict[str, object]:
        orders = self.roll.orders(hello, POLL_SECONDS)
        if "job" not in orders:
            return orders
        pad = derive(self._worker_key(hello), "data key")
        return {**orders, "data_key": veiled(self.data_key(), pad).hex()}

    def _take_rows(self, worker: int, line: Line) -> None:
        """Rows of collecting sinks and of the metric log; the last message is answered when all have been taken."""
        limits = {RESULTS: BATCH_BYTES_MAX, METRICS: BATCH_BYTES_MAX, END: 0}
        while True:
            try:
                kind, body = line.receive(limits, MESSAGE_SECONDS)
            except LineEnded:
                self.roll.lost(self.roll.hellos[worker], "data")
                return
            except OSError as error:  # as when a worker dies within a message
                self.roll.fault(Fault(worker, "worker", f"the driver could not take its rows: {error}", lost=worker))
                return
            if kind == END:
                line.send(END)
                return
            try:
                name, batches = decode_rows(body)
                for batch in batches:
                    self._take(worker, "results" if kind == RESULTS else "metrics", name, batch)
            except OSError as error:  # a disk that is full, a folder that was removed: the driver's own fault
                self.roll.give_up(str(error))
                return
            except (ValueError, TypeError, KeyError) as error:
                self.roll.fault(Fault(worker, "worker", f"the driver could not take its rows: {error}"))
                return


def _listener(host: str, network: Network) -> socket.socket:
    """The driver's, at an address and ports that its user may have given."""
    try:
        return listen(host, network.control)
    except NoPortLeft as error:
        raise InvalidInput(error.strerror or str(error)) from None


def wait_in_steps(wait: Callable[[float], bool], seconds: float | None) -> bool:
    """Call `wait` with at most STEP_SECONDS, so that Ctrl-C is seen, until it is true or the time is over, if ever."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while not wait(max(0.0, min(STEP_SECONDS, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.02) -> bool:
    """Ask again and again until the condition holds or the time is over; for what Spark does not announce."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True
