"""Figure 8 of paper 003 (TurboStream), section VI.A: the ring against Netty by message size, by rate and by ring size.

Both sides are measured here: Netty as two Java processes (bench/ipc/netty), the ring as two Python processes, with the
same schedule, sizes and clock. The paper gives averages over messages, so the mean counts; medians and 99th percentiles
are in the CSV. The paper prints the range of reductions (45.64 % to 99.30 %), Netty's latency at 3,000 messages/s
(section II), a ring of 2 MB in (a), and 50 to 100 messages as the right ring size, but no values of the figure. In (b)
our ring is sized by that rule.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock_lab.bench.ipc import measure as ipc
from penstock_lab.bench.ipc import netty_link as ipc_netty
from penstock_lab.bench.ipc import transports as ipc_transports
from penstock_lab.bench.ipc.cases import KB, Case, Outcome
from penstock_lab.bench.machine import machine_line
from penstock_lab.reproduce.item import Report, prepare_folder
from penstock_lab.reproduce.measure import Progress
from penstock_lab.reproduce.statements import Statement, Verdict, judged, not_run
from penstock_lab.reproduce.turbostream_chart import draw_sweeps
from penstock_lab.reproduce.words import SIGNIFICANT_GROWTH, about, meaning, much_more, similar

PAPER = "TurboStream paper, section VI.A"
RING, NETTY, NETTY_EPOLL = ipc_transports.RING, ipc_netty.NETTY_NIO, ipc_netty.NETTY_EPOLL
REDUCTION_LEAST, REDUCTION_MOST = 45.64, 99.30  # per cent
SIZES = tuple(size * KB for size in (10, 20, 40, 80, 160, 320))
RATES = (100.0, 500.0, 1000.0, 2000.0, 3000.0)
RATE_SIZES = (10 * KB, 40 * KB)
RATE_OF_SIZES, RATE_OF_RINGS = 100.0, 3000.0
RING_BYTES_OF_SIZES = 2 << 20
RING_MESSAGES = (3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8)  # powers of two for both sizes
ADVISED_MESSAGES = (51.2, 102.4)  # of these, "50 to 100"
NETTY_US = {10 * KB: 11_430.0, 40 * KB: 192_360.0}  # printed: its mean at 3,000/s (section II)
COLUMNS = ("sweep", "transport", "size_kb", "rate", "ring_messages", "mean_us", "p50_us", "p99_us", "failure")
Take = Callable[[Sequence[str], Callable[[str], Sequence[Case]], int, Callable[[str], None]], ipc.Results]


@dataclass(frozen=True)
class Effort:
    """How many rounds, and how many messages or seconds each point takes."""

    rounds: int = 3
    messages_min: int = 150
    seconds: float = 0.6

    def case(self, size: int, rate: float, ring_bytes: int = 0) -> Case:
        """One point."""
        return Case("paced", size, rate, max(self.seconds, self.messages_min / rate), ring_bytes=ring_bytes)


@dataclass(frozen=True)
class Sweeps:
    """The three groups of experiments, and what they gave."""

    effort: Effort
    results: ipc.Results

    def by_size(self) -> list[Case]:
        """Figure 8(a)."""
        return [self.effort.case(size, RATE_OF_SIZES, RING_BYTES_OF_SIZES) for size in SIZES]

    def by_rate(self, size: int) -> list[Case]:
        """Figure 8(b), one message size."""
        return [self.effort.case(size, rate) for rate in RATES]

    def by_ring(self, size: int) -> list[Case]:
        """Figure 8(c), one message size."""
        return [self.effort.case(size, RATE_OF_RINGS, round(messages * size)) for messages in RING_MESSAGES]

    def against_netty(self) -> list[Case]:
        """Figures 8(a) and 8(b)."""
        return [*self.by_size(), *(case for size in RATE_SIZES for case in self.by_rate(size))]

    def of(self, transport: str) -> list[Case]:
        """The cases of a transport."""
        rings = [case for size in RATE_SIZES for case in self.by_ring(size)] if transport == RING else []
        return [*self.against_netty(), *rings]

    def measured(self, transport: str) -> bool:
        """Whether there is any figure of the transport."""
        return any(self.results.at(transport, case) is not None for case in self.of(transport))

    def mean(self, transport: str, case: Case) -> float | None:
        """Mean latency in microseconds."""
        found = self.results.at(transport, case)
        return None if found is None else found.mean_us

    def reduction(self, case: Case, netty: str = NETTY) -> float | None:
        """By how many per cent the ring's mean is below Netty's."""
        ours, theirs = self.mean(RING, case), self.mean(netty, case)
        return None if ours is None or not theirs else 100 * (1 - ours / theirs)

    def median_reduction(self, case: Case) -> float | None:
        """By how many per cent the ring's median is below Netty's."""
        ours, theirs = self.results.at(RING, case), self.results.at(NETTY, case)
        if ours is None or theirs is None or ours.p50_us is None or not theirs.p50_us:
            return None
        return 100 * (1 - ours.p50_us / theirs.p50_us)


@dataclass(frozen=True)
class TransportFigure:
    """The item; `take` measures, and tests hand in their own."""

    name: str = "turbostream-fig8"
    title: str = "The ring against Netty: latency by message size, rate and ring size"

    def run(
        self, out_dir: Path, progress: Progress, *, take: Take = ipc.measure, effort: Effort | None = None
    ) -> Report:
        """Measure, draw and write."""
        prepare_folder(out_dir)
        plan = Sweeps(effort or Effort(), ipc.Results())
        transports = (RING, NETTY, NETTY_EPOLL)
        total = plan.effort.rounds * sum(len(plan.of(name)) for name in transports)
        done = 0

        def count(text: str) -> None:
            nonlocal done
            progress(min(done, total), total, text)
            done += 1

        sweeps = Sweeps(plan.effort, take(transports, plan.of, plan.effort.rounds, count))
        progress(total, total, "measured")
        report = Report(
            self.name,
            self.title,
            write_rows(sweeps, out_dir / f"{self.name}.csv"),
            draw_sweeps(sweeps, out_dir / f"{self.name}.png"),
            out_dir / f"{self.name}.md",
            tuple(verdicts(sweeps)),
        )
        write_page(self, report, sweeps)
        return report


def verdicts(sweeps: Sweeps) -> list[tuple[Statement, Verdict]]:
    """The published statements with what we found."""
    found = [
        (
            "Fig. 8(a)",
            "Netty's latency remains about two times ours from 10 to 320 KB at 100/s",
            twice(sweeps),
        ),
        *(
            (
                "Fig. 8(b)",
                f"the ring's latency stays low up to 3,000/s, {size // KB} KB",
                growth(
                    sweeps, RING, size, lambda ratio: not much_more(ratio, 1.0), f"low is not high: {meaning('high')}"
                ),
            )
            for size in RATE_SIZES
        ),
        *(
            (
                "II, Fig. 8(b)",
                f"Netty's latency is high at 3,000/s, where its send buffer queues, {size // KB} KB",
                growth(
                    sweeps,
                    NETTY,
                    size,
                    lambda ratio: ratio >= SIGNIFICANT_GROWTH,
                    f"queueing means at least {SIGNIFICANT_GROWTH:g} times",
                ),
            )
            for size in RATE_SIZES
        ),
        *(
            ("II", f"Netty takes {NETTY_US[size] / 1e3:.2f} ms at 3,000/s, {size // KB} KB", netty_takes(sweeps, size))
            for size in RATE_SIZES
        ),
        (
            "VI.A",
            f"no point's reduction is below {REDUCTION_LEAST} %",
            reduced(sweeps, sweeps.against_netty(), REDUCTION_LEAST),
        ),
        ("VI.A", f"the greatest reduction reaches {REDUCTION_MOST} %", greatest(sweeps)),
        *(
            ("Fig. 8(c)", f"a ring of 50 to 100 messages is large enough, {size // KB} KB", large_enough(sweeps, size))
            for size in RATE_SIZES
        ),
        *(
            ("Fig. 8(c)", f"a small ring has high latency, {size // KB} KB", small_costs(sweeps, size))
            for size in RATE_SIZES
        ),
    ]
    # The checks have looked at our own figures already; a Statement's check is about placements.
    return [(Statement(section, text, lambda _, v=verdict: v), verdict) for section, text, verdict in found]  # type: ignore[misc]


def _missing(sweeps: Sweeps) -> Verdict:
    why = sweeps.results.skipped.get(NETTY) or sweeps.results.skipped.get(RING) or "no figures"
    return not_run(why)


def _said(case: Case) -> str:
    return f"{case.size // KB} KB at {case.rate:,.0f}/s"


def reduced(sweeps: Sweeps, cases: Sequence[Case], least: float) -> Verdict:
    """Every point's reduction against Netty is at least `least`."""
    known = [(value, case) for case in cases if (value := sweeps.reduction(case)) is not None]
    if not known:
        return _missing(sweeps)
    value, case = min(known, key=lambda entry: entry[0])
    most = max(entry[0] for entry in known)
    evidence = f"{value:.1f} % ({_said(case)}) to {most:.1f} % over {len(known)} points"
    return judged(value >= least, evidence)


