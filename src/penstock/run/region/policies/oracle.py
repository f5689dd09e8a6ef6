"""The oracle: weights that are known beforehand, changed at times that are known beforehand (the paper's Oracle*).

Without any it is round robin. In experiments the weights are the replicas' true capacities; like the paper's it changes
them the moment the load changes, though rows that are still queued were cut for the old weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import InvalidInput
from penstock.run.region.blocking_rate import BlockingRate
from penstock.run.region.contract import (
    Decision,
    Policy,
    Routing,
    Sample,
    Weights,
    checked_settings,
    even_weights,
    units_of,
)

SETTINGS: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Known:
    """From this time and row on every replica's share is this; shares need not add up to anything."""

    from_s: float
    shares: Mapping[int, float]
    from_row: float = 0.0


class Oracle:
    """Weights by the clock of the samples."""

    routing: Routing = "turns"

    def __init__(self, known: Sequence[Known]) -> None:
        if list(known) != sorted(known, key=lambda entry: entry.from_s):
            msg = f"an oracle's times must rise but are {[entry.from_s for entry in known]}"
            raise InvalidInput(msg)
        self._known = tuple(known)
        self._rate = BlockingRate(smoothing=1.0)

    def start(self, replicas: Sequence[int]) -> Weights:
        """What is known of time 0."""
        return self._weights(0.0, 0.0, replicas)

    def decide(self, sample: Sample) -> Decision:
        """What is known of this time."""
        rates = self._rate.observe(sample.time_s, sample.replicas, sample.blocked_s)
        weights = self._weights(sample.time_s, sum(sample.sent), sample.replicas)
        return Decision(sample.time_s, sample.replicas, weights, rates, tuple(range(len(weights))))

    def _weights(self, time_s: float, rows: float, replicas: Sequence[int]) -> Weights:
        valid = [entry for entry in self._known if entry.from_s <= time_s and entry.from_row <= rows]
        shares = [valid[-1].shares.get(replica, 0.0) for replica in replicas] if valid else []
        return units_of(shares) if sum(shares) > 0 else even_weights(len(replicas))


def build(settings: Mapping[str, float]) -> Policy:
    """An oracle that knows nothing; an experiment makes an `Oracle` with what it knows."""
    checked_settings("oracle", SETTINGS, settings)
    return Oracle(())
