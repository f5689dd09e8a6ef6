"""Rate functions: how much a connection would block at every weight (paper, section 5.1).

    >>> function = RateFunction()
    >>> function.observe(500, 0.4)
    >>> [round(float(value), 3) for value in function.values()[[0, 250, 500, 1000]]]
    [0.0, 0.2, 0.4, 0.8]

Three steps, as printed: new data is smoothed into the raw points; the raw points are forced into non-decreasing order
by monotone regression (pool adjacent violators); the rest of the domain is filled by straight lines. (0, 0) is assumed.

Where the paper is silent: smoothing into a point is an exponential mean; a sample without blocking gives no point (the
paper counts one new value per interval, that of the draft leader, and the draftees' zeros would say that they have room
where they have none); beyond the last point the last line goes on. Delta, which the paper mentions only in section 5.3
as "the value we introduce when we need to force monotonicity", is the least rise of the function from one unit to the
next: with it a function rises to R * delta at least, which is what makes alpha = log R / |log(R delta)| put weights and
rates on one scale. It also spreads weight evenly among connections of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from penstock.run.region.contract import UNITS

Floats = npt.NDArray[np.float64]

DELTA = 1e-6  # least rise per unit; R * DELTA = 0.1 % is the smallest blocking that means anything
POINT_SMOOTHING = 0.5  # weight of the newest value in a raw point
DECAY = 0.10  # paper, 5.4: what every iteration takes from the function beyond the current weight
NOTHING = 1e-9  # a decayed value below this is no knowledge any more


class RateFunction:
    """What is known of one connection."""

    def __init__(self, smoothing: float = POINT_SMOOTHING) -> None:
        self._smoothing = smoothing
        self.points: dict[int, float] = {}  # weight -> smoothed blocking rate

    def observe(self, weight: int, rate: float) -> None:
        """Blocking seen at a weight; at weight 0 nothing can be learnt."""
        if weight > 0:
            before = self.points.get(weight)
            self.points[weight] = rate if before is None else before + self._smoothing * (rate - before)

    def decay(self, weight: int, share: float = DECAY) -> None:
        """Trust what lies beyond the current weight a little less (paper, 5.4)."""
        for beyond in [w for w in self.points if w > weight]:
            self.points[beyond] *= 1 - share
            if self.points[beyond] < NOTHING:
                del self.points[beyond]

    def values(self) -> Floats:
        """Predicted blocking at 0 to UNITS units, rising by DELTA or more with every unit."""
        return filled(self.points.items())


def pooled(functions: Sequence[RateFunction]) -> Floats:
    """The function of a cluster: every point of every member, the mean where several have one at the same weight."""
    seen: dict[int, list[float]] = {}
    for function in functions:
        for weight, rate in function.points.items():
            seen.setdefault(weight, []).append(rate)
    counts = {weight: float(len(rates)) for weight, rates in seen.items()}
    return filled(((weight, sum(rates) / len(rates)) for weight, rates in seen.items()), counts)


def filled(points: Iterable[tuple[int, float]], counts: dict[int, float] | None = None) -> Floats:
    """Raw points as a function over the whole domain."""
    known = sorted(points)
    weights = [0, *(weight for weight, _ in known)]
    rates = monotone([rate for _, rate in known], [1.0 if counts is None else counts[w] for w, _ in known])
    heights = [0.0, *rates]
    units = np.arange(UNITS + 1, dtype=np.float64)
    found = np.interp(units, weights, heights)
    if len(weights) > 1 and weights[-1] < UNITS:
        slope = (heights[-1] - heights[-2]) / (weights[-1] - weights[-2])
        found[weights[-1] :] = heights[-1] + slope * (units[weights[-1] :] - weights[-1])
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
