"""Cases of the calibration, and the costs that fit what was measured: pure, so that planted costs are found again.

A case is a batch of so many bytes in so many rows; each size comes in long and in short rows, so that bytes and rows
can be told apart. What is fitted is a plane through the costs of one batch, with no part below 0. Errors count in
proportion, because a batch of 1 MB costs a hundred times one of 100 B.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.costs import EndCost

Floats = NDArray[np.float64]

NOTHING, READING = "nothing", "reading"  # in place of a distance: the source is alone, and reads its batches or not
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
LONG_ROW, SHORT_ROW = 1_024, 16
ROWS_MAX = 4_096  # as sources make them
SECONDS_AIMED_AT = 0.015  # of CPU at one end: enough beside starting and ending
BATCH_GUESS_S, BYTE_GUESS_S = 3e-5, 2e-10


@dataclass(frozen=True, slots=True)
class Case:
    """Batches of `size` bytes in `rows` rows."""

    size: int
    rows: int

    @property
    def batches(self) -> int:
        """How many are sent."""
        return round(SECONDS_AIMED_AT / (BATCH_GUESS_S + self.size * BYTE_GUESS_S))


def cases() -> tuple[Case, ...]:
    """Every size in long rows and in short ones."""
    return tuple(
        Case(size, max(1, min(ROWS_MAX, size // row))) for size, row in itertools.product(SIZES, (LONG_ROW, SHORT_ROW))
    )


def fitted(seconds: Mapping[Case, Sequence[float]]) -> EndCost:
    """The cost of an end from the CPU seconds that one batch took in each repeat of each case."""
    known = [case for case, repeats in seconds.items() if repeats]
    figures = np.array([[1e-6, case.rows * 1e-9, case.size * 1e-9] for case in known])
    found = np.array([max(0.0, statistics.median(seconds[case])) for case in known])
    floor = 1e-7  # a tenth of a microsecond: below it, noise would weigh more than what is measured
    weight = 1.0 / np.maximum(found, floor)
    return EndCost(*non_negative_least_squares(figures * weight[:, None], found * weight))


def non_negative_least_squares(matrix: Floats, wanted: Floats) -> list[float]:
    """The x without negative parts with the least |matrix x - wanted|: the best over all choices of columns."""
    columns = matrix.shape[1]
    best, least = np.zeros(columns), float(wanted @ wanted)
    for count in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), count):
            part, *_ = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)
            if (part < 0).any():
                continue
            rest = matrix[:, chosen] @ part - wanted
            if (value := float(rest @ rest)) < least * (1 - 1e-12):
                best, least = np.zeros(columns), value
                best[list(chosen)] = part
    return [float(value) for value in best]
