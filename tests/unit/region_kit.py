"""What tests of regions share."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.run.region.contract import UNITS
from penstock.run.region.sharing import Sharing


def turns(weights: Sequence[int]) -> list[int]:
    """Positions of the replicas in the order of their next UNITS single rows, after which the order repeats."""
    sharing = Sharing(range(len(weights)))
    sharing.retarget(range(len(weights)), weights)
    return [sharing.take(1) for _ in range(UNITS)]
