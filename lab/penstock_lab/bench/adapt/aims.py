"""What moves are to reach, beside what they reached. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock_lab.bench.contract import Row

PAUSE_P50_MS = 100.0
PAUSE_P99_MS = {0: 300.0, 10: 300.0, 100: 1_000.0}  # by MB of native state
FALL_MAX = 0.05  # of the throughput of others while a task moves
LATENCY_RATIO_MAX = 2.0  # p99 of streams that do not pass the task
SAVED_MIN = 0.05  # of the bytes between nodes, where a plan was to save some: less is noise
OFF_MAX = 0.10  # of what a plan foretold
MEMORY_GROWTH_MAX = 0.10  # while tasks move again and again
OFTEN_PER_MINUTE = 100.0


def verdict(aim: str, ours: object, limit: float, *, at_least: bool = False) -> Row:
    """One aim, met or missed; a figure that is not there is not measured."""
    row: Row = {"aim": aim, "ours": ours, "limit": f"{'>=' if at_least else '<='} {limit:g}"}
    if not isinstance(ours, int | float) or math.isnan(ours):
        return row | {"verdict": "not measured"}
    return row | {"verdict": "met" if (ours >= limit if at_least else ours <= limit) else "missed"}


def of_pauses(rows: Sequence[Row]) -> list[Row]:
    """The pause of the moved task's stream, by its state."""
    found: list[Row] = []
    for row in rows:
        if row["state"] != "native":
            continue
        size = int(str(row["mb"]))
        if size <= 10:
            found.append(verdict(f"pause p50 ms, {size} MB", row["pause_p50_ms"], PAUSE_P50_MS))
        if size in PAUSE_P99_MS:
            found.append(verdict(f"pause p99 ms, {size} MB", row["pause_p99_ms"], PAUSE_P99_MS[size]))
    return found


def of_others(rows: Sequence[Row]) -> list[Row]:
    """What streams beside the moved task notice."""
    found: list[Row] = []
    for row in rows:
        name = f"{row['others']}, {row['mb']} MB of {row['state']} state"
        found.append(verdict(f"fall of others' rows/s, {name}", row["fall"], FALL_MAX))
        if row["others"] == "paced":
            found.append(verdict(f"others' p99, times that at rest, {name}", row["latency_ratio"], LATENCY_RATIO_MAX))
    return found


def of_routes(rows: Sequence[Row]) -> list[Row]:
    """What plans brought, and whether that is what they foretold; where nothing moved neither has been measured."""
    found = []
    for number, row in enumerate(rows, start=1):
        saved, off, next_off = (row[name] if row["moved"] else None for name in ("saved", "off", "next_off"))
        found.append(verdict(f"bytes between nodes saved, round {number}", saved, SAVED_MIN, at_least=True))
        found.append(verdict(f"bytes between nodes off the foretold, round {number}", off, OFF_MAX))
        found.append(verdict(f"the next profile off the foretold, round {number}", next_off, OFF_MAX))
    return found


def of_often(rows: Sequence[Row]) -> list[Row]:
    """Moves again and again."""
    found = []
    for row in rows:
        found.append(verdict("moves a minute", row["moves_a_minute"], OFTEN_PER_MINUTE, at_least=True))
        found.append(verdict("moves that failed", row["failed"], 0))
        found.append(verdict("recoveries", row["recoveries"], 0))
        found.append(verdict("rows lost or there twice", row["rows_wrong"], 0))
        found += [
            verdict(f"growth of memory, {who}", row[f"{who}_growth"], MEMORY_GROWTH_MAX)
            for who in ("driver", "workers")
        ]
    return found
