"""`penstock bench ipc`: the ring beside every transport that a Python process can use, in the same run.

All transports take every case in turn, in an order that rotates from round to round
(`test_transports_take_turns_and_the_first_changes`), and each figure is the median over the rounds: on a machine with
other load, figures must be taken side by side to be compared. Targets are ratios for the same reason. Latency is one
way, from just before the send until the receiver holds the message. With Arrow batches, the receiver also sums a
column.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock_lab.bench import contract
from penstock_lab.bench.contract import Progress, Row
from penstock_lab.bench.engine import measure as engine
from penstock_lab.bench.ipc import install as ipc_install
from penstock_lab.bench.ipc import netty_link as ipc_netty
from penstock_lab.bench.ipc import tables as ipc_tables
from penstock_lab.bench.ipc import targets as ipc_targets
from penstock_lab.bench.ipc import transports as names
from penstock_lab.bench.ipc.cases import KB, Case, Outcome, median_of
from penstock_lab.bench.ipc.rig import Bench, PythonBench

RATE = 3000.0
SIZES = (1 * KB, 10 * KB, 40 * KB, 320 * KB)
FLAT_SIZES = SIZES[1:]
MANY_PRODUCERS, MANY_SIZE = 4, 10 * KB
ARROW_SMALL, ARROW_SMALL_RATE = 64 * KB, 1000.0
ARROW_LARGE, ARROW_LARGE_RATE = 1024 * KB, 200.0


@dataclass(frozen=True)
class Effort:
    """How many rounds and seconds a run takes."""

    rounds: int = 5
    paced_seconds: float = 0.7
    flat_seconds: float = 0.4
    idle_seconds: float = 1.0


FULL, QUICK = Effort(), Effort(rounds=1, paced_seconds=0.25, flat_seconds=0.12, idle_seconds=0.3)


@dataclass
class Results:
    """Outcomes by transport and case, a list over the rounds, and why transports are missing."""

    taken: dict[tuple[str, Case], list[Outcome]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def at(self, transport: str, case: Case) -> Outcome | None:
        """The median over the rounds; None when the transport did not take the case or failed at it."""
        found = self.taken.get((transport, case))
        middle = median_of(found) if found else None
        return None if middle is None or middle.failure else middle


@dataclass(frozen=True)
class Cases:
    """What is measured, with one effort."""

    effort: Effort

    @property
    def paced(self) -> list[Case]:
        """Blocking receivers at a steady rate."""
        return [Case("paced", size, RATE, self.effort.paced_seconds) for size in SIZES]

    @property
    def flat(self) -> list[Case]:
        """One producer, flat out."""
        return [Case("flat", size, seconds=self.effort.flat_seconds) for size in FLAT_SIZES]

    @property
    def idle(self) -> Case:
        """A receiver that waits."""
        return Case("idle", KB, seconds=self.effort.idle_seconds)

    @property
    def many(self) -> Case:
        """Several producers, flat out."""
        return Case("flat", MANY_SIZE, seconds=self.effort.flat_seconds, producers=MANY_PRODUCERS)

    @property
    def arrow(self) -> list[Case]:
        """Small and large batches at a steady rate, then small ones flat out, read and unread."""
        seconds = self.effort.paced_seconds
        return [
            Case("paced", ARROW_SMALL, ARROW_SMALL_RATE, seconds),
            Case("paced", ARROW_LARGE, ARROW_LARGE_RATE, max(seconds, 0.5)),
            Case("flat", ARROW_SMALL, seconds=self.effort.flat_seconds),
            Case("flat", ARROW_SMALL, seconds=self.effort.flat_seconds, read=False),
        ]

    def of(self, transport: str) -> list[Case]:
        """The cases that this transport takes."""
        if transport in ipc_netty.TRANSPORTS:
            return [*self.paced, *self.flat]
        known = names.TRANSPORTS[transport]
        if known.arrow:
            return self.arrow
        return [*self.paced, *self.flat, self.idle, *([self.many] if known.many_producers else [])]


def main(quick: bool = False, progress: Progress = lambda message: None) -> dict[str, list[Row]]:
    """Every section's rows; `quick` takes one short round of each."""
    cases = Cases(QUICK if quick else FULL)
    chosen = [*names.TRANSPORTS, *ipc_netty.TRANSPORTS]
    if quick:
        chosen.remove(ipc_netty.NETTY_EPOLL)
    results = measure(chosen, cases.of, cases.effort.rounds, progress)
    return {
        "ipc_latency": latency_rows(results, cases),
        "ipc_flat_out": flat_rows(results, cases),
        "ipc_arrow": arrow_rows(results, cases),
        "ipc_targets": ipc_targets.rows(results, cases),
        "ipc_engine": engine.transport_latency(1 if quick else cases.effort.rounds, 1.0 if quick else 3.0, progress),
        "ipc_skipped": [{"transport": name, "note": why} for name, why in results.skipped.items()],
    }


