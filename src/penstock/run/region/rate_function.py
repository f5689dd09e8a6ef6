"""Rate functions: how much a connection would block at every weight (paper, section 5.1).

Three steps, as printed: new data is smoothed into the raw points; the raw points are forced into non-decreasing order
by monotone regression (pool adjacent violators); the rest of the domain is filled by straight lines. (0, 0) is assumed.

Where the paper is silent, the reading that reproduces its figures was taken (docs/decisions/0016-balance.md): an
interval without blocking is data as far as the splitter was free to block; a point counts for the samples that are in
it, and decay takes from both; beyond the last point the last line goes on. Delta (section 5.3) is the least rise of the
function from one unit to the next: it makes alpha = log R / |log(R delta)| put weights and rates on one scale, and it
spreads weight evenly among connections of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from penstock.run.region.contract import UNITS

Floats = npt.NDArray[np.float64]

DELTA = 1e-6  # least rise per unit; R * DELTA = 0.1 % is the smallest blocking that means anything
KNEE = UNITS * DELTA  # blocking below this means none
POINT_SMOOTHING = 0.5  # weight of the newest value in a raw point
DECAY = 0.10  # paper, 5.4: what every iteration takes from the function beyond the current weight
COUNT_MAX = 10.0  # samples that a point can stand for: enough to be steady, few enough to be overruled
COUNT_MIN = 1e-6  # a point that has decayed below this is no knowledge any more


class RateFunction:
    """What is known of one connection.

    >>> function = RateFunction()
    >>> function.observe(500, 0.4)
    >>> [round(float(value), 3) for value in function.values()[[0, 250, 500, 1000]]]
    [0.0, 0.2, 0.4, 0.8]
    """

    def __init__(self, smoothing: float = POINT_SMOOTHING) -> None:
        self._smoothing = smoothing
        self.points: dict[int, float] = {}  # weight -> smoothed blocking rate
        self.counts: dict[int, float] = {}  # weight -> samples behind the point, as far as they have not decayed
        self.trust = 1.0  # in the line beyond the last point: what decay has left of it

    @classmethod
    def like(cls, others: Sequence[RateFunction], smoothing: float = POINT_SMOOTHING) -> RateFunction:
        """A function of one that nothing is known of, beside others: what they know, as if seen once."""
        function = cls(smoothing)
        function.points, counts, function.trust = pooled_points(others)
        function.counts = {weight: min(1.0, count) for weight, count in counts.items()}
        return function

    def observe(self, weight: int, rate: float, part: float = 1.0) -> None:
        """Blocking seen at a weight in a part of a sample; at weight 0 nothing can be learnt."""
        if weight > 0:
            if weight > self._last():
                self.trust = 1.0  # the line beyond is a new one
            before = self.points.get(weight)
            self.points[weight] = rate if before is None else before + part * self._smoothing * (rate - before)
            self.counts[weight] = min(COUNT_MAX, self.counts.get(weight, 0.0) + part)

    def decay(self, weight: int, share: float = DECAY) -> None:
        """Lower the function at every weight beyond the current one (paper, 5.4).

        What lies beyond the last point goes down with the points, and where there is none beyond the current weight by
        itself: from that point on, also where the current weight lies further out, from which the paper would begin.
        So the function becomes flat in time, and stays so when a point has decayed so far that it is forgotten.
        """
        last = self._last()
        if weight >= last:
            self.trust *= 1 - share
        for beyond in [w for w in self.points if w > weight]:
            self.points[beyond] *= 1 - share
            self.counts[beyond] *= 1 - share
            if self.counts[beyond] < COUNT_MIN:
                del self.points[beyond], self.counts[beyond]
        if self._last() < last:
            self.trust = 0.0

    def values(self) -> Floats:
        """Predicted blocking at 0 to UNITS units, rising by DELTA or more with every unit."""
        return filled(self.points, self.counts, self.trust)

    def _last(self) -> int:
        return max(self.points, default=0)


def pooled(functions: Sequence[RateFunction]) -> Floats:
    """The function of a cluster: every point of every member, the weighted mean where several have one at a weight."""
    return filled(*pooled_points(functions))


def pooled_points(functions: Sequence[RateFunction]) -> tuple[dict[int, float], dict[int, float], float]:
    """The raw points of several functions as one's, the samples behind them, and the trust in the line beyond."""
    sums: dict[int, float] = {}
    counts: dict[int, float] = {}
    for function in functions:
        for weight, rate in function.points.items():
            count = function.counts[weight]
            sums[weight] = sums.get(weight, 0.0) + count * rate
            counts[weight] = counts.get(weight, 0.0) + count
    last = max(counts, default=0)
    trusts = [(function.trust, function.counts[last]) for function in functions if last in function.counts]
    trust = sum(trust * count for trust, count in trusts) / counts[last] if trusts else 1.0
    return {weight: total / counts[weight] for weight, total in sums.items()}, counts, trust


def filled(points: Mapping[int, float], counts: Mapping[int, float], trust: float = 1.0) -> Floats:
    """Raw points as a function over the whole domain; of what lies beyond the last, `trust` has not decayed."""
    known = sorted(points)
    weights = [0, *known]
    heights = [0.0, *monotone([points[w] for w in known], [counts[w] for w in known])]
    units = np.arange(UNITS + 1, dtype=np.float64)
    found = np.interp(units, weights, heights)
    if len(weights) > 1 and weights[-1] < UNITS:
        slope = (heights[-1] - heights[-2]) / (weights[-1] - weights[-2])
        found[weights[-1] :] = heights[-1] + slope * (units[weights[-1] :] - weights[-1])
        found[weights[-1] + 1 :] *= trust
    return np.maximum.accumulate(found - DELTA * units) + DELTA * units


def monotone(values: Sequence[float], counts: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to the values in weighted squares: pool adjacent violators."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, count in zip(values, counts, strict=True):
        mean, weight, members = value, count, 1
        while blocks and blocks[-1][0] > mean:
            other_mean, other_weight, other_members = blocks.pop()
            mean = (mean * weight + other_mean * other_weight) / (weight + other_weight)
            weight += other_weight
            members += other_members
        blocks.append((mean, weight, members))
    return [mean for mean, _, members in blocks for _ in range(members)]
