"""Jobs of real workers that go on from a store after their topology was changed as the guide allows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from test_keeper import WORKERS, Kept, run

import penstock as ps
from penstock.flow import io
from penstock.run.engine.worker_share import RunSettings

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS, WINDOW = 400, 10
AHEAD = {"slow": timedelta(0), "fast": timedelta(days=10)}  # time that is taken for the other's makes rows late
SCHEMA = "k string, ts timestamp"


class Halfway:
    """A row a second of event time; half of them, then nothing until the epoch is committed, then the rest."""

    def __init__(self, name: str, committed: threading.Event) -> None:
        self.name, self.committed, self.reached = name, committed, threading.Event()

    def __call__(self, task: int, tasks: int) -> Iterator[tuple | None]:
        for second in range(SECONDS):
            while second == SECONDS // 2 and not self.committed.is_set():
                yield None
                self.reached.set()  # whoever asks again has sent everything before the pause
            yield self.name, BEGAN + AHEAD[self.name] + timedelta(seconds=second)


class Windows:
    """Rows of two sources counted by windows, in lines that may be written in any order."""

    def __init__(self, committed: threading.Event) -> None:
        self.top = ps.Topology("kept")
        self.sources = {name: Halfway(name, committed) for name in AHEAD}

    def line(self, name: str, *, added: bool = False) -> None:
        rows = self.top.source(name, io.generator(self.sources[name], SCHEMA)).event_time("ts", lateness="0 seconds")
        if added:
            rows = rows.map(lambda row: row, SCHEMA, name=f"added to {name}")
        counted = rows.key_by("k").aggregate(
            rows="count(*)", window=ps.tumbling(f"{WINDOW} seconds"), name=f"count {name}", tasks=1
        )
        counted.sink(f"out {name}", io.collect())


def as_before(made: Windows) -> None:
    made.line("slow")
    made.line("fast")


def reordered(made: Windows) -> None:
    made.line("fast")
    made.line("slow")


def inserted(made: Windows) -> None:
    made.line("slow", added=True)
    made.line("fast")


def inserted_last(made: Windows) -> None:
    made.line("slow")
    made.line("fast", added=True)


def begun_anew(made: Windows) -> None:
    """Operators before all others, so many that the numbers of streams take more bits."""
    other = made.top.source("other", io.generator(lambda task, tasks: [], "n bigint"))
    for number in range(4):
        other.map(lambda row: row, "n bigint", name=f"other {number}").sink(f"none {number}", io.discard())
    as_before(made)


@pytest.mark.parametrize("change", [as_before, reordered, inserted, inserted_last, begun_anew])
def test_event_time_stays_with_its_streams(change: Callable[[Windows], None], tmp_path: Path) -> None:
    committed = threading.Event()
    first, then = Windows(committed), Windows(committed)
    as_before(first)
    reached = [source.reached for source in first.sources.values()]
    job = run(Kept(tmp_path, first.top.build(), committed, None), asks=True, after=reached)
    assert job.errors == [None] * WORKERS
    change(then)
    # Watermarks come between few rows, so that a wrong one finds some to be late.
    job = run(Kept(tmp_path, then.top.build(), committed, 1), asks=False, settings=RunSettings(rows_max=8))
    assert job.errors == [None] * WORKERS
    for name, ahead in AHEAD.items():
        found = Counter({row["window_start"]: row["rows"] for row in job.rows(f"out {name}")})
        open_or_to_come = range(SECONDS // 2 - WINDOW, SECONDS, WINDOW)
        assert found == {BEGAN + ahead + timedelta(seconds=second): WINDOW for second in open_or_to_come}, name