def twice(sweeps: Sweeps) -> Verdict:
    """Netty's mean is about two times the ring's at every size."""
    known = [
        (netty / ring, case)
        for case in sweeps.by_size()
        if (netty := sweeps.mean(NETTY, case)) is not None and (ring := sweeps.mean(RING, case)) is not None
    ]
    if not known:
        return _missing(sweeps)
    (low, at_low), (high, at_high) = min(known, key=lambda k: k[0]), max(known, key=lambda k: k[0])
    evidence = f"{low:.2f} ({_said(at_low)}) to {high:.2f} times ({_said(at_high)}); {meaning('about')}"
    return judged(all(about(ratio, 2.0) for ratio, _ in known), evidence)


def netty_takes(sweeps: Sweeps, size: int) -> Verdict:
    """Netty's mean at the highest rate is similar to the printed one."""
    mean = sweeps.mean(NETTY, sweeps.by_rate(size)[-1])
    if mean is None:
        return _missing(sweeps)
    return judged(similar(mean, NETTY_US[size]), f"{mean / 1e3:,.2f} ms; {meaning('similar')}")


def greatest(sweeps: Sweeps) -> Verdict:
    """The largest reduction reaches the published one."""
    known = [(value, case) for case in sweeps.against_netty() if (value := sweeps.reduction(case)) is not None]
    if not known:
        return _missing(sweeps)
    value, case = max(known, key=lambda entry: entry[0])
    netty, ring = sweeps.mean(NETTY, case), sweeps.mean(RING, case)
    return judged(value >= REDUCTION_MOST, f"{value:.1f} % ({_said(case)}: Netty {netty:,.0f} us, ring {ring:,.0f} us)")


