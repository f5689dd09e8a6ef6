"""Published statements about resolution time as checks; see `statements` for those about cost."""

from __future__ import annotations

import statistics

from penstock_lab.reproduce.measure import Case, Row
from penstock_lab.reproduce.statements import Check, Figures, Verdict, judged, not_run
from penstock_lab.reproduce.words import SIGNIFICANT_GROWTH, meaning, much_more, similar


def _timed(figures: Figures, run: str, layout: str, cluster: str | None = None) -> list[tuple[Row, float]]:
    return [(row, row.seconds) for row in figures.of(run, layout, cluster) if row.seconds is not None]


def spoken(seconds: float) -> str:
    """A time for readers: 12 ms, 1.3 s, 1,114,257 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def below(run: str, layout: str, limit: float) -> Check:
    """The run takes less than the limit on every case."""

    def check(figures: Figures) -> Verdict:
        timed = _timed(figures, run, layout)
        if not timed:
            return not_run(f"{run} on {layout}")
        row, worst = max(timed, key=lambda entry: entry[1])
        under = sum(1 for _, seconds in timed if seconds < limit)
        evidence = f"below in {under} of {len(timed)} cases; longest {spoken(worst)} at {row.case}"
        return judged(under == len(timed) and len(timed) == len(figures.of(run, layout)), evidence)

    return check


def grows(run: str, layout: str) -> Check:
    """The largest size takes SIGNIFICANT_GROWTH times as long or more as the smallest, on both clusters."""

    def check(figures: Figures) -> Verdict:
        parts, ratios = [], []
        for cluster in ("homogeneous", "heterogeneous"):
            timed = _timed(figures, run, layout, cluster)
            if len(timed) < 2:
                continue
            (first, a), (last, b) = timed[0], timed[-1]
            ratios.append(b / a)
            parts.append(
                f"{cluster} {spoken(a)} at {first.case.tasks} to {spoken(b)} at {last.case.tasks} ({b / a:.1f}x)"
            )
        if not ratios:
            return not_run(f"{run} on {layout} at two sizes")
        held = min(ratios) >= SIGNIFICANT_GROWTH
        return judged(held, f"{'; '.join(parts)}; significant means {SIGNIFICANT_GROWTH:g} times")

    return check


def rises_beyond(run: str, layouts: tuple[str, ...], size: int) -> Check:
    """The median time of the cases above the size is much above that of the cases up to it."""

    def check(figures: Figures) -> Verdict:
        timed = [entry for layout in layouts for entry in _timed(figures, run, layout)]
        small = [seconds for row, seconds in timed if row.case.tasks <= size]
        large = [seconds for row, seconds in timed if row.case.tasks > size]
        if not small or not large:
            return not_run(f"{run} on both sides of {size} tasks")
        a, b = statistics.median(small), statistics.median(large)
        evidence = f"median {spoken(a)} up to {size} tasks, {spoken(b)} above: {b / a:.1f} times"
        return judged(much_more(b, a), f"{evidence}; {meaning('an increase')}")

    return check


def seconds_at(run: str, case: Case, published: float) -> Check:
    """The run takes a time similar to the published one on one case; with another solver it rarely does."""

    def check(figures: Figures) -> Verdict:
        row = figures.at(run, case)
        if row is None or row.seconds is None:
            return not_run(f"{run} on {case}")
        ratio = published / row.seconds
        pace = f"{ratio:,.0f} times quicker" if ratio >= 1 else f"{1 / ratio:,.1f} times slower"
        proved = "proved optimal" if row.proved_optimal else "not proved"
        return judged(
            similar(row.seconds, published),
            f"{spoken(row.seconds)}, {proved}: {pace}, with another solver on another machine",
        )

    return check


def quicker_than_optimum(run: str, layouts: tuple[str, ...]) -> Check:
    """The run takes less time than the optimum on every case."""

    def check(figures: Figures) -> Verdict:
        timed = [entry for layout in layouts for entry in _timed(figures, run, layout)]
        pairs = [(seconds, figures.at("optimum", row.case)) for row, seconds in timed]
        known = [(a, other.seconds) for a, other in pairs if other is not None and other.seconds is not None]
        if not known:
            return not_run(f"{run} beside the optimum")
        quicker = sum(1 for a, b in known if a < b)
        a, b = (statistics.median(side) for side in zip(*known, strict=True))
        return judged(
            quicker == len(known), f"quicker in {quicker} of {len(known)} cases; median {spoken(a)} against {spoken(b)}"
        )

    return check


def quickest_at(run: str, case: Case) -> Check:
    """No other size of the layout on that cluster takes less time."""

    def check(figures: Figures) -> Verdict:
        timed = _timed(figures, run, case.layout, case.cluster)
        row = figures.at(run, case)
        if row is None or row.seconds is None or len(timed) < 2:
            return not_run(f"{run} on {case} and other sizes")
        best, least = min(timed, key=lambda entry: entry[1])
        return judged(
            best.case == case, f"{spoken(row.seconds)} there; least {spoken(least)} at {best.case.tasks} tasks"
        )

    return check
