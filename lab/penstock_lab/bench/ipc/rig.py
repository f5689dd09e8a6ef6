"""The rig: a process for each transport that forks consumer and producers for each case, and the parent's handle on it.

    python -P -m penstock_lab.bench.ipc.rig 'unix socket'     reads cases from stdin, answers each with a line of JSON

Producers send by an open schedule: each message is due at a fixed time. Its stamp is the time after the sleep, or the
due time if the transport held the sender up beyond it, so that waiting inside a transport counts and the timer's
lateness does not. Stamps are CLOCK_MONOTONIC, which all processes of a machine share. The consumer's CPU time is that
of its whole process, with the library's threads. A transport's process lives for the whole run, so that all transports
can take turns. It forks a consumer for each case, which forks its producers; these die with it.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock_lab.bench.ipc.cases import STAMP_END, Case, Outcome, outcome_of

START_SECONDS = 60.0
STARTS_MAX = 3
NO_ANSWER, ENDED = "no answer", "its process ended"
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
_STAMP = struct.Struct("<q")


class Payload(Protocol):
    """The message that a producer sends over and over, with a stamp in it."""

    message: Any

    def stamp(self, now_ns: int) -> None:
        """Set the stamp."""


class Bytes:
    """A message of `size` bytes whose first eight are the stamp."""

    def __init__(self, size: int) -> None:
        self.message = bytearray(os.urandom(size))

    def stamp(self, now_ns: int) -> None:
        """Set the stamp."""
        _STAMP.pack_into(self.message, 0, now_ns)


def read_bytes(message: Any) -> int:  # noqa: ANN401 - whatever offers the buffer protocol
    """The stamp; a view's payload is not touched."""
    return int(_STAMP.unpack_from(message)[0])


# -- the producer ------------------------------------------------------------------------------------------------------


def send_paced(send: Callable[[Any], object], payload: Payload, rate: float, count: int) -> None:
    """`count` messages, `rate` a second."""
    gap = round(1e9 / rate)
    due = time.monotonic_ns() + gap
    for _ in range(count):
        stamp = time.monotonic_ns()
        if stamp < due:
            time.sleep((due - stamp) / 1e9)
            stamp = time.monotonic_ns()
            if stamp - due > gap:  # the machine was busy: the schedule moves, so that no burst follows
                due = stamp
        else:
            stamp = due
        payload.stamp(stamp)
        send(payload.message)
        due += gap


def send_flat(send: Callable[[Any], object], payload: Payload, seconds: float) -> None:
    """As many messages as possible in that time, then one with the stamp of the end."""
    payload.stamp(0)
    message, until = payload.message, time.monotonic_ns() + round(seconds * 1e9)
    while time.monotonic_ns() < until:
        for _ in range(4):
            send(message)
    payload.stamp(STAMP_END)
    send(message)


def produce(link: Any, case: Case, payload: Payload, go: int) -> None:  # noqa: ANN401
    """A producer's life: wait for the start signal, send, wait until the consumer has everything."""
    os.read(go, 1)
    end = link.sender()
    if case.kind == "paced":
        send_paced(end.send, payload, case.rate, case.warm + case.count)
    elif case.kind == "idle":
        end.send(payload.message)
        time.sleep(case.seconds)
        end.send(payload.message)
    else:
        send_flat(end.send, payload, case.seconds)
    os.read(go, 1)
    end.close()


def fork_producer(link: Any, case: Case, payload: Payload) -> tuple[int, int]:  # noqa: ANN401
    """(process, the descriptor that gives it the start signal)."""
    go, word = os.pipe()
    process = os.fork()
    if process:
        os.close(go)
        return process, word
    status = 1
    try:
        os.close(word)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        prctl = ctypes.CDLL(None).prctl
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_TIMERSLACK, 1)
        produce(link, case, payload, go)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


# -- the consumer ------------------------------------------------------------------------------------------------------


def consume(receive: Callable[[], Any], read: Callable[[Any], int], case: Case) -> dict[str, object]:
    """Take what the producers send and count."""
    if case.kind == "paced":
        return consume_paced(receive, read, case)
    return consume_idle(receive) if case.kind == "idle" else consume_flat(receive, read, case.producers)


def consume_paced(receive: Callable[[], Any], read: Callable[[Any], int], case: Case) -> dict[str, object]:
    """Latency of each message after the warm-up."""
    clock, latency = time.monotonic_ns, array.array("q", bytes(8 * case.count))
    for _ in range(case.warm):
        read(receive())
    began, cpu = clock(), time.process_time()
    for number in range(case.count):
        stamp = read(receive())
        latency[number] = clock() - stamp
    return {
        "latency_ns": latency.tolist(),
        "seconds": (clock() - began) / 1e9,
        "cpu_seconds": time.process_time() - cpu,
    }


def consume_flat(receive: Callable[[], Any], read: Callable[[Any], int], producers: int) -> dict[str, object]:
    """Messages from the first to the last producer's last."""
    read(receive())
    began, cpu, messages = time.monotonic_ns(), time.process_time(), 0
    while producers:
        if read(receive()) == STAMP_END:
            producers -= 1
        messages += 1
    return {
        "messages": messages,
        "seconds": (time.monotonic_ns() - began) / 1e9,
        "cpu_seconds": time.process_time() - cpu,
    }


