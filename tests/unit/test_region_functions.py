"""Rates, functions, allocation and clusters of a parallel region, each against an oracle."""

from __future__ import annotations

import doctest
import importlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.run.region import balancer, blocking_rate, contract, minimax, order, rate_function, sharing
from penstock.run.region.balancer import Balancer, BalancerSettings
from penstock.run.region.blocking_rate import BlockingMeter, BlockingRate
from penstock.run.region.clustering import ALPHA, clusters_of, distances, features
from penstock.run.region.contract import UNITS, checked_weights, even_weights, units_of
from penstock.run.region.minimax import allocate, around
from penstock.run.region.policies import find_policy
from penstock.run.region.rate_function import DELTA, RateFunction, filled, monotone, pooled

rates = st.floats(0, 1, allow_nan=False)


@pytest.mark.parametrize("module", [balancer, blocking_rate, rate_function, minimax, order, sharing])
def test_examples_in_the_heads_hold(module: object) -> None:
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0  # type: ignore[arg-type]


# -- blocking rate -----------------------------------------------------------------------------------------------------


def test_rate_is_the_smoothed_first_difference() -> None:
    rate = BlockingRate(smoothing=0.5)
    assert rate.observe(1.0, (0,), (0.4,)) == (0.4,)
    # 0.8 more in 2 s is 0.4 a second, so the mean stays; then 0.0 halves it.
    assert rate.observe(3.0, (0,), (1.2,)) == pytest.approx((0.4,))
    assert rate.observe(4.0, (0,), (1.2,)) == pytest.approx((0.2,))
    rate.forget(0)
    assert rate.observe(5.0, (0,), (1.3,)) == pytest.approx((0.1,))


def test_a_counter_that_was_reset_counts_from_zero() -> None:
    rate = BlockingRate(smoothing=1.0)
    rate.observe(1.0, (0,), (0.9,))
    assert rate.observe(2.0, (0,), (0.3,)) == pytest.approx((0.3,))


def test_replicas_may_come_and_go() -> None:
    rate = BlockingRate(smoothing=1.0)
    rate.observe(1.0, (0, 1), (0.5, 0.25))
    assert rate.observe(2.0, (1, 2), (0.5, 0.125)) == pytest.approx((0.25, 0.125))


def test_time_must_move_forward_and_smoothing_have_a_meaning() -> None:
    rate = BlockingRate()
    rate.observe(1.0, (0,), (0.0,))
    with pytest.raises(ValueError, match="forward"):
        rate.observe(1.0, (0,), (0.0,))
    with pytest.raises(ValueError, match="smoothing is 0"):
        BlockingRate(smoothing=0)


def test_meter_counts_a_wait_that_goes_on() -> None:
    meter = BlockingMeter()
    meter.wait(3, 1.0)
    assert meter.read((2, 3), 1.5) == (0.0, 0.5)
    meter.wait(3, 1.75)  # asked again while it waits
    meter.go_on(2.0)
    meter.go_on(9.0)
    assert meter.read((2, 3), 10.0) == (0.0, 1.0)


# -- rate functions ----------------------------------------------------------------------------------------------------


def nearest_monotone(values: list[float], counts: list[float]) -> list[float]:
    """The min-max formula of isotonic regression: an oracle that shares nothing with pool adjacent violators."""

    def mean(a: int, b: int) -> float:
        return sum(v * c for v, c in zip(values[a : b + 1], counts[a : b + 1], strict=True)) / sum(counts[a : b + 1])

    n = len(values)
    return [max(min(mean(a, b) for b in range(i, n)) for a in range(i + 1)) for i in range(n)]


@given(st.lists(st.tuples(rates, st.integers(1, 5).map(float)), max_size=9))
def test_monotone_regression_is_the_nearest_monotone_sequence(points: list[tuple[float, float]]) -> None:
    values, counts = [v for v, _ in points], [c for _, c in points]
    assert monotone(values, counts) == pytest.approx(nearest_monotone(values, counts), abs=1e-12)


@given(st.dictionaries(st.integers(1, UNITS), rates, max_size=8))
def test_functions_start_at_zero_and_rise_by_delta(points: dict[int, float]) -> None:
    values = filled(points, dict.fromkeys(points, 1.0))
    assert values[0] == 0
    assert (np.diff(values) >= DELTA * (1 - 1e-6)).all()


def test_lines_go_between_points_and_beyond_the_last() -> None:
    # (0, 0), (100, 0.2), (300, 0.4): 0.001 a unit beyond 300.
    values = filled({100: 0.2, 300: 0.4}, {100: 1.0, 300: 1.0})
    assert values[[50, 100, 200, 300, 500]] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.6])


def test_new_data_is_smoothed_in_and_weight_zero_teaches_nothing() -> None:
    function = RateFunction(smoothing=0.5)
    function.observe(0, 0.9)
    function.observe(10, 0.2)
    function.observe(10, 0.4)
    assert function.points == {10: pytest.approx(0.3)}


