"""Published statements as checks: each looks at our rows and answers holds, differs or not run, with the numbers.

What a word means ("near", "much higher") is in `words`, and the evidence names it, so that a reader can judge it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock_lab.reproduce.measure import Case, Row
from penstock_lab.reproduce.words import EXACT, MEANINGS, meaning, much_more, notably_less

OPTIMUM = "optimum"
EXCEPTIONS_SHOWN = 6
Word = Literal["holds", "differs", "not run"]


@dataclass(frozen=True)
class Verdict:
    """The answer and the numbers behind it."""

    word: Word
    evidence: str


@dataclass(frozen=True)
class Figures:
    """Rows as the checks want them: by run, layout, cluster and size."""

    rows: Mapping[tuple[Case, str], Row]

    def of(self, run: str, layout: str, cluster: str | None = None) -> list[Row]:
        """The rows of a run on a layout, by cluster and size."""
        found = [
            row
            for (case, label), row in self.rows.items()
            if label == run and case.layout == layout and cluster in {None, case.cluster}
        ]
        return sorted(found, key=lambda row: row.case)

    def at(self, run: str, case: Case) -> Row | None:
        """The row of a run on one case."""
        return self.rows.get((case, run))


Check = Callable[[Figures], Verdict]


@dataclass(frozen=True)
class Statement:
    """A published fact, where it stands, and how we check it."""

    section: str
    text: str
    check: Check


def judged(held: bool, evidence: str) -> Verdict:
    """Holds or differs."""
    return Verdict("holds" if held else "differs", evidence)


def not_run(what: str) -> Verdict:
    """Neither holds nor differs: the case is outside the sizes that were asked for."""
    return Verdict("not run", f"{what} was not measured in this run")


def _shown(parts: Iterable[str]) -> str:
    parts = list(parts)
    more = len(parts) - EXCEPTIONS_SHOWN
    return "; ".join(parts[:EXCEPTIONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=EXACT, abs_tol=EXACT)


def _pairs(figures: Figures, run: str, layout: str) -> list[tuple[Row, Row]]:
    """Rows of a run beside the optimum's on the same cases."""
    rows = ((row, figures.at(OPTIMUM, row.case)) for row in figures.of(run, layout))
    return [(row, optimum) for row, optimum in rows if optimum is not None and optimum.cost is not None]


def _against(row: Row, optimum: Row) -> str:
    where = f"{row.case.cluster}/{row.case.tasks}"
    if row.cost is None:
        return f"{where} no plan against {optimum.cost:g}"
    return f"{where} {row.cost:g} against {optimum.cost:g}"


def equals_optimum(run: str, layout: str, except_at: tuple[str, int] | None = None) -> Check:
    """The run costs what the optimum costs on every case, apart from a published exception."""

    def check(figures: Figures) -> Verdict:
        pairs = [p for p in _pairs(figures, run, layout) if (p[0].case.cluster, p[0].case.tasks) != except_at]
        if not pairs:
            return not_run(f"{run} on {layout}")
        off = [p for p in pairs if p[0].cost is None or not _same(p[0].cost, p[1].cost or 0.0)]
        equal = f"equal in {len(pairs) - len(off)} of {len(pairs)} cases"
        return judged(not off, f"{equal}; {_shown(_against(*p) for p in off)}" if off else equal)

    return check


def above_optimum_somewhere(run: str, layout: str) -> Check:
    """The run misses the optimum on at least one case."""

    def check(figures: Figures) -> Verdict:
        pairs = _pairs(figures, run, layout)
        if not pairs:
            return not_run(f"{run} on {layout}")
        off = [p for p in pairs if p[0].cost is None or not _same(p[0].cost, p[1].cost or 0.0)]
        return judged(
            bool(off),
            f"above in {len(off)} of {len(pairs)} cases" + (f": {_shown(_against(*p) for p in off)}" if off else ""),
        )

    return check