def measure(
    transports: Iterable[str], cases_of: Callable[[str], Sequence[Case]], rounds: int, progress: Progress
) -> Results:
    """Take all cases on all transports, in turn: each case on every transport before the next case."""
    results = Results()
    with contextlib.ExitStack() as stack:
        benches: dict[str, Bench] = {}
        for transport in transports:
            progress(f"starting {transport}")
            bench = open_bench(transport, results.skipped)
            if bench is not None:
                benches[transport] = bench
                stack.callback(bench.close)
        for number in range(rounds):
            for transport, case in turns(benches, cases_of, number):
                progress(f"round {number + 1} of {rounds}: {transport}, {case.kind}, {case.size // KB} KB")
                outcome = benches[transport].run(case)
                results.taken.setdefault((transport, case), []).append(outcome)
                if outcome.failure:
                    results.skipped[transport] = f"{case.kind}, {case.size // KB} KB: {outcome.failure}"
    return results


def turns(
    benches: Mapping[str, Bench], cases_of: Callable[[str], Sequence[Case]], number: int
) -> list[tuple[str, Case]]:
    """One round: by case, then by transport, beginning with another transport each time."""
    order = list(benches)
    shift = number % len(order) if order else 0
    order = order[shift:] + order[:shift]
    wanted = {name: set(cases_of(name)) for name in order}
    every = dict.fromkeys(case for name in benches for case in cases_of(name))
    return [(name, case) for case in every for name in order if case in wanted[name]]


def open_bench(transport: str, skipped: dict[str, str]) -> Bench | None:
    """The transport's processes, or None and a line in `skipped`."""
    if transport in ipc_netty.TRANSPORTS:
        try:
            return ipc_netty.NettyBench(transport)
        except ipc_netty.NettyMissing as error:
            skipped[transport] = str(error)
            return None
    python = ipc_install.python_for(transport)
    if python is None:
        skipped[transport] = ipc_install.missing(transport)
        return None
    return PythonBench(transport, python)


def latency_rows(results: Results, cases: Cases) -> list[Row]:
    """Latency and the receiver's CPU, one row for each transport and size, then its CPU when idle."""
    rows: list[Row] = []
    for transport in dict.fromkeys(name for name, _ in results.taken):
        idle = results.at(transport, cases.idle)
        for case in cases.paced:
            found = results.at(transport, case)
            if found is not None:
                rows.append(
                    {
                        "transport": transport,
                        "size_kb": case.size // KB,
                        "p50_us": found.p50_us,
                        "p99_us": found.p99_us,
                        "mean_us": found.mean_us,
                        "cpu_share": found.cpu_share,
                        "idle_cpu_share": None if idle is None else idle.cpu_share,
                    }
                )
    return rows


def flat_rows(results: Results, cases: Cases) -> list[Row]:
    """Throughput, one row for each transport, size and number of producers."""
    return [
        {
            "transport": transport,
            "size_kb": case.size // KB,
            "producers": case.producers,
            "mb_per_s": found.mb_per_second,
        }
        for transport in dict.fromkeys(name for name, _ in results.taken)
        for case in [*cases.flat, cases.many]
        if (found := results.at(transport, case)) is not None and not names.is_arrow(transport)
    ]


def arrow_rows(results: Results, cases: Cases) -> list[Row]:
    """Arrow batches, one row for each transport."""
    small, large, flat, unread = cases.arrow
    rows: list[Row] = []
    for transport in filter(names.is_arrow, dict.fromkeys(name for name, _ in results.taken)):
        row: Row = {"transport": transport.removeprefix(names.ARROW)}
        for label, case in (("64_kb", small), ("1_mb", large)):
            found = results.at(transport, case)
            row[f"p50_us_{label}"] = None if found is None else found.p50_us
            row[f"p99_us_{label}"] = None if found is None else found.p99_us
        for label, case in (("mb_per_s", flat), ("mb_per_s_unread", unread)):
            found = results.at(transport, case)
            row[label] = None if found is None else found.mb_per_second
        rows.append(row)
    return rows


def _install_peers(progress: Progress) -> None:
    progress(f"installing peers into {ipc_install.folder()}")
    ipc_install.install()


BENCH = contract.Bench(
    "the ring beside other transports: iceoryx2, pyzmq, pynng, sockets, pipes, Netty",
    main,
    {
        "ipc_latency": "one way at 3,000 messages/s: p50 / p99 us by message size, and the receiver's CPU in per cent",
        "ipc_flat_out": "flat out, MB/s by message size",
        "ipc_arrow": "Arrow batches, written, sent, opened and a column summed: p50 / p99 us, and MB/s flat out",
        "ipc_targets": "targets",
        "ipc_engine": "word count through two workers at 20,000 words/s, over rings and over sockets, ms",
        "ipc_skipped": "not measured",
    },
    {
        "ipc_latency": ipc_tables.by_size,
        "ipc_flat_out": ipc_tables.by_producers,
        "ipc_arrow": ipc_tables.batches,
    },
    _install_peers,
)
