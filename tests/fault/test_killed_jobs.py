"""A killed worker ends its job everywhere and leaves no segment, process or descriptor; `make soak` does 1,000."""

from __future__ import annotations

import random

import pytest
from killed_jobs import POINTS, Death, any_death, left_behind, run_job


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("victim", [0, 2])
def test_peers_of_a_killed_worker_end_and_say_so(point: str, victim: int) -> None:
    endings = run_job(Death(victim, point, 40))
    assert set(endings) <= {"finished", "peer", "killed"}
    if point in {"connect", "row"}:  # long before anybody has finished
        assert endings == {"killed": 1, "peer": 2}


def test_nothing_is_left_of_killed_jobs() -> None:
    chance = random.Random(1)
    run_job(any_death(chance))  # whatever is made once
    before = left_behind()
    for _ in range(10):
        run_job(any_death(chance))
    assert left_behind() == before