def test_decay_takes_a_tenth_beyond_the_current_weight_only() -> None:
    function = RateFunction()
    function.points, function.counts = {10: 0.2, 20: 0.4, 30: 0.5}, {10: 1.0, 20: 2.0, 30: 1e-6}
    function.decay(10)
    assert function.points == {10: 0.2, 20: pytest.approx(0.36)}
    assert function.counts == {10: 1.0, 20: pytest.approx(1.8)}  # and 30 is forgotten


def test_decay_lowers_the_function_at_every_weight_beyond_the_current_one() -> None:
    """The paper (5.4): "we reduce the blocking rate F_j(w_j) for each w_j > w̄_j by ... 10 % during each iteration"."""
    function = RateFunction()
    function.observe(100, 0.1)
    function.observe(200, 0.3)  # from here on 0.002 a unit: 1.9 at 1000
    before = function.values()
    function.decay(200)  # the current weight is the last point: all beyond is extrapolated
    after = function.values()
    assert after[: 200 + 1] == pytest.approx(before[: 200 + 1])
    assert before[1000] == pytest.approx(1.9)
    assert after[[400, 1000]] == pytest.approx([0.9 * 0.7, 0.9 * 1.9])
    function.decay(50)  # and where points lie beyond the current weight as well
    assert function.values()[[100, 200, 400, 1000]] == pytest.approx([0.09, 0.27, 0.81 * 0.7, 0.81 * 1.9])


def test_decay_begins_at_the_last_point_where_the_current_weight_lies_beyond_it() -> None:
    function = RateFunction()
    function.observe(500, 0.4)
    before = function.values()
    function.decay(700)  # a weight at which nothing was seen yet
    after = function.values()
    assert after[:501] == pytest.approx(before[:501])
    assert after[501:] == pytest.approx(np.maximum(0.9 * before[501:], 0.4), abs=1e-3)


def test_decay_makes_the_function_flat_beyond_the_current_weight_and_new_data_renews_it() -> None:
    """The paper (5.4): "... causes the blocking rate to become essentially flat beyond w̄_j over time"."""
    function = RateFunction()
    for _ in range(300):  # twice as long as a point is remembered
        function.observe(200, 0.3)
        function.decay(200)
    flat = function.values()
    assert flat[[200, 1000]] == pytest.approx([0.3, 0.3], abs=2 * UNITS * DELTA)
    function.observe(300, 0.5)
    assert function.values()[[200, 300, 1000]] == pytest.approx([0.3, 0.5, 1.9])


def test_a_function_stays_flat_when_its_last_point_is_forgotten() -> None:
    """Otherwise the line through the points before it would raise again what decay has lowered."""
    function = RateFunction()
    function.observe(100, 0.2)
    function.observe(500, 0.9)
    for _ in range(300):
        function.observe(100, 0.2)
        function.decay(100)
    assert set(function.points) == {100}
    assert function.values()[[100, 1000]] == pytest.approx([0.2, 0.2], abs=2 * UNITS * DELTA)


@given(st.dictionaries(st.integers(1, UNITS), rates, min_size=1, max_size=6), st.integers(0, UNITS))
def test_one_decay_of_a_rising_function_takes_a_tenth_or_flattens_it(points: dict[int, float], weight: int) -> None:
    """At every point beyond the current weight, and at every unit beyond the last point; between them lie lines."""
    function = RateFunction()
    for at, rate in zip(sorted(points), sorted(points.values()), strict=True):
        function.observe(at, rate)
    before = function.values()
    function.decay(weight)
    after = function.values()
    assert (after <= before + UNITS * DELTA).all()
    beyond = [at for at in range(weight + 1, UNITS + 1) if at in points or at > max(points)]
    assert (after[beyond] <= np.maximum(0.9 * before[beyond], before[weight]) + UNITS * DELTA).all()


def test_a_pooled_function_is_as_flat_as_the_members_that_know_its_end() -> None:
    fresh, old = RateFunction(), RateFunction()
    for function in (fresh, old):
        function.observe(100, 0.1)
        function.observe(200, 0.3)
    for _ in range(10):
        old.decay(200)
    trust = (1 + 0.9**10) / 2
    assert pooled([fresh, old])[[200, 1000]] == pytest.approx([0.3, trust * 1.9])
    assert RateFunction.like([fresh, old]).values()[1000] == pytest.approx(trust * 1.9)


def test_pooled_functions_know_what_their_members_know() -> None:
    a, b = RateFunction(), RateFunction()
    a.points, a.counts = {10: 0.2, 20: 0.4}, {10: 3.0, 20: 1.0}
    b.points, b.counts = {10: 0.4, 40: 0.8}, {10: 1.0, 40: 1.0}
    assert pooled([a, b])[[10, 20, 40]] == pytest.approx([0.25, 0.4, 0.8])


