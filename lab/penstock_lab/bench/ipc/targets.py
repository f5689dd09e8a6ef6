"""The ring's targets, as ratios to peers of the same run, each met, missed or not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock_lab.bench.ipc import netty_link as ipc_netty
from penstock_lab.bench.ipc import transports as names
from penstock_lab.bench.ipc.cases import KB, Case

if TYPE_CHECKING:
    from penstock_lab.bench.ipc.measure import Cases, Results

Row = dict[str, object]
Figure = Literal["p50_us", "p99_us", "mean_us", "mb_per_second", "cpu_share"]
LEAST_REDUCTION = 0.4564  # of the mean latency against Netty, paper 003, section VI


@dataclass(frozen=True)
class Target:
    """Our figure over another transport's, at most `limit` (with `at_least`: at least); without another, ours alone."""

    name: str
    figure: Figure
    case: Case
    limit: float
    other: str = ""
    other_case: Case | None = None
    ours: str = names.RING
    at_least: bool = False

    def row(self, results: Results) -> Row:
        """The target with its figures and the verdict."""
        ours = _figure(results, self.ours, self.case, self.figure)
        row: Row = {"target": self.name, "ours": ours, "limit": f"{'>=' if self.at_least else '<='} {self.limit:g}"}
        value = ours
        if self.other:
            theirs = _figure(results, self.other, self.other_case or self.case, self.figure)
            row |= {"against": self.other, "theirs": theirs}
            value = None if ours is None or not theirs else ours / theirs
            row["ratio"] = value
        held = value is not None and (value >= self.limit if self.at_least else value <= self.limit)
        return row | {"verdict": "not measured" if value is None else "met" if held else "missed"}


def _figure(results: Results, transport: str, case: Case, figure: Figure) -> float | None:
    found = results.at(transport, case)
    return None if found is None else getattr(found, figure)


def rows(results: Results, cases: Cases) -> list[Row]:
    """Every target's row."""
    return [target.row(results) for target in targets(cases)]


def targets(cases: Cases) -> list[Target]:
    """All of them, in the order of the sections."""
    return [*_latency(cases), *_throughput(cases), *_arrow(cases), *_waiting(cases), *_netty(cases)]


def _said(case: Case) -> str:
    return f"{case.size // KB} KB at {case.rate:,.0f}/s"


def _latency(cases: Cases) -> list[Target]:
    *small, large = cases.paced
    found = []
    for case in small:
        found += [
            Target(f"p50 us, {_said(case)}", "p50_us", case, 0.7, names.UNIX),
            Target(f"p50 us, {_said(case)}", "p50_us", case, 0.4, names.ICEORYX),
            Target(f"p99 us, {_said(case)}", "p99_us", case, 0.7, names.UNIX),
        ]
    return found + [Target(f"p50 us, {_said(large)}", "p50_us", large, 1.0, o) for o in (names.UNIX, names.ICEORYX)]


def _throughput(cases: Cases) -> list[Target]:
    found = []
    for case in cases.flat:
        title = f"MB/s flat out, {case.size // KB} KB"
        found.append(Target(title, "mb_per_second", case, 2.0, names.UNIX, at_least=True))
        found += [
            Target(title, "mb_per_second", case, 1.0, other, at_least=True)
            for other in (names.ICEORYX, names.ICEORYX_SPIN)
        ]
    one = next(case for case in cases.flat if case.size == cases.many.size)
    title = f"MB/s, {cases.many.producers} producers against one"
    return [*found, Target(title, "mb_per_second", cases.many, 0.9, names.RING, one, at_least=True)]


def _arrow(cases: Cases) -> list[Target]:
    small, large, flat, unread = cases.arrow
    ours = names.ARROW_RING
    sockets = (names.ARROW_UNIX, names.ARROW_STREAM)
    return [
        *(Target(f"Arrow p50 us, {_said(small)}", "p50_us", small, 0.35, other, ours=ours) for other in sockets),
        *(Target(f"Arrow p50 us, {_said(large)}", "p50_us", large, 0.5, other, ours=ours) for other in sockets),
        *(
            Target(
                f"Arrow MB/s flat out, 64 KB{word}", "mb_per_second", case, 2.0, names.ARROW_ICEORYX, None, ours, True
            )
            for word, case in (("", flat), (" unread", unread))
        ),
    ]


def _waiting(cases: Cases) -> list[Target]:
    busiest = cases.paced[1]
    return [
        Target("share of a core, waiting idle", "cpu_share", cases.idle, 0.01),
        Target(f"share of a core, {_said(busiest)}", "cpu_share", busiest, 0.03),
    ]


def _netty(cases: Cases) -> list[Target]:
    limit = round(1 - LEAST_REDUCTION, 4)
    return [Target(f"mean us, {_said(case)}", "mean_us", case, limit, ipc_netty.NETTY_NIO) for case in cases.paced[1:3]]
