"""From seconds that the exact solver took to phi, the tasks that it finishes within theta; pure arithmetic.

Up to the limit of the experiment phi is what was measured: between two sizes the logarithm of the seconds is taken to
be linear, and below the smallest the seconds are taken to be proportional to the size, which no solver beats. Beyond
the limit phi is extrapolated. Seconds are taken to grow by one factor for each task, exponentially, and the factor is
fitted to the sizes that were measured. Where they really grow as a power of the size, this says too few tasks
(`test_growth_by_a_power_is_extrapolated_to_fewer_tasks`). It reaches to `REACH` times the largest size solved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

REACH = 3.0  # times the largest solved size: no solve beyond was ever seen
NOISE_SECONDS = 0.003  # a solve below this is start-up and tells nothing about growth
SPAN_MIN = 1.3  # the largest size over the smallest that a factor may be fitted to


@dataclass(frozen=True, slots=True)
class Threshold:
    """phi, and how it came about where it was not measured."""

    phi: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """An experiment: sizes that were solved within `limit` seconds, ascending, with the longest solve of each."""

    limit: float
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def threshold(self, theta: float) -> Threshold:
        """Phi for theta: it never falls when theta rises (`test_phi_never_falls_when_theta_rises`)."""
        if not self.sizes:
            return Threshold(0)
        if theta <= self.limit:
            return Threshold(self._within(theta))
        return self._beyond(theta)

    def _within(self, theta: float) -> int:
        """Interpolated between sizes that were solved; a larger size is taken to need no less than a smaller one."""
        phi = 0.0
        small, sooner = 0, 0.0
        for size, later in zip(self.sizes, np.maximum.accumulate(self.seconds).tolist(), strict=True):
            if later <= theta:
                phi = float(size)
            else:
                share = math.log(theta / sooner) / math.log(later / sooner) if sooner > 0 else theta / later
                return math.floor(small + (size - small) * share)
            small, sooner = size, later
        return math.floor(phi)

    def _beyond(self, theta: float) -> Threshold:
        """Extrapolated from the largest size, as though that had taken the whole limit."""
        largest, limit = self.sizes[-1], f"within {self.limit:g} s"
        growth = self.growth_per_task()
        if growth is None:
            return Threshold(largest, f"phi {largest} is what was solved {limit}; too few sizes to extrapolate from")
        most = math.floor(REACH * largest)
        more = math.log(theta / self.limit) / growth if growth > 0 else math.inf
        phi = most if more >= most - largest else largest + math.floor(more)
        how = f"{largest} tasks solved {limit}, {math.expm1(growth):.1%} more time for each further task"
        capped = f"; capped at {REACH:g} times the largest size solved" if phi == most else ""
        return Threshold(phi, f"phi {phi} is extrapolated from {how}{capped}")

    def growth_per_task(self) -> float | None:
        """The logarithm of the factor by which one more task lengthens a solve, by least squares; None if unknown."""
        used = [(n, s) for n, s in zip(self.sizes, self.seconds, strict=True) if s >= NOISE_SECONDS]
        if len(used) < 2 or used[-1][0] < SPAN_MIN * used[0][0]:
            return None
        size, seconds = np.array(used).T
        away = size - size.mean()
        return max(0.0, float(away @ np.log(seconds) / (away @ away)))