def test_a_part_of_a_sample_counts_as_that_part() -> None:
    function = RateFunction(smoothing=0.5)
    function.observe(10, 0.4)
    function.observe(10, 0.0, part=0.25)
    assert function.points == {10: pytest.approx(0.4 * (1 - 0.25 * 0.5))}
    assert function.counts == {10: 1.25}


# -- the decision ------------------------------------------------------------------------------------------------------


def test_silence_behind_a_draft_leader_teaches_nothing() -> None:
    """Connection 0 takes all of the first second and half of the next: the others were heard for half a second."""
    balancer = Balancer(BalancerSettings(decay=0.0, rate_smoothing=1.0, rise_max=1, step_max=1))
    balancer.start((0, 1, 2))
    balancer.decide(contract.Sample(1.0, (0, 1, 2), (1.0, 0.0, 0.0), (0.0,) * 3))
    assert balancer.functions()[1][UNITS] == pytest.approx(UNITS * DELTA)
    assert balancer.counts()[1] == {}
    balancer.decide(contract.Sample(2.0, (0, 1, 2), (1.5, 0.0, 0.0), (0.0,) * 3))
    assert list(balancer.counts()[1].values()) == [0.5]
    assert [sum(counts.values()) for counts in balancer.counts().values()] == [2.0, 0.5, 0.5]
    balancer.decide(contract.Sample(3.0, (0, 1, 2), (1.5, 0.0, 0.0), (0.0,) * 3))  # and now for all of it
    assert sum(balancer.counts()[2].values()) == 1.5


def test_weights_rise_by_steps_and_fall_at_once_and_keep_their_least() -> None:
    balancer = Balancer(BalancerSettings(rise_max=10, least=2))
    assert balancer.start((0, 1, 2, 3)) == (250,) * 4
    decision = balancer.decide(contract.Sample(1.0, (0, 1, 2, 3), (0.9, 0.0, 0.0, 0.0), (0.0,) * 4))
    assert decision.weights == (220, 260, 260, 260)  # what the others may not take stays
    for second in range(2, 40):
        blocked = (0.9 * second, 0.0, 0.0, 0.0)
        decision = balancer.decide(contract.Sample(float(second), (0, 1, 2, 3), blocked, (0.0,) * 4))
    assert decision.weights[0] == 2


def test_a_least_that_does_not_fit_is_an_even_share() -> None:
    balancer = Balancer(BalancerSettings(least=400))
    balancer.start((0, 1, 2, 3))
    assert balancer.decide(contract.Sample(1.0, (0, 1, 2, 3), (0.9, 0, 0, 0), (0.0,) * 4)).weights == (250,) * 4


# -- minimax -----------------------------------------------------------------------------------------------------------


