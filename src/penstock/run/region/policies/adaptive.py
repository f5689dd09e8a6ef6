"""The paper's LB-adaptive: the balancer with decay, so that it explores again what it once found to block (5.4)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.balancer import Balancer, BalancerSettings
from penstock.run.region.contract import UNITS, Policy, checked_settings
from penstock.run.region.rate_function import DECAY

SETTINGS = {"decay": DECAY, "step_max": float(UNITS)}
LIMITS = {"decay": (0.0, 1.0), "step_max": (1.0, float(UNITS))}


def build(settings: Mapping[str, float]) -> Policy:
    """A balancer whose functions decay by a tenth with every sample."""
    found = checked_settings("adaptive", SETTINGS, settings, LIMITS)
    return Balancer(BalancerSettings(decay=found["decay"], step_max=int(found["step_max"])))
