"""A killed worker ends its job everywhere and leaves no segment, process or descriptor; `make soak` does 1,000."""

from __future__ import annotations

import random

import pytest
from killed_jobs import POINTS, SWITCH_POINTS, Death, any_death, left_behind, run_job

TRIES_MAX = 20


@pytest.mark.parametrize("point", [point for point in POINTS if point not in SWITCH_POINTS])
@pytest.mark.parametrize("victim", [0, 2])
def test_peers_of_a_killed_worker_end_and_say_so(point: str, victim: int) -> None:
    endings = run_job(Death(victim, point, 40))
    assert set(endings) <= {"finished", "peer", "killed"}
    if point in {"connect", "row"}:  # long before anybody has finished
        assert endings == {"killed": 1, "peer": 2}


@pytest.mark.parametrize("point", SWITCH_POINTS)
def test_a_worker_killed_while_rings_grow_ends_its_job_too(point: str) -> None:
    for victim in range(TRIES_MAX):  # whether an inbox grows is a matter of who runs when; nearly always all do
        endings = run_job(Death(victim % 3, point, 0))
        assert set(endings) <= {"finished", "peer", "killed"}
        if endings["killed"]:
            return
    pytest.fail(f"no worker came to {point} in {TRIES_MAX} jobs")


def test_nothing_is_left_of_killed_jobs() -> None:
    chance = random.Random(1)
    run_job(any_death(chance))  # whatever is made once
    before = left_behind()
    for _ in range(10):
        run_job(any_death(chance))
    assert left_behind() == before
