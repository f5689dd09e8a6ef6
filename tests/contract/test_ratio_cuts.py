"""What every method for minimum-ratio cuts promises, over the registry: the certificate, the bound, the seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cut_instances import Instance, cut_weight, instances, least_ratio, ratio
from hypothesis import HealthCheck, given, settings

from penstock.errors import InvalidInput
from penstock.optimise.fuse.ratio_cut import METHODS, Cut, minimum_ratio_cut

EVERY_METHOD = pytest.mark.parametrize("method", METHODS)
SMALL = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CLOSE = 1 + 1e-6


def cut_of(instance: Instance, method: str, seed: int = 0) -> Cut:
    return minimum_ratio_cut(*instance.arrays, method=method, seed=seed, demands=instance.demand_arrays)


def require_certificate(instance: Instance, cut: Cut, method: str) -> None:
    """Everything that the answer claims, computed anew by other code."""
    inside = set(np.flatnonzero(cut.side).tolist())
    assert 0 < len(inside) < len(instance.weights)
    assert 0 not in inside
    assert cut.side.dtype == np.bool_
    assert cut.weight == pytest.approx(cut_weight(instance, inside), abs=1e-12)
    assert cut.ratio == pytest.approx(ratio(instance, inside), rel=1e-9)
    assert 0 <= cut.bound <= cut.ratio
    assert cut.method == method


@EVERY_METHOD
@given(instance=instances())
@SMALL
def test_against_every_cut(method: str, instance: Instance) -> None:
    cut, least = cut_of(instance, method), least_ratio(instance)
    require_certificate(instance, cut, method)
    assert cut.ratio >= least * (1 - 1e-9) or math.isinf(least)
    assert cut.bound <= least * (1 + 1e-9) or math.isinf(least)
    if cut.proved:
        assert cut.ratio <= least * CLOSE
    assert math.isinf(cut.ratio) == math.isinf(least)


@EVERY_METHOD
@given(instance=instances(vertices_max=8, with_demands=True))
@SMALL
def test_against_every_cut_with_pairs_to_part(method: str, instance: Instance) -> None:
    cut, least = cut_of(instance, method), least_ratio(instance)
    require_certificate(instance, cut, method)
    assert cut.ratio >= least * (1 - 1e-9) or math.isinf(least)
    assert cut.bound <= least * (1 + 1e-9) or math.isinf(least)
    if cut.proved:
        assert cut.ratio <= least * CLOSE


@given(instance=instances())
@SMALL
def test_exact_proves_small_graphs(instance: Instance) -> None:
    cut = cut_of(instance, "exact")
    assert cut.proved
    assert cut.ratio <= least_ratio(instance) * CLOSE


@given(instance=instances(vertices_max=10))
@SMALL
def test_every_bound_is_below_every_cut_and_the_programs_is_the_best_of_flows(instance: Instance) -> None:
    cuts = {method: cut_of(instance, method) for method in METHODS}
    assert max(cut.bound for cut in cuts.values()) <= min(cut.ratio for cut in cuts.values()) * (1 + 1e-9)
    assert cuts["leighton-rao"].bound <= cuts["lp"].bound * CLOSE or cuts["lp"].ratio == cuts["lp"].bound
    assert cuts["refined"].ratio <= cuts["leighton-rao"].ratio


@EVERY_METHOD
def test_two_vertices(method: str) -> None:
    cut = minimum_ratio_cut([3.0, 2.0], [0, 1], [1, 0], [4.0, 1.0], method=method)
    assert cut.side.tolist() == [False, True]
    assert (cut.ratio, cut.weight) == (pytest.approx(2.5), pytest.approx(5.0))


@EVERY_METHOD
def test_two_cliques_are_parted_at_the_bridge(method: str) -> None:
    """Two complete graphs of five with edges of 1, joined by one of 0.5: ratio 0.5 / 5."""
    inside = [(a + shift, b + shift) for shift in (0, 5) for a in range(5) for b in range(a)]
    pairs = [*inside, (2, 7)]
    weights = [1.0] * len(inside) + [0.5]
    cut = minimum_ratio_cut(np.ones(10), [a for a, _ in pairs], [b for _, b in pairs], weights, method=method)
    assert cut.side.tolist() == [False] * 5 + [True] * 5
    assert cut.ratio == pytest.approx(0.1)


@EVERY_METHOD
def test_what_nothing_joins_is_parted_for_nothing_and_evenly(method: str) -> None:
    """Parts of weight 4, 3, 2 and 1 make 5 and 5."""
    cut = minimum_ratio_cut([4.0, 3.0, 1.0, 1.0, 1.0], [2, 0], [3, 1], [1.0, 0.0], method=method)
    assert (cut.ratio, cut.weight, cut.bound, cut.proved) == (0.0, 0.0, 0.0, True)
    assert np.array([4.0, 3.0, 1.0, 1.0, 1.0])[cut.side].sum() == 5.0


@EVERY_METHOD
def test_weights_of_zero_are_cut_where_it_is_cheapest(method: str) -> None:
    cut = minimum_ratio_cut([0.0, 0.0, 0.0], [0, 1], [1, 2], [5.0, 1.0], method=method)
    assert cut.ratio == cut.bound == math.inf
    assert cut.side.tolist() == [False, False, True]


@EVERY_METHOD
def test_demand_moves_the_cut(method: str) -> None:
    """On a path the middle is cheapest; a large demand between 0 and 1 is worth the dearer edge."""
    path = ([1.0] * 4, [0, 1, 2], [1, 2, 3], [3.0, 1.0, 3.0])
    assert minimum_ratio_cut(*path, method=method).side.tolist() == [False, False, True, True]
    moved = minimum_ratio_cut(*path, method=method, demands=([0], [1], [20.0]))
    assert moved.side.tolist() == [False, True, True, True]
    assert moved.ratio == pytest.approx(3.0 / 21.0)


@EVERY_METHOD
def test_same_seed_same_cut(method: str) -> None:
    random = np.random.default_rng(5)
    arrays = (random.random(30), random.integers(0, 30, 80), random.integers(0, 30, 80), random.random(80))
    first, second = (minimum_ratio_cut(*arrays, method=method, seed=3) for _ in range(2))
    assert first.side.tolist() == second.side.tolist()
    assert (first.ratio, first.bound, first.proved) == (second.ratio, second.bound, second.proved)


@EVERY_METHOD
@pytest.mark.parametrize(("vertices", "streams"), [(1e-9, 1e-9), (1e9, 1e-9), (1e-9, 1e9), (1e12, 1e12)])
def test_units_do_not_matter(method: str, vertices: float, streams: float) -> None:
    random = np.random.default_rng(1)
    weight, ends, rate = random.random(12), random.integers(0, 12, (2, 30)), random.random(30)
    plain = minimum_ratio_cut(weight, *ends, rate, method=method)
    scaled = minimum_ratio_cut(weight * vertices, *ends, rate * streams, method=method)
    assert scaled.ratio * vertices / streams == pytest.approx(plain.ratio, rel=1e-6)
    assert scaled.proved == plain.proved


@EVERY_METHOD
@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        (([1.0], [], [], []), "from 2 to"),
        (([], [], [], []), "from 2 to"),
        (([1.0, math.nan], [0], [1], [1.0]), "vertex weight 1 is nan"),
        (([1.0, -1.0], [0], [1], [1.0]), "vertex weight 1 is -1"),
        (([1.0, math.inf], [0], [1], [1.0]), "vertex weight 1 is inf"),
        (([1.0, 1.0], [0], [1], [-2.0]), "stream weight 0 is -2"),
        (([1.0, 1.0], [0], [2], [1.0]), "from 0 to 1"),
        (([1.0, 1.0], [-1], [1], [1.0]), "from 0 to 1"),
        (([1.0, 1.0], [0, 1], [1], [1.0]), "2 sources, 1 targets"),
        (([1.0, 1.0], [0.5], [1], [1.0]), "whole numbers"),
    ],
)
def test_bad_input_is_named(method: str, arrays: tuple[list[float], ...], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        minimum_ratio_cut(*arrays, method=method)


def test_unknown_method_and_numbers_out_of_range_are_named() -> None:
    two = ([1.0, 1.0], [0], [1], [1.0])
    with pytest.raises(InvalidInput, match="leighton-rao"):
        minimum_ratio_cut(*two, method="best")
    with pytest.raises(InvalidInput, match="epsilon is 0"):
        minimum_ratio_cut(*two, epsilon=0.0)
    with pytest.raises(InvalidInput, match="seconds"):
        minimum_ratio_cut(*two, seconds=0.0)
    with pytest.raises(InvalidInput, match="demand"):
        minimum_ratio_cut(*two, demands=([0], [5], [1.0]))
