"""What every policy gets and gives: a sample of the splitter's meters in, weights out.

Meters are cumulative, as transports count them, and a sample names its replicas. Replicas that join or leave a running
region are therefore plain data: they appear in a sample or are missing from the next one. Rejected: `join` and `leave`
events beside the samples, which engine and simulation would have to interleave in the same order to stay comparable.

A policy is an object with one mutating method, so that two runs with the same samples decide alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.errors import InvalidInput

UNITS = 1000  # R: weights are whole thousandths, so all weights of a region add up to this
REPLICAS_MAX = UNITS  # with more replicas than units some would get no row

# Which replica gets the next slice: by turns, by turns but past full connections, or the emptiest of a few.
Routing = Literal["turns", "reroute", "rebalance"]
Weights = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """The splitter's meters at one moment; they are cumulative and in the order of `replicas`."""

    time_s: float  # for which the region was observed: time in which the splitter had nothing to send is left out
    replicas: tuple[int, ...]  # names that stay with a replica for as long as it lives
    blocked_s: tuple[float, ...]  # how long the splitter has waited for each connection
    sent: tuple[float, ...]  # rows that each has taken: sent, or worked off where that is known; not the paper's
    took_s: tuple[float, ...] = ()  # how long each had the rows that it worked off; empty where that is not known

    def __post_init__(self) -> None:
        took = self.took_s or self.sent
        if not len(self.replicas) == len(self.blocked_s) == len(self.sent) == len(took):
            msg = (
                f"a sample needs one blocking time and one count for each replica but has {len(self.replicas)} "
                f"replicas, {len(self.blocked_s)} times and {len(self.sent)} counts, {len(took)} of them timed"
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Decision:
    """Weights for the replicas of a sample, and what they rest on, for the metric log."""

    time_s: float
    replicas: tuple[int, ...]
    weights: Weights
    rates: tuple[float, ...]  # smoothed share of the time for which each connection blocked
    clusters: tuple[int, ...]  # replicas with the same number shared one function


class Policy(Protocol):
    """Decides a region's weights."""

    routing: Routing

    def start(self, replicas: Sequence[int]) -> Weights:
        """The weights before the first sample."""

    def decide(self, sample: Sample) -> Decision:
        """The weights until the next sample."""


def even_weights(count: int) -> Weights:
    """Equal weights; what does not divide goes to the first, one unit each."""
    checked_count(count)
    share, rest = divmod(UNITS, count)
    return tuple(share + (i < rest) for i in range(count))


def checked_count(count: int) -> int:
    """The number of replicas, or InvalidInput when a region cannot have it."""
    if not 1 <= count <= REPLICAS_MAX:
        msg = f"a parallel region has {count} replicas; it must have 1 to {REPLICAS_MAX}"
        raise InvalidInput(msg)
    return count


def units_of(shares: Sequence[float]) -> Weights:
    """Shares as whole units that add up to UNITS; the largest remainders are rounded up."""
    total = float(sum(shares))
    if not shares or total <= 0 or min(shares) < 0:
        msg = f"shares must be 0 or more and not all 0 but are {list(shares)}"
        raise InvalidInput(msg)
    exact = [UNITS * share / total for share in shares]
    units = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda j: (units[j] - exact[j], j))
    for j in by_remainder[: UNITS - sum(units)]:
        units[j] += 1
    return tuple(units)


def checked_weights(shares: Sequence[float]) -> Weights:
    """Weights that a user gives as fractions of 1, as units; InvalidInput when they do not add up to 1."""
    if abs(sum(shares) - 1) > 1e-6:
        msg = f"weights {[round(share, 6) for share in shares]} add up to {sum(shares):g}; they must add up to 1"
        raise InvalidInput(msg)
    return units_of(shares)


def checked_settings(
    policy: str,
    known: Mapping[str, float],
    given: Mapping[str, float],
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, float]:
    """Known settings with the given ones put in, or InvalidInput for one that the policy does not have or allow."""
    for name, value in given.items():
        if name not in known:
            raise InvalidInput.unknown_name(kind=f"setting of policy {policy!r}:", name=name, known=known)
        least, most = (limits or {})[name]
        if not least <= value <= most:  # NaN is in no range
            msg = f"setting {name!r} of policy {policy!r} is {value!r}; give a number from {least:g} to {most:g}"
            raise InvalidInput(msg)
    return {**known, **given}
