"""Random cases: everything about a case is drawn from its number, so a failure can be had again.

Rows are exact in event time by construction: right behind a source whatever their order, behind other operators because
the lateness covers them or because windows wait for the end. So nothing but rows without a time may be late.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from random_rows import NEARLY_US, SECOND_US, WAYS, Rows, WayIn

COUNTS = (0, 1, 7, 60, 250, 250, 800, 3000)
SHAPES = ("windowed", "join", "keyed", "union", "ranked", "join_then_window", "reduced", "twice", "sessions")
BY_THE_SQUARE = {"join", "join_then_window", "sessions"}  # pairs of a key that most rows have; sessions that are open
FEW_MAX = 250  # rows of a source there
STEPS_US = (0, 1_000, 100_000, SECOND_US, SECOND_US, 5 * SECOND_US, 20 * SECOND_US)


@dataclass(frozen=True)
class Given:
    """A source as a case has it: its rows, how they come in, and where event time is declared."""

    rows: Rows
    way: WayIn
    behind: bool  # event time behind a map, and not at the source
    lateness: str | None


@dataclass(frozen=True)
class Case:
    """One random topology; `at_most` rows of each source."""

    number: int
    at_most: int | None = None

    @property
    def shape(self) -> str:
        """What it is about."""
        return SHAPES[self.number % len(SHAPES)]

    def given(self, which: int) -> Given:
        """A source of the case."""
        rng = random.Random(f"{self.number}/{which}")
        way = draw_way(rng)
        count = rng.choice(COUNTS)
        rows = Rows(
            seed=rng.randrange(1 << 30),
            count=min(count, FEW_MAX) if self.shape in BY_THE_SQUARE else count,
            order=rng.choice(("in order", "nearly", "shuffled")),
            step_us=rng.choice(STEPS_US),
            null_times=rng.choice((0.0, 0.1)),
            skew=rng.choice((0.0, 0.0, 0.8)),
            empty_keys=way.kind != "csv",  # Spark reads nothing in a CSV file as null, between quotes too
        )
        behind = rng.random() < 0.35
        return Given(rows, way, behind, draw_lateness(rng, rows, way, behind))


def draw_way(rng: random.Random) -> WayIn:
    """Files or a DataFrame."""
    kind = rng.choice(WAYS)
    return WayIn(
        kind,
        pieces=rng.randint(1, 7 if kind == "frame" else 4),
        dealt=rng.choice(("slices", "cards", "skewed")),
        tasks=rng.randint(1, 4),
        group_rows=rng.choice((5, 100, 10_000)),
        old_times=rng.random() < 0.3,
    )


def draw_lateness(rng: random.Random, rows: Rows, way: WayIn, behind: bool) -> str | None:
    """A lateness under which nothing is late: any at a source, enough for the rows behind one."""
    enough = ["1 day", None]
    if not behind or (way.keeps_order and rows.order == "in order"):
        enough.append("0 seconds")
    if not behind or (way.keeps_order and rows.order == "nearly"):
        enough.append(f"{NEARLY_US} microseconds")
    return rng.choice(enough)
