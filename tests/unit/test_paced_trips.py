"""Trips at a steady rate: none before it is due, the same ones again after a restore, and all of them known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.apps import paced_trips
from penstock.apps.paced_trips import PacedTrips
from penstock.apps.trips import Trips

TASKS = 3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(paced_trips.time, "monotonic", lambda: now[0])
    return now


def pace(folder: Path) -> PacedTrips:
    return PacedTrips(Trips(batch_rows=10), rows_per_second=300.0, gate=str(folder / "gate"))


def test_a_batch_comes_when_its_last_trip_is_due(clock: list[float], tmp_path: Path) -> None:
    """300 a second from three tasks are 100 of each: ten of them every 0.1 s."""
    source = pace(tmp_path)(1, TASKS, 0)
    assert next(source) is None
    clock[0] += 0.11
    batch = next(source)
    assert batch is not None
    assert batch.equals(Trips().batch(np.arange(1, 31, TASKS)))
    assert next(source) is None
    clock[0] += 0.21
    assert [next(source) is None for _ in range(3)] == [False, False, True]


def test_sources_end_at_one_trip_and_all_says_which_there_were(clock: list[float], tmp_path: Path) -> None:
    paced = pace(tmp_path)
    sources = [paced(task, TASKS, 0) for task in range(TASKS)]
    firsts = [next(source) for source in sources]
    clock[0] += 0.5
    given = [[next(source)] for source in sources]
    assert firsts == [None] * TASKS
    assert paced.close(after_s=0.5) == 450  # a second's worth more than can have been given
    for task, source in enumerate(sources):
        given[task] += list(source)
    rows = pa.Table.from_batches([batch for task in given for batch in task if batch is not None])
    assert rows.equals(paced.all(TASKS))
    assert rows.num_rows == 450


def test_a_restore_goes_on_behind_what_was_taken(clock: list[float], tmp_path: Path) -> None:
    paced = pace(tmp_path)
    paced.close(after_s=0.0)
    whole = [batch for batch in paced(2, TASKS, 0) if batch is not None]
    assert [batch for batch in paced(2, TASKS, 4) if batch is not None] == whole[4:]
    assert len(whole) == 10
    assert not list(paced(2, TASKS, 10))


def test_sources_of_a_driver_that_has_died_end_too(clock: list[float], tmp_path: Path) -> None:
    paced = pace(tmp_path)
    last_batch = int(paced_trips.SECONDS_MAX * 300.0) // (10 * TASKS)
    clock_end = paced(0, TASKS, last_batch)
    assert next(clock_end) is None
    clock[0] += 1.0
    assert next(clock_end, "ended") == "ended"
