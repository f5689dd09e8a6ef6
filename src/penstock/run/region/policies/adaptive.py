"""The paper's LB-adaptive: the balancer with decay, so that it explores again what it once found to block (5.4)."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.run.region.balancer import Balancer, BalancerSettings
from penstock.run.region.contract import UNITS, Policy, checked_settings
from penstock.run.region.rate_function import DECAY

SETTINGS = {"decay": DECAY, "step_max": float(UNITS), "rise_max": float(UNITS), "least": 0.0}
LIMITS = {
    "decay": (0.0, 1.0),
    "step_max": (1.0, float(UNITS)),
    "rise_max": (1.0, float(UNITS)),
    "least": (0.0, float(UNITS)),
}


def build(settings: Mapping[str, float]) -> Policy:
    """A balancer whose functions decay by a tenth with every sample; the other settings bound the weights (5.2)."""
    found = checked_settings("adaptive", SETTINGS, settings, LIMITS)
    bounds = {name: int(found[name]) for name in ("step_max", "rise_max", "least")}
    return Balancer(BalancerSettings(found["decay"], **bounds))