def growth(sweeps: Sweeps, transport: str, size: int, holds: Callable[[float], bool], meaning: str) -> Verdict:
    """The mean at the highest rate over the mean at the lowest."""
    cases = sweeps.by_rate(size)
    low, high = sweeps.mean(transport, cases[0]), sweeps.mean(transport, cases[-1])
    if low is None or high is None:
        return _missing(sweeps)
    evidence = (
        f"{low:,.0f} us at {RATES[0]:,.0f}/s, {high:,.0f} us at {RATES[-1]:,.0f}/s, {high / low:.1f} times; {meaning}"
    )
    return judged(holds(high / low), evidence)


def _rings(sweeps: Sweeps, size: int) -> list[tuple[float, float]]:
    means = [sweeps.mean(RING, case) for case in sweeps.by_ring(size)]
    return [(messages, mean) for messages, mean in zip(RING_MESSAGES, means, strict=True) if mean is not None]


def _advised(known: Sequence[tuple[float, float]]) -> list[float]:
    """The means of the rings of 50 to 100 messages; none unless all of them were measured."""
    found = [mean for messages, mean in known if messages in ADVISED_MESSAGES]
    return found if len(found) == len(ADVISED_MESSAGES) else []


def large_enough(sweeps: Sweeps, size: int) -> Verdict:
    """Each of the rings of 50 to 100 messages is about as good as the best of all."""
    known = _rings(sweeps, size)
    advised = _advised(known)
    if not advised:
        return _missing(sweeps)
    best = min(mean for _, mean in known)
    at = " and ".join(f"{mean:,.0f}" for mean in advised)
    evidence = f"{at} us with 51 and 102 messages, the best of all {best:,.0f} us; {meaning('similar')}"
    return judged(all(similar(mean, best) for mean in advised), evidence)


def small_costs(sweeps: Sweeps, size: int) -> Verdict:
    """The smallest ring is worse than each of the advised ones."""
    known = _rings(sweeps, size)
    advised = _advised(known)
    if not advised or known[0][0] != RING_MESSAGES[0]:
        return _missing(sweeps)
    (messages, mean), worst = known[0], max(advised)
    evidence = f"{mean:,.0f} us with {messages:g} messages, {worst:,.0f} us with 50 to 100; {meaning('high')}"
    return judged(much_more(mean, worst), evidence)


