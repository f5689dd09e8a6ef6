"""Workers that fall silent and workers that are busy, told apart from beats and looks at given times."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import pytest

from penstock.deploy.attempt.silence import (
    BEAT_SECONDS,
    BEATS_A_SECOND_MAX,
    BUSY_SECONDS,
    LATE_SECONDS,
    LOOK_SECONDS,
    STILL_SECONDS,
    STILL_SECONDS_MIN,
    STILL_SILENCES,
    Beat,
    Change,
    Watch,
    beat_seconds,
    notice_seconds,
    still_seconds,
)

LIMIT_S = 10.0


class Clock:
    """Looks at two workers every LOOK_SECONDS; those that are `alive` have spoken since the look before."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.now_s = 100.0
        self.watch = Watch(2, limit_s, self.now_s)
        self.beats: dict[int, Beat] = {}
        self.there = [0, 1]

    def look(self, alive: tuple[int, ...] = (), busy_s: float = 0.0, after_s: float = LOOK_SECONDS) -> list[Change]:
        self.now_s += after_s
        self.beats |= {worker: Beat(busy_s) for worker in alive}
        return self.watch.look(self.now_s, self.beats, self.there)

    def looks(self, seconds: float, alive: tuple[int, ...]) -> list[Change]:
        return [change for _ in range(round(seconds / LOOK_SECONDS)) for change in self.look(alive)]


def test_workers_that_speak_are_not_told_of() -> None:
    assert Clock().looks(3600.0, (0, 1)) == []


def test_a_silent_worker_is_told_within_two_seconds_and_lost_once_when_the_limit_is_over() -> None:
    clock = Clock()
    clock.looks(5.0, (0, 1))
    told = clock.looks(2 * LIMIT_S, (0,))
    assert [(change.kind, change.worker) for change in told] == [("silent", 1), ("lost", 1)]
    assert told[0].seconds + LOOK_SECONDS <= 2.0  # it may have spoken just before it was stopped, and just after a look
    assert LIMIT_S <= told[1].seconds < LIMIT_S + 2 * LOOK_SECONDS


def test_a_worker_that_never_spoke_is_silent_from_its_orders_on() -> None:
    assert [change.kind for change in Clock().looks(2.0, (0,))] == ["silent"]


def test_a_worker_that_speaks_again_is_told_with_the_length_of_its_silence() -> None:
    clock = Clock()
    clock.looks(4.0, (0,))
    (spoke,) = clock.look((0, 1))
    assert (spoke.kind, spoke.worker) == ("spoke", 1)
    assert spoke.seconds == pytest.approx(4.0)
    assert [change.kind for change in clock.looks(LIMIT_S - 1, (0,))] == ["silent"]  # it counts from anew


def test_a_worker_that_has_said_goodbye_may_be_silent() -> None:
    clock = Clock()
    clock.there = [0]
    assert clock.looks(LIMIT_S * 2, (0,)) == []


def test_a_driver_that_was_stopped_blames_nobody() -> None:
    clock = Clock()
    clock.looks(2.0, (0, 1))
    assert clock.look(after_s=40.0) == []  # nobody could be heard meanwhile
    assert clock.looks(2.0, (0, 1)) == []


def test_one_late_look_counts_as_little_as_is_said() -> None:
    clock = Clock(limit_s=notice_seconds(2))
    looks = 1
    while not clock.look(after_s=1000.0):
        looks += 1  # each counts no more than LATE_SECONDS
    assert looks == int(notice_seconds(2) / LATE_SECONDS)


def test_a_worker_in_a_long_call_is_named_and_not_lost() -> None:
    clock = Clock()
    told = [change for tenths in range(6000) for change in clock.look((0, 1), busy_s=tenths / 10)]
    assert [(change.kind, change.seconds) for change in told] == [("busy", BUSY_SECONDS)] * 2
    assert [(change.kind, change.seconds) for change in clock.look((0, 1))] == [("free", 599.9)] * 2
    assert clock.look((0, 1)) == []


