"""Re-routing at the transport (paper, 4.4): a row whose connection is full goes to the next that is not.

It is kept as the comparison that fails: by the time a connection is full its buffers hold more than the region can
wait for, and an ordered merge waits for all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.contract import Policy, checked_settings
from penstock.run.region.policies.round_robin import EvenWeights

SETTINGS: dict[str, float] = {}


def build(settings: Mapping[str, float]) -> Policy:
    """Even weights; `sharing.Sharing` passes full connections by."""
    checked_settings("reroute", SETTINGS, settings)
    return EvenWeights("reroute")
