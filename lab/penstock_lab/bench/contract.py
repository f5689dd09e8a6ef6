"""The contract of a benchmark: one function that measures, and how its rows are shown.

A benchmark returns rows by section, and `--format json` prints those. Tables are narrower: a section may have a shape
that turns its rows into the few columns that fit a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Row = dict[str, object]
Progress = Callable[[str], None]
Shape = Callable[[Sequence[Row]], list[Row]]


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is measured, where a benchmark can be told; None is its own choice."""

    events: int | None = None
    queries: tuple[str, ...] = ()  # none: all of them
    workers: int | None = None

    def given(self) -> list[str]:
        """The options that say something."""
        told = {"--events": self.events, "--queries": self.queries or None, "--workers": self.workers}
        return [option for option, value in told.items() if value is not None]


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark: what it measures, how its sections are called and shown, how its peers are installed."""

    about: str
    measure: Callable[[bool, Progress], dict[str, list[Row]]]  # quick, progress
    titles: Mapping[str, str]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    install_peers: Callable[[Progress], None] | None = None
    measure_scope: Callable[[bool, Progress, Scope], dict[str, list[Row]]] | None = None  # where it can be told


def cell(value: object, decimals: int | None = None) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if decimals is None else f"{value:,.{decimals}f}"
    return str(value)


def per_cent(share: object) -> str:
    """A share of 1 in per cent."""
    return f"{100 * share:.1f}" if isinstance(share, float) else "-"
