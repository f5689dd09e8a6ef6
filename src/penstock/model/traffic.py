"""What flows over the edges of a task graph: estimates where nobody counted, and the CPU of both ends at a distance.

A rate in bytes says neither how many rows nor how many batches it is. Where a profile states them they are used, and
`estimated` answers otherwise, from a row and a batch of ordinary size. A declared topology may have rates of any unit;
its estimates scale with them and mean as little or as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.model.costs import Distance, EndCost

Floats = NDArray[np.float64]
End = Literal["send", "receive"]
ENDS: tuple[End, ...] = ("send", "receive")

ROW_BYTES = 64.0  # a few numbers and a short text
BATCH_BYTES = 65_536.0  # about a thousand such rows, as sources make them


def estimated(rate: float, tuples: float | None = None, batches: float | None = None) -> tuple[float, float]:
    """Rows and batches per second of a stream of so many bytes per second; what is stated stays."""
    rows = rate / ROW_BYTES if tuples is None else tuples
    return rows, min(rows, rate / BATCH_BYTES) if batches is None else batches


@dataclass(frozen=True, eq=False)
class MeasuredEnd:
    """CPU that was measured at one end of the edges at one distance, and the traffic that it was measured of.

    Arrays in the order of the edges, 0 where nothing was measured. Keeping the traffic makes all five additive, so
    edges can be joined whose parts were measured at different distances.
    """

    distance: Distance
    end: End
    cpu: Floats
    rate: Floats
    tuples: Floats
    batches: Floats


def end_cpu(cost: EndCost, rate: Floats, tuples: Floats, batches: Floats, measured: MeasuredEnd | None) -> Floats:
    """CPU seconds per second of one end of each edge: what was measured, and the model for the rest."""
    if measured is None:
        return _modelled(cost, rate, tuples, batches)
    rest = _modelled(cost, rate - measured.rate, tuples - measured.tuples, batches - measured.batches)
    return measured.cpu + np.maximum(rest, 0.0)


def _modelled(cost: EndCost, rate: Floats, tuples: Floats, batches: Floats) -> Floats:
    return batches * (cost.batch_us * 1e-6) + tuples * (cost.tuple_ns * 1e-9) + rate * (cost.byte_ns * 1e-9)
