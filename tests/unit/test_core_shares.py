"""Which workers are slow, by what their threads had of their cores, and what is remembered of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.adapt.core_shares import CoreTime, Slow, able_workers, full_workers, slow_after
from penstock.model.plan import Slot

A, B, C = (Slot("n1", k) for k in range(3))
HORIZON_S = 600.0


def had(wanted: float, share: float) -> CoreTime:
    """A worker that had work for this part of 10 s, and a core for this part of that."""
    return CoreTime(10.0, 10.0 * wanted * share, 10.0 * wanted * (1 - share))


def test_a_worker_with_a_fifth_of_its_core_is_slow_by_that() -> None:
    found = slow_after({}, {A: had(1.0, 0.2), B: had(0.6, 0.9), C: had(0.5, 0.8)}, 10.0, HORIZON_S)
    assert found.keys() == {A}
    assert (round(found[A].speed, 6), round(found[A].did, 6), found[A].at_s) == (0.2, 0.2, 10.0)


def test_what_all_have_lost_is_held_against_nobody() -> None:
    assert slow_after({}, dict.fromkeys((A, B, C), had(1.0, 0.1)), 10.0, HORIZON_S) == {}
    found = slow_after({}, {A: had(1.0, 0.05), B: had(1.0, 0.3), C: had(1.0, 0.25)}, 10.0, HORIZON_S)
    assert found.keys() == {A}
    assert slow_after({}, {A: had(1.0, 0.1)}, 10.0, HORIZON_S) == {}  # there is nobody to compare it with


def test_a_worker_that_gets_its_work_done_is_not_slow_however_little_it_had_of_its_core() -> None:
    assert slow_after({}, {A: had(0.3, 0.1), B: had(0.9, 0.9)}, 10.0, HORIZON_S) == {}


def test_a_nearly_idle_worker_is_not_slow_on_a_crowded_machine() -> None:
    """Measured: 5 % of a core to do, beside two that always have work, and six others, on two cores."""
    for idle, beside in (
        (CoreTime(1.0, 0.022, 0.582), CoreTime(1.0, 0.073, 0.927)),
        (CoreTime(1.0, 0.014, 0.739), CoreTime(1.0, 0.053, 0.947)),
        (CoreTime(1.0, 0.010, 0.820), CoreTime(1.0, 0.035, 0.965)),
    ):
        assert slow_after({}, {A: idle, B: beside, C: beside}, 10.0, HORIZON_S) == {}
    assert slow_after({}, {A: CoreTime(1.0, 0.02, 0.96), B: had(0.6, 0.5)}, 10.0, HORIZON_S).keys() == {A}


def test_a_share_of_hardly_any_work_is_compared_with_nothing() -> None:
    assert slow_after({}, {A: had(1.0, 0.3), B: had(0.001, 1.0)}, 10.0, HORIZON_S) == {}


def test_a_relieved_worker_stays_slow_until_it_shows_otherwise() -> None:
    """Under a quota it has all that it wants as long as it wants little."""
    known = slow_after({}, {A: had(1.0, 0.2), B: had(0.6, 0.9)}, 0.0, HORIZON_S)
    for at_s, wanted in ((10.0, 0.12), (20.0, 0.05), (30.0, 0.0)):
        known = slow_after(known, {A: had(wanted, 1.0), B: had(0.8, 0.9)}, at_s, HORIZON_S)
        assert known[A].at_s == 0.0
    assert slow_after(known, {A: had(0.25, 0.8), B: had(0.8, 0.9)}, 40.0, HORIZON_S) == {}  # it did as much as then
    assert slow_after(known, {B: had(0.8, 0.9)}, HORIZON_S - 1, HORIZON_S) == known
    assert slow_after(known, {B: had(0.8, 0.9)}, HORIZON_S, HORIZON_S) == {}


def test_a_busy_core_is_seen_under_little_load_as_well_and_remembered_anew() -> None:
    known = slow_after({}, {A: had(1.0, 0.2), B: had(0.6, 0.9)}, 0.0, HORIZON_S)
    known = slow_after(known, {A: had(0.15, 0.2), B: had(0.6, 0.9)}, 500.0, HORIZON_S)
    assert known[A].at_s == 500.0
    assert slow_after(known, {}, 700.0, HORIZON_S).keys() == {A}


def test_figures_of_a_slow_worker_within_noise_are_the_same_figure() -> None:
    known = {A: Slow(0.2, 0.2, 0.0)}
    for share, speed in ((0.15, 0.2), (0.25, 0.2), (0.1, 0.1), (0.4, 0.4)):
        found = slow_after(known, {A: had(1.0, share), B: had(0.6, 0.9)}, 10.0, HORIZON_S)
        assert round(found[A].speed, 6) == speed
    less = slow_after(known, {A: had(0.3, 0.4), B: had(0.6, 0.9)}, 10.0, HORIZON_S)
    assert less == known  # a better figure, of less work


def test_a_worker_can_do_what_it_did_and_what_its_idle_time_is_worth() -> None:
    found = able_workers({A: had(1.0, 0.3), B: had(0.5, 0.8), C: had(0.0, 0.0)})
    assert found == {A: 0.3, B: 0.4 + 0.5 * 0.8, C: 0.8}


def test_workers_without_an_idle_moment_are_full() -> None:
    assert full_workers({A: had(0.95, 0.1), B: had(0.85, 0.9), C: had(0.0, 0.0)}) == {A}
    assert full_workers({A: CoreTime(0.0, 0.0, 0.0)}) == frozenset()


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from((A, B, C)), st.builds(had, st.floats(0, 1.05), st.floats(0.01, 1.0)), max_size=3
        ),
        max_size=20,
    )
)
def test_speeds_are_shares_and_the_best_worker_is_never_slow_at_once(looks: list[dict[Slot, CoreTime]]) -> None:
    known: dict[Slot, Slow] = {}
    for at, times in enumerate(looks):
        before, known = known, slow_after(known, times, float(at), HORIZON_S)
        assert all(0 < slow.speed <= 1 for slow in known.values())
        assert len(known.keys() - before.keys()) < max(1, len(times))
