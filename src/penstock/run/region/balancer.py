"""The paper's decision step: one sample of blocking times in, weights out (section 5, figures 4 and 6).

    rates of the interval -> points of the functions -> (decay) -> (clusters) -> minimax -> weights

With decay it is the paper's LB-adaptive, without it LB-static. Drafting (4.2) does not fool it for long: the draft
leader's weight falls, another connection leads and gets points of its own, and functions that know the same end alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.run.region.blocking_rate import SMOOTHING, BlockingRate
from penstock.run.region.clustering import CLUSTER_FROM, NEAR, clusters_of, distances
from penstock.run.region.contract import UNITS, Decision, Routing, Sample, Weights, even_weights
from penstock.run.region.minimax import Floats, allocate, around
from penstock.run.region.rate_function import DECAY, KNEE, POINT_SMOOTHING, RateFunction, pooled


@dataclass(frozen=True, slots=True)
class BalancerSettings:
    """What the paper fixes (decay, clusters from 32 on) and what it leaves open."""

    decay: float = DECAY
    rate_smoothing: float = SMOOTHING
    point_smoothing: float = POINT_SMOOTHING
    step_max: int = UNITS  # how far a weight may move in one decision; the paper's own runs jump from a third to 0
    rise_max: int = UNITS  # how far it may rise; it falls as far as it must
    least: int = 0  # no weight is below; a connection with weight 0 teaches nothing
    cluster_from: int = CLUSTER_FROM
    near: float = NEAR


class Balancer:
    """One region's functions and current weights."""

    routing: Routing = "turns"

    def __init__(self, settings: BalancerSettings) -> None:
        self._settings = settings
        self._rate = BlockingRate(settings.rate_smoothing)
        self._functions: dict[int, RateFunction] = {}
        self._weights: dict[int, int] = {}

    def start(self, replicas: Sequence[int]) -> Weights:
        """Even weights: nothing is known yet."""
        self._weights = dict(zip(replicas, even_weights(len(replicas)), strict=True))
        self._functions = {replica: RateFunction(self._settings.point_smoothing) for replica in replicas}
        return tuple(self._weights.values())

    def decide(self, sample: Sample) -> Decision:
        """Learn from the interval that ends with the sample, and weigh the next one."""
        self._follow_members(sample.replicas)
        rates = self._rate.observe(sample.time_s, sample.replicas, sample.blocked_s)
        for replica, rate in zip(sample.replicas, rates, strict=True):
            function, weight = self._functions[replica], self._weights[replica]
            part = heard(rate, sum(rates))
            if part > KNEE:
                function.observe(weight, rate, part)
            if self._settings.decay > 0:
                function.decay(weight, self._settings.decay)
        functions, clusters = self._clustered(sample.replicas)
        current = [self._weights[replica] for replica in sample.replicas]
        weights = allocate(functions, *self._bounds(current))
        for replica, before, after in zip(sample.replicas, current, weights, strict=True):
            if before != after:
                self._rate.forget(replica)
        self._weights = dict(zip(sample.replicas, weights, strict=True))
        return Decision(sample.time_s, sample.replicas, weights, rates, clusters)

    def functions(self) -> dict[int, Floats]:
        """Every replica's own function, for plots."""
        return {replica: function.values() for replica, function in self._functions.items()}

    def counts(self) -> dict[int, dict[int, float]]:
        """Behind every replica's points, by weight: how many samples are in them."""
        return {replica: dict(function.counts) for replica, function in self._functions.items()}

    def _follow_members(self, replicas: Sequence[int]) -> None:
        """New replicas start without weight and with what the others know; replicas that have gone are forgotten.

        In the paper no replica joins. With an empty function, which says nothing of blocking, a newcomer would
        get nearly everything at once.
        """
        present = [self._functions[r] for r in replicas if r in self._functions]
        self._functions = {
            r: self._functions.get(r) or RateFunction.like(present, self._settings.point_smoothing) for r in replicas
        }
        self._weights = {r: self._weights.get(r, 0) for r in replicas}

    def _bounds(self, current: Sequence[int]) -> tuple[list[int], list[int] | None]:
        settings, least = self._settings, min(self._settings.least, UNITS // len(current))
        # When replicas have left, the others must be able to take over all of their weight at once.
        if sum(current) != UNITS:
            return [least] * len(current), None
        low, _ = around(current, settings.step_max)
        _, high = around(current, min(settings.step_max, settings.rise_max))
        return [max(least, w) for w in low], [max(least, w) for w in high]

    def _clustered(self, replicas: Sequence[int]) -> tuple[list[Floats], tuple[int, ...]]:
        own = [self._functions[replica] for replica in replicas]
        values = [function.values() for function in own]
        if len(own) < self._settings.cluster_from:
            return values, tuple(range(len(own)))
        clusters = clusters_of(distances(values), self._settings.near)
        shared = {c: pooled([f for f, of in zip(own, clusters, strict=True) if of == c]) for c in set(clusters)}
        return [shared[c] for c in clusters], clusters


def heard(rate: float, together: float) -> float:
    """The part of an interval in which a connection could be heard, given all connections' blocking together.

    One that blocked was. One that was silent was only while the splitter did not wait for another: behind a draft
    leader that takes all of the time, silence says nothing (paper, 4.2).

    >>> heard(0.75, 0.75), heard(0.0, 0.75), heard(0.0, 1.0)
    (1.0, 0.25, 0.0)
    """
    return 1.0 if rate > KNEE else min(1.0, max(0.0, 1.0 - (together - rate)))
