"""Round robin: even weights whatever happens. Also the base of the policies that look at queues instead of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.run.region.blocking_rate import BlockingRate
from penstock.run.region.contract import Decision, Policy, Routing, Sample, Weights, checked_settings, even_weights

SETTINGS: dict[str, float] = {}


class EvenWeights:
    """Even weights over the replicas there are; the rates are reported for the log and not looked at."""

    def __init__(self, routing: Routing = "turns") -> None:
        self.routing: Routing = routing
        self._rate = BlockingRate(smoothing=1.0)

    def start(self, replicas: Sequence[int]) -> Weights:
        """Even."""
        return even_weights(len(replicas))

    def decide(self, sample: Sample) -> Decision:
        """Even."""
        count = len(sample.replicas)
        rates = self._rate.observe(sample.time_s, sample.replicas, sample.blocked_s)
        return Decision(sample.time_s, sample.replicas, even_weights(count), rates, tuple(range(count)))


def build(settings: Mapping[str, float]) -> Policy:
    """Even weights, in turn."""
    checked_settings("round-robin", SETTINGS, settings)
    return EvenWeights()
