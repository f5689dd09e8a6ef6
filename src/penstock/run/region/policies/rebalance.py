"""Flink's adaptive rebalance: of the next four connections the first that is empty, else the one with least queued.

Made for splits without order, where it is hard to beat; in an ordered region it shares `reroute`'s weakness.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.contract import Policy, checked_settings
from penstock.run.region.policies.round_robin import EvenWeights

SETTINGS: dict[str, float] = {}


def build(settings: Mapping[str, float]) -> Policy:
    """Even weights; `sharing.Sharing` looks at the queues."""
    checked_settings("rebalance", SETTINGS, settings)
    return EvenWeights("rebalance")
