"""StreamCosts: the CPU that a stream takes at each of its ends, by how far apart its two tasks are.

Three distances: a call inside one worker, a ring between two workers of one node, a socket between two nodes. At each
distance a batch costs something to send and something to receive: a part for the batch itself, one for each of its
rows and one for each of its bytes. That is w_e of paper 004 (section 3.1), measured instead of guessed.

    >>> EndCost(batch_us=10.0, tuple_ns=5.0, byte_ns=0.5).cpu(batches=100.0, tuples=1e6, size=1e6)
    0.0065
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

Distance = Literal["call", "ring", "socket"]
DISTANCES: tuple[Distance, ...] = ("call", "ring", "socket")
COST_MAX = 1e9  # of one batch, row or byte; more is a mistake in the unit


@dataclass(frozen=True, slots=True)
class EndCost:
    """What one end of a stream does for each batch."""

    batch_us: float = 0.0
    tuple_ns: float = 0.0
    byte_ns: float = 0.0

    def cpu(self, batches: float, tuples: float, size: float) -> float:
        """CPU seconds for so many batches, rows and bytes: of rates, CPU seconds per second."""
        return batches * self.batch_us * 1e-6 + (tuples * self.tuple_ns + size * self.byte_ns) * 1e-9


@dataclass(frozen=True, slots=True)
class DistanceCost:
    """Both ends of a stream at one distance."""

    send: EndCost = EndCost()
    receive: EndCost = EndCost()


@dataclass(frozen=True, slots=True)
class StreamCosts:
    """The three distances; `origin` says where the figures come from, for people."""

    call: DistanceCost = DistanceCost()
    ring: DistanceCost = DistanceCost()
    socket: DistanceCost = DistanceCost()
    origin: str = ""

    def at(self, distance: Distance) -> DistanceCost:
        """The costs at one distance."""
        found: DistanceCost = getattr(self, distance)
        return found

    def faults(self) -> list[str]:
        """Figures that cannot be, one sentence each."""
        return [
            f"cost {where} is {value:g}; it must be finite, 0 or more and at most {COST_MAX:g}"
            for where, value in self.figures()
            if not (math.isfinite(value) and 0 <= value <= COST_MAX)
        ]

    def figures(self) -> Iterator[tuple[str, float]]:
        """Every figure with its name, such as `ring.send.batch_us`."""
        for distance in DISTANCES:
            for end in ("send", "receive"):
                cost: EndCost = getattr(self.at(distance), end)
                for part in fields(cost):
                    yield f"{distance}.{end}.{part.name}", float(getattr(cost, part.name))


# Rounded from what `penstock calibrate` found in several runs; see docs/decisions/0036-cost-of-streams.md.
DEFAULT_COSTS = StreamCosts(
    call=DistanceCost(EndCost(batch_us=1.5), EndCost(batch_us=1.5)),
    ring=DistanceCost(EndCost(batch_us=15.0, byte_ns=0.12), EndCost(batch_us=27.0, byte_ns=0.22)),
    socket=DistanceCost(EndCost(batch_us=24.0, byte_ns=0.12), EndCost(batch_us=32.0, byte_ns=0.16)),
    origin="default costs, measured on two cores of a cloud machine; penstock calibrate measures this one's",
)