def _rows(sweeps: Sweeps) -> list[tuple[str, str, Case, Outcome | None]]:
    groups = [
        ("a", sweeps.by_size()),
        ("b", [case for size in RATE_SIZES for case in sweeps.by_rate(size)]),
        ("c", [case for size in RATE_SIZES for case in sweeps.by_ring(size)]),
    ]
    return [
        (group, transport, case, sweeps.results.at(transport, case))
        for group, cases in groups
        for case in cases
        for transport in (RING, NETTY, NETTY_EPOLL)
        if case in sweeps.of(transport)
    ]


def write_rows(sweeps: Sweeps, path: Path) -> Path:
    """Every point of every transport, one line each."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for group, transport, case, found in _rows(sweeps):
            figures = ("", "", "") if found is None else (found.mean_us, found.p50_us, found.p99_us)
            why = sweeps.results.skipped.get(transport, "") if found is None else ""
            messages = f"{case.ring_bytes / case.size:g}" if case.ring_bytes and transport == RING else ""
            shown = (f"{value:.6g}" if isinstance(value, float) else "" for value in figures)
            writer.writerow((group, transport, case.size // KB, f"{case.rate:g}", messages, *shown, why))
    return path


def write_page(item: TransportFigure, report: Report, sweeps: Sweeps) -> None:
    """The published statements beside our figures."""
    lines = [
        f"# {item.name}: {item.title}",
        "",
        f"Source: {PAPER}. Machine: {machine_line()}. Each figure is the median of {sweeps.effort.rounds} rounds in "
        "which all transports took turns; latency is one way, mean over the messages of a round.",
        "",
        f"![{item.title}]({report.picture.name})",
        "",
        "## Published, and ours",
        "",
        "| section | published | ours | verdict |",
        "|---|---|---|---|",
        *(f"| {s.section} | {s.text} | {v.evidence} | **{v.word}** |" for s, v in report.verdicts),
        "",
        "## Remarks",
        "",
        *(f"- {text}" for text in remarks(sweeps)),
        "",
        "## Against Netty",
        "",
        "| message | rate | ring us | Netty us | reduction | Netty, epoll us | reduction | published |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(sweeps, case) for case in sweeps.against_netty()),
        "",
        "## Ring size at 3,000/s",
        "",
        "| ring in messages | " + " | ".join(f"{size // KB} KB, us" for size in RATE_SIZES) + " |",
        "|--:|" + "--:|" * len(RATE_SIZES),
        *(_ring_line(sweeps, number) for number in range(len(RING_MESSAGES))),
        "",
        f"Every point with median and 99th percentile: [{report.csv.name}]({report.csv.name}).",
    ]
    report.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


def remarks(sweeps: Sweeps) -> list[str]:
    """What a reader must know to judge the figures, and what is missing."""
    texts = [
        "Netty's ends are Java processes with one event loop each over TCP, warmed up before the first point; the "
        "sender's thread copies each message into a direct buffer, and the receiver reads it where the decoder leaves "
        "it. The ring's ends are Python processes; its consumer sleeps on a futex between messages.",
        "The paper's Netty takes 192 ms for 40 KB at 3,000/s, 120 MB/s, which this one carries without a queue: the "
        "upper end of the published range measures their saturation, which does not come about here.",
    ]
    by_median = [value for case in sweeps.against_netty() if (value := sweeps.median_reduction(case)) is not None]
    if by_median:
        texts.append(
            f"A mean takes in what a busy machine does to a few messages. By medians the reductions are "
            f"{min(by_median):.1f} % to {max(by_median):.1f} %."
        )
    return texts + [
        f"{name} failed at times, {why}." if sweeps.measured(name) else f"{name} was not measured: {why}."
        for name, why in sweeps.results.skipped.items()
    ]


def _us(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _line(sweeps: Sweeps, case: Case) -> str:
    reductions = [sweeps.reduction(case, netty) for netty in (NETTY, NETTY_EPOLL)]
    first, second = ("" if value is None else f"{value:.1f} %" for value in reductions)
    cells = (
        f"{case.size // KB} KB",
        f"{case.rate:,.0f}/s",
        _us(sweeps.mean(RING, case)),
        _us(sweeps.mean(NETTY, case)),
        first,
        _us(sweeps.mean(NETTY_EPOLL, case)),
        second,
        f"{REDUCTION_LEAST}-{REDUCTION_MOST:.2f} %",
    )
    return "| " + " | ".join(cells) + " |"


def _ring_line(sweeps: Sweeps, number: int) -> str:
    cells = [_us(sweeps.mean(RING, sweeps.by_ring(size)[number])) for size in RATE_SIZES]
    return f"| {RING_MESSAGES[number]:g} | " + " | ".join(cells) + " |"


ITEMS = (TransportFigure(),)
