"""What a job would do if nothing held it back."""

from __future__ import annotations

import pytest

from penstock.adapt.held_back import Free, as_free, free_after, held_back
from penstock.model.profile import EdgeProfile, Profile, TaskProfile

HORIZON_S = 600.0


def of_rate(rows_per_s: float) -> Profile:
    edge = EdgeProfile("a/0", "b/0", 100.0, 10.0, 5.0, "ring", 0.01, 0.02, 7.0)
    return Profile({"a/0": TaskProfile(0.2, spread=0.02)}, (edge,), seconds=10.0, rows=10.0 * rows_per_s)


def test_what_was_read_when_nobody_was_full_is_what_would_be_read() -> None:
    free = free_after(None, of_rate(1000.0), 0.0, HORIZON_S, is_full=False)
    assert free == Free(1000.0, 0.0)
    kept = free_after(free, of_rate(200.0), 10.0, HORIZON_S, is_full=True)
    assert kept == free
    assert held_back(of_rate(200.0), kept, is_full=True) == pytest.approx(0.2)
    assert free_after(free, of_rate(200.0), HORIZON_S, HORIZON_S, is_full=True) is None


@pytest.mark.parametrize(
    ("rows_per_s", "is_full", "share"),
    [(200.0, False, 1.0), (950.0, True, 1.0), (2000.0, True, 1.0), (0.0, True, 1.0), (1.0, True, 0.1)],
)
def test_traffic_that_falls_by_itself_is_not_held_back(rows_per_s: float, is_full: bool, share: float) -> None:
    assert held_back(of_rate(rows_per_s), Free(1000.0, 0.0), is_full=is_full) == share
    assert held_back(of_rate(rows_per_s), None, is_full=is_full) == 1.0


def test_all_loads_and_rates_grow_alike() -> None:
    profile = of_rate(100.0)
    assert as_free(profile, 1.0) is profile
    grown = as_free(profile, 0.5)
    assert grown.tasks["a/0"] == TaskProfile(0.4, spread=0.04)
    assert grown.edges == (EdgeProfile("a/0", "b/0", 200.0, 20.0, 10.0, "ring", 0.02, 0.04, 7.0),)
    assert grown.rows_per_second == 200.0
    bare = as_free(Profile({"a/0": TaskProfile(0.2)}, (EdgeProfile("a/0", "b/0", 100.0),)), 0.5)
    assert (bare.tasks["a/0"].spread, bare.edges[0].tuples, bare.rows) == (None, None, None)
