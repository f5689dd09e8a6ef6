"""Clustering: connections whose functions are alike pool what they know (paper, section 5.3).

Distance compares, as logarithms of ratios, where two functions begin to rise (the service rate w_s), how high they are
there, and how high they are at full load; alpha = log R / |log(R delta)| puts rates on the scale of weights. The
clusters are agglomerative: every connection starts alone, the two nearest clusters are joined while they are near
enough. The paper leaves open what near is and how far two clusters are apart: theirs are as far apart as their farthest
members (complete linkage), because single linkage chains classes together over a few stray members, and a cluster that
mixes classes is the one thing that the paper calls imperative to avoid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.run.region.contract import UNITS
from penstock.run.region.rate_function import DELTA, KNEE

Floats = npt.NDArray[np.float64]

CLUSTER_FROM = 32  # connections; with fewer each has data enough of its own (paper, 6.6)
NEAR = math.log(2.0)  # functions within a factor of two are alike
ALPHA = math.log(UNITS) / abs(math.log(UNITS * DELTA))


def features(function: Floats) -> tuple[float, float, float]:
    """Log w_s, alpha log F(w_s), alpha log F(R): the distance is the largest difference of these three."""
    knee = min(UNITS, max(1, int(np.searchsorted(function, KNEE))))
    at_knee, at_full = float(function[knee]), float(function[UNITS])
    return math.log(knee), ALPHA * math.log(max(at_knee, DELTA)), ALPHA * math.log(max(at_full, DELTA))


def distances(functions: Sequence[Floats]) -> Floats:
    """Distance of every two functions; 0 when they cannot be told apart."""
    points = np.array([features(function) for function in functions]).reshape(len(functions), 3)
    found: Floats = np.abs(points[:, None, :] - points[None, :, :]).max(axis=2)
    return found


def clusters_of(apart: Floats, near: float = NEAR) -> tuple[int, ...]:
    """A cluster's number for each member, counted in order of first members; complete linkage up to `near`."""
    count = len(apart)
    between = apart.astype(np.float64, copy=True)
    np.fill_diagonal(between, np.inf)
    cluster = list(range(count))
    for _ in range(count - 1):
        a, b = divmod(int(between.argmin()), count)
        if between[a, b] > near:
            break
        keep, gone = min(a, b), max(a, b)
        farthest = np.maximum(between[keep], between[gone])
        between[keep, :], between[:, keep] = farthest, farthest
        between[gone, :], between[:, gone] = np.inf, np.inf
        between[keep, keep] = np.inf
        cluster = [keep if c == gone else c for c in cluster]
    order = {number: i for i, number in enumerate(dict.fromkeys(cluster))}
    return tuple(order[number] for number in cluster)
