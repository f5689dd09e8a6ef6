"""What a benchmark is: one function that measures, and what is needed to show its rows to people.

A benchmark returns rows by section, and those are what `--format json` prints. Tables are narrower: a section may have
a shape that turns its rows into the few columns that fit a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Row = dict[str, object]
Progress = Callable[[str], None]
Shape = Callable[[Sequence[Row]], list[Row]]


@dataclass(frozen=True, slots=True)
class Bench:
    """One benchmark: what it measures, how its sections are called and shown, how its peers are installed."""

    about: str
    measure: Callable[[bool, Progress], dict[str, list[Row]]]  # quick, progress
    titles: Mapping[str, str]
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    install_peers: Callable[[Progress], None] | None = None


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