def near_optimum(run: str, layout: str) -> Check:
    """The run is at most 10 % (`words`: near) above the optimum on every case."""
    within = MEANINGS["near"]

    def check(figures: Figures) -> Verdict:
        pairs = _pairs(figures, run, layout)
        if not pairs:
            return not_run(f"{run} on {layout}")
        excess = [(_excess(row, optimum), row, optimum) for row, optimum in pairs]
        worst, row, optimum = max(excess, key=lambda entry: entry[0])
        mean = statistics.fmean(e for e, _, _ in excess)
        evidence = f"worst {worst:+.1%} ({_against(row, optimum)}), mean {mean:+.1%}; near means within {within:.0%}"
        return judged(worst <= within + 1e-9, evidence)

    return check


def _excess(row: Row, optimum: Row) -> float:
    if row.cost is None or optimum.cost is None:
        return math.inf
    return 0.0 if _same(row.cost, optimum.cost) else row.cost / optimum.cost - 1 if optimum.cost else math.inf


def cost_at(run: str, case: Case, published: float) -> Check:
    """The run costs exactly the published figure on one case."""

    def check(figures: Figures) -> Verdict:
        row = figures.at(run, case)
        if row is None:
            return not_run(f"{run} on {case}")
        ours = "no plan" if row.cost is None else f"{row.cost:g}" + (" (proved)" if row.proved_optimal else "")
        return judged(row.cost is not None and _same(row.cost, published), ours)

    return check


def heterogeneous_is_cheaper(layout: str) -> Check:
    """The optimum on the heterogeneous cluster is never above the homogeneous one's, and in the median notably less."""

    def check(figures: Figures) -> Verdict:
        left = {row.case.tasks: row.cost for row in figures.of(OPTIMUM, layout, "homogeneous")}
        right = {row.case.tasks: row.cost for row in figures.of(OPTIMUM, layout, "heterogeneous")}
        both = [(n, a, right[n]) for n, a in left.items() if a is not None and right.get(n) is not None]
        if not both:
            return not_run(f"{layout} on both clusters")
        lower = sum(1 for _, a, b in both if b is not None and b < a)
        never_above = all(b is not None and b <= a for _, a, b in both)
        part = statistics.median((b or 0.0) / a if a > 0 else 1.0 for _, a, b in both)
        n, a, b = both[-1]
        return judged(
            never_above and notably_less(part, 1.0),
            f"lower in {lower} of {len(both)} sizes, median {part:.2f} of it; at {n} tasks {b:g} against {a:g}; "
            f"{meaning('notably')}",
        )

    return check


def dearer_than_linear(layout: str, much: bool = False) -> Check:
    """The optimum of the layout is above that of linear on every case, and the median much above it if that is said."""

    def check(figures: Figures) -> Verdict:
        pairs = [
            (row, figures.at(OPTIMUM, Case("linear", row.case.cluster, row.case.tasks)))
            for row in figures.of(OPTIMUM, layout)
        ]
        known = [
            (row.cost, other.cost) for row, other in pairs if other and row.cost is not None and other.cost is not None
        ]
        if not known:
            return not_run(f"{layout} beside linear")
        higher = sum(1 for a, b in known if a > b)
        ratio = statistics.median(a / b for a, b in known if b > 0) if any(b > 0 for _, b in known) else math.inf
        evidence = f"higher in {higher} of {len(known)} cases, median {ratio:.1f} times"
        held = higher == len(known) and (not much or much_more(ratio, 1.0))
        return judged(held, f"{evidence}; {meaning('much more')}" if much else evidence)

    return check


def costs_repeat(run: str, layout: str) -> Check:
    """Repeated runs of the same case cost the same."""

    def check(figures: Figures) -> Verdict:
        rows = figures.of(run, layout)
        if not rows:
            return not_run(f"{run} on {layout}")
        varied = [str(row.case) for row in rows if not row.costs_agree]
        evidence = f"the same in {len(rows) - len(varied)} of {len(rows)} cases"
        return judged(not varied, evidence + (f"; {_shown(varied)}" if varied else ""))

    return check