@given(st.data())
def test_greedy_is_as_good_as_trying_everything(data: st.DataObject) -> None:
    """On a domain of 8 units, scaled up to UNITS: every composition is tried."""
    units, n = 8, data.draw(st.integers(1, 3))
    scale = UNITS // units
    steps = [sorted(data.draw(st.lists(st.integers(0, 9), min_size=units, max_size=units))) for _ in range(n)]
    low = [data.draw(st.integers(0, 2)) for _ in range(n)]
    high = [data.draw(st.integers(4, units)) for _ in range(n)]
    small = [[0.0, *map(float, s)] for s in steps]
    all_of_them = [
        max(small[j][w] for j, w in enumerate(c))
        for c in itertools.product(range(units + 1), repeat=n)
        if sum(c) == units and all(a <= w <= b for a, w, b in zip(low, c, high, strict=True))
    ]
    # A step function over UNITS whose value at k * scale is the small one's at k.
    large = [np.array([s[-(-i // scale)] for i in range(UNITS + 1)]) for s in small]
    bounds = [scale * a for a in low], [scale * b for b in high]
    if not all_of_them:
        with pytest.raises(ValueError, match="leave no weights"):
            allocate(large, *bounds)
        return
    weights = allocate(large, *bounds)
    assert sum(weights) == UNITS
    assert all(a <= w <= b for a, w, b in zip(*(bounds[0], weights, bounds[1]), strict=True))
    assert max(float(large[j][w]) for j, w in enumerate(weights)) <= min(all_of_them)


def test_ties_are_shared_evenly() -> None:
    assert allocate([np.zeros(UNITS + 1)] * 3) == even_weights(3)


def test_bounds_around_the_current_weights() -> None:
    assert around((0, 995, 5), 10) == ([0, 985, 0], [10, 1000, 15])
    steep, flat = np.arange(UNITS + 1) * 1.0, np.zeros(UNITS + 1)
    assert allocate([steep, flat], *around((500, 500), 50)) == (450, 550)


# -- clusters ----------------------------------------------------------------------------------------------------------


def made(knee: int, slope: float) -> np.ndarray:
    """No blocking up to the knee, then a straight rise."""
    units = np.arange(UNITS + 1)
    return np.maximum(DELTA * units, slope * np.maximum(0, units - knee))


def test_distance_is_the_largest_of_the_three_logarithms() -> None:
    a, b = made(10, 0.01), made(40, 0.01)
    apart = distances([a, b, a])
    knees, full = math.log(11 / 41), ALPHA * math.log(a[UNITS] / b[UNITS])
    assert apart[0, 1] == pytest.approx(max(abs(knees), abs(full)))
    assert apart[0, 2] == 0
    assert (apart == apart.T).all()
    assert features(a)[0] == pytest.approx(math.log(11))


def test_alpha_puts_rates_on_the_scale_of_weights() -> None:
    """Log R / |log(R delta)| with R = 1000 and delta = 1e-6: a rate of 0.1 % is as far from 1 as 1 unit from all."""
    assert (UNITS, DELTA) == (1000, 1e-6)
    assert pytest.approx(1.0) == ALPHA


def test_distance_looks_at_the_height_of_the_knee_as_well() -> None:
    """Two functions that begin to rise at one weight and end alike, but jump to different heights there."""
    low, high = np.full(UNITS + 1, 0.05), np.full(UNITS + 1, 0.4)
    low[:100] = high[:100] = 0.0
    low[-1] = high[-1] = 0.9
    assert distances([low, high])[0, 1] == pytest.approx(ALPHA * math.log(8))


def test_made_classes_are_found_whatever_their_order() -> None:
    kinds = [0, 1, 2, 1, 0, 2, 2, 0, 1, 1]
    knees = {0: 2, 1: 20, 2: 200}
    functions = [made(knees[kind], 0.001) for kind in kinds]
    assert clusters_of(distances(functions)) == (0, 1, 2, 1, 0, 2, 2, 0, 1, 1)


def test_clusters_do_not_chain() -> None:
    """Neighbours are near each other, the ends are not: complete linkage keeps every cluster within the limit."""
    places = np.array([0.0, 0.6, 1.2, 1.8, 2.4])
    apart = np.abs(places[:, None] - places[None, :])
    found = clusters_of(apart, near=0.7)
    assert max(apart[i, j] for i in range(5) for j in range(5) if found[i] == found[j]) <= 0.7
    assert len(set(found)) == 3


@given(st.lists(st.floats(0, 5), min_size=1, max_size=8))
def test_no_two_clusters_could_be_joined(places: list[float]) -> None:
    x = np.array(places)
    apart = np.abs(x[:, None] - x[None, :])
    found = clusters_of(apart, near=1.0)
    for a, b in itertools.combinations(sorted(set(found)), 2):
        members = [i for i, c in enumerate(found) if c in {a, b}]
        assert apart[np.ix_(members, members)].max() > 1.0


# -- weights -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40).filter(lambda shares: sum(shares) > 1e-6))
def test_shares_become_units_that_add_up(shares: list[float]) -> None:
    units = units_of(shares)
    assert sum(units) == UNITS
    assert all(abs(u - UNITS * s / sum(shares)) <= 1 for u, s in zip(units, shares, strict=True))


def test_bad_weights_and_counts_are_refused() -> None:
    assert checked_weights((0.25, 0.75)) == (250, 750)
    with pytest.raises(InvalidInput, match=r"add up to 0.9; they must add up to 1"):
        checked_weights((0.5, 0.4))
    with pytest.raises(InvalidInput, match="0 or more"):
        units_of((-1.0, 2.0))
    for count in (0, UNITS + 1):
        with pytest.raises(InvalidInput, match=f"has {count} replicas"):
            even_weights(count)
    with pytest.raises(ValueError, match="one blocking time"):
        contract.Sample(1.0, (0, 1), (0.0,), (0.0, 0.0))


@pytest.mark.parametrize(
    ("policy", "setting", "value"),
    [
        ("adaptive", "decay", -0.1),
        ("adaptive", "decay", math.nan),
        ("static", "step_max", 0.0),
        ("knee", "grow", 0.5),
        ("knee", "probe_cost", 0.0),
        ("knee", "cluster_from", math.inf),
    ],
)
def test_settings_that_make_no_sense_are_refused(policy: str, setting: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"setting '{setting}' of policy '{policy}' is .*; give a number from"):
        find_policy(policy).build({setting: value})
    with pytest.raises(InvalidInput, match="mood"):
        find_policy(policy).build({"mood": 1.0})
    module = importlib.import_module(find_policy(policy).module)
    assert set(module.LIMITS) == set(module.SETTINGS)
    find_policy(policy).build(module.SETTINGS)  # the defaults are within the limits