def consume_idle(receive: Callable[[], Any]) -> dict[str, object]:
    """CPU of waiting for a message that takes its time."""
    receive()
    began, cpu = time.monotonic_ns(), time.process_time()
    receive()
    return {"seconds": (time.monotonic_ns() - began) / 1e9, "cpu_seconds": time.process_time() - cpu}


class ProducerFailed(RuntimeError):
    """A producer ended before it had sent everything."""


def notice_failures(number: int, frame: object) -> None:
    """On SIGCHLD: a consumer must not wait for a producer that has failed."""
    with contextlib.suppress(ChildProcessError):
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is not None and found.si_status:
            msg = f"a producer ended with status {found.si_status}"
            raise ProducerFailed(msg)


def run_case(transport: str, case: Case) -> dict[str, object]:
    """One case in this process and the producers that it forks."""
    from penstock_lab.bench.ipc.transports import make

    link, payload, read = make(transport, case)
    gc.collect()
    gc.freeze()
    gc.disable()
    signal.signal(signal.SIGCHLD, notice_failures)
    producers = [fork_producer(link, case, payload) for _ in range(case.producers)]
    end = link.receiver()
    for _, word in producers:
        os.write(word, b"g")
    found = consume(end.receive, read, case)
    for _, word in producers:
        os.write(word, b"d")
    for process, _ in producers:
        os.waitpid(process, 0)
    end.close()
    return found


def answer_case(transport: str, line: str, answers: int) -> None:
    """Run a case in a process of its own: a process that forks must not have run a library with threads before."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        if status:
            words = f"its consumer ended with {os.waitstatus_to_exitcode(status)}"
            os.write(answers, json.dumps({"failure": words}).encode() + b"\n")
        return
    try:
        found = run_case(transport, Case.from_line(line))
    except Exception as error:  # one transport's trouble must not end the table
        traceback.print_exc()
        found = {"failure": f"{type(error).__name__}: {error}"}
    with os.fdopen(answers, "wb") as file:
        file.write(json.dumps(found).encode() + b"\n")
    os._exit(0)


def main() -> None:
    """Answer cases until stdin ends. What libraries print goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    os.write(answers, b"{}\n")
    for line in sys.stdin:
        answer_case(sys.argv[1], line, answers)


# -- the parent --------------------------------------------------------------------------------------------------------


class Bench(Protocol):
    """Whatever runs cases of one transport."""

    def run(self, case: Case) -> Outcome:
        """One case."""

    def close(self) -> None:
        """Its processes end."""


class LineProcess:
    """A child process that answers lines with lines, within limits, and is gone when closed."""

    def __init__(self, command: list[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,  # so that it can be ended with the producers that it forked
        )
        assert self._process.stderr is not None  # noqa: S101
        os.set_blocking(self._process.stderr.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)

    @property
    def _out(self) -> Any:  # noqa: ANN401
        return self._process.stdout

    def tell(self, line: str) -> None:
        """Send a line."""
        assert self._process.stdin is not None  # noqa: S101
        with contextlib.suppress(BrokenPipeError):  # `answer` will say how the process died
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, object]:
        """The next line's JSON, or {"failure": why}."""
        if not self._selector.select(seconds):
            return {"failure": f"{NO_ANSWER} within {seconds:.0f} s"}
        line = self._out.readline()
        if not line:
            return {"failure": f"{ENDED}: {self._last_words()}"}
        found: dict[str, object] = json.loads(line)
        return found

    def _last_words(self) -> str:
        assert self._process.stderr is not None  # noqa: S101
        lines = (self._process.stderr.read() or "").strip().splitlines()
        return lines[-1][:200] if lines else f"status {self._process.wait(1)}"

    def close(self) -> None:
        """End the process and everything that it started."""
        self._selector.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class PythonBench:
    """A transport whose two ends are Python processes; stuck ones are ended and started again, up to a limit."""

    def __init__(self, transport: str, python: str = sys.executable) -> None:
        self._command = [python, "-P", "-m", "penstock_lab.bench.ipc.rig", transport]
        self._child: LineProcess | None = None
        self._starts, self._failure = 0, ""

    def _start(self) -> None:
        self._starts += 1
        self._child = LineProcess(self._command)
        self._failure = str(self._child.answer(START_SECONDS).get("failure", ""))
        if self._failure:
            self.close()

    def run(self, case: Case) -> Outcome:
        """One case."""
        if self._child is None and self._starts < STARTS_MAX:
            self._start()
        if self._child is None:
            return Outcome(failure=self._failure)
        self._child.tell(case.to_line())
        raw = self._child.answer(case.limit_seconds)
        if str(raw.get("failure", "")).startswith((NO_ANSWER, ENDED)):
            self._failure = str(raw["failure"])
            self.close()
        return outcome_of(case, raw)

    def close(self) -> None:
        """Its processes end."""
        if self._child is not None:
            self._child.close()
            self._child = None


if __name__ == "__main__":
    main()