def test_calls_that_are_usual_are_told_once() -> None:
    clock = Clock()
    clock.there = [0]
    for times in range(10):
        told = [change.kind for seconds in range(30) for change in clock.look((0,), busy_s=seconds)]
        assert told == {0: ["busy"], 1: ["free"]}.get(times, [])
    assert [change.kind for change in clock.look((0,), busy_s=58.0)] == ["busy"]


def test_a_worker_that_can_be_seen_to_compute_is_busy_and_not_silent() -> None:
    clock = Clock()
    clock.there = [0]
    told = []
    for _ in range(300):
        clock.now_s += LOOK_SECONDS
        told += clock.watch.look(clock.now_s, clock.beats, [0], clock.watch.quiet)
    assert [(change.kind, change.seconds) for change in told] == [("busy", pytest.approx(BUSY_SECONDS))]
    assert [change.kind for change in clock.look((0,))] == ["free"]


def test_a_worker_that_stops_computing_is_silent_from_then_on() -> None:
    clock = Clock()
    clock.there = [0]
    for _ in range(20):
        clock.now_s += LOOK_SECONDS
        assert clock.watch.look(clock.now_s, clock.beats, [0], clock.watch.quiet) == []
    told = clock.looks(LIMIT_S + 1, ())
    assert [change.kind for change in told] == ["silent", "lost"]
    assert told[1].seconds == pytest.approx(LIMIT_S, abs=2 * LOOK_SECONDS)


def test_thousands_of_workers_speak_less_often_and_are_given_more_time() -> None:
    assert beat_seconds(1) == beat_seconds(100) == BEAT_SECONDS
    for fewer, more in pairwise((200, 1000, 4096)):
        assert more / beat_seconds(more) <= BEATS_A_SECOND_MAX
        assert notice_seconds(fewer) < notice_seconds(more)
    assert notice_seconds(4096) > 2 * beat_seconds(4096)
    beaten = Watch(4096, 2.0, 0.0)  # a limit that is shorter than the time between two beats would lose them all
    assert beaten.look(0.4, {}, range(4096)) == []
    looks = [beaten.look(0.4 * i, {}, range(4096)) for i in range(2, 60)]
    assert all(not told for told in looks)


@pytest.mark.parametrize("busy_s", [-1.0, nan, inf])
def test_a_beat_says_nothing_impossible(busy_s: float) -> None:
    with pytest.raises(ValueError, match="busy_s is"):
        Beat(busy_s)


# -- what keeps epochs -------------------------------------------------------------------------------------------------


def test_a_keeper_that_makes_no_step_is_told_and_given_up_once_when_its_limit_is_over() -> None:
    watch, told = Watch(1, LIMIT_S, 0.0), []
    limit_s = still_seconds(LIMIT_S)
    for tenths in range(round(10 * limit_s) + 50):
        told += watch.look(tenths / 10, {0: Beat(still_s=tenths / 10)}, [0])
    assert [(change.kind, change.seconds) for change in told] == [("still", STILL_SECONDS), ("stuck", limit_s)]


def test_a_keeper_that_makes_a_step_again_is_told_and_not_given_up() -> None:
    watch = Watch(1, LIMIT_S, 0.0)
    said = (0.0, 30.0, 45.0, 0.1, 30.0)  # as long as before is usual
    told = [change for i, still_s in enumerate(said) for change in watch.look(i / 10, {0: Beat(still_s=still_s)}, [0])]
    assert [(change.kind, change.seconds) for change in told] == [("still", 30.0), ("stirs", 45.0)]


def test_who_may_be_silent_for_long_may_take_long_to_keep() -> None:
    assert still_seconds(2.0) == STILL_SECONDS_MIN
    assert still_seconds(10.0) == STILL_SILENCES * 10.0 == 600.0


@pytest.mark.parametrize("still_s", [-1.0, nan, inf])
def test_a_beat_says_nothing_impossible_of_the_keeper(still_s: float) -> None:
    with pytest.raises(ValueError, match="still_s is"):
        Beat(still_s=still_s)
